"""What the protocol costs as a job's history grows: requests and time to restore, start, publish, decide and clean up.

Restoring must not get dearer with age, so the program ends with 1 if any operation makes more requests after 10,000
epochs than after 10. Requests to S3 are counted at the server's door, by a proxy, as well as by the store itself.

    make bench-protocol            all of it
    python -m benchmarks.protocol --quick
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from epochal.protocol.cleanup import Cleaned, clean
from epochal.protocol.decision import CheckpointSpec, Observation, Record
from epochal.protocol.documents import (
    CommitRecord,
    GenerationRecord,
    Manifest,
    OperatorState,
    RunPart,
    StoredRun,
    StoredTable,
    encode,
)
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.paths import JobPaths, StateName
from epochal.protocol.progress import progress
from epochal.protocol.publish import Published, publish
from epochal.protocol.resolve import Found, resolve
from epochal.protocol.start import StartRequest, start_generation
from epochal.protocol.store import Store, StoreOptions, open_store
from tests.support.proxy import CountingProxy
from tests.support.s3 import S3Server

HISTORY = (10, 100, 1_000, 10_000)
KEEP = 4
STATE_OBJECTS = 10_000
RESULTS = Path("build/bench/protocol.json")

SETTINGS = {
    "kept": f"cleanup keeps {KEEP} epochs",
    "everything": "nothing was ever cleaned up",
}


@dataclass(frozen=True, slots=True)
class Backend:
    """A store, and how to count what reaches it. ``at_server`` is None where there is no server."""

    name: str
    store: Store
    repeats: int
    at_server: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    backend: str
    setting: str
    epochs: int
    operation: str
    requests: int
    requests_at_server: int | None
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupMeasured:
    backend: str
    objects: int
    requests: dict[str, int]
    requests_at_server: int | None
    seconds: float


# --- a history


def manifest(paths: JobPaths, epoch: int, generation: int = 1) -> Manifest:
    """A manifest of ordinary size: three operators with eight runs each."""
    name = StateName(
        operator="sums", table="totals", epoch=Epoch(epoch), generation=Generation(generation), run=0, part=0
    )
    part = RunPart(object=paths.state_object(name), rows=1000, bytes=10_000)
    table = StoredTable(kind="KeyedTime", runs=(StoredRun(parts=(part,), min_time=0, max_time=1),) * 8)
    return Manifest(
        namespace=paths.namespace,
        job=paths.job,
        epoch=Epoch(epoch),
        generation=Generation(generation),
        claim="benchmark",
        parent=Epoch(epoch - 1),
        min_epoch=Epoch(1),
        timestamp=0,
        then_stop=False,
        operators={operator: OperatorState(tables={"totals": table}) for operator in ("source", "sums", "sink")},
    )


def write_history(store: Store, paths: JobPaths, epochs: range, bar: Callable[[], None]) -> None:
    def write(epoch: int) -> None:
        store.create(paths.manifest(Epoch(epoch)), encode(manifest(paths, epoch)))
        record = CommitRecord(epoch=Epoch(epoch), generation=Generation(1))
        store.create(paths.committed(Epoch(epoch)), encode(record))
        bar()

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(write, epochs):
            pass


def generation_record(generation: int) -> GenerationRecord:
    return GenerationRecord(generation=Generation(generation), claim="benchmark", created=0, writer="benchmark")


# --- one operation


def operations(store: Store, paths: JobPaths, newest: int) -> Iterator[tuple[str, Callable[[], None], list[str]]]:
    """Name, what to measure, and what to delete afterwards so that each repeat finds the same store."""

    def restore() -> None:
        found = resolve(store, paths, known=Epoch(newest))
        assert isinstance(found, Found), found
        assert found.manifest.epoch == newest

    def start() -> None:
        request = StartRequest(record=generation_record(2), known=Epoch(newest), issued=Epoch(newest))
        found = start_generation(store, paths, request)
        assert isinstance(found, Found), found

    def make_epoch() -> None:
        assert isinstance(publish(store, paths, manifest(paths, newest + 1)), Published)

    completed = tuple(Epoch(epoch) for epoch in range(max(1, newest - KEEP - 2), newest + 1))
    record = Record(
        generation=Generation(1),
        generation_started=0.0,
        issued=Epoch(newest),
        last_checkpoint=0.0,
        last_checkpoint_generation=Generation(1),
        completed=completed,
        completed_count=newest,
    )
    spec, seen = CheckpointSpec(), Observation()

    def decide() -> None:
        progress(spec, record, seen, 1e6)

    yield "resolve", restore, []
    yield "start_generation", start, [paths.generation(Generation(2))]
    yield "publish", make_epoch, [paths.manifest(Epoch(newest + 1))]
    yield "progress (decide)", decide, []


def measure(backend: Backend, paths: JobPaths, setting: str, newest: int) -> Iterator[Measured]:
    for name, operation, traces in operations(backend.store, paths, newest):
        operation()  # once unmeasured: connections and caches
        backend.store.delete(traces)
        times, requests, at_server = [], set(), set()
        for _ in range(backend.repeats):
            before = backend.store.requests.total()
            before_at_server = backend.at_server() if backend.at_server else 0
            started = time.perf_counter()
            operation()
            times.append(time.perf_counter() - started)
            requests.add(backend.store.requests.total() - before)
            at_server.add(backend.at_server() - before_at_server if backend.at_server else None)
            backend.store.delete(traces)
        yield Measured(
            backend=backend.name,
            setting=setting,
            epochs=newest,
            operation=name,
            requests=max(requests),
            requests_at_server=max((count for count in at_server if count is not None), default=None),
            milliseconds=1000 * statistics.median(times),
        )


def measure_cleanup(backend: Backend, bar: Callable[[], None]) -> CleanupMeasured:
    paths = JobPaths("bench", "cleanup")
    store = backend.store

    def write(part: int) -> None:
        name = StateName(operator="o", table="t", epoch=Epoch(1), generation=Generation(1), run=0, part=part)
        store.create(paths.state_object(name), b"x" * 100)
        bar()

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(write, range(STATE_OBJECTS)):
            pass
    write_history(store, paths, range(1, 11), lambda: None)
    store.requests.clear()
    before = backend.at_server() if backend.at_server else 0
    started = time.perf_counter()
    cleaned = clean(store, paths, Epoch(7))
    seconds = time.perf_counter() - started
    assert isinstance(cleaned, Cleaned), cleaned
    assert cleaned.objects == STATE_OBJECTS + 12
    return CleanupMeasured(
        backend=backend.name,
        objects=cleaned.objects,
        requests=dict(store.requests),
        requests_at_server=backend.at_server() - before if backend.at_server else None,
        seconds=seconds,
    )


# --- all of them


@contextmanager
def backends(*, quick: bool) -> Iterator[list[Backend]]:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="epochal-bench-"))
        server = stack.enter_context(S3Server())
        server.make_bucket("bench")
        proxy = stack.enter_context(CountingProxy(server.endpoint))
        options = StoreOptions(
            endpoint=proxy.endpoint,
            region=server.region,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
        )
        yield [
            Backend("memory", open_store("memory:///"), 5 if quick else 50),
            Backend("local disk", open_store(f"file://{directory}"), 5 if quick else 20),
            Backend("S3", open_store("s3://bench/root", options), 5 if quick else 20, lambda: len(proxy.requests)),
        ]


def run(console: Console, *, quick: bool) -> tuple[list[Measured], list[CleanupMeasured]]:
    history = HISTORY[:3] if quick else HISTORY
    results: list[Measured] = []
    cleanups: list[CleanupMeasured] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with backends(quick=quick) as stores, Progress(*columns, console=console, transient=True) as bars:
        for backend in stores:
            writing = bars.add_task(f"{backend.name}: history", total=history[-1] + KEEP * len(history))
            step = lambda task=writing: bars.advance(task)  # noqa: E731
            written = 0
            for newest in history:
                kept = JobPaths("bench", f"kept-{newest}")
                whole = JobPaths("bench", "everything")
                write_history(backend.store, kept, range(newest - KEEP + 1, newest + 1), step)
                write_history(backend.store, whole, range(written + 1, newest + 1), step)
                written = newest
                for setting, paths in (("kept", kept), ("everything", whole)):
                    backend.store.create(paths.generation(Generation(1)), encode(generation_record(1)))
                    results.extend(measure(backend, paths, setting, newest))
            cleaning = bars.add_task(f"{backend.name}: objects to clean up", total=STATE_OBJECTS)
            cleanups.append(measure_cleanup(backend, lambda task=cleaning: bars.advance(task)))  # type: ignore[misc]
    return results, cleanups


def not_flat(results: list[Measured]) -> list[str]:
    first = {(r.backend, r.setting, r.operation): r for r in reversed(results)}
    return [
        f"{r.backend}, {SETTINGS[r.setting]}: {r.operation} makes {r.requests} requests after {r.epochs} epochs, "
        f"{base.requests} after {base.epochs}"
        for r in results
        if r.requests > (base := first[r.backend, r.setting, r.operation]).requests
        or (r.requests_at_server or 0) > (base.requests_at_server or 0)
    ]


def show(console: Console, results: list[Measured], cleanups: list[CleanupMeasured]) -> None:
    first = {(r.backend, r.setting, r.operation): r for r in reversed(results)}
    table = RichTable("store", "setting", "operation", "epochs", "requests", "at server", "ms", "ratio to first")
    for r in sorted(results, key=lambda r: (r.backend, r.setting, r.operation, r.epochs)):
        base = first[r.backend, r.setting, r.operation]
        at_server = "" if r.requests_at_server is None else str(r.requests_at_server)
        ratio = f"{r.milliseconds / base.milliseconds:.2f}"
        cells = (r.operation, f"{r.epochs:,}", str(r.requests), at_server, f"{r.milliseconds:.3f}", ratio)
        table.add_row(r.backend, r.setting, *cells)
    console.print(table)
    table = RichTable("cleanup on", "objects", "requests", "at server", "s")
    for c in cleanups:
        requests = ", ".join(f"{count} {kind}" for kind, count in sorted(c.requests.items()))
        table.add_row(c.backend, f"{c.objects:,}", requests, str(c.requests_at_server or ""), f"{c.seconds:.2f}")
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="up to 1,000 epochs, few repeats")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    results, cleanups = run(console, quick=arguments.quick)
    show(console, results, cleanups)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    conditions = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    document = {
        "conditions": conditions,
        "results": [asdict(result) for result in results],
        "cleanup": [asdict(result) for result in cleanups],
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    problems = not_flat(results)
    for problem in problems:
        console.print(f"[red]not flat:[/red] {problem}")
    if not problems:
        console.print("requests are flat: no operation makes more of them as history grows")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
