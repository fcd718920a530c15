"""How many files, rows and deletes a snapshot lists, and how small its files are.

One read of the manifest list, and one of each manifest that is not known yet, up to a number of files. A manifest never
changes, so its counts are kept from one look to the next; a table that is looked at again costs its new manifests only.
What is not read is counted as far as the manifest list tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.inspect.contents import ListedFile
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.manifests import live_entries, live_manifests, live_rows
from iceberg_ds.snapshots.txn import is_number

# How many files one look reads the entries of; a larger table is read further by each look that follows. Reading them
# takes some seconds, and no look holds more than one manifest for each of its threads.
MOST_FILES = 100_000
# An entry of a manifest takes more bytes than this; it stands for the count where a list does not have it.
_ENTRY_BYTES = 50
_TOTAL_BYTES = "total-files-size"

_Key: TypeAlias = "tuple[str, int, int | None, int]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """What the live entries of manifests have.

    Attributes:
        data_files: Number of data files.
        data_bytes: Their bytes.
        small_files: Number of data files that are small.
        rows: Rows of the data files, deleted ones included.
        equality_delete_files: Number of equality delete files.
        equality_deletes: Number of keys in them.
        position_delete_files: Number of position delete files and deletion vectors.
        position_deletes: Number of positions in them.
        delete_bytes: Bytes of equality delete files, position delete files and deletion vectors.
    """

    data_files: int = 0
    data_bytes: int = 0
    small_files: int = 0
    rows: int = 0
    equality_delete_files: int = 0
    equality_deletes: int = 0
    position_delete_files: int = 0
    position_deletes: int = 0
    delete_bytes: int = 0

    @classmethod
    def of(cls, files: Iterable[ListedFile], small_below_bytes: int) -> FileCounts:
        """Return the counts of files; a data file is small below `small_below_bytes`."""
        by_content: dict[DataFileContent, list[ListedFile]] = {content: [] for content in DataFileContent}
        for file in files:
            by_content[file.content].append(file)
        data = by_content[DataFileContent.DATA]
        equality = by_content[DataFileContent.EQUALITY_DELETES]
        position = by_content[DataFileContent.POSITION_DELETES]
        return cls(
            data_files=len(data),
            data_bytes=sum(file.own_bytes for file in data),
            small_files=sum(file.own_bytes < small_below_bytes for file in data),
            rows=sum(file.record_count for file in data),
            equality_delete_files=len(equality),
            equality_deletes=sum(file.record_count for file in equality),
            position_delete_files=len(position),
            position_deletes=sum(file.record_count for file in position),
            delete_bytes=sum(file.own_bytes for file in (*equality, *position)),
        )

    def __add__(self, other: FileCounts) -> FileCounts:
        return FileCounts(
            **{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(FileCounts)}
        )

    @property
    def files(self) -> int:
        """Number of data and delete files."""
        return self.data_files + self.equality_delete_files + self.position_delete_files


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCounts:
    """What a snapshot lists.

    Attributes:
        data_manifests: Number of manifests of data files.
        delete_manifests: Number of manifests of delete files.
        data_files: Number of data files; None if unknown.
        delete_files: Number of delete files and deletion vectors; None if unknown.
        rows: Rows of the data files, deleted ones included; None if unknown.
        bytes: Bytes of all these files; None if unknown.
        read: Counts of the files whose manifest entries were read.
        is_complete: Whether the entries of all manifests were read.
        deletes_are_complete: Whether those of all delete manifests were read.
    """

    data_manifests: int = 0
    delete_manifests: int = 0
    data_files: int | None = 0
    delete_files: int | None = 0
    rows: int | None = 0
    bytes: int | None = 0
    read: FileCounts = FileCounts()
    is_complete: bool = True
    deletes_are_complete: bool = True


class FileCounter:
    """Counts the files of one table's snapshots, and keeps the counts of manifests that the last snapshot listed.

    Args:
        most_files: How many files one look reads the manifest entries of.
    """

    def __init__(self, most_files: int = MOST_FILES) -> None:
        self._most_files = most_files
        self._known: dict[_Key, FileCounts] = {}

    def read(self, io: FileIO, snapshot: Snapshot | None, small_below_bytes: int) -> SnapshotCounts:
        """Return what a snapshot lists; zeros without a snapshot.

        Args:
            io: Opens the table's files.
            snapshot: The snapshot.
            small_below_bytes: The size below which a data file is small.
        """
        if snapshot is None:
            return SnapshotCounts()
        manifests = live_manifests(io, snapshot)
        # Deletes first: they are few, and what they hide is not known from the list.
        ordered = sorted(manifests, key=lambda manifest: manifest.content != ManifestContent.DELETES)
        keys = {manifest.manifest_path: _key(manifest, small_below_bytes) for manifest in manifests}
        known = {key: counts for key in keys.values() if (counts := self._known.get(key)) is not None}
        missing = _first(
            [manifest for manifest in ordered if keys[manifest.manifest_path] not in known], self._most_files
        )
        found = in_parallel(lambda manifest: _counted(io, manifest, small_below_bytes), missing)
        for manifest, counts in zip(missing, found, strict=True):
            known[keys[manifest.manifest_path]] = counts
        self._known = known
        return _counts_of(manifests, {path: known.get(key) for path, key in keys.items()}, snapshot)


def _key(manifest: ManifestFile, small_below_bytes: int) -> _Key:
    return manifest.manifest_path, manifest.manifest_length, manifest.added_snapshot_id, small_below_bytes


def _first(manifests: Sequence[ManifestFile], most_files: int) -> list[ManifestFile]:
    """Return the first of these manifests, until they have that many entries, and at least one."""
    taken: list[ManifestFile] = []
    for manifest in manifests:
        if taken and most_files <= 0:
            break
        taken.append(manifest)
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        most_files -= sum(count for count in counts if count is not None) or manifest.manifest_length // _ENTRY_BYTES
    return taken


def _counted(io: FileIO, manifest: ManifestFile, small_below_bytes: int) -> FileCounts:
    return FileCounts.of((ListedFile.of(entry.data_file) for entry in live_entries(io, manifest)), small_below_bytes)


def _counts_of(
    manifests: Sequence[ManifestFile], counts: dict[str, FileCounts | None], snapshot: Snapshot
) -> SnapshotCounts:
    deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    data = [manifest for manifest in manifests if manifest.content != ManifestContent.DELETES]
    read = sum((found for found in counts.values() if found is not None), FileCounts())
    is_complete = all(found is not None for found in counts.values())
    total = summary_entries(snapshot).get(_TOTAL_BYTES)
    recorded = int(total) if total is not None and is_number(total) else None
    return SnapshotCounts(
        data_manifests=len(data),
        delete_manifests=len(deletes),
        data_files=_sum(_files(manifest, counts[manifest.manifest_path]) for manifest in data),
        delete_files=_sum(_files(manifest, counts[manifest.manifest_path]) for manifest in deletes),
        rows=_sum(_rows(manifest, counts[manifest.manifest_path]) for manifest in data),
        bytes=read.data_bytes + read.delete_bytes if is_complete else recorded,
        read=read,
        is_complete=is_complete,
        deletes_are_complete=all(counts[manifest.manifest_path] is not None for manifest in deletes),
    )


def _files(manifest: ManifestFile, read: FileCounts | None) -> int | None:
    if read is not None:
        return read.files
    added, existing = manifest.added_files_count, manifest.existing_files_count
    return None if added is None or existing is None else added + existing


def _rows(manifest: ManifestFile, read: FileCounts | None) -> int | None:
    return live_rows(manifest) if read is None else read.rows


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the numbers is unknown."""
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else None
