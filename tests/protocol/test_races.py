"""Eight writers at once, fifty times: exactly one wins each time, in memory, on disk and on S3.

Threads share one process; processes share nothing but the store.
"""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import pytest

from epochal.protocol.documents import Manifest, decode
from epochal.protocol.epochs import Epoch, Generation
from epochal.protocol.publish import Fenced, Published, claim_generation, publish
from epochal.protocol.store import Created, Exists, Store, StoreOptions, open_store
from tests.protocol.making import PATHS, generation_record, manifest
from tests.support.s3 import S3Bucket

WRITERS = 8
ROUNDS = 50

T = TypeVar("T")

Opener = Callable[[], Store]
"""Each writer opens its own store, with its own connections; in memory there can be only one."""


@pytest.fixture(params=["memory", "disk", pytest.param("s3", marks=pytest.mark.s3)])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    match request.param:
        case "memory":
            store = open_store("memory:///")
            return lambda: store
        case "disk":
            return lambda: open_store(tmp_path.as_uri())
        case _:
            bucket: S3Bucket = request.getfixturevalue("s3_bucket")
            return lambda: open_store(f"s3://{bucket.name}/root", s3_options(bucket))


def s3_options(bucket: S3Bucket) -> StoreOptions:
    return StoreOptions(
        endpoint=bucket.server.endpoint,
        region=bucket.server.region,
        access_key_id=bucket.server.access_key,
        secret_access_key=bucket.server.secret_key,
    )


def race(opener: Opener, write: Callable[[Store, int, int], T]) -> list[list[T]]:
    """All writers write each round at the same moment; what came of it, by round."""
    together = Barrier(WRITERS)

    def run(writer: int) -> list[T]:
        store = opener()
        outcomes = []
        for number in range(1, ROUNDS + 1):
            together.wait(timeout=60)
            outcomes.append(write(store, writer, number))
        return outcomes

    with ThreadPoolExecutor(WRITERS) as pool:
        return [list(outcomes) for outcomes in zip(*pool.map(run, range(WRITERS)), strict=True)]


def test_one_of_eight_creates_wins(opener: Opener) -> None:
    rounds = race(opener, lambda store, writer, number: store.create(f"race/{number}", f"{writer}".encode()))
    store = opener()
    for number, outcomes in enumerate(rounds, start=1):
        winners = [writer for writer, outcome in enumerate(outcomes) if isinstance(outcome, Created)]
        assert len(winners) == 1
        winning = f"{winners[0]}".encode()
        assert store.get(f"race/{number}") == winning
        assert outcomes.count(Exists(winning)) == WRITERS - 1


def test_one_of_eight_drivers_of_the_same_generation_publishes(opener: Opener) -> None:
    rounds = race(opener, lambda store, writer, epoch: publish(store, PATHS, manifest(epoch, claim=f"driver-{writer}")))
    store = opener()
    for epoch, outcomes in enumerate(rounds, start=1):
        winners = [writer for writer, outcome in enumerate(outcomes) if outcome == Published(Epoch(epoch))]
        assert len(winners) == 1
        assert sum(isinstance(outcome, Fenced) for outcome in outcomes) == WRITERS - 1
        name = PATHS.manifest(Epoch(epoch))
        assert decode(name, store.get(name), Manifest).claim == f"driver-{winners[0]}"


def test_of_eight_generations_only_the_newest_publishes(opener: Opener) -> None:
    """All have begun; the older ones do not know it yet when they publish the same epoch."""
    for generation in range(1, WRITERS + 1):
        assert claim_generation(opener(), PATHS, generation_record(generation)) is None
    rounds = race(opener, lambda store, writer, epoch: publish(store, PATHS, manifest(epoch, generation=writer + 1)))
    for epoch, outcomes in enumerate(rounds, start=1):
        assert outcomes[-1] == Published(Epoch(epoch))
        assert all(isinstance(outcome, Fenced) for outcome in outcomes[:-1])


def test_one_of_eight_drivers_claims_a_generation(opener: Opener) -> None:
    rounds = race(
        opener,
        lambda store, writer, number: store.create(PATHS.generation(Generation(number)), f"claim of {writer}".encode()),
    )
    assert all(sum(isinstance(outcome, Created) for outcome in outcomes) == 1 for outcomes in rounds)


def test_the_same_manifest_from_eight_at_once_is_one_epoch(opener: Opener) -> None:
    """A driver whose requests were doubled: whoever sent it, it is published."""
    rounds = race(opener, lambda store, _, epoch: publish(store, PATHS, manifest(epoch)))
    assert all(outcomes == [Published(Epoch(epoch))] * WRITERS for epoch, outcomes in enumerate(rounds, start=1))


PROGRAM = """
import json, sys
from epochal.protocol.publish import Published, publish
from epochal.protocol.store import StoreOptions, open_store
from tests.protocol.making import PATHS, manifest
uri, writer, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(uri, StoreOptions(**json.loads(sys.stdin.readline())))
print("ready", flush=True)
won = []
for epoch in range(1, rounds + 1):
    sys.stdin.readline()
    if isinstance(publish(store, PATHS, manifest(epoch, claim=f"driver-{writer}")), Published):
        won.append(epoch)
    print("done", flush=True)
print(json.dumps(won), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=pytest.mark.s3)])
def test_one_of_eight_processes_publishes(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> None:
    uri, options = tmp_path.as_uri(), "{}"
    if where == "s3":
        bucket: S3Bucket = request.getfixturevalue("s3_bucket")
        given = s3_options(bucket)
        uri = f"s3://{bucket.name}/root"
        options = (
            f'{{"endpoint": "{given.endpoint}", "region": "{given.region}", '
            f'"access_key_id": "{given.access_key_id}", "secret_access_key": "{given.secret_access_key}"}}'
        )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, uri, str(writer), str(ROUNDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for writer in range(WRITERS)
    ]
    try:
        tell(writers, options)
        assert hear(writers) == ["ready"] * WRITERS
        for _ in range(ROUNDS):
            tell(writers, "go")
            assert hear(writers) == ["done"] * WRITERS
        won = [epoch for line in hear(writers) for epoch in line.strip("[]").split(", ") if epoch]
    finally:
        for process in writers:
            process.kill()
            process.communicate()
    assert sorted(map(int, won)) == list(range(1, ROUNDS + 1))


def tell(writers: list["subprocess.Popen[str]"], line: str) -> None:
    for process in writers:
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")


def hear(writers: list["subprocess.Popen[str]"]) -> list[str]:
    lines = []
    for process in writers:
        assert process.stdout is not None
        lines.append(process.stdout.readline().strip())
    return lines
