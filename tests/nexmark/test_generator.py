"""The Nexmark generator: the same events for the same seed, as a stream and as a batch."""

from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from epochal.connectors.nexmark import CYCLE, Nexmark

NEXMARK = Nexmark(seed=3, events_per_second=1000, disorder=0.5)


def test_a_stream_has_the_rows_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    def keep(rows: DataFrame, _: int) -> None:
        streamed.extend(rows.collect())

    streamed: list[Row] = []
    # Each time one batch, and the next from where the last one ended.
    for _ in range(2):
        writer = NEXMARK.stream(spark, rows_per_batch=700).writeStream.foreachBatch(keep)
        writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert len(streamed) == 1400
    assert set(streamed) == set(NEXMARK.batch(spark, len(streamed)).collect())


def test_proportions_references_and_times(spark: SparkSession) -> None:
    rows = NEXMARK.batch(spark, 200 * CYCLE).collect()
    assert Counter(row.event_type for row in rows) == {0: 200, 1: 600, 2: 9200}
    persons = {row.person.id: number for number, row in enumerate(rows) if row.person}
    auctions = {row.auction.id: number for number, row in enumerate(rows) if row.auction}
    assert len(persons) == 200
    assert len(auctions) == 600
    # Nobody sells or bids who is not there yet, and no bid comes before its auction (but for the very first).
    assert all(persons[row.auction.seller] <= number for number, row in enumerate(rows) if row.auction)
    bids = [(number, row.bid) for number, row in enumerate(rows) if row.bid]
    assert all(persons[bid.bidder] <= number and auctions[bid.auction] <= number for number, bid in bids)
    hottest = Counter(bid.auction for _, bid in bids).most_common(1)[0][1]
    assert hottest > 10 * len(bids) / len(auctions)
    for number, row in enumerate(rows):
        late = number / NEXMARK.events_per_second - (row.dateTime - rows[0].dateTime).total_seconds()
        assert -NEXMARK.disorder <= late <= NEXMARK.disorder
    assert len({row.auction.seller for row in rows if row.auction}) > 50
    assert len({bid.bidder for _, bid in bids}) > 150
    lengths = [(row.auction.expires - row.auction.dateTime).total_seconds() for row in rows if row.auction]
    assert 0 < min(lengths) < max(lengths) <= NEXMARK.longest_auction


def test_another_seed_is_another_site_and_parts_fit_together(spark: SparkSession) -> None:
    def prices(seed: int) -> list[Row]:
        return Nexmark(seed=seed).batch(spark, 500).select("bid.price").collect()

    assert prices(1) == prices(1)
    assert prices(1) != prices(2)
    whole = NEXMARK.batch(spark, 300)
    parts = NEXMARK.batch(spark, 120).unionByName(NEXMARK.batch(spark, 180, first=120))
    assert whole.exceptAll(parts).count() == 0
    assert whole.agg(F.count("*")).collect() == parts.agg(F.count("*")).collect()
