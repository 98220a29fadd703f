"""A job that cannot restore, because of something that is no fault of its state. Run as a program, on small disks: ``…
STATE LOCAL ELSEWHERE KILLS SEED``. STATE is where executors keep their files, LOCAL is Spark's local directory."""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.driver import PARTITIONS, SPARK_DEFAULTS
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import list_epochs
from epochal.runtime.engine import Engine
from epochal.runtime.state.latest_table import STATE_DIR
from epochal.runtime.state.persistence import store_of
from tests.runtime.bad_data import Files, ids
from tests.support.local_job import LocalJob
from tests.support.small import WITHOUT_COMPILING
from tests.support.small_disk import fill

EPOCHS = 2
EXECUTORS = 2
LONGEST = 200.0


def session(state: Path, local: Path) -> SparkSession:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    given = {
        "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.local.dir": str(local),
        STATE_DIR: str(state),
        PARTITIONS: "3",
        **WITHOUT_COMPILING,
    }
    builder = SparkSession.builder
    for key, value in (SPARK_DEFAULTS | given).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Hindered:
    """The job: rows in both kinds of tables, those in executors' files and those that Spark holds."""

    def __init__(self, state: Path, local: Path, elsewhere: Path) -> None:
        self.state, self.local, self.output = state, local, elsewhere / "out"
        self.spark = session(state, local)
        self.files = Files(elsewhere / "in")
        self.job = LocalJob(self.spark, self.build, elsewhere)

    def build(self, p: Pipeline) -> None:
        rows = self.files.read(p)
        counts = rows.aggregate("counts", keys=["id"], aggregates={"n": F.count("*")})
        counts.to_parquet("out", str(self.output))
        windows = rows.window("panes", size="1 day", keys=["id"], aggregates={"n": F.count("*")})
        windows.to_parquet("windows", str(self.output.with_name("windows")))

    def make_epochs(self, engine: Engine, rows: int) -> None:
        for number in range(1, rows + 1):
            self.files.add(number)
            self.job.wait(lambda wanted=number: engine.status().sources[0].rows == wanted, "a row")  # type: ignore[misc]
            self.job.checkpoint()

    def tell(self, case: str, engine: Engine) -> None:
        """How a start went: a line of JSON."""
        status = engine.status()
        damaged = sorted(list_epochs(store_of(self.job.storage), JobPaths("test", "job")).damaged)
        told = {"case": case, "code": engine.exit_code, "message": status.message, "damaged": damaged}
        print(json.dumps(told | {"restored": status.restored_epoch, "skipped": status.skipped_epochs}), flush=True)

    def hinder(self, case: str) -> None:
        engine = self.job.start()
        self.tell(case, engine)
        if engine.exit_code is None:
            self.job.crash()


@contextmanager
def full(disk: Path) -> Iterator[None]:
    fill(disk / "filler")
    yield
    (disk / "filler").unlink()


def executors() -> list[int]:
    """Those of this process: the workers that start them are threads of its JVM."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _is_ours(int(path.name))]


def _is_ours(pid: int) -> bool:
    try:
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" not in _words(pid):
            return False
        while pid > 1 and pid != os.getpid():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return pid == os.getpid()


def _words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@contextmanager
def losing_an_executor(state: Path, chance: random.Random) -> Iterator[None]:
    """Kill one when the first restored rows are on their disk, or a moment later."""
    until(lambda: len(executors()) == EXECUTORS)
    pids, before = executors(), set(state.rglob("*.arrow"))
    over = threading.Event()
    pause = chance.choice([0.0, chance.uniform(0, 2)])

    def kill() -> None:
        while set(state.rglob("*.arrow")) <= before:
            if over.wait(0.002):
                return
        time.sleep(pause)
        os.kill(pids[chance.randrange(EXECUTORS)], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    yield
    over.set()
    thread.join()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def main(state: Path, local: Path, elsewhere: Path, kills: int, seed: int) -> None:
    hindered, chance = Hindered(state, local, elsewhere), random.Random(seed)
    job = hindered.job
    hindered.make_epochs(job.start(), EPOCHS)
    job.crash()
    for _ in range(kills):
        with losing_an_executor(state, chance):
            hindered.hinder("an executor is lost")
    for disk in (state, local):
        with full(disk):
            hindered.hinder(f"{disk.name} is full")
    engine = job.start()
    hindered.tell("nothing", engine)
    hindered.files.add(1)
    job.wait(lambda: engine.status().sources[0].rows == 1, "another row")
    assert job.checkpoint(then_stop=True).epoch == Epoch(EPOCHS + 1)
    print(json.dumps(ids(hindered.spark, hindered.output)))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *map(int, sys.argv[4:]))  # type: ignore[arg-type]
    sys.stdout.flush()
    os._exit(0)
