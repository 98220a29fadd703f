"""``make demo``: the revenue job undisturbed, then with its driver killed in the middle; the results must be equal.

Ends by itself, and leaves a picture of every checkpoint: who aligned, froze, wrote and committed when.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
from rich.console import Console
from rich.table import Table

from epochal.cli.local import JobDirectory
from epochal.cli.timeline import write_timeline
from epochal.protocol.control import CheckpointState

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from generate import generate

console = Console()
KILL_AFTER_EPOCHS = 2
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the JVM: each of the three lives for half a minute, in which compiling for speed takes longer than it saves."""


@dataclass(frozen=True)
class Run:
    """One run of the job in a directory of its own."""

    directory: Path

    @property
    def output(self) -> Path:
        return self.directory / "output"

    @property
    def job(self) -> JobDirectory:
        return JobDirectory(self.directory / "state", "examples", "revenue")

    def start(self, input_directory: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable, "-m", "epochal.cli", "run", str(HERE / "job.yaml"),
                "--state-dir", str(self.directory / "state"),
                "--set", f"input={input_directory}",
                "--set", f"output={self.output}",
            ],
            env={"SPARK_SUBMIT_OPTS": SHORT_LIVED, **os.environ},
        )  # fmt: skip

    def completed(self) -> int:
        return sum(report.state is CheckpointState.READY for report in self.job.reports())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("build/demo"), help="where everything goes")
    parser.add_argument("--files", type=int, default=24, help="input files of each kind")
    given = parser.parse_args()
    directory = given.directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    began = time.monotonic()

    console.rule("1  Orders and payments")
    generate(directory / "input", files=given.files, rows=2000)
    console.print(f"{given.files * 2000:,} orders in {given.files} files, covering {given.files // 4} minutes")

    console.rule("2  The job, undisturbed")
    undisturbed = Run(directory / "undisturbed")
    if undisturbed.start(directory / "input").wait() != 0:
        return _failed("the undisturbed run failed")

    console.rule(f"3  The same job, its driver killed with -9 after {KILL_AFTER_EPOCHS} epochs")
    killed = Run(directory / "killed")
    process = killed.start(directory / "input")
    if not _kill_driver(killed, process):
        return _failed("the job ended before its driver could be killed")
    if process.wait() != 0:
        return _failed("the job did not recover")

    console.rule("4  The same result?")
    equal = _compare(undisturbed, killed)
    picture = directory / "timeline.svg"
    write_timeline(killed.job.reports(), picture)
    console.print(f"Timeline of the checkpoints, the killed one's neighbours included: [bold]{picture}[/bold]")
    store = (killed.directory / "state" / "store").as_uri()
    console.print(f"Look into the state of any epoch: [bold].venv/bin/epochal inspect {store}[/bold]")
    console.print(f"{time.monotonic() - began:.0f} s in all")
    return 0 if equal else _failed("the results differ")


def _kill_driver(run: Run, process: subprocess.Popen[bytes]) -> bool:
    """Wait for some epochs, then kill the driver of the newest generation, Spark and all."""
    while process.poll() is None and run.completed() < KILL_AFTER_EPOCHS:
        time.sleep(0.1)
    time.sleep(1.5)  # into the work after that epoch: this is what has to be done again
    if process.poll() is not None:
        return False
    generation = run.job.generations()[-1]
    pid = int((run.job.driver(generation) / "pid").read_text())
    # The driver is a session of its own: its shell, Python, Java and workers go at once.
    os.killpg(pid, signal.SIGKILL)
    console.print(f"[bold red]Killed the driver of generation {generation} with SIGKILL[/bold red]")
    return True


def _compare(undisturbed: Run, killed: Run) -> bool:
    def rows(run: Run) -> list[tuple[object, ...]]:
        files = str(run.output / "*.parquet")
        query = "SELECT window_start, country, orders, revenue, largest FROM read_parquet(?) ORDER BY ALL"
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return connection.execute(query, [files]).fetchall()

    expected, found = rows(undisturbed), rows(killed)
    table = Table("minute", "country", "orders", "revenue", "largest", title="Revenue (first rows)")
    for minute, *rest in found[:10]:
        table.add_row(f"{minute:%H:%M}", *map(str, rest))
    console.print(table)
    if expected != found:
        console.print(f"[red]{len(set(expected) ^ set(found))} rows differ[/red]")
        return False
    console.print(f"[bold green]Equal: {len(found)} rows, none lost, none doubled[/bold green]")
    return True


def _failed(why: str) -> int:
    console.print(f"[bold red]{why}[/bold red]: the logs are below build/demo/*/state/examples/revenue/drivers")
    return 1


if __name__ == "__main__":
    sys.exit(main())
