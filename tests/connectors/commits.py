"""Commits without a job: objects in a store, and a sink that is called as the checkpointer calls it."""

import io
import itertools
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from epochal.protocol.control import StorageConfig
from epochal.runtime.dataflow.operator import JobRef, OperatorContext
from epochal.runtime.state.persistence import store_of

JOB = "test/job"
SCHEMA = T.StructType([T.StructField("id", T.LongType()), T.StructField("word", T.StringType())])


class Cut(BaseException):
    """The driver is gone here: nothing may catch it to clean up."""


class Described(DataFrame):
    """A frame that has a schema and nothing else, so that looking at it needs no Spark."""

    def __new__(cls, _: T.StructType) -> "Described":
        return object.__new__(cls)

    def __init__(self, schema: T.StructType) -> None:
        self._given = schema

    @property
    def schema(self) -> T.StructType:
        return self._given


def rows(*pairs: tuple[int | None, str | None]) -> list[dict[str, Any]]:
    return [{"id": key, "word": word} for key, word in pairs]


class Commits:
    """A store of pending objects, and contexts of any generation."""

    def __init__(self, place: Path | StorageConfig) -> None:
        """In a directory, or in any store."""
        if isinstance(place, Path):
            place.mkdir(parents=True, exist_ok=True)
            place = StorageConfig(uri=place.as_uri())
        self.storage = place
        self._numbers = itertools.count(1)

    def objects(self, *tables: list[dict[str, Any]], schema: pa.Schema | None = None) -> list[str]:
        """One object for each list of rows."""
        names = []
        for rows in tables:
            buffer = io.BytesIO()
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), buffer)
            names.append(f"state/out/pending/{next(self._numbers):06d}.parquet")
            store_of(self.storage).create(names[-1], buffer.getvalue())
        return names

    def context(
        self, generation: int = 1, *, newest_epoch: int = 100, name: str = "out", job: str = JOB
    ) -> OperatorContext:
        ref = JobRef(name=job, generation=generation, newest_epoch=newest_epoch)
        return OperatorContext(name=name, job=ref, spark=cast(Any, None))
