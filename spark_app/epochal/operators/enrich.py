"""Enrichment of rows by a function that asks somebody else: a service, a database, a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from epochal.operators.enrich_rows import ERROR, EnrichCall, OnError
from epochal.runtime.dataflow.operator import MAIN, Batch, BindContext, BoundOperator, Collector, Operator
from epochal.runtime.errors import PipelineError
from epochal.runtime.state.stored_types import check_storable

FAILED = "failed"
_ERROR = "__error"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichOptions:
    """How the function is called. Times are seconds."""

    concurrency: int
    timeout: float
    retries: int
    retry_delay: float
    ordered: bool
    on_error: OnError

    def check(self) -> None:
        if self.concurrency < 1:
            raise PipelineError(f"concurrency must be at least 1, not {self.concurrency}")
        if self.timeout <= 0:
            raise PipelineError("timeout must be positive: every call needs a time limit")
        if self.retries < 0:
            raise PipelineError(f"retries must be 0 or more, not {self.retries}")
        if self.retry_delay < 0:
            raise PipelineError("retry_delay must not be negative")
        if self.on_error not in ("fail", "null", "drop", "side"):
            raise PipelineError(f"on_error must be 'fail', 'null', 'drop' or 'side', not {self.on_error!r}")


@dataclass(frozen=True, slots=True, eq=False)
class EnrichOperator(Operator):
    """Adds columns to each row. The rows are computed once, however many read them: a call may cost money."""

    function: Any
    schema: StructType = field(kw_only=True)
    options: EnrichOptions = field(kw_only=True)

    def bind(self, inputs: Sequence[StructType], ctx: BindContext) -> BoundOperator:
        rows = inputs[0]
        check_storable(rows)
        check_storable(self.schema, "schema: column")
        both = sorted(set(self.schema.names) & set(rows.names))
        if both:
            raise PipelineError(f"the input has the columns {', '.join(both)} already: give the new ones other names")
        if self.options.on_error == "side" and ERROR in rows.names:
            raise PipelineError(f"the input has a column {ERROR!r}, which .failed adds: rename it")
        return _Enrich(self, rows, ctx)


class _Enrich(BoundOperator):
    def __init__(self, spec: EnrichOperator, rows: StructType, ctx: BindContext) -> None:
        self._spark = ctx.spark
        self._spec = spec
        self._columns = rows.names
        self._result = StructType([*rows, *spec.schema, StructField(_ERROR, StringType())])
        good, failed = self._ports(ctx.empty(self._result))
        super().__init__({MAIN: good.schema, FAILED: failed.schema})

    def process(self, batch: Batch, out: Collector) -> None:
        answered = out.for_this_batch(batch.frame.mapInArrow(self._call(), self._result)).frame
        good, failed = self._ports(answered)
        out.emit(good)
        if out.is_read(FAILED):
            out.emit(failed, FAILED)

    def _call(self) -> EnrichCall:
        time_zone = self._spark.conf.get("spark.sql.session.timeZone")
        options = self._spec.options
        return EnrichCall(
            function=self._spec.function,
            added=to_arrow_schema(self._spec.schema, timezone=time_zone),
            result=to_arrow_schema(self._result, timezone=time_zone),
            concurrency=options.concurrency,
            timeout=options.timeout,
            retries=options.retries,
            retry_delay=options.retry_delay,
            ordered=options.ordered,
            on_error=options.on_error,
        )

    def _ports(self, answered: DataFrame) -> tuple[DataFrame, DataFrame]:
        good = answered.where(F.col(_ERROR).isNull()) if self._spec.options.on_error == "side" else answered
        failed = answered.where(F.col(_ERROR).isNotNull())
        return good.drop(_ERROR), failed.select(*self._columns, F.col(_ERROR).alias(ERROR))
