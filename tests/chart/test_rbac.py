"""Nothing in the operator's role is unneeded: each right is taken away once, and something fails.

One operator looks after a namespace for each right; in that namespace it has all rights but this one. In one more it
has them all, and there a job lives its whole life without a single refusal.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from epochal.control.job import parse_job
from epochal_operator.api import Api, path
from epochal_operator.kubernetes.dependents import Belongings
from epochal_operator.kubernetes.manifests.resources import owner
from epochal_operator.kubernetes.nodes import Nodes
from epochal_operator.kubernetes.watch_cache import Watched
from epochal_operator.names import PLURAL, RESTART_ANNOTATION
from tests.chart.cluster import ChartCluster
from tests.chart.render import RELEASE_NAMESPACE
from tests.chart.rights import (
    CLUSTER,
    DRIVER,
    LEASE,
    OPERATOR,
    Right,
    bound,
    chart_roles,
    group,
    namespace_of,
    rules_of,
)
from tests.operator.fake_kubelet import FakeKubelet, wait_until
from tests.operator.harness import Bench, JobHandle, OperatorProcess, install_crd, load_api, patch

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ACCOUNT = "operator"
EVERYTHING = "everything"

# A role without these keeps an operator from starting at all, so each has an operator of its own.
AT_START = [
    *(Right(resource, "list") for resource in ("pods", "services", "configmaps", "jobs", "streamingjobs")),
    Right("streamingjobs", "watch"),
]
LATER = [right for right in OPERATOR if right not in AT_START]


def all_but(missing: Iterable[Right], rights: Iterable[Right] = OPERATOR) -> dict[str, list[Right]]:
    """For each missing right the namespace without it, and the rights there."""
    return {namespace_of(right): [other for other in rights if other != right] for right in missing}


def test_the_charts_roles_hold_these_rights_and_no_others() -> None:
    roles = chart_roles()
    assert rules_of(roles["operator"]) == set(OPERATOR)
    assert rules_of(roles["everywhere"]) == {*OPERATOR, *CLUSTER}
    assert rules_of(roles["lease"]) == set(LEASE)
    assert rules_of(roles["driver"]) == set(DRIVER)


@dataclass
class World:
    cluster: ChartCluster
    api: Api
    directory: Path
    kubeconfig: Path

    def benches(self, rights: Mapping[str, list[Right]]) -> dict[str, Bench]:
        """Namespaces, and in each of them the operator's account has these rights."""
        made = {}
        for namespace in rights:
            directory = self.directory / namespace
            directory.mkdir()
            made[namespace] = Bench(self.api, directory, namespace)
        roles = [bound(ACCOUNT, RELEASE_NAMESPACE, namespace, rights[namespace]) for namespace in rights]
        self.cluster.apply(*(document for role in roles for document in role))
        return made

    def operator(self, name: str, *options: str) -> OperatorProcess:
        return OperatorProcess(self.kubeconfig, self.directory / f"{name}.log", *options)


@pytest.fixture(scope="module")
def world(chart_cluster: ChartCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("rbac")
    api = load_api(chart_cluster.plane.kubeconfig)
    install_crd(api)
    chart_cluster.kubectl("create", "serviceaccount", ACCOUNT, "--namespace", RELEASE_NAMESPACE)
    kubeconfig = chart_cluster.kubeconfig_of(ACCOUNT, RELEASE_NAMESPACE, directory / "operator.kubeconfig")
    with FakeKubelet(api):
        yield World(chart_cluster, api, directory, kubeconfig)
    # Where the operator was refused, nobody takes the finalizers away.
    for job in api.list(PLURAL, None)["items"]:
        where = path(PLURAL, job["metadata"]["namespace"], job["metadata"]["name"])
        patch(api, where, {"metadata": {"finalizers": None}})
    chart_cluster.kubectl("delete", "crd/streamingjobs.epochal.dev")


def start_job(bench: Bench, name: str = "words", **changes: Any) -> JobHandle:
    """One whose ConfigMap is looked at, and which is cleaned up after often."""
    if name == "words":
        program = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "program"},
            "data": {"pipeline.py": ""},
        }
        bench.api.create("configmaps", bench.namespace, program)
    parameters = {"output": str(bench.directory / name)} | changes.pop("parameters", {})
    retention = {"keep": 1, "every": 1}
    storage = {"uri": f"file://{bench.directory}/store"}
    return bench.apply(
        name,
        pipeline={"configMap": {"name": "program"}, "parameters": parameters},
        checkpoint={"interval": "500ms", "timeout": "5s", "retention": retention, "storage": storage},
        **changes,
    )


def start_slow_job(bench: Bench) -> JobHandle:
    """One whose driver must be ended, because it never begins."""
    return start_job(bench, "slow", parameters={"starting": "600"}, driver={"startTimeout": "1s"})


