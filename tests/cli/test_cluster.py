"""Commands about jobs of a cluster, against a real API server on which nothing runs."""

import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cluster.control_plane import ControlPlane
from epochal.cli.cluster.client import path
from epochal.cli.commands import commands
from epochal.control.labels import RESTART_ANNOTATION
from tests.cli.cluster_world import World, conditions, job_manifest, running, stamp
from tests.cli.support import output_of, refusal

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane() -> Iterator[World]:
    with ControlPlane(controller_manager=False) as plane:
        world = World(plane)
        world.heal()
        yield world


@pytest.fixture
def world(plane: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    monkeypatch.chdir(tmp_path)
    plane.job()
    return plane


def epochal(*arguments: str) -> Result:
    return CliRunner().invoke(commands, [*arguments, "-n", "shop"] if arguments[0] != "completion" else list(arguments))


def ok(*arguments: str) -> str:
    return output_of(epochal(*arguments))


def refused(*arguments: str) -> str:
    return refusal(epochal(*arguments))


def test_get_lists_jobs_as_kubectl_does(world: World) -> None:
    head, row = ok("get").splitlines()
    assert head.split() == ["NAME", "READY", "PHASE", "EPOCH", "LAST", "CHECKPOINT", "LAG", "ROWS/S", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["clicks", "True", "Running", "7"]
    assert row.split()[5:8] == ["2.5s", "1200", "2"]
    assert "4.1 kB" in ok("get", "clicks", "-o", "wide")
    assert json.loads(ok("get", "clicks", "-o", "json"))["metadata"]["name"] == "clicks"
    assert yaml.safe_load(ok("get", "-o", "yaml"))["items"][0]["status"]["epoch"] == 7
    empty = CliRunner().invoke(commands, ["get", "-n", "empty"])
    assert empty.output == "There is no StreamingJob in namespace empty\n"
    assert "shop" in ok("get", "-A")


def test_get_watches(world: World) -> None:
    command = [sys.executable, "-m", "epochal.cli", "get", "-n", "shop", "--watch"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        changer = threading.Timer(0.5, lambda: world.job({"phase": "Restarting", "epoch": 8}))
        changer.start()
        while "Restarting" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        changer.join()
    finally:
        process.kill()
        process.communicate()


def test_describe_has_everything_on_one_page(world: World) -> None:
    world.pod(
        phase="Failed",
        containerStatuses=[
            {
                "name": "driver",
                "ready": False,
                "restartCount": 0,
                "image": "x",
                "imageID": "",
                "state": {
                    "terminated": {"exitCode": 137, "reason": "Error", "message": "26/11/19 12:00:00 WARN RDD: x"}
                },
            }
        ],
    )
    event = {
        "metadata": {"name": "clicks.1"},
        "involvedObject": {"kind": "StreamingJob", "name": "clicks", "namespace": "shop"},
        "reason": "RestartScheduled",
        "message": "the driver of generation 2 was lost",
        "type": "Warning",
        "lastTimestamp": stamp(30),
        "count": 3,
    }
    world.put(path("events", "shop"), event)
    text = ok("describe", "clicks")
    for part in (
        "Lag:         2.5s",
        "killed by SIGKILL",
        "RestartScheduled",
        "2, the last because: the driver",
        "full",
    ):
        assert part in text
    assert "WARN" not in text, "a warning of Spark is no cause"
    found = json.loads(ok("describe", "clicks", "-o", "json"))
    assert (len(found["pods"]), found["events"][0]["reason"]) == (1, "RestartScheduled")


def test_status_checkpoints_timeline_and_graph_need_the_status_only(world: World, tmp_path: Path) -> None:
    text = ok("status", "clicks")
    assert "Running: generation 3, epoch 7, 2 restarts" in text
    assert "Epoch 6 failed after 3.0s: full" in text
    assert "1,200 rows/s, lag 2.5s" in text
    assert "record" not in json.loads(ok("status", "clicks", "-o", "json"))
    assert [one["epoch"] for one in json.loads(ok("checkpoints", "clicks", "-o", "json"))] == [7, 6]
    ok("timeline", "clicks", "-o", "t.svg")
    assert "Epoch 6: Failed" in (tmp_path / "t.svg").read_text()
    assert ok("graph", "clicks").splitlines() == ["out  sink", "└─ counts  operator", "   └─ clicks  source"]
    world.job({"graph": None})
    assert "has no graph" in refused("graph", "clicks")


def test_a_person_changes_what_a_job_shall_do(world: World) -> None:
    def spec() -> Any:
        return world.cluster.get("streamingjobs", "shop", "clicks")["spec"]

    assert "last checkpoint" in ok("suspend", "clicks")
    assert spec()["state"] == "Suspended"
    ok("resume", "clicks")
    assert spec()["state"] == "Running"
    assert "from 1 to 4 executors" in ok("scale", "clicks", "--replicas", "4")
    assert spec()["executor"]["instances"] == 4
    assert "has 4 executors already" in ok("scale", "clicks", "--replicas=4")
    ok("restart", "clicks")
    assert world.cluster.get("streamingjobs", "shop", "clicks")["metadata"]["annotations"][RESTART_ANNOTATION]


def test_waiting_ends_when_it_is_done_and_says_why_it_is_not(world: World) -> None:
    assert "is not stopped after 0 s, it is Running" in refused("suspend", "clicks", "--wait", "--timeout", "100ms")
    generation = world.cluster.get("streamingjobs", "shop", "clicks")["metadata"]["generation"]

    def stop() -> None:
        status = running(phase="Stopped", observedGeneration=generation)
        where = f"{path('streamingjobs', 'shop', 'clicks')}/status"
        world.cluster.json("PATCH", where, body={"status": status}, content="application/merge-patch+json")

    timer = threading.Timer(0.3, stop)
    timer.start()
    assert "has stopped at epoch 7" in ok("suspend", "clicks", "--wait", "--timeout", "30s")
    timer.join()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("describe", "clikcs"), "there is no StreamingJob clikcs in namespace shop: it has clicks"),
        (("suspend", "nobody"), "there is no StreamingJob nobody in namespace shop"),
        (("logs", "clicks", "--generation", "99"), "has no pod of a driver of generation 99 now"),
        (("logs", "clicks", "--executor", "1", "--cleanup"), "give --executor or --cleanup, not both"),
        (("get", "clicks", "-A"), "give a NAME or --all-namespaces, not both"),
        (("scale", "clicks", "--replicas", "0"), "0 is not in the range"),
        (("status", "Clicks_1"), "Clicks_1 is no file, and no job on a cluster can have that name"),
        (("get", "--context", "nowhere"), "--context nowhere: the kubeconfig has"),
        (("suspend", "clicks", "--timeout", "soon"), "'soon' is not a duration"),
        (("describe", "s3://bucket/x", "--job", "a"), "`epochal describe` is about jobs on a cluster"),
        (("report", "clicks", "-o", "report.doc"), "end its name with .tar.gz or .zip"),
    ],
)
def test_mistakes_are_told_in_words(world: World, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)


