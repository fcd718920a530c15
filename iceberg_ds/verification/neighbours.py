"""What the stored metadata files in a table's folders say of whose the other files there are.

Several tables may have come to lie in one folder: one is renamed and keeps its location, another is made at the place
that its name had. And two catalogs may have one table: each goes on from where it was registered, and neither sees the
commits of the other. Either way files that this table does not refer to are somebody's rows. What shows it are metadata
files that are not in this table's log; neither their ages nor any clock counts, only which table they are of and which
states they follow.
"""

from __future__ import annotations

import gzip
import json
import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from iceberg_ds.checks.checklist import CheckFailedError
from iceberg_ds.storage.places import FOLDER_PROPERTIES
from iceberg_ds.verification.contents import read_contents
from iceberg_ds.verification.findings import IS_MISSING, in_parallel, why_unreadable
from iceberg_ds.verification.paths import file_key, folder_key

logger = logging.getLogger(__name__)

_GZIP_MAGIC = b"\x1f\x8b"
_OF_OTHERS_STEP = (
    "No file was deleted: files of that table would look like orphans. Give each table a folder of its own. If no "
    "catalog has that table any more, delete this metadata file by hand first."
)
_STALE_STEP = (
    "No file was deleted: files of that state would look like orphans. Verify the table through the catalog that has "
    "that state, and drop the other entry without its files. If no catalog has it, because a commit was killed or the "
    "table was set back, delete this metadata file by hand first."
)
_UNREADABLE_STEP = (
    "No file was deleted: it may be the metadata of another table. If it is half a file of a writer that was killed, "
    "delete it by hand first; if a writer is at work, verify again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state of a table, as far as its metadata file is looked at.

    Attributes:
        path: Where the metadata file is.
        table_uuid: The table's.
        location: The table's.
        folders: Keys of the folders in which it has files: the metadata file's own, its location, and those that its
            properties name.
        sequence_number: The last one that it gave out, 0 in format version 1.
        log: Keys of the metadata files that it says it follows, the oldest first.
    """

    path: str
    table_uuid: str
    location: str
    folders: frozenset[str]
    sequence_number: int
    log: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOthers:
    """What stays in a table's folder, because it is another's, or may be.

    Attributes:
        folders: Keys of the folders below the table's location that belong to other tables.
        files: Keys of the files that states of this table refer to which another catalog may have.
    """

    folders: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()

    def may_have(self, key: str) -> bool:
        """Return whether the file with this key stays."""
        return key in self.files or key.startswith(self.folders)


def what_others_have(table: Table, metadata_files: Iterable[str], referenced: Collection[str]) -> OfOthers:
    """Return what in a table's folder belongs to other tables, or may belong to another catalog's state of this one.

    Args:
        table: The table.
        metadata_files: All metadata files that are stored in its folders.
        referenced: Keys of all files that it refers to.

    Raises:
        CheckFailedError: Another table has files in the same folder, another catalog has other states of this one, or
            a metadata file cannot be read.
    """
    metadata = table.metadata
    log = [file_key(entry.metadata_file) for entry in metadata.metadata_log]
    in_log = {*log, file_key(table.metadata_location)}
    foreign = [path for path in metadata_files if file_key(path) not in in_log]
    if not foreign:
        return OfOthers()
    # The oldest one of the log says which came before.
    oldest = [entry.metadata_file for entry in metadata.metadata_log[:1]]
    states = {file_key(state.path): state for state in _states(table.io, [*foreign, *oldest])}
    own = {key: state for key, state in states.items() if state.table_uuid == str(metadata.table_uuid)}
    undecided = _undecided_states(table, own, in_log)
    others = [state for state in states.values() if state.table_uuid != str(metadata.table_uuid)]
    folders = {folder for other in others for folder in _own_folders(table, other, referenced)}
    return OfOthers(folders=tuple(folders), files=frozenset(_files_of(table, undecided)))


def _undecided_states(table: Table, states: dict[str, State], in_log: Collection[str]) -> list[State]:
    """Return the states of the table that it has never been in, and that a killed commit or another catalog has left.

    Raises:
        CheckFailedError: One of them can only be that of another catalog.
    """
    current = file_key(table.metadata_location)
    newest = getattr(table.metadata, "last_sequence_number", 0)  # format version 1 has none
    known = _history(states, in_log)
    unknown = [state for key, state in states.items() if key not in known]
    for state in sorted(unknown, key=lambda state: state.sequence_number, reverse=True):
        if state.sequence_number > newest or current in state.log:
            raise CheckFailedError(
                f"{state.path} is a newer state of this table (its last sequence number is {state.sequence_number}) "
                f"than {table.metadata_location}, at which the catalog has it ({newest}): "
                "another catalog may have it, too",
                _STALE_STEP,
            )
        if _has_gone_its_own_way(state, states, known):
            raise CheckFailedError(
                f"{state.path} follows states that this table has never been in: another catalog may have it, too",
                _STALE_STEP,
            )
    return unknown


def _files_of(table: Table, undecided: Sequence[State]) -> Iterator[str]:
    """Yield the keys of the files that states refer to, and of their own, but for attempts of writes that landed later.

    Raises:
        CheckFailedError: What a state refers to cannot be read.
    """
    present = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    for state in undecided:
        try:
            metadata = _metadata(table.io, state.path)
            if (added := _added_by(table.io, metadata)) and added <= present:
                continue
        except FileNotFoundError:  # gone meanwhile
            continue
        contents = read_contents(table.io, metadata)
        # What is missing was expired, and its files with it; nothing else tells what they were.
        if problem := next((text for text in contents.every_problem() if not text.endswith(IS_MISSING)), None):
            raise CheckFailedError(f"what {state.path} refers to is not known: {problem}", _UNREADABLE_STEP)
        logger.warning(
            "Files that %s refers to stay: another catalog may have that state of the table, or a commit was killed. "
            "If no catalog has it, delete this metadata file by hand, and delete orphans again",
            state.path,
        )
        yield file_key(state.path)
        yield from map(file_key, contents.paths())


def _added_by(io: FileIO, metadata: TableMetadata) -> set[int]:
    """Return the snapshots that a state has and the one that it follows has not; none if that one is not stored."""
    before: set[int] = set()
    if metadata.metadata_log:
        try:
            earlier = _metadata(io, metadata.metadata_log[-1].metadata_file)
        except FileNotFoundError:
            return set()
        before = {snapshot.snapshot_id for snapshot in earlier.snapshots}
    return {snapshot.snapshot_id for snapshot in metadata.snapshots} - before


def _history(states: dict[str, State], in_log: Collection[str]) -> set[str]:
    """Return the keys of all metadata files that the table has stood at, as far back as logs that are stored tell."""
    known, to_follow = set(in_log), [states[key] for key in in_log if key in states]
    while to_follow:
        earlier = [key for key in to_follow.pop().log if key not in known]
        known.update(earlier)
        to_follow += [states[key] for key in earlier if key in states]
    return known


def _has_gone_its_own_way(state: State, states: dict[str, State], known: Collection[str]) -> bool:
    """Return whether somebody committed to a state that is not the table's; attempts that were lost have no such."""
    is_known = [key in known for key in state.log]
    begins = is_known.index(True) if True in is_known else len(is_known)
    return not all(is_known[begins:]) or any(
        key in states for key, found in zip(state.log, is_known, strict=True) if not found
    )


def _own_folders(table: Table, other: State, referenced: Collection[str]) -> Iterator[str]:
    """Yield the folders below the table's location that are another's alone; raise if the two share one."""
    location = folder_key(table.metadata.location)
    for folder in sorted(other.folders):
        is_below = folder.startswith(location) and folder != location
        if location.startswith(folder) or (is_below and any(key.startswith(folder) for key in referenced)):
            raise CheckFailedError(
                f"{other.path} is the metadata of another table (uuid {other.table_uuid}, at {other.location}) in the "
                "same folder",
                _OF_OTHERS_STEP,
            )
        if is_below:
            yield folder


def _states(io: FileIO, paths: Sequence[str]) -> Iterator[State]:
    """Yield what the metadata files say; one that is gone meanwhile says nothing."""
    for path, found in zip(paths, in_parallel(lambda path: _state(io, path), paths), strict=True):
        if isinstance(found, State):
            yield found
        elif not isinstance(found, FileNotFoundError):
            raise CheckFailedError(f"metadata file {path} {why_unreadable(found)}", _UNREADABLE_STEP)


def _state(io: FileIO, path: str) -> State | Exception:
    """Return what a metadata file says, or why that is not known; the rest of it is let go of at once."""
    try:
        return _parsed(path, _document(io, path))
    except Exception as error:  # whatever a storage library raises, and of what is no metadata of a table
        return error


def _metadata(io: FileIO, path: str) -> TableMetadata:
    """Return the metadata in a file whose `State` was read before."""
    try:
        return TableMetadataUtil.parse_obj(_document(io, path))
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a storage library or the parser raises
        raise CheckFailedError(f"metadata file {path} {why_unreadable(error)}", _UNREADABLE_STEP) from None


def _document(io: FileIO, path: str) -> Any:  # noqa: ANN401  # whatever the file holds
    with io.new_input(path).open() as stream:
        content = stream.read()
    return json.loads(gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content)


def _parsed(path: str, document: Any) -> State:  # noqa: ANN401  # whatever the file holds
    location = str(document["location"]).rstrip("/")
    named = [text for key, text in document.get("properties", {}).items() if key in FOLDER_PROPERTIES and text]
    return State(
        path=path,
        table_uuid=str(UUID(document["table-uuid"])),
        location=location,
        folders=frozenset(map(folder_key, [path.rpartition("/")[0], location, *named])),
        sequence_number=int(document.get("last-sequence-number", 0)),
        log=tuple(sys.intern(file_key(entry["metadata-file"])) for entry in document.get("metadata-log", [])),
    )
