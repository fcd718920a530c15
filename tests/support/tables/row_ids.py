"""Ids of rows of tables of version 3, by what data files and their manifests tell: shares no code with the readers."""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent
from support.checks.reader import listed, visible_rows
from support.tables.sink import Sink

from iceberg_ds.snapshots.manifests import live_entries, live_manifests
from iceberg_ds.snapshots.version_3 import first_row_id

_ROW_ID = 2147483540


def all_row_ids(sink: Sink) -> list[tuple[int, int | None]]:
    """Return column `id` and the row id of each visible row; no two rows have one row id."""
    table = sink.table()
    files = {file.path: file for file in listed(table)[DataFileContent.DATA]}
    manifests = live_manifests(table.io, table.current_snapshot())  # with their row ids
    entries = {entry.data_file.file_path: entry for manifest in manifests for entry in live_entries(table.io, manifest)}
    found: list[tuple[int, int | None]] = []
    for path, position, row in visible_rows(table):
        first = first_row_id(entries[path].data_file)
        own = files[path].by_field().get(_ROW_ID)
        inherited = None if first is None else first + position
        found.append((row["id"], inherited if own is None or own[position] is None else own[position]))
    known = [row_id for _, row_id in found if row_id is not None]
    assert len(set(known)) == len(known), "two rows have one id"
    assert all(row_id < (table.metadata.next_row_id or 0) for row_id in known), "an id is still to be given"
    return sorted(found, key=str)


def row_ids(sink: Sink) -> dict[int, int | None]:
    """Return the row id of each visible row by column `id`; no two rows have one `id`, or one row id."""
    found = all_row_ids(sink)
    assert len(dict(found)) == len(found), "a key has two rows"
    return dict(found)
