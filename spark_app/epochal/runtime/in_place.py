"""The generations of one driver's process: the first, and those that go on in place when an executor is lost.

A generation in place is one like any other: it claims its number in the store, seals, restores the newest epoch. What
the generation before still sends is fenced there, as that of another process. Beyond that nothing of it is at work
here any more, in Python or on executors, or the process ends as it does without all this (decision 0047).
"""

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from epochal.protocol.control import CheckpointReport, CheckpointRequest, DriverConfig, DriverStatus, Refusal
from epochal.protocol.epochs import Epoch
from epochal.runtime.dataflow.graph import Graph
from epochal.runtime.engine import Engine
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.executors import out_of_memory
from epochal.runtime.spark.held import unpersist_all
from epochal.runtime.spark.placement import running_tasks
from epochal.runtime.state.homes import delete_files
from epochal.runtime.state.latest_files import Place

logger = logging.getLogger(__name__)

LONGEST_END = 10.0
"""Seconds for which a generation in place waits until nothing of the one before is at work."""

LONGEST_DELETE = 10.0
"""Seconds that deleting its files may take before the next one restores beside them."""

AGAIN = 0.2
"""Seconds between two looks, and two orders to end jobs: a thread may begin another one before it notices."""


class StillAtWorkError(Exception):
    """Something of a generation does not end: another one must not begin in the same process."""


class DriverEngines:
    """The engines of one driver, one at a time. The control server asks the present one."""

    def __init__(self, config: DriverConfig) -> None:
        self.engine = Engine(config)
        self._asked_to_end = False
        self._lock = threading.Lock()

    def run(self, spark: SparkSession, describe: Callable[[], Graph], warming: threading.Thread | None = None) -> None:
        """Until an engine has ended and none follows it. ``describe`` calls the user's function, for each engine."""
        try:
            graph = describe()
            self.engine.run(spark, graph, warming)
            while self._goes_on(spark):
                graph = _described_anew(describe, graph)
                self.engine.run(spark, graph)
        except Exception as error:
            self.engine.fail(error)

    def _goes_on(self, spark: SparkSession) -> bool:
        """Begin the next generation in this process, if the present one has ended such that it may.

        1. Wait until nothing of the present one is at work any more.
        2. Free what Spark and executors hold for it.
        3. Let the next one answer.
        """
        before = self.engine
        if (seen := before.lost_at) is None:
            return False
        try:
            # Step 1
            await_end(before, spark)
            config, places = before.following(), before.places()
            before.forget()
            ended = time.monotonic()
            # Step 2
            free(spark, places)
        except Exception as error:
            logger.error("The next generation cannot go on in this process: %s", error)
            before.ends_process()
            return False
        # Step 3
        with self._lock:
            if self._asked_to_end:
                before.ends_process()
                return False
            self.engine = Engine(config, before)
        self.engine.metrics.follow(self.engine.snapshot)
        if why := out_of_memory(spark):
            logger.warning("%s", why)
        logger.info(
            "Generation %s goes on in the same driver: the one before had ended %.1f s after the loss was seen, and "
            "was freed in %.1f s",
            config.generation,
            ended - seen,
            time.monotonic() - ended,
        )
        return True

    # --- what others want of the driver ---

    def stop(self, message: str) -> None:
        self._ask_to_end().stop(message)

    def drain(self, message: str, seconds: float) -> None:
        self._ask_to_end().drain(message, seconds)

    def _ask_to_end(self) -> Engine:
        """From here on no other engine follows the one that is returned."""
        with self._lock:
            self._asked_to_end = True
            return self.engine

    def status(self) -> DriverStatus:
        return self.engine.status()

    def start_checkpoint(self, request: CheckpointRequest) -> CheckpointReport | Refusal:
        return self.engine.start_checkpoint(request)

    def checkpoint(self, epoch: Epoch) -> CheckpointReport | None:
        return self.engine.checkpoint(epoch)

    def abort(self, epoch: Epoch) -> CheckpointReport | None:
        return self.engine.abort(epoch)


def await_end(engine: Engine, spark: SparkSession, seconds: float = LONGEST_END) -> None:
    """Until no thread of an engine that has ended is at work, and no task on any executor. What lasts longer is a
    :class:`StillAtWorkError`: it may be committing."""
    deadline = time.monotonic() + seconds
    waiting = {
        what: threading.Thread(target=wait, name=f"end-{what}", daemon=True) for what, wait in engine.at_work().items()
    }
    for thread in waiting.values():
        thread.start()
    while True:
        spark.sparkContext.cancelAllJobs()
        left = [what for what, thread in waiting.items() if thread.is_alive()]
        if not left and (tasks := running_tasks(spark)):
            left = [f"{tasks} tasks"]
        if not left:
            return
        if time.monotonic() > deadline:
            raise StillAtWorkError(f"{', '.join(left)} of generation {engine.config.generation} did not end in time")
        time.sleep(AGAIN)


def free(spark: SparkSession, places: Sequence[Place]) -> None:
    """Free what Spark holds, and delete the files in these places on the executors that are there."""
    gc.collect()
    unpersist_all(spark)
    deleting = threading.Thread(target=_delete, args=(spark, places), name="delete", daemon=True)
    deleting.start()
    deleting.join(timeout=LONGEST_DELETE)


def _delete(spark: SparkSession, places: Sequence[Place]) -> None:
    try:
        delete_files(spark, places)
    except Exception:
        # They go with their executor.
        logger.warning("Failed to delete files of the generation before", exc_info=True)


def _described_anew(describe: Callable[[], Graph], before: Graph) -> Graph:
    """The user's function may hand out objects that have seen the generation before."""
    graph = describe()
    known = {id(node.operator) for node in before.nodes.values()}
    if kept := [name for name, node in graph.nodes.items() if id(node.operator) in known]:
        raise PipelineError(
            f"operators {', '.join(map(repr, kept))} are the same objects as before an executor was lost, so only a "
            "new driver can go on: make them in the pipeline function"
        )
    return graph
