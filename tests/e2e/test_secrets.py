"""Secrets are planted, jobs run and fail with them, and none is found where people or other processes can look."""

import base64
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from epochal.protocol.epochs import Epoch
from epochal_operator.kubernetes.pod_state import keys_of
from epochal_operator.names import CONTROL_PORT, Role
from examples.cluster.live_job import RELEASE_NAMESPACE, Cluster, LiveJob, until
from tests.e2e.driver_api import access

PROGRAM = Path(__file__).parent / "secretive_pipeline.py"
PUBLIC = ("tls.crt", "ca.crt")


def planted(make_job: Callable[..., LiveJob], name: str, passwords: dict[str, str], executors: int) -> LiveJob:
    job = make_job("secrets", name, program=PROGRAM, executors=executors)
    database = f"postgresql://job:{passwords['database']}@127.0.0.1:1/shop"
    text = {"DATABASE": database, "BROKER_PASSWORD": passwords["broker"]}
    metadata = {"name": f"{name}-passwords", "namespace": job.namespace}
    job.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": text})
    job.spec["env"] += [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": metadata["name"], "key": variable}}}
        for variable in text
    ]
    return job


def test_no_secret_is_to_be_found(make_job: Callable[..., LiveJob], cluster: Cluster) -> None:
    passwords = {"database": secrets.token_hex(16), "broker": secrets.token_hex(16)}
    works = planted(make_job, "works", passwords, executors=1)
    fails = planted(make_job, "fails", passwords, executors=0)
    fails.spec["pipeline"]["parameters"]["sinks"] = "away"
    works.apply()
    fails.apply()
    works.wait_epochs(2)
    fails.wait_event("RestartScheduled")
    driver = access(works)
    reports = [repr(driver.client.status()), repr(driver.client.get_checkpoint(Epoch(works.epoch)))]
    with urlopen(f"http://{driver.address}:{CONTROL_PORT}/metrics", timeout=20) as answer:
        metrics = answer.read().decode()
    assert "epochal_generation" in metrics
    told = {
        "reports": "".join(reports),
        "metrics": metrics,
        **objects(cluster, works.namespace),
        **logs(works),
        **logs(fails),
        "the operator's log": cluster.operator("logs"),
        **{f"arguments of {pod}": text for pod, text in arguments(works.namespace, cluster)},
        **{name: bytes(cluster.store(works.prefix).get(name).bytes()).decode() for name in documents(works)},
    }
    assert any("epochal.driver" in text for name, text in told.items() if name.startswith("arguments"))
    assert any("exec" in name and text for name, text in told.items() if name.startswith("log")), "of an executor, too"
    hidden = {"store": cluster.s3.secret_key, **passwords, **generation_secrets(works), **generation_secrets(fails)}
    assert len(hidden) == 3 + 2 * 5
    found = [(what, where) for what, secret in hidden.items() for where, text in told.items() if leaks(secret, text)]
    assert found == []
    # Java and Python workers run the job's code: they do not inherit what lets the operator in.
    tokens = [value for name, value in hidden.items() if name.endswith(("token", "server-token"))]
    assert len(tokens) == 4
    assert [name for name, text in inherited(works) if any(token in text for token in tokens)] == []
    works.delete()
    fails.delete()


def leaks(secret: str, text: str) -> bool:
    return secret in text or base64.b64encode(secret.encode()).decode() in text


def generation_secrets(job: LiveJob) -> dict[str, str]:
    """What the operator has made for the newest driver."""
    pod = json.loads(until("a driver's pod", lambda: job.kubectl("get", "pod", job.driver, "--output=json")))
    data = json.loads(job.kubectl("get", "secret", keys_of(pod), "--output=json"))["data"]
    values = {name: base64.b64decode(value).decode() for name, value in data.items() if name not in PUBLIC}
    # One line of the key is as good as all of them.
    return {f"{job.name} {name}": value.splitlines()[len(value.splitlines()) // 2] for name, value in values.items()}


def objects(cluster: Cluster, namespace: str) -> dict[str, str]:
    """All but the Secrets themselves; pods with the variables that Spark gave its executors."""
    kinds = ("pods", "configmaps", "services", "events", "streamingjobs", "jobs")
    return {kind: cluster.kubectl("get", kind, f"--namespace={namespace}", "--output=yaml") for kind in kinds}


def logs(job: LiveJob) -> dict[str, str]:
    names = [pod["metadata"]["name"] for role in (Role.DRIVER, Role.EXECUTOR) for pod in job.pods(role)]
    ended = [f"{job.name}-driver-{number}" for number in range(1, job.generation)]
    found = {}
    for name in {*names, *ended[-2:]}:
        with suppress(Exception):  # one that is just being replaced has none
            found[f"log of {name}"] = job.kubectl("logs", name)
    return found


def arguments(namespace: str, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Of all processes of all pods, as this machine, which is their node, sees them."""
    for where in (namespace, RELEASE_NAMESPACE):
        for pod in cluster.get("pods", f"--namespace={where}")["items"]:
            yield pod["metadata"]["name"], "\n".join(_arguments_of(pod["metadata"]["uid"]))


def _arguments_of(pod: str) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if pod in (process / "cgroup").read_text():
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def inherited(job: LiveJob) -> list[tuple[str, str]]:
    """The variables of the processes that the driver has started."""
    uid = job.kubectl("get", "pod", job.driver, "--output=jsonpath={.metadata.uid}")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name = (process / "cmdline").read_text()
            if uid in (process / "cgroup").read_text() and "epochal.driver" not in name:
                found.append((name, (process / "environ").read_text(errors="replace")))
    assert any("java" in name for name, _ in found)
    assert any("pyspark" in name for name, _ in found)
    return found


def documents(job: LiveJob) -> list[str]:
    return [name for name in job.objects("store") if name.endswith(".json")]
