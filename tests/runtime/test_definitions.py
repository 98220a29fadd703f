"""State means what it meant when it was written: an operator that is defined in another way is refused it."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline, Stream, operators
from epochal.operators.definitions import expression
from epochal.protocol.control import EXIT_MISCONFIGURED
from epochal.protocol.documents import Manifest, encode
from epochal.protocol.epochs import Epoch
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import read_epoch
from epochal.runtime.dataflow.definitions import SPARK, changed
from epochal.runtime.dataflow.operator import BoundOperator
from epochal.runtime.dataflow.task import MAX_WATERMARK
from epochal.runtime.state.persistence import store_of
from tests.runtime.streaming import FedJob, at
from tests.support.local_job import LocalJob

PATHS = JobPaths("test", "job")
SCHEMA = "id long, country string, at timestamp, amount long"


def stateful_operators() -> list[type[BoundOperator]]:
    """Every operator of ours that asks for a table."""
    found: list[type[BoundOperator]] = []
    for module in pkgutil.iter_modules(operators.__path__, operators.__name__ + "."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if not issubclass(kind, BoundOperator) or kind.__module__ != module.name:
                continue
            if re.search(r"(KeyedTime|Latest|Global)Table\(", inspect.getsource(kind)):
                found.append(kind)
    return found


@pytest.mark.parametrize("kind", stateful_operators(), ids=lambda kind: kind.__name__)
def test_every_operator_with_state_says_what_it_means(kind: type[BoundOperator]) -> None:
    assert kind.state_definition is not BoundOperator.state_definition, (
        f"{kind.__name__} can be mixed up with another one"
    )


def test_there_are_operators_with_state() -> None:
    assert len(stateful_operators()) >= 9


class Definitions:
    """One pipeline with every operator that has state. ``but`` is defined in another way, once it is set."""

    def __init__(self) -> None:
        self.but: tuple[str, dict[str, Any]] = ("", {})

    def _arguments(self, name: str, **arguments: Any) -> dict[str, Any]:
        return {**arguments, **(self.but[1] if self.but[0] == name else {})}

    def build(self, p: Pipeline, job: FedJob) -> None:
        rows = job.source(p, "rows", SCHEMA, event_time="at", delay="10 seconds")
        other = job.source(p, "other", "id long, seen timestamp", event_time="seen", delay="10 seconds")
        of = self._arguments
        count, hour = {"n": F.count("*")}, "1 hour"
        sums = {"n": F.count("*"), "best": F.max("amount")}
        made: dict[str, Stream] = {
            "window": rows.window("window", **of("window", size="1 hour", keys=["country"], aggregates=sums)),
            "session": rows.session_window("session", **of("session", gap=hour, keys=["country"], aggregates=count)),
            "aggregate": rows.aggregate("aggregate", **of("aggregate", keys=["country"], aggregates=sums)),
            "changes": rows.aggregate("changes", **of("changes", keys=["country"], aggregates=count, retractions=True)),
            "once": rows.deduplicate("once", **of("once", keys=["id"], within="1 hour")),
            "windows": rows.window_join("windows", other, **of("windows", size="1 hour", keys=["id"])),
            "join": rows.join("join", other, **of("join", keys=["id"], within=("0 seconds", "1 hour"))),
            "top": rows.running_top_n("top", **of("top", n=2, order_by=[F.desc("amount")], keys=["country"])),
        }
        for name, stream in made.items():
            job.collect(f"{name}-out", stream)


CHANGES: dict[str, tuple[str, Callable[[], dict[str, Any]], str]] = {
    "another size": ("window", lambda: {"size": "2 hours"}, "windows: 3600 seconds every 3600 seconds of at"),
    "another slide": ("window", lambda: {"slide": "30 minutes"}, "every 1800 seconds of at now"),
    "min for max": (
        "window",
        lambda: {"aggregates": {"n": F.count("*"), "best": F.min("amount")}},
        "best = max(amount) (bigint), n = count(*) (bigint) when it was written, best = min(amount) (bigint)",
    ),
    "another type": (
        "aggregate",
        lambda: {"aggregates": {"n": F.count("*"), "best": F.max(F.col("amount").cast("double"))}},
        "best = max(CAST(amount AS DOUBLE)) (double)",
    ),
    "distinct": ("changes", lambda: {"aggregates": {"n": F.count_distinct("id")}}, "n = distinct count(id)"),
    "other keys": ("aggregate", lambda: {"keys": ["id"]}, "keys: country string when it was written, id bigint now"),
    "another gap": ("session", lambda: {"gap": "2 hours"}, "sessions: a gap of 3600 seconds of at"),
    "another time": ("once", lambda: {"within": "2 hours"}, "time: within 3600 seconds of at"),
    "other bounds": ("join", lambda: {"within": ("0 seconds", "2 hours")}, "from 0 seconds to 7200 seconds after at"),
    "an outer side": ("join", lambda: {"how": "left"}, "outer: none when it was written, left now"),
    "a window of a join": ("windows", lambda: {"size": "2 hours"}, "every 7200 seconds of at and seen now"),
    "another n": ("top", lambda: {"n": 3}, "rows: the first 2 when it was written, the first 3 now"),
    "another order": ("top", lambda: {"order_by": [F.asc("amount")]}, "order: amount DESC NULLS LAST"),
}


def test_a_changed_definition_is_refused_with_both_and_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    definitions = Definitions()
    job = FedJob(spark, definitions.build, tmp_path)
    job.start()
    job.feed("rows", [(1, "at", at(0), 5), (2, "fr", at(1), 7)])
    job.feed("other", [(1, at(0))])
    job.checkpoint()
    job.crash()
    for what, (operator, change, said) in CHANGES.items():
        definitions.but = (operator, change())
        engine = LocalJob.start(job)
        message = engine.status().message
        assert engine.exit_code == EXIT_MISCONFIGURED, what
        assert f"epoch 1 has state of operator '{operator}', which is defined in another way now" in message, what
        assert said in message, f"{what}: {message}"
        assert message.endswith("give the changed operator another name, or set allowEmptyStart to drop its state")
    # State that is dropped is dropped whole, and nobody else's.
    definitions.but = ("aggregate", {"aggregates": {"n": F.count("*"), "best": F.min("amount")}})
    job.start(allow_empty=True)
    job.feed("rows", [(3, "at", at(2), 9)])
    job.checkpoint()
    assert ("at", 1, 9) in job.rows("aggregate-out"), "what was counted before is not counted any more"
    assert ("+U", "at", 2) in job.rows("changes-out"), "what did not change goes on"
    job.crash()
    # The new definition is the one that counts from now on; and what tells nothing can be restored as ever.
    job.start()
    job.crash()
    rewrite_states(job, definition=None)  # as a release that knew no definitions
    definitions.but = ("aggregate", {"aggregates": {"n": F.count("*"), "best": F.max("amount")}})
    job.start()
    job.crash()
    # As a release that stored the end of the input: what was open then is gone.
    rewrite_states(job, watermark=MAX_WATERMARK)
    engine = LocalJob.start(job)
    assert engine.exit_code == EXIT_MISCONFIGURED
    closed = "operators 'join', 'once', 'session', 'window', 'windows' have dropped what was open"
    assert closed in engine.status().message
    assert "Set restore.fromEpoch to an epoch before the end" in engine.status().message
    job.start(allow_empty=True)
    job.feed("rows", [(4, "at", at(3), 11)])
    job.checkpoint()
    assert ("+U", "at", 3) in job.rows("changes-out"), "what does not wait for a watermark goes on"
    job.crash()


def rewrite_states(job: LocalJob, **fields: Any) -> None:
    """Let the newest manifest be one of another release."""
    store = store_of(job.storage)
    manifest = read_epoch(store, PATHS, Epoch(job.completed))
    assert isinstance(manifest, Manifest)
    replaced = {name: msgspec.structs.replace(state, **fields) for name, state in manifest.operators.items()}
    name = PATHS.manifest(Epoch(job.completed))
    store.delete([name])
    store.create(name, encode(msgspec.structs.replace(manifest, operators=replaced)))


def test_what_is_another_number_each_time_is_not_told(spark: SparkSession) -> None:
    def made() -> list[str]:
        doubled = F.sum(F.aggregate("x", F.lit(0), lambda one, two: one + two))
        return [expression(column) for column in (F.sum(F.rand()), doubled, F.count_distinct("a"), F.count("a"))]

    assert made() == made()
    assert made() == ["sum(rand())", "sum(aggregate(x, 0, (x, y) -> +(x, y)))", "distinct count(a)", "count(a)"]


def test_words_of_another_spark_are_not_compared() -> None:
    before = {"keys": "id bigint", "aggregates": "n = count(1)", SPARK: "4.2.0"}
    assert changed(before, before | {SPARK: "5.0.0", "aggregates": "n = count(*)"}) == {}
    assert changed(before, before | {SPARK: "5.0.0", "keys": "id string"}) == {"keys": ("id bigint", "id string")}
    assert changed(None, before) == changed(before, None) == {}


def test_an_operator_of_ones_own_may_tell(spark: SparkSession) -> None:
    class Own(BoundOperator):
        def state_definition(self) -> dict[str, str]:
            return {"keys": "id"}

    assert Own({}).state_definition() == {"keys": "id"}
    assert BoundOperator({}).state_definition() == {}
