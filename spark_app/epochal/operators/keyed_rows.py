"""Keyed functions inside executors: Arrow in, one call a key, Arrow out.

Each row that comes in is one key: its rows of the batch (an array) and its newest state. What goes out is of two
kinds, in one frame: rows of output (``version`` is null) and rows of state.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from epochal.operators.keyed_state import KeyContext, KeyedFunction, Now, StateSpec, TimerKind
from epochal.operators.keys import KEY
from epochal.operators.versions import STORED, VERSION
from epochal.runtime.errors import PipelineError

ROWS, OUT = "rows", "out"
_AS_THEY_ARE = 10_000
"""So many rows of output are collected before they are sent on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCall:
    """One batch's calls of a keyed function; what Spark's ``mapInArrow`` is given.

    ``fires`` is the kind of timers to fire, None to process rows. ``result`` is the schema of what comes out,
    ``output`` that of the user's rows.
    """

    function: KeyedFunction | type[KeyedFunction]
    specs: dict[str, StateSpec]
    now: Now
    fires: TimerKind | None
    event_time: str | None
    output: pa.Schema
    result: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = self.function() if inspect.isclass(self.function) else self.function
        function.open()
        try:
            for batch in batches:
                yield from self._answered(function, batch)
        finally:
            function.close()

    def _answered(self, function: KeyedFunction, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys = batch.column(KEY)
        stored = batch.column(STORED).to_pylist()
        names = [field.name for field in keys.type]
        rows = None if self.fires else KeysRows(batch.column(ROWS), self.event_time)
        output = Output(self.output)
        states: list[dict[str, Any]] = []
        changed: list[int] = []
        for number, values in enumerate(keys.to_pylist()):
            key = tuple(values[name] for name in names)
            ctx = KeyContext(key, self.specs, self.now, stored[number])
            if rows is None:
                assert self.fires is not None
                for timer in ctx.due(self.fires):
                    output.add(number, function.on_timer(key, timer, ctx))
            else:
                output.add(number, function.process(key, rows.of(number), ctx))
            if (row := ctx.to_store()) is not None:
                states.append(row | {VERSION: (stored[number] or {VERSION: 0})[VERSION] + 1})
                changed.append(number)
            if output.rows >= _AS_THEY_ARE:
                yield from self._output_rows(output, keys)
                output = Output(self.output)
        yield from self._output_rows(output, keys)
        if states:
            yield self._state_rows(states, keys.take(pa.array(changed)))

    def _output_rows(self, output: "Output", keys: pa.StructArray) -> Iterator[pa.RecordBatch]:
        table, owners = output.table()
        if table.num_rows:
            columns = {KEY: keys.take(owners), OUT: table.to_struct_array().combine_chunks()}
            yield self._of(columns, table.num_rows)

    def _state_rows(self, states: list[dict[str, Any]], keys: pa.StructArray) -> pa.RecordBatch:
        columns: dict[str, Any] = {KEY: keys}
        for name in states[0]:
            try:
                columns[name] = pa.array([row[name] for row in states], self.result.field(name).type)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise PipelineError(f"a value does not fit the state that was declared: {error}") from None
        return self._of(columns, len(states))

    def _of(self, columns: dict[str, Any], rows: int) -> pa.RecordBatch:
        arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in self.result]
        return pa.RecordBatch.from_arrays(arrays, schema=self.result)


class KeysRows:
    """All keys' rows as one table, each key's in the order of event times."""

    def __init__(self, arrays: pa.ListArray, event_time: str | None) -> None:
        offsets = arrays.offsets.to_numpy()
        flat = arrays.values.slice(offsets[0], offsets[-1] - offsets[0])
        self._offsets = offsets - offsets[0]
        self._table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(flat)])
        if event_time is not None:
            owner = np.repeat(np.arange(len(arrays)), np.diff(self._offsets))
            by = pa.table({"owner": owner, "at": self._table[event_time]})
            # A key's rows without a time come last.
            self._table = self._table.take(pc.sort_indices(by, [("owner", "ascending"), ("at", "ascending")]))

    def of(self, number: int) -> pa.Table:
        start, end = self._offsets[number], self._offsets[number + 1]
        return self._table.slice(int(start), int(end - start))


class Output:
    """What a user's function gave, as one table of the schema that was declared."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._dicts: list[dict[str, Any]] = []
        self._owners: list[tuple[int, int]] = []

    def add(self, owner: int, given: Any) -> None:
        """Take what one call gave: nothing, a table, a batch, a row, or any number of these."""
        if given is None:
            return
        for one in [given] if isinstance(given, pa.Table | pa.RecordBatch | dict) else _iterated(given):
            if isinstance(one, dict):
                self._dicts.append(one)
                self._note(owner, 1)
            elif isinstance(one, pa.Table | pa.RecordBatch):
                self._flush()
                self._tables.append(self._cast(one if isinstance(one, pa.Table) else pa.Table.from_batches([one])))
                self._note(owner, one.num_rows)
            else:
                raise PipelineError(
                    f"the function gave a {type(one).__name__}: give Arrow tables, record batches, or a dict for a row"
                )

    def table(self) -> tuple[pa.Table, pa.Array]:
        """The rows, and for each the number of the key that it came from."""
        self._flush()
        owners = np.repeat([owner for owner, _ in self._owners], [rows for _, rows in self._owners])
        table = pa.concat_tables([self._schema.empty_table(), *self._tables])
        return table, pa.array(owners.astype(np.int64))

    def _note(self, owner: int, rows: int) -> None:
        self.rows += rows
        self._owners.append((owner, rows))

    def _flush(self) -> None:
        if self._dicts:
            self._tables.append(rows_table(self._dicts, self._schema))
            self._dicts = []

    def _cast(self, table: pa.Table) -> pa.Table:
        _check_names(table.column_names, self._schema)
        try:
            return table.select(self._schema.names).cast(self._schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise PipelineError(f"what the function gave does not fit its schema: {error}") from None


def rows_table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Dicts as a table of that schema; a column that a dict lacks is null, one that the schema lacks is an error."""
    for names in {tuple(row) for row in rows}:
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise PipelineError(f"a row has the columns {', '.join(map(repr, unknown))}; {_has(schema)}")
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise PipelineError(f"a row does not fit the schema: {error}") from None


def _check_names(names: list[str], schema: pa.Schema) -> None:
    if sorted(names) != sorted(schema.names):
        raise PipelineError(f"the function gave the columns {', '.join(names)}; {_has(schema)}")


def _has(schema: pa.Schema) -> str:
    return f"the schema has {', '.join(schema.names)}"


def _iterated(given: Any) -> Iterable[Any]:
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return given
    raise PipelineError(
        f"the function gave a {type(given).__name__}: give Arrow tables, record batches, or a dict for a row"
    )


class PlainFunction(KeyedFunction):
    """A user's function that is no class."""

    def __init__(self, process: Callable[..., Any], on_timer: Callable[..., Any] | None) -> None:
        self._process = process
        self._on_timer = on_timer

    def process(self, key: Any, rows: Any, ctx: KeyContext) -> Any:
        return self._process(key, rows, ctx)

    def on_timer(self, key: Any, timer: Any, ctx: KeyContext) -> Any:
        return None if self._on_timer is None else self._on_timer(key, timer, ctx)
