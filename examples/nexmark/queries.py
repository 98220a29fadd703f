"""The Nexmark queries on a pipeline. `oracles.py` says the same in SQL over all events at once.

Queries are numbered as everywhere. Some of them ask for a result that changes with every bid (an average, a newest
bid): they give the new value of each key that a micro-batch touched, and `UPDATES` says by which columns.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from epochal import Pipeline, Stream
from epochal.connectors.nexmark import AUCTION, BID, PERSON, Nexmark, side_table

FOREVER = ("-36500 days", "36500 days")
"""For joins that have no bound in time: both sides stay in state."""

EURO = 0.908


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The input of a query: a stream of Nexmark events, of which each query reads the columns that it needs. Names
    begin with the query's, so that one job can run several."""

    query: str
    p: Pipeline
    frame: DataFrame
    nexmark: Nexmark
    bounded: bool = False

    def persons(self, *columns: str, event_time: str = "dateTime") -> Stream:
        return self._of(PERSON, "person", columns, event_time)

    def auctions(self, *columns: str, event_time: str = "dateTime") -> Stream:
        return self._of(AUCTION, "auction", columns, event_time)

    def bids(self, *columns: str, event_time: str = "dateTime") -> Stream:
        return self._of(BID, "bid", columns, event_time)

    def _of(self, kind: int, name: str, columns: tuple[str, ...], event_time: str) -> Stream:
        frame = self.frame.where(F.col("event_type") == kind).select(f"{name}.*").selectExpr(*columns)
        delay = self.nexmark.disorder
        name = f"{self.query}-{name}s"
        return self.p.source(name, frame, event_time=event_time, delay=delay, bounded=self.bounded)


def q0(events: Events) -> Stream:
    """Every bid as it is: what it costs to pass rows through."""
    return events.bids("auction", "bidder", "price", "dateTime", "extra")


def q1(events: Events) -> Stream:
    """Every bid with its price in euros."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.transform("q1-euros", lambda bids: bids.withColumn("price", F.col("price") * EURO))


def q2(events: Events) -> Stream:
    """Bids for some auctions only."""
    bids = events.bids("auction", "price", "dateTime")
    return bids.transform("q2-chosen", lambda bids: bids.where("auction % 123 = 0").select("auction", "price"))


def q3(events: Events) -> Stream:
    """Who sells in category 10 and lives in Oregon, Idaho or California."""
    auctions = events.auctions("id", "seller", "category", "dateTime")
    persons = events.persons("id AS seller", "name", "city", "state", "dateTime AS since", event_time="since")
    in_category = auctions.transform("q3-in-category", lambda auctions: auctions.where("category = 10"))
    in_states = persons.transform("q3-in-states", lambda persons: persons.where("state IN ('OR', 'ID', 'CA')"))
    sellers = in_category.join("q3-sellers", in_states, keys=["seller"], within=FOREVER)
    return sellers.transform("q3-sold", lambda rows: rows.select("name", "city", "state", "id"))


def q4(events: Events) -> Stream:
    """The average price at which auctions of each category closed, so far."""
    sold = _closed(events, {"price": F.max("price")})
    return sold.aggregate(
        "q4-averages", keys=["category"], aggregates={"auctions": F.count("*"), "average": F.avg("price")}
    )


def q5(events: Events) -> Stream:
    """The auctions with the most bids of the last 10 seconds, every 2 seconds."""
    counts = events.bids("auction", "dateTime").window(
        "q5-counts", size="10 seconds", slide="2 seconds", keys=["auction"], aggregates={"bids": F.count("*")}
    )

    def hottest(counts: DataFrame) -> DataFrame:
        # A window comes whole, in one batch, so it can be ranked without state.
        most = F.rank().over(Window.partitionBy("window_start").orderBy(F.desc("bids")))
        return counts.withColumn("place", most).where("place = 1").drop("place")

    return counts.transform("q5-hottest", hottest)


def q6(events: Events) -> Stream:
    """The average closing price of each seller's last ten auctions."""
    sold = _closed(events, {"price": F.max("price")})
    newest_first = F.sort_array(F.collect_list(F.struct("expires", "auction", "price")), asc=False)
    ten = F.slice(newest_first, 1, 10)
    average = F.aggregate(ten, F.lit(0.0), lambda total, one: total + one["price"]) / F.size(ten)
    return sold.aggregate("q6-averages", keys=["seller"], aggregates={"auctions": F.count("*"), "average": average})


