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

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.checklist import CheckFailedError, Checklist, NotTriedError
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
    OfOthers,
    has_any_in,
    has_one_meaning,
    named_folders,
    refuse_shared_files,
    refuse_table_around,
    table_folders,
    table_root,
    what_others_have,
    why_partial,
)
from iceberg_ds.inspect.orphan_rules import EVERY_FILE, OrphanRules, is_hidden
from iceberg_ds.io.cleanup import Proof, delete_in_portions
from iceberg_ds.io.listing import (
    LISTED_PLACES,
    can_list,
    is_metadata_file,
    is_missing,
    store_clock_ms,
    stored_files,
)
from iceberg_ds.io.stores import StoredFile
from iceberg_ds.secrets import mask_url
from iceberg_ds.table.names import identifier_text

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


def print_orphans(orphans: Sequence[Orphan], console: Console) -> None:
    """Print orphans; without any, print nothing."""
    if not orphans:
        return
    table = Grid(title="files that nothing refers to", title_justify="left", show_header=True, header_style="bold")
    table.add_column("bytes", justify="right")
    table.add_column("age", justify="right")
    table.add_column("")
    table.add_column("file", overflow="fold")
    now_ms = time.time_ns() // 1_000_000
    for orphan in orphans:
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
        referenced: Keys of all files that the table referred to at that time.
        contents: Contents of the table at that time.
        rules: Which files were looked at.
    """

    files: tuple[Orphan, ...]
    too_young: int
    metadata_files: tuple[str, ...]
    listed: Collection[str]
    referenced: Collection[str]
    contents: Contents
    rules: OrphanRules = EVERY_FILE


def find_orphans(
    load: Callable[[], Table],
    known: Contents | None,
    grace_ms: int,
    *,
    by_store_clock: bool,
    rules: OrphanRules = EVERY_FILE,
) -> Orphans:
    """Return the files below a table's locations that nothing refers to.

    Args:
        load: Loads the table anew.
        known: What was read of the table before, or None.
        grace_ms: Lowest age of an orphan, in milliseconds.
        by_store_clock: Whether to ask the store for the time, as before a deletion; else this machine's clock counts.
        rules: Which files are looked at. All of the table's folders are listed, because only that shows other tables.

    Raises:
        NotTriedError: The store cannot be listed or does not tell the time, or the metadata cannot be read completely.
        OptionError: The location of the rules is not within the table's folders.
    """
    forget_links()
    table = load()
    folders = listed_folders(table, rules)
    properties = table.io.properties
    now_ms = now_of_stores_ms(properties, folders, by_store_clock=by_store_clock)
    stored = {rules.key(found.path): found for folder in folders for found in stored_files(properties, folder)}
    before, table = table, load()
    require_same_folders(before.metadata, table.metadata)
    contents = read_contents(table.io, table.metadata, known)
    if (reason := _why_unknown(table, contents)) is not None:
        raise NotTriedError(f"not looked for, because {reason}")
    referenced = referenced_keys(table, contents, rules)
    own = own_folders(table.metadata, rules)
    foreign = folders_of_others(table, stored, rules)
    is_looked_at = rules.is_looked_at()
    candidates = [
        found
        for key, found in stored.items()
        if key not in referenced and is_looked_at(key) and not key.startswith(foreign) and not is_hidden(key, own)
    ]
    # A store's clock is less exact than the times of its files, so that an age could be negative.
    ages = [(max(0, now_ms - found.modified_ms), found) for found in candidates]
    old = sorted((found for age_ms, found in ages if age_ms >= grace_ms), key=lambda found: found.modified_ms)
    return Orphans(
        files=tuple(map(_orphan, old)),
        too_young=len(candidates) - len(old),
        metadata_files=tuple(found.path for found in stored.values() if is_metadata_file(found.path)),
        listed=stored.keys(),
        referenced=referenced,
        contents=contents,
        rules=rules,
    )


def listed_folders(table: Table, rules: OrphanRules) -> list[str]:
    """Return the folders of a table; all have to be listed. A folder that no file was written to yet is left out.

    Raises:
        NotTriedError: One of them cannot be listed.
        OptionError: The location of the rules is not within them.
    """
    folders = table_folders(table.metadata)
    rules.check_location({rules.folder(folder): folder for folder in folders})
    if unlisted := [folder for folder in folders if not can_list(folder)]:
        raise NotTriedError(f"not looked for, because {unlisted[0]} cannot be listed: only {LISTED_PLACES} can be")
    # Files are deleted below the table's location alone: its clock is always asked.
    own = folder_key(table.metadata.location)
    return [folder for folder in folders if own.startswith(folder_key(folder)) or not is_missing(folder)]


def now_of_stores_ms(properties: Mapping[str, str], folders: Iterable[str], *, by_store_clock: bool) -> int:
    """Return the earliest time of all stores, so that no file of any store seems older than it is.

    Raises:
        NotTriedError: A store does not tell the time.
    """
    return min(_now_ms(properties, folder, by_store_clock=by_store_clock) for folder in folders)


def require_same_folders(before: TableMetadata, now: TableMetadata) -> None:
    """Raise NotTriedError if other folders were listed than those of the table now."""
    if (reason := why_other_folders(before, now)) is not None:
        raise NotTriedError(f"not looked for, because {reason}")


def own_folders(metadata: TableMetadata, rules: OrphanRules) -> set[str]:
    """Return the keys of a table's location and of the folders that its properties name."""
    return {rules.folder(folder) for folder in named_folders(metadata)}


