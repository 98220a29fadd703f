"""Runs Nexmark queries on Flink, in Flink's own virtual environment: ``python -m benchmarks.flink_side SPEC.json``.

Imports nothing of the project but what needs the standard library only. Prints what each query took, as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.processes import cpu_seconds

ANSWER = "ANSWER "

EVENTS = """
CREATE TABLE events (
    event_type INT, `dateTime` TIMESTAMP(6),
    person_id BIGINT, person_name STRING, person_city STRING, person_state STRING,
    auction_id BIGINT, auction_itemName STRING, auction_expires TIMESTAMP(6), auction_seller BIGINT,
    auction_category BIGINT,
    bid_auction BIGINT, bid_bidder BIGINT, bid_price BIGINT, bid_channel STRING, bid_url STRING, bid_extra STRING,
    ts AS CAST(`dateTime` AS TIMESTAMP(3)),
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'file://{input}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')
"""

VIEWS = {
    "persons": """SELECT person_id AS id, person_name AS name, person_city AS city, person_state AS state, ts
                  FROM events WHERE event_type = 0""",
    "auctions": """SELECT auction_id AS id, auction_itemName AS itemName, auction_expires AS expires,
                          auction_seller AS seller, auction_category AS category, `dateTime`, ts
                   FROM events WHERE event_type = 1""",
    "bids": """SELECT bid_auction AS auction, bid_bidder AS bidder, bid_price AS price, bid_channel AS channel,
                      bid_url AS url, bid_extra AS extra, `dateTime`, ts
               FROM events WHERE event_type = 2""",
    "new_sellers": """SELECT id, name, ts FROM persons
                      UNION ALL SELECT seller AS id, CAST(NULL AS STRING) AS name, ts FROM auctions""",
}

WINDOW = "window_start TIMESTAMP(3), window_end TIMESTAMP(3)"
QUERIES = {
    "q0": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(6), extra STRING",
        "SELECT auction, bidder, price, `dateTime`, extra FROM bids",
    ),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, `dateTime` TIMESTAMP(6), extra STRING",
        "SELECT auction, bidder, CAST(price AS DOUBLE) * 0.908e0, `dateTime`, extra FROM bids",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0"),
    "q3": (
        "name STRING, city STRING, state STRING, id BIGINT",
        """SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN persons p ON a.seller = p.id
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    ),
    "q7": (
        f"{WINDOW}, price BIGINT, auction BIGINT, bidder BIGINT, `dateTime` TIMESTAMP(6)",
        """SELECT window_start, window_end, price, auction, bidder, `dateTime` FROM (
               SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
                                            ORDER BY price DESC, `dateTime`, auction DESC, bidder DESC) AS place
               FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE place = 1""",
    ),
    "q8": (
        f"{WINDOW}, id BIGINT, name STRING, auctions BIGINT",
        """SELECT window_start, window_end, id, MAX(name), COUNT(CASE WHEN name IS NULL THEN 1 END)
           FROM TABLE(TUMBLE(TABLE new_sellers, DESCRIPTOR(ts), INTERVAL '10' SECOND))
           GROUP BY window_start, window_end, id
           HAVING MAX(name) IS NOT NULL AND COUNT(CASE WHEN name IS NULL THEN 1 END) > 0""",
    ),
    "q20": (
        """auction BIGINT, itemName STRING, seller BIGINT, category BIGINT, `dateTime` TIMESTAMP(6),
           expires TIMESTAMP(6), bidder BIGINT, price BIGINT, `at` TIMESTAMP(6)""",
        """SELECT a.id, a.itemName, a.seller, a.category, a.`dateTime`, a.expires, b.bidder, b.price, b.`dateTime`
           FROM auctions a JOIN bids b ON a.id = b.auction WHERE a.category = 10""",
    ),
    "q21": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, channel_id STRING",
        """SELECT auction, bidder, price, channel,
                  CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                       WHEN 'baidu' THEN '3' ELSE REGEXP_EXTRACT(url, 'channel_id=([^&]*)', 1) END
           FROM bids""",
    ),
    "q22": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING",
        """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4),
                  SPLIT_INDEX(url, '/', 5) FROM bids""",
    ),
}
"""Columns of the result, and the query. Those whose results change are not there: files cannot be updated."""


def environment(spec: dict[str, Any]) -> TableEnvironment:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in spec["jars"]),
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": f"{spec['interval']:g} s",
        "execution.checkpointing.dir": f"file://{spec['work']}/checkpoints",
    }
    for key, value in settings.items():
        env.get_config().set(key, value)
    env.execute_sql(EVENTS.format(input=spec["input"]))
    for name, query in VIEWS.items():
        env.execute_sql(f"CREATE VIEW {name} AS {query}")
    return env


def run(env: TableEnvironment, name: str, output: Path) -> dict[str, float]:
    columns, query = QUERIES[name]
    sink = f"{name}_{output.name}"
    env.execute_sql(
        f"CREATE TABLE {sink} ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{output}', "
        "'format' = 'parquet', 'parquet.utc-timezone' = 'true')"
    )
    before = cpu_seconds(os.getpid())
    job = env.execute_sql(f"INSERT INTO {sink} {query}").get_job_client()
    milliseconds = job.get_job_execution_result().result().get_net_runtime()
    return {"seconds": milliseconds / 1000, "cpu": cpu_seconds(os.getpid()) - before}


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text())
    env = environment(spec)
    found: dict[str, list[dict[str, float]]] = {}
    for name in spec["queries"]:
        rounds = [Path(spec["work"]) / name / f"round{number}" for number in range(spec["rounds"])]
        found[name] = [run(env, name, output) for output in rounds]
    print(ANSWER + json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
