"""State that is written whole for each key: a batch adds a new version of the keys it touched, and the newest counts.

Runs never change, so an older version stays where it is until runs are merged. A version may say that the key has no
state any more: it hides older ones, and goes when nothing older is left.
"""

from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from epochal.operators.keys import KEY
from epochal.runtime.state.tables import KeyedTimeTable, Run, latest

VERSION = "version"
"""How often the key was written. No clock and no number of a batch is in it: that would be a new plan each time."""

STORED = "stored"

_LATEST = 10**17 - 1
"""Times have 17 digits where they are compared in a plan: enough for the year 5138."""


class VersionTable:
    """A table of versions. Its runs' times are those of the batches that wrote them, and only grow."""

    def __init__(self, table: KeyedTimeTable) -> None:
        self._table = table

    @property
    def runs(self) -> list[Run]:
        return self._table.runs

    def read(self) -> DataFrame | None:
        """All versions of all keys."""
        return self._table.read()

    def add(self, state: DataFrame, *, rows: int, held: DataFrame, at: int) -> None:
        """Add versions that are a view of what Spark holds."""
        time = max(at, (latest(self._table.runs) or 0) + 1)
        self._table.add(Run(state, rows=rows, min_time=time, max_time=time, held=held))

    def merge(self, *, gone: Column) -> None:
        """Merge runs in tiers: only the newest version of a key stays, and none of one that is ``gone``, once it hides
        nothing."""
        self._table.merge_small(newest, oldest=lambda state: newest(state).where(~gone))


def versions(state: StructType) -> StructType:
    """What a table of versions holds, given the key and its state."""
    others = [field for field in state if field.name != KEY]
    return StructType([state[KEY], StructField(VERSION, LongType()), *others])


def with_newest(keys: DataFrame, state: DataFrame | None, schema: StructType) -> DataFrame:
    """Keys, and what else there is of each, with the newest version of their state (``schema``) as ``stored``; null if
    there is none. The keys are hashed, and the state goes past them."""
    if state is None:
        kind = StructType([StructField(VERSION, LongType()), *schema])
        return keys.withColumn(STORED, F.lit(None).cast(kind))
    kept = state.select(KEY, F.struct(VERSION, *schema.names).alias(STORED))
    joined = keys.hint("shuffle_hash").join(kept, KEY, "left")
    others = [F.first(name).alias(name) for name in keys.columns if name != KEY]
    return joined.groupBy(KEY).agg(*others, F.max_by(STORED, F.col(STORED)[VERSION]).alias(STORED))


def newest(state: DataFrame) -> DataFrame:
    """The newest version of each key."""
    columns = state.columns
    whole = F.max_by(F.struct(*(name for name in columns if name != KEY)), VERSION).alias("whole")
    return state.groupBy(KEY).agg(whole).select(KEY, "whole.*").select(*columns)


def reached(time: Column, until: int) -> Column:
    """Whether a time (microseconds, or null) is not after ``until``.

    A whole number would be part of the code that Spark generates, and make it compile each batch anew; a decimal is
    data to it. As a difference, because Spark would make whole numbers again of a plain comparison.
    """
    limit = F.lit(Decimal(max(-_LATEST, min(until, _LATEST))))
    return F.coalesce(time.cast("decimal(17,0)") - limit <= 0, F.lit(False))
