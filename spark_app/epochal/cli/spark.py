"""Whether Spark can start here: told at once, and not by a driver's log each time that it is started anew."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from epochal.cli.checks import searched
from epochal.cli.errors import UserError
from epochal.cli.manifests import LocalJob


def require_spark(job: LocalJob) -> None:
    given = {str(item["name"]): str(item.get("value", "")) for item in job.spec.env}
    environment = {**os.environ, **given}
    python_path = [part for part in given.get("PYTHONPATH", "").split(os.pathsep) if part]
    if not _has_pyspark(python_path):
        raise UserError("this needs Spark: pip install 'epochal[spark]'")
    remote = "spark.remote" in job.spec.spark_conf or "SPARK_REMOTE" in environment
    if not remote and not _has_java(environment):
        where = environment.get("JAVA_HOME")
        raise UserError(
            f"Spark needs Java 17 or newer: there is no {where}/bin/java, which JAVA_HOME names"
            if where
            else "Spark needs Java 17 or newer: install it, or set JAVA_HOME"
        )


def _has_pyspark(directories: list[str]) -> bool:
    try:
        with searched(directories):
            return importlib.util.find_spec("pyspark") is not None
    except (ImportError, ValueError):
        return False


def _has_java(environment: Mapping[str, str]) -> bool:
    """As Spark looks for it. Its own file of settings may name one, too."""
    home = environment.get("SPARK_HOME") or _home()
    settings = Path(environment.get("SPARK_CONF_DIR") or f"{home}/conf", "spark-env.sh")
    if settings.exists():
        return True
    if java_home := environment.get("JAVA_HOME"):
        return Path(java_home, "bin", "java").exists()
    return shutil.which("java", path=environment.get("PATH")) is not None


def _home() -> str:
    spec = importlib.util.find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
