"""State that release 0.1.0 wrote is restored by this one, whatever has changed since."""

import tarfile
from pathlib import Path

from pyspark.sql import SparkSession

from epochal.protocol.epochs import Epoch
from tests.runtime.state_of_0_1 import ARCHIVE, build, feed, written_by
from tests.runtime.streaming import FedJob


def test_a_job_goes_on_with_the_state_of_the_first_release(spark: SparkSession, tmp_path: Path) -> None:
    """Each operator has the rows of one run over all input, in the end; what the first release had not committed comes
    out, too."""
    for name in ("whole", "restored"):
        (tmp_path / name).mkdir()
    whole = FedJob(spark, build, tmp_path / "whole")
    whole.start()
    for part in range(3):
        feed(whole, part)
    whole.finish()
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "restored", filter="data")
    restored = FedJob(spark, build, tmp_path / "restored")
    restored.generation, restored.issued, restored.completed = 1, Epoch(2), Epoch(2)
    assert restored.start().status().restored_epoch == 2
    feed(restored, 2)
    restored.finish()
    expected, found = written_by(whole), written_by(restored)
    assert set(found) == set(expected)
    for sink, rows in expected.items():
        assert found[sink] == rows, sink
