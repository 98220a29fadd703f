"""Which epoch to restore: the newest that can be read, on the line that the job is on. Never empty by accident.

The cost does not grow with the job's history: one listing that starts at the newest epoch the caller knows of, and one
read. Only when that one is unusable does the search widen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from epochal.protocol.documents import DamageRecord, GenerationRecord, Manifest, Seal, decode, decode_any
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, Generation
from epochal.protocol.errors import DocumentError, NewerDocumentError, ObjectMissingError
from epochal.protocol.line import Line
from epochal.protocol.paths import CommittedName, DamagedName, JobPaths, ManifestName
from epochal.protocol.store import StoreReader


@dataclass(frozen=True, slots=True)
class Skipped:
    """An epoch that was not used, and why: for an event that people see."""

    epoch: Epoch
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """Epochs newer than ``restored`` whose output sinks may have.

    ``new`` are those that no generation has left behind before: it is still to be decided whether that may be done.
    ``rows`` is how many rows of these (of all, if none is new) each sink was given, as far as manifests tell; without
    ``all_known`` there may be more, because a manifest cannot be read or is gone.
    """

    restored: Epoch
    epochs: tuple[Epoch, ...]
    new: tuple[Epoch, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    all_known: bool = True

    def comes_twice(self, sink: str) -> bool:
        """Whether the sink may have rows of them."""
        return not self.all_known or self.rows.get(sink, 0) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Restore from this manifest. ``needs_commit``: its sinks are not known to have committed; do that first.
    ``savepoint``: the one that the manifest was read from, if it was. ``left``: what that leaves behind, where
    :func:`~epochal.protocol.start.start_generation` has looked."""

    manifest: Manifest
    needs_commit: bool
    skipped: tuple[Skipped, ...] = ()
    savepoint: str | None = None
    left: LeftBehind | None = None


@dataclass(frozen=True, slots=True)
class StartEmpty:
    """There is nothing to restore, and that is all right: a new job, or starting empty was allowed."""

    why: str
    skipped: tuple[Skipped, ...] = ()
    left: LeftBehind | None = None


@dataclass(frozen=True, slots=True)
class NothingToRestore:
    """There was state, and none of it can be used. Somebody has to look, or set ``allowEmptyStart``."""

    message: str
    skipped: tuple[Skipped, ...] = ()


Resolution = Found | StartEmpty | NothingToRestore


@dataclass(slots=True)
class _EpochsInStore:
    """What a listing of ``epochs/`` shows."""

    manifests: list[Epoch] = field(default_factory=list)
    committed: set[Epoch] = field(default_factory=set)
    damaged: set[Epoch] = field(default_factory=set)


def resolve(
    store: StoreReader,
    paths: JobPaths,
    *,
    known: Epoch = NO_EPOCH,
    min_epoch: Epoch = FIRST_EPOCH,
    allow_empty: bool = False,
    near: Generation | None = None,
) -> Resolution:
    """Find the epoch to restore.

    ``near`` is a number that the newest generation is not far from, if one is known.
    ``known`` is the newest epoch that the controller saw complete (0: none): the search begins there, and a store
    that has lost it is not taken for a new job. Below ``min_epoch`` there are no epochs, whatever stands in the store:
    cleanup may be at it, and where it took a seal away a zombie may have left its manifest. An epoch that a driver
    found damaged is not tried again.

    1. List the epochs from ``known`` on; read newest first until one is good.
    2. If none is, list and read the older ones as well.
    3. If none is, fall back on the savepoint that the job's line begins with, if it does.
    4. Otherwise start empty only if the job never had an epoch, or was allowed to start empty and has had none since,
       or the caller allows it.

    An error of the store itself is raised, never taken for a missing epoch; and so is :class:`NewerDocumentError`:
    whoever cannot read the newest epoch because its release is too old must not go back to an older one.
    """
    line = Line(store, paths, near=near)
    skipped: list[Skipped] = []
    # Step 1
    recent = list_epochs(store, paths, since=known) if known else _EpochsInStore()
    if found := _newest_good(store, paths, line, recent, min_epoch, skipped):
        return found
    # Step 2
    everything = list_epochs(store, paths)
    seen = set(recent.manifests)
    everything.manifests = [epoch for epoch in everything.manifests if epoch not in seen]
    if found := _newest_good(store, paths, line, everything, min_epoch, skipped):
        return found
    # Step 3
    turn = line.newest_turn()
    if turn and (found := _base(store, paths, turn, skipped)):
        return found
    # Step 4
    if not had_epochs(known, skipped):
        return StartEmpty("the job has no epoch yet")
    if turn and turn.back_to == NO_EPOCH and not came_after(turn, known, skipped):
        return StartEmpty(
            f"generation {turn.generation} was allowed to start empty, and no epoch came after", tuple(skipped)
        )
    if allow_empty:
        return StartEmpty("no epoch can be read, and starting empty is allowed", tuple(skipped))
    return NothingToRestore(_why_nothing(known, skipped), tuple(skipped))


