"""Jobs that live through outages: small, all in their drivers, with the operator's defaults wherever these matter."""

import base64
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.outages.figures import EpochSeen
from benchmarks.outages.servers import INPUT, ROWS, Servers
from cluster.errors import ClusterError
from cluster.images import REPOSITORY
from cluster.s3 import BUCKET
from epochal.protocol.documents import Manifest, decode
from examples.cluster import expected
from examples.cluster.live_job import Cluster, LiveJob
from tests.support.kafka.jars import CONNECTOR, jars

HERE = Path(__file__).parent
JVM = "-XX:TieredStopAtLevel=1 -XX:SharedArchiveFile=/opt/spark-classes.jsa -Xlog:cds=off -Xlog:cds+dynamic=off"
"""As the image has it, but without the second compiler, so that more jobs fit on one machine."""

PASSWORD = "postgres"


class Sink(StrEnum):
    POSTGRES = "postgres"
    KAFKA = "kafka"


@dataclass
class OutageJob:
    live: LiveJob
    sink: Sink
    servers: Servers
    output: str = field(init=False)

    def __post_init__(self) -> None:
        self.output = self.live.name.replace("-", "_")

    @property
    def name(self) -> str:
        return self.live.name

    def apply(self) -> None:
        match self.sink:
            case Sink.POSTGRES:
                self.servers.make_table(self.output)
            case Sink.KAFKA:
                self.servers.kafka.make_topic(self.output, 1)
        self.live.apply()

    @property
    def _epochs(self) -> Path:
        """The server keeps objects as files of their names: they can be looked at also while it is away."""
        job = f"{self.live.namespace}/{self.live.name}"
        return self.servers.s3.data_dir / BUCKET / self.live.prefix / "store" / job / "epochs"

    def epochs(self, since: float = 0.0) -> list[EpochSeen]:
        """Those published after a moment."""
        found = []
        for manifest in sorted(self._epochs.glob("*/manifest.json")):
            published = manifest.stat().st_mtime
            if published > since:
                committed = manifest.with_name("committed.json")
                at = committed.stat().st_mtime if committed.exists() else None
                content = decode(str(manifest), manifest.read_bytes(), Manifest)
                begun = content.timestamp / 1_000_000
                found.append(EpochSeen(content.epoch, content.generation, begun, published, at))
        return found

    def check(self) -> int:
        """Compare all rows with the computed ones, and return how many windows are out. No window may be missing
        before the last one; and what the newest committed epoch has taken in must be out."""
        newest = [epoch.number for epoch in self.epochs() if epoch.committed is not None][-1]
        watermark = self.live.manifest(newest).operators["revenue"].watermark or 0
        rows = self._rows()
        least = watermark // (expected.WINDOW_SECONDS * 1_000_000)
        there = {int(row["window_start"].timestamp()) // expected.WINDOW_SECONDS for row in rows}
        windows = max(least, max(there, default=-1) + 1)
        expected.check(rows, windows=windows, rows_per_batch=ROWS)
        return windows

    def _rows(self) -> list[dict[str, Any]]:
        match self.sink:
            case Sink.POSTGRES:
                return self.servers.table_rows(self.output)
            case Sink.KAFKA:
                return self.servers.topic_rows(self.output)


def make_namespace(cluster: Cluster, namespace: str, servers: Servers) -> None:
    cluster.make_namespace(namespace)
    metadata = {"name": PASSWORD, "namespace": namespace}
    password = base64.b64encode(servers.postgres.password.encode()).decode()
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": password}})


def make_job(
    cluster: Cluster, namespace: str, name: str, sink: Sink, servers: Servers, *, image: str, checkout: bool
) -> OutageJob:
    """``checkout``: the pods run this checkout's code instead of the image's."""
    live = LiveJob(cluster, namespace, name, program=HERE / "pipeline.py")
    spec = live.spec
    spec["image"] = image
    spec["checkpoint"] |= {"interval": "5s", "retention": {"keep": 1000, "every": 1000}}
    # What is left to the operator's defaults is what everybody gets.
    del spec["executor"], spec["restartPolicy"], spec["driver"]["unreachableTimeout"], spec["checkpoint"]["timeout"]
    spec["driver"]["memory"] = "512m"
    spec["sparkConf"] = {"spark.master": "local[1]"}
    spec["env"] = [{"name": "JAVA_TOOL_OPTIONS", "value": JVM}]
    parameters = spec["pipeline"]["parameters"] = {"rows": str(ROWS), "output": name.replace("-", "_")}
    mounts: dict[str, Path] = {}
    match sink:
        case Sink.POSTGRES:
            address, _, database = servers.database.rpartition("@")[2].partition("/")
            parameters["postgres"] = f"postgresql://epochal@{address}/{database}"
            secret = {"secretKeyRef": {"name": PASSWORD, "key": "password"}}
            spec["env"].append({"name": "PGPASSWORD", "valueFrom": secret})
        case Sink.KAFKA:
            archives = jars(CONNECTOR)
            parameters |= {"kafka": servers.kafka.address, "input": INPUT}
            spec["sparkConf"]["spark.jars"] = ",".join(f"/jars/{jar.name}" for jar in archives)
            mounts["/jars"] = archives[0].parent
    if checkout:
        mounts["/code"] = REPOSITORY / "spark_app"
        spec["env"].append({"name": "PYTHONPATH", "value": "/code"})
    spec["volumes"] = [
        {"name": at.strip("/"), "mountPath": at, "readOnly": True, "source": {"hostPath": {"path": str(path)}}}
        for at, path in mounts.items()
    ]
    return OutageJob(live, sink, servers)


def let_go(cluster: Cluster, where: str, name: str) -> None:
    """Of a job that is deleted: it need not come to its last checkpoint."""
    # It may be gone by now.
    with suppress(ClusterError):
        cluster.kubectl(
            "patch", where, "streamingjob", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}'
        )


def wait_healthy(jobs: list[OutageJob], timeout: float) -> list[OutageJob]:
    """Wait until each runs and has committed an epoch since now; those that did not are returned."""
    began, left = time.time(), list(jobs)
    while left and time.time() < began + timeout:
        time.sleep(1)
        left = [job for job in left if not any(epoch.committed for epoch in job.epochs(began))]
    return left
