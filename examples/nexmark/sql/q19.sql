-- The ten highest bids for each auction, so far; of equal ones the earliest.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q19 WITH ('connector' = 'parquet', 'path' = '${output}/q19');

INSERT INTO q19
SELECT auction, bidder, price, dateTime, rank
FROM (
  SELECT auction, bidder, price, dateTime,
    ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) AS rank
  FROM bid)
WHERE rank <= 10;
