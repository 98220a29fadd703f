"""From `kubectl apply`, and from a driver's death, to rows being processed: what the time is spent on.

Needs the cluster of `make cluster`, with nothing else going on. Jobs are those of `make cluster-demo`, once all in the
driver and once with an executor.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.watch import Watch
from rich.progress import track

from benchmarks.plot import stacked_bars
from benchmarks.report import PAGES, conditions, conditions_line, table, write_json, write_page
from cluster.daemons import started_at
from epochal_operator.names import JOB_LABEL, ROLE_LABEL, Role
from examples.cluster.live_job import Cluster, LiveJob, until
from tests.e2e.driver_process import driver_pid, kill_driver_process

NAMESPACE = "bench-start"
GOAL = 15.0
"""Seconds from a driver's death until rows are processed again."""

ROWS = "first rows are processed"
READY, EPOCH = "Ready", "first epoch"
"""What is reached beside the steps."""

STEPS = {
    "the operator has made a driver pod": "noticing, deciding, one tick of the operator",
    "its process begins": "scheduler, kubelet, containerd",
    "Python listens": "imports",
    "Spark is up": "the JVM",
    "its generation is claimed": "describing the pipeline, asking the store",
    "the job runs": "executors if there are some, Python workers, restoring",
    ROWS: "the first batch",
}
"""One after the other; each with what happens until it is done."""

LINES = {
    "Control server listens": "Python listens",
    " is up, checkpoints use": "Spark is up",
    "Starting empty": "its generation is claimed",
    "Restoring epoch": "its generation is claimed",
    "Running: its sources": "the job runs",
    "First rows of source": ROWS,
    " is ready": EPOCH,
}
"""Words of the driver's log that tell of a step."""


WORDS = """Seconds that each step took, one after the other, the median of the rounds. *In all* is from the cause to
there; Ready and the first epoch are not part of the way to the first rows."""


class Pods:
    """When each driver pod was made, as told by the API server."""

    def __init__(self, job: LiveJob) -> None:
        self.made: dict[str, float] = {}
        self._job = job
        threading.Thread(target=self._look, name="pods", daemon=True).start()

    def _look(self) -> None:
        core = CoreV1Api(self._job.cluster.jobs.api_client)
        selector = f"{JOB_LABEL}={self._job.name},{ROLE_LABEL}={Role.DRIVER}"
        events = Watch().stream(  # type: ignore[no-untyped-call]
            core.list_namespaced_pod, self._job.namespace, label_selector=selector
        )
        for event in events:
            self.made.setdefault(event["object"].metadata.name, time.time())


def measure(job: LiveJob, pods: Pods, generation: int, cause: Callable[[], Any]) -> dict[str, float]:
    """Seconds from ``cause`` to each step of the generation that follows."""
    began = time.time()
    cause()
    while not (job.generation >= generation and job.status.get("phase") == "Running"):
        time.sleep(0.05)
    moments = {READY: time.time()}
    pod = job.driver
    moments["the operator has made a driver pod"] = pods.made[pod]
    moments["its process begins"] = started_at(driver_pid(job)).timestamp()
    moments |= until("rows and an epoch", lambda: said(job, pod))
    return {name: moment - began for name, moment in moments.items()}


def said(job: LiveJob, pod: str) -> dict[str, float] | None:
    """The steps that a driver's log tells of; None until it has told of all."""
    found: dict[str, float] = {}
    for line in job.kubectl("logs", pod, "--timestamps").splitlines():
        for words, step in LINES.items():
            if words in line and step not in found:
                # Nine digits of a second's fraction are more than Python reads.
                found[step] = datetime.fromisoformat(line.split(" ", 1)[0][:26]).replace(tzinfo=UTC).timestamp()
    return found if set(found) == set(LINES.values()) else None


def one_round(cluster: Cluster, number: int, *, executors: int) -> dict[str, dict[str, float]]:
    job = LiveJob(cluster, NAMESPACE, f"orders-{executors}-{number}")
    job.spec["pipeline"]["parameters"].update(join="false")
    if not executors:
        del job.spec["executor"]
        job.spec["sparkConf"] = {"spark.master": "local[1]"}
    pods = Pods(job)
    found = {"kubectl apply": measure(job, pods, 1, job.apply)}
    for name, cause in {
        "kill -9 of the driver": lambda: kill_driver_process(job),
        "driver pod deleted": lambda: job.kubectl("delete", "pod", job.driver, "--grace-period=0", "--force"),
    }.items():
        job.wait_epochs(2)
        found[name] = measure(job, pods, job.generation + 1, cause)
    job.delete()
    return found


def middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def parts(moments: dict[str, float]) -> dict[str, float]:
    """How long each step took."""
    ends = [moments[step] for step in STEPS]
    return dict(zip(STEPS, (end - begin for begin, end in zip([0.0, *ends], ends, strict=False)), strict=True))


def page(found: dict[str, dict[str, float]], facts: dict[str, Any]) -> str:
    spent = {name: parts(moments) for name, moments in found.items()}
    rows = [[f"until {step}", why, *(f"{spent[name][step]:.1f}" for name in found)] for step, why in STEPS.items()]
    rows += [
        [f"**in all, to {step}**", "", *(f"**{moments[step]:.1f}**" for moments in found.values())]
        for step in (READY, ROWS, EPOCH)
    ]
    late = [
        f"{name}: {moments[ROWS]:.1f}"
        for name, moments in found.items()
        if "apply" not in name and moments[ROWS] > GOAL
    ]
    return "\n\n".join(
        [
            "# From `kubectl apply` to rows, and from a driver's death",
            "`make bench-start` measures this on the cluster of `make cluster` and writes this page.",
            conditions_line(facts),
            WORDS,
            "![What the time is spent on](start.svg)",
            table(["step", "what happens", *found], rows),
            f"Goal: rows are processed again {GOAL:g} s after a driver's death: "
            + (f"missed ({'; '.join(late)})." if late else "met."),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    arguments = parser.parse_args()
    load = conditions()["load"]
    cluster = Cluster()
    cluster.install_operator()
    cluster.make_namespace(NAMESPACE)
    kinds = {0: "all in the driver", 1: "with an executor"}
    todo = [(executors, number) for number in range(arguments.rounds) for executors in kinds]
    rounds: dict[str, list[dict[str, float]]] = {}
    for executors, number in track(todo, description="starting and killing"):
        for name, moments in one_round(cluster, number, executors=executors).items():
            rounds.setdefault(f"{name}, {kinds[executors]}", []).append(moments)
    found = {name: middle(rounds[name]) for name in sorted(rounds, key=lambda name: name.split(", ")[1])}
    write_json("start", {"rounds": rounds})
    write_page("start", page(found, conditions(load_before=load, rounds=arguments.rounds)))
    (PAGES / "start.svg").write_text(stacked_bars({name: parts(moments) for name, moments in found.items()}))
    for name, moments in found.items():
        print(f"{name}: Ready {moments[READY]:.1f} s, rows {moments[ROWS]:.1f} s, epoch {moments[EPOCH]:.1f} s")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    return 0


if __name__ == "__main__":
    sys.exit(main())
