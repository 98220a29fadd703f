-- Bids of a middling price, with the part of the day and a count of letters.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q14 WITH ('connector' = 'parquet', 'path' = '${output}/q14');

INSERT INTO q14
SELECT auction, bidder, price * 0.908 AS price,
  CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'day'
       WHEN hour(dateTime) BETWEEN 7 AND 20 THEN 'other' ELSE 'night' END AS part_of_day,
  dateTime, length(extra) - length(replace(extra, 'c', '')) AS letters
FROM bid
WHERE price * 0.908 BETWEEN 1000000 AND 50000000;
