"""Commands that look at a job: ``status``, ``checkpoints``, ``timeline``, ``validate``, ``savepoint``."""

import itertools
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from epochal.cli.epochs import chosen, rows
from epochal.cli.errors import UserError
from epochal.cli.local import JobDirectory
from epochal.cli.manifests import load_job
from epochal.cli.processes import Alive, DetachedProcess
from epochal.cli.targets import Target, target_options
from epochal.cli.timeline import write_timeline
from epochal.cli.view import report_line, size, source_line
from epochal.control.driver_client import DriverClient, DriverError, DriverUnreachable
from epochal.control.job import JobSpec
from epochal.protocol.control import CheckpointReport
from epochal.protocol.errors import DocumentError, NewerDocumentError
from epochal.protocol.resolve import read_savepoint
from epochal.protocol.savepoints import NotPinned, list_savepoints, pin, unpin


def plain_table(*columns: str) -> Table:
    """A table that reads well and can be cut up by other programs: no frames, and never folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column in ("epoch", "generation", "size", "operators", "rows", "runs")
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    return table


def console() -> Console:
    """As wide as the terminal; where there is none, as wide as the content."""
    out = Console()
    return out if out.is_terminal else Console(width=10_000)


def moment(micros: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(micros / 1_000_000))


@click.command()
@target_options
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Epochs to show.")
def checkpoints(target: Target, last: int) -> None:
    """List the epochs in the store, newest first.

    TARGET is a job's manifest file or a store's URI.
    """
    table = plain_table("epoch", "state", "generation", "time", "size", "operators", "note")
    count = 0
    for row in itertools.islice(rows(target), last):
        count += 1
        manifest = row.manifest
        if manifest is None:
            table.add_row(str(row.epoch), row.state, "", "", "", "", row.problem)
            continue
        table.add_row(
            str(row.epoch),
            row.state,
            str(manifest.generation),
            moment(manifest.timestamp),
            size(row.bytes),
            str(len(manifest.operators)),
            "then stop" if manifest.then_stop else "",
        )
    if not count:
        click.echo("There is no epoch yet")
        return
    console().print(table)


@click.command()
@target_options
def status(target: Target) -> None:
    """Show the status of a job that runs on this machine.

    TARGET is the job's manifest file.
    """
    directory = _local(target)
    job = directory.load_record()
    if job is None:
        click.echo("The job has not been run here yet")
        return
    record = job.checkpoints
    click.echo(
        f"{job.phase}: generation {record.generation}, epoch {record.newest_completed}, {job.restarts.total} restarts"
    )
    if job.message:
        click.echo(job.message)
    for report in directory.reports()[-5:]:
        click.echo(report_line(report, time.time()))
    driver = directory.driver(record.generation)
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
        raise UserError("this needs a job's manifest file: what it shows is kept on this machine, not in the store")
    return target.directory


@click.command()
@target_options
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("timeline.svg"), show_default=True)
@click.option("--last", type=click.IntRange(min=1), default=10, show_default=True, help="Checkpoints to draw.")
def timeline(target: Target, output: Path, last: int) -> None:
    """Draw when each operator aligned, froze, wrote and committed its state, as an SVG.

    TARGET is the manifest file of a job that was run on this machine.
    """
    reports: list[CheckpointReport] = _local(target).reports()[-last:]
    if not reports:
        raise UserError("no checkpoint of this job has ended here yet: run it first")
    write_timeline(reports, output, title=f"Checkpoints of {target.paths.prefix.rstrip('/')}")
    click.echo(f"{output}: {len(reports)} checkpoints")


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
def validate(manifest: Path) -> None:
    """Validate MANIFEST with the rules of a cluster, without one.

    Unknown fields, which a cluster drops silently, are errors here. SQL pipelines are planned as well; errors show
    their line and column.
    """
    job = load_job(manifest)
    if job.is_sql:
        job.plan()
    spec: JobSpec = job.spec
    click.echo(f"{manifest}: {spec.namespace}/{spec.name} is valid")


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
        click.echo("There is no savepoint")
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
