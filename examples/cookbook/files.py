"""Orders from files of four formats. A file counts once, when it appears whole: write it elsewhere and rename it."""

from pyspark.sql import functions as F

from epochal import Pipeline

SCHEMA = "id long, country string, amount double"


def build(p: Pipeline) -> None:
    where = p.parameters["input"]
    as_json = p.source("as_json", p.spark.readStream.schema(SCHEMA).json(f"{where}/json"), bounded=True)
    as_csv = p.source(
        "as_csv", p.spark.readStream.schema(SCHEMA).option("header", True).csv(f"{where}/csv"), bounded=True
    )
    as_parquet = p.source("as_parquet", p.spark.readStream.schema(SCHEMA).parquet(f"{where}/parquet"), bounded=True)
    lines = p.source("lines", p.spark.readStream.text(f"{where}/text"), bounded=True)
    parsed = F.from_csv("value", SCHEMA).alias("row")
    as_text = lines.transform("as_text", lambda frame: frame.select(parsed).select("row.*"))
    as_json.union("all", as_csv, as_parquet, as_text).to_parquet("out", p.parameters["output"])
