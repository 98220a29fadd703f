"""Jobs that need an executor's files: run again where a task ran elsewhere, given up where the executor is gone."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from epochal.runtime.errors import PipelineError, lost_state
from epochal.runtime.state import homes
from epochal.runtime.state.homes import Homes, MisplacedError, StateLostError
from epochal.runtime.state.latest_files import StateNotHereError

NOTHING: Any = None


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Executors that are no longer there."""
    gone: list[str] = []
    monkeypatch.setattr(Homes, "lost", lambda *_: gone)
    monkeypatch.setattr(homes, "PAUSE", 0.0)
    return gone


def job(errors: list[Exception], then: Callable[[], None] = lambda: None) -> Callable[[], str]:
    def run() -> str:
        if errors:
            then()
            raise errors.pop(0)
        return "done"

    return run


def two_executors() -> Homes:
    return Homes(("1", "2"), ("blockmgr-a", "blockmgr-b"), NOTHING, NOTHING)


def test_a_job_whose_tasks_ran_elsewhere_is_run_again(gone: list[str]) -> None:
    elsewhere = [StateNotHereError("partition 1"), StateNotHereError("partition 0")]
    assert two_executors().run(NOTHING, job([*elsewhere])) == "done"
    assert not gone


def test_an_executor_that_is_gone_is_not_waited_for(gone: list[str]) -> None:
    gone.append("2")
    with pytest.raises(StateLostError, match="executors 2 are gone") as caught:
        two_executors().run(NOTHING, job([]))
    assert lost_state(caught.value)


def test_an_executor_that_goes_meanwhile_is_lost_state(gone: list[str]) -> None:
    with pytest.raises(StateNotHereError):
        two_executors().run(NOTHING, job([StateNotHereError("partition 1")], lambda: gone.append("2")))


def test_other_errors_are_not_tried_again(gone: list[str]) -> None:
    errors: list[Exception] = [ValueError("no number"), ValueError("never seen")]
    with pytest.raises(ValueError, match="no number"):
        two_executors().run(NOTHING, job(errors))
    assert not gone


def test_it_ends_some_time_and_says_what_to_do(gone: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "PATIENCE", 0.01)
    with pytest.raises(MisplacedError, match="more cores") as caught:
        two_executors().run(NOTHING, job([StateNotHereError("partition 1")] * 1_000_000))
    assert not lost_state(caught.value)
    assert not gone


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.adaptive.enabled", "true"), ("spark.speculation", "true"), ("spark.locality.wait", "0")],
)
def test_settings_that_let_tasks_run_elsewhere_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    homes.check_settings(spark)
    if key.startswith("spark.sql."):
        spark.conf.set(key, value)
    else:
        changed = spark.sparkContext.getConf().set(key, value)
        monkeypatch.setattr(spark.sparkContext, "getConf", lambda: changed)
    try:
        with pytest.raises(PipelineError, match=f"^{key} is "):
            homes.check_settings(spark)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
