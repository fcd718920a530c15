"""The checks that deal with files that nothing refers to: found, and deleted if that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from iceberg_ds.catalogs.client import CatalogClient
from iceberg_ds.checks.checklist import CheckFailedError, Checklist
from iceberg_ds.verification.contents import Contents
from iceberg_ds.verification.findings import counted
from iceberg_ds.verification.orphans import Orphans, delete_orphans, find_orphans
from iceberg_ds.verification.result import Orphan

ORPHANS, DELETION = "orphans", "deletion of orphans"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanWish:
    """What is to be done about orphans.

    Attributes:
        grace_ms: How old a file must be to be one.
        delete: Whether to delete them.
    """

    grace_ms: int
    delete: bool


def check_orphans(
    checklist: Checklist, catalog: CatalogClient, identifier: Sequence[str], known: Contents, wish: OrphanWish
) -> tuple[Orphan, ...]:
    """Look for orphans, delete them if that is asked for, and return them."""

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
