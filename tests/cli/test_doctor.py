"""`epochal doctor` names what is wrong: a healthy world on a real API server, in which each test breaks one thing."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cluster.control_plane import ControlPlane
from epochal.cli.cluster.client import path
from epochal.cli.commands import commands
from epochal.cli.doctor import job_checks
from epochal.cli.doctor.cluster_checks import DRIVER_RIGHTS, RIGHTS
from epochal.cli.doctor.finding import Finding
from epochal.cli.doctor.store_check import check_store
from epochal.protocol.store import StoreOptions, open_store
from tests.chart.render import NO_CRDS, documents
from tests.cli.cluster_world import SYSTEM, World, conditions

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """An API server of its own: tests remove the CRD."""
    with ControlPlane(controller_manager=False) as plane:
        world = World(plane)
        world.heal()
        yield world


@pytest.fixture
def healthy(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("KUBECONFIG", str(world.kubeconfig))
    yield world
    world.heal()


def doctor(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(commands, ["doctor", "-n", "shop", "-o", "json", *arguments])
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, {one["name"]: one for one in json.loads(result.output) if one["level"] != "ok"}


@dataclass(frozen=True)
class Broken:
    """``says`` is in the finding's message; ``level`` is its level. Nothing else may be found."""

    name: str
    breaks: Callable[[World], object]
    says: str
    level: str = "problem"


def older(crd: dict[str, Any]) -> dict[str, Any]:
    crd = deepcopy(crd)
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["cleanup"]
    return crd


def newer(crd: dict[str, Any]) -> dict[str, Any]:
    crd = deepcopy(crd)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["autoscaling"] = {"type": "object", "description": "Of a later release."}
    return crd


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"name": "driver", "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
    return {"containerStatuses": [{**state, "state": {"waiting": {"reason": reason, "message": message}}}]}


