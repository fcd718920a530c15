"""Finds the files below a table's locations that nothing refers to, and deletes them with proof.

Files are listed before the table is loaded: what was committed before the load is seen, and what is written after it
is too young. Of a table whose metadata cannot be read whole, nothing is an orphan. Where others may have a part in its
folder, nothing is deleted (`neighbours.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename, dirname

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.checks.checklist import CheckFailedError, NotTriedError
from iceberg_ds.storage.cleanup import Proof, delete_files
from iceberg_ds.storage.listing import StoredFile, can_list, store_clock_ms, stored_files
from iceberg_ds.storage.metadata_names import is_metadata_file
from iceberg_ds.storage.places import FOLDER_PROPERTIES
from iceberg_ds.verification.contents import Contents, read_contents
from iceberg_ds.verification.findings import counted, why_unreadable
from iceberg_ds.verification.neighbours import what_others_have
from iceberg_ds.verification.paths import file_key, folder_key, within_store
from iceberg_ds.verification.result import Orphan

# Of tables without a catalog: it names the current metadata.
_VERSION_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """The orphans of a table, as one look has found them.

    Attributes:
        files: The files, the oldest first.
        too_young: How many files that nothing refers to are younger than the grace time.
        metadata_files: All metadata files in the table's folders, of any age and of any table.
        contents: The table as it was then.
    """

    files: tuple[Orphan, ...]
    too_young: int
    metadata_files: tuple[str, ...]
    contents: Contents


def find_orphans(load: Callable[[], Table], known: Contents, grace_ms: int, *, by_store_clock: bool) -> Orphans:
    """Return the files of a table that nothing refers to.

    Args:
        load: Loads the table afresh.
        known: What has been read of it.
        grace_ms: How old an orphan is at least.
        by_store_clock: Whether to ask the store for the time, as before a deletion; else the machine's counts.

    Raises:
        NotTriedError: Its store cannot be listed or does not tell the time, or its metadata cannot be read whole.
    """
    table = load()
    folders = table_folders(table.metadata)
    if unlisted := [folder for folder in folders if not can_list(folder)]:
        raise NotTriedError(f"not looked for, because {unlisted[0]} cannot be listed: only local folders and S3 can be")
    properties = table.io.properties
    # The earliest, so that no file of any of them seems older than it is.
    now_ms = min(_now_ms(properties, folder, by_store_clock=by_store_clock) for folder in folders)
    stored = {file_key(found.path): found for folder in folders for found in stored_files(properties, folder)}
    table = load()
    contents = read_contents(table.io, table.metadata, known)
    if (reason := _why_unknown(table, contents)) is not None:
        raise NotTriedError(f"not looked for, because {reason}")
    referenced = referenced_keys(table, contents)
    own = {folder_key(folder) for folder in _named_folders(table.metadata)}
    foreign = _other_tables(stored, own | {_table_root(file_key(table.metadata_location))})
    candidates = [
        found
        for key, found in stored.items()
        if key not in referenced and not key.startswith(tuple(foreign)) and not _is_hidden(key, own)
    ]
    # A store tells the time less exactly than the ages of its files.
    ages = [(max(0, now_ms - found.modified_ms), found) for found in candidates]
    old = sorted((found for age_ms, found in ages if age_ms >= grace_ms), key=lambda found: found.modified_ms)
    return Orphans(
        files=tuple(map(_orphan, old)),
        too_young=len(candidates) - len(old),
        metadata_files=tuple(found.path for found in stored.values() if is_metadata_file(found.path)),
        contents=contents,
    )


def _now_ms(properties: Mapping[str, str], folder: str, *, by_store_clock: bool) -> int:
    if not by_store_clock:
        return time.time_ns() // 1_000_000
    try:
        return store_clock_ms(properties, folder)
    except Exception as error:  # whatever a storage library raises
        reason = f"not looked for, because the store of {folder} does not tell what time it is ({error!r})"
        raise NotTriedError(reason) from None


def _orphan(found: StoredFile) -> Orphan:
    return Orphan(path=found.path, size_bytes=found.size_bytes, modified_ms=found.modified_ms)


def delete_orphans(load: Callable[[], Table], orphans: Orphans) -> tuple[Orphan, ...]:
    """Delete the orphans that another fresh load still shows unreferenced; return all, with what was deleted marked.

    Raises:
        CheckFailedError: It would not be safe; nothing was deleted.
    """
    table = load()
    contents = read_contents(table.io, table.metadata, orphans.contents)
    if (reason := _why_unknown(table, contents)) is not None:
        raise CheckFailedError(reason, "No file was deleted. Mend the table first.")
    referenced = referenced_keys(table, contents)
    still = [orphan for orphan in orphans.files if file_key(orphan.path) not in referenced]
    _refuse_other_stores(still, referenced)
    own = folder_key(table.metadata.location)
    mine = [orphan for orphan in still if file_key(orphan.path).startswith(own)]
    if mine:
        others = what_others_have(table, orphans.metadata_files, referenced)
        mine = [orphan for orphan in mine if not others.may_have(file_key(orphan.path))]
    delete_files(table.io, [orphan.path for orphan in mine], Proof.UNREFERENCED)
    gone = {orphan.path for orphan in mine if not _exists(table.io, orphan.path)}
    return tuple(replace(orphan, deleted=orphan.path in gone) for orphan in still)


def _exists(io: FileIO, path: str) -> bool:
    try:
        return io.new_input(path).exists()
    except Exception:  # nobody can tell: it is not said to be deleted
        return True


def table_folders(metadata: TableMetadata) -> list[str]:
    """Return the folders in which a table's files are, without those that lie in another of them."""
    keys = {folder_key(folder): folder for folder in _named_folders(metadata)}
    return [folder for key, folder in keys.items() if not any(key != other and key.startswith(other) for other in keys)]


