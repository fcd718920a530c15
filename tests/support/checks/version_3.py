"""What must hold of a table of format version 3 after any commit: of its row ids, and of its deletion vectors.

`check_version_3` reads all data files of all snapshots, so it is for small tables.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from support.checks.reader import Listed, listed, visible_rows

from iceberg_ds.snapshots.version_3 import first_row_id, referenced_data_file

Row = dict[str, Any]
# Reserved field ids (spec, "Row Lineage").
_ROW_ID = 2147483540


def check_version_3(table: Table, *, was_upgraded: bool = False) -> None:
    """Assert that each row has an id of its own, now and in each snapshot, and each data file at most one vector.

    Args:
        table: The table, with a column `id` that stays the same while a row stays the same row.
        was_upgraded: Whether it may have position delete files of version 2, and snapshots without row ids.
    """
    _check_numbers(table)
    keys: dict[int, Any] = {}
    for snapshot in table.metadata.snapshots:
        if snapshot.first_row_id is None:
            assert was_upgraded, f"snapshot {snapshot.snapshot_id} has no row ids"
            continue
        _check_vectors(table, snapshot.snapshot_id, was_upgraded=was_upgraded)
        for number, row in row_ids(table, snapshot.snapshot_id).items():
            key = row["id"]
            assert keys.setdefault(number, key) == key, f"row id {number} is of key {keys[number]} and of {row}"


def _check_numbers(table: Table) -> None:
    """Assert that no two snapshots give the same row ids, in whatever branches they are."""
    following = 0
    for snapshot in sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0):
        if snapshot.first_row_id is not None:
            assert snapshot.first_row_id >= following, f"{snapshot} gives row ids that were given before"
            following = snapshot.first_row_id + (snapshot.added_rows or 0)
    assert (getattr(table.metadata, "next_row_id", None) or 0) >= following, "the next row id was given before"


def row_ids(table: Table, snapshot_id: int | None = None) -> dict[int, Row]:
    """Return the visible rows of a snapshot, of `main` if none is given, by row id; assert that each has its own."""
    files = {file.path: file for file in listed(table, snapshot_id=snapshot_id)[DataFileContent.DATA]}
    found: dict[int, Row] = {}
    for path, position, row in visible_rows(table, snapshot_id=snapshot_id):
        number = _row_id(files[path], position)
        assert number not in found, f"{row} and {found[number]} have row id {number}"
        found[number] = row
    assert max(found, default=-1) < (getattr(table.metadata, "next_row_id", None) or 0)
    return found


def _row_id(file: Listed, position: int) -> int:
    written = file.by_field().get(_ROW_ID)
    if written is not None and written[position] is not None:
        return int(written[position])
    first = first_row_id(file.entry.data_file)
    assert first is not None, f"{file.path} has no row ids"
    return first + position


def _check_vectors(table: Table, snapshot_id: int, *, was_upgraded: bool) -> None:
    """Assert that each data file has at most one vector, and each vector a data file."""
    files = listed(table, snapshot_id=snapshot_id)
    data = {file.path: file for file in files[DataFileContent.DATA]}
    hidden: set[str] = set()
    for deletes in files[DataFileContent.POSITION_DELETES]:
        if deletes.entry.data_file.file_format is not FileFormat.PUFFIN:
            assert was_upgraded, f"{deletes.path} is a position delete file of version 2"
            continue
        path = str(referenced_data_file(deletes.entry.data_file))
        assert path not in hidden, f"{path} has two deletion vectors"
        assert path in data, f"the deletion vector of {path} is left, whose data file is gone"
        assert deletes.place == data[path].place, f"the deletion vector of {path} is of another partition"
        assert deletes.number >= data[path].number, f"the deletion vector of {path} hides none of its rows"
        assert deletes.entry.data_file.record_count <= data[path].entry.data_file.record_count
        hidden.add(path)