def q7(events: Events) -> Stream:
    """The highest bid of every 10 seconds; the earliest of equal ones."""
    bids = events.bids("auction", "bidder", "price", "dateTime")
    highest = bids.window("q7-highest", size="10 seconds", aggregates={"best": _best("auction")})
    return highest.transform(
        "q7-flat",
        lambda rows: rows.select(
            "window_start", "window_end", "best.price", "best.auction", "best.bidder", _time_of("best")
        ),
    )


def q8(events: Events) -> Stream:
    """Persons who opened an auction within the same 10 seconds in which they registered."""
    persons = events.persons("id", "name", "dateTime")
    auctions = events.auctions("seller AS id", "CAST(NULL AS STRING) AS name", "dateTime")
    opened = F.count(F.when(F.col("name").isNull(), 1))
    both = persons.union("q8-both", auctions).window(
        "q8-joined", size="10 seconds", keys=["id"], aggregates={"name": F.max("name"), "auctions": opened}
    )
    return both.transform("q8-new-sellers", lambda rows: rows.where("name IS NOT NULL AND auctions > 0"))


def q9(events: Events) -> Stream:
    """The winning bid of every auction, once it has closed: the highest, and the earliest of equal ones."""
    sold = _closed(events, {"best": _best("auction")})
    return sold.transform(
        "q9-flat",
        lambda rows: rows.select(
            "auction", "category", "seller", "expires", "best.price", "best.bidder", _time_of("best")
        ),
    )


def q10(events: Events) -> Stream:
    """Every bid with its day and minute: what files on a lake are arranged by."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.sql(
        "q10-arranged",
        "SELECT *, date_format(dateTime, 'yyyy-MM-dd') AS day, date_format(dateTime, 'HH:mm') AS minute FROM {input}",
    )


def q11(events: Events) -> Stream:
    """How many bids each bidder made in every sitting: bids that are no more than 10 seconds apart."""
    bids = events.bids("bidder", "dateTime")
    return bids.session_window("q11-sittings", gap="10 seconds", keys=["bidder"], aggregates={"bids": F.count("*")})


def q12(events: Events) -> Stream:
    """How many bids each bidder made in every 10 seconds of the clock, whenever these bids say they were made."""
    bids = events.bids("bidder", "current_timestamp() AS seen", event_time="seen")
    return bids.window("q12-counts", size="10 seconds", keys=["bidder"], aggregates={"bids": F.count("*")})


def q13(events: Events) -> Stream:
    """Every bid with a value from a table that does not change."""
    bids = events.bids("auction", "bidder", "price", "dateTime")
    table = side_table(events.p.spark)

    def enriched(bids: DataFrame) -> DataFrame:
        return bids.join(F.broadcast(table), F.col("auction") % 1000 == F.col("key")).drop("key")

    return bids.transform("q13-enriched", enriched)


def q14(events: Events) -> Stream:
    """Bids of a middling price, with the part of the day and a count of letters."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "extra")
    return bids.sql(
        "q14-judged",
        f"""
        SELECT auction, bidder, price * {EURO} AS price,
               CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'day'
                    WHEN hour(dateTime) BETWEEN 7 AND 20 THEN 'other' ELSE 'night' END AS part_of_day,
               dateTime, length(extra) - length(replace(extra, 'c', '')) AS letters
        FROM {{input}} WHERE price * {EURO} BETWEEN 1000000 AND 50000000""",
    )


def q15(events: Events) -> Stream:
    """Bids, bidders and auctions of each day, so far, by rank of price."""
    bids = events.bids("auction", "bidder", "price", "dateTime", "date_format(dateTime, 'yyyy-MM-dd') AS day")
    return bids.aggregate("q15-days", keys=["day"], aggregates=_statistics())


def q16(events: Events) -> Stream:
    """The same for each channel and day."""
    bids = events.bids(
        "channel", "auction", "bidder", "price", "dateTime", "date_format(dateTime, 'yyyy-MM-dd') AS day"
    )
    return bids.aggregate("q16-channels", keys=["channel", "day"], aggregates=_statistics())


def q17(events: Events) -> Stream:
    """Count, smallest, largest, average and sum of the bids of each auction and day, so far."""
    bids = events.bids("auction", "price", "dateTime", "date_format(dateTime, 'yyyy-MM-dd') AS day")
    price = F.col("price")
    return bids.aggregate(
        "q17-auctions",
        keys=["auction", "day"],
        aggregates={
            "bids": F.count("*"),
            **{f"bids_rank{rank}": F.count(F.when(at, 1)) for rank, at in _ranks(price).items()},
            "smallest": F.min("price"),
            "largest": F.max("price"),
            "average": F.avg("price"),
            "total": F.sum("price"),
        },
    )


