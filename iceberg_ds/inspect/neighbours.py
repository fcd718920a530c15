"""Whose the files in a table's folders are: the table's own, those of other tables, or of other states of the table.

Several tables can share one folder: one table is renamed and keeps its location, and another is created at the location
of the old name. And two catalogs can have the same table: each continues from the state that was registered, and
neither sees the commits of the other. In both cases, files that this table does not refer to are rows of someone else.
Metadata files that are not in this table's log reveal it; neither their ages nor any clock counts, only which table
they belong to and which states they follow. Nothing is deleted here.
"""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from posixpath import basename, dirname
from typing import Any
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.inspect.checklist import CheckFailedError, NotTriedError
from iceberg_ds.inspect.contents import (
    Problem,
    counted,
    file_key,
    folder_key,
    read_listed,
    why_unreadable,
)
from iceberg_ds.inspect.orphan_rules import FOLDERS_OF_FORMATS, is_of_other_format
from iceberg_ds.io.listing import LISTED_PLACES, can_list, is_metadata_file, stored_files
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.io.places import FOLDER_PROPERTIES, why_not_a_place
from iceberg_ds.secrets import masked_cause
from iceberg_ds.snapshots.refs import last_sequence_number
from iceberg_ds.snapshots.version_3 import ManifestList, says_files
from iceberg_ds.table.variant import knowing_variants

logger = logging.getLogger(__name__)

