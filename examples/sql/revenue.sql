-- Where rows come from, which column is their event time, and how much they may be out of order.
CREATE TABLE orders (
  order_id BIGINT, country STRING, ordered_at TIMESTAMP, amount DECIMAL(10, 2),
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '20' SECOND
) WITH ('connector' = 'files', 'path' = '${input}/orders', 'files-per-batch' = '4', 'bounded' = 'true');

CREATE TABLE payments (
  order_id BIGINT, paid_at TIMESTAMP,
  WATERMARK FOR paid_at AS paid_at - INTERVAL '20' SECOND
) WITH ('connector' = 'files', 'path' = '${input}/payments', 'files-per-batch' = '4', 'bounded' = 'true');

-- Where results go: their columns are filled by position, and get these types.
CREATE TABLE revenue (minute TIMESTAMP, country STRING, orders BIGINT, revenue DECIMAL(20, 2), average DOUBLE)
  WITH ('connector' = 'parquet', 'path' = '${output}/revenue');
CREATE TABLE totals (country STRING, orders BIGINT, revenue DECIMAL(20, 2))
  WITH ('connector' = 'console');

-- A function of the Python file beside this one.
CREATE FUNCTION name_of AS 'countries:name_of' RETURNS STRING;

-- Two streams: orders that were paid within two minutes.
CREATE VIEW paid AS
SELECT o.order_id, o.country, o.ordered_at, o.amount
FROM orders AS o
JOIN payments AS p ON p.order_id = o.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '2' MINUTE;

-- A row per minute and country, when the minute is over.
INSERT INTO revenue
SELECT window_start, name_of(country), count(*), sum(amount), sum(amount) / count(*)
FROM TABLE(TUMBLE(TABLE paid, DESCRIPTOR(ordered_at), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, country;

-- The new totals of each country that a micro-batch changed.
INSERT INTO totals
SELECT country, count(*), sum(amount) FROM paid GROUP BY country;
