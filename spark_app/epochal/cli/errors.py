"""What goes wrong for a person at the command line: one line that says what to do, exit code 2."""

import click

EXIT_OK = 0
EXIT_JOB_FAILED = 1
EXIT_USER = 2
EXIT_FORCED = 130


class UserError(click.ClickException):
    exit_code = EXIT_USER

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click's signature
        click.echo(f"epochal: {self.message}", err=True)
