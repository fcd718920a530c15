"""`remove_orphan_files`: deletes the files in a table's folders that nothing refers to, with the proof of `verify`.

In this process, or on Spark (`orphans_on_spark`), where the files and their paths stay with the tasks.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.inspect.checklist import CheckFailedError, NotTriedError
from iceberg_ds.inspect.contents import counted
from iceberg_ds.inspect.orphan_rules import OrphanRules, PrefixMismatchMode, refused
from iceberg_ds.inspect.orphans import (
    DEFAULT_GRACE,
    LOWEST_SAFE_GRACE,
    Orphan,
    delete_orphans,
    find_orphans,
    parse_grace_ms,
    tell_spellings_apart,
)
from iceberg_ds.maintenance.arguments import checked_at_once, older_than_ms
from iceberg_ds.maintenance.places_on_spark import session_for
from iceberg_ds.maintenance.reports import reported
from iceberg_ds.options.arguments import FLAG, TEXT, ArgumentType, require_types
from iceberg_ds.options.parse import options_of_call, parse_call
from iceberg_ds.spark.task_job import active_session
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_ACTION = "remove orphan files"
# The most files that a result with `stream_results` names, as with Spark's procedure.
MOST_SAMPLES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFilesResult:
    """What `remove_orphan_files` found and deleted.

    Attributes:
        table: Identifier of the table.
        orphan_files: The files that nothing refers to and that are old enough, the oldest first, each with whether it
            was deleted; with `stream_results` 20,000 of them at most, in any order.
        orphan_files_count: Number of these files, whether named or not.
        orphan_files_bytes: Bytes of these files.
        deleted_files_count: How many files were deleted.
        too_young: Number of files that nothing refers to and that are younger: a running write may have them.
        dry_run: Whether nothing was deleted.
        seconds: Seconds from start to end.
    """

    table: str
    orphan_files: tuple[Orphan, ...] = ()
    orphan_files_count: int = 0
    orphan_files_bytes: int = 0
    deleted_files_count: int = 0
    too_young: int = 0
    dry_run: bool = False
    seconds: float = 0.0

    @property
    def left_files_count(self) -> int:
        """How many files nothing refers to and could not, or should not, be deleted."""
        return self.orphan_files_count - self.deleted_files_count

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps({**asdict(self), "left_files_count": self.left_files_count}, indent=2)

    def __str__(self) -> str:
        found = f"{counted(self.orphan_files_count, 'file')} with {self.orphan_files_bytes:,} bytes"
        young = f" {counted(self.too_young, 'file')} more are too young to tell." if self.too_young else ""
        if not self.orphan_files_count:
            return f"No orphan files of {self.table}.{young}"
        if self.dry_run:
            return f"Nothing refers to {found} of {self.table}.{young}"
        left = f" {self.left_files_count:,} are left, see the log." if self.left_files_count else ""
        return f"Deleted {self.deleted_files_count:,} of {found} of {self.table}; {self.seconds:.1f} s.{left}{young}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The arguments of a call.

    Attributes:
        grace_ms: Lowest age of an orphan, in milliseconds.
        rules: Which files are looked at.
        dry_run: Whether nothing is deleted.
        at_once: How many requests delete files at once; None for one.
        samples: How many files the result names at most; None for all.
    """

    grace_ms: int
    rules: OrphanRules
    dry_run: bool = False
    at_once: int | None = None
    samples: int | None = None

    def result(self, table: str, files: Iterable[Orphan], too_young: int) -> OrphanFilesResult:
        """Return the result of a call that found these files, which are taken one by one."""
        count = size = deleted = 0

        def told() -> Iterable[Orphan]:
            nonlocal count, size, deleted
            for orphan in files:
                count, size, deleted = count + 1, size + orphan.size_bytes, deleted + orphan.deleted
                yield orphan

        every = iter(told())
        named = tuple(islice(every, self.samples))
        for _ in every:  # they are deleted as they are taken
            pass
        return OrphanFilesResult(
            table=table,
            orphan_files=named,
            orphan_files_count=count,
            orphan_files_bytes=size,
            deleted_files_count=deleted,
            too_young=too_young,
            dry_run=self.dry_run,
        )


