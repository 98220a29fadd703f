"""Object names: made and read back without loss, and no name of a user's leads anywhere else."""

import posixpath
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochal.protocol.epochs import MAX_EPOCH, MAX_GENERATION, Epoch, Generation
from epochal.protocol.errors import InvalidNameError
from epochal.protocol.paths import (
    MAX_PART,
    MAX_RUN,
    CommittedName,
    DamagedName,
    GenerationName,
    JobPaths,
    ManifestName,
    ObjectName,
    SavepointName,
    StateName,
    check_kubernetes_label,
    check_label,
)

PATHS = JobPaths("team", "orders")

labels = st.from_regex(r"\A[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\Z")
kubernetes_labels = st.from_regex(r"\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
epochs = st.integers(1, MAX_EPOCH).map(Epoch)
generations = st.integers(1, MAX_GENERATION).map(Generation)
jobs = st.builds(JobPaths, kubernetes_labels, kubernetes_labels)
names: st.SearchStrategy[ObjectName] = st.one_of(
    st.builds(GenerationName, generations),
    st.builds(ManifestName, epochs),
    st.builds(CommittedName, epochs),
    st.builds(DamagedName, epochs),
    st.builds(SavepointName, labels),
    st.builds(
        StateName,
        operator=labels,
        table=labels,
        epoch=epochs,
        generation=generations,
        run=st.integers(0, MAX_RUN),
        part=st.integers(0, MAX_PART),
    ),
)

HOSTILE = [
    "../x",
    "..",
    ".",
    "",
    "a/b",
    "/a",
    "a/",
    "a\\b",
    "%2e%2e",
    "%2f",
    "a%00b",
    "a\0b",
    "a\n",
    "\na",
    "a b",
    "orders\u200b",  # a space that nobody sees
    "\u043erders",  # a Cyrillic o
    "\uff41bc",  # a full-width a
    "e\u0301te",  # a combining accent
    "caf\u00e9",
    "\u0661\u0662",  # digits, but not ours
    "Orders",
    "-a",
    "a-",
    "_a",
    "a.b",
    "a#1",  # what a disk calls an object that is being written
    "a" * 64,
    "a" * 300,
    "~",
    "$HOME",
    "a:b",
    "con*",
]


@given(paths=jobs, name=names)
def test_every_name_that_is_made_reads_back_as_itself(paths: JobPaths, name: ObjectName) -> None:
    assert paths.parse(paths.format(name)) == name


@given(one=st.tuples(jobs, names), other=st.tuples(jobs, names))
def test_no_two_things_have_one_name(one: tuple[JobPaths, ObjectName], other: tuple[JobPaths, ObjectName]) -> None:
    assert (one[0].format(one[1]) == other[0].format(other[1])) == (one == other)


@given(paths=jobs, name=names)
def test_every_name_stays_below_its_job(paths: JobPaths, name: ObjectName) -> None:
    made = paths.format(name)
    assert posixpath.normpath(made) == made
    assert made.startswith(paths.prefix)
    assert made == made.lower()  # two names stay two on a disk that ignores case
    assert len(made) < 1024  # what S3 takes


@given(one=jobs, other=jobs, name=names)
def test_one_jobs_names_are_none_of_anothers(one: JobPaths, other: JobPaths, name: ObjectName) -> None:
    if one != other:
        with pytest.raises(InvalidNameError, match="does not belong"):
            other.parse(one.format(name))


@given(epoch=epochs, other=epochs)
def test_names_sort_as_their_numbers_do(epoch: Epoch, other: Epoch) -> None:
    assert (PATHS.manifest(epoch) < PATHS.manifest(other)) == (epoch < other)
    assert PATHS.before_epoch(epoch) < PATHS.committed(epoch) < PATHS.manifest(epoch)
    if other < epoch:
        assert PATHS.manifest(other) < PATHS.before_epoch(epoch)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused_wherever_a_user_names_something(name: str) -> None:
    good = StateName(operator="o", table="t", epoch=Epoch(1), generation=Generation(1), run=0, part=0)
    uses: list[Callable[[], object]] = [
        lambda: check_label("table", name),
        lambda: check_kubernetes_label("job", name),
        lambda: JobPaths(name, "orders"),
        lambda: JobPaths("team", name),
        lambda: PATHS.savepoint(name),
        lambda: PATHS.state_object(replace(good, operator=name)),
        lambda: PATHS.state_object(replace(good, table=name)),
    ]
    for use in uses:
        with pytest.raises(InvalidNameError):
            use()


@given(name=st.text(max_size=80))
def test_any_text_is_refused_or_stays_in_its_place(name: str) -> None:
    try:
        made = PATHS.savepoint(name)
    except InvalidNameError:
        return
    assert made == f"team/orders/savepoints/{name}.json"
    assert posixpath.normpath(made) == made


@given(name=st.text(max_size=80))
def test_any_object_name_is_refused_or_is_one_that_we_make(name: str) -> None:
    try:
        parsed = PATHS.parse(PATHS.prefix + name)
    except InvalidNameError:
        return
    assert PATHS.format(parsed) == PATHS.prefix + name


@pytest.mark.parametrize(
    "name",
    [
        "epochs/0000000001/manifest.json\n",
        "epochs/0000000001/manifest.json/",
        "epochs/1/manifest.json",
        "epochs/0000000000/manifest.json",
        "epochs/\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0661/manifest.json",
        "epochs/0000000001/Manifest.json",
        "epochs/0000000001/manifest.json.bak",
        "epochs/../epochs/0000000001/manifest.json",
        "generations/0000001.json",
        "generations/000000.json",
        "savepoints/../x.json",
        "savepoints/.json",
        "savepoints/A.json",
        "state/o/t/0000000001-000001-000000-000000.parquet.crc",
        "state/../t/0000000001-000001-000000-000000.parquet",
        "state/o/t/u/0000000001-000001-000000-000000.parquet",
        "state/o/t/-000000001-000001-000000-000000.parquet",
        "",
    ],
)
def test_what_only_looks_like_ours_is_not_recognised(name: str) -> None:
    with pytest.raises(InvalidNameError):
        PATHS.parse(PATHS.prefix + name)
    assert list(PATHS.recognised([PATHS.prefix + name])) == []


def test_a_job_whose_name_begins_with_anothers_is_not_mixed_up_with_it() -> None:
    with pytest.raises(InvalidNameError, match="does not belong"):
        JobPaths("team", "order").parse(JobPaths("team", "orders").manifest(Epoch(1)))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("My Orders", "my-orders"), ("../x", "x"), ("a" * 64, "a" * 63), ("Orders_2", "orders-2")],
)
def test_the_error_suggests_a_name(name: str, suggestion: str) -> None:
    with pytest.raises(InvalidNameError, match=f"for example '{suggestion}'$"):
        check_label("table", name)


def test_numbers_out_of_bounds_are_refused() -> None:
    uses: list[Callable[[], str]] = [
        lambda: PATHS.manifest(Epoch(0)),
        lambda: PATHS.manifest(Epoch(-1)),
        lambda: PATHS.committed(Epoch(MAX_EPOCH + 1)),
        lambda: PATHS.generation(Generation(0)),
        lambda: PATHS.generation(Generation(MAX_GENERATION + 1)),
    ]
    for use in uses:
        with pytest.raises(InvalidNameError, match="out of bounds"):
            use()