def killed(reason: str, code: int) -> dict[str, Any]:
    state = {"name": "executor", "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
    return {
        "phase": "Failed",
        "containerStatuses": [{**state, "state": {"terminated": {"reason": reason, "exitCode": code}}}],
    }


def storage(**changes: Any) -> dict[str, Any]:
    keys = {"credentialsSecret": {"name": "keys"}}
    return {"checkpoint": {"storage": {"uri": "s3://bucket/jobs", **keys, **changes}}}


NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no memory"}
QUOTA = {"hard": {"pods": "2"}, "used": {"pods": "2"}}
OTHER = {"app.kubernetes.io/version": "9.9.9"}

BROKEN = [
    Broken("CrdMissing", lambda w: w.drop_crd(), "does not know StreamingJobs"),
    Broken("CrdOlder", lambda w: w.crd(older), "it lacks 6 fields"),
    Broken("CrdNewer", lambda w: w.crd(newer), "spec.autoscaling", "warning"),
    Broken(
        "OperatorMissing", lambda w: w.drop(path("deployments", SYSTEM, "epochal")), "no Deployment of the operator"
    ),
    Broken("OperatorScaledDown", lambda w: w.operator(replicas=0), "scaled to 0"),
    Broken("OperatorNotRunning", lambda w: w.operator(ready=0), "no pod of it is ready"),
    Broken("TwoOperators", lambda w: w.operator("--lease=epochal", name="second"), "watch all namespaces"),
    Broken("OtherRelease", lambda w: w.operator(labels=OTHER), "release 9.9.9", "warning"),
    Broken("NoLeader", lambda w: w.lease(ago=600.0), "has not renewed it for"),
    Broken("NoLeader", lambda w: w.drop(path("leases", SYSTEM, "epochal")), "nobody holds Lease"),
    Broken("NamespaceNotWatched", lambda w: w.operator("--namespaces=other"), "no operator watches it"),
    Broken("OperatorRights", lambda w: w.rules(operator=False), "list/watch/create/delete pods"),
    Broken("DriverRights", lambda w: w.rules(driver=False), "may not create/delete/get/list/watch pods"),
    Broken("DriverAccountMissing", lambda w: w.job(serviceAccount="nobody"), "it does not exist"),
    Broken(
        "QuotaUsedUp",
        lambda w: w.put(path("resourcequotas", "shop"), {"metadata": {"name": "small"}, "status": QUOTA}),
        "pods 2 of 2",
        "warning",
    ),
    Broken("SecretMissing", lambda w: w.drop(path("secrets", "shop", "keys")), "there is no Secret keys"),
    Broken("SecretKeyMissing", lambda w: w.secret(password="x"), "has no key AWS_ACCESS_KEY_ID"),
    Broken(
        "ConfigMapMissing",
        lambda w: w.job(pipeline={"configMap": {"name": "program", "key": "a.py"}}),
        "spec.pipeline.configMap: there is no ConfigMap program",
    ),
    Broken(
        "SecretKeyMissing",
        lambda w: w.job(env=[{"name": "P", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}}}]),
        "spec.env[0]: Secret keys has no key password",
    ),
    Broken("NoImage", lambda w: w.job(image=None), "the operator has no default"),
    Broken(
        "StoreNotShared",
        lambda w: w.job(**storage(uri="file:///tmp/x", credentialsSecret=None)),
        "cannot share the store file:///tmp/x",
    ),
    Broken("StoreNotShared", lambda w: w.job(**storage(endpoint="http://localhost:9000")), "each pod's own machine"),
    Broken(
        "StoreNotReadable", lambda w: w.job(**storage(credentialsSecret=None)), "no credentials for s3://bucket/jobs"
    ),
    Broken(
        "JarsDoNotFit",
        lambda w: w.job(sparkConf={"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:4.2.0"}),
        "for Scala 2.12, and Spark has 2.13",
        "warning",
    ),
    Broken("JarsDoNotFit", lambda w: w.job(sparkConf={"spark.jars.packages": "kafka"}), "write group:artifact:version"),
    Broken("ImageNotPulled", lambda w: w.pod(**waiting("ImagePullBackOff", "not found")), "registry.example/clicks:1"),
    Broken("Unschedulable", lambda w: w.pod(conditions=[NO_NODE]), "0/3 nodes"),
    Broken("OutOfMemory", lambda w: w.pod("clicks-3-exec-1", "executor", **killed("OOMKilled", 137)), "OOMKilled"),
    Broken(
        "ContainerCannotStart",
        lambda w: w.pod(**waiting("CreateContainerConfigError", 'secret "x" not found')),
        'secret "x" not found',
    ),
    Broken("JobFailed", lambda w: w.job({"phase": "Failed", "message": "no module clicks"}), "no module clicks"),
    Broken("JobWaits", lambda w: w.job({"phase": "Waiting", "message": "12 rows twice"}), "12 rows twice"),
    Broken(
        "JobStalled",
        lambda w: w.job({"conditions": conditions(Stalled=("True", "Refused", "wrong password"))}),
        "Refused: wrong password",
    ),
    Broken("JobRestarts", lambda w: w.job({"restarts": {"inARow": 4, "message": "OOM"}}), "4 restarts in a row: OOM"),
    Broken(
        "CheckpointsStale",
        lambda w: w.job({"conditions": conditions(CheckpointFresh=("False", "TooOld", "none since noon"))}),
        "none since noon",
    ),
    Broken(
        "DriverSilent",
        lambda w: w.job(
            {"conditions": conditions(Ready=("Unknown", "DriverUnreachable", "the driver does not answer"))}
        ),
        "does not answer",
    ),
    Broken("CleanupFails", lambda w: w.job({"cleanup": {"failures": 3}}), "3 cleanups in a row", "warning"),
    Broken("LateRows", lambda w: w.job({"lateRows": 1234}), "1,234 rows", "warning"),
]


