-- Avro values from a Kafka topic, by the schema that they were written with. kafka_avro.py is the same in Python.
CREATE TABLE avro_orders (
  id BIGINT, country STRING, ordered_at TIMESTAMP,
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '10' SECOND
) WITH (
  'connector' = 'kafka', 'servers' = '${kafka}', 'topic' = '${orders}', 'bounded' = 'true',
  'format' = 'avro', 'avro-schema' = '
    {"type": "record", "name": "Order", "fields": [
      {"name": "id", "type": "long"},
      {"name": "country", "type": ["null", "string"]},
      {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    ]}'
);
CREATE TABLE avro_out WITH ('connector' = 'parquet', 'path' = '${output}');
INSERT INTO avro_out SELECT * FROM avro_orders;
