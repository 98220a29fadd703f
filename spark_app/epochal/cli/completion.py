"""``epochal completion``: what a shell asks when somebody presses Tab."""

import os
import sys

import click
from click.shell_completion import ShellComplete, get_completion_class

from epochal.cli.errors import UserError

NO_FILES = 4
"""For kubectl: complete with these, and not with files."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and names of jobs.

    \b
    echo 'eval "$(epochal completion bash)"' >> ~/.bashrc
    echo 'eval "$(epochal completion zsh)"' >> ~/.zshrc
    epochal completion fish > ~/.config/fish/completions/epochal.fish

    `kubectl epochal` is completed by kubectl's own script, which finds kubectl_complete-epochal beside kubectl-epochal.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "epochal", "_EPOCHAL_COMPLETE")
    try:
        click.echo(script.source())
    except RuntimeError as error:
        raise UserError(str(error)) from error


def kubectl_complete() -> None:
    """kubectl's protocol: the words so far as arguments, a completion a line, and a number that says what to do."""
    from epochal.cli.commands import commands

    # Another program than ours may have set it, and click would take this for its own script's question.
    os.environ.pop("_EPOCHAL_COMPLETE", None)
    *words, incomplete = sys.argv[1:] or [""]
    asked = ShellComplete(commands, {}, "epochal", "_EPOCHAL_COMPLETE")
    found = [item for item in asked.get_completions(words, incomplete) if item.type == "plain"]
    for item in found:
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{NO_FILES if found else 0}")
