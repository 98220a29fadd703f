"""The JSON objects of the protocol: typed, versioned, checksummed.

Every object is one envelope around one body::

    {"kind": "Manifest", "version": 1, "release": "0.1.0", "sha256": "…", "body": {…}}

The checksum is over the release and the body's bytes as they stand in the object. A reader tells damage
(:class:`DocumentError`) from what another release has written (:class:`NewerDocumentError`): there the body is whole.
``release`` is that of the writer, so that the error can name it.

A field that this release does not know is passed over, so that an image can be rolled back. Where that would be wrong,
the writer says what a reader must know: such a document has version 2 and ``"needs": [...]``, names of
:data:`FEATURES`, which the checksum covers, too. It is wrong whenever a reader would restore, commit or delete
something else than the writer: a field that names objects, that moves the job's line, or without which a table means
another thing. Releases before that refuse version 2.
"""

import hashlib
import json
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from epochal.protocol.barrier import EpochField
from epochal.protocol.epochs import MAX_EPOCH, MAX_GENERATION, Epoch, Generation
from epochal.protocol.errors import (
    ChecksumError,
    DocumentError,
    InvalidDocumentError,
    InvalidNameError,
    MalformedDocumentError,
    NewerDocumentError,
    TruncatedDocumentError,
    UnknownVersionError,
    WrongKindError,
)
from epochal.protocol.paths import JobPaths, StateName, check_label
from epochal.version import __version__

VERSION = 2
"""The newest that this release reads. It writes 1 as long as a document needs nothing."""

FEATURES: frozenset[str] = frozenset()
"""What readers of this release know of all that a document may need."""

ParentField = Annotated[Epoch, Meta(ge=0, le=MAX_EPOCH)]
GenerationField = Annotated[Generation, Meta(ge=1, le=MAX_GENERATION)]
Count = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]


class _Body(Struct, frozen=True, kw_only=True):
    pass


class RunPart(_Body, frozen=True):
    """One Parquet object of a run. ``object`` is its full name below the store's root. ``crc32`` is that of the whole
    object; None in manifests of releases that did not write it."""

    object: Text
    rows: Count
    bytes: Count
    crc32: Annotated[int, Meta(ge=0, lt=2**32)] | None = None


class StoredRun(_Body, frozen=True):
    """One immutable batch of state rows. Times are event times in microseconds; None where a table has none."""

    parts: tuple[RunPart, ...]
    min_time: int | None = None
    max_time: int | None = None


PENDING = "pending"
"""The table that a sink's rows wait in until their epoch is published."""
AT_END = "at_end"
"""The table for rows that come only because all sources have ended. They are committed like those that are pending."""
COMMITTED_TABLES = (PENDING, AT_END)
"""All tables whose rows an epoch's commit makes visible."""

LATEST_KEY = "__key"
"""The column of a Latest table that holds the key: a struct."""


class StoredTable(_Body, frozen=True):
    """A table's content at an epoch: a list of runs, oldest first. Of a Latest table the newest run that has a key
    says what is known of it."""

    kind: Literal["Global", "KeyedTime", "Latest"]
    runs: tuple[StoredRun, ...]

    def rows(self) -> int:
        """Of all runs."""
        return sum(part.rows for run in self.runs for part in run.parts)


class SourcePosition(_Body, frozen=True):
    """Where a source goes on: Spark's batch number and the small text files of its own progress log.

    ``seen``: of each file source in it, by its number, the newest note of files that were read. The files themselves
    are in a table of the operator; manifests of releases before that have them in the log."""

    batch: Annotated[int, Meta(ge=-1)]
    log: dict[str, str]
    seen: dict[str, Count] = {}


class OperatorState(_Body, frozen=True):
    """What one operator of the graph left at an epoch.

    ``carried_from`` is set when the operator skipped this checkpoint and its tables are those of that older epoch.
    ``transaction`` is what a two-phase sink needs to commit this epoch's output, as many times as it is asked to.
    ``definition`` says what the tables mean, part by part; None in manifests of releases that did not write it.
    """

    tables: dict[str, StoredTable] = {}
    position: SourcePosition | None = None
    watermark: int | None = None
    transaction: dict[str, str] | None = None
    carried_from: EpochField | None = None
    definition: dict[str, str] | None = None

    def bytes(self) -> int:
        """The size of all that it refers to."""
        return sum(part.bytes for table in self.tables.values() for run in table.runs for part in run.parts)


