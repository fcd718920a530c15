"""Everything that a table's snapshots list, read once: manifest lists, manifests and the files in them.

What cannot be read is kept as a problem, so that every other check can still be made on the rest. Memory grows with the
number of different files: their metrics are not kept. Two paths may name one file, because writers spell one place in
several ways; in doubt, two paths count as the same file, so that a file is rather kept than taken for unreferenced.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from iceberg_ds.inspect.checklist import CheckFailedError
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.snapshots.live_files import only_path
from iceberg_ds.snapshots.manifests import stored_entries
from iceberg_ds.snapshots.version_3 import ManifestList, deletion_vector, first_row_id, read_list

_EXAMPLES = 5
SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
_LOCAL = re.compile(r"^(file:(//(localhost)?(?=/))?)?(?=/)")


def found(problems: Iterable[str], well: str, next_step: str) -> tuple[str, None]:
    """Return the result of a check without problems.

    Args:
        problems: What is wrong, one sentence each.
        well: The text of the result if nothing is wrong.
        next_step: What to do about the problems.

    Raises:
        CheckFailedError: There are problems; its text has the first few.
    """
    every = list(dict.fromkeys(problems))
    if not every:
        return well, None
    more = f"; and {len(every) - _EXAMPLES} more" if len(every) > _EXAMPLES else ""
    raise CheckFailedError(f"{counted(len(every), 'problem')}: {'; '.join(every[:_EXAMPLES])}{more}", next_step)


def counted(number: int, thing: str) -> str:
    """Return a number of things as text, such as `2 files`."""
    if number == 1:
        return f"1 {thing}"
    if thing.endswith("y") and not thing.endswith("ey"):
        return f"{number:,} {thing.removesuffix('y')}ies"
    return f"{number:,} {thing}{'es' if thing.endswith('nch') else 's'}"


def why_unreadable(error: Exception) -> str:
    """Return a text that says why a file could not be read."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"


def file_key(path: str) -> str:
    """Return the key of a file: one form for all spellings of its path.

    `s3a://b/k` and `s3n://b/k` are `s3://b/k`; `file:/x`, `file:///x` and `/x` are one, with links to folders resolved.
    """
    scheme, separator, rest = path.partition("://")
    if not separator or scheme == "file":
        return f"file://{_real(_LOCAL.sub('', path))}"
    return f"{SAME_SCHEMES.get(scheme, scheme)}://{re.sub('/{2,}', '/', rest)}"


def within_store(key: str) -> str:
    """Return the part of a key after scheme and authority."""
    rest = key.partition("://")[2]
    return rest.partition("/")[2].lstrip("/")


def _real(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{_real_folder(folder)}/{name}"


@lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder or "/").rstrip("/")


def forget_links() -> None:
    """Resolve links to folders anew: a process may live longer than a link."""
    _real_folder.cache_clear()


def folder_key(location: str) -> str:
    """Return the prefix that the keys of all files below a folder share."""
    return file_key(f"{location.rstrip('/')}/x").removesuffix("x")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A data or delete file as a manifest lists it.

    Attributes:
        path: Path of the file.
        content: Data, position deletes or equality deletes.
        file_format: Format of the file.
        record_count: Recorded number of rows or deletes.
        size_bytes: Recorded size in bytes.
        is_encrypted: Whether reading the file needs a key.
        vector: Offset and length in bytes of the deletion vector in the file; None if the entry is for the whole file.
        referenced: Path of the only data file that its deletes by position are of, or None if it does not say.
        first_row_id: Id of its first row as the entry has it; None if the file inherits it, or has none.
    """

    path: str
    content: DataFileContent
    file_format: FileFormat
    record_count: int
    size_bytes: int
    is_encrypted: bool = False
    vector: tuple[int, int] | None = None
    referenced: str | None = None
    first_row_id: int | None = None

    @classmethod
    def of(cls, data_file: DataFile) -> ListedFile:
        """Return the kept fields of an entry's file."""
        return cls(
            path=sys.intern(data_file.file_path),
            content=DataFileContent(data_file.content or 0),  # version 1 has only data files
            file_format=data_file.file_format,
            record_count=data_file.record_count,
            size_bytes=data_file.file_size_in_bytes,
            is_encrypted=data_file.key_metadata is not None,
            vector=deletion_vector(data_file),
            referenced=_referenced(data_file),
            first_row_id=first_row_id(data_file),
        )

    @property
    def name(self) -> str:
        """A unique name: the path, with the offset of a deletion vector, because several of them may share a file."""
        return self.path if self.vector is None else f"{self.path}#{self.vector[0]}"

    @property
    def is_vector(self) -> bool:
        """Whether the entry is for a deletion vector, even if it does not say where in the file that is."""
        return self.content is DataFileContent.POSITION_DELETES and self.file_format is FileFormat.PUFFIN

    @property
    def own_bytes(self) -> int:
        """The size in bytes that counts for it in summaries."""
        return self.size_bytes if self.vector is None else self.vector[1]