def said(log: Path) -> str:
    # Some quote the API server's answer, which quotes names.
    return log.read_text().replace('\\"', '"')


def wait_for_refusals(log: Path, rights: list[Right], *, seconds: float = 20.0) -> list[Right]:
    """Rights whose lack has not shown in time."""
    end = time.monotonic() + seconds
    while True:
        text = said(log)
        missing = [right for right in rights if right.refusal(namespace_of(right)) not in text]
        if not missing or time.monotonic() > end:
            return missing
        time.sleep(0.2)


def test_each_right_is_needed_and_no_other_is(world: World) -> None:
    """One test and not one for each right: what takes the time is the life of all these jobs."""
    benches = world.benches({**all_but(LATER), EVERYTHING: list(OPERATOR)})
    whole = benches[EVERYTHING]
    jobs = [start_job(bench) for bench in benches.values()]
    slow = [start_slow_job(bench) for bench in (benches[namespace_of(Right("pods", "delete"))], whole)]
    namespaces = ",".join(benches)
    with world.operator("operator", f"--namespaces={namespaces}") as operator:
        good = jobs[-1]
        good.wait_epoch(3, seconds=60)
        good.wait(lambda status: status.get("minEpoch", 1) > 1 and not status["cleanup"]["running"], seconds=30)
        slow[-1].wait(lambda status: status.get("generation", 0) >= 2, seconds=30)
        for job in jobs:
            job.annotate(RESTART_ANNOTATION, "now")
        good.wait(lambda status: status.get("generation", 0) >= 2 and status["phase"] == "Running", seconds=30)
        for job in (*jobs, *slow):
            job.delete()
        for job in (good, slow[-1]):
            job.wait_gone(seconds=30)
        # The others end, or wait for what they may not do: each was refused long before.
        assert not wait_for_refusals(operator.log, LATER)
        assert operator.running()
        assert f'in the namespace "{EVERYTHING}"' not in said(operator.log)
        assert "at the cluster scope" not in said(operator.log)


def test_without_those_it_cannot_even_start(world: World) -> None:
    """It waits for what it may not list. kopf looks for the jobs themselves, and only if all else was listed."""
    world.benches(all_but(AT_START))
    kopfs = [right for right in AT_START if right.resource == "streamingjobs"]
    groups = [[right for right in AT_START if right not in kopfs], *([right] for right in kopfs)]
    with ExitStack() as operators:
        for number, group in enumerate(groups):
            namespaces = ",".join(map(namespace_of, group))
            operators.enter_context(world.operator(f"start-{number}", f"--namespaces={namespaces}"))
        for number, group in enumerate(groups):
            log = world.directory / f"start-{number}.log"
            assert not wait_for_refusals(log, group, seconds=40), said(log)[-2000:]


@pytest.mark.parametrize("missing", CLUSTER, ids=lambda right: right.slug)
def test_each_right_of_the_cluster_role_is_needed(
    world: World, missing: Right, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator goes on without them, and says what it cannot do."""
    name = f"no-{missing.slug}"
    [bench] = world.benches({name: []}).values()
    rules = [
        {"apiGroups": [group(right)], "resources": [right.resource], "verbs": [right.verb]}
        for right in CLUSTER
        if right != missing
    ]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": name}
    world.cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": name}},
        {**kind, "kind": "ClusterRole", "rules": rules},
        {**kind, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )
    api = load_api(world.cluster.kubeconfig_of(name, name, tmp_path / "kubeconfig"))
    nodes = Nodes(api)
    nodes.start()
    job = start_job(bench)
    belongings = Belongings(api, Watched(api), time.time)
    belongings.ensure_budget(parse_job(job.get()), owner(job.get()))
    if missing.resource == "nodes":
        wait_until(lambda: not nodes.known.is_set(), seconds=10)
    else:
        assert nodes.known.is_set()
    nodes.stop()
    assert len(bench.names("poddisruptionbudgets")) == (missing.verb != "create")
    # Not `caplog.text`: pytest hands its handler to PySpark's loggers, and they make it write JSON.
    assert f'cannot {missing.verb} resource "{missing.resource}"' in "\n".join(caplog.messages)


def test_without_a_lease_right_nobody_leads(world: World) -> None:
    world.benches(all_but(LEASE, [*OPERATOR, *LEASE]))
    with ExitStack() as operators:
        for right in LEASE:
            namespace = namespace_of(right)
            options = (f"--namespaces={namespace}", "--lease=epochal", f"--lease-namespace={namespace}")
            operators.enter_context(world.operator(namespace, *options))
        for right in LEASE:
            log = world.directory / f"{namespace_of(right)}.log"
            refusal = right.refusal(namespace_of(right))
            wait_until(lambda log=log, refusal=refusal: refusal in said(log), seconds=40)
            assert "cannot list" not in said(log)
