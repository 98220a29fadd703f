-- Every bid with a number for its channel.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q21 WITH ('connector' = 'parquet', 'path' = '${output}/q21');

INSERT INTO q21
SELECT auction, bidder, price, channel,
  CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
       ELSE regexp_extract(url, 'channel_id=([^&]*)', 1) END AS channel_id
FROM bid;
