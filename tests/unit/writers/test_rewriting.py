"""The rows of a file that stay when it is written again: those that are not left out, in the columns of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.table.name_mapping import UnknownColumnsError
from iceberg_ds.writers import rewriting as reader
from iceberg_ds.writers.rewriting import remaining_rows

ROWS = 10
NOW = Schema(NestedField(2, "added", StringType()), NestedField(1, "number", LongType()))


def write(path: Path, metadata: dict[str, str] | None) -> str:
    """Write a file of the numbers from 0, one a row, whose column has this metadata."""
    column = pa.field("old", pa.int64(), metadata=metadata)
    pq.write_table(pa.table([range(ROWS)], schema=pa.schema([column])), path)
    return str(path)


def remaining(path: str, *left_out: int) -> list[list[dict[str, object]]]:
    """Return the batches of rows that stay."""
    found = remaining_rows(LocalFileIO(), path, NOW, pa.array(left_out, pa.int64()), {})
    return [batch.to_pylist() for batch in found]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a file of three batches."""
    monkeypatch.setattr(reader, "_BATCH_ROWS", 4)
    return write(tmp_path / "rows.parquet", {"PARQUET:field_id": "1"})


@pytest.mark.parametrize(
    "left_out", [(), (0,), (9,), (3, 4), (8, 2, 2, 5), (7, 6, 5, 4), tuple(range(ROWS)), (100,)], ids=str
)
def test_rows_that_are_left_out_are_missing_and_no_others(path: str, left_out: tuple[int, ...]) -> None:
    """Deleted rows would come back, or their neighbours go, most of all where a batch begins or ends."""
    batches = remaining(path, *left_out)

    assert [row["number"] for batch in batches for row in batch] == [n for n in range(ROWS) if n not in left_out]


def test_rows_have_the_columns_that_the_table_has_now(path: str) -> None:
    """Rows of older files would lose columns, or go into others."""
    (_, _, last) = remaining(path)

    assert last == [{"added": None, "number": 8}, {"added": None, "number": 9}]


def test_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    """Values would be taken for those of another column."""
    with pytest.raises(UnknownColumnsError, match="have no field ids"):
        remaining(write(tmp_path / "plain.parquet", None))