PLANTED = {
    "env": "planted-in-an-environment-variable",
    "spark": "planted-in-a-spark-setting",
    "url": "planted-in-a-url",
    "parameter": "planted-in-a-parameter",
    "jdbc": "planted-in-jdbc-text",
    "secret": "planted-in-a-secret-of-the-cluster",
    "token": "planted-in-the-token-of-an-older-release",
    "pod": "planted-in-the-secret-that-a-pod-names",
    "private": "planted-in-a-line-of-a-private-key",
    "generation": "planted-in-the-secret-of-a-generation-without-a-pod",
    "applied": "planted-in-an-annotation",
    "event": "planted-in-an-events-authorization",
    "key": "AKIAPLANTEDPLANTED00",
}


NAMED, UNNAMED = "clicks-driver-3-0a1b2c3d", "clicks-driver-4-0a1b2c3d"
"""Of two generations: one has a pod, the other has none any more."""
PRIVATE = f"-----BEGIN PRIVATE KEY-----\n{PLANTED['private']}\n-----END PRIVATE KEY-----\n"


def generation_secret(name: str, data: dict[str, str], labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "stringData": data}


def plant(world: World) -> None:
    """Secrets where people put them, and in what programs say."""
    spec: dict[str, Any] = {
        "env": [{"name": "DB_PASSWORD", "value": PLANTED["env"]}, {"name": "REGION", "value": "eu-central-1"}],
        "sparkConf": {"spark.hadoop.fs.s3a.secret.key": PLANTED["spark"]},
        "pipeline": {
            "sql": f"CREATE TABLE t (a INT) WITH ('password' = '{PLANTED['jdbc']}')",
            "parameters": {"url": f"postgres://me:{PLANTED['url']}@db/x", "api_key": PLANTED["parameter"]},
        },
    }
    message = f"cannot log in with {PLANTED['env']} and {PLANTED['secret']} ({PLANTED['key']})"
    world.secret(AWS_ACCESS_KEY_ID=PLANTED["key"], AWS_SECRET_ACCESS_KEY=PLANTED["secret"])
    world.put(
        path("secrets", "shop"), {"metadata": {"name": "clicks-token"}, "stringData": {"token": PLANTED["token"]}}
    )
    world.put(path("secrets", "shop"), generation_secret(NAMED, {"token": PLANTED["pod"], "tls.key": PRIVATE}, {}))
    left = generation_secret(UNNAMED, {"spark": PLANTED["generation"]}, {"epochal.dev/job": "clicks"})
    world.put(path("secrets", "shop"), left)
    world.pod(env=[{"name": "EPOCHAL_TOKEN", "valueFrom": {"secretKeyRef": {"name": NAMED, "key": "token"}}}])
    manifest = job_manifest(**spec)
    manifest["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": PLANTED["applied"]}
    world.put(path("streamingjobs", "shop"), manifest)
    where = f"{path('streamingjobs', 'shop', 'clicks')}/status"
    status = running(message=message, conditions=conditions(Stalled=("True", "Refused", message)))
    world.cluster.json("PATCH", where, body={"status": status}, content="application/merge-patch+json")
    event = {
        "metadata": {"name": "clicks.2"},
        "involvedObject": {"kind": "StreamingJob", "name": "clicks", "namespace": "shop"},
        "reason": "Stalled",
        "message": f"Authorization: Bearer {PLANTED['event']} and token {PLANTED['token']}, or {PLANTED['pod']}; "
        f"{PLANTED['private']}, {PLANTED['generation']}",
    }
    world.put(path("events", "shop"), event)


