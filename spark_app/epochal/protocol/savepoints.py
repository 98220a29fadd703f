"""Savepoints: epochs that cleanup never takes, until their owner deletes them."""

from dataclasses import dataclass

from epochal.protocol.documents import Manifest, Seal, decode, encode
from epochal.protocol.epochs import Epoch
from epochal.protocol.errors import DocumentError, NewerDocumentError, ObjectMissingError
from epochal.protocol.paths import JobPaths, SavepointName
from epochal.protocol.resolve import read_epoch, read_savepoint
from epochal.protocol.store import Created, Exists, Store


@dataclass(frozen=True, slots=True)
class Pinned:
    name: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class NotPinned:
    message: str


def pin(store: Store, paths: JobPaths, name: str, epoch: Epoch) -> Pinned | NotPinned:
    """Make a savepoint of an epoch.

    1. Read the epoch's manifest.
    2. Create the savepoint: a copy of it.
    3. See that the manifest is still there. Cleanup deletes manifests before it looks at savepoints for the last
       time, so either it finds this savepoint, or the manifest is gone now and the savepoint, which came too late, is
       taken back.

    The same savepoint of the same epoch again is a success.
    """
    # Step 1
    try:
        manifest = read_epoch(store, paths, epoch)
    except ObjectMissingError as error:
        _take_back_if_empty(store, paths, name, epoch)
        return NotPinned(f"epoch {epoch} cannot be kept as a savepoint: {error}")
    except (DocumentError, NewerDocumentError) as error:
        return NotPinned(f"epoch {epoch} cannot be kept as a savepoint: {error}")
    if isinstance(manifest, Seal):
        return NotPinned(f"epoch {epoch} never completed")
    # Step 2
    made = store.create(paths.savepoint(name), encode(manifest))
    again = isinstance(made, Exists) and _is_of(made, paths.savepoint(name), manifest)
    if isinstance(made, Exists) and not again:
        return NotPinned(f"savepoint {name!r} exists and is of another epoch: delete it first, or use another name")
    # Step 3
    if not still_there(store, paths, epoch):
        if isinstance(made, Created) and not made.again:  # otherwise it may be another caller's, who was in time
            unpin(store, paths, name)
        return NotPinned(f"epoch {epoch} was cleaned up meanwhile")
    return Pinned(name, epoch)


def _is_of(made: Exists, name: str, manifest: Manifest) -> bool:
    """Whether this is what a savepoint has. Another release may have written the same in other bytes."""
    try:
        return decode(name, made.data, Manifest) == manifest
    except (DocumentError, NewerDocumentError):
        return False


def _take_back_if_empty(store: Store, paths: JobPaths, name: str, epoch: Epoch) -> None:
    """A call that died before its step 3 may have left a savepoint that came too late. If what it refers to is gone, so
    must it be. (If it is all there, the savepoint may be somebody's: it stays.)"""
    try:
        manifest = read_savepoint(store, paths, name)
    except (DocumentError, NewerDocumentError, ObjectMissingError):
        return
    if manifest.epoch == epoch and not manifest.objects() <= set(store.list_names(paths.state)):
        unpin(store, paths, name)


def still_there(store: Store, paths: JobPaths, epoch: Epoch) -> bool:
    try:
        store.get(paths.manifest(epoch))
    except ObjectMissingError:
        return False
    return True


def unpin(store: Store, paths: JobPaths, name: str) -> None:
    """Delete a savepoint. What only it refers to goes with the next cleanup."""
    store.delete([paths.savepoint(name)])


def list_savepoints(store: Store, paths: JobPaths) -> list[str]:
    names = paths.recognised(store.list_names(paths.savepoints))
    return [name.savepoint for name in names if isinstance(name, SavepointName)]
