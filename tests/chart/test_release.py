"""helm install, upgrade and uninstall on a real API server: the CRD and the jobs stay."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from epochal.control.job import DEFAULT_SERVICE_ACCOUNT, parse_job
from epochal.protocol.epochs import Epoch, Generation
from epochal_operator.kubernetes.manifests.cleanup_job import cleanup_job
from epochal_operator.kubernetes.manifests.resources import driver_pod, executor_template
from tests.chart.cluster import JOB_NAMESPACE, ChartCluster, KubectlError, job
from tests.chart.render import CHART, CRD_COPY, NO_CRDS, RELEASE_NAMESPACE, VARIANTS, HelmError, documents, found

pytestmark = pytest.mark.cluster

CRD = "crd/streamingjobs.epochal.dev"


def uid(cluster: ChartCluster) -> str:
    return cluster.kubectl(
        "get", "streamingjob/words", "--namespace", JOB_NAMESPACE, "--output=jsonpath={.metadata.uid}"
    )


def test_crd_and_jobs_survive_upgrade_uninstall_and_a_new_install(chart_cluster: ChartCluster) -> None:
    said = chart_cluster.install({"watchNamespaces": [JOB_NAMESPACE]})
    assert "manages StreamingJobs in team-a" in said
    chart_cluster.wait_for_crd()
    chart_cluster.apply(job())
    before = uid(chart_cluster)
    try:
        # Upgrade: from one namespace to all, and to two operators.
        chart_cluster.upgrade({"ha": {"enabled": True}})
        assert uid(chart_cluster) == before
        assert chart_cluster.names("deployments", RELEASE_NAMESPACE) == ["epochal"]
        assert "epochal-operator" not in chart_cluster.names("roles", JOB_NAMESPACE)
        assert chart_cluster.kubectl("get", "clusterrolebinding/epochal-operator")
        # Uninstall: all goes but the CRD and the jobs.
        chart_cluster.uninstall()
        assert chart_cluster.names("deployments", RELEASE_NAMESPACE) == []
        assert "epochal" not in chart_cluster.names("serviceaccounts", RELEASE_NAMESPACE)
        with pytest.raises(KubectlError, match="not found"):
            chart_cluster.kubectl("get", "clusterrole/epochal-operator")
        assert uid(chart_cluster) == before
        # Another install takes the CRD over again.
        chart_cluster.install({})
        assert uid(chart_cluster) == before
    finally:
        chart_cluster.uninstall()
        chart_cluster.kubectl("delete", "streamingjob/words", "--namespace", JOB_NAMESPACE)
        chart_cluster.kubectl("delete", CRD)


def test_an_upgrade_brings_the_new_crd(chart_cluster: ChartCluster, tmp_path: Path) -> None:
    """Helm never upgrades what lies in a chart's own directory `crds/`; ours is a template for that reason."""
    older = Path(shutil.copytree(CHART, tmp_path / "epochal"))
    crd = yaml.safe_load((older / "files" / "crds" / CRD_COPY.name).read_text(encoding="utf-8"))
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["volumes"]
    (older / "files" / "crds" / CRD_COPY.name).write_text(yaml.safe_dump(crd), encoding="utf-8")
    chart_cluster.install({}, chart=older)
    chart_cluster.wait_for_crd()
    chart_cluster.apply(job())
    before = uid(chart_cluster)
    try:
        chart_cluster.upgrade({})
        properties = "{.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.volumes.type}"
        assert chart_cluster.kubectl("get", CRD, f"--output=jsonpath={properties}") == "array"
        assert uid(chart_cluster) == before
    finally:
        chart_cluster.uninstall()
        chart_cluster.kubectl("delete", CRD)


def test_crd_and_jobs_go_if_they_are_not_to_be_kept(chart_cluster: ChartCluster) -> None:
    chart_cluster.install({"crds": {"keep": False}})
    chart_cluster.wait_for_crd()
    chart_cluster.apply(job())
    chart_cluster.uninstall()
    chart_cluster.kubectl("wait", "--for=delete", CRD, "--timeout=30s")


def test_a_crd_of_somebody_else_is_left_alone(chart_cluster: ChartCluster) -> None:
    chart_cluster.kubectl("apply", "--server-side", "--filename=crds/")
    try:
        with pytest.raises(HelmError, match="invalid ownership metadata"):
            chart_cluster.install({})
        chart_cluster.install(NO_CRDS)
        chart_cluster.uninstall()
        assert chart_cluster.kubectl("get", CRD)
    finally:
        chart_cluster.kubectl("delete", CRD)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_api_server_takes_every_variant(chart_cluster: ChartCluster, name: str) -> None:
    made = documents(VARIANTS[name])
    # Prometheus' own kinds are not there.
    known = [document for document in made if not document["apiVersion"].startswith("monitoring.coreos.com")]
    assert len(known) >= 2
    chart_cluster.apply(*known, dry=True)


def test_a_jobs_pods_pass_the_restricted_standard_and_run_as_one_account(chart_cluster: ChartCluster) -> None:
    manifest = job()
    manifest["metadata"]["namespace"] = "restricted"
    # The old name of the field, which the API server still takes.
    kinds = ("driver", "executor", "cleanup")
    manifest["spec"] |= {kind: {"podTemplate": {"spec": {"serviceAccount": "default"}}} for kind in kinds}
    manifest["spec"]["image"] = "example.org/spark"
    spec = parse_job(manifest)
    owner = {"apiVersion": "epochal.dev/v1alpha1", "kind": "StreamingJob", "name": "words", "uid": "1"}
    restricted(chart_cluster)
    account = {"name": DEFAULT_SERVICE_ACCOUNT, "namespace": "restricted"}
    chart_cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    executor = executor_template(spec, "keys")
    # As Spark fills it in.
    executor["metadata"] |= {"name": "executor", "namespace": "restricted"}
    executor["spec"]["containers"][0]["image"] = "example.org/spark"
    cleanup = cleanup_job(spec, owner, Epoch(5))["spec"]["template"]
    cleanup |= {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cleanup", "namespace": "restricted"}}
    pods = [driver_pod(spec, owner, Generation(1), "keys"), executor, cleanup]
    chart_cluster.apply(*pods)
    try:
        taken = [chart_cluster.kubectl("get", "pod", pod["metadata"]["name"], *AS_SAVED) for pod in pods]
        saved = [json.loads(text)["spec"] for text in taken]
        assert [pod["serviceAccountName"] for pod in saved] == [DEFAULT_SERVICE_ACCOUNT] * 3
        # Only the driver may talk to the API server.
        assert ["kube-api-access" in text for text in taken] == [True, False, False]
    finally:
        chart_cluster.kubectl("delete", "pods", "--all", "--namespace=restricted", "--force", "--grace-period=0")


AS_SAVED = ("--namespace=restricted", "--output=json")


def restricted(cluster: ChartCluster) -> None:
    """A namespace that takes only pods of this standard."""
    cluster.make_namespaces("restricted", labels={"pod-security.kubernetes.io/enforce": "restricted"})
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--namespace=restricted", "--timeout=20s")


def test_the_operators_pod_passes_the_restricted_standard(chart_cluster: ChartCluster) -> None:
    restricted(chart_cluster)
    deployment = found(NO_CRDS, "Deployment", "epochal")
    spec: dict[str, Any] = {**deployment["spec"]["template"]["spec"], "serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", "namespace": "restricted"}}
    chart_cluster.apply({**pod, "spec": spec}, dry=True)
    loose = {**spec, "containers": [{**spec["containers"][0], "securityContext": {}}]}
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        chart_cluster.apply({**pod, "spec": loose}, dry=True)
