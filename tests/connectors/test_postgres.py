"""PostgreSQL: an epoch's rows and its number are one transaction, cut off wherever it may be."""

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from epochal.connectors.commit_ledger import SinkFencedError
from epochal.connectors.postgres import log as postgres_log
from epochal.connectors.postgres.sink import PostgresSink
from epochal.connectors.postgres.target import PostgresTarget
from epochal.protocol.faults import FixedBy, fault_of
from epochal.runtime.errors import PipelineError, UnavailableError
from tests.connectors.commits import SCHEMA, Commits, Cut, rows
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.slow

TABLE = "CREATE TABLE words (id bigint, word text)"
KEYED = "CREATE TABLE words (id bigint PRIMARY KEY, word text)"


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as db:
        for statement in statements[:-1]:
            db.execute(statement)
        cursor = db.execute(statements[-1])
        return cursor.fetchall() if cursor.description else []


def words(dsn: str) -> list[tuple[Any, ...]]:
    return execute(dsn, "SELECT id, word FROM words ORDER BY id, word")


def sink_of(dsn: str, commits: Commits, keys: tuple[str, ...] = ()) -> PostgresSink:
    return PostgresSink(PostgresTarget(dsn=dsn, table="words", keys=keys), commits.storage)


def cut(monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> None:
    """End the driver before or after one of the sink's steps, however much it wanted to clean up."""
    real: Callable[..., Any] = getattr(PostgresSink, name)

    def cutting(*arguments: Any, **named: Any) -> Any:
        if after:
            real(*arguments, **named)
        raise Cut

    monkeypatch.setattr(PostgresSink, name, cutting)


def test_a_commit_that_is_made_again_changes_nothing(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    ctx, objects = commits.context(), commits.objects(rows((1, "a"), (2, None)), rows((1, "a")))
    sink = sink_of(dsn, commits)
    sink.open(ctx)
    assert sink.write(3, objects, ctx)
    assert not sink.write(3, objects, ctx)
    again = sink_of(dsn, commits)
    again.open(commits.context(2))
    assert not again.write(3, objects, commits.context(2))
    assert words(dsn) == [(1, "a"), (1, "a"), (2, None)]
    assert execute(dsn, "SELECT job, operator, epoch, generation FROM epochal_epochs") == [("test/job", "out", 3, 2)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize(("step", "after"), [("_lock_row", True), ("_copy", False), ("_copy", True)])
def test_a_driver_that_ends_in_the_middle_leaves_nothing(
    dsn: str, commits: Commits, monkeypatch: pytest.MonkeyPatch, mode: str, step: str, after: bool
) -> None:
    execute(dsn, KEYED)
    ctx, objects = commits.context(), commits.objects(rows((1, "a"), (2, "b")))
    sink = sink_of(dsn, commits, ("id",) if mode == "upsert" else ())
    sink.open(ctx)
    with monkeypatch.context() as patch:
        cut(patch, step, after=after)
        with pytest.raises(Cut):
            sink.commit(1, None, objects, ctx)
    assert words(dsn) == []
    assert sink.write(1, objects, ctx)
    assert not sink.write(1, objects, ctx)
    assert words(dsn) == [(1, "a"), (2, "b")]


def committed(dsn: str, commits: Commits, *epochs: int, generation: int = 1) -> PostgresSink:
    """A sink that has committed these epochs, each with two equal rows."""
    sink, ctx = sink_of(dsn, commits), commits.context(generation)
    sink.open(ctx)
    for epoch in epochs:
        sink.commit(epoch, None, commits.objects(rows((epoch, "a"), (epoch, "a"))), ctx)
    return sink


def test_a_text_that_postgres_cannot_hold_is_the_jobs_to_change(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    sink = committed(dsn, commits)
    with pytest.raises(psycopg.DataError, match="NUL") as caught:
        sink.commit(1, None, commits.objects(rows((1, "a\x00b"))), commits.context())
    assert fault_of(caught.value).fixed_by is FixedBy.EDIT


def ids(dsn: str) -> list[int]:
    return [row[0] for row in words(dsn)]


def test_rows_of_later_epochs_are_taken_back_and_no_others(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE, "INSERT INTO words VALUES (99, 'of somebody else')")
    committed(dsn, commits, 1, 2, 4, 5)
    execute(dsn, "INSERT INTO words VALUES (4, 'a')")
    sink, ctx = committed(dsn, commits, generation=2), commits.context(2)
    assert sink.can_take_back
    assert sink.take_back(3, ctx) == 2
    assert ids(dsn) == [1, 1, 2, 2, 4, 99], "equal rows of somebody else stay"
    assert sink.take_back(3, ctx) == 0
    assert execute(dsn, "SELECT epoch FROM epochal_epochs") == [(2,)]
    # It goes on with numbers of its own, and back once more, past what was taken back before.
    sink = committed(dsn, commits, 6, 7, generation=3)
    assert ids(dsn) == [1, 1, 2, 2, 4, 6, 6, 7, 7, 99]
    assert sink.take_back(1, commits.context(3)) == 3
    assert ids(dsn) == [1, 1, 4, 99]


@pytest.mark.parametrize("after", [False, True])
def test_taking_back_that_is_cut_off_is_done_again(
    dsn: str, commits: Commits, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    execute(dsn, TABLE)
    sink, ctx = committed(dsn, commits, 1, 2, 3), commits.context()
    with monkeypatch.context() as patch:
        cut(patch, "_set_epoch", after=after)
        with pytest.raises(Cut):
            sink.take_back(1, ctx)
    assert ids(dsn) == [1, 1, 2, 2, 3, 3], "one transaction"
    assert sink.take_back(1, ctx) == 2
    assert ids(dsn) == [1, 1]


def test_an_old_generation_takes_nothing_back(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    zombie = committed(dsn, commits, 1, 2)
    committed(dsn, commits, generation=2)
    with pytest.raises(SinkFencedError):
        zombie.take_back(1, commits.context(1))
    assert ids(dsn) == [1, 1, 2, 2]


@pytest.mark.parametrize("change", ["UPDATE words SET word = 'b' WHERE id = 3", "DELETE FROM words WHERE id = 2"])
def test_rows_that_somebody_changed_are_not_guessed(dsn: str, commits: Commits, change: str) -> None:
    execute(dsn, TABLE)
    sink = committed(dsn, commits, 1, 2, 3)
    execute(dsn, change)
    before = words(dsn)
    with pytest.raises(PipelineError, match="epochs 2, 3 added 4 rows to table words, and 2 of them are unchanged"):
        sink.take_back(1, commits.context())
    assert words(dsn) == before, "none was taken back"


def test_epochs_that_were_not_noted_cannot_be_taken_back(
    dsn: str, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(dsn, TABLE)
    committed(dsn, commits, 1, 2)
    execute(dsn, "DELETE FROM epochal_commits")  # as an older version leaves it
    sink, ctx = committed(dsn, commits, 3, 4, generation=2), commits.context(2)
    with pytest.raises(PipelineError, match="of epochs 2 to 2 is not recorded"):
        sink.take_back(1, ctx)
    assert sink.take_back(2, ctx) == 2
    assert ids(dsn) == [1, 1, 2, 2]
    monkeypatch.setattr(postgres_log, "MOST_EPOCHS", 3)
    sink = committed(dsn, commits, *range(5, 12), generation=3)
    assert execute(dsn, "SELECT epoch, transaction IS NULL FROM epochal_commits ORDER BY epoch") == [
        (8, True),
        (9, False),
        (10, False),
        (11, False),
    ]
    with pytest.raises(PipelineError, match="of epochs 8 to 8 is not recorded"):
        sink.take_back(7, commits.context(3))
    assert sink.take_back(8, commits.context(3)) == 3


def test_an_upsert_says_that_it_cannot_be_taken_back(dsn: str, commits: Commits) -> None:
    sink = sink_of(dsn, commits, ("id",))
    assert not sink.can_take_back
    assert "replaced the values of earlier epochs" in sink.why_not_taken_back


def test_a_lost_answer_is_found_out(dsn: str, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL has committed, and the connection breaks before it says so."""
    execute(dsn, TABLE)
    sink, ctx = sink_of(dsn, commits), commits.context()
    sink.open(ctx)
    real = psycopg.Connection.commit
    lost: list[psycopg.Connection] = []

    def losing(self: psycopg.Connection) -> None:
        real(self)
        if not lost:
            lost.append(self)
            self.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", losing)
    sink.commit(1, None, commits.objects(rows((1, "a"))), ctx)
    assert lost
    assert words(dsn) == [(1, "a")]


def test_a_server_that_comes_back_in_time_is_waited_for(commits: Commits) -> None:
    with PostgresServer() as server:
        dsn = server.make_database()
        execute(dsn, TABLE)
        sink, ctx = sink_of(dsn, commits), commits.context()
        sink.open(ctx)
        server.stop()
        commit = threading.Thread(target=sink.commit, args=(1, None, commits.objects(rows((1, "a"))), ctx))
        commit.start()
        server.start()
        commit.join()
        assert words(dsn) == [(1, "a")]


def test_of_equal_keys_the_last_row_counts(dsn: str, commits: Commits) -> None:
    execute(dsn, KEYED)
    sink, ctx = sink_of(dsn, commits, ("id",)), commits.context()
    sink.open(ctx)
    sink.commit(1, None, commits.objects(rows((1, "a"), (2, "b"), (1, "c")), rows((2, "d"))), ctx)
    assert words(dsn) == [(1, "c"), (2, "d")]
    sink.commit(2, None, commits.objects(rows((3, "e"), (1, None))), ctx)
    assert words(dsn) == [(1, None), (2, "d"), (3, "e")]


def test_keys_alone_can_be_merged(dsn: str, commits: Commits) -> None:
    execute(dsn, "CREATE TABLE words (id bigint, word text, PRIMARY KEY (id, word))")
    sink, ctx = sink_of(dsn, commits, ("id", "word")), commits.context()
    sink.open(ctx)
    for epoch in (1, 2):
        sink.commit(epoch, None, commits.objects(rows((1, "a"), (1, "a"))), ctx)
    assert words(dsn) == [(1, "a")]


def test_an_older_generation_can_commit_nothing(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    zombie, old = sink_of(dsn, commits), commits.context(1)
    zombie.open(old)
    sink_of(dsn, commits).open(commits.context(2))
    with pytest.raises(SinkFencedError, match="generation 2 of job test/job has taken over, this is generation 1"):
        zombie.commit(5, None, commits.objects(rows((1, "a"))), old)
    with pytest.raises(SinkFencedError):
        sink_of(dsn, commits).open(old)
    assert words(dsn) == []


def test_two_drivers_at_once_write_an_epoch_once(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    ctx, objects = commits.context(), commits.objects(rows(*((number, "x") for number in range(500))))
    sinks = [sink_of(dsn, commits) for _ in range(4)]
    sinks[0].open(ctx)
    threads = [threading.Thread(target=sink.commit, args=(1, None, objects, ctx)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert execute(dsn, "SELECT count(*), count(DISTINCT id) FROM words") == [(500, 500)]


def test_a_job_begun_anew_is_told(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    sink, ctx = sink_of(dsn, commits), commits.context(4)
    sink.open(ctx)
    sink.commit(50, None, commits.objects(rows((1, "a"))), ctx)
    new = commits.context(1, newest_epoch=3)
    with pytest.raises(
        PipelineError, match="has epoch 50 of job test/job, and this job's store knows none above 3"
    ) as e:
        sink_of(dsn, commits).open(new)
    execute(dsn, str(e.value).split("forget the epoch: ")[1])
    sink_of(dsn, commits).open(new)


def test_sinks_of_one_table_do_not_meet(dsn: str, commits: Commits) -> None:
    execute(dsn, TABLE)
    for name in ("one", "two"):
        ctx = commits.context(name=name)
        sink = sink_of(dsn, commits)
        sink.open(ctx)
        sink.commit(1, None, commits.objects(rows((1, name))), ctx)
    assert words(dsn) == [(1, "one"), (1, "two")]


def test_values_of_every_type_arrive(dsn: str, commits: Commits) -> None:
    columns = "s text, l bigint, d double precision, n numeric, b boolean, t timestamptz, ntz timestamp, day date, "
    execute(dsn, f"CREATE TABLE words ({columns} raw bytea, tags text[], doc jsonb)")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    row = {
        "s": 'tab\t "quote" \\ line\n ü',
        "l": -(2**63),
        "d": float("-inf"),
        "n": Decimal("12.30"),
        "b": True,
        "t": moment,
        "ntz": moment.replace(tzinfo=None),
        "day": date(2026, 1, 2),
        "raw": b"\x00\xff\\",
        "tags": ["a", None, 'b"'],
        "doc": '{"a": [1, null]}',
    }
    sink, ctx = sink_of(dsn, commits), commits.context()
    sink.open(ctx)
    schema = pa.Table.from_pylist([row]).schema
    sink.commit(1, None, commits.objects([row, dict.fromkeys(row)], schema=schema), ctx)
    found = execute(dsn, "SELECT * FROM words ORDER BY s")
    assert found == [tuple({**row, "doc": {"a": [1, None]}}.values()), (None,) * len(row)]


# --- mistakes ---

MISTAKES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "no table": ("SELECT 1", (), "has no table words: CREATE TABLE words \\(id bigint, word text\\)"),
    "no table to merge into": ("SELECT 1", ("id",), "word text, PRIMARY KEY \\(id\\)\\)"),
    "a column too many": ("CREATE TABLE words (id bigint)", (), "words has no column for word; it takes id"),
    "a generated column": (
        "CREATE TABLE words (id bigint, word text GENERATED ALWAYS AS (id::text) STORED)",
        (),
        "words has no column for word; it takes id",
    ),
    "a column that must be there": (
        "CREATE TABLE words (id bigint, word text, other int NOT NULL)",
        (),
        "words needs other, which the stream has not: it has id, word",
    ),
    "another type": (
        "CREATE TABLE words (id date, word text)",
        (),
        "column id is bigint, and table words has it as date: cast one of them \\(for example to bigint\\)",
    ),
    "no unique index": (TABLE, ("id",), "an upsert by id needs a unique index .*ADD PRIMARY KEY \\(id\\)"),
    "an index on more": ("CREATE TABLE words (id bigint, word text, PRIMARY KEY (id, word))", ("id",), "unique index"),
    "NULL as a key": ("CREATE TABLE words (id bigint UNIQUE, word text)", ("id",), "a key of id may be NULL"),
    "a key that is no column": (KEYED, ("nope",), "the stream has no key column nope: it has id, word"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_table_that_does_not_fit_is_told(dsn: str, mistake: str) -> None:
    make, keys, message = MISTAKES[mistake]
    execute(dsn, make)
    with pytest.raises(PipelineError, match=message):
        PostgresTarget(dsn=dsn, table="words", keys=keys).check(SCHEMA)


def test_what_fits_is_taken(dsn: str) -> None:
    execute(
        dsn,
        "CREATE SCHEMA s",
        'CREATE TABLE s."Words" (id bigint, word uuid, n int DEFAULT 1, at timestamptz NOT NULL DEFAULT now(), '
        "UNIQUE NULLS NOT DISTINCT (id))",
    )
    assert PostgresTarget(dsn=dsn, table="s.Words", keys=("id",)).check(SCHEMA) == frozenset()
    nested = T.StructType([T.StructField("doc", T.MapType(T.StringType(), T.LongType()))])
    execute(dsn, "CREATE TABLE docs (doc jsonb)")
    assert PostgresTarget(dsn=dsn, table="docs").check(nested) == {"doc"}


def test_who_cannot_come_in_is_told_without_the_password(dsn: str, postgres_server: PostgresServer) -> None:
    cases = {
        postgres_server.dsn(password="s3cret"): "epochal at PostgreSQL 127.0.0.1:.*password authentication failed",
        postgres_server.dsn("nowhere"): 'database "nowhere" does not exist',
        "host=s3cret secret s3cret": "invalid dsn",
    }
    for wrong, message in cases.items():
        target = PostgresTarget(dsn=wrong, table="words")
        with pytest.raises(PipelineError, match=message) as caught:
            target.check(SCHEMA)
        told = f"{caught.value} {target!r}"
        assert "s3cret" not in told
        assert postgres_server.password not in told
    nobody = PostgresTarget(dsn="postgresql://u:s3cret@127.0.0.1:1/db", table="words")
    with pytest.raises(UnavailableError, match=r"u at PostgreSQL 127.0.0.1:1/db does not answer") as away:
        nobody.check(SCHEMA)
    assert "s3cret" not in str(away.value)


def test_who_may_not_make_the_epoch_table_is_told_how(
    dsn: str, postgres_server: PostgresServer, commits: Commits
) -> None:
    execute(dsn, TABLE, "CREATE ROLE writer LOGIN PASSWORD 'writer'", "GRANT ALL ON words TO writer")
    plain = dsn.replace(f"epochal:{postgres_server.password}", "writer:writer")
    try:
        with pytest.raises(PipelineError, match="has no right to create the table") as caught:
            sink_of(plain, commits).open(commits.context())
        make = str(caught.value).split("UPDATE on it: ")[1]
        execute(dsn, make, "GRANT SELECT, INSERT, UPDATE ON epochal_epochs TO writer")
        sink, ctx = sink_of(plain, commits), commits.context()
        sink.open(ctx)
        assert sink.write(1, commits.objects(rows((1, "a"))), ctx)
    finally:
        execute(dsn, "DROP OWNED BY writer", "DROP ROLE writer")


def test_a_value_that_does_not_fit_is_told(dsn: str, commits: Commits) -> None:
    execute(dsn, "CREATE TABLE words (id smallint, word varchar(3))")
    sink, ctx = sink_of(dsn, commits), commits.context()
    sink.open(ctx)
    with pytest.raises(psycopg.DataError, match="value too long"):
        sink.commit(1, None, commits.objects(rows((1, "a"), (2, "long word"))), ctx)
    assert words(dsn) == []
