"""Tumbling windows: Epochal beside plain Structured Streaming, the same query on the same input.

Count and sum per key in 10 s windows, appended to Parquet on an S3 server on this machine. Each side runs in a fresh
process, one after the other, in turns; the results are compared row by row.

    make bench-windows
    python -m benchmarks.windows --quick
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import s3a
from benchmarks.report import conditions, conditions_line, table, write_json, write_page
from benchmarks.window_sides import SideResult, SideTask
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Server

KEYS = 200_000
SECONDS_PER_FILE = 5
BEGIN = 1_700_000_000_000_000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    kind: str
    conf: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    side: str
    round: int
    rows: int
    requests: dict[str, int]
    result: SideResult

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.result.seconds

    @property
    def cpu_per_million(self) -> float:
        return self.result.cpu / self.rows * 1e6


def generate(directory: Path, files: int, rows: int) -> None:
    """Event time goes on by some seconds a file, and rows are up to a second out of order."""
    random = np.random.default_rng(7)
    for number in range(files):
        times = (
            BEGIN + number * SECONDS_PER_FILE * 1_000_000 + np.sort(random.integers(0, SECONDS_PER_FILE * 10**6, rows))
        )
        times += random.integers(-1_000_000, 1, rows)
        columns = {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "key": random.integers(0, KEYS, rows),
            "value": random.integers(0, 1000, rows),
        }
        pq.write_table(pa.table(columns), directory / f"{number:05d}.parquet")
        # The file source takes files in the order of their times.
        os.utime(directory / f"{number:05d}.parquet", (1_700_000_000 + number,) * 2)


def sides(partitions: list[int]) -> list[Side]:
    rocksdb = {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    }
    found = [Side("Epochal", "epochal", {})]
    for count in partitions:
        conf = rocksdb | {"spark.sql.shuffle.partitions": str(count)}
        found.append(Side(f"Structured Streaming, {count} partitions", "structured", conf))
    return found


class Bench:
    def __init__(self, console: Console, directory: Path, server: S3Server, arguments: argparse.Namespace) -> None:
        self._console = console
        self._directory = directory
        self._server = server
        self._arguments = arguments
        self._input = directory / "input"
        self._numbers = 0

    def run(self, side: Side, number: int) -> tuple[Measured, str]:
        """Run one side once. Returns where its results are, as a pattern of files."""
        arguments = self._arguments
        self._numbers += 1
        bucket = f"bench-{self._numbers}"
        self._server.make_bucket(bucket)
        work = self._directory / bucket
        work.mkdir()
        with CountingProxy(self._server.endpoint, delay=arguments.delay / 2000) as proxy:
            scheme, conf = "s3", {}
            if side.kind == "structured":
                scheme, conf = "s3a", s3a.settings(self._server, proxy.endpoint) if arguments.checkpoint == "s3" else {}
            local = arguments.checkpoint == "local"
            root = work.as_uri() if local else f"{scheme}://{bucket}"
            task = SideTask(
                side=side.kind,
                input=str(self._input),
                store=f"{root}/checkpoints",
                output=f"{root}/out",
                work=str(work),
                endpoint=None if local else proxy.endpoint,
                region=None if local else self._server.region,
                interval=arguments.interval,
                conf=side.conf | conf,
            )
            (work / "task.json").write_text(json.dumps(asdict(task)))
            result = self._in_process(side, work)
            counts = Counter(proxy.counts)
        measured = Measured(
            side=side.name,
            round=number,
            rows=arguments.files * arguments.rows,
            requests=dict(counts),
            result=result,
        )
        where = work if local else self._server.data_dir / bucket
        return measured, f"{where}/out/*.parquet"

    def _in_process(self, side: Side, work: Path) -> SideResult:
        env = os.environ | {
            "AWS_ACCESS_KEY_ID": self._server.access_key,
            "AWS_SECRET_ACCESS_KEY": self._server.secret_key,
            "AWS_REGION": self._server.region,
        }
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        log = work / "log"
        found: SideResult | None = None
        with log.open("w") as errors, Progress(*columns, console=self._console, transient=True) as bars:
            bar = bars.add_task(side.name, total=self._arguments.files)
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.window_sides", str(work / "task.json")],
                stdout=subprocess.PIPE, stderr=errors, env=env, text=True, start_new_session=True,
            )  # fmt: skip
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if line.startswith("BATCHES "):
                        bars.update(bar, completed=int(line.split()[1]))
                    elif line.startswith("RESULT "):
                        found = SideResult(**json.loads(line.removeprefix("RESULT ")))
                process.wait()
            finally:
                # The JVM is in the same session, and must not go on beside the next side.
                os.killpg(process.pid, signal.SIGKILL)
        if found is None:
            raise SystemExit(f"{side.name} failed:\n{log.read_text()[-3000:]}")
        return found


def differences(ours: str, theirs: str) -> tuple[int, int]:
    """Rows compared, and rows that only one side has. Structured Streaming never closes its last windows, and a
    bounded source of Epochal does: windows that only the end of input closes are left out."""
    import duckdb

    database = duckdb.connect()
    for name, files in (("ours", ours), ("theirs", theirs)):
        select = "SELECT epoch_us(window_start) s, epoch_us(window_end) e, key, n, total"
        database.execute(f"CREATE TABLE {name} AS {select} FROM read_parquet('{files}')")
    database.execute("DELETE FROM ours WHERE e > (SELECT max(e) FROM theirs)")
    compared = database.execute("SELECT count(*) FROM theirs").fetchone()
    counted = database.execute(
        "SELECT (SELECT count(*) FROM (FROM ours EXCEPT ALL FROM theirs)) + "
        "(SELECT count(*) FROM (FROM theirs EXCEPT ALL FROM ours))"
    ).fetchone()
    assert compared is not None
    assert counted is not None
    return int(compared[0]), int(counted[0])


def _median(measured: list[Measured], get: Callable[[Measured], float]) -> float:
    return statistics.median(map(get, measured))


def rows_of(measured: list[Measured]) -> list[list[str]]:
    names = list(dict.fromkeys(one.side for one in measured))
    rows = []
    for name in names:
        of_side = [one for one in measured if one.side == name]
        requests = _median(of_side, lambda one: sum(one.requests.values()))
        rows.append(
            [
                name,
                f"{_median(of_side, lambda one: one.rows_per_second):,.0f}",
                f"{_median(of_side, lambda one: one.rows / one.result.whole):,.0f}",
                f"{_median(of_side, lambda one: one.cpu_per_million):.2f}",
                f"{_median(of_side, lambda one: one.result.peak) / 2**20:,.0f}",
                f"{requests:,.0f}",
                f"{_median(of_side, lambda one: one.result.epochs):.0f}" if of_side[0].result.epochs else "–",
            ]
        )
    return rows


HEADER = ["side", "rows/s", "rows/s until all is committed", "CPU s per 1M rows", "peak RSS MB", "requests", "epochs"]


def ratios(measured: list[Measured]) -> dict[str, float]:
    def best(get: Any) -> tuple[float, float]:
        of: dict[str, list[float]] = {}
        for one in measured:
            of.setdefault(one.side, []).append(get(one))
        medians = {side: statistics.median(values) for side, values in of.items()}
        return medians.pop("Epochal"), max(medians.values())

    speed, whole = best(lambda one: one.rows_per_second), best(lambda one: one.rows / one.result.whole)
    cpu = best(lambda one: -one.cpu_per_million)
    return {
        "rows per second": speed[0] / speed[1],
        "rows per second until all is committed": whole[0] / whole[1],
        "CPU seconds": cpu[0] / cpu[1],
    }


def page(measured: list[Measured], found: dict[str, Any], compared: int, arguments: argparse.Namespace) -> str:
    requests = {one.side: one.requests for one in measured}
    kinds = sorted({kind for counts in requests.values() for kind in counts})
    by_kind = [[side, *(f"{counts.get(kind, 0):,}" for kind in kinds)] for side, counts in requests.items()]
    lines = "\n".join(f"- {name}: **{value:.2f}**" for name, value in ratios(measured).items())
    where = "versitygw on the same machine" if arguments.checkpoint == "s3" else "local disk"
    equal = f"The results are equal: {compared:,} rows of windows, compared with DuckDB."
    return f"""# Windows: Epochal beside Structured Streaming