def _named_folders(metadata: TableMetadata) -> list[str]:
    """Return a table's location, and the folders that its properties name."""
    named = [metadata.properties.get(key) for key in FOLDER_PROPERTIES]
    return [metadata.location, *(folder for folder in named if folder)]


def referenced_keys(table: Table, contents: Contents) -> set[str]:
    """Return the keys of all files that a table refers to, of any snapshot."""
    log = (entry.metadata_file for entry in table.metadata.metadata_log)
    return {file_key(path) for path in (table.metadata_location, *log, *contents.paths())}


def _why_unknown(table: Table, contents: Contents) -> str | None:
    """Return why it is not known what a table refers to, None if it is."""
    problem = next(contents.every_problem(), None) or _why_partial(table)
    return None if problem is None else f"what the table refers to is not known: {problem}"


def _why_partial(table: Table) -> str | None:
    """Return why a catalog may have shown some of a table's snapshots only, None if it has shown all.

    REST catalogs leave out those without a branch or tag, if their property `snapshot-loading-mode` says so.
    """
    path = table.metadata_location
    try:
        whole = FromInputFile.table_metadata(table.io.new_input(path))
    except Exception as error:  # whatever a storage library or the parser raises
        return f"metadata file {path} {why_unreadable(error)}"
    shown = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    hidden = [snapshot for snapshot in whole.snapshots if snapshot.snapshot_id not in shown]
    return f"the catalog does not show {counted(len(hidden), 'snapshot')} of metadata file {path}" if hidden else None


def _is_hidden(key: str, own: Collection[str]) -> bool:
    """Return whether a file is of the kind that readers pass over, or that catalogs of files need."""
    below = key.removeprefix(max((folder for folder in own if key.startswith(folder)), key=len, default=""))
    return basename(key) == _VERSION_HINT or any(
        step.startswith(".") or (step.startswith("_") and "=" not in step) for step in below.split("/")
    )


def _other_tables(stored: Iterable[str], own: Collection[str]) -> set[str]:
    """Return the folders below a table's that another table has, as its metadata shows."""
    roots = {_table_root(key) for key in stored if is_metadata_file(key)}
    return {root for root in roots if root not in own and any(root.startswith(folder) for folder in own)}


def _table_root(metadata_file: str) -> str:
    """Return the folder of the table whose metadata file has this key."""
    folder = dirname(metadata_file)
    return f"{dirname(folder) if basename(folder) == 'metadata' else folder}/"


def _refuse_other_stores(orphans: Sequence[Orphan], referenced: Collection[str]) -> None:
    """Raise if a listed file differs from a referenced one in its scheme or authority alone."""
    elsewhere = {within_store(key): key for key in referenced}
    for orphan in orphans:
        other = elsewhere.get(within_store(file_key(orphan.path)))
        if other is not None:
            raise CheckFailedError(
                f"{orphan.path} was listed, and the table refers to {other}: it may be the same file",
                "No file was deleted. Give the table one spelling of its store, or delete the orphans by hand.",
            )
