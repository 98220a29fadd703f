-- Every bid as it is.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q0 WITH ('connector' = 'parquet', 'path' = '${output}/q0');

INSERT INTO q0
SELECT auction, bidder, price, dateTime, extra FROM bid;
