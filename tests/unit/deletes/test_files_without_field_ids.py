"""Files that were written without Iceberg and added to a table: nothing but their names tells their columns.

PyIceberg's `add_files`, and Iceberg's procedure of that name, add them with a name mapping in the table's properties,
which the sink does not follow: wherever it would have to look into such a file, it refuses to, and names the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from support.checks.invariants import unreferenced_files
from support.keys.conversions import ENCODINGS, convert
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.publications import put as publish
from support.keys.upserts import SEQUENCED_SCHEMA, upsert, upsert_by_sequence
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import IcebergSinkError

EVENTS: list[Event] = [("U", 2, "US", 20, 5), ("D", 3, "EU", None, 5)]
ROWS = [{"id": number, "region": "EU", "amount": number} for number in (1, 2, 3)]


@pytest.fixture
def added(sink: Sink, tmp_path: Path) -> Path:
    """Return a file of rows 1 to 3 that was added to the table."""
    return add(sink, tmp_path, KEYED_SCHEMA)


def add(sink: Sink, folder: Path, schema: Schema) -> Path:
    """Make the table, and add a file with rows 1 to 3 in the columns that `ROWS` have."""
    sink.create(schema)
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string(), nullable=False)]
    path = folder / "added.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, pa.schema([*fields, pa.field("amount", pa.int64())])), path)
    sink.table().add_files([f"file://{path}"])
    assert "schema.name-mapping.default" in sink.table().properties
    assert sink.rows() == [{**row, "lsn": None} if "lsn" in schema.column_names else row for row in ROWS]
    return path


def epoch_and_conversion(sink: Sink, encoding: RowEncoding) -> None:
    """Commit an epoch with deletes by keys, which reads nothing, and convert them."""
    sink.commit(keyed_tasks(plan_by_keys(sink), EVENTS))
    convert(sink, encoding)


READERS: dict[str, Callable[[Sink], object]] = {
    **{f"upsert, {encoding}": lambda sink, by=encoding: upsert(sink, by, EVENTS) for encoding in ENCODINGS},
    **{f"conversion, {encoding}": lambda sink, by=encoding: epoch_and_conversion(sink, by) for encoding in ENCODINGS},
    "publication": lambda sink: publish(sink, None, EVENTS),
    "replace-where": lambda sink: sink.overwrite([], schema=COLUMNS, replace_where="id = 2"),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_would_have_to_read_such_a_file_refuses_it_by_name(sink: Sink, added: Path, reader: str) -> None:
    """Keys read as nulls are found nowhere: old rows would stay beside new ones, or all of a file's values be lost."""
    with pytest.raises(IcebergSinkError, match=rf"{added.name}(:| again).*field id"):
        READERS[reader](sink)

    data = sink.table().scan(row_filter="id < 100", snapshot_id=sink.table().metadata.snapshots[0].snapshot_id)
    assert data.to_arrow().to_pylist() == ROWS
    assert unreferenced_files(sink.table()) == set()


def test_late_rows_are_not_held_against_such_a_file(sink: Sink, tmp_path: Path) -> None:
    """A late row would win over one whose sequence was read as null."""
    added = add(sink, tmp_path, SEQUENCED_SCHEMA)

    with pytest.raises(IcebergSinkError, match=f"{added.name}: it does not say which column has field id"):
        upsert_by_sequence(sink, EVENTS)

    assert len(sink.rows()) == len(ROWS)


def test_keys_of_such_a_file_are_not_called_unique(sink: Sink, added: Path) -> None:
    """Keys that are there twice would be proven to be there once."""
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, deep=True, unique_keys=True)

    assert not result.ok
    assert f"{added.name}: it does not say which column has field id 1" in str(result)


def test_files_beside_it_and_whole_files_are_written(sink: Sink, added: Path) -> None:
    """A table with such a file could not be written at all."""
    sink.commit(sink.write([{"id": 4, "region": "US", "amount": 4}], schema=COLUMNS))
    sink.overwrite([], schema=COLUMNS, replace_where="id = 4")
    assert sink.rows() == ROWS

    sink.overwrite([], schema=COLUMNS, replace_where="id < 4")

    assert sink.rows() == []
    assert added.exists()