def folders_of_others(table: Table, stored: Iterable[str], rules: OrphanRules) -> tuple[str, ...]:
    """Return the keys of the folders below a table's that other tables have, or the checkpoint of a streaming query.

    Args:
        table: The table.
        stored: Keys of the files in its folders, at least of those that tell of others (`orphan_rules.Folder`).
        rules: How keys are made.
    """
    every = list(stored)
    own = own_folders(table.metadata, rules) | {table_root(rules.key(table.metadata_location))}
    return tuple(_other_tables(every, own) | _checkpoints(every))


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


def tell_spellings_apart(orphans: Orphans) -> tuple[Orphan, ...]:
    """Return the orphans that would be deleted: those that may be files of the table stay, or are refused.

    Raises:
        CheckFailedError: A listed file may be a referenced one by another path.
    """
    return tuple(_told_apart(orphans.files, orphans.referenced, orphans))


def delete_orphans(load: Callable[[], Table], orphans: Orphans, at_once: int | None = None) -> tuple[Orphan, ...]:
    """Delete orphans that another load still shows unreferenced; return those, each with whether it was deleted.

    Args:
        load: Loads the table anew.
        orphans: The orphans.
        at_once: How many requests delete files at once; None for one.

    Raises:
        CheckFailedError: Deleting would not be safe; nothing was deleted.
    """
    table, rules = load(), orphans.rules
    if (reason := why_other_folders(orphans.contents.metadata, table.metadata)) is not None:
        raise CheckFailedError(reason, "No file was deleted. Verify the table again.")
    contents = read_contents(table.io, table.metadata, orphans.contents)
    if (reason := _why_unknown(table, contents)) is not None:
        raise CheckFailedError(reason, "No file was deleted. Mend the table first.")
    referenced = referenced_keys(table, contents, rules)
    still = [orphan for orphan in orphans.files if rules.key(orphan.path) not in referenced]
    still = _told_apart(still, referenced, orphans)
    own = rules.folder(table.metadata.location)
    inside = [orphan for orphan in still if rules.key(orphan.path).startswith(own)]
    tell_of_outside(table, len(still) - len(inside))
    mine = [orphan for orphan in inside if has_one_meaning(orphan.path)]
    if mine:
        refuse_shared_files(table, orphans.listed)
        refuse_table_around(table)
        others = what_others_have(table, orphans.metadata_files, has_any_in(referenced))
        may_have = may_be_of_others(others, rules)
        mine = [orphan for orphan in mine if not may_have(orphan.path)]
    paths = (orphan.path for orphan in mine)
    gone = {path for path, is_gone in delete_in_portions(table.io, paths, Proof.UNREFERENCED, at_once) if is_gone}
    return tuple(replace(orphan, deleted=orphan.path in gone) for orphan in still)


