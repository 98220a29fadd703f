"""Where a Structured Streaming source stands: its progress log on local disk, taken at a barrier and put back at a
restart.

Spark writes ``offsets/N`` before batch N, ``commits/N`` after it, and sources keep notes of their own below
``sources/0``. The position after batch N is the offset entry N and those notes; a directory restored from it, with the
commit entry for N added, makes Spark go on with batch N + 1.
"""

import json
import shutil
from pathlib import Path

from epochal.protocol.documents import SourcePosition

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def capture(directory: Path, batch: int) -> SourcePosition:
    """The position after ``batch`` (-1: before the first), without what Spark wrote ahead for the next one."""
    log: dict[str, str] = {}
    seen: dict[str, int] = {}
    # Spark wants the entry before the newest as well, to see that the log is whole.
    for name in ("metadata", f"offsets/{batch - 1}", f"offsets/{batch}"):
        path = directory / name
        if path.is_file():
            log[name] = path.read_text()
    offsets = log.get(f"offsets/{batch}", "").split("\n")[2:]
    # A stream may read from several sources at once (a union): each has a line of offsets and notes of its own.
    for notes in sorted((directory / "sources").glob("*")):
        offset = offsets[int(notes.name)] if notes.name.isdigit() and int(notes.name) < len(offsets) else ""
        if (newest := _newest_note(offset)) is not None:
            # What it has read is a table of its own: taken later, and not while batches wait.
            seen[notes.name] = newest
            continue
        for path in _needed(notes, batch):
            log[str(path.relative_to(directory))] = path.read_text()
    return SourcePosition(batch=batch, log=log, seen=seen)


def _newest_note(offset: str) -> int | None:
    """The newest of a file source's notes that the offset covers: its count runs ahead of the batches' once a restart
    has found notes for a batch that never ran. None of another source."""
    try:
        parsed = json.loads(offset)
    except ValueError:
        return None
    return int(parsed["logOffset"]) if isinstance(parsed, dict) and "logOffset" in parsed else None


def restore(directory: Path, position: SourcePosition, conf: dict[str, str]) -> None:
    """Make ``directory`` the progress log that ``position`` was taken from. ``conf`` replaces settings that Spark would
    otherwise take over from the log, so that a restart can change the number of partitions."""
    shutil.rmtree(directory, ignore_errors=True)
    for name, text in position.log.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_with_conf(text, conf) if name.startswith("offsets/") else text)
    if position.batch >= 0:
        (directory / "commits").mkdir(parents=True, exist_ok=True)
        (directory / "commits" / str(position.batch)).write_text(_COMMIT)


def _needed(notes: Path, newest: int) -> list[Path]:
    """A source's own notes up to the entry ``newest``."""
    if not notes.is_dir():
        return []
    numbered: dict[int, Path] = {}
    others: list[Path] = []
    for path in sorted(notes.rglob("*")):
        if not path.is_file() or path.name.startswith(".") or path.name.endswith(".tmp"):
            continue
        if path.name.isdigit() and path.parent == notes:
            numbered[int(path.name)] = path
        else:
            others.append(path)
    if list(numbered) == [0] and not (newest < 0 and _lists_files(numbered[0])):
        return [*others, numbered[0]]  # the starting offset: there is only ever this one
    return others + [path for number, path in numbered.items() if number <= newest]


def _lists_files(note: Path) -> bool:
    """Whether it is a file source's note, written ahead for a batch that has not run. Kept before the first batch, it
    would make the restored source read those files and the next ones as one batch."""
    return '{"path":' in note.read_text()


def _with_conf(text: str, conf: dict[str, str]) -> str:
    version, metadata, *offsets = text.split("\n")
    parsed = json.loads(metadata)
    known = parsed.get("conf", {})
    parsed["conf"] = known | {key: value for key, value in conf.items() if key in known}
    return "\n".join([version, json.dumps(parsed), *offsets])
