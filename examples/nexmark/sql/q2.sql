-- Bids for some auctions only.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q2 WITH ('connector' = 'parquet', 'path' = '${output}/q2');

INSERT INTO q2
SELECT auction, price FROM bid WHERE auction % 123 = 0;
