"""Calls to the outside inside executors: many at a time, each bounded in time and tries.

A task takes its rows a few thousand at a time (an Arrow batch), and has so many calls under way as it is allowed. The
calls of one Arrow batch end before the next one's begin, so none waits unattended while Spark fetches rows.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from epochal.operators.keyed_rows import rows_table
from epochal.runtime.errors import PipelineError, UnavailableError

OnError = Literal["fail", "null", "drop", "side"]
ERROR = "error"
Row = dict[str, Any]
Call = Callable[[Row], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Enrichment:
    """What became of one row: its number, the columns to add, or what went wrong."""

    row: int
    columns: Row
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichCall:
    """One batch's calls; what Spark's ``mapInArrow`` is given. Times are seconds."""

    function: Any
    added: pa.Schema
    result: pa.Schema
    concurrency: int
    timeout: float
    retries: int
    retry_delay: float
    ordered: bool
    on_error: OnError

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pool = ThreadPoolExecutor(max_workers=self.concurrency, thread_name_prefix="enrich")
        function = self.function() if inspect.isclass(self.function) else self.function
        with asyncio.Runner() as runner:
            try:
                runner.run(_hook(function, "open"))
                call = _awaited(function, pool)
                for batch in batches:
                    yield self._enriched(batch, runner.run(self._answers(batch.to_pylist(), call)))
            finally:
                runner.run(_hook(function, "close"))
                # A plain function that did not answer in time cannot be ended: it is left behind.
                pool.shutdown(wait=False, cancel_futures=True)

    async def _answers(self, rows: list[Row], call: Call) -> list[Enrichment]:
        """All rows' answers, in the order in which they came in (or, if order does not matter, in which they came
        back)."""
        free = asyncio.Semaphore(self.concurrency)
        answers: list[Enrichment] = []

        async def one(number: int, row: Row) -> None:
            async with free:
                answers.append(await self._answer(number, row, call))

        try:
            async with asyncio.TaskGroup() as group:
                for number, row in enumerate(rows):
                    group.create_task(one(number, row))
        except* Exception as errors:
            raise _first(errors) from None
        return sorted(answers, key=lambda answer: answer.row) if self.ordered else answers

    async def _answer(self, number: int, row: Row, call: Call) -> Enrichment:
        tried = 0
        while True:
            limit = asyncio.timeout(self.timeout)
            try:
                async with limit:
                    return Enrichment(number, self._checked(await call(row)))
            except Exception as other:
                error = other
                if limit.expired():  # a service that hangs is an outage, and not the job's mistake
                    error = UnavailableError(f"no answer within {self.timeout:g} s, {tried + 1} times")
            if tried == self.retries or isinstance(error, BadAnswerError):
                if self.on_error == "fail":
                    raise error
                return Enrichment(number, {}, error)
            await asyncio.sleep(self.retry_delay * 2**tried)
            tried += 1

    def _checked(self, answer: Any) -> Row:
        """The columns to add. None stands for nothing known."""
        if answer is None:
            return {}
        if not isinstance(answer, dict):
            raise BadAnswerError(
                f"the function gave a {type(answer).__name__}: give a dict of the columns to add, or None"
            )
        try:
            rows_table([answer], self.added)
        except PipelineError as error:
            raise BadAnswerError(str(error)) from None
        return answer

    def _enriched(self, batch: pa.RecordBatch, answers: list[Enrichment]) -> pa.RecordBatch:
        if self.on_error == "drop":
            answers = [answer for answer in answers if answer.error is None]
        rows = batch.take(pa.array([answer.row for answer in answers], pa.int64()))
        added = rows_table([answer.columns for answer in answers], self.added)
        errors = [None if one.error is None else f"{type(one.error).__name__}: {one.error}" for one in answers]
        columns = [*rows.columns, *(column.combine_chunks() for column in added.columns), pa.array(errors, pa.string())]
        return pa.RecordBatch.from_arrays([_plain(column) for column in columns], schema=self.result)


class BadAnswerError(PipelineError):
    """The function answered, and the answer cannot be used: asking again would not help."""


def _plain(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _awaited(function: Any, pool: ThreadPoolExecutor) -> Call:
    """Any function as one to await: a plain one runs in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        asynchronous: Call = function
        return asynchronous
    return lambda row: asyncio.get_running_loop().run_in_executor(pool, function, row)


async def _hook(function: Any, name: str) -> None:
    hook = getattr(function, name, None)
    if hook is not None and not inspect.isfunction(function):
        given = hook()
        if inspect.isawaitable(given):
            await given


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    error: Any = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
