"""``epochal`` and its commands."""

import difflib

import click

from epochal.cli.changes import restart, resume, scale, suspend
from epochal.cli.cleanup import cleanup
from epochal.cli.completion import completion
from epochal.cli.doctor.command import doctor
from epochal.cli.explain import explain, graph
from epochal.cli.history import checkpoints, savepoint, status, timeline
from epochal.cli.inspect import inspect_state
from epochal.cli.jobs import describe, get
from epochal.cli.logs import logs
from epochal.cli.report import report
from epochal.cli.run import run
from epochal.cli.validate import validate
from epochal.version import __version__


class _Suggesting(click.Group):
    """Says which command was meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1) if args else []
            if not close:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {close[0]!r}?", ctx) from error


@click.group(cls=_Suggesting, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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
