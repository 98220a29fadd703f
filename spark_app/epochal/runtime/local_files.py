"""Local files for Spark's progress logs that cost no processes.

Hadoop's own classes for local files start ``chmod`` for each file that they write, and once more for its checksum: six
processes a micro-batch. This one leaves permissions as the process's umask has them, and writes no checksums: nobody
reads these logs but the source that wrote them, and what counts of them is in an epoch's manifest.

The class is compiled by the compiler that Spark has for its own generated code, so that there is no jar to ship.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

SCHEME = "epochal-local"

_CLASS = "io.epochal.LocalFiles"

_SOURCE = f"""
package io.epochal;

import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends RawLocalFileSystem {{
  public String getScheme() {{ return "{SCHEME}"; }}
  public java.net.URI getUri() {{ return java.net.URI.create("{SCHEME}:///"); }}
  public void setPermission(Path path, FsPermission permission) {{}}
}}
"""


def local_uri(spark: SparkSession, path: Path) -> str:
    """What Spark is to be told to write its log to ``path``."""
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    if configuration.get(f"fs.{SCHEME}.impl") is None:
        compiler = context._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(configuration.getClassLoader())
        compiler.cook(_SOURCE)
        configuration.setClassLoader(compiler.getClassLoader())
        configuration.set(f"fs.{SCHEME}.impl", _CLASS)
    return f"{SCHEME}://{path.absolute()}"
