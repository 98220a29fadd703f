"""Plan or run queries made by chance.

python -m tests.sql.generated --plan 10000            plan so many, and count what is refused and why
python -m tests.sql.generated --run 300               run so many, as jobs of ten, beside Spark and DuckDB
python -m tests.sql.generated --seed 17 --rows 3      run one again; --print only shows it
"""

import argparse
import os
import sys
import time

from pyspark.sql import SparkSession

from epochal.driver import PARTITIONS, SPARK_DEFAULTS
from tests.sql.generated.planning import plan_all, query_of
from tests.sql.generated.running import pack, run, shrunk
from tests.support.small import WITHOUT_COMPILING


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("generated")
    for key, value in (SPARK_DEFAULTS | {PARTITIONS: "2", **WITHOUT_COMPILING}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def plan(count: int) -> int:
    began, result = time.monotonic(), plan_all(range(count))
    planned = sum(number for shape, number in result.planned.items() if shape != "mangled")
    print(f"{planned} of {count} queries planned in {time.monotonic() - began:.0f} s; {dict(result.planned)}")
    for reason, number in result.refused.most_common():
        if not reason.startswith("mangled"):
            print(f"{number:6} refused: {reason}")
    for text, error in result.crashed:
        print(f"{text}\n{type(error).__name__}: {error}\n")
    return len(result.crashed)


def run_packs(count: int) -> int:
    spark, wrong = session(), 0
    for number in range(count // 10):
        began = time.monotonic()
        found = run(spark, pack(number), rows=number, losses=(number + 1) % 3)
        print(f"job {number}: {time.monotonic() - began:.0f} s, {len(found)} differences", flush=True)
        for one in found:
            print(shrunk(spark, one), flush=True)
        wrong += len(found)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=int, metavar="COUNT")
    parser.add_argument("--run", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--rows", type=int, default=0, help="the seed of rows and batches")
    parser.add_argument("--losses", type=int, default=1, help="how often the driver is lost")
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    if given.plan:
        return min(1, plan(given.plan))
    if given.run:
        return min(1, run_packs(given.run))
    if given.seed is None:
        parser.error("one of --plan, --run and --seed is needed")
    query = query_of(given.seed)
    print(
        f"{query.shape}\n{query.before}{query.text.stream}\n\nSpark:\n{query.text.batch}\n\nDuckDB:\n{query.text.duck}"
    )
    if given.print:
        return 0
    found = run(session(), [query], rows=given.rows, losses=given.losses)
    for one in found:
        print(one)
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main())
