"""What tasks tell of files, as rows: the files that manifests list, those that are stored, those of an inventory.

A row names a file by its place, which is its path without scheme and authority, and by its store, which is these two:
rows about one file meet at its place, in any spelling. Knows neither Spark nor the catalog, and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache, partial
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_ds.inspect.contents import why_unreadable
from iceberg_ds.inspect.orphan_rules import (
    EVERY_FILE,
    FOLDERS_OF_FORMATS,
    Folder,
    OrphanRules,
)
from iceberg_ds.io.files import file_io
from iceberg_ds.io.listing import ListingPart, file_at, files_of_part, is_metadata_file, stored_files
from iceberg_ds.io.local_paths import is_local, local_path
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.io.stores import StoredFile
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.manifests import Recorded, live_paths
from iceberg_ds.snapshots.version_3 import ManifestList, read_list
from iceberg_ds.spark.arrow_job import work_of

_BATCH_ROWS = 20_000
# How many files a task has asked for at once; entries of a manifest take some kilobytes each while it is read.
_AT_ONCE, _WAITING = 4, 16
_KNOWN_FOLDERS = 4096
_NOTHING = Recorded(entries=0, size_bytes=0)


class Role(IntEnum):
    """What a row says of its file."""

    KNOWN = 0  # something refers to it
    FOUND = 1  # it may go, unless something refers to it
    TELLS = 2  # it may show that others have files in its folder
    MANIFEST = 3  # it is a manifest, and what it lists is to be read
    PROBLEM = 4  # what it lists is not known; the path is the reason
    MISSING = 5  # the same, and it does not exist


COLUMNS = (
    "role INT, place STRING, store STRING, path STRING, kind INT, size_bytes BIGINT, modified_ms BIGINT, entries BIGINT"
)
_SCHEMA = pa.schema(
    [
        ("role", pa.int32()),
        ("place", pa.string()),
        ("store", pa.string()),
        ("path", pa.string()),
        ("kind", pa.int32()),
        ("size_bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("entries", pa.int64()),
    ]
)
Row: TypeAlias = tuple[Role, str, str, str, int, int, int, int]
_Batches: TypeAlias = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacePlan:
    """What all tasks are told.

    Attributes:
        io_properties: What opens the table's storage.
        location: Location of the table.
        rules: How keys are made.
        own: Keys of the table's folders.
        role: What the listed files of manifests are; `KNOWN` ones are told by place and store alone.
        may_miss: Whether a manifest or manifest list may be missing, as those of snapshots that are gone may.
    """

    io_properties: Mapping[str, str] = field(repr=False)
    location: str
    rules: OrphanRules = EVERY_FILE
    own: frozenset[str] = frozenset()
    role: Role = Role.KNOWN
    may_miss: bool = False

    def problem(self, file: str, error: Exception) -> Row:
        """Return the row that says that a file could not be read."""
        is_missing = self.may_miss and isinstance(error, FileNotFoundError)
        text = mask_text(f"{file} {why_unreadable(error)}", self.io_properties)
        return Role.MISSING if is_missing else Role.PROBLEM, "", "", text, 0, 0, 0, 0

    @property
    def io(self) -> FileIO:
        """Opens the table's files."""
        return file_io(self.io_properties, self.location)


class Rows:
    """Makes rows about files; what their folders tell is worked out once for each folder.

    Args:
        plan: What all tasks are told.
    """

    def __init__(self, plan: PlacePlan) -> None:
        self._folder = lru_cache(_KNOWN_FOLDERS)(partial(Folder.of, rules=plan.rules, own=plan.own))

    def row(self, role: Role, path: str, kind: int = 0, recorded: Recorded = _NOTHING) -> Row:
        """Return a row about the file with a path."""
        folder, _, name = path.rpartition("/")
        found = self._folder(folder)
        known = path if role is not Role.KNOWN else ""
        return role, found.place + name, found.store, known, kind, recorded.size_bytes, 0, recorded.entries

    def stored(self, file: StoredFile) -> Iterator[Row]:
        """Yield rows about a stored file: whether it may go, and whether it tells of others."""
        folder, _, name = file.path.rpartition("/")
        found = self._folder(folder)
        place = found.place + name
        if found.tells_of_others(name):
            yield Role.TELLS, place, found.store, file.path, 0, 0, 0, 0
        if not found.hides(name):
            yield Role.FOUND, place, found.store, file.path, 0, file.size_bytes, file.modified_ms, 0


