"""How a generation begins: look, claim, seal, resolve. What comes back is the only thing a driver may start from."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from epochal.protocol.documents import GenerationRecord, Seal
from epochal.protocol.epochs import FIRST_EPOCH, NO_EPOCH, Epoch, next_epoch
from epochal.protocol.going_back import left_behind, refusal
from epochal.protocol.line import Line
from epochal.protocol.paths import JobPaths
from epochal.protocol.publish import Fenced, claim_generation, seal
from epochal.protocol.resolve import (
    Found,
    NothingToRestore,
    Resolution,
    Skipped,
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
    oldest that is kept. ``record`` says whether to go back, and to what. ``sinks`` are those of the pipeline: by name,
    why one cannot take back what it has committed, or None. ``repeat``: the spec has chosen that these may get rows a
    second time.
    """

    record: GenerationRecord
    known: Epoch = NO_EPOCH
    issued: Epoch = NO_EPOCH
    min_epoch: Epoch = FIRST_EPOCH
    allow_empty: bool = False
    sinks: Mapping[str, str | None] = field(default_factory=dict)
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class WouldRepeat:
    """Going back would bring committed output a second time, and nobody has said that it may. Nothing was changed."""

    message: str


def start_generation(store: Store, paths: JobPaths, request: StartRequest) -> Resolution | WouldRepeat | Fenced:
    """Begin a generation.

    1. Look what would be restored, and what that would leave behind. If it is not all there, or if output would come a
       second time and nobody has chosen that, this is the end: nothing has been changed.
    2. Claim the generation: from here on, older generations see the fence. If anything is left behind, the record says
       so: the job's line ends at the restored epoch, also for later generations. So what is newer is never restored or
       committed again, and nobody has to decide about it a second time.
    3. Seal every epoch that was given out and is not in the store: an older driver that looked at the fence before
       step 2 cannot publish it any more.
    4. Resolve. Nobody but this generation can add an epoch now, so the answer stays true.
    5. Look again what is newer than that: the caller's sinks take it back, before they commit anything. A generation
       that ends before that is done leaves it to the next one, which finds the same. Once a new epoch is published,
       nothing is newer: so output of the new line is never taken back.
    """
    record = replace(request.record, issued=request.issued)
    if record.savepoint is not None and not record.back_to:
        raise ValueError(f"savepoint {record.savepoint!r} is to be restored: back_to must say which epoch it holds")
    # Step 1
    found = _found(store, paths, request, record)
    if isinstance(found, NothingToRestore):
        return found
    asked = found if record.back_to and isinstance(found, Found) else None
    if asked and (refused := _is_incomplete(store, paths, asked) or _was_taken_back(store, paths, request, asked)):
        return refused
    if left := found.left:
        if left.new and not request.repeat and (why := refusal(left, request.sinks)):
            return WouldRepeat(why + _why_older(found.skipped))
        record = replace(record, issued=max(record.issued, *left.epochs))
        if left.new and record.back_to is None:
            savepoint = found.savepoint if isinstance(found, Found) else None
            record = replace(record, back_to=left.restored, savepoint=savepoint, unasked=True)
    # Step 2
    if fenced := claim_generation(store, paths, record):
        return fenced
    # Step 3
    epoch = newest_epoch_number(store, paths, known=request.known)
    while epoch < request.issued:
        epoch = next_epoch(epoch)
        seal(store, paths, Seal(epoch=epoch, generation=record.generation, claim=record.claim))
    # Steps 4 and 5
    found = _found(store, paths, request, record)
    if not isinstance(found, NothingToRestore) and found.left and found.left.new:
        return Fenced(record.generation, f"another driver was at work while generation {record.generation} began")
    return found


def _found(store: Store, paths: JobPaths, request: StartRequest, record: GenerationRecord) -> Resolution:
    """What this generation restores, and what that leaves behind."""
    found: Resolution
    if not record.back_to or record.unasked:
        allow_empty = request.allow_empty or record.back_to == NO_EPOCH
        found = resolve(
            store,
            paths,
            known=request.known,
            min_epoch=request.min_epoch,
            allow_empty=allow_empty,
            near=record.generation,
        )
    elif record.savepoint is not None:
        found = resolve_savepoint(store, paths, record.savepoint, record.back_to)
    else:
        found = resolve_epoch(store, paths, record.back_to, min_epoch=request.min_epoch)
    if isinstance(found, NothingToRestore):
        return found
    restored = found.manifest.epoch if isinstance(found, Found) else NO_EPOCH
    line = Line(store, paths, near=record.generation)
    left = left_behind(store, paths, restored, line=line, known=request.known, min_epoch=request.min_epoch)
    return dataclasses.replace(found, left=left)


def _is_incomplete(store: Store, paths: JobPaths, found: Found) -> NothingToRestore | None:
    """Whoever asks for an epoch is told before anything is left behind for it."""
    manifest = found.manifest
    missing = manifest.objects() - set(store.list_names(paths.state))
    if not missing:
        return None
    why = f"{min(missing)} is missing"
    return NothingToRestore(
        f"epoch {manifest.epoch} cannot be restored: {why}, one of {len(missing)} objects",
        (Skipped(manifest.epoch, why),),
    )


def _was_taken_back(store: Store, paths: JobPaths, request: StartRequest, found: Found) -> NothingToRestore | None:
    """An epoch that was left behind before: what sinks wrote up to it was taken back, and would be missing."""
    if all(why is not None for why in request.sinks.values()):
        return None
    why = Line(store, paths, near=request.record.generation).left_behind(found.manifest)
    if why is None:
        return None
    epoch = found.manifest.epoch
    message = (
        f"epoch {epoch} cannot be restored: {why}, so sinks have taken back what they wrote up to epoch {epoch}, and "
        "it would be missing. Choose an epoch that the job still stands on (`epochal checkpoints` shows them)"
    )
    return NothingToRestore(message, (Skipped(epoch, why),))


def _why_older(skipped: tuple[Skipped, ...]) -> str:
    if not skipped:
        return ""
    return ". Not used: " + "; ".join(f"epoch {skip.epoch}: {skip.why}" for skip in skipped[:3])
