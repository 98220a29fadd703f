"""What jobs that hang cost the others: drivers that accept and never answer, stores that do."""

import base64
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from benchmarks.report import table
from epochal_operator.names import PLURAL
from tests.support.hostile import HostileServer, hangs

if TYPE_CHECKING:
    from benchmarks.operator_scale import Scale

SETTLE = 20.0
SECRET = "keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingRow:
    """``healthy``: jobs that do not hang; the figures of ages and checkpoints are theirs. ``late`` is how much later
    than their interval they checkpoint."""

    what: str
    healthy: int
    age_p50: float
    age_p99: float
    late_p50: float
    late_p99: float
    checkpoints: float
    cpu: float
    memory: int
    threads: int


def threads_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Threads:")).split()[1])


class Hanging:
    """Measures one operator while some of its jobs hang."""

    def __init__(self, scale: "Scale", seconds: float) -> None:
        self._scale, self._seconds = scale, seconds
        self._hung: set[str] = set()

    def rows(self) -> list[HangingRow]:
        jobs = self._scale.jobs
        few, many = jobs // 5, jobs * 3 // 5
        with HostileServer(hangs) as store:
            return [
                self._measured("none", lambda: self._hang(0)),
                self._measured(f"{few} drivers", lambda: self._hang(few)),
                self._measured(f"{many} drivers", lambda: self._hang(many)),
                self._measured("none, again", lambda: self._hang(0)),
                self._measured(f"{few} more jobs whose stores hang", lambda: self._add(few, store)),
            ]

    def _hang(self, count: int) -> None:
        self._hung = {f"job-{number}" for number in range(count)}
        self._scale.node.hanging = self._hung

    def _add(self, count: int, store: HostileServer) -> None:
        """Jobs that are new, so that the operator reads their stores again and again."""
        api, namespace = self._scale.api, self._scale.namespace
        data = {name: base64.b64encode(b"key").decode() for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        api.create("secrets", namespace, secret)
        storage = {"uri": "s3://bucket/x", "endpoint": store.endpoint, "credentialsSecret": {"name": SECRET}}
        for number in range(count):
            manifest = self._scale.manifest(f"hanging-{number}")
            manifest["spec"]["checkpoint"]["storage"] = storage
            api.create(PLURAL, namespace, manifest)
            self._hung.add(f"hanging-{number}")

    def _measured(self, what: str, begin: Callable[[], None]) -> HangingRow:
        begin()
        time.sleep(SETTLE)
        scale = self._scale
        assert scale.operator is not None
        pid = scale.operator.pid
        cpu, epochs, begun = scale.cpu(pid), self._values("epochal_epoch"), time.monotonic()
        ages: list[float] = []
        since: list[float] = []
        threads = 0
        while time.monotonic() - begun < self._seconds:
            ages += self._values("epochal_tick_age_seconds").values()
            since += self._values("epochal_checkpoint_age_seconds").values()
            threads = max(threads, threads_of(pid))
            time.sleep(2.3)  # not in step with the ticks
        took = time.monotonic() - begun
        now = self._values("epochal_epoch")
        made = sum(now[job] - epochs[job] for job in now if job in epochs)
        age = quantiles(ages, n=100)
        # A job's age runs from 0 to its interval and what comes on top: its largest values tell how late it was.
        late = quantiles([max(0.0, value - scale.interval) for value in since], n=100)
        row = HangingRow(
            what=what,
            healthy=len(now),
            age_p50=age[49],
            age_p99=age[98],
            late_p50=late[49],
            late_p99=late[98],
            checkpoints=made / max(1, len(now)) * 60 / took,
            cpu=(scale.cpu(pid) - cpu) / took,
            memory=scale.memory(pid),
            threads=threads,
        )
        print(row, flush=True)
        return row

    def _values(self, name: str) -> dict[str, float]:
        """Of the jobs that do not hang."""
        return {
            labels["job"]: value
            for _, labels, value in self._scale.metrics(name)
            if labels["job"] not in self._hung and math.isfinite(value)
        }


def section(rows: list[HangingRow]) -> str:
    shown = table(
        [
            *("hanging", "other jobs", "their tick age p50", "p99", "checkpoint later by, p99", "checkpoints"),
            *("operator CPU", "memory (MB)", "threads"),
        ],
        [
            [
                row.what,
                str(row.healthy),
                f"{row.age_p50:.2f} s",
                f"{row.age_p99:.2f} s",
                f"{row.late_p99:.2f} s",
                f"{row.checkpoints:.2f}",
                f"{row.cpu:.2f}",
                f"{row.memory / 1e6:.0f}",
                str(row.threads),
            ]
            for row in rows
        ],
    )
    return f"""## Jobs that hang

All in one run, one after the other, with the same operator. A driver that hangs accepts connections and never answers;
so does a store. Tick age, lateness and checkpoints (per job and minute) are those of the *other* jobs. Lateness is the
time from the end of the interval until the checkpoint has completed; half a second of it is the driver's.

{shown}

Compare the rows, not the seconds: the first and the fourth differ by the load of the machine alone.
"""


def worst(rows: list[HangingRow]) -> list[str]:
    """Rows in which the other jobs' ticks were older than three ticks more than in the runs in which nothing hung."""
    quiet = max(row.age_p99 for row in rows if row.what.startswith("none"))
    return [row.what for row in rows if row.age_p99 > quiet + 3.0]


def plain(rows: list[HangingRow]) -> list[dict[str, Any]]:
    return [{name: getattr(row, name) for name in HangingRow.__dataclass_fields__} for row in rows]
