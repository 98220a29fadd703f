"""What going back leaves behind: output that sinks have of epochs which the restored state knows nothing of.

Before its first batch a generation must see to it that every sink's output is that of the restored epoch: otherwise the
rows since then come a second time. Sinks that can take rows back do so; where one cannot, the spec has to choose.
"""

from collections import Counter
from collections.abc import Mapping

from epochal.protocol import resolve
from epochal.protocol.documents import COMMITTED_TABLES, Manifest, Seal
from epochal.protocol.epochs import Epoch, next_epoch
from epochal.protocol.errors import DocumentError, NewerDocumentError, ObjectMissingError
from epochal.protocol.line import Line
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import LeftBehind, list_epochs
from epochal.protocol.store import Store

Sinks = Mapping[str, str | None]
"""By name, why a sink cannot take back what it has committed; None of one that can."""


def left_behind(
    store: Store, paths: JobPaths, restored: Epoch, *, line: Line, known: Epoch, min_epoch: Epoch
) -> LeftBehind | None:
    """What restoring this epoch leaves behind; None if there is nothing newer.

    Newer epochs need not be in the store any more: ``known`` is the newest that the controller saw complete, and below
    ``min_epoch`` cleanup has taken what came after a savepoint.
    """
    found: dict[Epoch, Manifest | None] = {}
    new: list[Epoch] = []
    for epoch in list_epochs(store, paths, since=next_epoch(restored)).manifests:
        document = _read(store, paths, epoch)
        if isinstance(document, Seal):
            continue  # it never existed
        found[epoch] = document
        if not _was_left(line, epoch, document):
            new.append(epoch)
        if document is not None:
            min_epoch = max(min_epoch, document.min_epoch)
    for epoch in (known, Epoch(min_epoch - 1)):
        if epoch > restored and epoch not in found:
            found[epoch] = None
            if not line.went_below(epoch):
                new.append(epoch)
    if not found:
        return None
    counted = [found[epoch] for epoch in new or found]
    rows = Counter[str]()
    for manifest in counted:
        rows.update({} if manifest is None else rows_of_sinks(manifest))
    return LeftBehind(
        restored=restored,
        epochs=tuple(sorted(found)),
        new=tuple(sorted(new)),
        rows=rows,
        all_known=None not in counted,
    )


def rows_of_sinks(manifest: Manifest) -> dict[str, int]:
    """How many rows an epoch gave to each of its sinks."""
    return {
        name: sum(part.rows for table in tables for run in table.runs for part in run.parts)
        for name, state in manifest.operators.items()
        if (tables := [state.tables[table] for table in COMMITTED_TABLES if table in state.tables])
    }


def _read(store: Store, paths: JobPaths, epoch: Epoch) -> Manifest | Seal | None:
    """None of an epoch that is there, but cannot be read: nobody knows what its sinks have."""
    try:
        return resolve.read_epoch(store, paths, epoch)
    except (DocumentError, NewerDocumentError, ObjectMissingError):
        return None


def _was_left(line: Line, epoch: Epoch, manifest: Manifest | None) -> bool:
    return line.went_below(epoch) if manifest is None else line.left_behind(manifest) is not None


# --- what is said -----------------------------------------------------------------------------------------------------


def span(epochs: tuple[Epoch, ...]) -> str:
    first, last = epochs[0], epochs[-1]
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def plan(left: LeftBehind, sinks: Sinks) -> str:
    """What is taken back, and what is not."""
    said = [f"going back to {_target(left)} leaves {span(left.epochs)} behind"]
    if can := [name for name, why in sinks.items() if why is None]:
        said.append(f"taken back: what {_names(can)} wrote in {span(left.epochs)}")
    if cannot := [name for name, why in sinks.items() if why is not None and left.comes_twice(name)]:
        said.append("comes a second time: " + ", ".join(_twice(left, name) for name in cannot))
    return "; ".join(said)


def refusal(left: LeftBehind, sinks: Sinks) -> str | None:
    """Why this cannot be done before somebody has chosen; None if it can."""
    cannot = {name: why for name, why in sinks.items() if why is not None and left.comes_twice(name)}
    if not cannot:
        return None
    reasons = "; ".join(f"{_twice(left, name)}: {why}" for name, why in cannot.items())
    can = [name for name, why in sinks.items() if why is None]
    return (
        f"going back to {_target(left)} would leave {span(left.new or left.epochs)} behind, whose output is committed "
        f"and cannot be taken back everywhere. It would come a second time: {reasons}. "
        + (f"{_names(can)} would take back what was written since. " if can else "")
        + "Set restore.onCommittedOutput to Repeat if that may be"
    )


def _target(left: LeftBehind) -> str:
    return f"epoch {left.restored}" if left.restored else "the beginning"


def _names(sinks: list[str]) -> str:
    return ", ".join(f"sink {name!r}" for name in sinks)


def _twice(left: LeftBehind, sink: str) -> str:
    rows = left.rows.get(sink, 0)
    if left.all_known:
        return f"{rows} rows of sink {sink!r}"
    return f"at least {rows} rows of sink {sink!r}" if rows else f"an unknown number of rows of sink {sink!r}"