@pytest.mark.cluster
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.name}: {broken.says}"[:60])
def test_it_names_what_is_wrong_and_nothing_else(healthy: World, broken: Broken) -> None:
    broken.breaks(healthy)
    code, found = doctor()
    assert set(found) == {broken.name}
    finding = found[broken.name]
    assert broken.says in finding["message"]
    assert finding["level"] == broken.level
    assert finding["do"], "says what to do"
    assert not re.search(r"epochal \w+ clicks(?! -n shop)", finding["do"]), "in the right namespace"
    assert code == (1 if broken.level == "problem" else 0)


@pytest.mark.cluster
def test_a_healthy_world_has_no_findings(healthy: World) -> None:
    assert doctor() == (0, {})
    assert doctor("clicks") == (0, {})
    text = CliRunner().invoke(commands, ["doctor", "-n", "shop"]).output
    assert "ok       job shop/clicks: Running, epoch 7" in text
    assert "No problem found" in text


@pytest.mark.cluster
def test_the_operators_own_namespace_is_no_place_for_jobs(healthy: World) -> None:
    result = CliRunner().invoke(commands, ["doctor", "-n", SYSTEM, "-o", "json"])
    found = {one["name"]: one for one in json.loads(result.output)}
    assert "the operator's own" in found["NamespaceNotWatched"]["message"]


@pytest.mark.cluster
def test_a_job_that_nobody_looks_at_and_one_that_cannot_go(healthy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_checks, "SETTLE", -1.0)
    healthy.job({"observedGeneration": 0})
    assert set(doctor()[1]) == {"NotReconciled"}
    monkeypatch.setattr(job_checks, "LONG_DELETION", -1.0)
    healthy.job(finalizers=("epochal.dev/stop-first",))
    healthy.drop(path("streamingjobs", "shop", "clicks"))
    try:
        assert set(doctor()[1]) == {"DeletionHangs"}
    finally:
        body = {"metadata": {"finalizers": None}}
        healthy.cluster.patch("streamingjobs", "shop", "clicks", body)


@pytest.mark.cluster
def test_a_job_that_is_not_there(healthy: World) -> None:
    code, found = doctor("clikcs")
    assert (code, set(found)) == (1, {"JobMissing"})


def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "far", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "far",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    code, found = doctor()
    assert (code, set(found)) == (1, {"ClusterUnreachable"})
    assert "context far" in found["ClusterUnreachable"]["message"]


def test_a_store_that_is_not_there_and_one_that_works(tmp_path: Path) -> None:
    def found() -> list[Finding]:
        return list(
            check_store(lambda: open_store((tmp_path / "some").as_uri(), StoreOptions(), create=False), "store")
        )

    assert [one.name for one in found()] == ["BucketMissing"]
    (tmp_path / "some").mkdir()
    findings = found()
    assert [one.level for one in findings] == ["ok"]
    assert not [file for file in (tmp_path / "some").rglob("*") if file.is_file()], "it leaves nothing behind"


def test_rights_are_those_that_the_chart_gives() -> None:
    role = next(
        d for d in documents(NO_CRDS) if d["kind"] == "ClusterRole" and d["metadata"]["name"] == "epochal-operator"
    )
    given = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    asked = {(group, resource): set(verbs.split()) for group, resource, verbs in RIGHTS}
    assert {key: verbs - given.get(key, set()) for key, verbs in asked.items()} == {key: set() for key in asked}
    assert asked.keys() >= {key for key in given if key[1] not in ("nodes", "poddisruptionbudgets")}
    made = documents({**NO_CRDS, "workload": {"namespaces": ["jobs"]}})
    driver = next(d for d in made if d["kind"] == "Role" and d["metadata"]["name"] == "epochal-driver")
    for group, resource, verbs in DRIVER_RIGHTS:
        rule = next(one for one in driver["rules"] if resource in one["resources"] and group in one["apiGroups"])
        assert set(verbs.split()) <= set(rule["verbs"])


def test_enough_is_told_apart() -> None:
    assert len({broken.name for broken in BROKEN}) >= 25
