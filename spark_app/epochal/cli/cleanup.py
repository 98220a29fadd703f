"""``epochal cleanup``: delete what only old epochs need. What cleanup Jobs run, and a person may."""

import sys

import click
from rich.progress import Progress

from epochal.cli.errors import UserError
from epochal.cli.targets import store_options
from epochal.cli.view import size
from epochal.protocol.cleanup import NotCleaned, clean
from epochal.protocol.epochs import Epoch
from epochal.protocol.errors import ProtocolError
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import StoreOptions, open_store


@click.command()
@click.argument("uri")
@click.option("--namespace", default="default", show_default=True, help="The job's namespace.")
@click.option("--job", required=True, help="The job's name.")
@click.option("--min-epoch", type=click.IntRange(min=1), required=True, help="Oldest epoch to keep.")
@store_options
def cleanup(uri: str, namespace: str, job: str, min_epoch: int, options: StoreOptions) -> None:
    """Delete the data of epochs older than --min-epoch from the store at URI.

    Keeps the data of savepoints. You can interrupt the command at any time and run it again. It refuses to delete
    anything unless an epoch from --min-epoch on can be restored.
    """
    try:
        paths = JobPaths(namespace, job)
        store = open_store(uri, options, create=False)
        with Progress(disable=not sys.stdout.isatty()) as progress:
            bar = progress.add_task("Deleting", total=None)
            done = clean(
                store,
                paths,
                Epoch(min_epoch),
                on_progress=lambda deleted, total: progress.update(bar, completed=deleted, total=total),
            )
    except ProtocolError as error:
        raise UserError(str(error)) from error
    if isinstance(done, NotCleaned):
        click.echo(f"epochal: nothing was deleted: {done.message}", err=True)
        sys.exit(1)
    click.echo(f"Deleted {done.epochs} epochs: {done.objects} objects, {size(done.bytes)} of state")
    for name in done.unknown:
        click.echo(f"Not Epochal's, left alone: {name}", err=True)
