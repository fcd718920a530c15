"""Finds the files below a table's locations that nothing refers to, and deletes them with proof.

Files are listed before the table is loaded: what was committed before the load is seen, and what is written after it is
too young. If a table's metadata cannot be read completely, no file is an orphan. If other tables or catalogs may have
files in the table's folder, no file is deleted.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.checklist import CheckFailedError, Checklist, CheckResult, NotTriedError
from iceberg_ds.inspect.contents import (
    Contents,
    counted,
    file_key,
    folder_key,
    forget_links,
    read_contents,
    within_store,
)
from iceberg_ds.inspect.neighbours import (
    has_one_meaning,
    named_folders,
    refuse_shared_files,
    refuse_table_around,
    table_folders,
    table_root,
    what_others_have,
    why_partial,
)
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.listing import (
    LISTED_PLACES,
    can_list,
    is_metadata_file,
    store_clock_ms,
    stored_files,
)
from iceberg_ds.io.stores import StoredFile

logger = logging.getLogger(__name__)

DEFAULT_GRACE = "3d"
# With a lower age, files of a running write could be taken for orphans.
LOWEST_SAFE_GRACE = "24h"
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Longer words of units are refused: "3 months" would be 3 minutes.
_TEXT = re.compile(
    r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*(?:(s)(?:ec(?:ond)?s?)?|(m)(?:in(?:ute)?s?)?|(h)(?:(?:ou)?rs?)?|(d)(?:ays?)?)\s*",
    re.IGNORECASE,
)
_DAY_S, _HOUR_S = 86_400, 3_600
# A file of tables without a catalog; it names the current metadata.
_VERSION_HINT = "version-hint.text"
ORPHANS, DELETION = "orphans", "deletion of orphans"


def parse_grace_ms(text: str) -> int:
    """Return a duration such as `3d`, `36h`, `90 minutes` in milliseconds.

    Raises:
        OptionError: The text is not a duration.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise OptionError(f"'{text}' is no age of files. Give a number with s, m, h or d, such as 36h or 3d.")
    return int(float(found[1]) * _UNITS_MS[str(found[found.lastindex or 0]).lower()])


