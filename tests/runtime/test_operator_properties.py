"""Operators against a batch query on the same rows, whatever chance brings: where batches begin, which source is ahead,
rows out of order, rows too late, lost drivers and other numbers of partitions."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from tests.runtime.streaming import FedJob, Rows, at, batches_of, ordered
from tests.support.depth import DEEP

DELAY = 8
LEFT = "id long, k string, v long, at timestamp"
RIGHT = "rid long, k string, seen timestamp"
GAP, SIZE, SLIDE, WITHIN = 6, 10, 4, 10
LOWER, UPPER = -3, 5
MOST, LOSSES = (16, 2) if DEEP else (24, 1)
"""Rows of a batch, and lost drivers. Each batch costs a Spark job of each operator, each loss a restore."""
NAMES = [("a", "Anna"), ("b", "Bert"), ("x", "Xenia"), (None, "Nobody")]


def left_rows(chance: random.Random, count: int) -> Rows:
    """A row a second, a little out of order; some far too late, some twice, some without a key or a time."""
    rows: Rows = []
    for number in range(count):
        second = number - chance.random() * DELAY - (70 if chance.random() < 0.05 else 0)
        when = None if chance.random() < 0.03 else at(round(second, 3))
        key = chance.choice(["a", "a", "b", "c", None])
        rows.append((number, key, chance.choice([None, *range(12)]), when))
        if chance.random() < 0.15:
            rows.append(rows[-1])
    return rows


def right_rows(chance: random.Random, count: int) -> Rows:
    return [(number, key, when) for number, key, _, when in left_rows(chance, count)]


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.astimezone(UTC).timestamp() * 1e6)


def plain(rows: Rows) -> Rows:
    """Times as microseconds, as DuckDB has them here."""
    return ordered(tuple(micros(value) if isinstance(value, datetime) else value for value in row) for row in rows)


def arrivals(job: FedJob) -> Iterator[tuple[str, Rows, int | None]]:
    """Each batch with the watermark that an operator on all sources has when it comes."""
    newest: dict[str, int] = {}
    names = {name for name, _ in job.fed}
    watermark: int | None = None
    for name, batch in job.fed:
        assert isinstance(batch, list)
        yield name, batch, watermark
        times = [micros(row[-1]) for row in batch]
        known = [time for time in (*times, newest.get(name)) if time is not None]
        if known:
            newest[name] = max(known)
        if len(newest) == len(names):
            watermark = max(min(newest.values()) - DELAY * 1_000_000, watermark or 0)


def on_time(job: FedJob, accepted: Callable[[int, int], bool]) -> dict[str, Rows]:
    """The rows of each source that count: ``accepted(time, watermark)`` says which."""
    rows: dict[str, Rows] = {"left": [], "right": []}
    for name, batch, watermark in arrivals(job):
        for row in batch:
            time = micros(row[-1])
            if time is not None and (watermark is None or accepted(time, watermark)):
                rows[name].append((*row[:-1], time))
    return rows


def query(sql: str, rows: dict[str, Rows]) -> Rows:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE l (id BIGINT, k VARCHAR, v BIGINT, t BIGINT)")
        db.execute("CREATE TABLE r (rid BIGINT, k VARCHAR, t BIGINT)")
        db.execute("CREATE TABLE names (k VARCHAR, name VARCHAR)")
        for table, values in {"l": rows["left"], "r": rows["right"], "names": NAMES}.items():
            if values:
                db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
        return ordered(db.sql(sql).fetchall())


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_joins_equal_a_batch_query(spark: SparkSession, tmp_path: Path, how: str) -> None:
    chance = random.Random(f"joins {how}")

    def build(p: Pipeline, job: FedJob) -> None:
        left = job.source(p, "left", LEFT, event_time="at", delay=DELAY)
        right = job.source(p, "right", RIGHT, event_time="seen", delay=DELAY)
        close = left.join("join", right, keys=["k"], within=(LOWER, UPPER), how=how)
        job.collect("close", close)
        slide = SLIDE if how in ("inner", "full") else None
        windows = left.window_join("same_window", right, size=SIZE, slide=slide, keys=["k"], how=how)
        job.collect("windows", windows)
        for name, joined in (("close", close), ("windows", windows)):
            job.collect(f"{name}_late_left", joined.late[0])
            job.collect(f"{name}_late_right", joined.late[1])

    job = FedJob(spark, build, tmp_path)
    job.play(
        {
            "left": batches_of(left_rows(chance, 60), chance, most=MOST),
            "right": batches_of(right_rows(chance, 60), chance, most=MOST),
        },
        chance,
        losses=LOSSES,
    )
    kept = on_time(job, lambda time, watermark: time >= watermark)
    assert plain(job.rows("close")) == query(
        f"SELECT coalesce(l.k, r.k), id, v, l.t, rid, r.t FROM l {how} JOIN r "
        f"ON l.k = r.k AND r.t - l.t BETWEEN {LOWER * 1_000_000} AND {UPPER * 1_000_000}",
        kept,
    )
    slide = SLIDE if how in ("inner", "full") else SIZE
    assert plain(job.rows("windows")) == windows_joined(job, how, slide)
    for name, is_late in {"close": older, "windows": past_windows_of(slide)}.items():
        late = {
            side: too_late_for_a_join(job, side, is_late, with_null_keys=how in (side, "full"))
            for side in ("left", "right")
        }
        assert any(late.values())
        assert {side: plain(job.rows(f"{name}_late_{side}")) for side in late} == late


def older(time: int, watermark: int) -> bool:
    return time < watermark


def past_windows_of(slide: int) -> Callable[[int, int], bool]:
    """Whether the last window that a time is in was over."""
    step = slide * 1_000_000
    return lambda time, watermark: time // step * step + SIZE * 1_000_000 <= watermark


def too_late_for_a_join(job: FedJob, side: str, is_late: Callable[[int, int], bool], *, with_null_keys: bool) -> Rows:
    """A row without a key counts only if it could come out without a partner."""
    times = [
        (row, micros(row[-1]), watermark) for name, batch, watermark in arrivals(job) for row in batch if name == side
    ]
    return plain(
        [
            row
            for row, time, watermark in times
            if time is not None and watermark is not None and is_late(time, watermark)
            if row[1] is not None or with_null_keys
        ]
    )


def windows_joined(job: FedJob, how: str, slide: int) -> Rows:
    """Rows by the windows that were open when they came."""
    sides: dict[str, Rows] = {"left": [], "right": []}
    size, step = SIZE * 1_000_000, slide * 1_000_000
    for name, batch, watermark in arrivals(job):
        for row in batch:
            time = micros(row[-1])
            begin = None if time is None else time // step * step
            while begin is not None and time is not None and begin > time - size:
                if watermark is None or begin + size > watermark:
                    sides[name].append((begin, row[1], (row[0], *row[2:-1], time)))
                begin -= step
    found: Rows = []
    matched: set[int] = set()
    for begin, key, left in sides["left"]:
        partners = [number for number, one in enumerate(sides["right"]) if key is not None and one[:2] == (begin, key)]
        matched.update(partners)
        found += [(begin, begin + size, key, *left, *sides["right"][number][2]) for number in partners]
        if not partners and how in ("left", "full"):
            found.append((begin, begin + size, key, *left, None, None))
    if how in ("right", "full"):
        for number, (begin, key, right) in enumerate(sides["right"]):
            if number not in matched:
                found.append((begin, begin + size, key, None, None, None, *right))
    return ordered(found)


def test_operators_of_one_stream_equal_a_batch_query(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(0)
    totals = {"n": F.count("*"), "total": F.sum("v")}

    def build(p: Pipeline, job: FedJob) -> None:
        left = job.source(p, "left", LEFT, event_time="at", delay=DELAY)
        sessions = left.session_window("sessions", gap=GAP, keys=["k"], aggregates=totals)
        job.collect("sessions_out", sessions)
        job.collect("late", sessions.late)
        median = {"median": F.percentile("v", F.lit(0.5))}
        job.collect("medians", left.session_window("medians_of", gap=GAP, aggregates=median))
        job.collect("once", left.deduplicate("dedup", keys=["k", "v"], within=WITHIN))
        counts = left.window("counts", size=SIZE, keys=["k"], aggregates=totals)
        job.collect("top", counts.top_n("best", n=2, order_by=[F.col("total").desc()]))
        job.collect("running", left.running_top_n("running_best", n=3, order_by=[F.col("v").desc()], keys=["k"]))
        multiples, rest = left.split("multiples", F.col("v") % 3 == 0)
        names = p.spark.sql(
            "SELECT * FROM VALUES ('a', 'Anna'), ('b', 'Bert'), ('x', 'Xenia'), (NULL, 'Nobody') AS n(k, name)"
        )
        job.collect("named", multiples.lookup("names", names, keys=["k"], how="left"))
        job.collect("known", rest.lookup("known_names", lambda _: names, keys=["k"]))

    job = FedJob(spark, build, tmp_path)
    job.play({"left": batches_of(left_rows(chance, 70), chance, most=MOST)}, chance, losses=LOSSES)
    found = {name: plain(job.rows(name)) for name in SINKS}
    found["running"] = last_versions(found["running"])
    assert found == expected_of_one_stream(job)


SINKS = ("sessions_out", "medians", "late", "once", "top", "running", "named", "known")


def expected_of_one_stream(job: FedJob) -> dict[str, Rows]:
    fed = [row for _, batch in job.fed if isinstance(batch, list) for row in batch]
    everything: dict[str, Rows] = {"left": [(*row[:-1], micros(row[-1])) for row in fed], "right": []}
    in_time = on_time(job, lambda time, watermark: time >= watermark - GAP * 10**6)
    size = SIZE * 10**6
    in_windows = on_time(job, lambda time, watermark: time // size * size + size > watermark)
    totals = (
        f"SELECT t // {size} * {size} AS s, s + {size}, k, count(*) AS n, sum(v)::BIGINT AS total FROM l GROUP BY s, k"
    )
    rank = "row_number() OVER (PARTITION BY {} ORDER BY {}) AS rank"
    by_total, by_value = rank.format("s", "total DESC NULLS LAST, k NULLS FIRST, n"), rank.format("k", ORDER)
    return {
        "sessions_out": query(sessions("k", "k, count(*), sum(v)::BIGINT"), in_time),
        "medians": query(sessions("'all'", "quantile_cont(v, 0.5)"), in_time),
        "late": too_late(job),
        "once": first_of_each(job),
        "top": query(f"SELECT *, {by_total} FROM ({totals}) QUALIFY rank <= 2", in_windows),
        "running": query(f"SELECT *, {by_value} FROM l QUALIFY rank <= 3", everything),
        "named": query("SELECT id, l.k, v, t, name FROM l LEFT JOIN names USING (k) WHERE v % 3 = 0", everything),
        "known": query("SELECT id, k, v, t, name FROM l JOIN names USING (k) WHERE v % 3 > 0 OR v IS NULL", everything),
    }


ORDER = "v DESC NULLS LAST, id, t NULLS FIRST"


def sessions(key: str, columns: str) -> str:
    """Islands of rows that lie no more than the gap apart."""
    gap = GAP * 10**6
    begins = f"CASE WHEN t - lag(t) OVER (PARTITION BY {key} ORDER BY t) <= {gap} THEN 0 ELSE 1 END"
    number = f"sum(b) OVER (PARTITION BY {key} ORDER BY t ROWS UNBOUNDED PRECEDING)"
    islands = f"SELECT *, {number} AS number FROM (SELECT *, {begins} AS b FROM l)"
    return f"SELECT min(t), max(t) + {gap}, {columns} FROM ({islands}) GROUP BY {key}, number"


def last_versions(rows: Rows) -> Rows:
    """Of each place in a group's ranking the row that came out last: the best one, because a place only gets better."""
    best: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        value = (-1 if row[2] is None else row[2], -row[0])
        place = (row[1], row[-1])
        if place not in best or value > best[place][0]:
            best[place] = (value, row)
    return ordered(row for _, row in best.values())


def too_late(job: FedJob) -> Rows:
    """Rows that the watermark had passed by the gap when they came."""
    times = [(row, micros(row[-1]), watermark) for _, batch, watermark in arrivals(job) for row in batch]
    late = [row for row, time, mark in times if mark is not None and time is not None and time < mark - GAP * 10**6]
    return plain(late)


def first_of_each(job: FedJob) -> Rows:
    """Deduplication as it is described: the first row of a key that is not remembered."""
    found: Rows = []
    remembered: dict[tuple[Any, ...], int] = {}
    for _, batch, watermark in arrivals(job):
        if watermark is not None:
            forgotten = watermark - WITHIN * 1_000_000
            remembered = {key: time for key, time in remembered.items() if time >= forgotten}
        rows = [(*row[:-1], micros(row[-1])) for row in batch if row[-1] is not None]
        for row in sorted(rows, key=lambda row: row[-1]):
            if row[1:3] not in remembered and (watermark is None or row[-1] >= watermark):
                remembered[row[1:3]] = row[-1]
                found.append(row)
    return ordered(found)
