"""The command line. ``epochal run`` gives a job on this machine what the operator gives it in a cluster."""

import signal
import sys
from pathlib import Path


def main() -> None:
    # A Ctrl-C that nobody listens for ends the process as it ends any other, and is never taken for a failed job. This
    # comes before all imports: libraries that handle errors of their own imports would swallow it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from epochal.cli.commands import commands

    # kubectl runs kubectl-epochal, and calls it `kubectl epochal`.
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    commands(prog_name="kubectl epochal" if plugin else "epochal")
