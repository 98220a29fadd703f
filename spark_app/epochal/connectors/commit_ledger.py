"""What sinks share whose target itself remembers the newest epoch: a commit made again finds it, and does nothing."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark.sql import DataFrame
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from epochal.connectors.object_sink import ObjectSink
from epochal.protocol.faults import worth_waiting
from epochal.runtime.dataflow.operator import OperatorContext
from epochal.runtime.errors import OutsideError

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that a sink asks its target again by itself. The runtime waits longer for commits."""


class SinkFencedError(Exception):
    """The target knows of a newer generation of this job: what this driver would write is no longer its own to
    write."""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What a target remembers of one sink: the newest epoch whose rows it has, and the newest generation it saw."""

    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One commit of a sink in its target's history: of an epoch, or one that took back all epochs after it."""

    epoch: int
    what: T
    took_back: bool = False


def newer_than(after: int, history: Iterable[Entry[T]]) -> tuple[list[Entry[T]], bool]:
    """Of a sink's own commits, newest first: those of epochs after this one that were not taken back before; and
    whether the history goes back far enough to be sure that these are all."""
    found: list[Entry[T]] = []
    kept: int | None = None
    for entry in history:
        if entry.epoch <= after:
            return found, True
        if entry.took_back:
            kept = entry.epoch if kept is None else min(kept, entry.epoch)
        elif kept is None or entry.epoch <= kept:
            found.append(entry)
    return found, False


class LedgerSink(ObjectSink):
    """A sink that writes the number of an epoch into the target in one step with the epoch's rows."""

    def commit(self, epoch: int, frame: DataFrame | None, objects: list[str], ctx: OperatorContext) -> None:
        if objects and not self.write(epoch, objects, ctx):
            logger.info("Sink %s: epoch %s is there already", ctx.name, epoch)

    def write(self, epoch: int, objects: list[str], ctx: OperatorContext) -> bool:
        """Write the rows of these objects and the epoch's number, in one step. False if they are there already."""
        raise NotImplementedError


def check_life(recorded: LedgerState, ctx: OperatorContext, *, remedy: str) -> None:
    """See that what the target remembers is of this job's life. A job that was deleted and began again counts from 1:
    its epochs would be taken for old ones, and left out without a word."""
    if recorded.epoch > ctx.job.newest_epoch:
        raise OutsideError(
            f"operator {ctx.name!r}: the target has epoch {recorded.epoch} of job {ctx.job.name}, and this job's store "
            f"knows none above {ctx.job.newest_epoch}: another store, or a job that started from scratch. {remedy}"
        )
    check_fence(recorded, ctx)


def check_fence(recorded: LedgerState, ctx: OperatorContext) -> None:
    if recorded.generation > ctx.job.generation:
        raise SinkFencedError(
            f"generation {recorded.generation} of job {ctx.job.name} has taken over, this is generation "
            f"{ctx.job.generation}"
        )


def patiently(call: Callable[[], T]) -> T:
    """Call until it works, for :data:`PATIENCE` seconds, where waiting helps. The call must be one that may be made
    twice."""
    wait = wait_random_exponential(multiplier=0.2, max=5.0)
    tries = Retrying(
        retry=retry_if_exception(worth_waiting),
        stop=stop_after_delay(PATIENCE),
        wait=wait,
        before_sleep=lambda state: logger.info("Trying again: %s", state.outcome and state.outcome.exception()),
        reraise=True,
    )
    return tries(call)
