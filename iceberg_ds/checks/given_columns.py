"""The columns that a check compares with the table: of a DataFrame's schema, of text, or of a sample file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from iceberg_ds.checks.checklist import CheckFailedError

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


def given_columns(
    schema: spark.StructType | str | None, sample: str | os.PathLike[str] | None, session: SparkSession | None
) -> tuple[str, spark.StructType]:
    """Return the columns, and what they are in words.

    Raises:
        CheckFailedError: Neither can be understood.
    """
    columns = schema if isinstance(schema, spark.StructType) else None
    if columns is None and schema is not None:
        columns = parse_columns(str(schema), session)
    if columns is None:
        columns = _read_sample(Path(str(sample)))
    return columns.simpleString(), columns


def parse_columns(text: str, session: SparkSession | None) -> spark.StructType:
    """Return the columns of text such as `id BIGINT NOT NULL, name STRING`; only a session reads nested types.

    Raises:
        CheckFailedError: It is malformed.
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
            "Write it as `name TYPE`, with a simple type of Spark SQL; for nested types give a sample file, or a Spark "
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
    raise CheckFailedError(f"{path} is of no known kind", f"Give a file that is {_SAMPLES}.")
