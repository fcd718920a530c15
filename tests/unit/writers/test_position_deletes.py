"""Files of position deletes: every position under its file, in the order and with the bounds that readers rely on."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from support.tables.delete_files import delete_positions, entries
from support.tables.metadata import identity
from support.tables.sink import Sink

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.table.names import FILE_PATH, POS
from iceberg_ds.writers import position_deletes
from iceberg_ds.writers.position_deletes import HiddenRows, hidden_positions, write_position_deletes

IO = LocalFileIO()
PATH_ID, POS_ID = FILE_PATH.field_id, POS.field_id


def data_file(path: str) -> DataFile:
    """Return the entry of a file of rows in partition `EU` of spec 3."""
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record("EU"),
        record_count=1000,
        file_size_in_bytes=1,
    )
    found.spec_id = 3
    return found


def write(folder: Path, **hidden: list[int]) -> tuple[DataFile, list[tuple[str, int]]]:
    """Write the positions of these files, and return the entry and what is in the file."""
    rows = [HiddenRows(data_file=data_file(path), positions=positions) for path, positions in hidden.items()]
    path = f"{folder}/deletes.parquet"
    entry = write_position_deletes(IO, path, rows, identity().files)
    found = pq.read_table(path)
    return entry, list(zip(found["file_path"].to_pylist(), found["pos"].to_pylist(), strict=True))


def test_positions_lie_in_the_order_of_their_files(tmp_path: Path) -> None:
    """Readers that merge deletes with rows would miss those that come too late."""
    entry, found = write(tmp_path, b=[0, 7], a=[3], c=[1])

    assert found == [("a", 3), ("b", 0), ("b", 7), ("c", 1)]
    assert (entry.record_count, entry.spec_id, entry.partition) == (4, 3, Record("EU"))
    assert entry.file_size_in_bytes == (tmp_path / "deletes.parquet").stat().st_size
    assert entry.content is DataFileContent.POSITION_DELETES


@pytest.mark.parametrize("length", [1, 17, 300])
def test_bounds_of_a_path_are_not_cut_short(tmp_path: Path, length: int) -> None:
    """Readers would take a part of a path for the file that is meant, and apply the deletes to none."""
    path = "p" * length

    entry, _ = write(tmp_path, **{path: [2, 5]})

    assert entry.lower_bounds == {PATH_ID: path.encode(), POS_ID: (2).to_bytes(8, "little")}
    assert entry.upper_bounds == {PATH_ID: path.encode(), POS_ID: (5).to_bytes(8, "little")}


def test_row_groups_take_the_positions_of_one_file_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes of large writes would take all memory of the driver, or be lost between two row groups."""
    monkeypatch.setattr(position_deletes, "_GROUP_ROWS", 4)

    _, found = write(tmp_path, a=[0, 1, 2], b=list(range(9)), c=[5])

    assert found == [*(("a", row) for row in range(3)), *(("b", row) for row in range(9)), ("c", 5)]
    footer = pq.read_metadata(tmp_path / "deletes.parquet")
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [4, 4, 4, 1]


def test_nothing_is_left_of_a_file_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failed attempt would leave a file behind."""

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(position_deletes.ParquetFile, "write_row_group", fail)
    with pytest.raises(OSError, match="no space left"):
        write(tmp_path, a=[1])

    assert list(tmp_path.iterdir()) == []


def test_hidden_rows_are_those_of_all_delete_files_of_a_file(sink: Sink) -> None:
    """Rows that another engine deleted would come back when their file is written again."""
    sink.append(1, 2, 3, 4)
    sink.append(5, 6)
    first, second = (entry.data_file.file_path for entry in reversed(entries(sink)))
    delete_positions(sink, first, [0, 3])
    delete_positions(sink, first, [1])
    table = sink.table()
    tasks = {task.file.file_path: task for task in table.scan().plan_files()}

    def hidden(path: str) -> list[int]:
        return sorted(
            hidden_positions(table.io, [each.file_path for each in tasks[path].delete_files], path).to_pylist()
        )

    assert hidden(first) == [0, 1, 3]
    assert hidden(second) == []
