"""Keys of written rows, read again where key reports do not have them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_ds.commit.cross_task import read_keys
from iceberg_ds.io.local_io import LocalFileIO


def test_keys_are_those_of_the_rows_in_every_row_group(tmp_path: Path) -> None:
    """A row would be hidden for the key of another one."""
    path = str(tmp_path / "rows.parquet")
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": number})
        for number, name, kind in (("3", "a.b", pa.string()), ("4", "other", pa.int64()), ("1", "id", pa.int64()))
    ]
    columns = [pa.array([f"row {row}" for row in range(20)]), pa.array(range(100, 120)), pa.array(range(20))]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path, row_group_size=6)

    found = read_keys(LocalFileIO(), path, [0, 5, 6, 13, 19], (1, 3))

    assert [column.to_pylist() for column in found.columns] == [
        [0, 5, 6, 13, 19],
        ["row 0", "row 5", "row 6", "row 13", "row 19"],
    ]
