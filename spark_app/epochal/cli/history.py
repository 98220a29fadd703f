"""Commands that look at a job: ``status``, ``checkpoints``, ``timeline``, ``savepoint``."""

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from epochal.cli.cluster.jobs import ClusterJob, reports_of
from epochal.cli.epochs import EpochRow, chosen, rows
from epochal.cli.errors import UserError
from epochal.cli.jobs import why
from epochal.cli.local import JobDirectory
from epochal.cli.output import age, console, filled_table, format_option, moment, plain_table, print_data
from epochal.cli.processes import Alive, DetachedProcess
from epochal.cli.targets import Target, target_options
from epochal.cli.timeline import write_timeline
from epochal.cli.view import report_line, size, source_line
from epochal.control.driver_client import DriverClient, DriverError, DriverUnreachable
from epochal.protocol.control import CheckpointReport
from epochal.protocol.errors import DocumentError, NewerDocumentError
from epochal.protocol.resolve import read_savepoint
from epochal.protocol.savepoints import NotPinned, list_savepoints, pin, unpin


@click.command()
@target_options
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Epochs to show.")
@click.option("--store", "from_store", is_flag=True, help="Read a cluster's job's store, with your own credentials.")
@format_option
def checkpoints(target: Target, last: int, from_store: bool, how: str) -> None:
    """List a job's epochs, newest first.

    For a manifest file or a store's URI these are the epochs in the store. For a job on the cluster they are the latest
    checkpoints as its status has them, failed ones included; --store reads its store instead.
    """
    if target.cluster is not None and not from_store:
        found = list(itertools.islice(_of_status(target.cluster.status()), last))
    else:
        found = [_as_data(row) for row in itertools.islice(rows(target), last)]
    if how in ("json", "yaml"):
        print_data(found, how)
        return
    if not found:
        click.echo("No epochs yet")
        return
    columns = ("epoch", "state", "generation", "time", "size", "operators", "note")
    shown = []
    for one in found:
        written = size(one["bytes"]) if one.get("bytes") is not None else ""
        values = (one["epoch"], one["state"], one.get("generation"), one.get("time"), written, one.get("operators"))
        shown.append((*values, one.get("note")))
    console().print(filled_table(columns, shown))


def _as_data(row: EpochRow) -> dict[str, Any]:
    manifest = row.manifest
    if manifest is None:
        return {"epoch": row.epoch, "state": row.state, "note": row.problem}
    return {
        "epoch": row.epoch,
        "state": row.state,
        "generation": manifest.generation,
        "time": moment(manifest.timestamp),
        "bytes": row.bytes,
        "operators": len(manifest.operators),
        "note": "then stop" if manifest.then_stop else "",
    }


