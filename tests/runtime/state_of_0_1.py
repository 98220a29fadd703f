"""A job whose state was written by release 0.1.0, to be restored by every later one.

The archive beside this file holds its store and its output as that release left them: two epochs, the output of the
second not committed, and then a crash. It was made in a worktree of commit 7e85af6, by

    python state_of_0_1.py state_of_0_1.tar.xz

with that worktree in ``PYTHONPATH``. So this module uses only what was there then, and neither the job nor its rows may
change.
"""

import os
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from epochal import KeyContext, Pipeline, Stream, Timer, list_state, map_state, value_state
from epochal.driver import PARTITIONS, SPARK_DEFAULTS
from epochal.runtime.dataflow.two_phase_sink import BoundSink
from epochal.sql.build import build_sql
from tests.runtime.streaming import FedJob, Rows, at

ARCHIVE = Path(__file__).with_suffix(".tar.xz")
LEFT, RIGHT = "id long, k string, v long, f double, at timestamp", "rid long, k string, seen timestamp"
DELAY = 5
CUTS = (0, 12, 18, 40)
"""The first epoch ends before row 12, the second before row 18, the rows before 40 are for a later release."""

SQL = """
CREATE TABLE orders (id BIGINT, k STRING, v BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECOND)
  WITH ('connector' = 'files', 'path' = '${nothing}');
CREATE TABLE sql_totals WITH ('connector' = 'parquet', 'path' = '${out}/sql_totals');
CREATE TABLE sql_windows WITH ('connector' = 'parquet', 'path' = '${out}/sql_windows');
INSERT INTO sql_totals SELECT upper(k) AS k, count(*) AS n, sum(v + 1) AS total, avg(v) AS mean FROM orders
  GROUP BY upper(k);
INSERT INTO sql_windows SELECT window_start, k, max(v) - min(v) AS spread, count(*) FILTER (WHERE v > 2) AS many
  FROM TABLE(HOP(TABLE orders, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
  GROUP BY window_start, window_end, k;
"""


def seen_so_far(key: tuple[Any, ...], rows: pa.Table, ctx: KeyContext) -> Iterator[dict[str, Any]]:
    count, values, sizes = ctx.value("n"), ctx.map("values"), ctx.list("sizes")
    count.update(count.get(0) + rows.num_rows)
    for value in rows["v"].to_pylist():
        values[value] = values.get(value, 0) + 1
    sizes.append(rows.num_rows)
    ctx.register_timer(max(rows["at"].to_pylist()))
    yield {"k": key[0], "n": count.get(), "told": f"{sorted(values.items())} {list(sizes)}"}


def timer(key: tuple[Any, ...], timer: Timer, ctx: KeyContext) -> Iterator[dict[str, Any]]:
    yield {"k": key[0], "n": timer.at.second, "told": "timer"}


def build(p: Pipeline, job: FedJob) -> None:
    """Every operator that keeps state."""

    def written(name: str, stream: Stream) -> None:
        stream.to_parquet(name, str(job.directory / "out" / name))

    left = job.source(p, "left", LEFT, event_time="at", delay=DELAY)
    right = job.source(p, "right", RIGHT, event_time="seen", delay=DELAY)
    price = F.col("v").cast(DecimalType(10, 2))
    counts = {"n": F.count("*"), "total": F.sum("v"), "mean": F.avg("v")}
    windows = left.window("counts", size=10, keys=["k"], aggregates={**counts, "price": F.sum(price)})
    written("windows", windows)
    written("top", windows.top_n("best", n=1, order_by=[F.col("total").desc(), F.col("k")]))
    written("whole_rows", left.window("rows", size=10, slide=4, aggregates={"middle": F.percentile("v", 0.5)}))
    written("sessions", left.session_window("sittings", gap=4, keys=["k"], aggregates=counts))
    written("full", left.join("full_join", right, keys=["k"], within=4, how="full"))
    written("same", left.window_join("same_window", right, size=10, keys=["k"], how="left"))
    written("once", left.deduplicate("dedup", keys=["k", "v"], within=20))
    written("totals", left.aggregate("sums", keys=["f"], aggregates=counts))
    written("spreads", left.aggregate("spread", keys=["k"], aggregates={"sd": F.stddev("v"), "f": F.min("f")}))
    changes = left.aggregate("changes", keys=["k"], aggregates={"n": F.count("*")}, retractions=True)
    written("of_changes", changes.aggregate("changed", keys=["n"], aggregates={"keys": F.count("*")}))
    written("running", left.running_top_n("running_best", n=2, order_by=[F.col("v").desc(), F.col("id")], keys=["k"]))
    states = {"n": value_state("long"), "values": map_state("long", "long"), "sizes": list_state("long")}
    function = left.apply_in_arrow(
        "function", seen_so_far, keys=["k"], schema="k string, n long, told string", state=states, on_timer=timer
    )
    written("functions", function)
    p.parameters.update(out=str(job.directory / "out"), nothing=str(job.directory / "nothing"))
    build_sql(p, SQL)


def rows(part: int) -> dict[str, Rows]:
    numbers = range(CUTS[part], CUTS[part + 1])
    left: Rows = [(one, "ab"[one % 2], one % 7, (0.0, -0.0, float("nan"))[one % 3], at(one)) for one in numbers]
    right: Rows = [(one, "ab"[one // 2 % 2], at(one)) for one in numbers if one % 2 == 0]
    return {"left": left, "right": right, "orders": [(one, k, v, time) for one, k, v, _, time in left]}


def feed(job: FedJob, part: int) -> None:
    for source, batch in rows(part).items():
        job.feed(source, batch)


def written_by(job: FedJob) -> dict[str, Counter[tuple[str, ...]]]:
    """By sink, the rows of its files."""
    return {
        directory.name: Counter(
            tuple(map(_told, row.values()))
            for file in directory.glob("*.parquet")
            for row in pq.read_table(file).to_pylist()
        )
        for directory in (job.directory / "out").iterdir()
    }


def _told(value: Any) -> str:
    """Zero and minus zero are one key: which of them comes out is not said."""
    return repr(value + 0.0 if isinstance(value, float) else value)


def _main(archive: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    for key, value in (SPARK_DEFAULTS | {PARTITIONS: "2"}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as directory:
        job = FedJob(spark, build, Path(directory))
        job.start()
        feed(job, 0)
        job.checkpoint()
        feed(job, 1)
        assert job.engine is not None
        for task in job.engine._tasks.values():
            if isinstance(task.operator, BoundSink):
                vars(task.operator.sink)["commit"] = None
        super(FedJob, job).checkpoint(wait=False)
        job.wait(lambda: job.engine is not None and job.engine.exit_code is not None, "the driver to fail")
        with tarfile.open(archive, "w:xz") as tar:
            for name in ("store", "out"):
                tar.add(Path(directory) / name, name)
        os._exit(0)


if __name__ == "__main__":
    _main(sys.argv[1])
