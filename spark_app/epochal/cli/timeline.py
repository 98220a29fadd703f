"""A picture of checkpoints: for each epoch and operator, when it aligned, froze its state, wrote it and committed.

The SVG is written by hand: it needs no drawing library, and any browser shows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from epochal.cli.view import seconds_of, size
from epochal.control.durations import format_duration
from epochal.protocol.control import SPANS, CheckpointReport, CheckpointState, OperatorReport

WIDTH = 1080
MARGIN = 24
LABELS = 190
"""Left of the bars, for the operators' names."""
NOTES = 150
"""Right of the bars, for what an operator wrote."""
ROW = 22
BAR = 12

_COLOURS = {"alignment": "#e9b44c", "sync": "#d1495b", "async": "#3d7ea6", "committing": "#4f9d69"}
_STATE_COLOURS = {
    CheckpointState.READY: "#4f9d69",
    CheckpointState.FAILED: "#c0392b",
    CheckpointState.IN_PROGRESS: "#7a7a7a",
    CheckpointState.COMMITTING: "#7a7a7a",
}
_STYLE = """
  text { font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; font-size: 12px; fill: #333 }
  .title { font-size: 18px; font-weight: 600; fill: #1b1b1b }
  .epoch { font-size: 13px; font-weight: 600; fill: #1b1b1b }
  .dim { fill: #777; font-size: 11px }
  .grid { stroke: #e6e6e6; stroke-width: 1 }
  .card { fill: #fff; stroke: #dcdcdc }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """``open``: the event that ends it never came; it is drawn up to where the checkpoint ended."""

    name: str
    colour: str
    begin: int
    end: int
    open: bool = False


def spans(report: CheckpointReport, operator: OperatorReport) -> list[Span]:
    """An operator's part in a checkpoint, in order."""
    found = []
    for name, (first, second) in SPANS.items():
        colour, begin = _COLOURS[name], operator.events.get(first)
        if begin is None:
            continue
        end = operator.events.get(second)
        if end is not None:
            found.append(Span(name=name, colour=colour, begin=begin, end=max(begin, end)))
        elif name != "committing" and report.finished is not None:
            # Only two-phase sinks commit: for others there is nothing to wait for.
            found.append(Span(name=name, colour=colour, begin=begin, end=max(begin, report.finished), open=True))
            break
    return found


def write_timeline(reports: Sequence[CheckpointReport], path: Path, *, title: str = "Checkpoints") -> None:
    path.write_text(draw_timeline(reports, title=title), encoding="utf-8")


def draw_timeline(reports: Sequence[CheckpointReport], *, title: str = "Checkpoints") -> str:
    """The SVG of these checkpoints: all of them along the clock, then each by itself on one common scale."""
    reports = sorted(reports, key=lambda report: report.epoch)
    drawing = _Drawing()
    drawing.text(MARGIN, MARGIN + 14, title, css="title")
    drawing.legend(MARGIN + 14)
    drawing.y = MARGIN + 40
    if not reports:
        drawing.text(MARGIN, drawing.y + 14, "No checkpoints yet")
        drawing.y += 30
        return drawing.finish()
    drawing.overview(reports)
    longest = max([0.001, *(_length(report) for report in reports)])
    for report in reports:
        drawing.epoch(report, longest)
    return drawing.finish()


def _zero(report: CheckpointReport) -> int:
    moments = [moment for operator in report.operators for moment in operator.events.values()]
    return min([report.started, *moments])


def _finish(report: CheckpointReport) -> int:
    moments = [moment for operator in report.operators for moment in operator.events.values()]
    return max([report.finished or report.started, *moments])


def _length(report: CheckpointReport) -> float:
    return (_finish(report) - _zero(report)) / 1_000_000


def ticks(longest: float, most: int = 8) -> list[float]:
    """Round values from 0 up to ``longest``."""
    step = 0.001
    while longest / step > most:
        for factor in (2, 2.5, 2):
            step *= factor
            if longest / step <= most:
                break
    return [number * step for number in range(int(longest / step) + 1)]


