-- Who sells in category 10 and lives in Oregon, Idaho or California. Without a bound in time, a hundred years is it.
CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'auction', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE person (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, dateTime TIMESTAMP,
  extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'person', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q3 WITH ('connector' = 'parquet', 'path' = '${output}/q3');

INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM (SELECT id, seller, dateTime FROM auction WHERE category = 10) a
JOIN (SELECT id, name, city, state, dateTime FROM person WHERE state IN ('OR', 'ID', 'CA')) p
  ON a.seller = p.id
  AND p.dateTime BETWEEN a.dateTime - INTERVAL '36500' DAY AND a.dateTime + INTERVAL '36500' DAY;
