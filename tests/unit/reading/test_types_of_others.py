"""Columns of types that Spark has no counterpart of: refused by name, and all others are read."""

from __future__ import annotations

import pytest
from support.tables.changes_by_others import add_column_of_version_3
from support.tables.follower import Follower
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME, Sink, rows

from iceberg_ds.errors import IcebergSinkError, UnsupportedTableError
from iceberg_ds.reading.source import IcebergSource

TYPES = ("geometry", "geography", "timestamp_ns", "timestamptz_ns")


def refusal(sink: Sink, **options: str) -> str:
    """Return the text of the error of a read by Spark's planner, which makes schema and reader."""
    source = IcebergSource({"table": NAME, "warehouse": str(sink.options.warehouse), **options})
    with pytest.raises(IcebergSinkError) as refused:
        source.reader(source.schema())
    assert isinstance(refused.value, UnsupportedTableError)
    return str(refused.value)


@pytest.mark.parametrize("kind", TYPES)
def test_column_without_a_spark_type_is_named(sink: Sink, kind: str) -> None:
    """A user would see that some type is not read, and neither in which column of which table nor what to do."""
    sink.append(1, 2)
    add_column_of_version_3(sink, kind)

    said = f"Cannot read db.t: column 'other' holds {kind}, which has no exact Spark type here: "
    assert refusal(sink) == f"{said}name the other columns in 'columns' to read them."
    assert refusal(sink, columns="id,other").startswith(said)
    assert refusal(sink, columns="id", where="other IS NULL") == (
        f"{said}where names it, or is understood by Spark alone, which needs all columns: leave where out."
    )


def test_type_inside_a_column_is_named(sink: Sink) -> None:
    """The user would look for a column of that type, and find none."""
    sink.append(1)
    inner = {"id": 51, "name": "shape", "required": False, "type": "geometry"}
    add_column_of_version_3(sink, {"type": "struct", "fields": [inner]})

    assert "column 'other' holds geometry, which has no exact Spark type here" in refusal(sink)


@pytest.mark.parametrize("kind", TYPES)
def test_other_columns_are_read(sink: Sink, kind: str) -> None:
    """The error would name a next step that does not work."""
    sink.append(1, 2)
    add_column_of_version_3(sink, kind)

    assert read_by_tasks(sink, columns="id,name", where="id > 1") == rows(2)


def test_stream_that_began_before_goes_on_with_its_columns(sink: Sink) -> None:
    """A column that the query does not read would stop it."""
    sink.append(1)
    query = Follower(sink=sink)
    columns = query.source.schema()
    assert query.batch() == rows(1)
    query.stop()
    sink.append(2)
    add_column_of_version_3(sink, "geometry")
    query.keeps_schema = columns

    assert query.batch() == rows(2)
