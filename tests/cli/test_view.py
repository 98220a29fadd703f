"""What a person sees while a job runs."""

from dataclasses import replace

import click
import msgspec
from click.testing import CliRunner
from rich.console import Console

from epochal.cli.view import LiveView, PlainView, report_line, size, source_line
from epochal.control.job import JobSpec, PipelineSpec
from epochal.control.lifecycle import DriverUp, JobPhase, JobRecord, LateRows, LifeReason, Seen, Step
from epochal.control.reconcile import Tick
from epochal.protocol.control import (
    CheckpointReport,
    CheckpointState,
    DriverPhase,
    DriverStatus,
    SinkReport,
    SourceReport,
)
from epochal.protocol.decision import Nothing, Reason, Record
from epochal.protocol.epochs import Epoch, Generation

SOURCE = SourceReport(name="clicks", batch=3, rows=12345, rows_per_second=1000.0, batch_seconds=0.2, lag=1.5)
STATUS = DriverStatus(
    namespace="shop",
    job="orders",
    generation=Generation(2),
    phase=DriverPhase.RUNNING,
    started=1,
    sources=(SOURCE,),
    sinks=(SinkReport(name="lake", rows_committed=99),),
)
REPORT = CheckpointReport(
    epoch=Epoch(7),
    generation=Generation(2),
    then_stop=False,
    state=CheckpointState.READY,
    started=1_000_000,
    finished=2_500_000,
    bytes=1234,
)
SPEC = JobSpec(namespace="shop", name="orders", pipeline=PipelineSpec(file="x"))


def tick(reason: Reason | LifeReason, message: str) -> Tick:
    record = JobRecord(
        checkpoints=Record(generation=Generation(2), generation_started=0, completed=(Epoch(7),)),
        phase=JobPhase.RUNNING,
    )
    seen = Seen(driver=DriverUp(generation=Generation(2), status=STATUS))
    step = Step(action=Nothing(), job=record, reason=reason, message=message)
    return Tick(before=None, seen=seen, step=step)


def test_lines() -> None:
    assert report_line(REPORT, 3) == "Epoch 7 completed in 1.5s, 1.2 kB"
    assert source_line(SOURCE) == "clicks: 12,345 rows, 1,000 rows/s, lag 1.5s"
    assert [size(count) for count in (0, 999, 1000, 123_456, 5_000_000, 7 * 10**12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "123 kB",
        "5.0 MB",
        "7.0 TB",
    ]


def test_plain_lines_say_a_thing_once_and_waiting_never() -> None:
    @click.command()
    def talk() -> None:
        view = PlainView(clock=lambda: 0.0)
        view.show(tick(LifeReason.RESTORED, "generation 2 runs"), SPEC)
        view.show(tick(LifeReason.RESTORED, "generation 2 runs"), SPEC)
        view.show(tick(Reason.NOT_DUE, "not due"), SPEC)
        view.ended(REPORT)

    lines = CliRunner().invoke(talk).output.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["Generation 2 runs", "Epoch 7 completed in 1.5s, 1.2 kB"]


def test_the_live_picture_shows_phase_epochs_and_flows() -> None:
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    view = LiveView(console, clock=lambda: 100.0)
    view.ended(REPORT)
    view.note("something happened")
    console.print(view.picture(tick(Reason.NOT_DUE, "x"), SPEC))
    view.show(tick(LifeReason.RESTORED, "restored"), SPEC)
    console.print(view.picture(tick(Reason.NOT_DUE, "x"), SPEC))
    console.file.close()
    text = console.export_text()
    for expected in (
        "shop/orders",
        "Running",
        "generation 2",
        "12,345",
        "99 committed",
        "1.2 kB",
        "something happened",
    ):
        assert expected in text


def test_rows_that_come_too_late_are_in_the_lines_and_in_the_picture() -> None:
    late = tick(Reason.NOT_DUE, "x")
    status = msgspec.structs.replace(STATUS, late_rows=4000)
    late = replace(
        late,
        seen=Seen(driver=DriverUp(generation=Generation(2), status=status)),
        step=replace(late.step, job=replace(late.step.job, late=LateRows(total=4000, of_driver=4000))),
    )

    @click.command()
    def talk() -> None:
        view = PlainView(clock=lambda: 0.0, every=0.0)
        view.show(late, SPEC)
        view.show(late, SPEC)

    said = CliRunner().invoke(talk).output
    assert said.count("4,000 rows came too late and are not in the result: give their source a longer delay") == 1
    assert said.count("late: 4,000 rows came too late") == 2
    console = Console(record=True, width=120, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    view = LiveView(console, clock=lambda: 100.0)
    view.show(late, SPEC)
    console.print(view.picture(late, SPEC))
    console.file.close()
    assert "4,000 late" in console.export_text()
