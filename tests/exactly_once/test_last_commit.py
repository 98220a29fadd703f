"""The driver is killed, or a sink fails, between the manifest of a job's last epoch and ``committed.json``: nobody
comes after it who would commit by restoring. Every row is there once when the job has finished, and not before.

``EPOCHAL_KILLS`` says how often for each job (``make exactly-once``: 20 times).
"""

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from epochal.control.lifecycle import JobPhase
from epochal.protocol.paths import JobPaths
from epochal.protocol.resolve import list_epochs, uncommitted_epoch
from epochal.protocol.store import open_store
from tests.exactly_once.killing import KilledJob

KILLS = int(os.environ.get("EPOCHAL_KILLS", "1"))
SEED = int(os.environ.get("EPOCHAL_SEED", "1"))
ROWS = 1000
LONGEST = 300.0 + 60 * KILLS
COUNTRIES = ("at", "fr", "pl")
PATHS = JobPaths("default", "killed")

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(2 * LONGEST)]


def fates() -> list[str]:
    """Of the first commits: each kind of end at least once, if there are enough of them."""
    chance = random.Random(SEED)
    kinds = ["kill before", "fail", "kill after"]
    return [kinds[number] if number < len(kinds) else chance.choice(kinds) for number in range(KILLS)]


def test_the_last_output_is_committed(tmp_path: Path) -> None:
    rows = [{"id": number, "country": COUNTRIES[number % len(COUNTRIES)]} for number in range(ROWS)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    fate = tmp_path / "fate"
    fate.write_text("\n".join(fates()))
    parameters = {"input": str(tmp_path / "in"), "fate": str(fate)}
    job = KilledJob(tmp_path / "killed", parameters, module="tests.exactly_once.last_commit")
    manifest = yaml.safe_load((job.path / "job.yaml").read_text())
    manifest["spec"]["checkpoint"]["interval"] = "1h"  # so that the only epoch is the last one
    (job.path / "job.yaml").write_text(yaml.safe_dump(manifest))
    began = time.monotonic()
    try:
        job.start()
        job.finish(LONGEST)
    finally:
        job.end()
    store = open_store((job.path / ".epochal" / "store").as_uri())
    record = job.directory.load_record()
    assert record is not None
    assert record.phase is JobPhase.FINISHED
    assert list_epochs(store, PATHS).manifests == [1], "a generation that was to commit has read on"
    assert uncommitted_epoch(store, PATHS) is None
    assert fate.read_text() == "", "not every end was met"
    for sink in ("before", "after"):
        found = Counter(pq.read_table(job.output / sink)["id"].to_pylist())
        assert found == Counter(range(ROWS)), f"{sink}: {ROWS - found.total()} rows are missing"
    wanted = Counter(row["country"] for row in rows)
    counted = dict(line.split() for line in (job.output / "counts" / "1.json").read_text().splitlines())
    assert {country: int(n) for country, n in counted.items()} == wanted
    print(
        f"\nlast commit: {KILLS} ends in {time.monotonic() - began:.0f} s ({dict(Counter(fates()))}), "
        f"{record.checkpoints.generation} generations, {ROWS} of {ROWS} rows in each sink"
    )
