-- The average of the prices at which auctions of each category closed, so far. A higher bid takes back what the auction
-- counted for before. No auction is open for longer than a minute.
CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'auction', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q4 WITH ('connector' = 'parquet', 'path' = '${output}/q4');

INSERT INTO q4
SELECT category, count(*) AS auctions, avg(price) AS average
FROM (
  SELECT b.auction, a.category, max(b.price) AS price
  FROM (SELECT id, category, dateTime, expires FROM auction) a
  JOIN (SELECT auction, price, dateTime FROM bid) b
    ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.dateTime + INTERVAL '1' MINUTE
  WHERE b.dateTime <= a.expires
  GROUP BY b.auction, a.category)
GROUP BY category;