def had_epochs(known: Epoch, skipped: Sequence[Skipped]) -> bool:
    """Whether the job ever had state: the controller has seen an epoch, or one is there that cannot be used."""
    return bool(known) or bool(skipped)


def came_after(turn: GenerationRecord, known: Epoch, skipped: Iterable[Skipped]) -> bool:
    """Whether the job has had an epoch since it was allowed to start empty: then to be empty again is an accident."""
    return max([known, *(skip.epoch for skip in skipped)]) > turn.issued


def _why_nothing(known: Epoch, skipped: list[Skipped]) -> str:
    newest = max([known, *(skip.epoch for skip in skipped)])
    reasons = "; ".join(f"epoch {skip.epoch}: {skip.why}" for skip in skipped[:3])
    return (
        f"the job had state (up to epoch {newest}), and none of it can be restored"
        + (f" ({reasons})" if reasons else ": the store has no epoch of it")
        + "; check the storage URI, or set allowEmptyStart to begin without state"
    )


def resolve_epoch(
    store: StoreReader, paths: JobPaths, epoch: Epoch, *, min_epoch: Epoch = FIRST_EPOCH
) -> Found | NothingToRestore:
    """Go back to exactly this epoch."""
    if epoch < min_epoch:
        why = f"it is older than epoch {min_epoch}, the oldest that is kept"
        return NothingToRestore(f"epoch {epoch} cannot be restored: {why}", (Skipped(epoch, why),))
    try:
        document = read_epoch(store, paths, epoch)
    except (DocumentError, ObjectMissingError) as error:
        return NothingToRestore(f"epoch {epoch} cannot be restored: {error}", (Skipped(epoch, str(error)),))
    if isinstance(document, Seal):
        return NothingToRestore(f"epoch {epoch} never completed", (Skipped(epoch, "never completed"),))
    listed = list_epochs(store, paths, since=epoch)
    if epoch in listed.damaged:
        why = why_damaged(store, paths, epoch)
        return NothingToRestore(f"epoch {epoch} cannot be restored: {why}", (Skipped(epoch, why),))
    return Found(manifest=document, needs_commit=epoch not in listed.committed)


def resolve_savepoint(store: StoreReader, paths: JobPaths, name: str, epoch: Epoch) -> Found | NothingToRestore:
    """Go back to a savepoint, which holds ``epoch``. If the record of its commit is gone, with the epoch, its sinks are
    committed again: that is harmless."""
    try:
        manifest = read_savepoint(store, paths, name)
    except (DocumentError, ObjectMissingError) as error:
        return NothingToRestore(f"savepoint {name!r} cannot be restored: {error}")
    if manifest.epoch != epoch:
        return NothingToRestore(f"savepoint {name!r} holds epoch {manifest.epoch}, not {epoch}: it was made anew")
    if store.exists(paths.damaged(epoch)):
        return NothingToRestore(f"savepoint {name!r} cannot be restored: {why_damaged(store, paths, epoch)}")
    committed = list_epochs(store, paths, since=epoch).committed
    return Found(manifest=manifest, needs_commit=epoch not in committed, savepoint=name)


def why_damaged(store: StoreReader, paths: JobPaths, epoch: Epoch) -> str:
    """What a driver has noted of an epoch that it could not restore."""
    name = paths.damaged(epoch)
    try:
        record = decode(name, store.get(name), DamageRecord)
    except (DocumentError, NewerDocumentError, ObjectMissingError) as error:
        return f"it is damaged ({error})"
    return f"{record.object} {record.problem} (if it is whole again, delete {name})"


