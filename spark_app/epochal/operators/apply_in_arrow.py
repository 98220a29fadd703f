"""Keyed Arrow functions with state and timers.

State is a table of versions, one row a key, partitioned by the key. A batch is one job: its rows are gathered by key,
find the newest version of their key's state, and go through the user's function. What that gave, output and changed
state, is held once: the table has a view of the state in it, and the output is a view, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from epochal.operators.definitions import typed
from epochal.operators.keyed_rows import OUT, ROWS, KeyedCall
from epochal.operators.keyed_state import KeyedFunction, Now, StateSpec, TimerKind
from epochal.operators.keys import KEY, check_keys, with_key
from epochal.operators.versions import VERSION, VersionTable, reached, versions, with_newest
from epochal.runtime.dataflow.checkpoint_attempt import now_micros
from epochal.runtime.dataflow.operator import (
    MAIN,
    Batch,
    BindContext,
    BoundOperator,
    Collector,
    Operator,
    OperatorContext,
)
from epochal.runtime.dataflow.task import MAX_WATERMARK
from epochal.runtime.errors import PipelineError
from epochal.runtime.spark.plan_metrics import Observed, PlanMetrics
from epochal.runtime.state.stored_types import as_declared, check_storable, same_types
from epochal.runtime.state.tables import KeyedTimeTable, materialise

KINDS: tuple[TimerKind, ...] = ("event", "processing")
AT_ONCE, NEVER = -(2**62), 2**62


@dataclass(frozen=True, slots=True)
class Schemas:
    """What a keyed function's frames look like. ``stored`` is a key's state without key and version; ``result`` is all
    that comes out of the executors, rows of output and rows of state."""

    output: StructType
    state: StructType
    stored: StructType
    result: StructType

    @classmethod
    def of(cls, key: DataType, output: StructType, specs: dict[str, StateSpec]) -> "Schemas":
        state = StructType([StructField(name, state_type(spec)) for name, spec in specs.items()])
        stored = StructType(
            [
                StructField("expires", LongType()),
                *(StructField(f"{kind}_timers", ArrayType(LongType())) for kind in KINDS),
                StructField("state", state),
            ]
        )
        result = [StructField(KEY, key, nullable=False), StructField(VERSION, LongType()), *stored]
        return cls(output, state, stored, StructType([*result, StructField(OUT, output)]))


@dataclass(frozen=True, slots=True, eq=False)
class ApplyInArrowOperator(Operator):
    """Calls a user's function for each key of a batch, and for each timer that is due."""

    function: KeyedFunction | type[KeyedFunction]
    keys: list[str] = field(kw_only=True)
    schema: StructType = field(kw_only=True)
    state: dict[str, StateSpec] = field(kw_only=True)
    event_time: str | None = field(kw_only=True)

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        frame = ctx.empty(inputs[0])
        check_keys(frame, self.keys)
        check_storable(inputs[0])
        check_storable(self.schema, "schema: column")
        key = with_key(frame, self.keys).schema[KEY]
        schemas = Schemas.of(key.dataType, self.schema, self.state)
        check_storable(schemas.state, "state")
        return _ApplyInArrow(self, inputs[0], schemas, ctx)


