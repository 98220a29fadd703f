"""Enrichment of rows by a function that asks somebody else: a service, a database, a model."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from epochal.operators.enrich_rows import ERROR, EnrichCall, OnError
from epochal.runtime.dataflow.operator import MAIN, Operator, OperatorContext
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
            raise PipelineError("timeout must be longer than nothing: no call may take for ever")
        if self.retries < 0:
            raise PipelineError(f"retries must be 0 or more, not {self.retries}")
        if self.retry_delay < 0:
            raise PipelineError("retry_delay must not be negative")
        if self.on_error not in ("fail", "null", "drop", "side"):
            raise PipelineError(f"on_error must be 'fail', 'null', 'drop' or 'side', not {self.on_error!r}")


class EnrichOperator(Operator):
    """Adds columns to each row. The rows are computed once, however many read them: a call may cost money."""

    def __init__(self, function: Any, *, schema: StructType, options: EnrichOptions) -> None:
        self._function = function
        self._schema = schema
        self._options = options

    def process(self, frame: DataFrame, ctx: OperatorContext, channel: int) -> None:
        time_zone = ctx.spark.conf.get("spark.sql.session.timeZone")
        result = StructType([*frame.schema, *self._schema, StructField(_ERROR, StringType())])
        options = self._options
        call = EnrichCall(
            function=self._function,
            added=to_arrow_schema(self._schema, timezone=time_zone),
            result=to_arrow_schema(result, timezone=time_zone),
            concurrency=options.concurrency,
            timeout=options.timeout,
            retries=options.retries,
            retry_delay=options.retry_delay,
            ordered=options.ordered,
            on_error=options.on_error,
        )
        answered = ctx.table_manager.for_this_batch(frame.mapInArrow(call, result)).frame
        good, failed = self._ports(answered, frame.columns)
        ctx.emit(good)
        if ctx.is_read(FAILED):
            ctx.emit(failed, FAILED)

    def schema_of(self, frames: list[DataFrame]) -> dict[str, DataFrame]:
        frame = frames[0]
        check_storable(frame.schema)
        check_storable(self._schema, "schema: column")
        both = sorted(set(self._schema.names) & set(frame.columns))
        if both:
            raise PipelineError(f"the input has the columns {', '.join(both)} already: give the new ones other names")
        if self._options.on_error == "side" and ERROR in frame.columns:
            raise PipelineError(f"the input has a column {ERROR!r}, which .failed adds: rename it")
        result = StructType([*frame.schema, *self._schema, StructField(_ERROR, StringType())])
        good, failed = self._ports(frame.sparkSession.createDataFrame([], result), frame.columns)
        return {MAIN: good, FAILED: failed}

    def _ports(self, answered: DataFrame, columns: list[str]) -> tuple[DataFrame, DataFrame]:
        good = answered.where(F.col(_ERROR).isNull()) if self._options.on_error == "side" else answered
        failed = answered.where(F.col(_ERROR).isNotNull())
        return good.drop(_ERROR), failed.select(*columns, F.col(_ERROR).alias(ERROR))
