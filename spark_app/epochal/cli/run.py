"""``epochal run``: a job on this machine."""

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from epochal.cli.errors import EXIT_JOB_FAILED, UserError
from epochal.cli.files import last_lines
from epochal.cli.local import DRIVER_MODULE_VARIABLE, JobDirectory, LocalBackend
from epochal.cli.manifests import DEFAULT_STATE_DIR, check_given, load_to_run
from epochal.cli.runner import Runner, Wishes, listening
from epochal.cli.spark import require_spark
from epochal.cli.view import LiveView, PlainView
from epochal.control.events import late_message
from epochal.control.job import JobSpec, OnCommittedOutput
from epochal.protocol.errors import ProtocolError

SHOWN_LOG_LINES = 20


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--set", "parameters", multiple=True, metavar="KEY=VALUE", help="Set a pipeline parameter. Overrides the manifest."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="Directory for the job's state and logs, and for checkpoints if the manifest names no store.",
)
@click.option(
    "--until-epoch",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop with a last checkpoint after epoch N.",
)
@click.option(
    "--repeat-committed-output",
    "repeat",
    is_flag=True,
    help="When a restore skips committed output that a sink cannot remove, write it a second time, like "
    "spec.restore.onCommittedOutput: Repeat.",
)
@click.option("--plain", is_flag=True, help="Print plain lines instead of the live view, even in a terminal.")
def run(
    manifest: Path,
    parameters: tuple[str, ...],
    state_dir: Path,
    until_epoch: int | None,
    repeat: bool,
    plain: bool,
) -> None:
    """Run the StreamingJob in MANIFEST on this machine.

    Uses the same manifest, validation and checkpoint timer as a cluster; the driver and cleanups are local processes.
    If you run it again, the job resumes from its latest epoch. Edits of spec.checkpoint apply immediately.

    \b
    Ctrl-C or SIGTERM   take a last checkpoint and stop; a second Ctrl-C stops immediately
    \b
    Exit codes
      0    stopped with a last checkpoint, or every source has ended
      1    the job failed, needs your decision, or cannot start until you fix something:
           see the last lines of its log
      2    invalid manifest, option or store
      130  stopped immediately by a second Ctrl-C
    """
    wishes = Wishes()
    with listening(wishes):
        sys.exit(
            _run(
                manifest,
                parameters,
                state_dir,
                wishes=wishes,
                until_epoch=until_epoch,
                repeat=repeat,
                plain=plain,
            )
        )


def _run(
    manifest: Path,
    parameters: tuple[str, ...],
    state_dir: Path,
    *,
    wishes: Wishes,
    until_epoch: int | None,
    repeat: bool,
    plain: bool,
) -> int:
    job = load_to_run(manifest, parameters)
    check_given(job, parameters)
    if job.is_sql:
        job.plan()  # a wrong text is told at once, and not by a driver's log
    if DRIVER_MODULE_VARIABLE not in os.environ:
        require_spark(job)
    directory = JobDirectory(state_dir, job.spec.namespace, job.spec.name)
    pipeline = job.pipeline(directory.root)
    try:
        backend = LocalBackend(job.spec, directory=directory, storage=job.storage(state_dir), pipeline=pipeline)
    except ProtocolError as error:
        raise UserError(str(error)) from error
    live = None if plain or not sys.stdout.isatty() else LiveView(Console())
    try:
        with live or nullcontext():
            runner = Runner(
                backend=backend,
                load_spec=lambda: _with_choice(load_to_run(manifest, parameters).spec, repeat=repeat),
                watched=manifest,
                view=live or PlainView(),
                wishes=wishes,
                until_epoch=until_epoch,
            )
            code = runner.run()
    finally:
        backend.close()
    record = backend.load()
    if record is not None and record.late.total:
        click.echo(f"epochal: {late_message(record.late.total)}", err=True)
    if code == EXIT_JOB_FAILED:
        _explain(backend)
    return code


def _with_choice(spec: JobSpec, *, repeat: bool) -> JobSpec:
    if not repeat:
        return spec
    return replace(spec, restore=replace(spec.restore, on_committed_output=OnCommittedOutput.REPEAT))


def _explain(backend: LocalBackend) -> None:
    record = backend.load()
    if log := backend.directory.newest_log():
        for line in last_lines(log, SHOWN_LOG_LINES):
            click.echo(f"  {line}", err=True)
        click.echo(f"  (from {log})", err=True)
    message = (record.message or record.restarts.message) if record else ""
    click.echo(f"epochal: the job failed: {message}", err=True)