`make bench-windows` measures this: {arguments.files} Parquet files of {arguments.rows:,} rows on local disk, one a
micro-batch, {KEYS:,} keys; count and sum in tumbling windows of 10 s, appended as Parquet. Checkpoints and results go
to {where}, with {arguments.delay:g} ms added to a round trip. Epochal makes a checkpoint every
{arguments.interval:g} s; Structured Streaming makes one every batch, as it always does, with RocksDB, changelog
checkpoints and `FileSystemBasedCheckpointFileManager`, on s3a. (The file manager of spark-hadoop-cloud, which needs no
rename, is not published for this version of Spark.) Both get 4 GB of heap and 2 cores, each run is a fresh process;
medians of {arguments.rounds} rounds, sides in turns. Rows per second are from the first batch's start to the last
one's end.

{conditions_line(found)}

{table(HEADER, rows_of(measured))}

Epochal to the better setting of Structured Streaming:

{lines}

Requests at the server's door in the last round:

{table(["side", *kinds], by_kind)}

{equal}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="8 files of 500,000 rows, checkpoints every 3 s, 1 round")
    parser.add_argument("--files", type=int, help="input files (24)")
    parser.add_argument("--rows", type=int, help="rows a file (1,000,000)")
    parser.add_argument("--rounds", type=int, help="runs of each side (3)")
    parser.add_argument("--interval", type=float, help="seconds between Epochal's checkpoints (10)")
    parser.add_argument("--checkpoint", choices=["s3", "local"], default="s3", help="where both sides keep state")
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds added to a round trip to S3")
    parser.add_argument("--partitions", default="2,4", help="shuffle partitions to try for Structured Streaming")
    parser.add_argument("--no-page", action="store_true", help="leave docs/benchmarks as it is")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.files = arguments.files or (8 if quick else 24)
    arguments.rows = arguments.rows or (500_000 if quick else 1_000_000)
    arguments.rounds = arguments.rounds or (1 if quick else 3)
    arguments.interval = arguments.interval or (3.0 if quick else 10.0)
    console = Console(width=None if sys.stdout.isatty() else 140)
    measured: list[Measured] = []
    compared = wrong = 0
    with tempfile.TemporaryDirectory(prefix="epochal-bench-") as home, S3Server() as server:
        directory = Path(home)
        (directory / "input").mkdir()
        with console.status("writing input"):
            generate(directory / "input", arguments.files, arguments.rows)
        bench = Bench(console, directory, server, arguments)
        for number in range(arguments.rounds):
            ours = ""
            for side in sides([int(count) for count in arguments.partitions.split(",")]):
                one, files = bench.run(side, number)
                measured.append(one)
                console.print(f"round {number + 1}: {side.name}: {one.rows_per_second:,.0f} rows/s")
                if side.kind == "epochal":
                    ours = files
                else:
                    compared, different = differences(ours, files)
                    wrong += different
    for row in rows_of(measured):
        console.print("; ".join(f"{name} {value}" for name, value in zip(HEADER, row, strict=True)))
    for name, value in ratios(measured).items():
        console.print(f"Epochal : Structured Streaming, {name}: {value:.2f}")
    found = conditions(versitygw="1.8.0", rounds=arguments.rounds)
    document = {"conditions": found, "arguments": vars(arguments), "ratios": ratios(measured), "different_rows": wrong}
    write_json("windows", document | {"measured": [asdict(one) for one in measured]})
    console.print(f"{compared:,} rows compared, {wrong} differ")
    if not quick and not arguments.no_page:
        write_page("windows", page(measured, found, compared, arguments))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
