"""`register(spark)`: makes sink and source known to a session, tunes its Arrow batches and hides secret options."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from iceberg_ds.datasource import IcebergSink
from iceberg_ds.reading.source import IcebergSource
from iceberg_ds.secrets import spark_option_pattern, spark_text_pattern
from iceberg_ds.spark.data_sources import make_known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_MAX_BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
# With exactly this value Spark skips a size check per row that halves the throughput to Python.
_UNCHECKED = "2147483647"

# Spark hides options whose name or value matches it in plans, in the UI and in event logs. Its own default, `url`, and
# `spark.redaction.regex` leave these in clear: access-key-id, account-key, header.*, addresses with passwords.
_OPTIONS_REGEX = "spark.sql.redaction.options.regex"
_NOT_HIDDEN_BY_SPARK = ("catalog.s3.access-key-id", "catalog.adls.account-key", "catalog.header.authorization")

# Spark hides what it matches in texts. Spark Connect puts every request as text, with its options in clear, into
# descriptions of jobs, into the UI and into event logs.
_TEXT_REGEX = "spark.sql.redaction.string.regex"
_TEXT_REGEX_OF_CONTEXT = "spark.redaction.string.regex"
_CATALOG_PREFIX = "catalog."


def register(spark: SparkSession) -> None:
    """Make `icebergsink` and `icebergsource` known to `spark`, tune its Arrow batches and hide secret options.

    Sets, unless they are set already:

    * `spark.sql.execution.arrow.maxBytesPerBatch` to 2147483647: batches are then bounded by
      `spark.sql.execution.arrow.maxRecordsPerBatch` alone, which rows of more than about 100 kB should lower;
    * `spark.sql.redaction.options.regex` and `spark.sql.redaction.string.regex`, so that Spark shows no secret
      option in plans, in its UI and in event logs. Its own defaults leave some in clear, and all of them with
      Spark Connect.

    Call it in each Python thread that writes, too: Spark looks for Python data sources in the active session of the
    thread, and a new thread has none, `InheritableThread` included. There the session becomes the active one.

    Args:
        spark: The session; classic, or of Spark Connect.
    """
    make_known(spark, IcebergSink)
    make_known(spark, IcebergSource)
    _activate(spark)
    _set_unless_set(spark, _MAX_BYTES_PER_BATCH, _UNCHECKED)
    _set_unless_set(spark, _OPTIONS_REGEX, spark_option_pattern(_CATALOG_PREFIX))
    _warn_of_shown_options(str(spark.conf.get(_OPTIONS_REGEX, "")))
    if spark.conf.get(_TEXT_REGEX_OF_CONTEXT, None) is None:
        _set_unless_set(spark, _TEXT_REGEX, spark_text_pattern(_CATALOG_PREFIX))


def _activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread, unless it has one."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None and jvm.SparkSession.getActiveSession().isEmpty():  # Spark Connect has no JVM and needs none
        jvm.SparkSession.setActiveSession(getattr(spark, "_jsparkSession"))  # noqa: B009  # PySpark has no public name


def _warn_of_shown_options(regex: str) -> None:
    with suppress(re.error):  # Java has patterns that Python does not have
        hides = re.compile(regex).search
        if shown := [option for option in _NOT_HIDDEN_BY_SPARK if not hides(option)]:
            logger.warning(
                "Spark shows options such as %s in plans and in its UI, because %s does not match them: widen it, or "
                "keep secrets out of options",
                ", ".join(shown),
                _OPTIONS_REGEX,
            )


def _set_unless_set(spark: SparkSession, key: str, value: str) -> None:
    if spark.conf.get(key, None) is None:
        spark.conf.set(key, value)
