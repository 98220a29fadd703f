"""Small files that are either there in full or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write the file so that a crash at any moment leaves the old content or the new."""
    new = path.with_name(f".{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log that may be long, or not there."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]
