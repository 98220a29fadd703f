"""Local files as Hadoop has them, but for two things.

Spark's progress logs cost no processes. Hadoop's own classes for local files start ``chmod`` for each file that they
write, and once more for its checksum: six processes a micro-batch. Ours leaves permissions as the process's umask has
them, and writes no checksums: nobody reads these logs but the source that wrote them, and what counts of them is in an
epoch's manifest.

Directories are listed by name, as object stores list them. Spark's file source reads files by age, and those of one
time stamp as they are listed: Hadoop lists a local directory in the order that the disk has it in, which is none, so
that rows come late.

The classes are compiled by the compiler that Spark has for its own generated code, so that there is no jar to ship.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from epochal.runtime.spark.jvm import jvm, scala_context

SCHEME = "epochal-local"

_LOGS = "io.epochal.LocalFiles"
_BY_NAME = "io.epochal.FilesByName"

_SOURCE = f"""
package io.epochal;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends RawLocalFileSystem {{
  public String getScheme() {{ return "{SCHEME}"; }}
  public java.net.URI getUri() {{ return java.net.URI.create("{SCHEME}:///"); }}
  public void setPermission(Path path, FsPermission permission) {{}}
}}

public class FilesByName extends RawLocalFileSystem {{
  public FileStatus[] listStatus(Path path) throws java.io.IOException {{
    FileStatus[] found = super.listStatus(path);
    java.util.Arrays.sort(found, new java.util.Comparator() {{
      public int compare(Object one, Object other) {{
        return ((FileStatus) one).getPath().getName().compareTo(((FileStatus) other).getPath().getName());
      }}
    }});
    return found;
  }}
}}
"""


def local_uri(spark: SparkSession, path: Path) -> str:
    """What Spark is to be told to write its log to ``path``."""
    _compiled(spark)
    return f"{SCHEME}://{path.absolute()}"


def list_by_name(spark: SparkSession) -> None:
    """Let this process list local directories by name.

    Hadoop keeps one file system for ``file:`` in a process, which asks another one for what is on the disk: that one is
    exchanged. It cannot be configured, as executors are told the configuration and do not have the class. Where the
    user has configured other classes for local files, these stay as they are."""
    configuration = _compiled(spark)
    uri = jvm().java.net.URI.create("file:///")
    local = jvm().org.apache.hadoop.fs.FileSystem.get(uri, configuration)
    # Not always this very class: with Hive's on the class path it is a subclass of theirs.
    is_hadoops = configuration.getClassByName("org.apache.hadoop.fs.LocalFileSystem").isInstance(local)
    if not is_hadoops or local.getRaw().getClass().getName() != "org.apache.hadoop.fs.RawLocalFileSystem":
        return
    reflection = jvm().org.apache.hadoop.util.ReflectionUtils
    by_name = reflection.newInstance(configuration.getClassByName(_BY_NAME), configuration)
    by_name.initialize(uri, configuration)
    asked = configuration.getClassByName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("fs")
    asked.setAccessible(True)
    asked.set(local, by_name)


def _compiled(spark: SparkSession) -> Any:
    """Hadoop's configuration in this process, which knows the classes."""
    configuration = scala_context(spark).hadoopConfiguration()
    if configuration.get(f"fs.{SCHEME}.impl") is None:
        compiler = jvm().org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(configuration.getClassLoader())
        compiler.cook(_SOURCE)
        configuration.setClassLoader(compiler.getClassLoader())
        configuration.set(f"fs.{SCHEME}.impl", _LOGS)
    return configuration
