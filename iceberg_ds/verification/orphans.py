"""Finds the files below a table's locations that nothing refers to, and deletes them with proof.

Files are listed before the table is loaded: what was committed before the load is seen, and what is written after it
is too young. Of a table whose metadata cannot be read whole, nothing is an orphan. What may be another table's is
left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from posixpath import basename, dirname

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.checks.checklist import CheckFailedError, NotTriedError
from iceberg_ds.storage.cleanup import Proof, delete_files
from iceberg_ds.storage.listing import StoredFile, can_list, stored_files
from iceberg_ds.storage.places import FOLDER_PROPERTIES
from iceberg_ds.verification.contents import Contents, read_contents
from iceberg_ds.verification.findings import counted, why_unreadable
from iceberg_ds.verification.paths import file_key, folder_key, within_store
from iceberg_ds.verification.result import Orphan

_METADATA_SUFFIX = ".metadata.json"
# Of tables without a catalog: it names the current metadata.
_VERSION_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """The orphans of a table, as one look has found them.

    Attributes:
        files: The files, the oldest first.
        too_young: How many files that nothing refers to are younger than the grace time.
        contents: The table as it was then.
    """

    files: tuple[Orphan, ...]
    too_young: int
    contents: Contents


def find_orphans(load: Callable[[], Table], known: Contents, grace_ms: int) -> Orphans:
    """Return the files of a table that nothing refers to.

    Args:
        load: Loads the table afresh.
        known: What has been read of it.
        grace_ms: How old an orphan is at least.

    Raises:
        NotTriedError: Its store cannot be listed, or its metadata cannot be read whole.
    """
    table = load()
    folders = table_folders(table.metadata)
    if unlisted := [folder for folder in folders if not can_list(folder)]:
        raise NotTriedError(f"not looked for, because {unlisted[0]} cannot be listed: only local folders and S3 can be")
    now_ms = time.time_ns() // 1_000_000
    stored = {file_key(found.path): found for folder in folders for found in stored_files(table.io.properties, folder)}
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
    old = sorted((found for found in candidates if now_ms - found.modified_ms > grace_ms), key=lambda f: f.modified_ms)
    return Orphans(files=tuple(map(_orphan, old)), too_young=len(candidates) - len(old), contents=contents)


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
    unknown = _of_nobody(table, still)
    own = folder_key(table.metadata.location)
    mine = [orphan for orphan in still if file_key(orphan.path).startswith(own) and orphan.path not in unknown]
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
    return {file_key(path) for path in _referenced_paths(table, contents)}


def _referenced_paths(table: Table, contents: Contents) -> Iterator[str]:
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    yield from contents.manifests
    yield from (
        entry.file.path for manifest in contents.manifests.values() for entry in manifest.entries if entry.is_live
    )
    yield from (found.statistics_path for found in (*metadata.statistics, *metadata.partition_statistics))


def _why_unknown(table: Table, contents: Contents) -> str | None:
    """Return why it is not known what a table refers to, None if it is."""
    problems = [*contents.problems.values(), *(manifest.problem for manifest in contents.manifests.values())]
    problem = next((problem for problem in problems if problem is not None), None)
    problem = problem or _why_partial(table)
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
    roots = {_table_root(key) for key in stored if key.endswith(_METADATA_SUFFIX)}
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


def _of_nobody(table: Table, orphans: Sequence[Orphan]) -> set[str]:
    """Return the metadata files among orphans of which nobody can tell whose they are.

    Raises:
        CheckFailedError: One is of another table, whose other files would look like orphans, too.
    """
    unknown = set()
    for orphan in orphans:
        if not orphan.path.endswith(_METADATA_SUFFIX):
            continue
        found = _table_uuid(table.io, orphan.path)
        if found is None:
            unknown.add(orphan.path)
        elif found != str(table.metadata.table_uuid):
            raise CheckFailedError(
                f"{orphan.path} is the metadata of another table (uuid {found}) in the same folder",
                "No file was deleted. Make sure that no catalog has that table, and delete this file by hand first.",
            )
    return unknown


def _table_uuid(io: FileIO, path: str) -> str | None:
    try:
        return str(FromInputFile.table_metadata(io.new_input(path)).table_uuid)
    except Exception:  # half a file, or one of a version that cannot be read
        return None
