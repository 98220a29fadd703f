-- Protobuf values from a Kafka topic. kafka_protobuf.py is the same in Python, and has the message.
CREATE TABLE protobuf_orders (
  id BIGINT, country STRING, ordered_at TIMESTAMP, tags ARRAY<STRING>,
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'servers' = '${kafka}', 'topic' = '${orders}', 'bounded' = 'true',
  'format' = 'protobuf', 'protobuf-message' = 'shop.Order', 'protobuf-descriptor' = '${descriptor}'
);
CREATE TABLE protobuf_out WITH ('connector' = 'parquet', 'path' = '${output}');
INSERT INTO protobuf_out SELECT * FROM protobuf_orders;
