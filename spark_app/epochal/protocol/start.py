"""How a generation begins: claim, seal, resolve. What comes back is the only thing a driver may start from."""

from dataclasses import dataclass

from msgspec.structs import replace

from epochal.protocol.documents import GenerationRecord, Seal
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, next_epoch
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import Fenced, claim_generation, seal
from epochal.protocol.resolve import (
    Found,
    NothingToRestore,
    Resolution,
    newest_epoch_number,
    resolve,
    resolve_epoch,
    resolve_savepoint,
)
from epochal.protocol.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What the controller knows when it starts a generation.

    ``known`` is the newest epoch it saw complete, ``issued`` the highest number it ever gave out, ``min_epoch`` the
    oldest that is kept. ``record`` says whether to go back, and to what.
    """

    record: GenerationRecord
    known: Epoch = NO_EPOCH
    issued: Epoch = NO_EPOCH
    min_epoch: Epoch = FIRST_EPOCH
    allow_empty: bool = False


def start_generation(store: Store, paths: JobPaths, request: StartRequest) -> Resolution | Fenced:
    """Begin a generation.

    1. If it is to go back, see that what it goes back to is there. From step 2 on the job's line ends there, also for
       later generations, so a mistake must be found before.
    2. Claim it: from here on, older generations see the fence.
    3. Seal every epoch that was given out and is not in the store: an older driver that looked at the fence before
       step 2 cannot publish it any more.
    4. Resolve. Nobody but this generation can add an epoch now, so the answer stays true.
    """
    record = replace(request.record, issued=request.issued)
    if record.savepoint is not None and not record.back_to:
        raise ValueError(f"savepoint {record.savepoint!r} is to be restored: back_to must say which epoch it holds")
    # Step 1
    if isinstance(target := _target(store, paths, record, request.min_epoch), NothingToRestore):
        return target
    # Step 2
    if fenced := claim_generation(store, paths, record):
        return fenced
    # Step 3
    epoch = newest_epoch_number(store, paths, known=request.known)
    while epoch < request.issued:
        epoch = next_epoch(epoch)
        seal(store, paths, Seal(epoch=epoch, generation=record.generation, claim=record.claim))
    # Step 4
    allow_empty = request.allow_empty or record.back_to == NO_EPOCH
    return _target(store, paths, record, request.min_epoch) or resolve(
        store, paths, known=request.known, min_epoch=request.min_epoch, allow_empty=allow_empty
    )


def _target(
    store: Store, paths: JobPaths, record: GenerationRecord, min_epoch: Epoch
) -> Found | NothingToRestore | None:
    """What the generation is told to go back to; None if it is not, or to nothing."""
    if not record.back_to:
        return None
    if record.savepoint is not None:
        return resolve_savepoint(store, paths, record.savepoint, record.back_to)
    return resolve_epoch(store, paths, record.back_to, min_epoch=min_epoch)
