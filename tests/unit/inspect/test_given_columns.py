"""Which columns a schema, a text or a sample file has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark

from iceberg_ds.inspect.check import given_columns, parse_columns
from iceberg_ds.inspect.checklist import CheckFailedError


def test_text_has_names_types_and_what_is_required() -> None:
    """Columns would be compared with others than the write has."""
    parsed = parse_columns("id BIGINT NOT NULL, `a name` string, price DECIMAL(10, 2), at: timestamp_ntz", None)

    assert parsed == spark.StructType([
        spark.StructField("id", spark.LongType(), nullable=False),
        spark.StructField("a name", spark.StringType()),
        spark.StructField("price", spark.DecimalType(10, 2)),
        spark.StructField("at", spark.TimestampNTZType()),
    ])  # fmt: skip


@pytest.mark.parametrize("text", ["id", "id BIGINT,", "id NUMBER", "list ARRAY<INT>", "id BIGINT(3)"])
def test_text_that_is_not_understood_is_refused(text: str) -> None:
    """Columns would be compared with others than the write has."""
    with pytest.raises(CheckFailedError, match="is not understood"):
        parse_columns(text, None)


def test_samples_have_the_columns_of_their_rows(tmp_path: Path) -> None:
    """A user could not compare the files that are to be written."""
    wanted = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("t", spark.StringType())])
    pq.write_table(pa.table({"id": [1], "t": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id,t\n1,x\n")
    (tmp_path / "a.json").write_text('{"id": 1, "t": "x"}\n')

    for path in tmp_path.iterdir():
        assert given_columns(None, path, None)[1] == wanted, path


def test_schema_is_taken_as_it_is() -> None:
    """A DataFrame's schema could not be compared."""
    schema = spark.StructType([spark.StructField("tags", spark.ArrayType(spark.StringType()))])

    assert given_columns(schema, None, None) == ("struct<tags:array<string>>", schema)


@pytest.mark.parametrize(
    ("name", "text"), [("a.txt", "x"), ("none.csv", None), ("bad.parquet", "x"), ("bad.json", "{")]
)
def test_sample_that_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str | None) -> None:
    """A user would see an error of PyArrow, without what to do."""
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(CheckFailedError) as raised:
        given_columns(None, tmp_path / name, None)

    assert "Parquet" in raised.value.next_step
