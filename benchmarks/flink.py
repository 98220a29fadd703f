"""Epochal beside Flink: the Nexmark queries whose results only ever grow, on the same events.

Both read all events from local disk, keep checkpoints there, every 10 s, and write Parquet; each query runs twice in
one process, and the second run counts. Flink has its own virtual environment below the cache, which the first run
installs (PyFlink and a jar, 1 GB).

    make bench-flink
    python -m benchmarks.flink --only q0 --scale 0.01
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress

from benchmarks.inputs import Input, nexmark_input
from benchmarks.processes import cpu_seconds
from benchmarks.report import PAGES, conditions, conditions_line, table, write_json, write_page
from benchmarks.same_results import differences
from benchmarks.session import spark_session
from benchmarks.sides import EPOCHAL, Task, run_workload
from benchmarks.workloads import nexmark_query
from cluster.gobuild import cache_dir
from tests.support.kafka.jars import jars

VERSION = "2.3.0"
JARS = Path(__file__).parent / "flink_jars"
QUERIES = ["q0", "q1", "q2", "q3", "q7", "q8", "q20", "q21", "q22"]
FILES, ROWS, ROUNDS, INTERVAL = 12, 250_000, 2, 10.0


def ensure_flink() -> Path:
    """A Python that has PyFlink. It wants other versions of libraries than Spark does, so it has its own."""
    home = cache_dir() / f"flink-{VERSION}"
    python = home / "bin" / "python"
    if not (home / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"apache-flink=={VERSION}"], check=True, timeout=3600)
        (home / ".ready").touch()
    return python


def flatten(source: Path, target: Path) -> None:
    """The events as flat columns in two files, every other row in each: Flink reads a file by one thread, and takes
    files in any order, so that rows of many files would be late."""
    files = [pq.read_table(path) for path in sorted(source.glob("*.parquet"))]
    nested = pa.concat_tables(files)
    columns = {"event_type": nested["event_type"], "dateTime": nested["dateTime"]}
    for kind in ("person", "auction", "bid"):
        whole = nested[kind].combine_chunks()
        for field in whole.type:
            columns[f"{kind}_{field.name}"] = pc.struct_field(whole, field.name)
    flat = pa.table(columns)
    target.mkdir()
    for number in range(2):
        half = flat.take(pa.array(range(number, flat.num_rows, 2)))
        pq.write_table(half, target / f"{number}.parquet", use_deprecated_int96_timestamps=True)


def run_flink(home: Path, queries: list[str]) -> dict[str, list[dict[str, float]]]:
    python = ensure_flink()
    # Flink's Parquet needs Hadoop's classes, and Spark has them.
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    work = home / "flink"
    work.mkdir()
    spec = {
        "jars": [str(path) for path in [*jars(JARS), *hadoop]],
        "input": str(home / "flat"),
        "work": str(work),
        "queries": queries,
        "rounds": ROUNDS,
        "interval": INTERVAL,
    }
    (home / "spec.json").write_text(json.dumps(spec))
    # Of the project only what needs nothing is imported; the heap is as large as Spark's.
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "JVM_ARGS": "-Xmx4g"}
    command = [str(python), "-m", "benchmarks.flink_side", str(home / "spec.json")]
    with (home / "flink.log").open("w") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, check=False)
    answer = next((line for line in done.stdout.splitlines() if line.startswith("ANSWER ")), None)
    if answer is None:
        raise SystemExit(f"Flink failed:\n{(home / 'flink.log').read_text()[-4000:]}")
    found: dict[str, list[dict[str, float]]] = json.loads(answer.removeprefix("ANSWER "))
    return found


def run_epochal(spark: SparkSession, home: Path, name: str, events: Input, number: int) -> dict[str, float]:
    work = home / "epochal" / name / f"round{number}"
    (work / "out").mkdir(parents=True)
    task = Task(
        workload="", quick=False, scale=1.0, input=str(home / events.name), store=(work / "store").as_uri(),
        output=(work / "out").as_uri(), work=str(work), endpoint=None, region=None, interval=INTERVAL,
    )  # fmt: skip
    before = cpu_seconds(os.getpid())
    took = run_workload(spark, EPOCHAL, nexmark_query(name, events, (None,)), task)
    return {"seconds": took.committed - took.begin, "cpu": cpu_seconds(os.getpid()) - before}


def faster(one: dict[str, Any]) -> float:
    """How many times as long as Epochal Flink took."""
    ratio: float = one["flink"]["seconds"] / one["epochal"]["seconds"]
    return ratio


def page(found: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    header = ["query", "rows compared", "Epochal, s", "Flink, s", "Flink : Epochal", "Epochal, CPU s", "Flink, CPU s"]
    rows = [
        [
            one["query"],
            f"{one['compared']:,}",
            *(f"{value:.2f}" for value in (one["epochal"]["seconds"], one["flink"]["seconds"])),
            f"{faster(one):.2f}",
            *(f"{value:.1f}" for value in (one["epochal"]["cpu"], one["flink"]["cpu"])),
        ]
        for one in found
    ]
    lost = [f"{one['query']} ({faster(one):.2f})" for one in found if faster(one) < 1]
    mean = statistics.geometric_mean(faster(one) for one in found)
    said = f"Epochal is slower in {', '.join(lost)}" if lost else "Epochal is slower in none of them"
    return f"""# Epochal beside Flink

