"""The jars and settings with which plain Spark reaches S3. Epochal itself needs none of them."""

import hashlib
import subprocess
import tempfile
from pathlib import Path

from cluster.gobuild import cache_dir
from tests.support.s3 import S3Server

POM = Path(__file__).parent / "hadoop_aws" / "pom.xml"


def ensure_jars() -> list[Path]:
    """The jars that the committed pom.xml names, fetched by Maven once per machine (some 700 MB)."""
    directory = cache_dir() / f"hadoop-aws-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as partial:
            target = Path(partial) / "jars"
            command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
            subprocess.run(command, check=True, timeout=1800)
            target.rename(directory)
    return sorted(directory.glob("*.jar"))


def settings(server: S3Server, endpoint: str) -> dict[str, str]:
    """Spark's settings; keys are in the environment."""
    return {
        "spark.jars": ",".join(map(str, ensure_jars())),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": server.region,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.bucket.probe": "0",
        "spark.hadoop.fs.s3a.change.detection.mode": "none",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        ),
    }
