"""Rows from Kafka into every sink that promises exactly once, and those of a Delta table into files, in one job: a kill
tests all of them at once."""

import importlib.util
from pathlib import Path
from types import ModuleType

from pyspark.sql import functions as F

from epochal import Pipeline

COOKBOOK = Path(__file__).parents[2] / "examples" / "cookbook"
ICEBERG_TABLE = "shop.orders"


def cookbook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cookbook_{name}", COOKBOOK / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(p: Pipeline) -> None:
    p.spark.conf.set("spark.sql.shuffle.partitions", Path(p.parameters["partitions"]).read_text().strip())
    kafka = cookbook("kafka")
    orders = kafka.orders(p)
    kafka.to_topic(p, orders)
    orders.to_postgres("postgres_out", p.parameters["dsn"], "orders")
    orders.to_delta("delta_out", p.parameters["delta"])
    orders.to_iceberg("iceberg_out", ICEBERG_TABLE, catalog=catalog(p.parameters["iceberg"]))
    orders.to_parquet("parquet_out", p.parameters["parquet"])
    prices = p.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(p.parameters["prices"])
    p.source("prices", prices, bounded=True).to_parquet("prices_out", p.parameters["prices_copy"])
    totals = orders.aggregate("totals", keys=["country"], aggregates={"n": F.count("*"), "total": F.sum("amount")})
    known = totals.transform("known", lambda frame: frame.fillna("none", ["country"]))
    known.to_postgres("totals_out", p.parameters["dsn"], "totals", mode="upsert", keys=["country"])


def catalog(directory: str) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": Path(directory).as_uri()}