class Manifest(_Body, frozen=True):
    """Makes an epoch real. Self-contained: with it and the Parquet objects that it names, state can be read by any
    tool.

    ``claim`` tells two drivers apart that were given the same generation. ``parent`` is the epoch that this one was
    built on; 0 for a job's first.
    """

    namespace: Text
    job: Text
    epoch: EpochField
    generation: GenerationField
    claim: Text
    parent: ParentField
    min_epoch: EpochField
    timestamp: Count
    then_stop: bool
    operators: dict[str, OperatorState]

    def __post_init__(self) -> None:
        """Called by the decoder, too: a manifest that contradicts itself, or points out of its job, is none."""
        if not self.parent < self.epoch or not self.min_epoch <= self.epoch:
            raise ValueError(
                f"epoch {self.epoch} needs an older parent, not {self.parent}, and a min_epoch up to it, "
                f"not {self.min_epoch}"
            )
        paths = JobPaths(self.namespace, self.job)
        for operator, state in self.operators.items():
            check_label("operator", operator)
            for table in state.tables:
                check_label("table", table)
        for name in self.objects():
            if not isinstance(paths.parse(name), StateName):
                raise InvalidNameError(f"object {name!r} is not a state object")

    def objects(self) -> set[str]:
        """The names of all state objects that this epoch needs."""
        return {
            part.object
            for operator in self.operators.values()
            for table in operator.tables.values()
            for run in table.runs
            for part in run.parts
        }


class Seal(_Body, frozen=True):
    """Stands where a manifest would be: a newer generation has begun, and this epoch will never exist."""

    epoch: EpochField
    generation: GenerationField
    claim: Text


class GenerationRecord(_Body, frozen=True, omit_defaults=True):
    """One incarnation of the driver. ``writer`` is for people: the pod or host that made it.

    ``back_to`` is set when this generation was told to go back: epochs above it of older generations are abandoned.
    0 means that it was allowed to start empty. ``savepoint`` names the savepoint it went back to, if it was one.
    ``issued`` is the highest epoch number that was given out before it: its own epochs come after that. ``unasked``:
    nobody told it to go back; what is newer cannot be restored.

    ``last_turn`` is the newest generation before it that went back (0: none), or whose record could not be read; None
    in records of releases that did not write it. ``retired_until`` is set where no driver began: this number and all
    below that one are used up.
    """

    generation: GenerationField
    claim: Text
    created: Count
    writer: str
    back_to: ParentField | None = None
    savepoint: Text | None = None
    issued: ParentField = Epoch(0)
    unasked: bool = False
    last_turn: Annotated[Generation, Meta(ge=0, le=MAX_GENERATION)] | None = None
    retired_until: GenerationField | None = None

    def __post_init__(self) -> None:
        if self.last_turn is not None and self.last_turn >= self.generation:
            raise ValueError(f"generation {self.generation} cannot come after generation {self.last_turn}")
        if self.retired_until is not None and self.retired_until <= self.generation:
            raise ValueError(f"generation {self.generation} cannot be retired until generation {self.retired_until}")


class CommitRecord(_Body, frozen=True):
    """All sinks of this epoch have committed."""

    epoch: EpochField
    generation: GenerationField


class DamageRecord(_Body, frozen=True):
    """A state object of this epoch is missing, or holds other bytes than were written: it is never restored again.
    Somebody who has brought the object back deletes this record."""

    epoch: EpochField
    generation: GenerationField
    object: Text
    problem: Text


Document = Manifest | Seal | GenerationRecord | CommitRecord | DamageRecord

_D = TypeVar("_D", Manifest, Seal, GenerationRecord, CommitRecord, DamageRecord)

_KINDS: dict[str, type[Document]] = {
    kind.__name__: kind for kind in (Manifest, Seal, GenerationRecord, CommitRecord, DamageRecord)
}


