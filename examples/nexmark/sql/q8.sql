-- Persons who opened an auction within the same 10 seconds in which they registered.
CREATE TABLE person (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, dateTime TIMESTAMP,
  extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'person', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'auction', 'events-per-second' = '${eventsPerSecond}');

CREATE VIEW q8_persons AS
SELECT window_start, window_end, id, name
FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, id, name;

CREATE VIEW q8_sellers AS
SELECT window_start, window_end, seller, count(*) AS auctions
FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, seller;

CREATE TABLE q8 WITH ('connector' = 'parquet', 'path' = '${output}/q8');

INSERT INTO q8
SELECT p.window_start, p.window_end, p.id, p.name, s.auctions
FROM q8_persons p
JOIN q8_sellers s ON p.id = s.seller AND p.window_start = s.window_start AND p.window_end = s.window_end;
