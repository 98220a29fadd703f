"""docs/rbac.md says what a real API server says: all that it may do is allowed, all that it may not is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import kubernetes
import pytest
from kubernetes.client import (
    AuthorizationV1Api,
    V1ResourceAttributes,
    V1SubjectAccessReview,
    V1SubjectAccessReviewSpec,
)

from tests.chart.claims import PARTS, VALUES, Asks, Install, Sentence, ShownBy, StartsPod, Who
from tests.chart.cluster import JOB_NAMESPACE, ChartCluster, KubectlError
from tests.chart.rbac import PAGE, WRITE, page
from tests.operator.fake_kubelet import wait_until

SENTENCES = [sentence for part in PARTS for sentence in part.sentences]


def test_each_sentence_has_a_proof_and_what_others_prove_is_there() -> None:
    for sentence in SENTENCES:
        assert sentence.proofs, sentence.text
        for proof in sentence.proofs:
            if isinstance(proof, ShownBy):
                text = (Path(__file__).parent / proof.file).read_text(encoding="utf-8")
                assert re.search(rf"^def {proof.test}\(", text, re.MULTILINE), proof


@pytest.fixture(scope="module", params=list(Install))
def installed(request: pytest.FixtureRequest, chart_cluster: ChartCluster) -> Iterator[tuple[ChartCluster, Install]]:
    install: Install = request.param
    chart_cluster.install(VALUES[install])
    chart_cluster.wait_for_crd()
    for user, role in ((Who.VIEWER, "view"), (Who.EDITOR, "edit")):
        name = f"--namespace={JOB_NAMESPACE}"
        chart_cluster.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}", name)
    yield chart_cluster, install
    chart_cluster.kubectl("delete", "rolebinding", Who.VIEWER, Who.EDITOR, f"--namespace={JOB_NAMESPACE}")
    chart_cluster.uninstall()
    chart_cluster.kubectl("delete", "crd/streamingjobs.epochal.dev")


@pytest.mark.cluster
def test_the_page_is_up_to_date(installed: tuple[ChartCluster, Install]) -> None:
    cluster, install = installed
    if install is Install.BY_DEFAULT:
        assert page(cluster) == PAGE.read_text(encoding="utf-8"), WRITE


@pytest.mark.cluster
def test_what_the_page_says_is_true(installed: tuple[ChartCluster, Install]) -> None:
    cluster, install = installed
    client = kubernetes.config.new_client_from_config(str(cluster.plane.kubeconfig))  # type: ignore[no-untyped-call]
    reviews = AuthorizationV1Api(client)
    # The cluster's own roles take up the chart's a moment later.
    edits = Asks(who=Who.EDITOR, verb="create", resource="streamingjobs.epochal.dev", where=JOB_NAMESPACE, allowed=True)
    wait_until(lambda: allows(reviews, edits), seconds=20)
    wrong = [
        (sentence.text, proof)
        for sentence in SENTENCES
        if sentence.install is install
        for proof in wrong_proofs(cluster, reviews, sentence)
    ]
    assert not wrong


def wrong_proofs(cluster: ChartCluster, reviews: AuthorizationV1Api, sentence: Sentence) -> list[Asks | StartsPod]:
    wrong: list[Asks | StartsPod] = []
    for proof in sentence.proofs:
        match proof:
            case Asks():
                if allows(reviews, proof) != proof.allowed:
                    wrong.append(proof)
            case StartsPod():
                if starts(cluster, proof) != proof.allowed:
                    wrong.append(proof)
            case ShownBy():
                pass
    return wrong


def allows(reviews: AuthorizationV1Api, asked: Asks) -> bool:
    names, _, below = asked.resource.partition("/")
    resource, _, group = names.partition(".")
    groups = ["system:authenticated"]
    if asked.who.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{asked.who.split(':')[2]}"]
    spec = V1SubjectAccessReviewSpec(
        user=asked.who,
        groups=groups,
        resource_attributes=V1ResourceAttributes(
            verb=asked.verb, resource=resource, group=group, subresource=below, namespace=asked.where
        ),
    )
    answer = reviews.create_subject_access_review(V1SubjectAccessReview(spec=spec)).status
    return answer is not None and bool(answer.allowed)


def starts(cluster: ChartCluster, asked: StartsPod) -> bool:
    """Whether the API server would take the pod; if not, because of who asks, or for want of the account."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked-for", "namespace": asked.where},
        "spec": {"containers": [{"name": "a", "image": "example.org/a"}]} | asked.spec,
    }
    command = ("create", "--dry-run=server", "--validate=false", f"--as={asked.who}", "--filename=-")
    try:
        cluster.kubectl(*command, given=json.dumps(pod))
    except KubectlError as error:
        if not re.search("cannot create resource|error looking up service account", str(error)):
            raise
        return False
    return True
