"""Rows before and after a moment, and rows that come too late.

A watermark is another number in every batch. As a plain literal it would be part of the code that Spark generates, so
that each batch would be compiled anew and run cold; inside a struct it is data to Spark, like a long list's values.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from epochal.runtime.dataflow.operator import Batch, BatchStats
from epochal.runtime.spark.plan_metrics import micros
from epochal.runtime.state.tables import KeyedTimeTable, Run


def at_least(time: Column, bound: int) -> Column:
    """Whether ``time`` (microseconds) is ``bound`` or later. Nothing is so of a time that is null."""
    return F.struct(time.alias("t")) >= F.struct(F.lit(bound).cast("long").alias("t"))


def before(time: Column, bound: int) -> Column:
    """Whether ``time`` (microseconds) is before ``bound``, or null."""
    return F.struct(time.alias("t")) < F.struct(F.lit(bound).cast("long").alias("t"))


def append_on_time(
    table: KeyedTimeTable,
    computed: Run,
    time: Column,
    batch: Batch,
    *,
    on_late: Callable[[DataFrame], None] = lambda _: None,
) -> tuple[Run, BatchStats]:
    """Add a batch, ``computed`` with its times, to a table, without rows older than the watermark or too far ahead of
    the clock: these are late, counted, and given to ``on_late``. It takes a second job only if there are any."""
    added = table.add(computed)
    if added.min_time is None or added.max_time is None:
        return added, BatchStats()
    outside = out_of_bounds(
        micros(time), added.min_time, added.max_time, since=batch.watermark, until=batch.latest_time
    )
    if outside is None:
        return added, BatchStats()
    table.drop([added])
    kept = table.append(added.frame.where(~outside), time)
    on_late(added.frame.where(outside))
    return kept, BatchStats(late_rows=added.rows - kept.rows)


def out_of_bounds(time: Column, oldest: int, newest: int, *, since: int | None, until: int | None) -> Column | None:
    """Which times are before ``since`` or after ``until``; None if none can be."""
    early = before(time, since) if since is not None and oldest < since else None
    ahead = ~before(time, until + 1) if until is not None and newest > until else None
    return early if ahead is None else ahead if early is None else early | ahead
