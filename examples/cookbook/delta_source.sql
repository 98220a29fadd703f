-- New rows of a Delta Lake table, as they are added, and their countries' names. delta_source.py is the same in Python.
CREATE TABLE delta_orders (id BIGINT, country STRING, ordered_at TIMESTAMP,
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '10' SECOND
) WITH ('connector' = 'delta', 'path' = '${table}', 'files-per-batch' = '100');
CREATE TABLE delta_countries (country STRING, name STRING)
  WITH ('connector' = 'delta', 'path' = '${countries}', 'refresh' = '10 minutes');
CREATE TABLE delta_out WITH ('connector' = 'parquet', 'path' = '${output}');
INSERT INTO delta_out
  SELECT o.id, o.country, o.ordered_at, c.name
  FROM delta_orders AS o LEFT JOIN delta_countries FOR SYSTEM_TIME AS OF o.ordered_at AS c ON o.country = c.country;
