-- The newest bid of each bidder for each auction.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q18 WITH ('connector' = 'parquet', 'path' = '${output}/q18');

INSERT INTO q18
SELECT bidder, auction, dateTime, price
FROM (
  SELECT bidder, auction, dateTime, price,
    ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC) AS place
  FROM bid)
WHERE place = 1;
