"""How an epoch becomes real, and who may make it so.

Safety rests on two facts and on nobody's memory: an object is created once, and a generation's number only grows.
A driver claims its generation before it does anything, and *seals* the epochs that older generations were still
making: an object stands where their manifest would be, so the store itself refuses a zombie's late manifest.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from epochal.protocol.documents import (
    CommitRecord,
    DamageRecord,
    GenerationRecord,
    Manifest,
    Seal,
    decode_any,
    encode,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import DocumentError, NewerDocumentError
from epochal.protocol.generations import (
    NO_GENERATION,
    Generations,
    Unreadable,
    newest_generation,
    page_of_generations,
    repeats,
)
from epochal.protocol.paths import JobPaths
from epochal.protocol.store import Created, Exists, Store, StoreReader


@dataclass(frozen=True, slots=True)
class Published:
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Fenced:
    """A newer generation (or another driver of the same one) has taken over: this driver must stop itself, now.

    If its manifest got into the store before that, the newer generation has found it there and commits its sinks.
    """

    by: Generation
    message: str


@dataclass(frozen=True, slots=True)
class EpochTaken:
    """The epoch's number is used already, by this generation or an older one. Numbers are given once, so this is a
    defect or a lost record on the controller's side; the driver keeps what it has and refuses the epoch."""

    epoch: Epoch
    message: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The epoch is sealed: whatever is still on its way to the store, it will never exist."""

    epoch: Epoch


def claim_generation(store: Store, paths: JobPaths, record: GenerationRecord) -> Fenced | None:
    """Become the driver of ``record.generation``; None if that worked.

    1. Take the numbers of older generations that never began: one record after the newest stands for all of them. A
       driver that was asked for and comes up only now must pass that record, and finds that it is too late. So
       records come in the order of their numbers, and what each says of those before it stays true.
    2. Create the generation's record, which says who went back last. One of two drivers of the same generation loses
       here.
    3. See that no newer generation has begun.
    4. See that the store would have refused a second driver: all else here rests on that. The record itself is what is
       created again, so that no other object is needed.
    """
    # Step 1
    found = retire_generations(store, paths, record)
    if isinstance(found, Fenced):
        return found
    # Step 2
    record = _after(record, found)
    name, data = paths.generation(record.generation), encode(record)
    match store.create(name, data):
        case Exists():
            return Fenced(record.generation, f"generation {record.generation} has a driver already")
        case Created():
            pass
    # Step 3
    if fenced := newer_generation(store, paths, record.generation):
        return fenced
    # Step 4
    # The same but for who wrote it: where it is written after all, it still says how the job's line goes.
    store.check_create(name, data, encode(replace(record, claim=f"{record.claim}-again")))
    return None


def retire_generations(store: Store, paths: JobPaths, by: GenerationRecord) -> Generations | Fenced:
    """Close the gap between the newest generation and this one. Whoever wants to go on from the newest has to create
    the record after it: one wins, and everybody else goes on from there."""
    newest = newest_generation(store, paths, near=by.generation, before=by.generation)
    while True:
        found = Generations(store, paths, newest)
        last = found.read(newest) if newest else None
        following = newest + 1
        if isinstance(last, GenerationRecord) and last.retired_until:
            following = last.retired_until
        if following > by.generation:
            return _taken_over(Generation(following), by.generation)
        if following == by.generation:
            return found
        newest = Generation(following)
        record = GenerationRecord(
            generation=newest,
            claim=by.claim,
            created=by.created,
            writer=by.writer,
            issued=by.issued,
            last_turn=_number(found.last_turn()),
            retired_until=by.generation,
        )
        store.create(paths.generation(newest), encode(record))  # one that is there already stays: go on from that


def _after(record: GenerationRecord, found: Generations) -> GenerationRecord:
    """With what it says of the generations before it."""
    turn = found.last_turn()
    if isinstance(turn, GenerationRecord) and turn.last_turn is not None and repeats(record, turn):
        return replace(record, last_turn=turn.last_turn)
    return replace(record, last_turn=_number(turn))


def _number(turn: GenerationRecord | Unreadable | None) -> Generation:
    return turn.generation if turn else NO_GENERATION


def newer_generation(store: StoreReader, paths: JobPaths, generation: Generation) -> Fenced | None:
    """The fence: whether a newer generation has begun. One request, however many there were before or since."""
    newer = page_of_generations(store, paths, after=generation).generations
    return _taken_over(newer[-1], generation) if newer else None


def _taken_over(newest: Generation, generation: Generation) -> Fenced:
    return Fenced(newest, f"generation {newest} has taken over from generation {generation}")


def seal(store: Store, paths: JobPaths, seal: Seal) -> bool:
    """Take the place of an epoch's manifest, so that no older generation can publish it any more.

    False if a manifest is there already: then that epoch exists, and restoring may find it.
    """
    name = paths.manifest(seal.epoch)
    match store.create(name, encode(seal)):
        case Created():
            return True
        case Exists(data):
            try:
                return isinstance(decode_any(name, data), Seal)
            except (DocumentError, NewerDocumentError):
                return False  # unreadable, but it is there: nobody else can publish this epoch


def publish(store: Store, paths: JobPaths, manifest: Manifest) -> Published | Fenced | EpochTaken:
    """Make ``manifest.epoch`` real. All state objects that it names must be in the store.

    1. Look at the fence: a newer generation means that it is not ours to publish.
    2. Create the manifest. The store lets exactly one writer win: this PUT is the commit point.
    3. Look at the fence again. A generation that began between 1 and 2 may have restored without seeing this manifest,
       so its sinks must not be committed from here. If it has seen it, it commits them itself.

    Sending the same manifest again is harmless: the answer is the same.

    Commit the sinks of a published epoch before publishing the next: a restore commits those of the newest epoch only.
    After an error of the store nobody knows whether step 2 took effect: call :func:`give_up` before saying that the
    epoch failed.
    """
    # Step 1
    if fenced := newer_generation(store, paths, manifest.generation):
        return fenced
    # Step 2
    name = paths.manifest(manifest.epoch)
    match store.create(name, encode(manifest)):
        case Exists(data):
            return _lost(name, data, manifest)
        case Created():
            pass
    # Step 3
    if fenced := newer_generation(store, paths, manifest.generation):
        return fenced
    return Published(manifest.epoch)


def give_up(store: Store, paths: JobPaths, manifest: Manifest) -> GivenUp | Published | Fenced | EpochTaken:
    """Find out what became of an epoch whose publishing failed, and make sure that it stays so.

    1. Seal it: a manifest that is still on its way comes too late now.
    2. If a manifest is there already, the epoch exists after all: publish it again, which says whose it is.
    """
    # Step 1
    if seal(store, paths, Seal(epoch=manifest.epoch, generation=manifest.generation, claim=manifest.claim)):
        return GivenUp(manifest.epoch)
    # Step 2
    return publish(store, paths, manifest)


def _lost(name: str, data: bytes, manifest: Manifest) -> Fenced | EpochTaken:
    try:
        winner = decode_any(name, data)
    except (DocumentError, NewerDocumentError) as error:
        return EpochTaken(manifest.epoch, f"epoch {manifest.epoch} is taken by an object that cannot be read: {error}")
    if isinstance(winner, Manifest | Seal) and (
        winner.generation > manifest.generation
        or (winner.generation == manifest.generation and winner.claim != manifest.claim)
    ):
        return Fenced(
            winner.generation,
            f"generation {winner.generation} has {'sealed' if isinstance(winner, Seal) else 'published'} "
            f"epoch {manifest.epoch}",
        )
    return EpochTaken(
        manifest.epoch,
        f"epoch {manifest.epoch} was published by generation {getattr(winner, 'generation', '?')} already",
    )


def record_damage(store: Store, paths: JobPaths, record: DamageRecord) -> None:
    """Note that the epoch cannot be restored. Who has found that first says why."""
    store.create(paths.damaged(record.epoch), encode(record))


def record_commit(store: Store, paths: JobPaths, record: CommitRecord) -> None:
    """Note that all sinks of the epoch have committed. Whoever comes second finds that it is done: that is success."""
    store.create(paths.committed(record.epoch), encode(record))
