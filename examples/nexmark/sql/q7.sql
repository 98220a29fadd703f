-- The highest bid of every 10 seconds; the earliest of equal ones.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q7 WITH ('connector' = 'parquet', 'path' = '${output}/q7');

INSERT INTO q7
SELECT window_start, window_end, price, auction, bidder, dateTime
FROM (
  SELECT window_start, window_end, price, auction, bidder, dateTime, ROW_NUMBER() OVER (
    PARTITION BY window_start, window_end ORDER BY price DESC, dateTime, auction DESC, bidder DESC) AS place
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)))
WHERE place = 1;
