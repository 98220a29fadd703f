"""Runs to Parquet objects and back: executors talk to the object store themselves, without renames and listings."""

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from epochal.protocol.control import StorageConfig
from epochal.protocol.documents import RunPart, StoredRun
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import StoreError
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.store import Exists, Store, StoreOptions, open_store
from epochal.runtime.errors import PipelineError, damaged_object
from epochal.runtime.spark.one_row import one_row
from epochal.runtime.state.latest_files import TaskStep
from epochal.runtime.state.latest_table import LatestTable
from epochal.runtime.state.parquet import as_parquet
from epochal.runtime.state.parquet_run import MANY, unpacked
from epochal.runtime.state.state_objects import check_part, read_part, schema_of
from epochal.runtime.state.table_manager import LoadRun, RestoreRun
from epochal.runtime.state.tables import Declared, Run, earliest, latest, union

TASK_ROWS = 500_000
"""Several runs are written by fewer tasks than they have partitions: starting one takes as long as 50,000 rows."""

TASK_BYTES = 64 * 1024 * 1024
"""The same of rows that are packed already: so much is in the hands of one task."""

_WRITTEN = "object string, rows long, bytes long, crc32 long"
_INDEX = "__run"

ATTEMPTS = 16
"""Part numbers leave room for so many attempts of one task: an attempt that was given up may still be writing."""


@functools.lru_cache(maxsize=8)
def store_of(storage: StorageConfig) -> Store:
    """The store, opened once per process. Credentials come by environment."""
    return open_store(storage.uri, StoreOptions(endpoint=storage.endpoint, region=storage.region))


