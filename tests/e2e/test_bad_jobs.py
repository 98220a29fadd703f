"""A job that cannot run says so, in a condition and in an event, and says what is wrong."""

from collections.abc import Callable

from examples.cluster.live_job import LiveJob, until

MakeJob = Callable[..., LiveJob]


def test_an_image_that_is_not_there(make_job: MakeJob) -> None:
    job = make_job("bad", "no-image")
    job.spec.update(image="localhost/nobody-has-this:1", imagePullPolicy="Never")
    job.apply()
    [said] = job.wait_event("DriverNotStarting")
    assert "ErrImageNeverPull" in said
    assert "localhost/nobody-has-this:1" in said
    until("the condition to say it", lambda: "ErrImageNeverPull" in job.condition("Ready").get("message", ""))
    assert job.condition("Ready")["status"] == "False"
    job.delete()


def test_a_secret_that_is_not_there(make_job: MakeJob, cluster: object) -> None:
    job = make_job("bad", "no-secret")
    job.spec["checkpoint"]["storage"]["credentialsSecret"]["name"] = "nobody-has-this"
    job.apply()
    [said] = job.wait_event("SpecNotAccepted")
    assert "Secret nobody-has-this does not exist" in said
    stalled = job.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "SpecNotAccepted")
    assert "Secret nobody-has-this does not exist" in stalled["message"]
    job.delete()


def test_a_module_that_is_not_there(make_job: MakeJob) -> None:
    job = make_job("bad", "no-module")
    del job.spec["pipeline"]["configMap"]
    job.spec["pipeline"]["module"] = "nobody.has.this"
    job.apply()
    [said] = job.wait_event("Failed")
    assert "nobody.has.this cannot be imported" in said
    stalled = job.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "Failed")
    assert job.status["phase"] == "Failed"
    assert job.generation == 1, "no restart mends that"
    job.delete()
