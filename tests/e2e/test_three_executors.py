"""Three executors, state that is looked up by key, a source that one task reads: nothing is lost, nothing restarts."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from epochal_operator.names import Role
from examples.cluster.live_job import LiveJob

EPOCHS = 10
ROWS = 200
"""Of each batch."""
KEYS = 90


def test_state_is_where_its_tasks_are(make_job: Callable[..., LiveJob]) -> None:
    job = make_job("keyed", executors=3, program=Path(__file__).parent / "keyed_pipeline.py")
    job.spec["executor"]["instances"] = 3
    job.spec["checkpoint"]["interval"] = "1s"
    job.apply()
    job.wait_ready()
    epoch = job.wait_epochs(EPOCHS)
    assert job.generation == 1, job.events("RestartScheduled")
    assert len(job.pods(Role.EXECUTOR)) == 3
    position = job.manifest(epoch).operators["events"].position
    assert position is not None
    check(job, epoch, (position.batch + 1) * ROWS)
    job.delete()


def check(job: LiveJob, epoch: int, values: int) -> None:
    """Compare with what the numbers below ``values`` must give."""
    totals: dict[int, tuple[int, int]] = {}
    for row in sorted(job.output(epoch, below="output/totals"), key=lambda row: int(row["n"])):
        totals[row["key"]] = (row["n"], row["total"])
    of_key = {key: range(key, values, KEYS) for key in range(KEYS)}
    assert totals == {key: (len(numbers), sum(numbers)) for key, numbers in of_key.items() if numbers}
    first = Counter(row["value"] for row in job.output(epoch, below="output/first"))
    assert first == Counter(range(0, values, 2))
