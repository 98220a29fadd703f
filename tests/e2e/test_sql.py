"""A job that is SQL text and nothing else; its driver is lost, and every row comes out once."""

from collections.abc import Callable

from examples.cluster.live_job import LiveJob, until

TEXT = """
CREATE TABLE numbers (value BIGINT, timestamp TIMESTAMP)
  WITH ('connector' = 'rate', 'rows-per-second' = '100', 'trigger' = '500 milliseconds');
CREATE TABLE even WITH ('connector' = 'parquet', 'path' = '${output}');
INSERT INTO even SELECT value FROM numbers WHERE value % 2 = 0;
"""


def test_a_job_in_sql(make_job: Callable[..., LiveJob]) -> None:
    job = make_job("sql")
    job.spec["pipeline"] = {"sql": TEXT, "parameters": {"output": job.spec["pipeline"]["parameters"]["output"]}}
    job.apply()
    job.wait_ready()
    until("rows", lambda: job.epoch and even_numbers(job))
    job.kubectl("delete", "pod", job.driver, "--grace-period=0", "--force")
    job.wait_ready(generation=2)
    before = even_numbers(job)
    until("more rows", lambda: even_numbers(job) > before)
    job.delete()


def even_numbers(job: LiveJob) -> int:
    """How many there are; every one of them once, and none left out."""
    found = sorted(row["value"] for row in job.output(job.epoch))
    assert found == list(range(0, 2 * len(found), 2))
    return len(found)
