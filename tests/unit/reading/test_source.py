"""Batches by `format("icebergsource")`: the columns that Spark has, and files that its filters leave over."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from support.tables.changes_by_others import head_of, plain_table
from support.tables.follower import Follower
from support.tables.sink import Sink, rows

from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.reading import source as of_spark
from iceberg_ds.reading.source import IcebergReader, PrunedReader

ID, NAME = StructField("id", LongType()), StructField("name", StringType())


def reader(sink: Sink, *columns: StructField, **options: str) -> IcebergReader:
    """Return a reader of these columns; of those that the source has if none is given."""
    source = Follower(sink=sink, options=options).source
    return source.reader(StructType(list(columns)) if columns else source.schema())


def read(found: IcebergReader) -> list[dict[str, Any]]:
    """Return the rows that tasks yield."""
    batches = [batch for partition in found.partitions() for batch in found.read(partition)]
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=str) if batches else []


@pytest.fixture
def pushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be the one in which Spark pushes filters down."""
    monkeypatch.setitem(sys.modules, of_spark._PUSHES_FILTERS, ModuleType("pushing"))


def test_columns_are_those_that_spark_has(sink: Sink) -> None:
    """Spark 4.1 matches columns by their places: a column would have the values of another one."""
    sink.append(1)
    found = reader(sink, NAME, ID)

    (batch,) = (batch for partition in found.partitions() for batch in found.read(partition))
    assert batch.schema.names == ["name", "id"]
    assert read(reader(sink, NAME)) == [{"name": "row 1"}]
    assert list(read(reader(sink, ID, StructField("_pos", LongType())))[0]) == ["id", "_pos"]


def test_columns_that_moved_since_stay_where_they_were(sink: Sink) -> None:
    """A DataFrame that was made before would have the columns exchanged."""
    sink.append(1)
    before = Follower(sink=sink).source.schema()
    with plain_table(sink).update_schema() as change:
        change.move_first("name")

    assert [field.name for field in Follower(sink=sink).source.schema()] == ["name", "id"]
    (batch,) = (batch for one in [reader(sink, *before)] for part in one.partitions() for batch in one.read(part))
    assert batch.schema.names == ["id", "name"]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (
            [StructField("id", TimestampType())],
            SchemaMismatchError,
            "column 'id' is bigint, and timestamp in the schema",
        ),
        ([StructField("_pos", StringType())], SchemaMismatchError, "column '_pos' is bigint, and string"),
        ([StructField("none", LongType())], OptionError, "it has no column 'none'"),
        ([StructField("ID", LongType())], OptionError, "has the columns ID, expected id"),
        ([StructField("_pos", LongType()), ID], OptionError, "expected id, _pos: .* metadata columns last"),
    ],
)
def test_columns_that_the_table_has_not_are_refused(
    sink: Sink, columns: list[StructField], error: type[Exception], text: str
) -> None:
    """Bytes of one type would be shown as another, or Spark say of nothing what it is about."""
    sink.append(1)

    with pytest.raises(error, match=text):
        reader(sink, *columns)


def test_changes_tell_what_became_of_each_row(sink: Sink) -> None:
    """A deleted row would look like one that was inserted."""
    sink.append(1)
    begin = str(head_of(sink))

    assert "_change_type" in read(reader(sink, changes_from_snapshot_id=begin))[0]
    with pytest.raises(OptionError, match="columns lacks '_change_type'"):
        reader(sink, changes_from_snapshot_id=begin, columns="id")
    with pytest.raises(OptionError, match="columns lacks '_change_type'"):
        reader(sink, ID, changes_from_snapshot_id=begin)


def test_source_says_that_it_does_not_write(sink: Sink) -> None:
    """Spark would say that its writer is not implemented."""
    with pytest.raises(OptionError, match=r'Write with format\("icebergsink"\)'):
        Follower(sink=sink).source.writer(StructType([ID]), overwrite=False)


@pytest.mark.usefixtures("pushing")
@pytest.mark.parametrize("where", [None, "id > 1"])
def test_files_are_passed_over_by_filters(sink: Sink, where: str | None) -> None:
    """A filter on a DataFrame would read the whole table."""
    filters = pytest.importorskip("pyspark.sql.datasource")
    if not hasattr(filters, "EqualTo"):
        pytest.skip("this Spark pushes no filters down")
    for number in (1, 2, 3):
        sink.append(number)
    given = [filters.LessThan(("id",), 3), filters.EqualTo(("name",), 1.5)]
    found = reader(sink, **({"where": where} if where else {}))
    assert isinstance(found, PrunedReader)

    assert found.pushFilters(given) is given  # Spark looks at all rows again
    assert [row["id"] for row in read(found)] == ([2] if where else [1, 2])


def test_filters_are_taken_only_where_spark_pushes_them(sink: Sink) -> None:
    """Spark refuses a reader that takes filters, unless the session pushes them down."""
    sink.commit(sink.write(rows(1)))

    assert not isinstance(reader(sink), PrunedReader)
