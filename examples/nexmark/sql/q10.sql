-- Every bid with its day and minute: what files on a lake are arranged by.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE q10 WITH ('connector' = 'parquet', 'path' = '${output}/q10');

INSERT INTO q10
SELECT auction, bidder, price, dateTime, extra,
  date_format(dateTime, 'yyyy-MM-dd') AS day, date_format(dateTime, 'HH:mm') AS minute
FROM bid;
