"""A pod takes more memory than it may: the job says which one, and what to raise."""

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.cluster.live_job import LiveJob

PROGRAM = Path(__file__).parent / "hungry_pipeline.py"


@pytest.mark.parametrize("where", ["driver", "executor"])
def test_what_is_out_of_memory_is_named(make_job: Callable[..., LiveJob], where: str) -> None:
    job = make_job("memory", where, program=PROGRAM, executors=int(where == "executor"))
    job.spec["pipeline"]["parameters"]["where"] = where
    job.apply()
    said = job.wait_event("RestartScheduled")
    assert any("out of memory" in one and f"spec.{where}.memory" in one for one in said), said
    job.delete()
