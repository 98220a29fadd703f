"""Aggregates that take rows back: over a changelog, and with a changelog as the result.

A changelog's rows say by ``row_kind`` what they do to a result: ``+I`` adds a row, ``-U`` takes back the old one and
``+U`` brings the new one, ``-D`` takes a row back for good. Each batch writes its keys' whole partials as a new
version, with the old ones beside them for the result: what is taken back is exactly what was given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from epochal.operators.aggregates import ROWS
from epochal.operators.aggregation import Aggregation
from epochal.operators.definitions import named_expressions, typed
from epochal.operators.keys import KEY, check_keys, key_columns, with_key
from epochal.operators.versions import STORED, VERSION, VersionTable, versions, with_newest
from epochal.runtime.dataflow.checkpoint_attempt import now_micros
from epochal.runtime.dataflow.operator import MAIN, Batch, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.dataflow.row_kind import ROW_KIND
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.tables import KeyedTimeTable, materialise, run_metrics

_FRESH, _BEFORE, _SIDES = "__fresh", "__before", "__sides"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChangelogAggregateOperator(Operator):
    """Aggregates per key that are kept whole. ``changelog`` says that the input is one, ``retractions`` that the result
    shall be one."""

    keys: list[str]
    aggregates: dict[str, Column]
    changelog: bool
    retractions: bool

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        if self.changelog and not isinstance(_type_of(frame, ROW_KIND), StringType):
            raise PipelineError(
                f"a changelog has a column {ROW_KIND!r} with '+I', '-U', '+U' or '-D': keep it, or say changelog=False"
            )
        if self.retractions and ROW_KIND in (*self.keys, *self.aggregates):
            raise PipelineError(f"the column {ROW_KIND!r} is added by retractions=True: use another name")
        check_keys(frame, self.keys)
        aggregation = Aggregation(
            [KEY],
            self.aggregates,
            with_key(frame, self.keys),
            count_rows=True,
            sign=_sign() if self.changelog else None,
        )
        if aggregation.keeps_rows:
            raise PipelineError(
                "with retractions only aggregates are possible whose partials can be merged: "
                "sum, count, min, max, avg, the standard deviations and variances, count_distinct, bool_and, bool_or"
            )
        return _ChangelogAggregate(self, aggregation, frame)


class _ChangelogAggregate(BoundOperator):
    def __init__(self, spec: ChangelogAggregateOperator, aggregation: Aggregation, frame: DataFrame) -> None:
        self._spec = spec
        self._keys = spec.keys
        self._aggregation = aggregation
        self._key_types = frame.schema
        self._parts = StructType([field for field in aggregation.state if field.name != KEY])
        table = KeyedTimeTable("keys", versions(aggregation.state), partitioned_by=[KEY])
        self._table = VersionTable(table)
        super().__init__({MAIN: self._result(self._changed(frame, None)).schema}, [table])

    def state_definition(self) -> dict[str, str]:
        return {
            "input": "a changelog" if self._spec.changelog else "rows",
            "keys": typed(self._keys, self._key_types),
            "aggregates": named_expressions(self._spec.aggregates, self._aggregation.types),
        }

    def process(self, batch: Batch, out: Collector) -> None:
        changed = self._changed(batch.frame, self._table.read())
        held, seen = materialise(changed, run_metrics())
        self._table.add(held.drop(_BEFORE), rows=seen["rows"], held=held, at=now_micros())
        if seen["rows"]:
            out.emit(self._result(held))
        self._table.merge(gone=F.col(ROWS) <= 0)

    def _changed(self, frame: DataFrame, state: DataFrame | None) -> DataFrame:
        """The new partials of all keys of the batch, and as ``__before`` the old ones; null if there were none, or none
        that stands for rows: sums of floats leave a remainder where all has been taken back."""
        aggregation, names = self._aggregation, self._parts.names
        added = aggregation.partial(with_key(frame, self._keys)).select(KEY, F.struct(*names).alias(_FRESH))
        known = with_newest(added, state, self._parts)
        old = F.struct(*(F.col(STORED)[name].alias(name) for name in names))
        before = F.when(F.col(STORED)[ROWS] > 0, old)
        version = F.coalesce(F.col(STORED)[VERSION], F.lit(0).cast("long")) + 1
        both = known.select(
            KEY, version.alias(VERSION), before.alias(_BEFORE), F.explode(F.array(before, _FRESH)).alias(_SIDES)
        ).where(F.col(_SIDES).isNotNull())
        carried = [F.first(name).alias(name) for name in (VERSION, _BEFORE)]
        flat = both.select(KEY, VERSION, _BEFORE, f"{_SIDES}.*")
        return flat.groupBy(KEY).agg(*aggregation.merges, *carried).select(KEY, VERSION, *names, _BEFORE)

    def _result(self, changed: DataFrame) -> DataFrame:
        aggregation = self._aggregation
        if not self._spec.retractions:
            return changed.select(*key_columns(self._keys), *aggregation.results())
        new = changed.select(
            KEY, _BEFORE, F.struct(*aggregation.results()).alias("new"), (F.col(ROWS) > 0).alias("is_there")
        )
        was_there = F.coalesce(F.col(ROWS) > 0, F.lit(False))
        sides = new.select(KEY, "new", "is_there", f"{_BEFORE}.*").select(
            KEY, "new", "is_there", F.struct(*aggregation.results()).alias("old"), was_there.alias("was_there")
        )
        was, now = F.col("was_there"), F.col("is_there")
        gone = F.when(was & ~now, "-D").when(was & ~F.col("new").eqNullSafe(F.col("old")), "-U")
        come = F.when(now & ~was, "+I").when(now & ~F.col("new").eqNullSafe(F.col("old")), "+U")
        changes = F.array(_change(gone, "old"), _change(come, "new"))
        spread = sides.select(KEY, F.explode(changes).alias("c")).where(F.col("c")[ROW_KIND].isNotNull())
        values = [F.col("c")["row"][name].alias(name) for name in self._spec.aggregates]
        return spread.select(F.col("c")[ROW_KIND].alias(ROW_KIND), *key_columns(self._keys), *values)


def _change(kind: Column, row: str) -> Column:
    return F.struct(kind.alias(ROW_KIND), F.col(row).alias("row"))


def _sign() -> Column:
    kind = F.col(ROW_KIND)
    text = F.concat(F.lit(f"{ROW_KIND} is "), F.coalesce(kind, F.lit("null")), F.lit(", and not +I, -U, +U or -D"))
    wrong = F.raise_error(text).cast("int")
    return F.when(kind.isin("+I", "+U"), F.lit(1)).when(kind.isin("-U", "-D"), F.lit(-1)).otherwise(wrong)


def _type_of(frame: DataFrame, column: str) -> object:
    return frame.schema[column].dataType if column in frame.columns else None
