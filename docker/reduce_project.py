"""Writes the parts of pyproject.toml that an installed project is made of, for the Dockerfile only.

Settings of linters and tests change often, and must not make images install all dependencies anew: what is written
depends on nothing else, its time of change included.
"""
# ruff: noqa: INP001  a program that stands for itself

import os
import re
import sys
from pathlib import Path

KEPT = ("build-system", "project", "tool.hatch")


def reduce(text: str) -> str:
    tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    names = [re.match(r"\[+([^]]+)\]", table) for table in tables]
    kept = [
        table
        for table, name in zip(tables, names, strict=True)
        if name and any(name[1] == start or name[1].startswith(f"{start}.") for start in KEPT)
    ]
    return "".join(kept)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(reduce(source.read_text()))
    os.utime(target, (0, 0))
