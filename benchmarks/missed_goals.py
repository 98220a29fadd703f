"""Why a goal of the comparison is missed, and what would be next: shown on its page where one is."""

import re
import textwrap
from collections.abc import Sequence

from benchmarks.figures import PER_MINUTE, Figure
from benchmarks.workloads import CPU, ROWS

LARGE_WINDOWS = """
**Windows over large batches.** A batch is one Spark aggregation, and asks nothing of S3: what is left is Spark's. As
the [distance to the limit](limits.md) has it, Spark's own aggregation of the same rows, all at once, without state and
without batches, has some 1.5 times the rows per second of Epochal. Four times the HDFS-backed store is more than that.
Next: an aggregation of our own on columns; one with pyarrow was written, measured and
[dropped](../decisions/0018-spark-groups-windows.md).
"""

CPU_SECONDS = """
**CPU.** In runs of a minute or less the JVM's compilers have 16 to 55 % of the JVM's CPU on Epochal's side
(async-profiler: least in windows over large batches, most in joins of small ones); a job that runs for days does not
pay that again. Rows that a sink takes also pass through Python to become Parquet, which Structured Streaming writes in
the JVM: that counts in queries that only pass rows on. Next: measure after an hour; write Parquet in the JVM.
"""

CHECKPOINTS = """
**Overhead of checkpoints.** Every epoch writes the windows that are open, which are other rows each time: from Spark's
rows by way of Arrow to Parquet, beside the batches, on the same two cores. Next: keep what a batch adds as Parquet
where it is likely to be written before its window closes.
"""

SMALL_BATCHES = """
**Small batches.** What is above a stream that only reads is one Spark job of 30 to 50 ms, and as much for the calls
from Python that describe it and for planning. Structured Streaming on local disk has a job of two stages and its state
store instead. In an earlier sitting, on a machine half as fast, the ratio to it was 0.45. Next: describe and plan a
batch once, and use that for every batch.
"""

REQUESTS = """
**Requests with delay.** Structured Streaming does not keep up with a file a second there: it takes several files in one
batch of some seconds, and so has fewer batches, and requests, a minute. Epochal has no more requests than without
delay.
"""

NEXMARK = """
**Nexmark.** Where S3 has no delay, what Structured Streaming asks of it takes a tenth to a quarter of a second a batch;
apart from that both read the same nested Parquet and write the same rows, which is most of the work of queries that
pass rows on (0, 1, 10, 13, 14, 21, 22). Joins (3) have two sources, and a batch of either
is two jobs: its own rows into state, and these with the other side's; Structured Streaming has one plan for both sides.
Queries 15 and 16 count distinct values, and have all of them in one row a key. Query 18 groups structs, which Spark
does by sorting. Next: one source and one job for both sides of a join; distinct values as a table of their own that is
looked up.
"""

LOOKING_UP = """
**Looking keys up.** Batches of 50,000 rows go to Python workers, which search sorted files. Of a batch of 0.3 to 0.4 s
that job has half; the other half is describing and planning it, in processes that have just been started. Without delay
a batch takes hardly longer with ten times the keys, where RocksDB takes half as long again; with 30 ms it is the other
way round. Next: search without leaving the JVM.
"""

REASONS = [
    ("^windows, 200k", f"^{ROWS}$", LARGE_WINDOWS),
    ("", f"^{CPU}$", CPU_SECONDS),
    ("", "^overhead", CHECKPOINTS),
    ("^windows, 5k", "^p50", SMALL_BATCHES),
    ("", f"^{PER_MINUTE}$", REQUESTS),
    ("^Nexmark", f"^{ROWS}$", NEXMARK),
    ("^(updating|dedup)", f"^{ROWS}$", LOOKING_UP),
]
"""By workload and metric."""


def why_missed(missed: Sequence[Figure]) -> list[str]:
    """A section of the page; nothing if there is nothing to say."""
    found = [
        textwrap.fill(f"- {text.strip()}", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for workload, metric, text in REASONS
        if any(re.search(workload, one.workload) and re.search(metric, one.metric) for one in missed)
    ]
    return ["## Why goals are missed, and what would be next", "\n".join(found)] if found else []
