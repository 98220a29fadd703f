"""Documents: what is written is read back; damage of any kind is noticed and named."""

import hashlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.protocol.documents import (
    CommitRecord,
    Document,
    GenerationRecord,
    Manifest,
    OperatorState,
    Seal,
    SourcePosition,
    decode,
    decode_any,
    encode,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.errors import (
    ChecksumError,
    DocumentError,
    InvalidDocumentError,
    InvalidNameError,
    NewerDocumentError,
    TruncatedDocumentError,
    WrongKindError,
)
from epochal.protocol.paths import JobPaths
from tests.protocol.making import generation_record, manifest, state_name

GOOD = manifest(3)
DATA = encode(GOOD)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
times = st.none() | st.integers(-(2**62), 2**62)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    epoch = draw(st.integers(1, 10**6))
    made = manifest(epoch, generation=draw(st.integers(1, 999)), parent=draw(st.integers(0, epoch - 1)))
    source = OperatorState(
        position=SourcePosition(batch=draw(st.integers(-1, 10**9)), log=draw(st.dictionaries(texts, texts))),
        watermark=draw(times),
        transaction=draw(st.none() | st.dictionaries(texts, texts)),
    )
    return msgspec.structs.replace(made, operators={**made.operators, "source": source})


@given(made=manifests())
def test_every_manifest_reads_back_as_itself(made: Manifest) -> None:
    assert decode("name", encode(made), Manifest) == made


@pytest.mark.parametrize(
    "document",
    [
        GOOD,
        Seal(epoch=Epoch(1), generation=Generation(2), claim="c"),
        generation_record(4, back_to=0),
        generation_record(4, back_to=3, savepoint="before-upgrade"),
        CommitRecord(epoch=Epoch(1), generation=Generation(1)),
    ],
    ids=lambda document: type(document).__name__,
)
def test_every_kind_reads_back_as_itself(document: Document) -> None:
    assert decode_any("name", encode(document)) == document


def test_equal_documents_have_equal_bytes() -> None:
    """A create whose answer was lost recognises its own object by its bytes."""
    state = OperatorState(transaction={"b": "2", "a": "1"})
    same = OperatorState(transaction={"a": "1", "b": "2"})
    one = msgspec.structs.replace(GOOD, operators={"x": state, "y": state})
    other = msgspec.structs.replace(GOOD, operators={"y": same, "x": same})
    assert encode(one) == encode(other)


def test_a_manifest_is_plain_json_with_its_checksum() -> None:
    """People and other tools read it without Epochal."""
    plain = json.loads(DATA)
    assert (plain["kind"], plain["version"], plain["body"]["epoch"]) == ("Manifest", 1, 3)
    body = DATA[DATA.index(b'"body":') + 7 : -2]
    assert hashlib.sha256(plain["release"].encode() + body).hexdigest() == plain["sha256"]


def test_a_manifest_names_all_its_objects_once() -> None:
    names = (state_name(1), state_name(2), state_name(2))
    assert manifest(3, objects=names).objects() == {state_name(1), state_name(2)}


def test_a_manifest_cut_off_anywhere_is_truncated() -> None:
    for length in range(len(DATA) - 1):
        with pytest.raises(TruncatedDocumentError):
            decode("name", DATA[:length], Manifest)


def test_only_the_last_line_end_may_be_missing() -> None:
    assert decode("name", DATA[:-1], Manifest) == GOOD


@settings(max_examples=400)
@given(at=st.integers(0, len(DATA) - 2), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(at: int, bit: int) -> None:
    damaged = bytearray(DATA)
    damaged[at] ^= 1 << bit
    with pytest.raises((DocumentError, NewerDocumentError)):
        decode("name", bytes(damaged), Manifest)


@settings(max_examples=300)
@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_document_error(data: bytes) -> None:
    with pytest.raises(DocumentError):
        decode_any("name", data)


def test_an_edited_number_is_noticed() -> None:
    with pytest.raises(ChecksumError, match="damaged or edited"):
        decode("name", DATA.replace(b'"epoch":3', b'"epoch":4'), Manifest)


def test_a_document_of_another_kind_is_named() -> None:
    with pytest.raises(WrongKindError, match="holds a Manifest, not a GenerationRecord"):
        decode("name", DATA, GenerationRecord)


def test_the_error_says_which_object() -> None:
    with pytest.raises(DocumentError, match=r"^team/orders/epochs/0000000003/manifest\.json: ") as caught:
        decode(JobPaths("team", "orders").manifest(Epoch(3)), b"", Manifest)
    assert caught.value.name == "team/orders/epochs/0000000003/manifest.json"


# --- what cannot be read back is never written


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"claim": ""}, "length >= 1"),
        ({"timestamp": -1}, ">= 0"),
        ({"generation": 0}, ">= 1"),
        ({"then_stop": None}, "Expected `bool`"),
        ({"claim": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_a_document_that_could_not_be_read_back_is_not_encoded(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidDocumentError, match=message):
        encode(msgspec.structs.replace(GOOD, **changes))


def test_a_manifest_is_built_on_an_older_epoch() -> None:
    with pytest.raises(ValueError, match="needs an older parent, not 3"):
        manifest(3, parent=3)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "team/other/state/o/t/0000000001-000001-000000-000000.parquet",
        "team/orders/epochs/0000000001/manifest.json",
        "team/orders/state/o/t/x.parquet",
    ],
)
def test_a_manifest_refers_to_state_of_its_own_job_only(name: str) -> None:
    with pytest.raises(InvalidNameError):
        manifest(3, objects=(name,))


def test_a_manifest_has_labels_for_names() -> None:
    with pytest.raises(InvalidNameError, match="operator name"):
        msgspec.structs.replace(GOOD, operators={"../x": OperatorState()})