def uncommitted_epoch(
    store: StoreReader,
    paths: JobPaths,
    *,
    known: Epoch = NO_EPOCH,
    min_epoch: Epoch = FIRST_EPOCH,
    near: Generation | None = None,
) -> Epoch | None:
    """The newest epoch of the job's line, if its sinks are not known to have committed. A job without a driver may not
    rest before it is: nobody else would ever bring these rows to the sinks.

    That ``committed.json`` is there says it; what is in it does not matter. It is written after the last sink.
    """
    try:
        found = resolve(store, paths, known=known, min_epoch=min_epoch, near=near)
    except NewerDocumentError as error:
        # Only its own release can restore it. Whether it is committed shows without that.
        name = paths.parse(error.name)
        if not isinstance(name, ManifestName):
            raise
        return None if name.epoch in list_epochs(store, paths, since=name.epoch).committed else name.epoch
    return found.manifest.epoch if isinstance(found, Found) and found.needs_commit else None


def read_epoch(store: StoreReader, paths: JobPaths, epoch: Epoch) -> Manifest | Seal:
    name = paths.manifest(epoch)
    document = decode_any(name, store.get(name))
    if not isinstance(document, Manifest | Seal):
        raise DocumentError(name, f"holds a {type(document).__name__}, not a Manifest")
    if document.epoch != epoch:
        raise DocumentError(name, f"holds epoch {document.epoch}, not {epoch}: the object was copied or renamed")
    return document


def read_savepoint(store: StoreReader, paths: JobPaths, name: str) -> Manifest:
    object_name = paths.savepoint(name)
    return decode(object_name, store.get(object_name), Manifest)


def list_epochs(store: StoreReader, paths: JobPaths, *, since: Epoch = NO_EPOCH) -> _EpochsInStore:
    """Which epochs have a manifest (or a seal) and which are committed, oldest first, by one listing."""
    found = _EpochsInStore()
    names = store.list_names(paths.epochs, after=paths.before_epoch(since) if since else None)
    for name in paths.recognised(names):
        match name:
            case ManifestName(epoch):
                found.manifests.append(epoch)
            case CommittedName(epoch):
                found.committed.add(epoch)
            case DamagedName(epoch):
                found.damaged.add(epoch)
            case _:
                pass
    return found


def newest_epoch_number(store: StoreReader, paths: JobPaths, *, known: Epoch = NO_EPOCH) -> Epoch:
    """The highest number that stands in the store, sealed and unreadable ones included."""
    recent = list_epochs(store, paths, since=known).manifests
    return max([known, *recent])


def _newest_good(
    store: StoreReader, paths: JobPaths, line: Line, epochs: _EpochsInStore, min_epoch: Epoch, skipped: list[Skipped]
) -> Found | None:
    for epoch in sorted(epochs.manifests, reverse=True):
        if not can_be_an_epoch(epoch, min_epoch):
            skipped.append(Skipped(epoch, f"left out: epochs from {min_epoch} on are kept"))
            continue
        if epoch in epochs.damaged:
            skipped.append(Skipped(epoch, why_damaged(store, paths, epoch)))
            continue
        try:
            document = read_epoch(store, paths, epoch)
        except (DocumentError, ObjectMissingError) as error:
            skipped.append(Skipped(epoch, str(error)))
            continue
        except NewerDocumentError as error:
            if error.kind == Seal.__name__:
                continue
            if not line.went_below(epoch):
                raise
            skipped.append(Skipped(epoch, "a later generation went back to an epoch before it"))
            continue
        if isinstance(document, Seal):
            continue  # it never existed
        if why := line.left_behind(document):
            skipped.append(Skipped(epoch, why))
            continue
        turn = line.turn_to(document)
        if turn and epoch != turn.back_to and (found := _base(store, paths, turn, skipped)):
            return found  # newer than this epoch, and the one that was gone back to is not readable here
        return Found(manifest=document, needs_commit=epoch not in epochs.committed, skipped=tuple(skipped))
    return None


def can_be_an_epoch(epoch: Epoch, min_epoch: Epoch) -> bool:
    return epoch >= min_epoch


def _base(store: StoreReader, paths: JobPaths, turn: GenerationRecord, skipped: list[Skipped]) -> Found | None:
    """The savepoint that this generation went back to, if it was one and is still there."""
    if turn.savepoint is None or not turn.back_to:
        return None
    found = resolve_savepoint(store, paths, turn.savepoint, turn.back_to)
    if isinstance(found, NothingToRestore):
        skipped.append(Skipped(turn.back_to, found.message))
        return None
    return replace(found, skipped=tuple(skipped))
