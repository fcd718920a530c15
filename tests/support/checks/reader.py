"""Reads a table with deletes as the spec says it ("Scan Planning"), file by file, without any reader of a library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyroaring import BitMap64
from support.tables.sink import local

from iceberg_ds.snapshots.manifests import all_entries
from iceberg_ds.snapshots.version_3 import ManifestList, deletion_vector, read_list, referenced_data_file

Row = dict[str, Any]
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A live file with all that says what it applies to."""

    entry: ManifestEntry
    spec_id: int

    @property
    def partition(self) -> str:
        """Its partition in words."""
        return repr(self.entry.data_file.partition)

    @property
    def place(self) -> tuple[int, str]:
        """Its spec and partition."""
        return self.spec_id, self.partition

    @property
    def number(self) -> int:
        """Its data sequence number."""
        assert self.entry.sequence_number is not None
        return self.entry.sequence_number

    @property
    def path(self) -> str:
        """Where it is."""
        return self.entry.data_file.file_path

    def rows(self) -> list[Row]:
        """Return what is in it."""
        found: list[Row] = pq.read_table(local(self.path), partitioning=None).to_pylist()
        return found

    def by_field(self) -> dict[int, list[Any]]:
        """Return its columns by their field ids."""
        return _columns(self.path)

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The fields of the keys that it deletes."""
        return tuple(self.entry.data_file.equality_ids or ())


def listed(table: Table, branch: str = "main", snapshot_id: int | None = None) -> dict[DataFileContent, list[Listed]]:
    """Return the live files of a branch, or of a snapshot, by what they hold."""
    found: dict[DataFileContent, list[Listed]] = defaultdict(list)
    snapshot = table.snapshot_by_name(branch) if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    # PyIceberg leaves the first row ids of manifests out.
    for manifest in read_list(table.io, ManifestList.of(snapshot)) if snapshot is not None else []:
        for entry in all_entries(table.io, manifest):  # as version 3 has them
            if entry.status is not ManifestEntryStatus.DELETED:
                found[entry.data_file.content].append(Listed(entry=entry, spec_id=manifest.partition_spec_id))
    return found


def rows_of(table: Table, branch: str = "main", snapshot_id: int | None = None) -> list[Row]:
    """Return the rows of a branch, or of a snapshot, with the table's columns as they are now, in order."""
    found = (row for _, _, row in visible_rows(table, branch, snapshot_id))
    return sorted(found, key=lambda row: str(list(row.values())))


def visible_rows(table: Table, branch: str = "main", snapshot_id: int | None = None) -> Iterator[tuple[str, int, Row]]:
    """Yield the rows of a branch, or of a snapshot, each with the path of its data file and its position there."""
    files = listed(table, branch, snapshot_id)
    hidden = hidden_positions_of(files[DataFileContent.POSITION_DELETES])
    fields = table.schema().fields
    for data_file in files[DataFileContent.DATA]:
        columns, count = data_file.by_field(), data_file.entry.data_file.record_count
        gone = hidden_in(data_file, hidden) | _deleted(table, data_file, files[DataFileContent.EQUALITY_DELETES])
        for position in range(count):
            if position not in gone:
                row = {
                    field.name: columns[field.field_id][position] if field.field_id in columns else None
                    for field in fields
                }
                yield data_file.path, position, row


_Hidden = dict[str, list[tuple[int, tuple[int, str], int]]]


def hidden_positions_of(deletes: list[Listed]) -> _Hidden:
    """Return what position deletes say of each file: the position, and of what place and number the delete is."""
    found: _Hidden = defaultdict(list)
    vectors: _Hidden = {}
    for delete_file in deletes:
        if delete_file.entry.data_file.file_format is FileFormat.PUFFIN:
            path, positions = _vector(delete_file.entry.data_file)
            assert path not in vectors, f"{path} has two deletion vectors"
            vectors[path] = [(position, delete_file.place, delete_file.number) for position in positions]
            continue
        for row in _rows(delete_file.path):
            found[row["file_path"]].append((row["pos"], delete_file.place, delete_file.number))
    # Position delete files do not count for a data file with a vector.
    return {**found, **vectors}


def hidden_in(data_file: Listed, hidden: _Hidden) -> set[int]:
    """Return the positions of a file's rows that position deletes hide."""
    return {
        position
        for position, place, number in hidden.get(data_file.path, ())
        if place == data_file.place and number >= data_file.number
    }


def _deleted(table: Table, data_file: Listed, deletes: list[Listed]) -> set[int]:
    """Return the positions of a file's rows that equality deletes reach."""
    found: set[int] = set()
    columns, count = data_file.by_field(), data_file.entry.data_file.record_count
    for delete_file in deletes:
        is_global = table.specs()[delete_file.spec_id].is_unpartitioned()
        if delete_file.number > data_file.number and (is_global or delete_file.place == data_file.place):
            keys = set(zip(*(delete_file.by_field()[number] for number in delete_file.key_ids), strict=True))
            own = zip(*(columns.get(number, [None] * count) for number in delete_file.key_ids), strict=True)
            found |= {position for position, key in enumerate(own) if key in keys}
    return found


def _vector(entry: DataFile) -> tuple[str, list[int]]:
    """Return the data file of a deletion vector, and the positions in it."""
    path, place = referenced_data_file(entry), deletion_vector(entry)
    assert path is not None
    assert place is not None
    offset, length = place
    # Before the bitmap are its length and magic bytes, behind it is a checksum.
    positions = list(BitMap64.deserialize(local(entry.file_path).read_bytes()[offset + 8 : offset + length - 4]))
    assert len(positions) == entry.record_count
    return path, positions


@lru_cache(maxsize=4096)
def _rows(path: str) -> list[Row]:
    found: list[Row] = pq.read_table(local(path), partitioning=None).to_pylist()
    return found


@lru_cache(maxsize=4096)
def _columns(path: str) -> dict[int, list[Any]]:
    table = pq.read_table(local(path), partitioning=None)
    return {
        int(field.metadata[_FIELD_ID]): column.to_pylist()
        for field, column in zip(table.schema, table.columns, strict=True)
        if field.metadata and _FIELD_ID in field.metadata
    }
