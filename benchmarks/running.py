"""Runs workloads on sides, one at a time, and watches from outside what each takes: CPU, memory, S3."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import s3a
from benchmarks.processes import tree
from benchmarks.sides import ANSWER, EPOCHAL, READY, Task, Took
from benchmarks.workloads import HDFS, ROCKSDB, Delay, Workload
from epochal.driver import SPARK_DEFAULTS
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Server

_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
_COMMON = {
    # What Epochal has, and is as good for the other side.
    **{
        key: SPARK_DEFAULTS[key]
        for key in ("spark.sql.streaming.checkpointFileManagerClass", "spark.sql.files.openCostInBytes")
    },
    # One more object for each object of a checkpoint.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Looks that S3A takes before it creates, deletes and makes directories; and a file for what it uploads.
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
}
SETTINGS = {
    ROCKSDB: _COMMON
    | {
        "spark.sql.streaming.stateStore.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting rows costs a lookup for each write.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    },
    HDFS: _COMMON | {"spark.sql.streaming.stateStore.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider"},
}
"""Of Structured Streaming, by provider of its state store: the best that are known."""

EVERY = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One workload on one side. CPU seconds, requests and bytes are from the first measured batch until all is
    committed; ``per_minute`` is of requests while measured batches ran; ``peak`` is the process's so far."""

    took: Took
    cpu: float
    peak: int
    requests: int
    bytes: int
    per_minute: float
    files: str
    """Pattern of the files that hold its results."""


@dataclass(frozen=True, slots=True)
class Failed:
    why: str


class Sampler:
    """Notes by the clock what a process tree has used and what has passed a proxy."""

    def __init__(self, pid: int, proxy: CountingProxy) -> None:
        self.peak = 0
        self._pid, self._proxy = pid, proxy
        self._samples: list[tuple[float, float, float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    def between(self, begin: float, end: float) -> tuple[float, float, float]:
        """CPU seconds, requests and bytes."""
        first, last = self._at(begin), self._at(end)
        return last[1] - first[1], last[2] - first[2], last[3] - first[3]

    def _watch(self) -> None:
        while not self._done.is_set():
            self._look()
            self._done.wait(EVERY)

    def _look(self) -> None:
        seen = tree(self._pid)
        self.peak = max(self.peak, sum(one.rss for one in seen))
        cpu = sum(one.cpu for one in seen)
        self._samples.append((time.time(), cpu, len(self._proxy.requests), self._proxy.bytes))

    def _at(self, moment: float) -> tuple[float, ...]:
        """Between two samples, as if use had been even."""
        after = next((index for index, one in enumerate(self._samples) if one[0] >= moment), len(self._samples) - 1)
        old, new = self._samples[max(after - 1, 0)], self._samples[after]
        share = 0.0 if new[0] == old[0] else min(max((moment - old[0]) / (new[0] - old[0]), 0.0), 1.0)
        return tuple(a + share * (b - a) for a, b in zip(old, new, strict=True))


class Side:
    """A process that runs one workload after another."""

    def __init__(self, kind: str, home: Path, server: S3Server) -> None:
        conf = {} if kind == EPOCHAL else SETTINGS[kind] | s3a.settings(server, server.endpoint)
        # A process that is killed leaves its files.
        conf["spark.local.dir"] = str(home / "spark")
        self.kind = kind
        self.log = home / f"{kind}.log"
        settings = home / f"{kind}.json"
        settings.write_text(json.dumps(conf))
        keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        self.began = time.time()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sides", kind, str(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log.open("w"), text=True,
            env=os.environ | keys | {"AWS_REGION": server.region}, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, name=f"reads-{kind}", daemon=True).start()

    def wait(self, limit: float) -> None:
        """Until it is up: the other sides must not be measured while this one starts."""
        if self._line(READY, limit) is None:
            raise SystemExit(f"{self.kind} did not start:\n{self.log.read_text()[-4000:]}")

    def run(self, task: Task, limit: float) -> Took | Failed:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(task)) + "\n")
        self._process.stdin.flush()
        answer = self._line(ANSWER, limit)
        if answer is None:
            ended = self._process.poll() is not None
            return Failed("its process ended" if ended else f"not done after {limit:.0f} s")
        found = json.loads(answer)
        return Failed(found["error"]) if "error" in found else Took(**found)

    def end(self) -> None:
        # The JVM is in the same session, and must not go on beside the others.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _line(self, begin: str, limit: float) -> str | None:
        deadline = time.monotonic() + limit
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                return None
            if line is None or line.startswith(begin):
                return None if line is None else line.removeprefix(begin)
        return None


