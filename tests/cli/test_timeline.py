"""The timeline's spans, its scale, and that what it draws is XML whatever operators are called."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from epochal.cli.local import JobDirectory
from epochal.cli.timeline import draw_timeline, spans, ticks, write_timeline
from epochal.protocol.control import CheckpointReport, CheckpointState, OperatorEvent, OperatorReport
from epochal.protocol.epochs import Epoch, Generation

E = OperatorEvent
SINK = OperatorReport(
    name="<files> & more",
    kind="sink",
    events={
        E.STARTED_ALIGNMENT: 100,
        E.STARTED_CHECKPOINTING: 200,
        E.FINISHED_OPERATOR_SETUP: 210,
        E.FINISHED_SYNC: 300,
        E.COMPLETED: 500,
        E.FINISHED_COMMIT: 900,
    },
)
SOURCE = OperatorReport(
    name="numbers", kind="source", events={E.STARTED_CHECKPOINTING: 50, E.FINISHED_SYNC: 60, E.COMPLETED: 80}
)
HUNG = OperatorReport(name="stuck", kind="map", events={E.STARTED_ALIGNMENT: 100}, skipped=True)


def report(epoch: int, *operators: OperatorReport, failed: bool = False, generation: int = 1) -> CheckpointReport:
    return CheckpointReport(
        epoch=Epoch(epoch),
        generation=Generation(generation),
        then_stop=False,
        state=CheckpointState.FAILED if failed else CheckpointState.READY,
        started=40,
        finished=1000,
        message="a <reason>" if failed else "",
        operators=operators,
    )


def test_spans_lie_between_events() -> None:
    found = [(span.name, span.begin, span.end) for span in spans(report(1), SINK)]
    assert found == [("alignment", 100, 200), ("sync", 200, 300), ("async", 300, 500), ("committing", 500, 900)]
    assert [span.name for span in spans(report(1), SOURCE)] == ["sync", "async"]


def test_a_span_that_never_ended_goes_on_to_the_end() -> None:
    (span,) = spans(report(1, failed=True), HUNG)
    assert (span.name, span.end, span.open) == ("alignment", 1000, True)


@pytest.mark.parametrize("longest", [0.001, 0.0123, 0.9, 1.0, 7.3, 59, 1234, 100_000])
def test_the_scale_is_round_and_not_crowded(longest: float) -> None:
    found = ticks(longest)
    assert found[0] == 0
    assert 1 <= len(found) <= 9
    assert found[-1] <= longest * 1.0001


def test_the_picture_is_xml_and_names_everything(tmp_path: Path) -> None:
    reports = [report(2, SOURCE, SINK), report(1, SOURCE, HUNG, failed=True), report(3, generation=2)]
    write_timeline(reports, tmp_path / "t.svg")
    root = ElementTree.fromstring((tmp_path / "t.svg").read_text())
    text = " ".join("".join(element.itertext()) for element in root)
    for expected in ("Epoch 1", "Epoch 2", "generation 2", "<files> & more", "a <reason>", "committing", "skipped"):
        assert expected in text
    assert "No checkpoints yet" in draw_timeline([])


def test_reports_survive_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path, "default", "numbers")
    assert directory.reports() == []
    directory.append_report(report(1, SOURCE))
    with directory.checkpoints.open("ab") as file:
        file.write(b'{"epoch": 2, "gen')
    directory.append_report(report(3))
    directory.append_report(report(3, SINK))
    # The line that was cut off took the next one with it; what came after is whole.
    assert [(kept.epoch, len(kept.operators)) for kept in directory.reports()] == [(1, 1), (3, 1)]