`make bench-flink` measures this: {FILES * ROWS:,} Nexmark events from Parquet files on local disk, through each query,
to Parquet files, until all is committed; checkpoints every {INTERVAL:g} s to local disk, 2 cores, heaps of 4 GB. Flink
is {VERSION}, run through PyFlink in one process, with its tables in SQL (nothing is computed in Python) and state in
memory (`hashmap`). Each query ran twice; the second run counts. The results were compared row by row, and are equal.

Epochal reads {FILES} files, one a micro-batch. Flink reads the same events as flat columns from two files, because it
reads a file by one thread and takes files in any order. Not there: queries whose results change (4, 6, 15 to 19), which
Flink cannot write to files, 11, whose sessions Flink cuts to milliseconds, and those that only repeat another kind.

{conditions_line(facts)}

{table(header, rows)}

{said}; the geometric mean of all is {mean:.2f}.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", choices=QUERIES, action="append", help="one query only (may be given again)")
    parser.add_argument("--scale", type=float, default=1.0, help="rows of each file, to try things out (1)")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    queries = arguments.only or QUERIES
    events = nexmark_input((max(int(ROWS * arguments.scale), 50),) * FILES, load=0)
    found: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="epochal-bench-") as directory,
        Progress(console=console, transient=True) as bars,
    ):
        home = Path(directory)
        bar = bars.add_task("Flink", total=len(queries) + 1)
        spark = spark_session("bench-flink")
        events.write(spark, home / events.name, events)
        flatten(home / events.name, home / "flat")
        theirs = run_flink(home, queries)
        for name in queries:
            bars.update(bar, description=name, advance=1)
            ours = [run_epochal(spark, home, name, events, number) for number in range(ROUNDS)]
            last = f"round{ROUNDS - 1}"
            workload = nexmark_query(name, events, (None,))
            files = f"{home}/epochal/{name}/{last}/out/*.parquet", f"{home}/flink/{name}/{last}/*"
            compared, different = differences(workload, *files)
            found.append(
                {
                    "query": name,
                    "compared": compared,
                    "different": different,
                    "epochal": ours[-1],
                    "flink": theirs[name][-1],
                }
            )
            write_json("flink", {"conditions": conditions(), "queries": found})
        spark.stop()
    text = page(found, conditions())
    console.print(text, markup=False)
    wrong = [one["query"] for one in found if one["different"] or not one["compared"]]
    if wrong:
        console.print(f"[red]results differ: {', '.join(wrong)}[/red]")
    elif arguments.scale == 1.0 and not arguments.only:
        write_page("flink", text)
        write_json("flink", {"conditions": conditions(), "queries": found}, directory=PAGES)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
