"""``epochal`` and its commands."""

import click

from epochal.cli.cleanup import cleanup
from epochal.cli.explain import explain
from epochal.cli.history import checkpoints, savepoint, status, timeline, validate
from epochal.cli.inspect import inspect_state
from epochal.cli.run import run
from epochal.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="epochal")
def commands() -> None:
    """Checkpoints for PySpark streaming that are separate from micro-batches."""


for command in (run, status, checkpoints, inspect_state, timeline, savepoint, validate, explain, cleanup):
    commands.add_command(command)
