"""The files that only removed snapshots refer to: what they list, without what any snapshot that stays lists.

Two paths may name one file, so a file is told by its place within its store: with any scheme and authority, it
stays if a snapshot that stays refers to that place. Manifests are read only if they can decide about a file: those that
no snapshot that stays lists, and, if they have live files, those of the snapshots that stay, each once. Memory grows
with the number of files that go, and not with that of the table's files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.errors import DataFileError
from iceberg_ds.inspect.contents import (
    Problem,
    file_key,
    folder_key,
    forget_links,
    read_lists,
    within_store,
)
from iceberg_ds.inspect.neighbours import OfOthers, State, has_one_meaning, named_folders, referred_by
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.snapshots.manifests import Recorded, lists_live_files, live_paths
from iceberg_ds.snapshots.version_3 import ManifestList

logger = logging.getLogger(__name__)


class Kind(Enum):
    """What a file is, in the order in which files are deleted: one that names others goes after them."""

    DATA = "data files"
    POSITION_DELETES = "position delete files"
    EQUALITY_DELETES = "equality delete files"
    MANIFEST = "manifests"
    MANIFEST_LIST = "manifest lists"
    STATISTICS = "statistics files"


KIND_OF_CONTENT = {
    DataFileContent.DATA: Kind.DATA,
    DataFileContent.POSITION_DELETES: Kind.POSITION_DELETES,
    DataFileContent.EQUALITY_DELETES: Kind.EQUALITY_DELETES,
}


class FilesToGo(Protocol):
    """The files that only removed snapshots refer to, wherever their paths are kept.

    Attributes:
        left: Number of files that were left out because others may have them.
    """

    left: int

    def keep(self, table: TableMetadata) -> None:
        """Leave out what the snapshots of a table refer to; raises DataFileError if that is not known."""

    def has_files_in(self, folder: str) -> bool:
        """Return whether one of the files is below the folder with a key."""

    def referred(self, state: State) -> Iterable[str]:
        """Return the keys of the files that a state of others refers to; none if `leave` looks for them."""

    def outside(self, metadata: TableMetadata) -> Iterator[str]:
        """Yield the paths of the files that are in none of the folders that a table names."""

    def leave(self, others: OfOthers, around: tuple[str, ...]) -> None:
        """Leave out the files that others may have, and those below folders of other tables."""

    def paths(self, kind: Kind) -> Iterator[str]:
        """Yield the paths of the files of a kind."""

    def count(self, kind: Kind) -> int:
        """Return how many files of a kind there are."""

    def __len__(self) -> int:
        """Return how many files there are."""


class ExpiredFiles:
    """The files that only removed snapshots refer to.

    Attributes:
        left: Number of files that were left out because others may have them.

    Args:
        io: Opens the table's files.
        gone: The snapshots that are, or are to be, removed.
        statistics: The paths of their statistics files.
        after: The table without them, as it is or will be.

    Raises:
        DataFileError: What the snapshots list is not known.
    """

    def __init__(self, io: FileIO, gone: Sequence[Snapshot], statistics: Iterable[str], after: TableMetadata) -> None:
        forget_links()
        self.left = 0
        self._io = io
        self._files: dict[str, tuple[str, Kind]] = {}
        self._lists: dict[int, tuple[ManifestFile, ...]] = {}  # of the snapshots that stay
        self._read: set[str] = set()  # places of their manifests that were read
        lists, problems = read_lists(io, map(ManifestList.of, gone), {})
        for problem in problems.values():
            if not problem.is_missing:
                raise _unknown(problem)
            logger.warning("Files that only its snapshot refers to are not known, and stay: %s", problem)
        self._add(Kind.MANIFEST_LIST, (snapshot.manifest_list for snapshot in gone))
        self._add(Kind.STATISTICS, statistics)
        manifests = {_place(used.manifest_path): used for listed in lists.values() for used in listed}
        self._keep_lists(after)
        for place in self._manifests().keys() & manifests.keys():
            del manifests[place]
        self._add(Kind.MANIFEST, (used.manifest_path for used in manifests.values()))
        for found in self._entries(filter(lists_live_files, manifests.values()), lambda _: True, may_miss=True):
            for kind, path in found:
                self._add(kind, [path])
        self._keep_entries()

    def keep(self, table: TableMetadata) -> None:
        """Leave out what the snapshots of the table refer to.

        Args:
            table: The table, freshly loaded, without the removed snapshots.

        Raises:
            DataFileError: What the snapshots refer to is not known.
        """
        self._keep_lists(table)
        self._keep_entries()

    def has_files_in(self, folder: str) -> bool:
        """Return whether one of the files is below the folder with a key."""
        return any(file_key(path).startswith(folder) for path, _ in self._files.values())

    def referred(self, state: State) -> Iterable[str]:
        """Return the keys of the files that a state of others refers to."""
        return referred_by(self._io, state)

    def outside(self, metadata: TableMetadata) -> Iterator[str]:
        """Yield the paths of the files that are in none of the folders that a table names."""
        own = tuple(map(folder_key, named_folders(metadata)))
        yield from (path for path, _ in self._files.values() if not file_key(path).startswith(own))

    def leave(self, others: OfOthers, around: tuple[str, ...]) -> None:
        """Leave out the files that others may have, and those below folders of other tables."""
        for place, (path, _) in list(self._files.items()):
            if others.may_have(key := file_key(path)) or key.startswith(around):
                del self._files[place]
                self.left += 1

    def paths(self, kind: Kind) -> Iterator[str]:
        """Yield the paths of the files of a kind."""
        yield from (path for path, known in self._files.values() if known is kind)

    def count(self, kind: Kind) -> int:
        """Return how many files of a kind there are."""
        return sum(known is kind for _, known in self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def _add(self, kind: Kind, paths: Iterable[str]) -> None:
        for path in paths:
            if has_one_meaning(path):
                # Of two paths for one place, in two stores, only the first is known to go.
                self._files.setdefault(_place(path), (path, kind))

    def _drop(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._files.pop(_place(path), None)

    def _keep_lists(self, table: TableMetadata) -> None:
        self._lists, problems = read_lists(self._io, map(ManifestList.of, table.snapshots), self._lists)
        for problem in problems.values():
            raise _unknown(problem)
        self._drop(named_by(table))

    def _manifests(self) -> dict[str, ManifestFile]:
        return {_place(used.manifest_path): used for listed in self._lists.values() for used in listed}

    def _keep_entries(self) -> None:
        manifests = self._manifests()
        for place in manifests:
            self._files.pop(place, None)
        if not any(kind in KIND_OF_CONTENT.values() for _, kind in self._files.values()):
            return
        unread = [used for place, used in manifests.items() if place not in self._read]
        for found in self._entries(unread, lambda path: _place(path) in self._files):
            self._drop(path for _, path in found)
        self._read |= manifests.keys()

    def _entries(
        self, manifests: Iterable[ManifestFile], concerns: Callable[[str], bool], *, may_miss: bool = False
    ) -> Iterator[Sequence[tuple[Kind, str]]]:
        """Yield the live files of each manifest that `concerns` is true for.

        Raises:
            DataFileError: A manifest cannot be read, or is missing and must not be.
        """

        def read(used: ManifestFile) -> Sequence[tuple[Kind, str]] | Problem:
            try:
                live = live_paths(self._io, used.manifest_path, Recorded.of(used))
                return [(KIND_OF_CONTENT[content], path) for content, path in live if concerns(path)]
            except Exception as error:  # any error of a storage library or the Avro reader
                return Problem.of(f"manifest {used.manifest_path}", error)

        for found in in_parallel(read, manifests):
            if not isinstance(found, Problem):
                yield found
            elif may_miss and found.is_missing:
                logger.warning("Files that only removed snapshots refer to are not known, and stay: %s", found)
            else:
                raise _unknown(found)


def named_by(table: TableMetadata) -> Iterator[str]:
    """Yield the paths of the files that a table's metadata itself names."""
    yield from (snapshot.manifest_list for snapshot in table.snapshots)
    yield from (one.statistics_path for one in (*table.statistics, *table.partition_statistics))
    yield from (entry.metadata_file for entry in table.metadata_log)


def _place(path: str) -> str:
    return within_store(file_key(path))


def _unknown(problem: Problem) -> DataFileError:
    return DataFileError(f"what the table refers to is not known: {problem}")
