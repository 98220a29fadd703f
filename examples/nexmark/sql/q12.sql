-- How many bids each bidder made in every 10 seconds of the clock, whenever these bids say they were made.
CREATE TABLE q12_bid (bidder BIGINT, seen AS current_timestamp(), WATERMARK FOR seen AS seen)
  WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q12 WITH ('connector' = 'parquet', 'path' = '${output}/q12');

INSERT INTO q12
SELECT window_start, window_end, bidder, count(*) AS bids
FROM TABLE(TUMBLE(TABLE q12_bid, DESCRIPTOR(seen), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, bidder;
