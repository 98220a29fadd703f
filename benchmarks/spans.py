"""When batches ran, read from Spark's own progress reports; and files that come as time goes by."""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from epochal.protocol.control import CheckpointReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch with rows; times are seconds since 1970. ``waits``: what of it was its checkpoint."""

    number: int
    rows: int
    begin: float
    end: float
    waits: float


def batches_of(query: StreamingQuery, partitions: int) -> list[Batch]:
    """A batch without rows only closes windows."""
    found = [json.loads(progress.json) for progress in query.recentProgress]
    return [_batch(one, partitions) for one in found if one["numInputRows"]]


def _batch(progress: dict[str, Any], partitions: int) -> Batch:
    times = progress["durationMs"]
    begin = datetime.fromisoformat(progress["timestamp"]).timestamp()
    # Spark adds up the time of all partitions' stores, which commit side by side.
    stores = sum(store["commitTimeMs"] for store in progress["stateOperators"]) / partitions
    return Batch(
        number=progress["batchId"],
        rows=progress["numInputRows"],
        begin=begin,
        end=begin + times["triggerExecution"] / 1000,
        waits=(times.get("walCommit", 0) + times.get("commitOffsets", 0) + stores) / 1000,
    )


class Feeder:
    """Puts the files of a directory into another one, one every so many seconds, and knows when."""

    def __init__(self, source: Path, directory: Path, seconds: float) -> None:
        self.directory = directory
        self.arrivals: list[float] = []
        self._files = sorted(source.glob("*.parquet"))
        self._seconds = seconds
        directory.mkdir()

    def start(self) -> None:
        threading.Thread(target=self._feed, name="feeder", daemon=True).start()

    def _feed(self) -> None:
        begin = time.monotonic()
        for number, path in enumerate(self._files):
            time.sleep(max(0.0, begin + number * self._seconds - time.monotonic()))
            os.link(path, self.directory / path.name)
            self.arrivals.append(time.time())


def file_ends(batches: Sequence[Batch], sizes: Sequence[int]) -> list[float]:
    """When each file's rows were computed: files are taken in order, one or more a batch."""
    ends: list[float] = []
    seen = 0
    for batch in batches:
        seen += batch.rows
        while len(ends) < len(sizes) and sum(sizes[: len(ends) + 1]) <= seen:
            ends.append(batch.end)
    return ends


def committed_at(reports: Sequence[CheckpointReport]) -> Callable[[float], float | None]:
    """When what was computed at some moment is visible: with the first epoch whose barrier came later. None if no
    epoch did."""
    spans = [(one.started / 1e6, one.finished / 1e6) for one in reports if one.finished is not None]

    def find(computed: float) -> float | None:
        return next((finished for started, finished in spans if started >= computed), None)

    return find
