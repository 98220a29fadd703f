"""What a driver tells Prometheus: the numbers are those of the run, and the page lists all of them."""

import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import exposition
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from epochal import Pipeline
from epochal.protocol.control import CheckpointState, DriverPhase, DriverStatus
from epochal.protocol.epochs import NO_EPOCH, Epoch, Generation
from epochal.runtime.engine import Engine
from epochal.runtime.http.prometheus import DriverMetrics, Scrape
from tests.runtime.bad_data import START, Files, Gate
from tests.support.local_job import LocalJob

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
Samples = dict[tuple[str, tuple[str, ...]], float]


def scraped(metrics: DriverMetrics) -> Samples:
    """Values by name and label values, as Prometheus reads them."""
    text = exposition.generate_latest(metrics.registry).decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def families(metrics: DriverMetrics) -> dict[str, str]:
    text = exposition.generate_latest(metrics.registry).decode()
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def listed() -> dict[str, str]:
    return dict(re.findall(r"^\| `(epochal_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))


def test_a_driver_that_has_not_begun_can_be_scraped_and_the_page_lists_all_there_is() -> None:
    status = DriverStatus(namespace="n", job="j", generation=Generation(1), phase=DriverPhase.STARTING, started=1)
    status = replace(status, restored_epoch=Epoch(7))
    metrics = DriverMetrics(lambda: Scrape(status=status, epoch=NO_EPOCH, state_bytes={}, late_rows={}))
    found = scraped(metrics)
    assert found["epochal_driver_info", ("j", "n")] == 1
    assert found["epochal_restored_epoch", ()] == 7
    assert found["epochal_checkpoint_seconds_count", ("failed",)] == 0, "it must be there before the first failure"
    assert families(metrics) == listed()


def test_the_numbers_are_those_of_the_run(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    gate = Gate()

    def build(p: Pipeline) -> None:
        rows = files.read(p).apply("gate", gate)
        windows = rows.window("counted", size="10 seconds", aggregates={"n": F.count("*")})
        windows.to_parquet("out", str(tmp_path / "out"))

    files.add(1, 100)
    files.add(2, 101, 102)  # one is late, one window is closed, one is open
    job = LocalJob(spark, build, tmp_path)
    engine = job.start()
    job.wait(lambda: engine.status().sources[0].rows == 5, "the rows")
    assert job.checkpoint().state is CheckpointState.READY
    abort_one(job, engine, files, gate)
    found = scraped(engine.metrics)
    report = engine.checkpoint(Epoch(1))
    assert report is not None
    assert found["epochal_source_rows_total", ("rows",)] == 6
    assert found["epochal_source_batch_seconds_count", ("rows",)] == 3
    assert found["epochal_source_batch_seconds_sum", ("rows",)] > 0
    newest = START.timestamp() + 103
    assert found["epochal_source_watermark_lag_seconds", ("rows",)] == pytest.approx(time.time() - newest, abs=5)
    assert found["epochal_source_idle", ("rows",)] == 0
    assert found["epochal_epoch", ()] == 1
    assert found["epochal_checkpoint_in_flight", ()] == 0
    for result in ("ready", "failed"):
        assert found["epochal_checkpoint_seconds_count", (result,)] == 1
    assert found["epochal_checkpoint_bytes_total", ("ready",)] == report.bytes > 0
    for span in ("alignment", "sync", "async"):
        assert found["epochal_checkpoint_span_seconds_count", ("counted", span)] == 1
    assert found["epochal_checkpoint_span_seconds_count", ("out", "committing")] == 1
    assert ("epochal_checkpoint_span_seconds_count", ("counted", "committing")) not in found
    assert found["epochal_state_bytes", ("counted",)] > 0
    assert found["epochal_late_rows_total", ("counted",)] == 1
    assert found["epochal_sink_rows_committed_total", ("out",)] == 1
    assert found["epochal_generation", ()] == 1
    assert found["epochal_driver_phase", ("Running",)] == 1
    assert engine.status().state_bytes == report.bytes
    job.crash()
    assert scraped(engine.metrics)["epochal_driver_phase", ("Stopped",)] == 1


def abort_one(job: LocalJob, engine: Engine, files: Files, gate: Gate) -> None:
    """An epoch that fails: its barrier waits for a batch, and is given up."""
    gate.open.clear()
    files.add(103)
    job.wait(gate.waiting.is_set, "a batch in flight")
    job.checkpoint(wait=False)
    assert scraped(engine.metrics)["epochal_checkpoint_in_flight", ()] == 1
    engine.abort(job.issued)
    gate.open.set()
    job.wait(lambda: engine.status().sources[0].batch == 2, "the batch to go on")
