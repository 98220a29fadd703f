"""Where a Structured Streaming source stands: its progress log on local disk, taken at a barrier and put back at a
restart.

Spark writes ``offsets/N`` before batch N, ``commits/N`` after it, and sources keep notes of their own below
``sources/0``. The position after batch N is the offset entry N and those notes; a directory restored from it, with the
commit entry for N added, makes Spark go on with batch N + 1.
"""

import json
import re
import shutil
from pathlib import Path

from epochal.protocol.documents import SourcePosition

_NUMBERED = re.compile(r"(\d+)(\.compact)?")
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def capture(directory: Path, batch: int) -> SourcePosition:
    """The position after ``batch`` (-1: before the first), without what Spark wrote ahead for the next one."""
    log: dict[str, str] = {}
    # Spark wants the entry before the newest as well, to see that the log is whole.
    for name in ("metadata", f"offsets/{batch - 1}", f"offsets/{batch}"):
        path = directory / name
        if path.is_file():
            log[name] = path.read_text()
    offsets = log.get(f"offsets/{batch}", "").split("\n")[2:]
    # A stream may read from several sources at once (a union): each has a line of offsets and notes of its own.
    for notes in sorted((directory / "sources").glob("*")):
        offset = offsets[int(notes.name)] if notes.name.isdigit() and int(notes.name) < len(offsets) else ""
        for path in _needed(notes, _newest_note(offset, batch)):
            log[str(path.relative_to(directory))] = path.read_text()
    return SourcePosition(batch=batch, log=log)


def _newest_note(offset: str, batch: int) -> int:
    """The newest entry of a source's notes that the offset covers. A file source names it: its count runs ahead of the
    batches' once a restart has found notes for a batch that never ran."""
    try:
        parsed = json.loads(offset)
    except ValueError:
        return batch
    return int(parsed.get("logOffset", batch)) if isinstance(parsed, dict) else batch


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
    """A source's own notes up to the entry ``newest``. Numbered logs are compacted now and then: what a
    compaction holds is left out."""
    if not notes.is_dir():
        return []
    numbered: list[tuple[int, bool, Path]] = []
    others: list[Path] = []
    for path in sorted(notes.rglob("*")):
        if not path.is_file() or path.name.startswith(".") or path.name.endswith(".tmp"):
            continue
        match = _NUMBERED.fullmatch(path.name)
        if match and path.parent == notes:
            numbered.append((int(match[1]), bool(match[2]), path))
        else:
            others.append(path)
    if [number for number, _, _ in numbered] == [0] and not (newest < 0 and _lists_files(numbered[0][2])):
        return others + [path for _, _, path in numbered]  # the starting offset: there is only ever this one
    kept = [entry for entry in numbered if entry[0] <= newest]
    compacted = max((number for number, compact, _ in kept if compact), default=-1)
    return others + [path for number, compact, path in kept if number > compacted or (compact and number == compacted)]


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