def remove_orphan_files(  # noqa: PLR0913  # the parameters of Spark's procedure
    table: str,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    older_than: datetime | int | str = DEFAULT_GRACE,
    location: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    file_list: DataFrame | str | None = None,
    equal_schemes: Mapping[str, str] | None = None,
    equal_authorities: Mapping[str, str] | None = None,
    prefix_mismatch_mode: PrefixMismatchMode = "error",
    max_concurrent_deletes: int | None = None,
    stream_results: bool = False,
) -> OrphanFilesResult:
    """Delete the files below a table's locations that no snapshot, branch, tag or metadata file refers to.

    Such files are left by writes that were killed. Two loads of the table have to show that nothing refers to a file,
    and files that another table or catalog may have stay, as with `verify(..., delete_orphans=True)`.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: The session whose executors list files, read manifests and compare them; None for this process, or, if
            the table has half a million files or more, for the active session.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no options.
        older_than: Files that were changed before this time go: a time with a time zone, milliseconds since the Unix
            epoch, an age such as `3d`, `36h`, `90 minutes`, or `now`.
        location: A folder within the table's: only files below it go. None for all folders of the table.
        dry_run: Delete nothing, and return the orphans: those that would be deleted, and those outside of the table's
            location, which stay because other tables may have files there.
        force: Whether nothing writes to the table now, so that files younger than 24 hours may be deleted.
        file_list: A DataFrame with the columns `file_path` (string) and `last_modified` (timestamp), or the name of a
            table or view of Spark, that names the files in place of a listing, such as an inventory of S3. Each file
            that would go is looked up before, so that old rows cost nothing. None to list files.
        equal_schemes: Schemes that are one, such as `{"s3a,s3n": "s3"}`, beside those that always are.
        equal_authorities: Authorities that are one, such as `{"nameservice1,nn1:8020": "nameservice1"}`.
        prefix_mismatch_mode: What becomes of a file whose path is that of a file of the table but for scheme or
            authority: `error` refuses and deletes nothing, `ignore` lets it stay, `delete` takes it for an orphan.
        max_concurrent_deletes: How many requests delete files at once; None for one.
        stream_results: Name 20,000 of the files at most in the result, so that it does not grow with their number.

    Returns:
        The files that were found, and which of them were deleted.

    Raises:
        OptionError: The options or arguments are malformed, or younger files would be deleted without `force`.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: It cannot be told for certain which files are orphans; nothing was deleted.
        DataFileError: A job of Spark failed; nothing was deleted.
        CatalogError: The catalog could not be reached or refused; nothing was deleted.
    """
    require_types(
        _ACTION,
        location=(location, TEXT),
        dry_run=(dry_run, FLAG),
        force=(force, FLAG),
        stream_results=(stream_results, FLAG),
    )
    parsed = parse_call(_ACTION, options_of_call(table, options))
    name = identifier_text(parsed.table)
    now_ms = time.time_ns() // 1_000_000
    grace_ms = now_ms - older_than_ms(_ACTION, older_than, now_ms)
    if not (force or dry_run) and grace_ms < parse_grace_ms(LOWEST_SAFE_GRACE):
        raise OptionError(
            f"Cannot {_ACTION} of {name} that are younger than {LOWEST_SAFE_GRACE}: a write "
            "that still runs may have them. Give an older time, or force it if nothing writes to the table now."
        )
    started = time.monotonic()
    wish = Wish(
        grace_ms=max(grace_ms, 0),
        rules=OrphanRules.of(location, equal_schemes, equal_authorities, prefix_mismatch_mode),
        dry_run=dry_run,
        at_once=checked_at_once(_ACTION, max_concurrent_deletes),
        samples=MOST_SAMPLES if stream_results else None,
    )
    files = _inventory(spark, file_list)
    catalog = connect_to_existing(parsed)
    with catalog.hiding_secrets(), reported(catalog.reporting, "remove_orphan_files", name) as note:
        if not catalog.holds_branches:
            raise UnsupportedTableError(
                f"Cannot {_ACTION} of {name}: other branches of this catalog may refer to files that this one does "
                "not. Let the catalog's own clean-up (Nessie's GC) do it."
            )

        def load() -> Table:
            return catalog.load_table(parsed.table)

        try:
            if (
                session := session_for(spark, lambda: load().metadata) if files is None else files.sparkSession
            ) is None:
                result = _removed(name, load, wish)
            else:
                result = _removed_on(session, catalog, parsed.table, wish, files)
        except CheckFailedError as problem:
            raise UnsupportedTableError(f"Cannot {_ACTION} of {name}: {problem}. {problem.next_step}") from problem
        except NotTriedError as problem:
            raise UnsupportedTableError(f"Cannot {_ACTION} of {name}: {problem}. No file was deleted.") from problem
        result = note(replace(result, seconds=time.monotonic() - started))
    logger.info("%s", result)
    return result


def _removed(name: str, load: Callable[[], Table], wish: Wish) -> OrphanFilesResult:
    orphans = find_orphans(load, None, wish.grace_ms, by_store_clock=True, rules=wish.rules)
    if wish.dry_run:
        files = tell_spellings_apart(orphans)
    else:
        files = delete_orphans(load, orphans, wish.at_once) if orphans.files else ()
    return wish.result(name, files, orphans.too_young)


def _removed_on(
    spark: SparkSession, catalog: CatalogClient, table: tuple[str, ...], wish: Wish, file_list: DataFrame | None
) -> OrphanFilesResult:
    from iceberg_ds.maintenance.orphans_on_spark import OrphanSearch, OrphansOnSpark  # noqa: PLC0415  # needs Spark

    search = OrphanSearch(
        grace_ms=wish.grace_ms,
        rules=wish.rules,
        at_once=wish.at_once,
        streams=wish.samples is not None,
        file_list=file_list,
    )
    orphans = OrphansOnSpark(spark, catalog, table, search)
    files = orphans.found() if wish.dry_run else orphans.delete()
    result = wish.result(identifier_text(table), files, 0)
    if wish.samples is None:
        result = replace(result, orphan_files=tuple(sorted(result.orphan_files, key=lambda one: one.modified_ms)))
    return replace(result, too_young=orphans.too_young)


def _inventory(spark: SparkSession | None, file_list: DataFrame | str | None) -> DataFrame | None:
    """Return an inventory as a DataFrame of its own columns, or None if none is given.

    Raises:
        OptionError: It is neither, there is no such table or view, or it has other columns.
    """
    if file_list is None:
        return None
    from pyspark.sql import DataFrame  # noqa: PLC0415  # as above

    from iceberg_ds.maintenance.orphans_on_spark import inventory_of  # noqa: PLC0415

    kind = ArgumentType(DataFrame | str, "a DataFrame, or the name of a table or view")
    require_types(_ACTION, file_list=(file_list, kind))

    if not isinstance(file_list, str):
        return inventory_of(file_list)
    if (session := spark or active_session()) is None:
        raise refused(f"file_list is '{file_list}', and no session of Spark is given or active that has it")
    try:
        files = session.table(file_list)
        files.dtypes  # noqa: B018  # Spark Connect looks for it only now
    except Exception as error:  # Spark's own
        raise refused(f"file_list is '{file_list}', which Spark does not find: {str(error).splitlines()[0]}") from error
    return inventory_of(files)
