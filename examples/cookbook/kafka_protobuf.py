"""Protobuf values from a Kafka topic, by what `protoc --include_imports --descriptor_set_out=orders.desc` makes of

    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";

    message Order {
      int64 id = 1;
      string country = 2;
      google.protobuf.Timestamp ordered_at = 3;
      repeated string tags = 4;
    }

The extra `protobuf` must be installed on the driver and on the executors. The same in SQL is kafka_protobuf.sql.
"""

from epochal import Pipeline
from epochal.connectors.protobuf import from_protobuf


def build(p: Pipeline) -> None:
    records = (
        p.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", p.parameters["kafka"])
        .option("subscribe", p.parameters["orders"])
        .option("startingOffsets", "earliest")
        .load()
    )
    order = from_protobuf("value", "shop.Order", p.parameters["descriptor"], on_malformed="null")
    rows = records.select(order.alias("order")).select("order.*")
    orders = p.source("orders", rows, event_time="ordered_at", delay="10 seconds", bounded=True)
    orders.transform("readable", lambda frame: frame.where("id IS NOT NULL")).to_parquet("out", p.parameters["output"])