def require_safe_grace(text: str, *, force: bool) -> None:
    """Refuse to delete files that are so young that a running write may need them.

    Args:
        text: The age, as `parse_grace_ms` takes it.
        force: Whether the user says that nothing writes to the table.

    Raises:
        OptionError: The age is too low.
    """
    if not force and parse_grace_ms(text) < parse_grace_ms(LOWEST_SAFE_GRACE):
        raise OptionError(
            f"Cannot delete orphans older than {text}: a write that still runs may have files of that age. Give "
            f"{LOWEST_SAFE_GRACE} or more, or force it if nothing writes to the table now."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file below the table's locations that no snapshot, log or ref refers to.

    Attributes:
        path: Its full path, with the scheme of its store.
        size_bytes: Its size in bytes.
        modified_ms: Time of its last change, in milliseconds since the Unix epoch.
        deleted: Whether this call of `verify` deleted it.
    """

    path: str
    size_bytes: int
    modified_ms: int
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult(CheckResult):
    """What all checks of `verify` found, with `ok`, `failures` and `to_json` as in `CheckResult`.

    Attributes:
        checks: The checks, in the order in which they were made.
        table: Identifier of the table.
        orphans: Files that nothing refers to, the oldest first; they fail no check.
    """

    table: str
    orphans: tuple[Orphan, ...] = ()


def print_orphans(result: VerifyResult, console: Console) -> None:
    """Print the orphans; without orphans, print nothing."""
    if not result.orphans:
        return
    table = Grid(title="files that nothing refers to", title_justify="left", show_header=True, header_style="bold")
    table.add_column("bytes", justify="right")
    table.add_column("age", justify="right")
    table.add_column("")
    table.add_column("file", overflow="fold")
    now_ms = time.time_ns() // 1_000_000
    for orphan in result.orphans:
        fate = "deleted" if orphan.deleted else ""
        table.add_row(f"{orphan.size_bytes:,}", _age(orphan, now_ms), fate, escape(orphan.path))
    console.print(table)


def _age(orphan: Orphan, now_ms: int) -> str:
    seconds = (now_ms - orphan.modified_ms) / 1000
    return f"{seconds / _DAY_S:.1f} d" if seconds >= _DAY_S else f"{seconds / _HOUR_S:.1f} h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """The orphans of a table, as one search found them.

    Attributes:
        files: The orphans, the oldest first.
        too_young: Number of files that nothing refers to and that are younger than the grace time.
        metadata_files: Paths of all metadata files in the table's folders, of any age and of any table.
        listed: Keys of all files in the table's folders.
        contents: Contents of the table at that time.
    """

    files: tuple[Orphan, ...]
    too_young: int
    metadata_files: tuple[str, ...]
    listed: Collection[str]
    contents: Contents


def find_orphans(load: Callable[[], Table], known: Contents, grace_ms: int, *, by_store_clock: bool) -> Orphans:
    """Return the files below a table's locations that nothing refers to.

    Args:
        load: Loads the table anew.
        known: What was read of the table before.
        grace_ms: Lowest age of an orphan, in milliseconds.
        by_store_clock: Whether to ask the store for the time, as before a deletion; else this machine's clock counts.

    Raises:
        NotTriedError: The store cannot be listed or does not tell the time, or the metadata cannot be read completely.
    """
    forget_links()
    table = load()
    folders = table_folders(table.metadata)
    if unlisted := [folder for folder in folders if not can_list(folder)]:
        raise NotTriedError(f"not looked for, because {unlisted[0]} cannot be listed: only {LISTED_PLACES} can be")
    properties = table.io.properties
    # The earliest time of all stores, so that no file of any store seems older than it is.
    now_ms = min(_now_ms(properties, folder, by_store_clock=by_store_clock) for folder in folders)
    stored = {file_key(found.path): found for folder in folders for found in stored_files(properties, folder)}
    before, table = table, load()
    if (reason := _why_unlisted(before.metadata, table.metadata)) is not None:
        raise NotTriedError(f"not looked for, because {reason}")
    contents = read_contents(table.io, table.metadata, known)
    if (reason := _why_unknown(table, contents)) is not None:
        raise NotTriedError(f"not looked for, because {reason}")
    referenced = referenced_keys(table, contents)
    own = {folder_key(folder) for folder in named_folders(table.metadata)}
    foreign = _other_tables(stored, own | {table_root(file_key(table.metadata_location))}) | _checkpoints(stored)
    candidates = [
        found
        for key, found in stored.items()
        if key not in referenced and not key.startswith(tuple(foreign)) and not _is_hidden(key, own)
    ]
    # A store's clock is less exact than the times of its files, so that an age could be negative.
    ages = [(max(0, now_ms - found.modified_ms), found) for found in candidates]
    old = sorted((found for age_ms, found in ages if age_ms >= grace_ms), key=lambda found: found.modified_ms)
    return Orphans(
        files=tuple(map(_orphan, old)),
        too_young=len(candidates) - len(old),
        metadata_files=tuple(found.path for found in stored.values() if is_metadata_file(found.path)),
        listed=stored.keys(),
        contents=contents,
    )


def _now_ms(properties: Mapping[str, str], folder: str, *, by_store_clock: bool) -> int:
    if not by_store_clock:
        return time.time_ns() // 1_000_000
    try:
        return store_clock_ms(properties, folder)
    except Exception as error:  # any error of a storage library
        reason = f"not looked for, because the store of {folder} does not tell what time it is ({error!r})"
        raise NotTriedError(reason) from None


def _orphan(found: StoredFile) -> Orphan:
    return Orphan(path=found.path, size_bytes=found.size_bytes, modified_ms=found.modified_ms)


def delete_orphans(load: Callable[[], Table], orphans: Orphans) -> tuple[Orphan, ...]:
    """Delete orphans that another load still shows unreferenced; return those, each with whether it was deleted.

    Raises:
        CheckFailedError: Deleting would not be safe; nothing was deleted.
    """
    table = load()
    if (reason := _why_unlisted(orphans.contents.metadata, table.metadata)) is not None:
        raise CheckFailedError(reason, "No file was deleted. Verify the table again.")
    contents = read_contents(table.io, table.metadata, orphans.contents)
    if (reason := _why_unknown(table, contents)) is not None:
        raise CheckFailedError(reason, "No file was deleted. Mend the table first.")
    referenced = referenced_keys(table, contents)
    still = [orphan for orphan in orphans.files if file_key(orphan.path) not in referenced]
    _refuse_other_spellings(still, referenced, orphans.listed)
    own = folder_key(table.metadata.location)
    mine = [orphan for orphan in still if file_key(orphan.path).startswith(own) and has_one_meaning(orphan.path)]
    if mine:
        refuse_shared_files(table, orphans.listed)
        refuse_table_around(table)
        others = what_others_have(table, orphans.metadata_files, referenced)
        mine = [orphan for orphan in mine if not others.may_have(file_key(orphan.path))]
    delete_files(table.io, [orphan.path for orphan in mine], Proof.UNREFERENCED)
    gone = {orphan.path for orphan in mine if not _exists(table.io, orphan.path)}
    return tuple(replace(orphan, deleted=orphan.path in gone) for orphan in still)


def _why_unlisted(before: TableMetadata, now: TableMetadata) -> str | None:
    """Return why other folders were listed than those of the table now, or None if they are the same."""
    if set(map(folder_key, table_folders(before))) == set(map(folder_key, table_folders(now))):
        return None
    return "its folders are others than those that were listed: it was moved, or another table has its name meanwhile"


def _exists(io: FileIO, path: str) -> bool:
    try:
        return io.new_input(path).exists()
    except Exception:  # unknown, so the file is not reported as deleted
        return True


def referenced_keys(table: Table, contents: Contents) -> set[str]:
    """Return the keys of all files that a table refers to, in all snapshots."""
    log = (entry.metadata_file for entry in table.metadata.metadata_log)
    return {file_key(path) for path in (table.metadata_location, *log, *contents.paths())}


def _why_unknown(table: Table, contents: Contents) -> str | None:
    """Return why the files that a table refers to are unknown, or None if they are known."""
    problem = next(contents.every_problem(), None) or why_partial(table)
    return None if problem is None else f"what the table refers to is not known: {problem}"


def _is_hidden(key: str, own: Collection[str]) -> bool:
    """Return whether readers ignore a file of this name, or tables without a catalog need it."""
    below = key.removeprefix(max((folder for folder in own if key.startswith(folder)), key=len, default=""))
    return basename(key) == _VERSION_HINT or any(
        step.startswith(".") or (step.startswith("_") and "=" not in step) for step in below.split("/")
    )


def _other_tables(stored: Iterable[str], own: Collection[str]) -> set[str]:
    """Return the folders of other tables below a table's folders, as their metadata files show."""
    roots = {table_root(key) for key in stored if is_metadata_file(key)}
    return {root for root in roots if root not in own and any(root.startswith(folder) for folder in own)}


def _checkpoints(stored: Iterable[str]) -> set[str]:
    """Return the folders of checkpoints of Spark's streaming queries; each has the query's id in a file `metadata`."""
    return {key.removesuffix("metadata") for key in stored if basename(key) == "metadata"}


def _refuse_other_spellings(orphans: Sequence[Orphan], referenced: Collection[str], listed: Collection[str]) -> None:
    """Raise if a listed file may be a referenced one by another path.

    That is one that differs only in its scheme or authority, or has the name of one that was not listed by its own
    path: files were moved, or their folder has two names that nothing shows to be one. Names of files are unique.
    """
    elsewhere = {within_store(key): key for key in referenced}
    unlisted = {basename(key): key for key in referenced if key not in listed}
    for orphan in orphans:
        key = file_key(orphan.path)
        other = elsewhere.get(within_store(key)) or unlisted.get(basename(key))
        if other is not None:
            raise CheckFailedError(
                f"{orphan.path} was listed, and the table refers to {other}: it may be the same file",
                "No file was deleted. Give the table one spelling of its store and its folder, move the files back to "
                "where the table has them, or delete the orphans by hand.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanWish:
    """What to do about orphans.

    Attributes:
        grace_ms: Lowest age of an orphan, in milliseconds.
        delete: Whether to delete orphans.
    """

    grace_ms: int
    delete: bool


def check_orphans(
    checklist: Checklist, catalog: CatalogClient, identifier: Sequence[str], known: Contents, wish: OrphanWish
) -> tuple[Orphan, ...]:
    """Look for orphans, delete them if `wish` says so, and return them."""

    def load() -> Table:
        return catalog.load_table(identifier)

    orphans = checklist.attempt(ORPHANS, lambda: _look(load, known, wish))
    if orphans is not None and orphans.files:
        step = "" if wish.delete else "They cost space, no rows: delete them with --delete-orphans."
        checklist.checks[-1] = replace(checklist.checks[-1], outcome="warning", next_step=step)
    if not wish.delete:
        return orphans.files if orphans is not None else ()
    if orphans is None:
        reason = CheckFailedError("refused: it is not known which files are orphans", "See the check before this one.")
        checklist.fail(DELETION, reason, seconds=0)
        return ()
    deleted = checklist.attempt(DELETION, lambda: _delete(catalog, load, orphans))
    return deleted if deleted is not None else orphans.files


def _look(load: Callable[[], Table], known: Contents, wish: OrphanWish) -> tuple[str, Orphans]:
    orphans = find_orphans(load, known, wish.grace_ms, by_store_clock=wish.delete)
    size = sum(orphan.size_bytes for orphan in orphans.files)
    young = f"; {counted(orphans.too_young, 'file')} too young to tell" if orphans.too_young else ""
    return f"nothing refers to {counted(len(orphans.files), 'file')} with {size:,} bytes{young}", orphans


def _delete(catalog: CatalogClient, load: Callable[[], Table], orphans: Orphans) -> tuple[str, tuple[Orphan, ...]]:
    if not catalog.holds_branches:
        raise CheckFailedError(
            "refused: other branches of this catalog may refer to files that this one does not",
            "No file was deleted. Let the catalog's own clean-up (Nessie's GC) do it.",
        )
    every = delete_orphans(load, orphans)
    gone = sum(orphan.deleted for orphan in every)
    left = f"; {counted(len(every) - gone, 'file')} left, see the log" if gone < len(every) else ""
    saved = len(orphans.files) - len(every)
    used = f"; {counted(saved, 'file')} kept, because the table refers to them by now" if saved else ""
    return f"deleted {counted(gone, 'file')}{left}{used}", every
