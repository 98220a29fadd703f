"""One outage after the other, each with all jobs that it concerns: break, wait, mend, and see how long they take."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from benchmarks.outages.faults import Outage, Scene
from benchmarks.outages.figures import commonest, during, phases, recovered_at
from benchmarks.outages.jobs import OutageJob, Sink, let_go, make_job, wait_healthy
from benchmarks.outages.results import Result, Try
from benchmarks.outages.watching import Watcher
from cluster.errors import ClusterError
from examples.cluster.expected import WrongOutputError

START = 900.0
FOR_GOOD = ("Failed", "Waiting", "Stopped", "Finished")
"""Phases that no time ends."""

PATIENCE_FOR_GOOD = 30.0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Fleet:
    """The jobs. One that an outage has ended is replaced by a new one, so that the next outage has as many."""

    def __init__(self, scene: Scene, each: int, *, checkout: bool) -> None:
        self.scene, self._each, self._checkout = scene, each, checkout
        self.jobs: list[OutageJob] = []
        self._made: Counter[Sink] = Counter()

    def fill(self, sinks: Sequence[Sink]) -> None:
        """As many as there should be, started a few at a time: they share two cores."""
        new: list[OutageJob] = []
        while missing := [sink for sink in sinks if self._count(sink) < self._each]:
            for sink in missing:
                self._made[sink] += 1
                job = self._make(f"{sink}-{self._made[sink]}", sink)
                job.apply()
                self.jobs.append(job)
                new.append(job)
            late = wait_healthy(new[-len(missing) :], START)
            if late:
                raise SystemExit(f"{', '.join(job.name for job in late)} did not start within {START:.0f} s")
            say(f"{len(self.jobs)} jobs run")

    def _count(self, sink: Sink) -> int:
        return sum(job.sink is sink for job in self.jobs)

    def _make(self, name: str, sink: Sink) -> OutageJob:
        scene = self.scene
        return make_job(
            scene.cluster, scene.namespace, name, sink, scene.servers, image=scene.image, checkout=self._checkout
        )

    def drop(self, names: Sequence[str]) -> None:
        """Jobs that need a hand are of no use any more."""
        for job in [job for job in self.jobs if job.name in names]:
            self.jobs.remove(job)
            say(f"{job.name} is replaced by a new job")
            # It may not come to its last checkpoint, and nobody needs it.
            where = f"--namespace={job.live.namespace}"
            self.scene.cluster.kubectl("delete", where, "streamingjob", job.name, "--wait=false")
            let_go(self.scene.cluster, where, job.name)


@dataclass
class Running:
    """One outage in one round."""

    outage: Outage
    jobs: list[OutageJob]
    began: float = 0.0
    ended: float = 0.0
    generations: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    recovered: dict[str, float] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def look(self, watcher: Watcher) -> None:
        """Note who goes on, and who never will."""
        for job in self.jobs:
            if job.name in self.recovered or job.name in self.lost:
                continue
            after = self.generations[job.name] if self.outage.new_driver else 0
            epochs = job.epochs(self.ended)
            at = recovered_at(epochs, self.ended, after_generation=after, begun_after=self.outage.new_operator)
            if at is not None:
                self.recovered[job.name] = at
                say(f"{self.outage.name}: {job.name} went on {at - self.ended:.1f} s after the end")
                continue
            now = watcher.now(job.name)
            if now.phase in FOR_GOOD and time.time() - max(now.at, self.ended) > PATIENCE_FOR_GOOD:
                self.lost.add(job.name)
                say(f"{self.outage.name}: {job.name} is {now.phase} for good: {now.message}")

    @property
    def over(self) -> bool:
        return len(self.recovered) + len(self.lost) == len(self.jobs)


class Rounds:
    def __init__(self, scene: Scene, watcher: Watcher, *, patience: float) -> None:
        self._scene, self._watcher, self._patience = scene, watcher, patience

    def run(self, outages: Sequence[Outage], jobs: Sequence[OutageJob]) -> dict[str, Result]:
        """One round of outages that happen at the same time."""
        parts = [Running(outage, [job for job in jobs if outage.concerned in (None, job.sink)]) for outage in outages]
        if late := wait_healthy([job for part in parts for job in part.jobs], START):
            raise SystemExit(f"{', '.join(job.name for job in late)} did not run well before the outage")
        for part in parts:
            self._begin(part)
        longest = max(outage.seconds for outage in outages)
        time.sleep(max(0.0, max(part.began for part in parts) + longest - time.time()))
        for part in parts:
            part.outage.mend(self._scene, part.jobs)
            part.ended = time.time() if part.outage.seconds else part.began
            say(f"{part.outage.title}: over after {part.ended - part.began:.0f} s")
        until = time.time() + self._patience
        while not all(part.over for part in parts) and time.time() < until:
            time.sleep(0.5)
            for part in parts:
                part.look(self._watcher)
        return {part.outage.name: self._result(part) for part in parts}

    def _begin(self, part: Running) -> None:
        for job in part.jobs:
            now = self._watcher.now(job.name)
            part.generations[job.name], part.restarts[job.name] = now.generation, now.restarts
        part.began = time.time()
        say(f"{part.outage.title}: begins, {len(part.jobs)} jobs")
        part.outage.begin(self._scene, part.jobs)

    def _result(self, part: Running) -> Result:
        return Result(
            title=part.outage.title,
            jobs=len(part.jobs),
            seconds=part.outage.seconds,
            lasted=[round(part.ended - part.began, 1)],
            tries=[self._try(part, job) for job in part.jobs],
            given_up_after=self._patience,
            events=self._events(part),
        )

    def _try(self, part: Running, job: OutageJob) -> Try:
        at = part.recovered.get(job.name)
        until = at or time.time()
        seen = during(self._watcher.of(job.name), part.began, until)
        last = self._watcher.now(job.name)
        windows, wrong = _read_back(job)
        if wrong:
            say(f"{part.outage.name}: the rows of {job.name} are wrong: {wrong}")
        return Try(
            job=job.name,
            seconds=None if at is None else round(at - part.ended, 2),
            phases={phase: round(lasted, 1) for phase, lasted in phases(seen, part.began, until).items()},
            conditions=commonest(text for one in seen for text in one.conditions),
            messages=commonest(one.message for one in seen),
            restarts=last.restarts - part.restarts[job.name],
            generations=last.generation - part.generations[job.name],
            windows=windows,
            wrong=wrong,
        )

    def _events(self, part: Running) -> dict[str, int]:
        """Events of the jobs since the outage began, by reason: how often each was told."""
        names = {job.name for job in part.jobs}
        found: Counter[str] = Counter()
        for event in self._scene.cluster.get(f"--namespace={self._scene.namespace}", "events")["items"]:
            about: dict[str, Any] = event["involvedObject"]
            if about["kind"] == "StreamingJob" and about["name"] in names and _moment(event) >= part.began:
                found[event["reason"]] += int(event.get("count") or 1)
        return dict(found)


def _moment(event: dict[str, Any]) -> float:
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(text).timestamp()


def _read_back(job: OutageJob) -> tuple[int, str]:
    """How many windows are out, and what is wrong about them. An epoch may be about to be committed, so it is looked at
    for a while."""
    wrong = ""
    for _ in range(10):
        try:
            return job.check(), ""
        except (WrongOutputError, ClusterError, IndexError) as error:
            wrong = str(error)
            time.sleep(1)
    return 0, wrong


def joined(one: Result, other: Result) -> Result:
    """Two rounds of one outage."""
    events = Counter(one.events) + Counter(other.events)
    return replace(one, lasted=one.lasted + other.lasted, tries=one.tries + other.tries, events=dict(events))
