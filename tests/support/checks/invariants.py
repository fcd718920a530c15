"""What must hold of a table after any commit, whatever became of it."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from support.tables.sink import local

from iceberg_ds.snapshots.live_files import vector_of
from iceberg_ds.snapshots.manifests import all_entries


def check_sound(table: Table) -> None:
    """Assert that every snapshot of the table can be read, and that its numbers agree with its files."""
    # Those of version 1 have none.
    first = min([1, *(snapshot.sequence_number for snapshot in table.metadata.snapshots)])
    for snapshot in table.metadata.snapshots:
        manifests = snapshot.manifests(table.io)
        entries = [entry for manifest in manifests for entry in live_entries(table, manifest)]
        paths = {entry.data_file.file_path for entry in entries}
        # Several deletion vectors may share a file.
        whole = [entry.data_file.file_path for entry in entries if entry.data_file.file_format is not FileFormat.PUFFIN]

        assert len(whole) == len(set(whole)), "a data file is listed twice"
        assert all(local(path).exists() for path in paths), "a listed data file is missing"
        assert snapshot.summary is not None
        data_files = [entry.data_file for entry in entries if entry.data_file.content == DataFileContent.DATA]
        assert snapshot.summary["total-data-files"] == str(len(data_files))
        assert snapshot.summary["total-delete-files"] == str(len(entries) - len(data_files))
        assert snapshot.summary["total-records"] == str(sum(data_file.record_count for data_file in data_files))
        assert snapshot.summary["total-files-size"] == str(sum(map(own_bytes, entries)))
        if table.metadata.format_version > 1:
            numbers = [entry.sequence_number or 0 for entry in entries]
            assert all(first <= number <= snapshot.sequence_number for number in numbers)


def own_bytes(entry: ManifestEntry) -> int:
    """Return the bytes that count for an entry: those of the file, or of the deletion vector alone."""
    vector = vector_of(entry.data_file)
    return entry.data_file.file_size_in_bytes if vector is None else vector.length


def check_clean(table: Table) -> None:
    """Assert that the table is whole, and that nothing lies around."""
    check_sound(table)
    assert unreferenced_files(table) == set()


_entries: dict[tuple[str, int, int], list[ManifestEntry]] = {}
_MOST_MANIFESTS = 500


def live_entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of a manifest that are part of the table; a local file is read once until it changes."""
    if not local(manifest.manifest_path).exists():
        return _read_entries(table, manifest)
    now = local(manifest.manifest_path).stat()
    # What entries inherit stands in the manifest list.
    key = (f"{manifest.manifest_path} {manifest.sequence_number}", now.st_mtime_ns, now.st_size)
    if key not in _entries:
        if len(_entries) >= _MOST_MANIFESTS:
            _entries.clear()
        _entries[key] = _read_entries(table, manifest)
    return _entries[key]


def _read_entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    entries = all_entries(table.io, manifest)  # as version 3 has them
    return [entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED]


def referenced_files(table: Table) -> set[Path]:
    """Return the manifest lists, manifests and data files that any snapshot of the table refers to."""
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found.update(entry.data_file.file_path for entry in live_entries(table, manifest))
    return {local(path) for path in found}


def stored_files(location: str) -> set[Path]:
    """Return the data files, manifests and manifest lists that lie in the table's folder."""
    folder = local(location)
    return {path for path in folder.rglob("*") if path.suffix in {".parquet", ".puffin", ".avro"}}


def unreferenced_files(table: Table) -> set[Path]:
    """Return the files in the table's folder that no snapshot refers to."""
    return stored_files(table.metadata.location) - referenced_files(table)
