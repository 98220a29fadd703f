-- The winning bid of every auction, so far: the highest, and the earliest of equal ones. No auction is open for longer
-- than a minute.
CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'auction', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q9 WITH ('connector' = 'parquet', 'path' = '${output}/q9');

INSERT INTO q9
SELECT auction, category, seller, expires, price, bidder, dateTime
FROM (
  SELECT b.auction, a.category, a.seller, a.expires, b.price, b.bidder, b.dateTime,
    ROW_NUMBER() OVER (PARTITION BY b.auction ORDER BY b.price DESC, b.dateTime, b.bidder DESC) AS place
  FROM (SELECT id, category, seller, dateTime, expires FROM auction) a
  JOIN (SELECT auction, bidder, price, dateTime FROM bid) b
    ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.dateTime + INTERVAL '1' MINUTE
  WHERE b.dateTime <= a.expires)
WHERE place = 1;
