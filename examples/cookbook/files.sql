-- Orders from files of four formats. files.py is the same in Python.
CREATE TABLE as_json (id BIGINT, country STRING, amount DOUBLE)
  WITH ('connector' = 'files', 'path' = '${input}/json', 'bounded' = 'true');
CREATE TABLE as_csv (id BIGINT, country STRING, amount DOUBLE)
  WITH ('connector' = 'files', 'format' = 'csv', 'path' = '${input}/csv', 'spark.header' = 'true', 'bounded' = 'true');
CREATE TABLE as_parquet (id BIGINT, country STRING, amount DOUBLE)
  WITH ('connector' = 'files', 'format' = 'parquet', 'path' = '${input}/parquet', 'bounded' = 'true');
CREATE TABLE as_text (value STRING, parts AS from_csv(value, 'id LONG, country STRING, amount DOUBLE'))
  WITH ('connector' = 'files', 'format' = 'text', 'path' = '${input}/text', 'bounded' = 'true');
CREATE TABLE files_out WITH ('connector' = 'parquet', 'path' = '${output}');
INSERT INTO files_out
  SELECT id, country, amount FROM as_json
  UNION ALL SELECT id, country, amount FROM as_csv
  UNION ALL SELECT id, country, amount FROM as_parquet
  UNION ALL SELECT parts.id, parts.country, parts.amount FROM as_text;
