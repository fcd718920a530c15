"""Which filesystems Spark has: those of Hadoop on its class path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_filesystem(spark: SparkSession, scheme: str) -> bool:
    """Return whether Spark can surely open paths of a scheme, such as `s3a`; Spark Connect does not tell."""
    try:
        context: Any = spark.sparkContext
        filesystems = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001  # there is no public way to ask
        filesystems.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001
    except Exception:  # of Java, or of Spark Connect, which has no SparkContext
        return False
    return True
