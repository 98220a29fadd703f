"""What can be seen to be wrong with a job's jars before Spark looks for them: in an hour, on a driver. Pure."""

import re
from collections.abc import Iterator, Mapping

SCALA = "2.13"
SPARK = "4.2"
"""The versions that this release is built for."""

_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+")
_SCALA_SUFFIX = re.compile(r"_(2\.\d+)$")


def jar_problems(conf: Mapping[str, str]) -> Iterator[str]:
    """Problems of ``spark.jars.packages``, each in a sentence."""
    seen: dict[str, str] = {}
    for package in filter(None, (part.strip() for part in conf.get("spark.jars.packages", "").split(","))):
        if not _COORDINATES.fullmatch(package):
            yield f"spark.jars.packages: {package!r} is no coordinate: write group:artifact:version"
            continue
        group, artifact, version = package.split(":")
        scala = _SCALA_SUFFIX.search(artifact)
        if scala and scala[1] != SCALA:
            right = artifact.replace(scala[0], f"_{SCALA}")
            yield f"spark.jars.packages: {artifact} is for Scala {scala[1]}, and Spark has {SCALA}: use {right}"
        if (
            group == "org.apache.spark"
            and artifact.startswith("spark-sql-kafka")
            and not version.startswith(f"{SPARK}.")
        ):
            yield f"spark.jars.packages: {package} is for another Spark than {SPARK}: use {SPARK}.0"
        name = f"{group}:{_SCALA_SUFFIX.sub('', artifact)}"
        if name in seen and seen[name] != version:
            yield f"spark.jars.packages: {name} is named twice, with versions {seen[name]} and {version}"
        seen[name] = version


PACKAGES = {
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{SPARK}.0",
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "avro": "org.apache.spark:spark-avro_2.13:4.1.1",
}
"""What brings the sources that Spark does not have by itself."""


def jars_of_format(name: str, conf: Mapping[str, str]) -> str:
    """The package that a source of this format needs and the settings do not bring; empty if there is nothing to do."""
    if name not in PACKAGES or conf.get("spark.jars"):
        return ""
    return "" if name in conf.get("spark.jars.packages", "") else PACKAGES[name]
