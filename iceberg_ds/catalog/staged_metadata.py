"""Metadata files that a commit stages: one that lost a race is deleted, and no time in them goes back.

PyIceberg's catalogs that keep only a pointer (SQL, Hive, Glue) write the table's next metadata file first, and then
move the pointer to it if that still is where they found it. If another commit was faster, the file is left behind. A
REST server writes, and tidies up, its own files.

A table's metadata file is the table: if its current file were deleted, all would be lost. So no answer of the catalog
counts here, because a refusal may follow a first try that landed, and no state of the table counts that may be an old
one. A file is deleted only if the table's own log holds the file that it was to follow, and not the file itself:
another file has followed, the pointer has moved on, and a request that is still under way must fail. Or this process
itself has rolled back the transaction that was to move the pointer. All others stay: so does the file of a new table
whose name another table has, because that one may have been given the name later.

Whoever lists the folder may register a file that stands there as a table. So the file goes before the files that only
it names, and these stay if it does (`tidy_metadata`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.snapshots.history import in_order

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedMetadata:
    """A metadata file that a commit wrote, or was about to.

    Attributes:
        path: Its location.
        name: Identifier of the table.
        follows: The metadata file that the table stood at, or None if the commit creates the table.
        table_uuid: UUID of the table.
        io: Opens its storage.
        manifest_list: That of the newest snapshot in the file; None without a snapshot.
    """

    path: str
    name: tuple[str, ...]
    follows: str | None
    table_uuid: str
    io: FileIO
    manifest_list: str | None = None


class Fate(Enum):
    """What a state of the table says of a staged file."""

    TAKEN = auto()  # the table stands at it, or stood at it
    PASSED_OVER = auto()  # another file has taken its place
    OPEN = auto()  # the state does not tell


def fate(staged: StagedMetadata, metadata: TableMetadata, location: str) -> Fate:
    """Return what became of a staged file, as shown by a table that was loaded after the file was staged.

    Args:
        staged: The file.
        metadata: The table of that name; it may be another one by now, or an old state of it.
        location: The metadata file that this table stands at.
    """
    log = {entry.metadata_file for entry in metadata.metadata_log}
    if staged.path == location or staged.path in log:
        return Fate.TAKEN
    return Fate.PASSED_OVER if staged.follows in log else Fate.OPEN


class _Staged:
    """The files that one commit has staged so far, attempt by attempt."""

    def __init__(self) -> None:
        # By table: a commit of several tables stages a file for each; one table tells nothing of another one's file.
        self._open: dict[tuple[str, ...], list[StagedMetadata]] = defaultdict(list)
        self._passed_over: list[StagedMetadata] = []
        self._undeleted: list[StagedMetadata] = []
        self.paths: set[str] = set()

    def note(self, staged: StagedMetadata) -> None:
        self.paths.add(staged.path)
        self._open[staged.name].append(staged)

    def see(self, name: tuple[str, ...], metadata: TableMetadata, location: str) -> None:
        if not (staged := self._open.pop(name, None)):
            return
        fates = [(file, fate(file, metadata, location)) for file in staged]
        if still_open := [file for file, found in fates if found is Fate.OPEN]:
            self._open[name] = still_open
        self._passed_over += [file for file, found in fates if found is Fate.PASSED_OVER]

    def note_rolled_back(self, paths: Collection[str]) -> None:
        for name, staged in self._open.items():
            self._passed_over += [file for file in staged if file.path in paths]
            self._open[name] = [file for file in staged if file.path not in paths]

    def tidy(self) -> set[str]:
        due: dict[tuple[str, ...], list[StagedMetadata]] = defaultdict(list)
        for staged in self._passed_over:
            due[staged.name].append(staged)
        self._passed_over = []
        for of_table in due.values():  # tables of one catalog may be in different stores
            if delete_files(of_table[-1].io, [staged.path for staged in of_table], Proof.REFUSED):
                self._undeleted += of_table
        standing = chain(self._undeleted, *self._open.values())
        return {staged.manifest_list for staged in standing if staged.manifest_list is not None}

    def end(self) -> None:
        self.tidy()
        for staged in chain.from_iterable(self._open.values()):
            logger.info("Left %s where it is, if it was written: the catalog may still take it", staged.path)


_current: ContextVar[_Staged | None] = ContextVar("_current", default=None)


@contextmanager
def tidying_metadata() -> Iterator[None]:
    """Delete, at the end of the block, the metadata files of those of its commits that are proven not to have landed.

    Also let no time in these files go back. A file whose fate no load of the table has shown by then stays.
    """
    staged = _Staged()
    token = _current.set(staged)
    try:
        yield
    finally:
        _current.reset(token)
        staged.end()


def tidy_metadata() -> set[str]:
    """Delete the metadata files of the commit under way that are proven not to have landed, before what they name.

    Returns:
        The manifest lists of lost attempts whose metadata files still stand, or may.
    """
    staged = _current.get()
    return set() if staged is None else staged.tidy()


def see_table(name: tuple[str, ...], metadata: TableMetadata, location: str | None) -> None:
    """Take note of a table that was just loaded or committed to.

    Args:
        name: Identifier of the table.
        metadata: The table.
        location: The metadata file that the table stands at, or None if the catalog does not say.
    """
    staged = _current.get()
    if staged is not None and location:
        staged.see(name, metadata, location)


def note_staged(table: StagedTable, follows: str | None) -> StagedTable:
    """Take note of a metadata file that is about to be written; return its table with no time that goes back.

    Args:
        table: The table as it will be.
        follows: The metadata file that the table stands at, or None if the commit creates the table.
    """
    staged = _current.get()
    if staged is not None:
        table.metadata = in_order(table.metadata)
        staged.note(
            StagedMetadata(
                path=table.metadata_location,
                name=table.name(),
                follows=follows,
                table_uuid=str(table.metadata.table_uuid),
                io=table.io,
                manifest_list=table.metadata.snapshots[-1].manifest_list if table.metadata.snapshots else None,
            )
        )
    return table


def note_rolled_back(paths: Collection[str]) -> None:
    """Take note that this process has rolled back the transaction that was to move tables to these files."""
    staged = _current.get()
    if staged is not None:
        staged.note_rolled_back(paths)


@contextmanager
def noting_rolled_back(*refusals: type[Exception]) -> Iterator[None]:
    """Take note, if the block raises one of `refusals`, that its transaction was rolled back in this process."""
    staged = _current.get()
    before = set() if staged is None else set(staged.paths)
    try:
        yield
    except refusals:
        if staged is not None:
            staged.note_rolled_back(staged.paths - before)
        raise


@contextmanager
def noting_metadata() -> Iterator[set[str]]:
    """Yield the paths of all metadata files that commits in the block were about to write; all of them stay."""
    staged = _Staged()
    token = _current.set(staged)
    try:
        yield staged.paths
    finally:
        _current.reset(token)