def q18(events: Events) -> Stream:
    """The newest bid of each bidder for each auction."""
    bids = events.bids("auction", "bidder", "price", "dateTime")
    newest = bids.aggregate(
        "q18-newest", keys=["bidder", "auction"], aggregates={"newest": F.max(F.struct("dateTime", "price"))}
    )
    return newest.transform("q18-flat", lambda rows: rows.select("bidder", "auction", "newest.*"))


def q19(events: Events) -> Stream:
    """The ten highest bids for each auction, so far; of equal ones the earliest."""
    bids = events.bids("auction", "bidder", "price", "dateTime")
    order = [F.col("price").desc(), F.col("dateTime"), F.col("bidder")]
    return bids.running_top_n("q19-highest", n=10, order_by=order, keys=["auction"])


def q20(events: Events) -> Stream:
    """Every bid for an auction of category 10, with the auction."""
    bids = events.bids("auction", "bidder", "price", "dateTime AS at", event_time="at")
    auctions = events.auctions("id AS auction", "itemName", "seller", "category", "dateTime", "expires")
    in_category = auctions.transform("q20-in-category", lambda auctions: auctions.where("category = 10"))
    return in_category.join("q20-expanded", bids, keys=["auction"], within=FOREVER)


def q21(events: Events) -> Stream:
    """Every bid with a number for its channel."""
    bids = events.bids("auction", "bidder", "price", "channel", "url", "dateTime")
    return bids.sql(
        "q21-numbered",
        """
        SELECT auction, bidder, price, channel,
               CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                    WHEN 'baidu' THEN '3' ELSE regexp_extract(url, 'channel_id=([^&]*)', 1) END AS channel_id
        FROM {input}""",
    )


def q22(events: Events) -> Stream:
    """Every bid with the directories of its page."""
    bids = events.bids("auction", "bidder", "price", "channel", "url", "dateTime")
    return bids.sql(
        "q22-parts",
        """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
               split_part(url, '/', 6) AS dir3
        FROM {input}""",
    )


QUERIES: dict[str, Callable[[Events], Stream]] = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip

UPDATES: dict[str, tuple[list[str], str]] = {
    "q4": (["category"], "auctions"),
    "q6": (["seller"], "auctions"),
    "q15": (["day"], "bids"),
    "q16": (["channel", "day"], "bids"),
    "q17": (["auction", "day"], "bids"),
    "q18": (["bidder", "auction"], "dateTime"),
    # A place of the ranking is only ever taken by a better bid.
    "q19": (["auction", "rank"], "struct(price, -unix_micros(dateTime), -bidder)"),
}
"""Queries with results that change: by which columns, and what grows with each change."""


# --- what several queries need ---


def _closed(events: Events, aggregates: dict[str, Column]) -> Stream:
    """One row for each auction that got a bid in time, when it has closed.

    An auction closes at ``expires``, so that becomes the event time, and a window over it is over when no bid for the
    auction can come any more.
    """
    auctions = events.auctions(
        "id AS auction", "category", "seller", "dateTime AS opened", "expires", event_time="opened"
    )
    bids = events.bids("auction", "bidder", "price", "dateTime")
    offers = auctions.join(
        f"{events.query}-offers", bids, keys=["auction"], within=("0 seconds", events.nexmark.longest_auction)
    )
    in_time = offers.transform(
        f"{events.query}-in-time", lambda rows: rows.where("dateTime <= expires"), event_time="expires"
    )
    return in_time.window(
        f"{events.query}-closed",
        size="1 second",
        keys=["auction", "category", "seller", "expires"],
        aggregates=aggregates,
    )


def _best(*columns: str) -> Column:
    """The highest bid, and the earliest of equal ones, as a struct."""
    return F.max(F.struct("price", (-F.unix_micros("dateTime")).alias("earlier"), *columns, "bidder"))


def _time_of(best: str) -> Column:
    return F.timestamp_micros(-F.col(f"{best}.earlier")).alias("dateTime")


def _ranks(price: Column) -> dict[int, Column]:
    return {1: price < 10_000, 2: (price >= 10_000) & (price < 1_000_000), 3: price >= 1_000_000}


def _statistics() -> dict[str, Column]:
    ranks = _ranks(F.col("price"))
    found = {"bids": F.count("*")} | {f"bids_rank{rank}": F.count(F.when(at, 1)) for rank, at in ranks.items()}
    for what in ("bidder", "auction"):
        found[f"{what}s"] = F.count_distinct(what)
        found |= {f"{what}s_rank{rank}": F.count_distinct(F.when(at, F.col(what))) for rank, at in ranks.items()}
    return found
