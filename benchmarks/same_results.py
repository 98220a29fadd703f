"""Are the results of both sides equal? By DuckDB, on the files that they wrote."""

import duckdb

from benchmarks.workloads import Workload


def differences(workload: Workload, ours: str, theirs: str) -> tuple[int, int]:
    """Rows compared, and rows that only one side has."""
    with duckdb.connect() as database:
        columns = ", ".join(_columns(database, ours))
        for name, files in (("ours", ours), ("theirs", theirs)):
            database.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM read_parquet('{files}')")
            if workload.updates is not None:
                keys, grows = workload.updates
                newest = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {grows} DESC) = 1"
                database.execute(f"CREATE OR REPLACE TABLE {name} AS FROM {name} QUALIFY {newest}")
        if workload.until is not None:
            database.execute(f"DELETE FROM ours WHERE {workload.until} > (SELECT max({workload.until}) FROM theirs)")
        compared = _one(database, "SELECT count(*) FROM theirs")
        only_ours = _one(database, "SELECT count(*) FROM (FROM ours EXCEPT ALL FROM theirs)")
        only_theirs = _one(database, "SELECT count(*) FROM (FROM theirs EXCEPT ALL FROM ours)")
    return compared, only_ours + only_theirs


def _columns(database: duckdb.DuckDBPyConnection, files: str) -> list[str]:
    """Times as numbers: the two sides write them as different kinds of timestamps."""
    described = database.execute(f"DESCRIBE SELECT * FROM read_parquet('{files}')").fetchall()
    return [
        f'epoch_us("{name}") AS "{name}"' if kind.startswith("TIMESTAMP") else f'"{name}"'
        for name, kind, *_ in described
    ]


def _one(database: duckdb.DuckDBPyConnection, query: str) -> int:
    row = database.execute(query).fetchone()
    assert row is not None
    return int(row[0])