def read_lists(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield a row for each manifest that manifest lists name; these are the work."""
    of = Rows(plan)

    def read(work: object) -> list[Row]:
        assert isinstance(work, ManifestList)  # noqa: S101  # as the driver sends it
        try:
            manifests = read_list(plan.io, work)
            return [of.row(Role.MANIFEST, used.manifest_path, recorded=Recorded.of(used)) for used in manifests]
        except Exception as error:  # any error of a storage library or the Avro reader
            return [plan.problem(f"manifest list {work.path} of snapshot {work.snapshot_id}", error)]

    def rows() -> Iterator[Row]:
        seen: set[str] = set()
        for found in in_parallel(read, work_of(batches), at_once=_AT_ONCE, waiting=_WAITING):
            for row in found:
                if row[3] not in seen:  # most lists name the manifests of the list before
                    seen.add(row[3])
                    yield row

    yield from _batches(rows())


def read_manifests(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield a row for each live file of manifests, whose paths are given, and what their lists say of them."""
    of = Rows(plan)

    def read(manifest: tuple[Any, ...]) -> list[Row]:
        path, *said = manifest
        try:
            live = live_paths(plan.io, path, Recorded(*said))
            return [of.row(plan.role, file, content.value) for content, file in live]
        except Exception as error:  # as above
            return [plan.problem(f"manifest {path}", error)]

    found = in_parallel(read, _tuples(batches), at_once=_AT_ONCE, waiting=_WAITING)
    yield from _batches(row for rows in found for row in rows)


def list_files(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield rows about the stored files of parts of a listing, which are the work."""
    of = Rows(plan)

    def rows() -> Iterator[Row]:
        for part in work_of(batches):
            assert isinstance(part, ListingPart)  # noqa: S101  # as the driver sends it
            if is_local(part.location) and not local_path(part.location).is_dir():
                # Not every executor sees the folders of the driver; what it would not list may tell of others.
                yield plan.problem(f"folder {part.location}", FileNotFoundError())
                continue
            for found in files_of_part(plan.io_properties, part):
                yield from of.stored(found)

    yield from _batches(rows())


def take_inventory(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield rows about the files of an inventory that are in the table's folders."""
    own, of = tuple(plan.own), Rows(plan)
    yield from _batches(
        row
        for path, modified_ms in _tuples(batches)
        if plan.rules.key(path).startswith(own)
        for row in of.stored(StoredFile(path=path, size_bytes=0, modified_ms=modified_ms))
    )


def look_up(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield a row for each of the files with the given paths that is there, with its size and age as they are now."""
    of, found = Rows(plan), in_parallel(partial(file_at, plan.io_properties), _paths(batches))
    yield from _batches(row for file in found if file is not None for row in of.stored(file) if row[0] is Role.FOUND)


def folders_around(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield a row for each folder around the files with the given paths, from their own to below the table's."""
    of = Rows(plan)

    def rows() -> Iterator[Row]:
        seen: set[str] = set()
        for path in _paths(batches):
            folder = path.rpartition("/")[0]
            while folder not in seen and (key := plan.rules.folder(folder)) not in plan.own:
                if not key.startswith(tuple(plan.own)):
                    break
                seen.add(folder)
                yield of.row(Role.TELLS, folder)
                folder = folder.rpartition("/")[0]

    yield from _batches(rows())


def look_around(plan: PlacePlan, batches: _Batches) -> _Batches:
    """Yield a row for each file in the folders with the given paths that tells of others, as a whole listing does."""

    def told(folder: str) -> list[StoredFile]:
        properties = plan.io_properties
        metadata = (file for file in stored_files(properties, f"{folder}/metadata") if is_metadata_file(file.path))
        of_formats = (next(stored_files(properties, f"{folder}/{name}"), None) for name in FOLDERS_OF_FORMATS)
        return [*metadata, *filter(None, (*of_formats, file_at(properties, f"{folder}/metadata")))]

    of, found = Rows(plan), in_parallel(told, _paths(batches))
    yield from _batches(of.row(Role.TELLS, file.path) for files in found for file in files)


def _paths(batches: _Batches) -> Iterator[str]:
    return (path for batch in batches for path in batch.column("path").to_pylist())


def _tuples(batches: _Batches) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of batches, with their columns in order."""
    return (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _batches(rows: Iterable[Row]) -> _Batches:
    remaining = iter(rows)
    while taken := list(islice(remaining, _BATCH_ROWS)):
        columns = (
            pa.array(values, type=field.type) for values, field in zip(zip(*taken, strict=True), _SCHEMA, strict=True)
        )
        yield pa.RecordBatch.from_arrays(list(columns), schema=_SCHEMA)
