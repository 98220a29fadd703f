-- The auctions with the most bids of the last 10 seconds, every 2 seconds.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE VIEW q5_counts AS
SELECT window_start, window_end, auction, count(*) AS bids
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end, auction;

CREATE VIEW q5_most AS
SELECT window_start, window_end, max(bids) AS most FROM q5_counts GROUP BY window_start, window_end;

CREATE TABLE q5 WITH ('connector' = 'parquet', 'path' = '${output}/q5');

INSERT INTO q5
SELECT c.window_start, c.window_end, c.auction, c.bids
FROM q5_counts c
JOIN q5_most m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.most;
