"""Rows of files with 96-bit timestamps, as Impala, Hive and older Sparks write them, are found and kept as they are."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampType
from support.keys.conversions import convert, keyed_deletes
from support.tables.delete_files import delete_equal, entries, with_ids
from support.tables.sink import Sink, local

POSITION_DELETES = DataFileContent.POSITION_DELETES
# Nanoseconds, as which Arrow reads them by itself, reach from 1677 to 2262.
EARLY, KEPT, NOW, LATE = map(
    datetime.fromisoformat, ("1600-01-01", "1969-12-31 23:59:59.000001", "2020-01-01", "9999-12-31 23:59:59.999999")
)


@pytest.fixture
def changed(sink: Sink) -> Sink:
    """Return a table with four rows in such a file, three of which an equality delete names."""
    sink.create(Schema(NestedField(1, "at", TimestampType()), NestedField(2, "v", LongType())))
    rows = pa.table({"at": pa.array([EARLY, KEPT, NOW, LATE], pa.timestamp("us")), "v": [1, 2, 3, 4]})
    sink.table().append(rows)
    (entry,) = entries(sink)
    path = local(entry.data_file.file_path)
    pq.write_table(with_ids(rows, at=1, v=2), path, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(path).schema.column(0).physical_type == "INT96"
    delete_equal(sink, with_ids(pa.table({"at": pa.array([EARLY, NOW, LATE], pa.timestamp("us"))}), at=1), [1])
    return sink


def test_conversion_hides_all_rows_that_were_hidden(changed: Sink) -> None:
    """Deleted rows would come back: their times were read as other ones, and the delete by key is gone."""
    convert(changed, "position")

    assert keyed_deletes(changed.table()) == []
    deletes = [entry.data_file for entry in entries(changed) if entry.data_file.content is POSITION_DELETES]
    assert sorted(position for file in deletes for position in positions(file.file_path)) == [0, 2, 3]


def test_rewritten_file_has_the_same_times(changed: Sink) -> None:
    """The row that stays would get another time, or the rewrite would fail."""
    convert(changed, "copy-on-write")

    assert changed.table().scan().to_arrow().to_pylist() == [{"at": KEPT, "v": 2}]


def positions(location: str) -> list[int]:
    """Return the positions that a delete file names."""
    return [int(position) for position in pq.read_table(local(location))["pos"].to_pylist()]
