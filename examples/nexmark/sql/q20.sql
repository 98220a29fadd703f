-- Every bid for an auction of category 10, with the auction. Without a bound in time, a hundred years is it.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'auction', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q20 WITH ('connector' = 'parquet', 'path' = '${output}/q20');

INSERT INTO q20
SELECT b.auction, a.itemName, a.seller, a.category, a.dateTime, a.expires, b.bidder, b.price, b.dateTime AS at
FROM (SELECT auction, bidder, price, dateTime FROM bid) b
JOIN (SELECT id, itemName, seller, category, dateTime, expires FROM auction WHERE category = 10) a
  ON b.auction = a.id
  AND a.dateTime BETWEEN b.dateTime - INTERVAL '36500' DAY AND b.dateTime + INTERVAL '36500' DAY;
