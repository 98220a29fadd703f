"""A job whose store fills up, and gets room again. Run as a program, on a small disk: ``… STORE ELSEWHERE``."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from epochal.driver import SPARK_DEFAULTS
from tests.runtime.bad_data import Files, ids
from tests.support.local_job import LocalJob
from tests.support.small_disk import fill


def main(store: Path, elsewhere: Path) -> None:
    """Three epochs: with room, without, and with room again. Prints how each ended, and the ids in the output."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]")
    for key, value in SPARK_DEFAULTS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    files = Files(elsewhere / "in")
    output = elsewhere / "out"
    job = LocalJob(spark, lambda p: files.read(p).to_parquet("out", str(output)), elsewhere, uri=store.as_uri())
    engine = job.start()
    filler = store / "filler"
    for number, is_full in enumerate((False, True, False), 1):
        if is_full:
            fill(filler)
        elif filler.exists():
            filler.unlink()
        files.add(number)
        job.wait(lambda wanted=number: engine.status().sources[0].rows == wanted, "the rows")  # type: ignore[misc]
        report = job.checkpoint(then_stop=number == 3)
        print(report.state, report.message)
    print(engine.exit_code, ids(spark, output))
    print(sorted(path.name for path in store.rglob("*") if "#" in path.name))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
