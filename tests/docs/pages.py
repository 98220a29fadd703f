"""The programs and commands that a page shows, to be run as they are printed."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / name).read_text()


def block(text: str, language: str, name: str) -> str:
    """The program or manifest that begins with its file's name."""
    found = re.search(rf"```{language}\n# {re.escape(name)}\n(.*?)```", text, re.DOTALL)
    assert found, f"the page has no {name}"
    return found[1]


def commands(text: str, program: str) -> list[list[str]]:
    """The page's commands of one program, in order, without its name."""
    found = re.findall(rf"^{program} .*$", text, re.MULTILINE)
    return [shlex.split(line, comments=True)[1:] for line in found]