def _of_status(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if flight := status.get("inFlight"):
        yield {
            "epoch": flight["epoch"],
            "state": "InProgress",
            "generation": flight.get("generation"),
            "time": flight.get("started"),
            "operators": flight.get("operatorsTotal"),
            "note": "then stop" if flight.get("thenStop") else "",
        }
    for one in status.get("history") or []:
        note = one.get("message") or (f"took {one['duration']}" if one.get("duration") else "")
        yield {
            "epoch": one["epoch"],
            "state": one["state"],
            "generation": one.get("generation"),
            "time": one.get("finished"),
            "bytes": one.get("bytes"),
            "note": note,
        }


WATCH_EVERY = 2.0


@click.command()
@target_options
@click.option("-w", "--watch", is_flag=True, help="Show it again every 2 seconds, until Ctrl-C.")
@format_option
def status(target: Target, watch: bool, how: str) -> None:
    """Show how a job is doing.

    TARGET is a job's name on the cluster, or the manifest file of a job on this machine.
    """
    while True:
        if target.cluster is not None:
            _cluster_status(target.cluster, how)
        else:
            _local_status(_local(target), how)
        if not watch:
            return
        time.sleep(WATCH_EVERY)
        click.echo()


def _cluster_status(job: ClusterJob, how: str) -> None:
    body = job.body()
    found = body.get("status") or {}
    if how in ("json", "yaml"):
        print_data({name: value for name, value in found.items() if name != "record"}, how)
        return
    total = (found.get("restarts") or {}).get("total", 0)
    generation, epoch = found.get("generation", 0), found.get("epoch", 0)
    click.echo(f"{found.get('phase', 'Pending')}: generation {generation}, epoch {epoch}, {total} restarts")
    if message := why(body):
        click.echo(message)
    for report in reports_of(found)[-5:]:
        click.echo(f"{report_line(report, time.time())} ({age(_finished(found, report.epoch))} ago)")
    if found.get("rowsPerSecond") is not None:
        lag = f", lag {found['lag']}" if found.get("lag") else ""
        click.echo(f"{found['rowsPerSecond']:,} rows/s{lag}, as of the latest checkpoint")


def _finished(status: Mapping[str, Any], epoch: int) -> object:
    return next((one.get("finished") for one in status.get("history") or [] if one["epoch"] == epoch), None)


def _local_status(directory: JobDirectory, how: str) -> None:
    job = directory.load_record()
    if how in ("json", "yaml"):
        reports = [msgspec.to_builtins(report) for report in directory.reports()[-5:]]
        print_data({"record": msgspec.to_builtins(job), "checkpoints": reports, "runner": directory.runner()}, how)
        return
    if job is None:
        click.echo("The job has not been run here yet")
        return
    record = job.checkpoints
    click.echo(
        f"{job.phase}: generation {record.generation}, epoch {record.newest_completed}, {job.restarts.total} restarts"
    )
    if job.message:
        click.echo(job.message)
    elif job.restarts.message:
        click.echo(f"The last restart: {job.restarts.message}")
    for report in directory.reports()[-5:]:
        click.echo(report_line(report, time.time()))
    driver = directory.driver(job.process_generation)
    if not isinstance(DetachedProcess(driver).state(), Alive):
        click.echo("No driver is running")
        return
    try:
        client = DriverClient((driver / "address").read_text().strip(), (driver / "token").read_text().strip())
        for source in client.status().sources:
            click.echo(source_line(source))
    except (OSError, DriverUnreachable, DriverError) as error:
        click.echo(f"The driver does not answer: {error}")


def _local(target: Target) -> JobDirectory:
    if target.directory is None:
        raise UserError(
            "a store does not tell: name a job on the cluster, or the manifest file of a job on this machine"
        )
    return target.directory


@click.command()
@target_options
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("timeline.svg"), show_default=True)
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="Checkpoints to draw.")
def timeline(target: Target, output: Path, last: int) -> None:
    """Draw a job's latest checkpoints as an SVG.

    For a job on this machine, TARGET is its manifest file: the picture shows when each operator aligned, froze,
    wrote and committed its state. Of a job on the cluster, its status has when each checkpoint began and ended.
    """
    found = reports_of(target.cluster.status()) if target.cluster is not None else _local(target).reports()
    reports: list[CheckpointReport] = found[-last:]
    if not reports:
        here = "" if target.cluster else " here"
        raise UserError(f"no checkpoint of this job has ended{here} yet: run it first")
    write_timeline(reports, output, title=f"Checkpoints of {target.paths.prefix.rstrip('/')}")
    click.echo(f"{output}: {len(reports)} checkpoints")


@click.group()
def savepoint() -> None:
    """Create, list and delete savepoints: epochs that cleanup never deletes."""


@savepoint.command("create")
@target_options
@click.argument("name")
@click.option("--epoch", type=click.IntRange(min=1), help="Epoch to keep. Defaults to the latest.")
def create_savepoint(target: Target, name: str, epoch: int | None) -> None:
    """Create savepoint NAME from an epoch of TARGET."""
    pinned = pin(target.store, target.paths, name, chosen(target, epoch).epoch)
    if isinstance(pinned, NotPinned):
        raise UserError(pinned.message)
    click.echo(f"Savepoint {pinned.name} keeps epoch {pinned.epoch}")


@savepoint.command("delete")
@target_options
@click.argument("name")
def delete_savepoint(target: Target, name: str) -> None:
    """Delete savepoint NAME of TARGET. The next cleanup deletes its data."""
    if name not in list_savepoints(target.store, target.paths):
        raise UserError(f"there is no savepoint {name}")
    unpin(target.store, target.paths, name)
    click.echo(f"Savepoint {name} is deleted")


@savepoint.command("list")
@target_options
def show_savepoints(target: Target) -> None:
    """List the savepoints of TARGET."""
    names = list_savepoints(target.store, target.paths)
    if not names:
        click.echo("No savepoints")
        return
    table = plain_table("name", "epoch", "generation", "time")
    for name in names:
        try:
            manifest = read_savepoint(target.store, target.paths, name)
        except (DocumentError, NewerDocumentError) as error:
            table.add_row(name, "", "", str(error))
            continue
        table.add_row(name, str(manifest.epoch), str(manifest.generation), moment(manifest.timestamp))
    console().print(table)
