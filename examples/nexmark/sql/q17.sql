-- Count, smallest, largest, average and sum of the bids of each auction and day, so far.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q17 WITH ('connector' = 'parquet', 'path' = '${output}/q17');

INSERT INTO q17
SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day,
  count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS bids_rank1,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS bids_rank2,
  count(*) FILTER (WHERE price >= 1000000) AS bids_rank3,
  min(price) AS smallest, max(price) AS largest, avg(price) AS average, sum(price) AS total
FROM bid
GROUP BY auction, day;