@pytest.mark.parametrize("name", ["report.tar.gz", "report.zip"])
def test_a_report_has_what_helps_and_no_secret(world: World, tmp_path: Path, name: str) -> None:
    plant(world)
    try:
        assert "without secrets" in ok("report", "clicks", "-o", name)
        files = unpacked(tmp_path / name)
    finally:
        world.secret()
        for secret in (NAMED, UNNAMED):
            world.drop(path("secrets", "shop", secret))
        world.drop(path("pods", "shop", "clicks-driver-3"))
    everything = "\n".join(files.values())
    assert [what for what, value in PLANTED.items() if value in everything] == []
    for file in ("job.yaml", "events.yaml", "operator.yaml", "crd.yaml", "doctor.yaml", "versions.json", "README.txt"):
        assert files[f"report/{file}"], file
    assert "eu-central-1" not in files["report/job.yaml"], "each literal value of the environment is left out"
    assert "s3://bucket/jobs" in files["report/job.yaml"], "what is no secret stays"
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert "JobStalled" in files["report/doctor.yaml"]


def unpacked(archive: Path) -> dict[str, str]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            return {name: packed.read(name).decode() for name in packed.namelist()}
    with tarfile.open(archive) as tar:
        return {one.name: file.read().decode() for one in tar if (file := tar.extractfile(one)) is not None}


def test_kubectl_finds_it_as_a_plugin_and_completes_names(world: World) -> None:
    plugin = Path(sys.executable).with_name("kubectl-epochal")
    shown = subprocess.run([plugin, "get", "--help"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: kubectl epochal get")
    complete = Path(sys.executable).with_name("kubectl_complete-epochal")
    answer = subprocess.run([complete, "desc"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert (answer[0].split("\t")[0], answer[-1]) == ("describe", ":4")
    command = [str(complete), "describe", "-n", "shop", "cl"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert answer == ["clicks", ":4"]
    assert "_EPOCHAL_COMPLETE" in ok("completion", "zsh")
