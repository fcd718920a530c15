"""Which filesystems Spark has, those of Hadoop on its class path, and how it lists files that it is given by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iceberg_ds.spark.task_job import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IN_JOB_ABOVE = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MOST_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_TASKS_A_CORE = 4
_FEW_FILES = 32  # unless the session has another limit


def has_filesystem(spark: SparkSession, scheme: str) -> bool:
    """Return whether Spark can surely open paths of a scheme, such as `s3a`; Spark Connect does not tell."""
    try:
        context: Any = spark.sparkContext
        filesystems = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001  # there is no public way to ask
        filesystems.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001
    except Exception:  # of Java, or of Spark Connect, which has no SparkContext
        return False
    return True


def count_of_files(rows: DataFrame) -> int:
    """Return how many files a DataFrame reads.

    `inputFiles` of classic Spark asks the JVM for each name by itself, 0.1 ms a file; their number takes one question.
    """
    inner: Any = getattr(rows, "_jdf", None)
    return len((rows if inner is None else inner).inputFiles())


@contextmanager
def listing_files(spark: SparkSession, count: int, *, are_local: bool) -> Iterator[None]:
    """Let Spark look at files that are read in the block in few tasks, or in none if they are on a local disk.

    Of more than 32 files it would look at each in a task of its own: 6 ms a file; of fewer it does not. The settings
    count when a DataFrame is made; with Spark Connect that is when it is used, and then those of the session do.

    Args:
        spark: The session, whose settings are as before after the block.
        count: How many files there are.
        are_local: Whether the files are on the driver's disk.
    """
    if count <= _FEW_FILES:
        yield
        return
    wanted = {_IN_JOB_ABOVE: str(2**31 - 1)} if are_local else {_MOST_TASKS: str(_TASKS_A_CORE * parallelism(spark))}
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
