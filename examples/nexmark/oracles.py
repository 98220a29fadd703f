"""What each Nexmark query means, as Spark SQL over all events at once: tables ``person``, ``auction`` and ``bid``."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_OFFERS = """
    SELECT b.auction, a.category, a.seller, a.expires, b.price, b.bidder, b.dateTime
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
"""

_SOLD = f"SELECT auction, category, seller, expires, max(price) AS price FROM ({_OFFERS}) GROUP BY ALL"

_STATISTICS = """
    count(*) AS bids,
    count_if(price < 10000) AS bids_rank1,
    count_if(price >= 10000 AND price < 1000000) AS bids_rank2,
    count_if(price >= 1000000) AS bids_rank3,
    count(DISTINCT bidder) AS bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 10000) AS bidders_rank1,
    count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS bidders_rank2,
    count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS bidders_rank3,
    count(DISTINCT auction) AS auctions,
    count(DISTINCT auction) FILTER (WHERE price < 10000) AS auctions_rank1,
    count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS auctions_rank2,
    count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS auctions_rank3
"""

ORACLES = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, price * 0.908D AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, count(*) AS auctions, avg(price) AS average FROM ({_SOLD}) GROUP BY category",
    "q5": """
        SELECT w.start AS window_start, w.end AS window_end, auction, bids FROM (
            SELECT w, auction, bids, rank() OVER (PARTITION BY w ORDER BY bids DESC) AS place FROM (
                SELECT window(dateTime, '10 seconds', '2 seconds') AS w, auction, count(*) AS bids
                FROM bid GROUP BY 1, 2))
        WHERE place = 1""",
    "q6": f"""
        SELECT seller, max(auctions) AS auctions, avg(price) AS average FROM (
            SELECT seller, price, count(*) OVER (PARTITION BY seller) AS auctions,
                   row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) AS place
            FROM ({_SOLD}))
        WHERE place <= 10 GROUP BY seller""",
    "q7": """
        SELECT w.start AS window_start, w.end AS window_end, price, auction, bidder, dateTime FROM (
            SELECT *, row_number() OVER (
                PARTITION BY w ORDER BY price DESC, dateTime, auction DESC, bidder DESC) AS place
            FROM (SELECT *, window(dateTime, '10 seconds') AS w FROM bid))
        WHERE place = 1""",
    "q8": """
        SELECT p.w.start AS window_start, p.w.end AS window_end, id, name, auctions
        FROM (SELECT window(dateTime, '10 seconds') AS w, id, name FROM person) p
        JOIN (SELECT window(dateTime, '10 seconds') AS w, seller, count(*) AS auctions FROM auction GROUP BY 1, 2) a
        ON p.w = a.w AND p.id = a.seller""",
    "q9": f"""
        SELECT auction, category, seller, expires, price, bidder, dateTime FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder DESC) AS place
            FROM ({_OFFERS}))
        WHERE place = 1""",
    "q10": """
        SELECT auction, bidder, price, dateTime, extra, date_format(dateTime, 'yyyy-MM-dd') AS day,
               date_format(dateTime, 'HH:mm') AS minute
        FROM bid""",
    "q11": """
        SELECT w.start AS window_start, w.end AS window_end, bidder, bids FROM (
            SELECT session_window(dateTime, '10 seconds') AS w, bidder, count(*) AS bids FROM bid GROUP BY 1, 2)""",
    # Which window of the clock a bid falls into is left to the clock.
    "q12": "SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder",
    "q13": """
        SELECT auction, bidder, price, dateTime, md5(CAST(auction % 1000 AS STRING)) AS value FROM bid""",
    "q14": """
        SELECT auction, bidder, price * 0.908 AS price,
               CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'day'
                    WHEN hour(dateTime) IN (7, 19, 20) THEN 'other' ELSE 'night' END AS part_of_day,
               dateTime, regexp_count(extra, 'c') AS letters
        FROM bid WHERE price * 0.908 >= 1000000 AND price * 0.908 <= 50000000""",
    "q15": f"SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, {_STATISTICS} FROM bid GROUP BY 1",
    "q16": f"SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day, {_STATISTICS} FROM bid GROUP BY 1, 2",
    "q17": """
        SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS bids,
               count_if(price < 10000) AS bids_rank1,
               count_if(price >= 10000 AND price < 1000000) AS bids_rank2,
               count_if(price >= 1000000) AS bids_rank3,
               min(price) AS smallest, max(price) AS largest, avg(price) AS average, sum(price) AS total
        FROM bid GROUP BY 1, 2""",
    "q18": """
        SELECT bidder, auction, dateTime, price FROM (
            SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC) AS place
            FROM bid)
        WHERE place = 1""",
    "q19": """
        SELECT * FROM (
            SELECT auction, bidder, price, dateTime,
                   row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) AS rank
            FROM bid)
        WHERE rank <= 10""",
    "q20": """
        SELECT b.auction, a.itemName, a.seller, a.category, a.dateTime, a.expires, b.bidder, b.price, b.dateTime AS at
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """
        SELECT auction, bidder, price, channel,
               coalesce(map('apple', '0', 'google', '1', 'facebook', '2', 'baidu', '3')[lower(channel)],
                        regexp_replace(url, '.*channel_id=', '')) AS channel_id
        FROM bid""",
    "q22": """
        SELECT auction, bidder, price, channel, dirs[3] AS dir1, dirs[4] AS dir2, dirs[5] AS dir3
        FROM (SELECT *, split(url, '/') AS dirs FROM bid)""",
}


def register(events: DataFrame) -> None:
    """Make the tables of the oracles."""
    for name in ("person", "auction", "bid"):
        events.where(F.col(name).isNotNull()).select(f"{name}.*").createOrReplaceTempView(name)
