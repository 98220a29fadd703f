"""What counts as recovered, and what the page of outages says of jobs that never were."""

import math
from pathlib import Path

from benchmarks.outages.__main__ import groups, well
from benchmarks.outages.faults import OUTAGES
from benchmarks.outages.figures import EpochSeen, Seen, during, percentile, phases, recovered_at
from benchmarks.outages.page import page, picture
from benchmarks.outages.results import Result, Try, load, save
from benchmarks.outages.watching import read

END = 100.0


def epoch(number: int, *, begun: float, published: float, committed: float | None, generation: int = 1) -> EpochSeen:
    return EpochSeen(number, generation, begun, published, committed)


def test_an_epoch_that_was_only_committed_after_the_end_is_no_recovery() -> None:
    """It was published before: that its sinks can commit does not tell that the job goes on."""
    epochs = [epoch(1, begun=90, published=95, committed=101), epoch(2, begun=102, published=103, committed=None)]
    assert recovered_at(epochs, END) is None
    assert recovered_at([*epochs, epoch(3, begun=104, published=105, committed=106)], END) == 106


def test_a_barrier_that_waited_through_the_outage_counts_unless_operators_are_the_point() -> None:
    epochs = [epoch(1, begun=90, published=101, committed=102), epoch(2, begun=107, published=108, committed=109)]
    assert recovered_at(epochs, END) == 102
    assert recovered_at(epochs, END, begun_after=True) == 109


def test_the_last_epoch_of_a_driver_that_was_evicted_is_no_recovery() -> None:
    last = epoch(1, begun=101, published=102, committed=103, generation=4)
    first = epoch(2, begun=120, published=121, committed=122, generation=5)
    assert recovered_at([last, first], END, after_generation=4) == 122


def test_of_ten_tries_the_95th_percentile_is_the_worst() -> None:
    values = [float(number) for number in range(10, 0, -1)]
    assert percentile(values, 0.5) == 5
    assert percentile(values, 0.95) == 10
    assert percentile([*values[1:], math.inf], 0.95) == math.inf


def test_phases_last_until_the_next_and_only_within_the_outage() -> None:
    samples = [Seen(at=0, phase="Running"), Seen(at=110, phase="Restarting"), Seen(at=130, phase="Running")]
    seen = during(samples, END, 140)
    assert phases(seen, END, 140) == {"Running": 20, "Restarting": 20}


def test_conditions_are_told_only_where_something_is_amiss() -> None:
    status = {
        "phase": "Restarting",
        "restarts": {"total": 3},
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Restarting", "message": "in 5 s"},
            {"type": "Stalled", "status": "False", "reason": "AsItShould", "message": ""},
            {"type": "Checkpointing", "status": "False", "reason": "Idle", "message": ""},
        ],
    }
    seen = read(status, 1.0)
    assert seen.conditions == ("Ready=False (Restarting): in 5 s",)
    assert seen.restarts == 3


def result(*seconds: float | None, wrong: str = "") -> Result:
    tries = [
        Try(
            job=f"job-{number}", seconds=each, phases={"Running": 60.0}, conditions=[], messages=["it | waits"],
            restarts=number, generations=1, windows=10, wrong=wrong,
        )
        for number, each in enumerate(seconds)
    ]  # fmt: skip
    return Result(
        title="Kafka away", jobs=len(tries), seconds=300, lasted=[300.1], tries=tries, given_up_after=900,
        events={"RestartScheduled": 4},
    )  # fmt: skip


def test_a_job_that_did_not_go_on_is_told_and_makes_the_run_fail() -> None:
    bad, good = result(3.0, None), result(3.0, 4.0)
    assert well(good)
    assert not well(bad)
    assert not well(result(3.0, wrong="window 1 is there twice"))
    shown = page({"now": {"kafka": bad}, "before": {"kafka": good}}, ["kafka"], {"cores": 2})
    assert "| Kafka away | 5 min | 2 (2 jobs × 1) | 1 of 2 | 3.0 s | not within 15 min | 0 to 1 | 1 | 2 of 2 |" in shown
    assert "it \\| waits" in shown
    assert shown.index("## Before") < shown.index("| 4.0 s |")
    assert picture({"now": {"kafka": bad}}, ["kafka"]) == ""
    assert "Kafka away" in picture({"now": {"kafka": good}}, ["kafka"])


def test_figures_of_one_outage_are_kept_beside_those_of_others(tmp_path: Path) -> None:
    save(tmp_path, "now", {"kafka": result(1.0)})
    save(tmp_path, "now", {"s3": result(2.0)})
    save(tmp_path, "now", {"kafka": result(3.0)})
    kept = load(tmp_path)["now"]
    assert [kept[name].tries[0].seconds for name in ("kafka", "s3")] == [3.0, 2.0]


def test_what_concerns_different_jobs_happens_at_the_same_time() -> None:
    names = [[outage.name for outage in group] for group in groups(list(OUTAGES))]
    assert names[-1] == ["postgresql", "kafka"]
    assert all(len(group) == 1 for group in names[:-1])
    assert sorted(name for group in names for name in group) == sorted(outage.name for outage in OUTAGES)
