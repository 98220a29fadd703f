"""From `kubectl apply` to a job that is Ready, works and makes epochs."""

import time

from examples.cluster.live_job import LiveJob, until
from tests.e2e.driver_api import driver_status


def test_a_new_job_becomes_ready_and_makes_epochs(job: LiveJob) -> None:
    began = time.monotonic()
    job.wait_ready()
    ready = time.monotonic() - began
    until("the first batch", lambda: driver_status(job).sources[0].batch >= 0)
    batch = time.monotonic() - began
    until("the first epoch", lambda: job.epoch >= 1)
    epoch = time.monotonic() - began
    print(f"apply to Ready {ready:.1f} s, to the first batch {batch:.1f} s, to the first epoch {epoch:.1f} s")
    assert job.condition("Ready")["status"] == "True"
    assert job.condition("Ready")["message"] == "generation 1 runs"
    assert job.condition("Stalled")["status"] == "False"
    assert job.events("Restored") == ["generation 1 runs, started empty"]
    job.kubectl("wait", f"streamingjob/{job.name}", "--for=condition=Ready", "--timeout=10s")
    line = job.kubectl("get", "sjob", job.name, "--no-headers").split()
    assert line[1:3] == ["True", "Running"]
    assert job.status["lastCheckpoint"]["state"] == "Ready"


def test_what_comes_out_is_what_was_computed(running: LiveJob) -> None:
    until("a window", running.check_output)