class _Drawing:
    """Grows downwards: ``y`` is where the next thing goes."""

    def __init__(self) -> None:
        self.y = 0.0
        self._parts: list[str] = []

    def text(self, x: float, y: float, content: str, *, css: str = "", anchor: str = "start", fill: str = "") -> None:
        extra = (f' class="{css}"' if css else "") + (f' style="fill:{fill}"' if fill else "")
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(content)}</text>')

    def rect(self, x: float, y: float, width: float, height: float, attributes: str, tooltip: str = "") -> None:
        inside = f"<title>{escape(tooltip)}</title>" if tooltip else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {attributes}>{inside}</rect>'
        )

    def line(self, x: float, top: float, bottom: float, attributes: str = 'class="grid"') -> None:
        self._parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" {attributes}/>')

    def legend(self, y: float) -> None:
        x = WIDTH - MARGIN - 100.0 * len(_COLOURS)
        for name, colour in _COLOURS.items():
            self.rect(x, y - 10, 12, 12, f'rx="2" fill="{colour}"')
            self.text(x + 18, y, name)
            x += 100

    def overview(self, reports: Sequence[CheckpointReport]) -> None:
        """All checkpoints along the clock: how regular they are, which failed, where a new generation began."""
        left, width, top = MARGIN + 14, WIDTH - 2 * MARGIN - 28, self.y
        begin, end = min(map(_zero, reports)), max(map(_finish, reports))
        scale = width / max(1, end - begin)
        self.rect(MARGIN, top, WIDTH - 2 * MARGIN, 74, 'class="card" rx="8"')
        generation = None
        for report in reports:
            x = left + (_zero(report) - begin) * scale
            if generation not in (None, report.generation):
                self.line(x - 3, top + 10, top + 46, 'stroke="#999" stroke-dasharray="3 3"')
                self.text(x, top + 18, f"generation {report.generation}", css="dim")
            generation = report.generation
            wide = max(3.0, (_finish(report) - _zero(report)) * scale)
            colour = _STATE_COLOURS[report.state]
            self.rect(x, top + 24, wide, 20, f'rx="2" fill="{colour}"', f"Epoch {report.epoch}: {report.state}")
        self.text(left, top + 62, f"epochs {reports[0].epoch} to {reports[-1].epoch}", css="dim")
        span = format_duration((end - begin) / 1_000_000)
        failed = sum(report.state is CheckpointState.FAILED for report in reports)
        self.text(
            left + width, top + 62, f"{span}, {len(reports)} checkpoints, {failed} failed", css="dim", anchor="end"
        )
        self.y = top + 90

    def epoch(self, report: CheckpointReport, longest: float) -> None:
        rows = max(1, len(report.operators))
        top, height = self.y, 34 + rows * ROW + 26
        left = MARGIN + LABELS
        width = WIDTH - 2 * MARGIN - LABELS - NOTES
        scale = width / longest
        self.rect(MARGIN, top, WIDTH - 2 * MARGIN, height, 'class="card" rx="8"')
        self._heading(report, top + 21)
        bottom = top + 34 + rows * ROW
        for tick in ticks(longest):
            self.line(left + tick * scale, top + 32, bottom)
            self.text(left + tick * scale, bottom + 15, _axis(tick), css="dim", anchor="middle")
        zero = _zero(report)
        for number, operator in enumerate(report.operators):
            self._operator(report, operator, top + 34 + number * ROW, zero, scale)
        if not report.operators:
            self.text(left, top + 34 + 15, "no operator's report was kept", css="dim")
        self.y = top + height + 12

    def _heading(self, report: CheckpointReport, y: float) -> None:
        self.text(MARGIN + 14, y, f"Epoch {report.epoch}", css="epoch")
        self.text(MARGIN + 100, y, report.state, fill=_STATE_COLOURS[report.state])
        took = format_duration(seconds_of(report, _finish(report) / 1_000_000))
        facts = [took, size(report.bytes), f"generation {report.generation}"]
        if report.then_stop:
            facts.append("then stop")
        if report.message:
            facts.append(report.message if len(report.message) <= 90 else report.message[:89] + "…")
        self.text(MARGIN + LABELS, y, " · ".join(facts), css="dim")

    def _operator(self, report: CheckpointReport, operator: OperatorReport, y: float, zero: int, scale: float) -> None:
        name = operator.name if len(operator.name) <= 26 else operator.name[:25] + "…"
        self.text(MARGIN + LABELS - 12, y + 15, name, anchor="end")
        for span in spans(report, operator):
            x = MARGIN + LABELS + (span.begin - zero) / 1_000_000 * scale
            wide = max(1.5, (span.end - span.begin) / 1_000_000 * scale)
            took = format_duration((span.end - span.begin) / 1_000_000)
            look = f'fill="{span.colour}" rx="1.5"' if not span.open else f'fill="{span.colour}" fill-opacity="0.35"'
            said = f"{operator.name}: {span.name} {took}" + (" (never ended)" if span.open else "")
            self.rect(x, y + (ROW - BAR) / 2, wide, BAR, look, said)
        wrote = "skipped" if operator.skipped else f"{size(operator.bytes)}, {operator.rows:,} rows"
        self.text(WIDTH - MARGIN - 14, y + 15, wrote, css="dim", anchor="end")

    def finish(self) -> str:
        height = self.y + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
            f'height="{height:.0f}" role="img">\n<style>{_STYLE}</style>\n'
            f'<rect width="100%" height="100%" fill="#f7f7f5"/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )


def _axis(seconds: float) -> str:
    if seconds == 0:
        return "0"
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
