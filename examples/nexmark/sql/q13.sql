-- Every bid with a value from a table beside the stream. `python examples/nexmark/generate.py DIRECTORY --side-table`
-- writes it; the parameter sideTable is that directory.
CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events' = 'bid', 'events-per-second' = '${eventsPerSecond}');

CREATE TABLE side_input (key BIGINT, value STRING)
  WITH ('connector' = 'files', 'format' = 'parquet', 'path' = '${sideTable}');

CREATE TABLE q13 WITH ('connector' = 'parquet', 'path' = '${output}/q13');

INSERT INTO q13
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bid b
JOIN side_input FOR SYSTEM_TIME AS OF b.dateTime AS s ON b.auction % 1000 = s.key;
