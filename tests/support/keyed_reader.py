"""Reads a table with deletes as the spec says it ("Scan Planning"), file by file, without any reader of a library."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntry
from pyiceberg.table import Table
from support.tables import local

Row = dict[str, Any]


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


def listed(table: Table, branch: str = "main") -> dict[DataFileContent, list[Listed]]:
    """Return the live files of a branch by what they hold."""
    found: dict[DataFileContent, list[Listed]] = defaultdict(list)
    snapshot = table.snapshot_by_name(branch)
    for manifest in snapshot.manifests(table.io) if snapshot is not None else []:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            found[entry.data_file.content].append(Listed(entry=entry, spec_id=manifest.partition_spec_id))
    return found


def rows_of(table: Table, branch: str = "main") -> list[Row]:
    """Return the rows of a branch, ordered by their first columns."""
    files = listed(table, branch)
    rows = [
        row
        for data_file in files[DataFileContent.DATA]
        for position, row in enumerate(data_file.rows())
        if not _is_hidden(data_file, position, files[DataFileContent.POSITION_DELETES])
        and not _is_deleted(table, data_file, row, files[DataFileContent.EQUALITY_DELETES])
    ]
    return sorted(rows, key=lambda row: str(list(row.values())))


def _is_hidden(data_file: Listed, position: int, deletes: list[Listed]) -> bool:
    return any(
        {"file_path": data_file.path, "pos": position} in found.rows()
        for found in deletes
        if found.number >= data_file.number
        and (found.spec_id, found.partition) == (data_file.spec_id, data_file.partition)
    )


def _is_deleted(table: Table, data_file: Listed, row: Row, deletes: list[Listed]) -> bool:
    for found in deletes:
        is_global = table.specs()[found.spec_id].is_unpartitioned()
        is_near = (found.spec_id, found.partition) == (data_file.spec_id, data_file.partition)
        if found.number > data_file.number and (is_global or is_near):
            names = [table.schema().find_column_name(number) for number in found.entry.data_file.equality_ids or []]
            if any(all(key[name] == row[name] for name in names) for key in found.rows()):
                return True
    return False
