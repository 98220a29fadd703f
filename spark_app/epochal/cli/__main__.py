"""``python -m epochal.cli`` is ``epochal``."""

from epochal.cli import main

main()
