"""The operator's metrics: bounded labels, and nothing left of a job that is gone."""

from dataclasses import replace

from prometheus_client import generate_latest

from epochal.control.lifecycle import JobPhase, Restarts, Seen
from epochal.protocol.decision import Complete, EndCleanup, EpochPublished, Reason
from epochal.protocol.epochs import Epoch
from epochal_operator.reporting.metrics import OperatorMetrics
from tests.operator.test_status import FLYING, RUNNING, UP, tick_of

KEY = ("default", "job")


def text(metrics: OperatorMetrics) -> list[str]:
    return [line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")]


def test_a_job_is_counted_from_its_first_round_to_its_last() -> None:
    now = [1100.0]
    metrics = OperatorMetrics(clock=lambda: now[0])
    metrics.on_tick(KEY, tick_of(replace(RUNNING, restarts=Restarts(total=2))))
    now[0] = 1104.0
    lines = text(metrics)
    assert 'epochal_jobs{phase="Running"} 1.0' in lines
    assert 'epochal_tick_age_seconds{job="job",namespace="default"} 4.0' in lines
    assert 'epochal_checkpoint_age_seconds{job="job",namespace="default"} 14.0' in lines
    assert 'epochal_restarts_total{job="job",namespace="default"} 2.0' in lines
    metrics.forget(KEY)
    assert not [line for line in text(metrics) if 'job="job"' in line]
    assert 'epochal_jobs{phase="Running"} 0.0' in text(metrics)


def test_a_job_whose_rounds_never_succeed_grows_old_too() -> None:
    now = [1000.0]
    metrics = OperatorMetrics(clock=lambda: now[0])
    metrics.begin(KEY)
    now[0] = 1030.0
    assert metrics.tick_ages() == [30.0]


def test_checkpoints_and_their_failures_are_counted() -> None:
    metrics = OperatorMetrics()
    record = replace(FLYING.checkpoints, in_flight=None, completed=(Epoch(3),))
    done = replace(FLYING, checkpoints=record)
    seen = Seen(driver=UP, fate=EpochPublished(bytes=7))
    metrics.on_tick(KEY, tick_of(done, FLYING, action=Complete(Epoch(3), 5.0, 7), seen=seen))
    lost = replace(FLYING, checkpoints=replace(FLYING.checkpoints, in_flight=None), phase=JobPhase.RESTARTING)
    metrics.on_tick(KEY, tick_of(lost, FLYING, reason=Reason.TOO_MANY_FAILURES))
    lines = text(metrics)
    assert "epochal_checkpoint_duration_seconds_count 1.0" in lines
    assert 'epochal_last_checkpoint_bytes{job="job",namespace="default"} 7.0' in lines
    labels = 'job="job",namespace="default",reason="TooManyFailures"'
    assert f"epochal_checkpoint_failures_total{{{labels}}} 1.0" in lines


def test_cleanups_are_counted_by_how_they_ended() -> None:
    metrics = OperatorMetrics()
    changed = replace(RUNNING, checkpoints=replace(RUNNING.checkpoints, min_epoch=Epoch(2)))
    tick = tick_of(changed, RUNNING)
    metrics.on_tick(KEY, replace(tick, step=replace(tick.step, action=EndCleanup(succeeded=True))))
    labels = 'job="job",namespace="default",result="succeeded"'
    assert f"epochal_cleanups_total{{{labels}}} 1.0" in text(metrics)


def test_a_number_that_is_none_leaves_nobody_without_metrics() -> None:
    """Whoever may write a job's status may write any number into its record."""
    metrics = OperatorMetrics()
    huge = replace(RUNNING.checkpoints, completed=(Epoch(10**400),), last_checkpoint=10**400)
    metrics.on_tick(KEY, tick_of(replace(RUNNING, checkpoints=huge, restarts=Restarts(total=10**400))))
    metrics.on_tick(("default", "other"), tick_of(RUNNING))
    assert any('job="other"' in line for line in text(metrics))
