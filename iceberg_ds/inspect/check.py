"""`check`: tries everything that a write needs, on the driver and on every executor, before any job runs.

It leaves nothing behind. A check that depends on a failed one is skipped; every other check is made. The columns that
are compared with the table come from a DataFrame's schema, from text, or from a sample file.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.inspect.catalog_checks import OPTIONS, REACHED, Target, checked_catalog, checked_table, warehouse_target
from iceberg_ds.inspect.checklist import DRIVER, Check, CheckFailedError, Checklist, CheckResult
from iceberg_ds.inspect.executors import EXECUTORS, ask_executors, versions_check
from iceberg_ds.inspect.machine_checks import (
    PUT,
    Place,
    clean_up,
    installed_versions,
    machine,
    missing_folders,
    probe_storage,
    quick_properties,
    remove_folders,
    write_marker,
)
from iceberg_ds.options.parse import given_options, options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_COLUMN = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))\s*:?\s*(?P<type>[a-z_]+(\s*\([\d\s,]+\))?)\s*"
                     r"(?P<required>not\s+null)?\s*", re.IGNORECASE)  # fmt: skip
_BETWEEN_COLUMNS = re.compile(r",(?![^(]*\))")
_TYPES: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "smallint": spark.ShortType(),
    "int": spark.IntegerType(),
    "integer": spark.IntegerType(),
    "bigint": spark.LongType(),
    "long": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "string": spark.StringType(),
    "binary": spark.BinaryType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
    "timestamp_ltz": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
    "decimal": spark.DecimalType(10, 0),
}
_SAMPLES = "Parquet (.parquet), CSV with a header (.csv) or JSON with one object a line (.json, .jsonl)"
_LIMIT_S = 60.0
_JOB_LIMITS = 4  # the job on the executors may take this many times as long as one step
_COLUMNS, LEFT = "given columns", "removal of test files"
MARKER = "storage: write a file for the executors"
_SPARK_FIRST = (
    "iceberg_ds.check(spark, options) is deprecated and will be removed in version 0.2: call "
    "iceberg_ds.check(table, spark=spark, options=options)."
)
_Check = TypeVar("_Check", bound=Callable[..., CheckResult])


def given_columns(
    schema: spark.StructType | str | None, sample: str | os.PathLike[str] | None, session: SparkSession | None
) -> tuple[str, spark.StructType]:
    """Return a text about the columns, and the columns.

    Raises:
        CheckFailedError: The text or the sample cannot be read as columns.
    """
    columns = schema if isinstance(schema, spark.StructType) else None
    if columns is None and schema is not None:
        columns = parse_columns(str(schema), session)
    if columns is None:
        columns = _read_sample(Path(str(sample)))
    return columns.simpleString(), columns


def parse_columns(text: str, session: SparkSession | None) -> spark.StructType:
    """Return the columns of text such as `id BIGINT NOT NULL, name STRING`; nested types need a session.

    Raises:
        CheckFailedError: The text is malformed.
    """
    if session is None:
        return spark.StructType([_column(part) for part in _BETWEEN_COLUMNS.split(text)])
    try:
        return session.createDataFrame([], text).schema
    except PySparkException as error:
        raise CheckFailedError(
            f"columns {text!r} are not understood: {error.getMessage()}",
            "Write each as `name TYPE`, with a type of Spark SQL, and commas between them.",
        ) from error


def _column(text: str) -> spark.StructField:
    found = _COLUMN.fullmatch(text)
    kind = _type(found["type"]) if found else None
    if found is None or kind is None:
        raise CheckFailedError(
            f"column {text.strip()!r} is not understood",
            "Write it as `name TYPE`, with a simple type of Spark SQL. For nested types give a sample file, or a Spark "
            "session (--master).",
        )
    return spark.StructField(found["quoted"] or found["name"], kind, nullable=found["required"] is None)


def _type(text: str) -> spark.DataType | None:
    name, _, arguments = text.lower().partition("(")
    numbers = [int(number) for number in re.findall(r"\d+", arguments)]
    if name.strip() == "decimal" and numbers:
        return spark.DecimalType(*numbers[:2])
    return None if numbers else _TYPES.get(name.strip())


def _read_sample(path: Path) -> spark.StructType:
    try:
        return from_arrow_schema(_arrow_schema(path), prefer_timestamp_ntz=False)
    except (OSError, pa.ArrowException) as error:
        raise CheckFailedError(f"{path} cannot be read: {error}", f"Give a file that is {_SAMPLES}.") from error


def _arrow_schema(path: Path) -> pa.Schema:
    if path.suffix == ".parquet":
        return pq.read_schema(path)
    if path.suffix == ".csv":
        return pa.csv.open_csv(path).schema
    if path.suffix in {".json", ".jsonl", ".ndjson"}:
        return pa.json.read_json(path).schema
    raise CheckFailedError(f"{path} has an unknown suffix", f"Give a file that is {_SAMPLES}.")


def _accepting_spark_first(check: _Check) -> _Check:
    """Return a function that also accepts `check(spark, options)`, the form of earlier versions, with a warning."""

    @functools.wraps(check)
    def in_either_form(*args: Any, **kwargs: Any) -> CheckResult:  # noqa: ANN401  # those of either form
        is_named = not args and "table" not in kwargs and {"spark", "options"} <= kwargs.keys()
        if is_named or (args and not isinstance(args[0], str)):
            warnings.warn(_SPARK_FIRST, DeprecationWarning, stacklevel=2)
            return _check_spark_first(*args, **kwargs)
        return check(*args, **kwargs)

    return cast("_Check", in_either_form)


def _check_spark_first(
    spark: SparkSession | None,
    options: Mapping[str, str],
    **how: Any,  # noqa: ANN401  # those of `check`
) -> CheckResult:
    return check_write(given_options(options), spark, **how)


@_accepting_spark_first
def check(  # noqa: PLR0913  # one parameter for each choice of the user
    table: str,
    *,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    schema: StructType | str | None = None,
    sample: str | os.PathLike[str] | None = None,
    limit_s: float = _LIMIT_S,
) -> CheckResult:
    """Try everything that a write to a table needs, on the driver and on every executor, before the job runs.

    It tries the options; the catalog, its credentials, the namespace and the table, or the right to create it; the
    columns, if they are given; and on the driver and on every executor the versions, the clock and the storage, where
    it writes, reads, lists and deletes files. It leaves nothing behind: for a table that does not exist it creates a
    scratch table `iceberg_ds_check_...` and removes it, with the namespace if that did not exist.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: The session whose executors are asked; None to check only from this machine.
        options: The options that the write gets. None for no options.
        schema: The columns of the write: a DataFrame's schema, or text such as `id BIGINT, name STRING`. None if
            `sample` has them, or to leave the columns unchecked.
        sample: Path of a Parquet, CSV (with a header) or JSON (one object per line) file with these columns, instead
            of `schema`; None for no sample.
        limit_s: Seconds that each step may take; the job on the executors may take four times as long.

    Returns:
        What each check found. A check that fails is in `failures` and raises nothing.

    Raises:
        OptionError: The options name another table.
    """
    return check_write(options_of_call(table, options), spark, schema=schema, sample=sample, limit_s=limit_s)


def check_write(
    given: Mapping[str, str],
    spark: SparkSession | None,
    *,
    schema: StructType | str | None = None,
    sample: str | os.PathLike[str] | None = None,
    limit_s: float = _LIMIT_S,
) -> CheckResult:
    """Try everything that a write with these options needs; their keys are in lower case, the rest is as in `check`."""
    run = secrets.token_hex(6)
    checklist = Checklist.for_options(given, limit_s)
    versions = installed_versions()
    checklist.note(versions_check(versions, versions, "driver"))
    parsed = checklist.attempt(OPTIONS, lambda: _parsed(given))
    columns = None
    if schema is not None or sample is not None:
        columns = checklist.attempt(_COLUMNS, lambda: given_columns(schema, sample, spark))
    if parsed is None:
        checklist.skip(REACHED, f"not tried, because '{OPTIONS}' did not pass")
        _check_machines(checklist, None, spark, run)
    else:
        _check_all(checklist, parsed, columns, spark, run)
    return CheckResult(checks=tuple(checklist.checks))


def _parsed(given: Mapping[str, str]) -> tuple[str, SinkOptions]:
    options = parse_options(given)
    catalog_settings(options)
    return f"{len(given)} options, table {identifier_text(options.table)}", options


def _check_all(
    checklist: Checklist, options: SinkOptions, columns: StructType | None, spark: SparkSession | None, run: str
) -> None:
    with checked_catalog(checklist, options) as client:
        if client is None:
            _check_machines(checklist, warehouse_target(options), spark, run)
            return
        with checked_table(checklist, client, options, columns) as target:
            _check_machines(checklist, target or warehouse_target(options), spark, run)


def _check_machines(checklist: Checklist, target: Target | None, spark: SparkSession | None, run: str) -> None:
    """Try the storage on the driver, and everything that executors can try."""
    if target is None:
        checklist.skip(PUT, "not tried, because the location of the table is unknown")
        _check_executors(checklist, None, spark, run)
        return
    checklist.secrets.update(target.properties)
    properties = quick_properties(target.properties, target.folder)
    place = Place(folder=target.folder, properties=properties, limit_s=checklist.limit_s)
    # Noted here, because executors on this machine could not tell which one of them made a folder.
    made = missing_folders(f"{place.folder}/x")
    try:
        for found in probe_storage(place, f"driver-{machine()}-{os.getpid()}", DRIVER):
            checklist.note(found)
        if spark is not None and checklist.passed(PUT):
            place = replace(place, marker=checklist.attempt(MARKER, lambda: write_marker(place)))
        _check_executors(checklist, place, spark, run)
    finally:
        if left := clean_up(place):
            checklist.note(Check(name=LEFT, outcome="failed", detail=", ".join(left), next_step="Delete them by hand."))
        remove_folders(made)


def _check_executors(checklist: Checklist, place: Place | None, spark: SparkSession | None, run: str) -> None:
    if spark is None:
        checklist.skip(EXECUTORS, "not asked: there is no Spark session")
        return
    limit_s = _JOB_LIMITS * checklist.limit_s
    started = time.monotonic()
    try:
        checks = ask_executors(spark, place, run, installed_versions(), limit_s)
    except Exception as error:  # errors of Spark, and of the job
        checklist.fail(EXECUTORS, error, seconds=time.monotonic() - started)
        return
    for found in checks:
        checklist.note(found)