def _referenced(data_file: DataFile) -> str | None:
    if data_file.content != DataFileContent.POSITION_DELETES:
        return None
    path = only_path(data_file)
    return None if path is None else sys.intern(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a manifest; numbers that it does not have itself are inherited."""

    status: ManifestEntryStatus
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    file: ListedFile

    @property
    def is_live(self) -> bool:
        """Whether the file of the entry is in the table."""
        return self.status is not ManifestEntryStatus.DELETED


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why it is unknown what a file lists.

    Attributes:
        text: The reason, with the file.
        is_missing: Whether the file does not exist; else it exists, or may exist, and cannot be read.
    """

    text: str
    is_missing: bool

    @classmethod
    def of(cls, file: str, error: Exception, said: str = "") -> Problem:
        """Return why a file could not be read, followed by `said`."""
        return cls(text=f"{file} {why_unreadable(error)}{said}", is_missing=isinstance(error, FileNotFoundError))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest that was read.

    Attributes:
        entries: All entries of the manifest.
        size_bytes: Size of the file in bytes.
        partitions: Partition values in the manifest, one tuple for each combination of types.
        problem: Why the manifest could not be read, or None if it was read.
    """

    entries: tuple[Entry, ...] = ()
    size_bytes: int | None = None
    partitions: tuple[tuple[object, ...], ...] = ()
    problem: Problem | None = None

    @property
    def live(self) -> Iterator[Entry]:
        """The entries of files that are in the table."""
        return (entry for entry in self.entries if entry.is_live)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What snapshots list.

    Attributes:
        lists: The manifests of each snapshot, as its manifest list names them, by snapshot id.
        problems: Why a manifest list could not be read, by snapshot id.
        manifests: The contents of the manifests, by path.
    """

    lists: Mapping[int, tuple[ManifestFile, ...]]
    problems: Mapping[int, Problem] = field(default_factory=dict)
    manifests: Mapping[str, Manifest] = field(default_factory=dict)

    def listed_paths(self) -> Iterator[str]:
        """Yield the paths of the manifests, and of the live files in them."""
        yield from self.manifests
        yield from (entry.file.path for manifest in self.manifests.values() for entry in manifest.live)

    def every_problem(self) -> Iterator[Problem]:
        """Yield why manifest lists and manifests could not be read."""
        yield from self.problems.values()
        yield from (manifest.problem for manifest in self.manifests.values() if manifest.problem is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents(Listed):
    """What the snapshots of a table list.

    Attributes:
        metadata: Metadata of the table.
    """

    metadata: TableMetadata

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files that the snapshots refer to, and of the table's statistics files."""
        yield from (snapshot.manifest_list for snapshot in self.metadata.snapshots)
        yield from self.listed_paths()
        yield from (found.statistics_path for found in (*self.metadata.statistics, *self.metadata.partition_statistics))

    def read_snapshots(self) -> list[Snapshot]:
        """Return the snapshots whose manifest list and manifests could all be read."""
        return [
            snapshot
            for snapshot in self.metadata.snapshots
            if snapshot.snapshot_id not in self.problems
            and all(self.manifests[used.manifest_path].problem is None for used in self.lists[snapshot.snapshot_id])
        ]

    def listed_manifests(self, snapshot_ids: Collection[int] | None = None) -> dict[str, ManifestFile]:
        """Return the manifests of these snapshots, by path; for None, those of all snapshots."""
        return {
            used.manifest_path: used
            for snapshot_id, manifests in self.lists.items()
            if snapshot_ids is None or snapshot_id in snapshot_ids
            for used in manifests
        }

    def live_files(self, snapshot_ids: Collection[int] | None = None) -> list[ListedFile]:
        """Return the different live files of these snapshots; for None, those of all snapshots."""
        files = {
            entry.file.name: entry.file
            for path in self.listed_manifests(snapshot_ids)
            for entry in self.manifests[path].entries
            if entry.is_live
        }
        return list(files.values())


def read_contents(io: FileIO, metadata: TableMetadata, known: Contents | None = None) -> Contents:
    """Read what all snapshots of a table list.

    Args:
        io: Opens the table's files.
        metadata: Metadata of the table.
        known: What was read of the table before, or None; files that could be read are not read again.
    """
    listed = read_listed(io, map(ManifestList.of, metadata.snapshots), known)
    return Contents(metadata=metadata, lists=listed.lists, problems=listed.problems, manifests=listed.manifests)


def read_listed(io: FileIO, manifest_lists: Iterable[ManifestList], known: Listed | None = None) -> Listed:
    """Read what snapshots list.

    Args:
        io: Opens the table's files.
        manifest_lists: The manifest list of each snapshot.
        known: What was read of the same table before, or None; files that could be read are not read again.
    """
    lists, problems = read_lists(io, manifest_lists, known.lists if known is not None else {})
    listed = {used.manifest_path: used for manifests in lists.values() for used in manifests}
    return Listed(lists=lists, problems=problems, manifests=_read_manifests(io, listed, known))


def read_lists(
    io: FileIO, manifest_lists: Iterable[ManifestList], known: Mapping[int, tuple[ManifestFile, ...]]
) -> tuple[dict[int, tuple[ManifestFile, ...]], dict[int, Problem]]:
    """Read the manifest lists of snapshots, and no manifest.

    Args:
        io: Opens the table's files.
        manifest_lists: The manifest list of each snapshot.
        known: The lists that were read before, by snapshot id; they are not read again.

    Returns:
        The manifests that each snapshot lists, and why a list could not be read; both by snapshot id.
    """
    every = list(manifest_lists)
    lists = {one.snapshot_id: known[one.snapshot_id] for one in every if one.snapshot_id in known}
    problems: dict[int, Problem] = {}
    wanted = [one for one in every if one.snapshot_id not in lists]
    for one, read in zip(wanted, in_parallel(lambda one: _read_list(io, one), wanted), strict=True):
        if isinstance(read, Problem):
            problems[one.snapshot_id] = read
        else:
            lists[one.snapshot_id] = read
    return lists, problems


def _read_manifests(io: FileIO, listed: Mapping[str, ManifestFile], known: Listed | None) -> dict[str, Manifest]:
    before = known.manifests if known is not None else {}
    read = {path: before[path] for path in listed if path in before and before[path].problem is None}
    missing = [used for path, used in listed.items() if path not in read]
    found = in_parallel(lambda used: _read_manifest(io, used), missing)
    return read | {used.manifest_path: manifest for used, manifest in zip(missing, found, strict=True)}


def _read_list(io: FileIO, listed: ManifestList) -> tuple[ManifestFile, ...] | Problem:
    # PyIceberg caches manifests by path in its process; this reads what is stored now.
    try:
        return tuple(read_list(io, listed))
    except Exception as error:  # any error of a storage library or the Avro reader
        return Problem.of(f"manifest list {listed.path} of snapshot {listed.snapshot_id}", error)


def _read_manifest(io: FileIO, used: ManifestFile) -> Manifest:
    size: int | None = None
    try:
        size = len(io.new_input(used.manifest_path))
        entries = stored_entries(io, used)
        return Manifest(entries=tuple(map(_entry, entries)), size_bytes=size, partitions=_shapes(entries))
    except Exception as error:  # any error of a storage library or the Avro reader
        said = f" (its recorded size is {used.manifest_length:,} bytes, it has {size:,})" if size is not None else ""
        return Manifest(size_bytes=size, problem=Problem.of(f"manifest {used.manifest_path}", error, said))


def _entry(entry: ManifestEntry) -> Entry:
    return Entry(
        status=entry.status,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        file=ListedFile.of(entry.data_file),
    )


def _shapes(entries: Iterable[ManifestEntry]) -> tuple[tuple[object, ...], ...]:
    """Return one partition for each combination of types among the entries."""
    partitions = (_values(entry.data_file.partition) for entry in entries)
    return tuple({tuple(type(value) for value in partition): partition for partition in partitions}.values())


def _values(partition: Record) -> tuple[object, ...]:
    return tuple(partition[position] for position in range(len(partition)))