_GZIP_MAGIC = b"\x1f\x8b"
# Folders below a table's location into which its files go, unless its properties name others.
_FOLDERS_OF_FILES = ("data", "metadata")
_OF_OTHERS_STEP = (
    "No file was deleted: files of that table would look like orphans. Give each table a folder of its own. If no "
    "catalog has that table any more, delete this metadata file by hand first."
)
_STALE_STEP = (
    "No file was deleted: files of that state would look like orphans. Verify the table through the catalog that has "
    "that state, and drop the other entry without its files. If no catalog has it, because a commit was killed or the "
    "table was set back, commit once more, or delete this metadata file by hand first."
)
_UNREADABLE_STEP = (
    "No file was deleted: it may be the metadata of another table. If it is half a file of a writer that was killed, "
    "delete it by hand first; if a writer is at work, verify again."
)
GC_ENABLED = "gc.enabled"
_OF_FORMATS_STEP = (
    "No file was deleted: files of that table would look like orphans. If it is not used any more, delete that folder "
    "by hand first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state of a table: the parts of a metadata file that are needed here.

    Attributes:
        path: Path of the metadata file.
        table_uuid: UUID of the table.
        location: Location of the table.
        folders: Keys of the folders in which the table has files: the metadata file's own, the table's location, and
            the folders that its properties name.
        sequence_number: The last sequence number of the table; 0 in format version 1.
        log: Keys of the earlier metadata files in its metadata log, the oldest first.
        follows: Path of the last metadata file in its log, as the log spells it; None if the log is empty.
        snapshots: Id and manifest list of each snapshot, None if it has none, and whether it says that it has files.
        statistics: Paths of its statistics files.
    """

    path: str
    table_uuid: str
    location: str
    folders: frozenset[str]
    sequence_number: int
    log: tuple[str, ...]
    follows: str | None
    snapshots: tuple[tuple[int, str | None, bool], ...]
    statistics: tuple[str, ...]

    @property
    def own_files(self) -> list[str]:
        """Paths of the files that it refers to, without manifests and what they list."""
        lists = [path for _, path, _ in self.snapshots if path is not None]
        return [self.path, *lists, *self.statistics]

    @property
    def snapshot_ids(self) -> set[int]:
        """Ids of its snapshots."""
        return {snapshot_id for snapshot_id, *_ in self.snapshots}


class _MetadataFiles:
    """Reads metadata files as states: each file is read once, and what states have in common is kept once.

    Args:
        io: Opens the table's storage.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._found: dict[str, State | None] = {}
        self._snapshots: dict[tuple[int, str | None, bool], tuple[int, str | None, bool]] = {}

    def states(self, paths: Iterable[str]) -> list[State]:
        """Return the states in the files, without those of files that are gone meanwhile.

        Raises:
            CheckFailedError: A file cannot be read, or is not the metadata of a table.
        """
        wanted = {file_key(path): path for path in paths}
        missing = {key: path for key, path in wanted.items() if key not in self._found}
        for (key, path), found in zip(missing.items(), in_parallel(self._read, missing.values()), strict=True):
            if isinstance(found, Exception) and not isinstance(found, FileNotFoundError):
                raise CheckFailedError(f"metadata file {path} {why_unreadable(found)}", _UNREADABLE_STEP)
            self._found[key] = found if isinstance(found, State) else None
        return [state for key in wanted if (state := self._found[key]) is not None]

    def _read(self, path: str) -> State | Exception:
        """Return the state in a file, or why it is unknown; the rest of the file is released at once."""
        try:
            with self._io.new_input(path).open() as stream:
                content = stream.read()
            document = json.loads(gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content)
            return self._parsed(path, document)
        except Exception as error:  # any error of a storage library, or of parsing what is not the metadata of a table
            return error

    def _parsed(self, path: str, document: Any) -> State:  # noqa: ANN401  # any JSON document
        location = str(document["location"]).rstrip("/")
        named = [text for key, text in document.get("properties", {}).items() if key in FOLDER_PROPERTIES and text]
        log = [str(entry["metadata-file"]) for entry in document.get("metadata-log", [])]
        snapshots = [
            (int(one["snapshot-id"]), one.get("manifest-list"), says_files(one.get("summary") or {}))
            for one in document.get("snapshots") or []
        ]
        statistics = [*(document.get("statistics") or []), *(document.get("partition-statistics") or [])]
        return State(
            path=path,
            table_uuid=str(UUID(document["table-uuid"])),
            location=location,
            folders=frozenset(map(folder_key, [path.rpartition("/")[0], location, *named])),
            sequence_number=int(document.get("last-sequence-number", 0)),
            log=tuple(sys.intern(file_key(text)) for text in log),
            follows=log[-1] if log else None,
            snapshots=tuple(self._snapshots.setdefault(one, one) for one in snapshots),
            statistics=tuple(sys.intern(str(one["statistics-path"])) for one in statistics),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOthers:
    """The folders and files that stay, because they belong, or may belong, to another table or catalog.

    Attributes:
        folders: Keys of the folders below the table's location that belong to other tables.
        files: Keys of the files of tables in these folders, and of states of this table that another catalog may have.
    """

    folders: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()

    def may_have(self, key: str) -> bool:
        """Return whether the file with this key stays."""
        return key in self.files or key.startswith(self.folders)


def what_others_have(
    table: Table,
    metadata_files: Iterable[str],
    has_files_in: Callable[[str], bool],
    referred: Callable[[State], Iterable[str]] | None = None,
) -> OfOthers:
    """Return what in a table's folder belongs to other tables, or may belong to a state of it in another catalog.

    Args:
        table: The table.
        metadata_files: Paths of all metadata files that are stored in the table's folders.
        has_files_in: Returns whether the table refers to a file below the folder with this key.
        referred: Returns the keys of the files that a state refers to; None to read its manifests here.

    Raises:
        CheckFailedError: Another table has files in the same folder, another catalog has other states of the table, or
            a metadata file cannot be read.
    """
    metadata = table.metadata
    log = [file_key(entry.metadata_file) for entry in metadata.metadata_log]
    in_log = {*log, file_key(table.metadata_location)}
    foreign = [path for path in metadata_files if file_key(path) not in in_log]
    if not foreign:
        return OfOthers()
    # The oldest metadata file of the log tells which ones came before.
    oldest = [entry.metadata_file for entry in metadata.metadata_log[:1]]
    files = _MetadataFiles(table.io)
    states = {file_key(state.path): state for state in files.states([*foreign, *oldest])}
    own = {key: state for key, state in states.items() if state.table_uuid == str(metadata.table_uuid)}
    undecided = _undecided_states(table, own, in_log)
    others = [state for state in states.values() if state.table_uuid != str(metadata.table_uuid)]
    folders = {folder for other in others for folder in _own_folders(table, other, has_files_in)}
    referred = referred or partial(referred_by, table.io)
    kept = itertools.chain(_files_of(table, undecided, files, referred), _files_below(table, others, referred))
    return OfOthers(folders=tuple(folders), files=frozenset(kept))


def _undecided_states(table: Table, states: dict[str, State], in_log: Collection[str]) -> list[State]:
    """Return the states that the table never had in this catalog; a killed commit or another catalog wrote them.

    Raises:
        CheckFailedError: Only another catalog can have written one of them.
    """
    current = file_key(table.metadata_location)
    newest = last_sequence_number(table.metadata)
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


def _files_of(
    table: Table, undecided: Sequence[State], files: _MetadataFiles, referred: Callable[[State], Iterable[str]]
) -> Iterator[str]:
    """Yield the keys of all files of states, their metadata files included; skip attempts of writes that landed later.

    Raises:
        CheckFailedError: The files that a state refers to are unknown.
    """
    present = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    for state in undecided:
        if (added := _added_by(state, files)) and added <= present:
            continue
        kept = referred(state)
        _tell_once(state.path)
        yield from kept


@lru_cache(maxsize=1000)
def _tell_once(path: str) -> None:
    """Warn of a state whose files stay: expiry meets it each time, and a maintained table expires all day."""
    logger.warning(
        "Files that %s refers to stay: another catalog may have that state of the table, or a commit was killed. "
        "If no catalog has it, delete this metadata file by hand, and delete orphans again",
        path,
    )


def _files_below(table: Table, others: Sequence[State], referred: Callable[[State], Iterable[str]]) -> Iterator[str]:
    """Yield the keys of the files that tables in folders below this table's refer to, in any folder.

    Such a table may have had other folders before, which no metadata names any more.

    Raises:
        CheckFailedError: The files that such a table refers to are unknown.
    """
    location = folder_key(table.metadata.location)
    followed = {key for other in others for key in other.log}
    for other in others:
        is_below = any(folder.startswith(location) for folder in other.folders)
        if is_below and file_key(other.path) not in followed:
            yield from referred(other)


def referred_by(io: FileIO, state: State) -> list[str]:
    """Return the keys of the files that a state refers to, and of its own metadata file.

    Raises:
        CheckFailedError: The files that the state refers to are unknown.
    """
    lists = [ManifestList(number, path, has_files) for number, path, has_files in state.snapshots if path is not None]
    listed = read_listed(io, lists)
    # A missing manifest or manifest list has expired together with its files; nothing else tells what they were.
    problem = next((found for found in listed.every_problem() if not found.is_missing), None)
    if problem is None and len(lists) < len(state.snapshots):
        problem = Problem(text="snapshots of it have no manifest list", is_missing=False)
    if problem is not None:
        raise unreadable_state(state, str(problem))
    return [*map(file_key, (*state.own_files, *listed.listed_paths()))]


def unreadable_state(state: State, problem: str) -> CheckFailedError:
    """Return the error for a state whose files are not known."""
    return CheckFailedError(f"what {state.path} refers to is not known: {problem}", _UNREADABLE_STEP)


def _added_by(state: State, files: _MetadataFiles) -> set[int]:
    """Return the ids of the snapshots that a state added to the state before it; empty if that one is not stored."""
    if state.follows is None:
        return state.snapshot_ids
    return next((state.snapshot_ids - earlier.snapshot_ids for earlier in files.states([state.follows])), set())


def _history(states: dict[str, State], in_log: Collection[str]) -> set[str]:
    """Return the keys of all metadata files that were once the table's current one, as far back as stored logs tell."""
    known, to_follow = set(in_log), [states[key] for key in in_log if key in states]
    while to_follow:
        earlier = [key for key in to_follow.pop().log if key not in known]
        known.update(earlier)
        to_follow += [states[key] for key in earlier if key in states]
    return known


def _has_gone_its_own_way(state: State, states: dict[str, State], known: Collection[str]) -> bool:
    """Return whether a state follows one that was never the table's; a lost attempt follows only the table's states."""
    is_known = [key in known for key in state.log]
    begins = is_known.index(True) if True in is_known else len(is_known)
    return not all(is_known[begins:]) or any(
        key in states for key, found in zip(state.log, is_known, strict=True) if not found
    )


def _own_folders(table: Table, other: State, has_files_in: Callable[[str], bool]) -> Iterator[str]:
    """Yield the folders below the table's location that only the other table uses; raise if both share a folder."""
    location = folder_key(table.metadata.location)
    for folder in sorted(other.folders):
        is_below = folder.startswith(location) and folder != location
        if location.startswith(folder) or (is_below and has_files_in(folder)):
            raise CheckFailedError(
                f"{other.path} is the metadata of another table (uuid {other.table_uuid}, at {other.location}) in the "
                "same folder",
                _OF_OTHERS_STEP,
            )
        if is_below:
            yield folder


def has_any_in(keys: Collection[str]) -> Callable[[str], bool]:
    """Return a function that says whether one of the files with these keys is below the folder with a key."""
    return lambda folder: any(key.startswith(folder) for key in keys)


def has_one_meaning(path: str) -> bool:
    """Return whether all storage libraries delete this file for its path, and not another one."""
    if (reason := why_not_a_place(path)) is not None:
        logger.warning("Left behind %s: %s", path, reason)
    return reason is None


def refuse_shared_files(table: Table, listed: Iterable[str]) -> None:
    """Raise if the table says that others have its files, or if a table of another format has files in its folder."""
    # As Iceberg's Java library reads it.
    if table.properties.get(GC_ENABLED, "true").lower() != "true":
        raise CheckFailedError(
            f"refused: the table's property {GC_ENABLED} forbids it, because other tables may have its files",
            f"No file was deleted. Set {GC_ENABLED}=true if no other table has files in {table.metadata.location}.",
        )
    own = folder_key(table.metadata.location)
    for key in listed:
        if key.startswith(own) and is_of_other_format(key.removeprefix(own)):
            raise CheckFailedError(f"{key} belongs to a table of another format in the same folder", _OF_FORMATS_STEP)


def refuse_table_around(table: Table) -> None:
    """Raise if the table lies among the files of another one, in the folder of its data or its metadata.

    A folder that cannot be listed, as with credentials for this table alone, is passed over.
    """
    files, own = _MetadataFiles(table.io), folder_key(table.metadata.location)
    for location in _locations_around(table.metadata.location):
        try:
            around = _metadata_files_at(table, location)
        except Exception as error:  # of any storage library
            logger.warning(
                "Whether a table is at %s is not known: %r", location, masked_cause(error, table.io.properties)
            )
            continue
        # One by one: mostly the first tells. A table that was moved has left files of its own.
        for state in itertools.chain.from_iterable(files.states([path]) for path in around):
            at = (table_root(file_key(state.path)), *state.folders)
            if own.startswith(at) and state.table_uuid != str(table.metadata.table_uuid):
                raise CheckFailedError(
                    f"{state.path} is the metadata of a table around this one: files in {table.metadata.location} may "
                    "be its rows",
                    _OF_OTHERS_STEP,
                )


def _locations_around(location: str) -> list[str]:
    """Return the places of tables in whose folders of files a location lies, links to folders followed and not."""
    found: dict[str, None] = {}
    for spelling in (location, folder_key(location).rstrip("/")):
        store, _, path = spelling.rpartition("://")
        steps = path.split("/")
        for place, step in enumerate(steps):
            if place and step in _FOLDERS_OF_FILES:
                found[(f"{store}://" if store else "") + "/".join(steps[:place])] = None
    return list(found)


def _metadata_files_at(table: Table, location: str) -> list[str]:
    """Return the metadata files in the metadata folder at a location, but for those in a table's log.

    Those of tables below it, in folders called `metadata` of their own, are left out.
    """
    log = {file_key(entry.metadata_file) for entry in table.metadata.metadata_log}
    own, at = {*log, file_key(table.metadata_location)}, folder_key(location)
    stored = (file.path for file in stored_files(table.io.properties, f"{location}/metadata"))
    paths = {file_key(path): path for path in stored if is_metadata_file(path)}
    return sorted(
        path
        for key, path in paths.items()
        if key not in own and (table_root(key) == at or basename(dirname(key)) != "metadata")
    )


def table_folders(metadata: TableMetadata) -> list[str]:
    """Return the folders that have a table's files, without folders that lie in another one of them."""
    keys = {folder_key(folder): folder for folder in named_folders(metadata)}
    return [folder for key, folder in keys.items() if not any(key != other and key.startswith(other) for other in keys)]


def named_folders(metadata: TableMetadata) -> list[str]:
    """Return a table's location and the folders that its properties name."""
    named = [metadata.properties.get(key) for key in FOLDER_PROPERTIES]
    return [metadata.location, *(folder for folder in named if folder)]


def why_partial(table: Table) -> str | None:
    """Return why a catalog may have shown only some of a table's snapshots, or None if it showed all.

    REST catalogs leave out snapshots without a branch or tag, if property `snapshot-loading-mode` says so.
    """
    path = table.metadata_location
    try:
        with knowing_variants():
            whole = FromInputFile.table_metadata(table.io.new_input(path))
    except Exception as error:  # any error of a storage library or the parser
        return f"metadata file {path} {why_unreadable(error)}"
    shown = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    hidden = [snapshot for snapshot in whole.snapshots if snapshot.snapshot_id not in shown]
    return f"the catalog does not show {counted(len(hidden), 'snapshot')} of metadata file {path}" if hidden else None


def table_root(metadata_file: str) -> str:
    """Return the folder of the table whose metadata file has this key."""
    folder = dirname(metadata_file)
    return f"{dirname(folder) if basename(folder) == 'metadata' else folder}/"


def stored_beside(table: Table) -> list[str]:
    """Return the files that tell whether others have files of a table: metadata files, and a file of other formats.

    Raises:
        NotTriedError: They cannot be listed.
    """
    location = table.metadata.location.rstrip("/")
    named = table.metadata.properties.get("write.metadata.path")
    folders = [f"{location}/metadata", dirname(table.metadata_location), *([named] if named else [])]
    if unlisted := [folder for folder in folders if not can_list(folder)]:
        raise NotTriedError(f"{unlisted[0]} cannot be listed: only {LISTED_PLACES} can be")
    properties = table.io.properties
    found = {
        file_key(file.path): file.path
        for folder in folders
        for file in stored_files(properties, folder)
        if is_metadata_file(file.path)
    }
    of_formats = (next(stored_files(properties, f"{location}/{name}"), None) for name in sorted(FOLDERS_OF_FORMATS))
    return [*found.values(), *(file.path for file in of_formats if file is not None)]


def tables_around(table: Table, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of the folders of other tables in which files lie that this table has outside of its own folders.

    A folder counts as another table's if it cannot be listed.
    """
    own = tuple(map(folder_key, named_folders(table.metadata)))
    outside = {dirname(path) for path in paths if not file_key(path).startswith(own)}
    files, taken = _MetadataFiles(table.io), set()
    for location in {around for folder in outside for around in _locations_around(f"{folder}/x")}:
        try:
            is_taken = not can_list(location) or any(
                state.table_uuid != str(table.metadata.table_uuid)
                for state in files.states(_metadata_files_at(table, location))
            )
        except Exception as error:  # of any storage library
            shown = masked_cause(error, table.io.properties)
            logger.warning("Whether a table is at %s is not known, so files of it stay: %r", location, shown)
            is_taken = True
        if is_taken:
            taken.add(folder_key(location))
    return tuple(sorted(taken))
