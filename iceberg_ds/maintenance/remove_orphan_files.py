"""`remove_orphan_files`: deletes the files in a table's folders that nothing refers to, with the proof of `verify`."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from pyiceberg.table import Table

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.inspect.checklist import CheckFailedError, NotTriedError
from iceberg_ds.inspect.contents import counted, read_contents
from iceberg_ds.inspect.orphans import (
    DEFAULT_GRACE,
    LOWEST_SAFE_GRACE,
    Orphan,
    delete_orphans,
    find_orphans,
    parse_grace_ms,
)
from iceberg_ds.maintenance.times import older_than_ms
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.table.names import identifier_text

logger = logging.getLogger(__name__)

_ACTION = "remove orphan files"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFilesResult:
    """What `remove_orphan_files` found and deleted.

    Attributes:
        table: Identifier of the table.
        orphan_files: The files that nothing refers to and that are old enough, the oldest first, each with whether it
            was deleted.
        too_young: Number of files that nothing refers to and that are younger: a running write may have them.
        dry_run: Whether nothing was deleted.
        seconds: Seconds from start to end.
    """

    table: str
    orphan_files: tuple[Orphan, ...] = ()
    too_young: int = 0
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def deleted_files_count(self) -> int:
        """How many files were deleted."""
        return sum(orphan.deleted for orphan in self.orphan_files)

    @property
    def left_files_count(self) -> int:
        """How many files nothing refers to and could not, or should not, be deleted."""
        return len(self.orphan_files) - self.deleted_files_count

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        counts = {"deleted_files_count": self.deleted_files_count, "left_files_count": self.left_files_count}
        return json.dumps({**asdict(self), **counts}, indent=2)

    def __str__(self) -> str:
        size = sum(orphan.size_bytes for orphan in self.orphan_files)
        found = f"{counted(len(self.orphan_files), 'file')} with {size:,} bytes"
        young = f" {counted(self.too_young, 'file')} more are too young to tell." if self.too_young else ""
        if not self.orphan_files:
            return f"No orphan files of {self.table}.{young}"
        if self.dry_run:
            return f"Nothing refers to {found} of {self.table}.{young}"
        left = f" {self.left_files_count:,} are left, see the log." if self.left_files_count else ""
        return f"Deleted {self.deleted_files_count:,} of {found} of {self.table}; {self.seconds:.1f} s.{left}{young}"


def remove_orphan_files(
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    older_than: datetime | int | str = DEFAULT_GRACE,
    dry_run: bool = False,
    force: bool = False,
) -> OrphanFilesResult:
    """Delete the files below a table's locations that no snapshot, branch, tag or metadata file refers to.

    Such files are left by writes that were killed. Two loads of the table have to show that nothing refers to a file,
    and files that another table or catalog may have stay, as with `verify(..., delete_orphans=True)`.

    Args:
        table: Identifier of the table, such as `db.events`.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no options.
        older_than: Files that were changed before this time go: a time with a time zone, milliseconds since the Unix
            epoch, an age such as `3d`, `36h`, `90 minutes`, or `now`.
        dry_run: Delete nothing, and return what would be deleted.
        force: Whether nothing writes to the table now, so that files younger than 24 hours may be deleted.

    Returns:
        The files that were found, and which of them were deleted.

    Raises:
        OptionError: The options or arguments are malformed, or younger files would be deleted without `force`.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: It cannot be told for certain which files are orphans; nothing was deleted.
        CatalogError: The catalog could not be reached or refused; nothing was deleted.
    """
    parsed = parse_options(options_of_call(table, options))
    now_ms = time.time_ns() // 1_000_000
    grace_ms = now_ms - older_than_ms(_ACTION, older_than, now_ms)
    if not (force or dry_run) and grace_ms < parse_grace_ms(LOWEST_SAFE_GRACE):
        raise OptionError(
            f"Cannot {_ACTION} of {identifier_text(parsed.table)} that are younger than {LOWEST_SAFE_GRACE}: a write "
            "that still runs may have them. Give an older time, or force it if nothing writes to the table now."
        )
    started = time.monotonic()
    catalog = connect(catalog_settings(parsed), parsed.reports)
    name = identifier_text(parsed.table)
    with catalog.hiding_secrets():
        if not catalog.holds_branches:
            raise UnsupportedTableError(
                f"Cannot {_ACTION} of {name}: other branches of this catalog may refer to files that this one does "
                "not. Let the catalog's own clean-up (Nessie's GC) do it."
            )

        def load() -> Table:
            return catalog.load_table(parsed.table)

        try:
            loaded = load()
            known = read_contents(loaded.io, loaded.metadata)
            orphans = find_orphans(load, known, max(grace_ms, 0), by_store_clock=True)
            found = orphans.files if dry_run or not orphans.files else delete_orphans(load, orphans)
        except CheckFailedError as problem:
            raise UnsupportedTableError(f"Cannot {_ACTION} of {name}: {problem}. {problem.next_step}") from problem
        except NotTriedError as problem:
            raise UnsupportedTableError(f"Cannot {_ACTION} of {name}: {problem}. No file was deleted.") from problem
    result = OrphanFilesResult(
        table=name,
        orphan_files=found,
        too_young=orphans.too_young,
        dry_run=dry_run,
        seconds=time.monotonic() - started,
    )
    logger.info("%s", result)
    return result
