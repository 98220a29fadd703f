"""The Nexmark queries as plain Structured Streaming. Not there: those that it has no operators for (4, 6 and 9 need a
window over a column that is not the watermark's, 19 a running top ten), and 12, whose result the clock decides."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from examples.nexmark.queries import EURO

SCHEMA = """
    event_type int,
    person struct<id: long, name: string, emailAddress: string, creditCard: string, city: string, state: string,
                  dateTime: timestamp, extra: string>,
    auction struct<id: long, itemName: string, description: string, initialBid: long, reserve: long,
                   dateTime: timestamp, expires: timestamp, seller: long, category: long, extra: string>,
    bid struct<auction: long, bidder: long, price: long, channel: string, url: string, dateTime: timestamp,
               extra: string>,
    dateTime timestamp
"""
DELAY = "1 second"
DAY = "date_format(dateTime, 'yyyy-MM-dd') AS day"
QUICK = ["q1", "q5", "q7", "q17", "q20"]
"""One of each kind: stateless, sliding windows, windows, an updating aggregate, a join."""


def _of(events: DataFrame, kind: str, *columns: str) -> DataFrame:
    return events.where(F.col(kind).isNotNull()).select(f"{kind}.*").selectExpr(*columns)


def _bids(events: DataFrame, *columns: str) -> DataFrame:
    return _of(events, "bid", *columns)


def _window(column: str = "window") -> list[Column]:
    return [F.col(f"{column}.start").alias("window_start"), F.col(f"{column}.end").alias("window_end")]


def q0(events: DataFrame) -> DataFrame:
    return _bids(events, "auction", "bidder", "price", "dateTime", "extra")


def q1(events: DataFrame) -> DataFrame:
    return _bids(events, "auction", "bidder", f"price * {EURO}D AS price", "dateTime", "extra")


def q2(events: DataFrame) -> DataFrame:
    return _bids(events, "auction", "price").where("auction % 123 = 0")


def q3(events: DataFrame) -> DataFrame:
    auctions = _of(events, "auction", "id", "seller", "category").where("category = 10")
    persons = _of(events, "person", "id AS seller", "name", "city", "state").where("state IN ('OR', 'ID', 'CA')")
    return auctions.join(persons, "seller").select("name", "city", "state", "id")


def q5(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "dateTime").withWatermark("dateTime", DELAY)
    counts = bids.groupBy(F.window("dateTime", "10 seconds", "2 seconds"), "auction").agg(F.count("*").alias("bids"))
    # All windows end at different times, so that this is one window of counts each.
    every = counts.groupBy(F.window(F.window_time("window"), "2 seconds").alias("w")).agg(
        F.max("bids").alias("most"), F.collect_list(F.struct("auction", "bids", "window")).alias("all")
    )
    hottest = every.select(F.explode(F.filter("all", lambda one: one["bids"] == F.col("most"))).alias("one"))
    return hottest.select(*_window("one.window"), "one.auction", "one.bids")


def q7(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "dateTime").withWatermark("dateTime", DELAY)
    best = F.max(F.struct("price", (-F.unix_micros("dateTime")).alias("earlier"), "auction", "bidder")).alias("best")
    time = F.timestamp_micros(-F.col("best.earlier")).alias("dateTime")
    highest = bids.groupBy(F.window("dateTime", "10 seconds")).agg(best)
    return highest.select(*_window(), "best.price", "best.auction", "best.bidder", time)


def q8(events: DataFrame) -> DataFrame:
    persons = _of(events, "person", "id", "name", "dateTime")
    auctions = _of(events, "auction", "seller AS id", "CAST(NULL AS STRING) AS name", "dateTime")
    both = persons.unionByName(auctions).withWatermark("dateTime", DELAY)
    opened = F.count(F.when(F.col("name").isNull(), 1)).alias("auctions")
    joined = both.groupBy(F.window("dateTime", "10 seconds"), "id").agg(F.max("name").alias("name"), opened)
    return joined.where("name IS NOT NULL AND auctions > 0").select(*_window(), "id", "name", "auctions")


def q10(events: DataFrame) -> DataFrame:
    parts = ["date_format(dateTime, 'yyyy-MM-dd') AS day", "date_format(dateTime, 'HH:mm') AS minute"]
    return _bids(events, "auction", "bidder", "price", "dateTime", "extra").selectExpr("*", *parts)


def q11(events: DataFrame) -> DataFrame:
    bids = _bids(events, "bidder", "dateTime").withWatermark("dateTime", DELAY)
    sittings = bids.groupBy(F.session_window("dateTime", "10 seconds"), "bidder").agg(F.count("*").alias("bids"))
    return sittings.select(*_window("session_window"), "bidder", "bids")


def q13(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "dateTime")
    table = events.sparkSession.range(1000).select(
        F.col("id").alias("key"), F.md5(F.col("id").cast("string")).alias("value")
    )
    return bids.join(F.broadcast(table), F.col("auction") % 1000 == F.col("key")).drop("key")


def q14(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "dateTime", "extra")
    part = """CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'day' WHEN hour(dateTime) BETWEEN 7 AND 20 THEN 'other'
              ELSE 'night' END AS part_of_day"""
    letters = "length(extra) - length(replace(extra, 'c', '')) AS letters"
    chosen = bids.where(f"price * {EURO} BETWEEN 1000000 AND 50000000")
    return chosen.selectExpr("auction", "bidder", f"price * {EURO} AS price", part, "dateTime", letters)


def q15(events: DataFrame) -> DataFrame:
    return _statistics(_bids(events, "auction", "bidder", "price", DAY), "day")


def q16(events: DataFrame) -> DataFrame:
    return _statistics(_bids(events, "channel", "auction", "bidder", "price", DAY), "channel", "day")


def _statistics(bids: DataFrame, *keys: str) -> DataFrame:
    """Structured Streaming refuses to count distinct values, but collects them."""
    price = F.col("price")
    ranks = {1: price < 10_000, 2: (price >= 10_000) & (price < 1_000_000), 3: price >= 1_000_000}
    found = [F.count("*").alias("bids")]
    found += [F.count(F.when(at, 1)).alias(f"bids_rank{rank}") for rank, at in ranks.items()]
    for what in ("bidder", "auction"):
        found.append(F.size(F.collect_set(what)).cast("long").alias(f"{what}s"))
        for rank, at in ranks.items():
            counted = F.size(F.collect_set(F.when(at, F.col(what))))
            found.append(counted.cast("long").alias(f"{what}s_rank{rank}"))
    return bids.groupBy(*keys).agg(*found)


def q17(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "price", DAY)
    price = F.col("price")
    return bids.groupBy("auction", "day").agg(
        F.count("*").alias("bids"),
        F.count(F.when(price < 10_000, 1)).alias("bids_rank1"),
        F.count(F.when((price >= 10_000) & (price < 1_000_000), 1)).alias("bids_rank2"),
        F.count(F.when(price >= 1_000_000, 1)).alias("bids_rank3"),
        F.min("price").alias("smallest"),
        F.max("price").alias("largest"),
        F.avg("price").alias("average"),
        F.sum("price").alias("total"),
    )


def q18(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "dateTime")
    newest = bids.groupBy("bidder", "auction").agg(F.max(F.struct("dateTime", "price")).alias("newest"))
    return newest.select("bidder", "auction", "newest.*")


def q20(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "dateTime AS at")
    auctions = _of(events, "auction", "id AS auction", "itemName", "seller", "category", "dateTime", "expires")
    return auctions.where("category = 10").join(bids, "auction")


def q21(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "channel", "url")
    number = """CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                WHEN 'baidu' THEN '3' ELSE regexp_extract(url, 'channel_id=([^&]*)', 1) END AS channel_id"""
    return bids.selectExpr("auction", "bidder", "price", "channel", number)


def q22(events: DataFrame) -> DataFrame:
    bids = _bids(events, "auction", "bidder", "price", "channel", "url")
    parts = [f"split_part(url, '/', {number + 3}) AS dir{number}" for number in (1, 2, 3)]
    return bids.selectExpr("auction", "bidder", "price", "channel", *parts)


@dataclass(frozen=True, slots=True)
class Query:
    """``until``: the column up to whose newest value its results are complete. Without state no provider matters."""

    run: Callable[[DataFrame], DataFrame]
    until: str | None = None
    stateless: bool = False


STRUCTURED: dict[str, Query] = {
    "q0": Query(q0, stateless=True),
    "q1": Query(q1, stateless=True),
    "q2": Query(q2, stateless=True),
    "q3": Query(q3),
    "q5": Query(q5, "window_end"),
    "q7": Query(q7, "window_end"),
    "q8": Query(q8, "window_end"),
    "q10": Query(q10, stateless=True),
    "q11": Query(q11, "window_end"),
    "q13": Query(q13, stateless=True),
    "q14": Query(q14, stateless=True),
    "q15": Query(q15),
    "q16": Query(q16),
    "q17": Query(q17),
    "q18": Query(q18),
    "q20": Query(q20),
    "q21": Query(q21, stateless=True),
    "q22": Query(q22, stateless=True),
}
