"""The tutorial on a cluster, as it is printed. Its part on the reader's machine: tests/docs/test_tutorial.py."""

import shlex
from collections.abc import Callable
from pathlib import Path

import yaml

from examples.cluster.live_job import PATIENCE, Cluster, until
from tests.docs.pages import block, page
from tests.e2e.conftest import JVM

TEXT = page("docs/tutorial.md")


def test_the_tutorials_job_and_commands(cluster: Cluster, make_namespace: Callable[[str], str], tmp_path: Path) -> None:
    namespace = make_namespace("tutorial")
    (tmp_path / "clicks.py").write_text(block(TEXT, "python", "clicks.py"))
    manifest = yaml.safe_load(block(TEXT, "yaml", "cluster-job.yaml"))
    # A store of this run's own, and a driver that starts as fast as those of the other tests.
    manifest["spec"]["checkpoint"]["storage"] |= {
        "uri": f"s3://{cluster.s3.bucket}/{namespace}/store",
        "endpoint": cluster.s3.endpoint,
    }
    manifest["spec"]["pipeline"]["parameters"]["output"] = f"s3://{cluster.s3.bucket}/{namespace}/out"
    manifest["spec"]["env"] = [{"name": "JAVA_TOOL_OPTIONS", "value": JVM}]
    (tmp_path / "cluster-job.yaml").write_text(yaml.safe_dump(manifest))

    def kubectl(*arguments: str) -> str:
        return cluster.kubectl(f"--namespace={namespace}", *arguments)

    [section] = [one for one in TEXT.split("\n## ") if one.startswith("7. ")]
    lines = [line for line in section.splitlines() if line.startswith("kubectl ") and "--watch" not in line]
    create = next(index for index, line in enumerate(lines) if line.startswith("kubectl create configmap"))
    for line in lines[create:]:
        words = shlex.split(line.replace("tutorial/clicks.py", "clicks.py"))[1:]
        placed = [str(tmp_path / word) if word == "cluster-job.yaml" else word for word in words]
        placed = [
            word.replace("=clicks.py", f"={tmp_path}/clicks.py").replace("=5m", f"={PATIENCE:.0f}s") for word in placed
        ]
        if words[:2] == ["delete", "pod"]:
            until("an epoch", lambda: kubectl("get", "sjob", "clicks", "-o", "jsonpath={.status.epoch}").strip())
        told = kubectl(*placed)
        if words[0] == "describe":
            assert "Conditions:" in told
        if words[:2] == ["delete", "pod"]:
            until(
                "generation 2", lambda: kubectl("get", "sjob", "clicks", "-o", "jsonpath={.status.generation}") == "2"
            )
            kubectl("wait", "--for=condition=Ready", "sjob/clicks", f"--timeout={PATIENCE:.0f}s")
