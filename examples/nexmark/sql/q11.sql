-- How many bids each bidder made in every sitting: bids that are no more than 10 seconds apart.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q11 WITH ('connector' = 'parquet', 'path' = '${output}/q11');

INSERT INTO q11
SELECT window_start, window_end, bidder, count(*) AS bids
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, bidder;