class _Header(Struct, frozen=True):
    """What every version of the envelope has."""

    kind: str
    version: int
    release: str = ""
    needs: tuple[str, ...] = ()


class _Envelope(Struct, frozen=True, omit_defaults=True, kw_only=True):
    kind: str
    version: int
    release: str = ""
    needs: tuple[str, ...] = ()
    sha256: str
    body: msgspec.Raw


def encode(document: Document, needs: tuple[str, ...] = ()) -> bytes:
    """The object's bytes. What could not be read back is refused here, while its writer can still act on it."""
    kind = type(document)
    try:
        body = msgspec.json.encode(document, order="sorted")
        msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise InvalidDocumentError(f"new {kind.__name__}", str(error)) from error
    envelope = _Envelope(
        kind=kind.__name__,
        version=2 if needs else 1,
        release=__version__,
        needs=needs,
        sha256=_sha256(__version__, needs, body),
        body=msgspec.Raw(body),
    )
    return msgspec.json.encode(envelope) + b"\n"


def decode(name: str, data: bytes, kind: type[_D]) -> _D:
    """Read the document in object ``name``; every way in which it can be wrong has its own error."""
    document = decode_any(name, data)
    if not isinstance(document, kind):
        raise WrongKindError(name, f"holds a {type(document).__name__}, not a {kind.__name__}")
    return document


def decode_any(name: str, data: bytes) -> Document:
    header = _decode_json(name, data, _Header)
    if header.version > VERSION:
        raise _newer(name, header, f"version {header.version}")
    if header.version < 1:
        raise UnknownVersionError(name, f"is a {header.kind} of version {header.version}, which never was")
    if (header.version == VERSION) != bool(header.needs):
        raise InvalidDocumentError(name, f"its version {header.version} does not go with its needs: {header.needs}")
    kind = _KINDS.get(header.kind)
    if kind is None:
        raise WrongKindError(name, f"holds a {header.kind!r}, which is not one of {', '.join(sorted(_KINDS))}")
    envelope = _decode_json(name, data, _Envelope)
    if _sha256(envelope.release, envelope.needs, bytes(envelope.body)) != envelope.sha256:
        raise ChecksumError(
            name, "its content is not what was written (SHA-256 differs): the object was damaged or edited"
        )
    if unknown := sorted(set(envelope.needs) - FEATURES):
        raise _newer(name, header, f"it needs {', '.join(unknown)}")
    try:
        document = msgspec.json.decode(envelope.body, type=kind)
    except msgspec.ValidationError as error:
        raise _newer(name, header, str(error)) from error
    _refuse_repeated_keys(name, data)
    return document


def _newer(name: str, header: _Header, why: str) -> NewerDocumentError:
    release = f"Epochal {header.release}" if header.release else "another release"
    return NewerDocumentError(
        name,
        f"this {header.kind} was written by {release} and cannot be read by Epochal {__version__}, which knows version "
        f"{VERSION} ({why}): use {release} or a newer one",
        kind=header.kind,
    )


def _refuse_repeated_keys(name: str, data: bytes) -> None:
    """JSON readers differ in which of two equal keys they take, and people may read manifests with any of them."""

    def unique(pairs: list[tuple[str, object]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise InvalidDocumentError(name, f"has the key {repeated!r} twice in one object")

    json.loads(data, object_pairs_hook=unique)


_T = TypeVar("_T")


def _decode_json(name: str, data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidDocumentError(name, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(name, data, error) from error


def _not_json(name: str, data: bytes, error: Exception) -> DocumentError:
    if not data.strip():
        return TruncatedDocumentError(name, "is empty: the write was cut off")
    # A damaged quote can look like a missing end, too; but a document that was written to its end has this end.
    if "truncated" in str(error) and not data.endswith(b"}\n"):
        return TruncatedDocumentError(name, f"ends after {len(data)} bytes, in the middle of its document")
    return MalformedDocumentError(name, f"is not a JSON document: {error}")


def _sha256(release: str, needs: tuple[str, ...], body: bytes) -> str:
    return hashlib.sha256("\n".join((release, *needs)).encode() + body).hexdigest()
