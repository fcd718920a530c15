"""Reads the files of snapshots from their manifests, each manifest once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.commits.manifest_reader import live_entries
from iceberg_ds.commits.manifests import live_manifests
from iceberg_ds.resolving.live_files import LiveFile, LiveFiles

_READERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSnapshot:
    """The files of a snapshot.

    Attributes:
        manifests: Its manifests that list a live file, each with its live entries.
        files: All these files.
    """

    manifests: Mapping[ManifestFile, list[ManifestEntry]]
    files: LiveFiles


class SnapshotReader:
    """Reads snapshots of one table; what one of them has in common with the one before is not read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], list[ManifestEntry]] = {}

    def read(self, io: FileIO, snapshot: Snapshot | None) -> ReadSnapshot:
        """Return the files of a snapshot, none if there is no snapshot."""
        manifests = live_manifests(io, snapshot)
        missing = [found for found in manifests if _key(found) not in self._known]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="iceberg-ds-read") as readers:
            read = list(readers.map(lambda found: live_entries(io, found), missing))
        known = {**self._known, **{_key(found): entries for found, entries in zip(missing, read, strict=True)}}
        self._known = {_key(found): known[_key(found)] for found in manifests}
        entries = {found: self._known[_key(found)] for found in manifests}
        files = LiveFiles.of(_live(entry) for listed in entries.values() for entry in listed)
        return ReadSnapshot(manifests=entries, files=files)


def _live(entry: ManifestEntry) -> LiveFile:
    return LiveFile(data_file=entry.data_file, sequence_number=entry.sequence_number or 0)


def _key(manifest: ManifestFile) -> tuple[str, int]:
    # What entries inherit stands in the manifest list.
    return manifest.manifest_path, manifest.sequence_number or 0
