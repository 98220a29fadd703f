"""What can be seen to be wrong with a job's jars before Spark looks for them: in an hour, on a driver. Pure."""

import re
from collections.abc import Iterator, Mapping

SCALA = "2.13"
SPARK = "4.2"
"""The versions that this release is built for."""

_SCALA_SUFFIX = re.compile(r"_(2\.\d+)$")
_PARTS = 3


def bad_coordinates(conf: Mapping[str, str]) -> Iterator[str]:
    """Of ``spark.jars.packages``, each in a sentence: Spark starts with none of these."""
    for package in _packages(conf):
        if _coordinates(package) is None:
            yield f"spark.jars.packages: {package!r} is no coordinate: write group:artifact:version"


def jar_problems(conf: Mapping[str, str]) -> Iterator[str]:
    """What hardly fits in ``spark.jars.packages``, each in a sentence. An image may have another Spark."""
    seen: dict[str, str] = {}
    for package in _packages(conf):
        coordinates = _coordinates(package)
        if coordinates is None:
            continue
        group, artifact, version = coordinates
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


def _packages(conf: Mapping[str, str]) -> Iterator[str]:
    return filter(None, (part.strip() for part in conf.get("spark.jars.packages", "").split(",")))


def _coordinates(package: str) -> tuple[str, str, str] | None:
    """As Spark takes them apart, which allows a slash for a colon."""
    parts = [part.strip() for part in package.replace("/", ":").split(":")]
    return (parts[0], parts[1], parts[2]) if len(parts) == _PARTS and all(parts) else None


PACKAGES = {
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{SPARK}.0",
    "delta": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "avro": "org.apache.spark:spark-avro_2.13:4.1.1",
}
"""What brings the sources that Spark does not have by itself."""


def jars_of_format(name: str, conf: Mapping[str, str]) -> str:
    """The package that a source of this format needs and the settings do not bring; empty if there is nothing to do."""
    own = ("spark.jars", "spark.driver.extraClassPath")
    if name not in PACKAGES or any(conf.get(setting) for setting in own):
        return ""
    return "" if name in conf.get("spark.jars.packages", "") else PACKAGES[name]