def tell_of_outside(table: Table, count: int) -> None:
    """Tell of orphans that stay because they lie outside of the table's location."""
    if count:
        logger.warning(
            "%d orphans of %s lie outside of its location %s and stay, because other tables may have files there: "
            "delete them yourself if none has",
            count,
            identifier_text(table.name()),
            mask_url(table.metadata.location),
        )


def may_be_of_others(others: OfOthers, rules: OrphanRules) -> Callable[[str], bool]:
    """Return a function that says whether the file with a path may belong to others, in any spelling."""
    folders, files = tuple(map(rules.key, others.folders)), frozenset(map(rules.key, others.files))
    return lambda path: (key := rules.key(path)) in files or key.startswith(folders) or others.may_have(file_key(path))


def why_other_folders(before: TableMetadata, now: TableMetadata) -> str | None:
    """Return why other folders were listed than those of the table now, or None if they are the same."""
    if set(map(folder_key, table_folders(before))) == set(map(folder_key, table_folders(now))):
        return None
    return "its folders are others than those that were listed: it was moved, or another table has its name meanwhile"


def referenced_keys(table: Table, contents: Contents, rules: OrphanRules = EVERY_FILE) -> set[str]:
    """Return the keys of all files that a table refers to, in all snapshots."""
    log = (entry.metadata_file for entry in table.metadata.metadata_log)
    return {rules.key(path) for path in (table.metadata_location, *log, *contents.paths())}


def _why_unknown(table: Table, contents: Contents) -> str | None:
    """Return why the files that a table refers to are unknown, or None if they are known."""
    problem = next(contents.every_problem(), None) or why_partial(table)
    return None if problem is None else f"what the table refers to is not known: {problem}"


def _other_tables(stored: Iterable[str], own: Collection[str]) -> set[str]:
    """Return the folders of other tables below a table's folders, as their metadata files show."""
    roots = {table_root(key) for key in stored if is_metadata_file(key)}
    return {root for root in roots if root not in own and any(root.startswith(folder) for folder in own)}


def _checkpoints(stored: Iterable[str]) -> set[str]:
    """Return the folders of checkpoints of Spark's streaming queries; each has the query's id in a file `metadata`."""
    return {key.removesuffix("metadata") for key in stored if basename(key) == "metadata"}


def _told_apart(files: Iterable[Orphan], referenced: Collection[str], orphans: Orphans) -> list[Orphan]:
    """Return the files that are no referenced ones by another path.

    That is a path that differs only in its scheme or authority, where the rules say what becomes of the file; or one
    with the name of a file that was not listed by its own path: files were moved, or their folder has two names that
    nothing shows to be one. Names of files are unique.

    Raises:
        CheckFailedError: A file may be a referenced one.
    """
    rules = orphans.rules
    elsewhere = {within_store(key): key for key in referenced}
    unlisted = {basename(key): key for key in referenced if key not in orphans.listed}
    kept = []
    for orphan in files:
        key = rules.key(orphan.path)
        other = elsewhere.get(within_store(key))
        if other is not None and rules.mismatch != "error":
            kept += [orphan] if rules.mismatch == "delete" else []
            continue
        if (other := other or unlisted.get(basename(key))) is not None:
            raise maybe_the_same(orphan.path, other)
        kept.append(orphan)
    return kept


def maybe_the_same(path: str, other: str) -> CheckFailedError:
    """Return the error for a listed file that may be one that the table refers to by another path."""
    return CheckFailedError(
        f"{path} was listed, and the table refers to {other}: it may be the same file",
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