class _ApplyInArrow(BoundOperator):
    def __init__(self, spec: ApplyInArrowOperator, rows: StructType, schemas: Schemas, ctx: BindContext) -> None:
        self._spec = spec
        self._spark = ctx.spark
        self._schemas = schemas
        self._key_types = rows
        key = schemas.result[KEY]
        self._state = versions(StructType([key, *schemas.stored]))
        self._runs = KeyedTimeTable("state", self._state, partitioned_by=[KEY], restored_as=self._as_declared)
        self._table = VersionTable(self._runs)
        self._next: dict[TimerKind, int] = dict.fromkeys(KINDS, NEVER)
        """No timer is due before."""
        super().__init__({MAIN: spec.schema}, [self._runs])

    def state_definition(self) -> dict[str, str]:
        """Types of state are looked at when it is restored, one by one: some changes of them are allowed."""
        return {"keys": typed(self._spec.keys, self._key_types)}

    def on_start(self, ctx: OperatorContext) -> None:
        if self._runs.runs:
            self._next = dict.fromkeys(KINDS, AT_ONCE)

    # --- rows and timers ---

    def process(self, batch: Batch, out: Collector) -> None:
        rows = F.collect_list(F.struct(*batch.frame.columns)).alias(ROWS)
        keyed = with_key(batch.frame, self._spec.keys)
        self._call(keyed.groupBy(KEY).agg(rows), out, now=_now(batch.watermark))
        self.on_tick(batch.watermark, out)

    def on_watermark(self, watermark: int, before: int | None, out: Collector) -> None:
        self._fire("event", _now(watermark), watermark, out)

    def on_tick(self, watermark: int | None, out: Collector) -> None:
        now = _now(watermark)
        self._fire("processing", now, now.clock, out)

    def _fire(self, kind: TimerKind, now: Now, until: int, out: Collector) -> None:
        """Call the function for the keys that may have a timer that is due. No job if there can be none."""
        state = self._table.read()
        if state is None or self._next[kind] > until:
            return
        first = _first(kind)
        later = Observed(state, PlanMetrics({"next": F.min(F.when(~reached(first, until), first))}))
        due = later.frame.where(reached(first, until)).select(KEY).distinct()
        self._next[kind] = NEVER
        self._call(due, out, now=now, fires=kind)
        self._expect(kind, later.get()["next"])

    def _call(self, keys: DataFrame, out: Collector, *, now: Now, fires: TimerKind | None = None) -> None:
        """Call the function for these keys, by one job, and keep what it left as state."""
        schemas, time_zone = self._schemas, self._spark.conf.get("spark.sql.session.timeZone")
        call = KeyedCall(
            function=self._spec.function,
            specs=self._spec.state,
            now=now,
            fires=fires,
            event_time=self._spec.event_time,
            output=to_arrow_schema(schemas.output, timezone=time_zone),
            result=to_arrow_schema(schemas.result, timezone=time_zone),
        )
        known = with_newest(keys, self._table.read(), schemas.stored)
        result = known.mapInArrow(call, schemas.result).repartition(KEY)
        metrics = {"rows": F.count(VERSION)} | {kind: F.min(_first(kind)) for kind in KINDS}
        held, seen = materialise(result, PlanMetrics(metrics))
        state = held.where(F.col(VERSION).isNotNull()).select(KEY, VERSION, *schemas.stored.names)
        self._table.add(state, rows=seen["rows"], held=held, at=now.clock)
        for kind in KINDS:
            self._expect(kind, seen[kind])
        out.emit(held.where(F.col(VERSION).isNull()).select(f"{OUT}.*"))
        self._table.merge(gone=reached(F.col("expires"), now.clock))

    def _expect(self, kind: TimerKind, at: int | None) -> None:
        if at is not None:
            self._next[kind] = min(self._next[kind], at)

    # --- restored state ---

    def _as_declared(self, frame: DataFrame, name: str) -> DataFrame:
        """A restored run with the state that is declared now: new state is empty, and what is not declared any more is
        left out."""
        key, state = self._schemas.result[KEY].dataType, self._schemas.state
        kept_key, kept = frame.schema[KEY].dataType, frame.schema["state"].dataType
        assert isinstance(kept, StructType)
        if not same_types(kept_key, key):
            raise PipelineError(
                f"operator {name!r}: its keys are {key.simpleString()} now, and its state was kept by "
                f"{kept_key.simpleString()}: use another name for the new operator"
            )
        fields: list[Column] = []
        for one in state:
            if one.name not in kept.names:
                fields.append(F.lit(None).cast(one.dataType).alias(one.name))
                continue
            before = kept[one.name].dataType
            if not same_types(before, one.dataType):
                raise PipelineError(
                    f"operator {name!r}: state {one.name!r} is {one.dataType.simpleString()} now, and the restored "
                    f"epoch has it as {before.simpleString()}: use another name for the new state"
                )
            fields.append(F.col("state")[one.name].cast(one.dataType).alias(one.name))
        with_state = frame if kept.names == state.names else frame.withColumn("state", F.struct(*fields))
        return as_declared(with_state, self._state, table=f"{name}-state")


def state_type(spec: StateSpec) -> DataType:
    """How state is stored: each value with the time when it expires."""
    entry = f"value: {spec.value}, expires: bigint"
    stored = {
        "value": f"struct<{entry}>",
        "list": f"array<struct<{entry}>>",
        "map": f"array<struct<key: {spec.key}, {entry}>>",
    }[spec.kind]
    return DataType.fromDDL(stored)


def _now(watermark: int | None) -> Now:
    ended = watermark is not None and watermark >= MAX_WATERMARK
    return Now(clock=now_micros(), watermark=watermark, ended=ended)


def _first(kind: TimerKind) -> Column:
    """The key's next timer; null if it has none."""
    return F.get(f"{kind}_timers", F.lit(0))
