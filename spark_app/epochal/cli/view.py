"""What a person sees of a running job: a live picture in a terminal, plain lines everywhere else."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from epochal.control.durations import format_duration
from epochal.control.events import late_message
from epochal.control.job import JobSpec
from epochal.control.lifecycle import JobPhase, LifeReason
from epochal.control.reconcile import Tick
from epochal.protocol.control import CheckpointReport, CheckpointState, DriverStatus, SourceReport
from epochal.protocol.decision import Reason

_QUIET = {
    Reason.NOT_DUE,
    Reason.MIN_PAUSE,
    Reason.CHECKPOINT_IN_PROGRESS,
    Reason.DRIVER_NOT_READY,
    Reason.CLEANUP_RUNNING,
    Reason.CHECKPOINT_DUE,
    Reason.FIRST_CHECKPOINT_DUE,
    Reason.CHECKPOINT_COMPLETED,
    LifeReason.BACKING_OFF,
    LifeReason.DRIVER_LEAVING,
}
"""Said by each tick while something lasts, or said better by the checkpoint's own line."""

_STYLES = {
    JobPhase.RUNNING: "bold green",
    JobPhase.FINISHED: "bold green",
    JobPhase.FAILED: "bold red",
    JobPhase.WAITING: "bold red",
    JobPhase.RESTARTING: "bold yellow",
}
_STATES = {
    CheckpointState.READY: "green",
    CheckpointState.FAILED: "red",
    CheckpointState.IN_PROGRESS: "cyan",
    CheckpointState.COMMITTING: "cyan",
}


def size(count: int) -> str:
    """Bytes for people."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def seconds_of(report: CheckpointReport, now: float) -> float:
    end = report.finished if report.finished is not None else int(now * 1_000_000)
    return max(0.0, (end - report.started) / 1_000_000)


def report_line(report: CheckpointReport, now: float) -> str:
    took = format_duration(seconds_of(report, now))
    if report.state is CheckpointState.FAILED:
        return f"Epoch {report.epoch} failed after {took}: {report.message}"
    operators = f", {len(report.operators)} operators" if report.operators else ""
    stop = ", then stop" if report.then_stop else ""
    return f"Epoch {report.epoch} completed in {took}, {size(report.bytes)}{operators}{stop}"


def source_line(source: SourceReport) -> str:
    lag = f", lag {format_duration(source.lag)}" if source.lag is not None else ""
    how = " (finished)" if source.finished else " (idle)" if source.idle else ""
    return f"{source.name}: {source.rows:,} rows, {source.rows_per_second:,.0f} rows/s{lag}{how}"


@dataclass
class _Talker:
    """Turns ticks into lines, each said once."""

    last: tuple[str, str] | None = None
    late: int = 0

    def late_line(self, tick: Tick) -> str | None:
        """When rows begin to come too late, and each time there are twice as many."""
        rows = tick.step.job.late.total
        before, self.late = self.late, rows
        return late_message(rows) if rows > before else None

    def line(self, tick: Tick) -> str | None:
        step = tick.step
        said = (str(step.reason), step.message)
        if step.reason in _QUIET or said == self.last or not step.message:
            return None
        self.last = said
        return step.message[0].upper() + step.message[1:]


class PlainView:
    """One line for each thing that happens, and now and then how the sources do."""

    def __init__(self, clock: Callable[[], float] = time.time, every: float = 10.0) -> None:
        self._clock = clock
        self._every = every
        self._next = clock() + every
        self._talker = _Talker()

    def show(self, tick: Tick, spec: JobSpec) -> None:  # noqa: ARG002
        for line in (self._talker.line(tick), self._talker.late_line(tick)):
            if line:
                self.note(line)
        if tick.status and self._clock() >= self._next:
            self._next = self._clock() + self._every
            for source in tick.status.sources:
                self.note(source_line(source))
            if tick.status.late_rows:
                self.note(f"late: {tick.status.late_rows:,} rows came too late")

    def ended(self, report: CheckpointReport) -> None:
        self.note(report_line(report, self._clock()))

    def note(self, message: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S', time.localtime(self._clock()))} {message}")


class LiveView:
    """A picture of the job that is drawn anew with every tick."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._begun = clock()
        self._talker = _Talker()
        self._events: deque[str] = deque(maxlen=6)
        self._reports: deque[CheckpointReport] = deque(maxlen=8)
        self._last: DriverStatus | None = None
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, tick: Tick, spec: JobSpec) -> None:
        for line in (self._talker.line(tick), self._talker.late_line(tick)):
            if line:
                self.note(line)
        self._last = tick.status or self._last
        self._live.update(self.picture(tick, spec), refresh=True)

    def ended(self, report: CheckpointReport) -> None:
        self._reports.append(report)

    def note(self, message: str) -> None:
        self._events.append(f"{time.strftime('%H:%M:%S', time.localtime(self._clock()))} {message}")

    def picture(self, tick: Tick, spec: JobSpec) -> Panel:
        job = tick.step.job
        title = Text.assemble((f"{spec.namespace}/{spec.name} ", "bold"), (job.phase, _STYLES.get(job.phase, "bold")))
        facts = Text(
            f"generation {job.checkpoints.generation}   epoch {job.checkpoints.newest_completed}   "
            f"restarts {job.restarts.total}   running {format_duration(self._clock() - self._begun)}   "
            f"interval {format_duration(spec.checkpoint.interval)}",
            style="dim",
        )
        parts: list[Text | Table] = [facts, self._epochs(tick)]
        if self._last is not None:
            parts.append(self._flows(self._last))
        parts.append(Text("\n".join(self._events), style="dim"))
        return Panel(Group(*parts), title=title, title_align="left", border_style="dim")

    def _epochs(self, tick: Tick) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold dim")
        for name, justify in (("epoch", "right"), ("state", "left"), ("took", "right"), ("size", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        table.add_column("operators", justify="left")
        shown = [*self._reports]
        current = tick.seen.report
        if current and current.finished is None and all(report.epoch != current.epoch for report in shown):
            shown.append(current)
        for report in shown:
            done, total = report.operators_done, len(report.operators)
            table.add_row(
                str(report.epoch),
                Text(report.state, style=_STATES[report.state]),
                format_duration(seconds_of(report, self._clock())),
                size(report.bytes),
                Text("█" * done + "░" * (total - done) + f" {done}/{total}") if total <= 20 else f"{done}/{total}",
            )
        return table

    def _flows(self, status: DriverStatus) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold dim")
        table.add_column("source or sink")
        for name in ("rows", "rows/s", "batch", "lag"):
            table.add_column(name, justify="right")
        for source in status.sources:
            table.add_row(
                source.name + (" (finished)" if source.finished else ""),
                f"{source.rows:,}",
                f"{source.rows_per_second:,.0f}",
                format_duration(source.batch_seconds),
                format_duration(source.lag) if source.lag is not None else "",
            )
        for sink in status.sinks:
            table.add_row(sink.name, f"{sink.rows_committed:,} committed", "", "", "")
        if status.late_rows:
            table.add_row(Text("late", style="bold red"), Text(f"{status.late_rows:,} late", style="bold red"))
        return table
