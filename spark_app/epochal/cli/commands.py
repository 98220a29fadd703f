"""``epochal`` and its commands."""

import click

from epochal.cli.changes import restart, resume, scale, suspend
from epochal.cli.cleanup import cleanup
from epochal.cli.completion import completion
from epochal.cli.doctor.command import doctor
from epochal.cli.explain import explain, graph
from epochal.cli.history import checkpoints, savepoint, status, timeline, validate
from epochal.cli.inspect import inspect_state
from epochal.cli.jobs import describe, get
from epochal.cli.logs import logs
from epochal.cli.report import report
from epochal.cli.run import run
from epochal.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="epochal")
def commands() -> None:
    """Checkpoints for PySpark streaming that are separate from micro-batches."""


COMMANDS = (
    run,
    get,
    describe,
    status,
    graph,
    checkpoints,
    timeline,
    inspect_state,
    logs,
    suspend,
    resume,
    restart,
    scale,
    savepoint,
    validate,
    explain,
    cleanup,
    doctor,
    report,
    completion,
)
for command in COMMANDS:
    commands.add_command(command)
