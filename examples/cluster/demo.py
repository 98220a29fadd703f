"""``make cluster-demo``: a job on the cluster, and everything it needs killed under it; its output must be the computed
one.

Installs the operator by its chart, applies `job.yaml`, and shows conditions and epochs while the driver's pod, an
executor and the operator are killed and the job is suspended and resumed. Ends by itself and takes the job with it.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from epochal_operator.names import Role
from examples.cluster.expected import WrongOutputError
from examples.cluster.live_job import RELEASE_NAMESPACE, Cluster, LiveJob, TooLateError

NAMESPACE = "epochal-demo"
LONGEST = 600.0
"""Seconds for one step, on a machine that is busy with other things."""

LEAST_WINDOWS = 3
"""So many must be out before they are compared: on a slow machine that takes a while."""

console = Console(soft_wrap=True)


class View:
    """Conditions and epochs, live on a terminal and line by line elsewhere."""

    def __init__(self, job: LiveJob) -> None:
        self.job = job
        self.began = time.monotonic()
        self._last = ""

    def until(self, what: str, reached: Callable[[dict[str, Any]], object]) -> float:
        """Show the job until its status is so; return the seconds that it took."""
        began = time.monotonic()
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            while True:
                status = self.job.status
                if console.is_terminal:
                    live.update(self._table(what, status))
                else:
                    self._line(status)
                if reached(status):
                    break
                if time.monotonic() - began > LONGEST:
                    raise TooLateError(f"waited {LONGEST:.0f} s for {what}")
                time.sleep(0.3)
        took = time.monotonic() - began
        console.print(f"[green]✓[/] {what}: {took:.1f} s", highlight=False)
        return took

    def _table(self, what: str, status: dict[str, Any]) -> Table:
        table = Table(title=f"{self.job.prefix}: waiting for {what}", title_justify="left")
        for column in ("condition", "status", "reason", "message"):
            table.add_column(column, overflow="fold")
        for condition in status.get("conditions", []):
            table.add_row(*(str(condition[key]) for key in ("type", "status", "reason", "message")))
        flight = status.get("inFlight") or {}
        newest = f"epoch {status.get('epoch', 0)}" + (f", {flight['epoch']} in flight" if flight else "")
        table.caption = f"{status.get('phase', '')}, generation {status.get('generation', 0)}, {newest}"
        return table

    def _line(self, status: dict[str, Any]) -> None:
        line = (
            f"{status.get('phase', 'new'):<10} generation {status.get('generation', 0)}"
            f"  epoch {status.get('epoch', 0)}  kept from {status.get('minEpoch', 1)}"
        )
        if line != self._last:
            console.print(f"{time.monotonic() - self.began:7.1f} s  {line}", highlight=False)
            self._last = line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the job running at the end")
    keep = parser.parse_args().keep
    cluster = Cluster()
    say("helm install: the operator")
    cluster.install_operator()
    cluster.make_namespace(NAMESPACE)
    job = LiveJob(cluster, NAMESPACE, f"orders-{int(time.time()) % 100_000}")
    try:
        windows = demonstrate(job, View(job))
    except (WrongOutputError, TooLateError) as error:
        console.print(f"[red]✗[/] {error}")
        return 1
    console.print(f"[green]✓[/] {windows} windows are out, each once, and each as computed: no order lost, none twice")
    if not keep:
        say("delete: a last checkpoint, then nothing is left in the cluster; the epochs stay in the store")
        job.delete()
    return 0


def demonstrate(job: LiveJob, view: View) -> int:
    """Disturb the job in every way, and compare what came out in the end."""
    say(f"kubectl apply: job {job.prefix}")
    job.apply()
    view.until("Ready", lambda status: status.get("phase") == "Running")
    view.until("the first epoch", epochs(1))
    view.until("two more epochs", epochs(job.epoch + 2))

    say(f"kill the driver's pod, {job.driver}")
    generation = job.generation
    job.kubectl("delete", "pod", job.driver, "--grace-period=0", "--force")
    view.until("the next generation", runs(generation + 1))
    view.until("an epoch of it", epochs(job.epoch + 1))

    executor = job.pods(Role.EXECUTOR)[0]["metadata"]["name"]
    say(f"kill an executor, {executor}")
    generation = job.generation
    job.kubectl("delete", "pod", executor, "--grace-period=0", "--force")
    # It was the only one, so the state of the newest epoch is read again by a new driver.
    view.until("the next generation", runs(generation + 1))
    view.until("an epoch of it", epochs(job.epoch + 1))

    say("kill the operator")
    job.cluster.kubectl("delete", "pods", f"--namespace={RELEASE_NAMESPACE}", "--all", "--grace-period=0", "--force")
    view.until("two epochs by the next one", epochs(job.epoch + 2))

    say("suspend: a last checkpoint")
    job.suspend()
    view.until("Stopped", lambda status: status.get("phase") == "Stopped")
    say("resume")
    generation = job.generation
    job.resume()
    view.until("the next generation", runs(generation + 1))
    view.until("two more epochs", epochs(job.epoch + 2))
    view.until(f"{LEAST_WINDOWS} windows", lambda _: job.check_output() >= LEAST_WINDOWS)
    job.suspend()
    view.until("Stopped", lambda status: status.get("phase") == "Stopped")
    return job.check_output()


def epochs(wanted: int) -> Callable[[dict[str, Any]], object]:
    return lambda status: status.get("epoch", 0) >= wanted


def runs(generation: int) -> Callable[[dict[str, Any]], object]:
    return lambda status: status.get("generation", 0) >= generation and status.get("phase") == "Running"


def say(text: str) -> None:
    console.print(f"\n[bold]{text}[/]", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
