-- Every bid with its price in euros.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q1 WITH ('connector' = 'parquet', 'path' = '${output}/q1');

INSERT INTO q1
SELECT auction, bidder, price * CAST(0.908 AS DOUBLE) AS price, dateTime, extra FROM bid;