class Persistence:
    """Writes and reads one job's runs."""

    def __init__(self, spark: SparkSession, storage: StorageConfig, paths: JobPaths, generation: Generation) -> None:
        self._spark = spark
        self._storage = storage
        self._paths = paths
        self._generation = generation

    def write(
        self, runs: list[Run], latest: LatestTable | None, *, operator: str, table: str, epoch: Epoch, number: int
    ) -> tuple[RunPart, ...]:
        """Write the rows of runs that no epoch has, as one run: one object a partition, or one for each file that they
        are packed as; either all are packed or none is. Those of a ``latest`` table are written by the executors that
        have its files. The runs stay as they are: whose epoch this is says whether it still counts."""
        name = StateName(operator=operator, table=table, epoch=epoch, generation=self._generation, run=number, part=0)
        step = _writer(self._storage, self._paths, name)
        if latest is not None:
            written = latest.collect_by([run.number for run in runs], step, _WRITTEN)
        else:
            frame, tasks = union(run.frame for run in runs), self._tasks(runs)
            assert frame is not None
            if runs[0].packed is not None:
                step = _putter(self._storage, self._paths, name, tasks)
            written = frame.coalesce(tasks).mapInArrow(step, _WRITTEN).collect()
        return tuple(map(_part_of, written))

    def write_small(
        self, runs: list[Run], *, operator: str, table: str, epoch: Epoch, numbers: list[int]
    ) -> list[RunPart]:
        """Write several runs of few rows, one object each, by one task: a job takes longer than their rows."""
        names = [
            StateName(operator=operator, table=table, epoch=epoch, generation=self._generation, run=number, part=0)
            for number in numbers
        ]
        frame = union(run.frame.withColumn(_INDEX, F.lit(index)) for index, run in enumerate(runs))
        assert frame is not None
        step = _small_writer(self._storage, self._paths, names)
        rows = frame.coalesce(1).mapInArrow(step, f"{_WRITTEN}, {_INDEX} int").collect()
        parts = {row[_INDEX]: _part_of(row) for row in rows}
        return [parts[index] for index in range(len(runs))]

    def _tasks(self, runs: list[Run]) -> int:
        """How many at most write these."""
        cores: int = self._spark.sparkContext.defaultParallelism
        rows, packed = sum(run.rows for run in runs), sum(run.packed or 0 for run in runs)
        return 1 if rows < MANY else max(cores, packed // TASK_BYTES if packed else rows // TASK_ROWS)

    def read(
        self,
        stored: StoredRun,
        epoch: Epoch,
        partitioned_by: list[str] | None = None,
        declared: Declared | None = None,
    ) -> Run:
        """Bring a stored run back, as it is ``declared``, spread over as many partitions as there are cores now.

        Objects that are damaged are a :class:`DamagedStateError`; everything else that goes wrong is raised as it is.
        """

        def materialised() -> Run:
            frame = self._frame(stored) if declared is None else declared(self._frame(stored))
            if partitioned_by:
                self._check_columns(stored, frame, partitioned_by)
                frame = frame.repartition(*partitioned_by)
            return Run.materialise(frame)

        return self._restored(stored, epoch, materialised)

    def _restored(self, stored: StoredRun, epoch: Epoch, read: Callable[[], Run]) -> Run:
        try:
            run = read()
        except Exception as error:
            name = damaged_object(error)
            # An executor's word is not enough to give up an epoch: this looks at the stored bytes again.
            self.check([part for part in stored.parts if part.object == name])
            raise
        expected = sum(part.rows for part in stored.parts)
        if run.rows != expected:  # though each object has its rows: they were lost on their way
            raise RuntimeError(f"{stored.parts[0].object} … came back as {run.rows} rows, not as {expected}")
        run.min_time, run.max_time = stored.min_time, stored.max_time
        run.parts, run.persisted = stored.parts, epoch
        return run

    def check(self, parts: Iterable[RunPart]) -> None:
        """Read these objects here; :class:`DamagedStateError` if one is damaged."""
        store = store_of(self._storage)
        for part in parts:
            check_part(store, part)

    def _check_columns(self, stored: StoredRun, frame: DataFrame, columns: list[str]) -> None:
        if missing := [name for name in columns if name not in frame.columns]:
            name = self._paths.parse(stored.parts[0].object)
            assert isinstance(name, StateName)
            raise PipelineError(
                f"operator {name.operator!r}: its state in table {name.table!r} has no column {', '.join(missing)}, it "
                f"has {', '.join(frame.columns)}: it was written with other keys. Give the changed "
                "operator another name, or restore its old keys"
            )

    def _frame(self, stored: StoredRun) -> DataFrame:
        schema = from_arrow_schema(schema_of(store_of(self._storage), stored.parts[0]))
        parts = [(part.object, part.rows, part.bytes, part.crc32) for part in stored.parts]
        slices = max(1, min(len(parts), self._spark.sparkContext.defaultParallelism))
        names = self._spark.createDataFrame(parts, _WRITTEN).repartition(slices)
        return names.mapInArrow(_reader(self._storage), schema)

    def restore_run(self, epoch: Epoch) -> RestoreRun:
        return lambda stored, partitioned_by, declared: self.read(stored, epoch, partitioned_by, declared)

    def load_run(self, epoch: Epoch) -> LoadRun:
        def load(stored: StoredRun, table: LatestTable) -> None:
            self._restored(stored, epoch, lambda: table.load(self._frame(stored)))

        return load


def stored(runs: list[Run]) -> tuple[StoredRun, ...]:
    """Runs as a manifest has them. Neighbours that were written as one are one."""
    found = []
    for parts, group in itertools.groupby((run for run in runs if run.parts), lambda run: run.parts):
        same = list(group)
        found.append(StoredRun(parts=parts or (), min_time=earliest(same), max_time=latest(same)))
    return tuple(found)


def _writer(storage: StorageConfig, paths: JobPaths, name: StateName) -> TaskStep:
    """Takes rows, and puts them as one object."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        data, rows = as_parquet(batches)
        if rows:
            yield _put(storage, paths, replace(name, part=_part(0)), data, rows)

    return write


def _small_writer(storage: StorageConfig, paths: JobPaths, names: list[StateName]) -> TaskStep:
    """Takes rows of several runs, told apart by a last column, and puts each run as one object."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        whole = pa.Table.from_batches(batches)
        indices, rows = whole.column(_INDEX), whole.drop_columns([_INDEX])
        for index, name in enumerate(names):
            data, count = as_parquet(rows.filter(pc.equal(indices, index)).to_batches())
            written = _put(storage, paths, replace(name, part=_part(0)), data, count)
            yield written.append_column(_INDEX, pa.array([index], pa.int32()))

    return write


def _putter(storage: StorageConfig, paths: JobPaths, name: StateName, tasks: int) -> TaskStep:
    """Takes packed rows, and puts each file as an object. There are at most so many ``tasks``."""

    def put(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = (file for batch in batches for file in unpacked(batch))
        for number, (data, rows) in enumerate(files):
            yield _put(storage, paths, replace(name, part=_part(number * tasks)), data, rows)

    return put


def _part(first: int) -> int:
    """A number that no other task has, and no other attempt of this one; ``first`` is that of the first task."""
    context = TaskContext.get()
    assert context is not None
    return (first + context.partitionId()) * ATTEMPTS + min(context.attemptNumber(), ATTEMPTS - 1)


def _put(storage: StorageConfig, paths: JobPaths, name: StateName, data: bytes, rows: int) -> pa.RecordBatch:
    target = paths.state_object(name)
    if isinstance(store_of(storage).create(target, data), Exists):
        raise StoreError(storage.uri, f"{target} exists already, with other content")
    return one_row(object=target, rows=rows, bytes=len(data), crc32=zlib.crc32(data))


def _part_of(row: Row) -> RunPart:
    return RunPart(object=row.object, rows=row.rows, bytes=row.bytes, crc32=row.crc32)


def _reader(storage: StorageConfig) -> TaskStep:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.to_pylist():
                yield from read_part(store_of(storage), RunPart(**part))

    return read
