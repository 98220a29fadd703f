-- Bids, bidders and auctions of each day, so far, by rank of price.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q15 WITH ('connector' = 'parquet', 'path' = '${output}/q15');

INSERT INTO q15
SELECT date_format(dateTime, 'yyyy-MM-dd') AS day,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS bids_rank1,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS bids_rank2,
  count(*) FILTER (WHERE price >= 1000000) AS bids_rank3,
  count(DISTINCT bidder) AS bidders,
  count(DISTINCT bidder) FILTER (WHERE price < 10000) AS bidders_rank1,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS bidders_rank2,
  count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS bidders_rank3,
  count(DISTINCT auction) AS auctions,
  count(DISTINCT auction) FILTER (WHERE price < 10000) AS auctions_rank1,
  count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS auctions_rank2,
  count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS auctions_rank3
FROM bid
GROUP BY day;
