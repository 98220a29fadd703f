"""Deleting what only epochs below ``min_epoch`` refer to.

Everything is classified before anything is deleted, and manifests go first, oldest first: whoever finds a manifest
finds all that it names. Stopped anywhere and run again, cleanup ends in the same place.

A state object may go when no kept epoch and no savepoint refers to it **and** the epoch that wrote it is below
``min_epoch``. The second half protects what a driver is writing at this moment: an epoch that is not published yet.

A driver has its part in this. It may use a run again that an epoch wrote which then failed; but once epoch L is
published, a run whose object is not in manifest L and was written before L counts as not written: nothing that is kept
names that object, so cleanup may take it at any time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from epochal.protocol.documents import Manifest, Seal
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import DocumentError, InvalidNameError, NewerDocumentError, ObjectMissingError
from epochal.protocol.paths import (
    CommittedName,
    DamagedName,
    GenerationName,
    JobPaths,
    ManifestName,
    ObjectName,
    SavepointName,
    StateName,
)
from epochal.protocol.resolve import read_epoch, read_savepoint
from epochal.protocol.savepoints import list_savepoints
from epochal.protocol.store import ObjectInfo, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What goes, in the order in which it goes; and what was found that belongs to nobody (it stays)."""

    min_epoch: Epoch
    manifests: tuple[str, ...]
    records: tuple[str, ...]
    state: tuple[ObjectInfo, ...]
    generations: tuple[str, ...]
    kept_savepoints: frozenset[str]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    min_epoch: Epoch
    epochs: int
    objects: int
    bytes: int
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotCleaned:
    """Nothing was deleted: it could not be shown that nothing needed would go."""

    message: str


@dataclass(slots=True)
class _Inventory:
    manifests: list[Epoch] = field(default_factory=list)
    records: list[tuple[Epoch, str]] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)
    state: list[tuple[StateName, ObjectInfo]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def clean(
    store: Store, paths: JobPaths, min_epoch: Epoch, *, on_progress: Callable[[int, int], None] | None = None
) -> Cleaned | NotCleaned:
    """Delete what no epoch from ``min_epoch`` on, and no savepoint, needs.

    1. Classify everything.
    2. Delete the manifests below ``min_epoch``, oldest first, then what was noted of them: commits and damage.
    3. Look at the savepoints again: one made since step 1 keeps what it refers to.
    4. Delete the state objects.
    5. Delete the records of generations older than every epoch that is left.

    ``on_progress(deleted, total)`` is called after each batch.
    """
    # Step 1
    plan = classify(store, paths, min_epoch)
    if isinstance(plan, NotCleaned):
        return plan
    total = len(plan.manifests) + len(plan.records) + len(plan.state) + len(plan.generations)
    deleted = 0

    def delete(names: Iterable[str]) -> None:
        nonlocal deleted
        batch = list(names)
        store.delete(batch)
        deleted += len(batch)
        if on_progress:
            on_progress(deleted, total)

    # Step 2
    delete(plan.manifests)
    delete(plan.records)
    # Step 3
    try:
        late = _late_savepoints(store, paths, plan)
    except (DocumentError, NewerDocumentError) as error:
        return NotCleaned(f"a savepoint made during cleanup cannot be read: {error}")
    state = [info for info in plan.state if info.name not in late]
    # Step 4
    delete(info.name for info in state)
    # Step 5
    if not late:
        delete(plan.generations)
    return Cleaned(
        min_epoch=min_epoch,
        epochs=len(plan.manifests),
        objects=deleted,
        bytes=sum(info.size for info in state),
        unknown=plan.unknown,
    )


def classify(store: Store, paths: JobPaths, min_epoch: Epoch) -> CleanupPlan | NotCleaned:
    """Decide what goes and what stays, without deleting anything."""
    inventory = _take_inventory(store, paths)
    kept: list[Manifest] = []
    for epoch in inventory.manifests:
        if epoch < min_epoch:
            continue
        try:
            document = read_epoch(store, paths, epoch)
        except (DocumentError, NewerDocumentError) as error:
            return NotCleaned(f"epoch {epoch} is kept but cannot be read, so what it needs is not known: {error}")
        except ObjectMissingError:
            return NotCleaned(f"epoch {epoch} went away during cleanup: is another cleanup running?")
        if not isinstance(document, Seal):
            kept.append(document)
    if not kept:
        return NotCleaned(f"no epoch from {min_epoch} on can be restored: deleting older ones would lose all state")
    saved: list[Manifest] = []
    for name in inventory.savepoints:
        try:
            saved.append(read_savepoint(store, paths, name))
        except DocumentError as error:
            return NotCleaned(
                f"savepoint {name!r} cannot be read, so what it needs is not known; delete it to go on: {error}"
            )
        except NewerDocumentError as error:
            return NotCleaned(f"savepoint {name!r} cannot be read, so what it needs is not known: {error}")
        except ObjectMissingError:
            continue  # deleted by its owner meanwhile
    needed = _needed([*kept, *saved])
    oldest_generation = min(manifest.generation for manifest in [*kept, *saved])
    return CleanupPlan(
        min_epoch=min_epoch,
        manifests=tuple(paths.manifest(epoch) for epoch in inventory.manifests if epoch < min_epoch),
        records=tuple(name for epoch, name in inventory.records if epoch < min_epoch),
        state=tuple(info for name, info in inventory.state if is_garbage(name, info, min_epoch, needed)),
        generations=tuple(
            paths.generation(generation) for generation in inventory.generations if generation < oldest_generation
        ),
        kept_savepoints=frozenset(inventory.savepoints),
        unknown=tuple(inventory.unknown),
    )


def is_garbage(name: StateName, info: ObjectInfo, min_epoch: Epoch, needed: set[str]) -> bool:
    return name.epoch < min_epoch and info.name not in needed


def _needed(manifests: Iterable[Manifest]) -> set[str]:
    return set().union(*(manifest.objects() for manifest in manifests))


def _late_savepoints(store: Store, paths: JobPaths, plan: CleanupPlan) -> set[str]:
    """What savepoints need that were made after the plan."""
    needed: set[str] = set()
    for name in list_savepoints(store, paths):
        if name not in plan.kept_savepoints:
            try:
                needed |= read_savepoint(store, paths, name).objects()
            except ObjectMissingError:
                continue  # taken back: it came too late
    return needed


def _take_inventory(store: Store, paths: JobPaths) -> _Inventory:
    inventory = _Inventory()
    for info in store.list_objects(paths.prefix):
        try:
            name: ObjectName = paths.parse(info.name)
        except InvalidNameError:
            inventory.unknown.append(info.name)
            continue
        match name:
            case ManifestName(epoch):
                inventory.manifests.append(epoch)
            case CommittedName(epoch) | DamagedName(epoch):
                inventory.records.append((epoch, info.name))
            case GenerationName(generation):
                inventory.generations.append(generation)
            case SavepointName(savepoint):
                inventory.savepoints.append(savepoint)
            case StateName():
                inventory.state.append((name, info))
    return inventory
