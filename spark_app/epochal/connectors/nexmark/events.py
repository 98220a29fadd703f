"""Nexmark: the events of an auction site, the same ones for the same seed, at any rate.

Of 50 events one is a person, three are auctions and 46 are bids. Every column is an expression over hashes of the
event's number, so Spark makes the events itself, without Python, and a stream and a batch frame have the same rows.

    Nexmark(seed=7).stream(spark)                                # 10,000 events a second, by the clock
    Nexmark(events_per_second=1_000_000).stream(spark, rows_per_batch=500_000)  # as fast as batches go
    Nexmark(seed=7).batch(spark, 1_000_000)                      # the first million, for files and for comparing
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

PERSON, AUCTION, BID = 0, 1, 2
"""Values of ``event_type``."""

CYCLE, PERSONS, AUCTIONS = 50, 1, 3
"""Of so many events the first are persons, the next are auctions, and the rest are bids."""

FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
ACTIVE_PERSONS, OPEN_AUCTIONS = 1000, 100
"""Sellers and bidders are among the newest persons; bids go to the newest auctions."""

HOT_GROUP = 100
"""One in so many persons and auctions is hot for a while: most auctions are its, half of the bids go to it."""

HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nexmark:
    """``events_per_second`` go by in event time, which begins at ``begin``. Event times are out of order by up to
    ``disorder`` seconds: give a source that ``delay``, and no row is late."""

    seed: int = 0
    events_per_second: int = 10_000
    disorder: float = 1.0
    begin: datetime = BEGIN

    @property
    def longest_auction(self) -> float:
        """The most seconds from an auction's ``dateTime`` to its ``expires``."""
        return 2 * OPEN_AUCTIONS * CYCLE / AUCTIONS / self.events_per_second

    def stream(self, spark: SparkSession, *, rows_per_batch: int | None = None) -> DataFrame:
        """An endless stream: ``events_per_second`` by the clock, or so many rows a micro-batch, as fast as these go."""
        if rows_per_batch is None:
            rate = spark.readStream.format("rate").option("rowsPerSecond", self.events_per_second)
        else:
            rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
        return self.events(rate.load())

    def batch(self, spark: SparkSession, events: int, *, first: int = 0) -> DataFrame:
        """The same rows as a plain frame: so many events from number ``first`` on."""
        return self.events(spark.range(first, first + events).withColumnRenamed("id", "value"))

    def events(self, numbers: DataFrame) -> DataFrame:
        """The events that have the numbers in column ``value``: ``event_type``, ``dateTime``, and the one of the
        structs ``person``, ``auction`` and ``bid`` that it is; the others are null."""
        place = F.col("value") % CYCLE
        kind = F.when(place < PERSONS, PERSON).when(place < PERSONS + AUCTIONS, AUCTION).otherwise(BID)
        numbered = numbers.select(
            "value",
            kind.alias("event_type"),
            self._time().alias("dateTime"),
            _last_person().alias("last_person"),
            _last_auction().alias("last_auction"),
        )
        structs = {PERSON: self._person(), AUCTION: self._auction(), BID: self._bid()}
        names = {PERSON: "person", AUCTION: "auction", BID: "bid"}
        filled = [F.when(F.col("event_type") == one, structs[one]).alias(names[one]) for one in structs]
        return numbered.select("event_type", *filled, "dateTime")

    # --- the three kinds ---

    def _person(self) -> Column:
        name = F.concat(self._one_of(FIRST_NAMES, "first"), F.lit(" "), self._one_of(LAST_NAMES, "last"))
        mail = F.concat(self._text("mail", 7), F.lit("@"), self._text("host", 5), F.lit(".com"))
        return F.struct(
            (F.col("last_person") + FIRST_ID).alias("id"),
            name.alias("name"),
            mail.alias("emailAddress"),
            F.lpad(self._below(10**16, "card").cast("string"), 16, "0").alias("creditCard"),
            self._one_of(CITIES, "city").alias("city"),
            self._one_of(STATES, "state").alias("state"),
            F.col("dateTime").alias("dateTime"),
            self._text("extra", 16).alias("extra"),
        )

    def _auction(self) -> Column:
        first_bid = self._price("initial")
        # Auctions last about as long as they are among those that get bids.
        length = self._below(round(self.longest_auction * 1e6), "length") + 1
        return F.struct(
            (F.col("last_auction") + FIRST_ID).alias("id"),
            F.concat(F.lit("item "), self._text("item", 12)).alias("itemName"),
            F.concat(F.lit("description "), self._text("about", 16), self._text("more", 16)).alias("description"),
            first_bid.alias("initialBid"),
            (first_bid + self._price("reserve")).alias("reserve"),
            F.col("dateTime").alias("dateTime"),
            F.timestamp_micros(F.unix_micros("dateTime") + length).alias("expires"),
            (self._recent_person("seller", hot=F.lit(0), one_in=4) + FIRST_ID).alias("seller"),
            (self._below(CATEGORIES, "category") + FIRST_CATEGORY).alias("category"),
            self._text("extra", 16).alias("extra"),
        )

    def _bid(self) -> Column:
        last = F.col("last_auction")
        cold = self._newest(last, OPEN_AUCTIONS, "auction")
        auction = F.when(self._below(2, "hot auction") > 0, last - last % HOT_GROUP).otherwise(cold)
        number = self._below(10_000, "channel")
        hot = self._below(2, "hot channel") > 0
        path = F.concat(*(F.concat(F.lit("/"), self._text(part, 4)) for part in ("dir1", "dir2", "dir3")))
        page = F.concat(F.lit("https://www.nexmark.com"), path, F.lit("/item.htm?query=1"))
        return F.struct(
            (auction + FIRST_ID).alias("auction"),
            (self._recent_person("bidder", hot=F.lit(1), one_in=4) + FIRST_ID).alias("bidder"),
            self._price("price").alias("price"),
            F.when(hot, self._one_of(HOT_CHANNELS, "which"))
            .otherwise(F.concat(F.lit("channel-"), number.cast("string")))
            .alias("channel"),
            F.when(hot, page).otherwise(F.concat(page, F.lit("&channel_id="), number.cast("string"))).alias("url"),
            F.col("dateTime").alias("dateTime"),
            self._text("extra", 16).alias("extra"),
        )

    # --- from hashes ---

    def _time(self) -> Column:
        since = F.expr(f"value * 1000000 DIV {self.events_per_second}")
        late = self._below(round(self.disorder * 1e6) + 1, "disorder")
        return F.timestamp_micros(F.lit(round(self.begin.timestamp() * 1e6)) + since - late)

    def _hash(self, what: str) -> Column:
        return F.xxhash64(F.lit(self.seed), F.lit(what), F.col("value"))

    def _below(self, bound: int, what: str) -> Column:
        return F.pmod(self._hash(what), F.lit(bound))

    def _newest(self, last: Column, count: int, what: str) -> Column:
        """Any of the newest so many up to number ``last``, or of all while there are fewer."""
        return last - F.pmod(self._hash(what), F.least(last + 1, F.lit(count)))

    def _one_of(self, names: Sequence[str], what: str) -> Column:
        return F.get(F.array(*map(F.lit, names)), self._below(len(names), what).cast("int"))

    def _text(self, what: str, length: int) -> Column:
        return F.lower(F.substring(F.lpad(F.hex(self._hash(what)), 16, "0"), 1, length))

    def _price(self, what: str) -> Column:
        """From 100 to 100 million (cents), as many between 100 and 1,000 as between ten and a hundred million."""
        return F.round(F.pow(F.lit(10.0), self._below(1_000_000, what) / 1e6 * 6) * 100).cast("long")

    def _recent_person(self, what: str, *, hot: Column, one_in: int) -> Column:
        """Mostly the hot person of now; otherwise, one in so many times, any of the newest ones."""
        last = F.col("last_person")
        cold = self._newest(last, ACTIVE_PERSONS, what)
        chosen = F.least(last - last % HOT_GROUP + hot, last)
        return F.when(self._below(one_in, f"hot {what}") > 0, chosen).otherwise(cold)


def side_table(spark: SparkSession) -> DataFrame:
    """The table that query 13 looks values up in, by the last three digits of an auction."""
    return spark.range(1000).select(F.col("id").alias("key"), F.md5(F.col("id").cast("string")).alias("value"))


def _last_person() -> Column:
    """The newest person when this event happens, counted from 0; a person's own number if it is one."""
    return F.expr(f"value DIV {CYCLE}")


def _last_auction() -> Column:
    """The same for auctions. Before the first there is none, and its number stands for it."""
    done = F.expr(f"value DIV {CYCLE}") * AUCTIONS
    place = F.least(F.col("value") % CYCLE - PERSONS, F.lit(AUCTIONS - 1))
    return F.greatest(done + place, F.lit(0))
