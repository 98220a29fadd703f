"""How a generation begins: claim, seal, resolve. What comes back is the only thing a driver may start from."""

from dataclasses import dataclass

from epochal.protocol.documents import GenerationRecord, Seal
from epochal.protocol.epochs import NO_EPOCH, Epoch, next_epoch
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import Fenced, claim_generation, seal
from epochal.protocol.resolve import (
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

    ``known`` is the newest epoch it saw complete, ``issued`` the highest number it ever gave out. ``record`` says
    whether to go back, and to what.
    """

    record: GenerationRecord
    known: Epoch = NO_EPOCH
    issued: Epoch = NO_EPOCH
    allow_empty: bool = False


def start_generation(store: Store, paths: JobPaths, request: StartRequest) -> Resolution | Fenced:
    """Begin a generation.

    1. Claim it: from here on, older generations see the fence.
    2. Seal every epoch that was given out and is not in the store: an older driver that looked at the fence before
       step 1 cannot publish it any more.
    3. Resolve. Nobody but this generation can add an epoch now, so the answer stays true.
    """
    record = request.record
    # Step 1
    if fenced := claim_generation(store, paths, record):
        return fenced
    # Step 2
    epoch = newest_epoch_number(store, paths, known=request.known)
    while epoch < request.issued:
        epoch = next_epoch(epoch)
        seal(store, paths, Seal(epoch=epoch, generation=record.generation, claim=record.claim))
    # Step 3
    if record.savepoint is not None:
        return resolve_savepoint(store, paths, record.savepoint)
    if record.back_to:
        return resolve_epoch(store, paths, record.back_to)
    return resolve(store, paths, known=request.known, allow_empty=request.allow_empty or record.back_to == NO_EPOCH)