class Bench:
    """All sides, up and idle; one runs at a time."""

    def __init__(self, home: Path, server: S3Server, *, quick: bool, scale: float, limit: float) -> None:
        self._home, self._server = home, server
        self._quick, self._scale, self._limit = quick, scale, limit
        self._sides: dict[str, Side] = {}
        self._buckets = 0

    def start(self, kinds: list[str]) -> list[str]:
        """Those of them that are not up, which it returns."""
        new = [kind for kind in kinds if kind not in self._sides]
        self._sides |= {kind: Side(kind, self._home, self._server) for kind in new}
        for kind in new:
            self._sides[kind].wait(self._limit)
        return new

    def end(self, *kinds: str) -> None:
        """These, or all."""
        for kind in kinds or list(self._sides):
            if side := self._sides.pop(kind, None):
                side.end()

    def task(self, kind: str, workload: Workload, delay: Delay, interval: float | None) -> Task:
        """With a place of its own."""
        self._buckets += 1
        bucket = f"bench-{self._buckets}"
        work = self._home / bucket
        work.mkdir()
        self._server.make_bucket(bucket)
        root = work.as_uri() if delay is None else f"{'s3' if kind == EPOCHAL else 's3a'}://{bucket}"
        return Task(
            workload=workload.name, quick=self._quick, scale=self._scale, input=str(self._input(workload)),
            store=f"{root}/checkpoints", output=f"{root}/out", work=str(work), endpoint=None, region=None,
            interval=interval, again=bool(workload.input.after),
        )  # fmt: skip

    def _input(self, workload: Workload) -> Path:
        directory = self._home / workload.input.name
        if workload.input.after and not directory.exists():
            directory.mkdir()
            whole = self._home / workload.input.name.removesuffix("-again")
            for path in sorted(whole.glob("*.parquet"))[workload.input.after :]:
                os.link(path, directory / path.name)
        return directory

    def run(self, kind: str, workload: Workload, delay: Delay, task: Task) -> Measured | Failed:
        self.start([kind])
        side = self._sides[kind]
        with (
            CountingProxy(self._server.endpoint, delay=(delay or 0.0) / 2000) as proxy,
            Sampler(side.pid, proxy) as sampler,
        ):
            if delay is not None:
                task = replace(task, endpoint=proxy.endpoint, region=self._server.region)
            took = side.run(task, self._limit)
            if isinstance(took, Failed):
                # What it leaves running must not disturb the next one.
                self.end(kind)
                return took
        cpu, requests, passed = sampler.between(took.measured, took.committed)
        meanwhile = sampler.between(took.measured, took.end)[1]
        return Measured(
            took=took, cpu=cpu, peak=sampler.peak, requests=round(requests), bytes=round(passed),
            per_minute=meanwhile / took.seconds * 60, files=self._files(kind, workload, delay, task),
        )  # fmt: skip

    def began(self, kind: str) -> float:
        return self._sides[kind].began

    def forget(self, task: Task) -> None:
        """Give the disk back."""
        shutil.rmtree(task.work, ignore_errors=True)
        bucket = self._server.data_dir / Path(task.work).name
        shutil.rmtree(bucket, ignore_errors=True)

    def _files(self, kind: str, workload: Workload, delay: Delay, task: Task) -> str:
        if kind != EPOCHAL and workload.updates is not None:
            return f"{task.work}/updates/*/*.parquet"
        where = task.work if delay is None else self._server.data_dir / Path(task.work).name
        return f"{where}/out/*.parquet"
