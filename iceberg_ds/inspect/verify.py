"""`verify`: proves a table intact, from its catalog entry down to its files, and finds files that nothing refers to.

It writes nothing, and deletes nothing unless asked to. A check that depends on a failed one is skipped, and says so;
everything that could be read is checked.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.inspect.catalog_checks import check_growth
from iceberg_ds.inspect.checklist import Checklist, CheckResult, CheckWarnedError, NotTriedError
from iceberg_ds.inspect.contents import Contents, ListedFile, counted, found, read_contents
from iceberg_ds.inspect.data_files import Look, kind, look_at, metadata_problems, metric_problems, statistics_problems
from iceberg_ds.inspect.lineage_checks import UNIQUE_ROW_IDS, check_row_ids, check_unique_row_ids
from iceberg_ds.inspect.metadata_checks import (
    continuity_problems,
    default_problems,
    expired_parents,
    history_problems,
    manifest_problems,
    number_problems,
    partition_problems,
    repeated_files,
    summary_problems,
)
from iceberg_ds.inspect.orphans import (
    DEFAULT_GRACE,
    Orphan,
    OrphanWish,
    check_orphans,
    parse_grace_ms,
    require_safe_grace,
)
from iceberg_ds.inspect.streams import (
    branch_writes,
    marker_problems,
    missing_epochs,
    order_problems,
    property_markers,
    unrecorded_markers,
)
from iceberg_ds.inspect.unique_keys import check_unique_keys
from iceberg_ds.inspect.vector_checks import HIDDEN, VECTORS, check_vectors
from iceberg_ds.options.arguments import AGE, FLAG, require_types
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.snapshots.growth import timed
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.names import identifier_text

TABLE = "table"
HISTORY, DEFAULTS, METADATA_FILES = "history", "default values", "metadata files"
EPOCHS, GAPS, MARKERS, LASTING = "epochs", "gaps between epochs", "epoch markers", "lasting markers"
MANIFESTS, REPEATED, NUMBERS, PARTITIONS = "manifests", "each file once", "sequence numbers", "partitions"
SUMMARIES, CARRIED, STATISTICS = "summaries", "rows carried over", "statistics files"

_ROLL_BACK = "Roll back to a snapshot that is whole, or restore the file from a backup of the store."
_REPORT = "Find out who committed it before anyone writes again. A snapshot before it is whole."
FILES, ROWS, METRICS = "data files", "row counts", "metrics"
_NOT_DEEP = "not asked for: `deep` reads all rows"
# The largest number of times that a table is read, if its snapshots expire while it is read.
_LOOKS = 3


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long reading the table took.

    Attributes:
        load_ms: Milliseconds for loading its metadata.
        contents_s: Seconds for reading its manifest lists and manifests.
    """

    load_ms: float
    contents_s: float


def check_metadata(
    checklist: Checklist, table: Table, contents: Contents, *, load: Callable[[], Table], took: Durations
) -> None:
    """Make the checks that do not look at data files.

    Args:
        checklist: Gets the checks.
        table: The table.
        contents: Its manifest lists and manifests.
        load: Loads the table anew.
        took: How long reading the table and its contents took.
    """
    metadata = table.metadata
    snapshots = counted(len(metadata.snapshots), "snapshot")

    def history() -> tuple[str, None]:
        expired = expired_parents(metadata)
        known = f", {expired:,} with an expired parent" if expired else ""
        return found(
            history_problems(metadata),
            f"{snapshots}{known}; branches, tags, log and ids fit",
            "Set the branch to a snapshot that is there, or register the last metadata file that is sound.",
        )

    checklist.attempt(HISTORY, history)
    if metadata.format_version >= VERSION_3:
        checklist.attempt(DEFAULTS, lambda: _defaults(metadata))
    check_growth(checklist, table, MAIN_BRANCH, took.load_ms)
    checklist.attempt(METADATA_FILES, lambda: _metadata_files(table, load))
    checklist.attempt(EPOCHS, lambda: _epochs(table), needs=[HISTORY])
    checklist.attempt(GAPS, lambda: _gaps(table), needs=[HISTORY])
    checklist.attempt(MARKERS, lambda: _markers(table), needs=[HISTORY])
    checklist.attempt(LASTING, lambda: _lasting(table), needs=[HISTORY])
    _check_manifests(checklist, contents, took.contents_s)
    checklist.attempt(STATISTICS, lambda: _statistics(table))


def _defaults(metadata: TableMetadata) -> tuple[str, None]:
    return found(
        default_problems(metadata),
        "each is a value of its column",
        "Reads of the column fail, and so do rewrites of files without it: read other columns by 'columns', and let "
        "an engine drop it, or drop it and add it again with a value of its type.",
    )


def _metadata_files(table: Table, load: Callable[[], Table]) -> tuple[str, None]:
    count = len(table.metadata.metadata_log) + 1
    return found(metadata_problems(table, load), f"found {counted(count, 'metadata file')} of the log", _ROLL_BACK)


def _epochs(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    writers = {writer for branch in branches for writer in branch.writers}
    if not writers and not any(branch.unreadable for branch in branches):
        raise NotTriedError("no snapshot that is left was written by a streaming query or numbered batch")
    snapshots = {landed.snapshot_id for branch in branches for landed in branch.writes}
    where = f"{counted(len(writers), 'query')} on {counted(len(branches), 'branch')}"
    return found(
        order_problems(branches),
        f"each once and in order: {counted(len(snapshots), 'epoch')} of {where}",
        "Stop the query and compare with its source: rows of a repeated epoch are there twice.",
    )


def _gaps(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    if not any(writer.leaves_no_gap for branch in branches for writer in branch.writers):
        raise NotTriedError("no snapshot that is left was written by a streaming query")
    if missing := missing_epochs(branches):
        more = f"; and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckWarnedError(
            f"{missing[0]}{more}: an epoch without rows commits nothing, so it was empty or it is lost",
            "If the source gives rows to every epoch of the query, compare its rows with the table.",
        )
    return "every epoch has a snapshot", None


def _markers(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    markers, unreadable = property_markers(table.metadata, branches)
    if not markers and not unreadable and not any(branch.writes for branch in branches):
        raise NotTriedError("no streaming query and no numbered batch has left a marker")
    return found(
        [*unreadable, *marker_problems(table.metadata, branches)],
        f"compared with the summaries: {counted(len(markers), 'marker')}",
        "If the branch was rolled back on purpose, drop the property before the query goes on. Otherwise find out who "
        "rolled it back.",
    )


def _lasting(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    if not any(landed.is_own for branch in branches for landed in branch.writes):
        raise NotTriedError("no snapshot that is left was written by a streaming query or numbered batch of this sink")
    if unrecorded := unrecorded_markers(table.metadata, branches):
        more = f"; and {len(unrecorded) - 1} more" if len(unrecorded) > 1 else ""
        raise CheckWarnedError(
            f"only snapshots record that {unrecorded[0]}{more}: once they expire, a write that is repeated would be "
            "added again",
            "Let the writer commit to the branch once more before its snapshots expire, or drop the branch.",
        )
    return "the last write of each writer is recorded in a table property, which expiry does not remove", None


def _check_manifests(checklist: Checklist, contents: Contents, reading_s: float) -> None:
    manifests = counted(len(contents.manifests), "manifest")
    lists = counted(len(contents.lists), "manifest list")
    entries = sum(len(manifest.entries) for manifest in contents.manifests.values())
    listed = f"{counted(entries, 'entry')} of {manifests}"
    checklist.attempt(
        MANIFESTS,
        lambda: found(manifest_problems(contents), f"found {lists} and {manifests}, as recorded", _ROLL_BACK),
    )
    checklist.checks[-1] = replace(checklist.checks[-1], seconds=round(checklist.checks[-1].seconds + reading_s, 3))
    checklist.attempt(REPEATED, lambda: found(repeated_files(contents), f"no file is there twice: {listed}", _REPORT))
    checklist.attempt(NUMBERS, lambda: found(number_problems(contents), f"in order: {listed}", _REPORT))
    checklist.attempt(
        PARTITIONS, lambda: found(partition_problems(contents), f"of the types of their specs: {listed}", _REPORT)
    )
    checklist.attempt(SUMMARIES, lambda: _summaries(contents))
    checklist.attempt(
        CARRIED,
        lambda: found(
            continuity_problems(contents),
            "each snapshot has what its parent had, plus what it adds, minus what it drops",
            "The commit of that snapshot lost or doubled rows: find out who made it. Its parent is whole.",
        ),
        needs=[HISTORY],
    )


def _summaries(contents: Contents) -> tuple[str, None]:
    checked = contents.read_snapshots()
    left = len(contents.metadata.snapshots) - len(checked)
    rest = f"; {counted(left, 'snapshot')} not checked, because manifests cannot be read" if left else ""
    return found(
        summary_problems(contents),
        f"as manifests list: totals of {counted(len(checked), 'snapshot')}{rest}",
        "Reads are not affected, but later totals build on these: find out who committed it.",
    )


def _statistics(table: Table) -> tuple[str, None]:
    count = len(table.metadata.statistics) + len(table.metadata.partition_statistics)
    if not count:
        raise NotTriedError("the table has none")
    return found(
        statistics_problems(table),
        f"found {counted(count, 'file')}, as recorded",
        "Compute the statistics again. Readers work without them.",
    )


def check_files(checklist: Checklist, table: Table, contents: Contents, *, deep: bool, all_snapshots: bool) -> None:
    """Make the checks that look at data files and delete files.

    Args:
        checklist: Gets the checks.
        table: The table.
        contents: Its manifest lists and manifests.
        deep: Whether to recompute metrics from the rows, and to compare the row ids of all rows.
        all_snapshots: Whether to look at the files of all snapshots, not only at those of branches and tags.
    """
    scope = None if all_snapshots else {ref.snapshot_id for ref in table.metadata.refs.values()}
    files = contents.live_files(scope)
    looks: list[Look] = []

    def present() -> tuple[str, None]:
        looks.extend(look_at(table.io, _once(files)))
        return found(
            (look.problem for look in looks if look.problem is not None),
            f"found {counted(len(looks), 'file')} of {_scope_text(contents, scope)}, as long as recorded",
            "Restore the file from a backup of the store, or roll back to a snapshot that does not have it.",
        )

    checklist.attempt(FILES, present)
    checklist.attempt(ROWS, lambda: _rows(looks))
    if deep:
        sound = {look.file.path: look.file for look in looks if look.rows is not None}
        checklist.attempt(METRICS, lambda: _metrics(table, contents, sound))
    else:
        checklist.skip(METRICS, _NOT_DEEP)
    if table.metadata.format_version >= VERSION_3:
        check_vectors(checklist, table.io, contents, scope, {look.file.path for look in looks if look.problem is None})
        check_row_ids(checklist, table.io, contents, scope)
        if deep:
            check_unique_row_ids(checklist, table, needs=[MANIFESTS, FILES, ROWS, VECTORS, HIDDEN])
        else:
            checklist.skip(UNIQUE_ROW_IDS, _NOT_DEEP)


def _once(files: Iterable[ListedFile]) -> list[ListedFile]:
    return list({file.path: file for file in files}.values())


def _scope_text(contents: Contents, scope: Collection[int] | None) -> str:
    return counted(len(contents.metadata.snapshots if scope is None else scope), "snapshot")


def _rows(looks: Iterable[Look]) -> tuple[str, None]:
    read = [look for look in looks if look.problem is None]
    other = Counter(_why_not(look.file) for look in read if look.rows is None and look.rows_problem is None)
    rest = "".join(f"; {counted(count, what)} not counted" for what, count in other.items())
    counts = [look for look in read if look.rows is not None]
    wrong = [
        f"{kind(look.file)} {look.file.path} holds {look.rows:,} rows, its recorded count is {look.file.record_count:,}"
        for look in counts
        if look.is_miscounted
    ]
    unreadable = [look.rows_problem for look in read if look.rows_problem is not None]
    return found(
        [*unreadable, *wrong],
        f"as footers count them: rows of {counted(len(counts), 'file')}{rest}",
        "Totals and skipped files may be wrong: find out what wrote the file, and write its rows again.",
    )


def _why_not(file: ListedFile) -> str:
    return "encrypted file" if file.is_encrypted else f"{file.file_format.value} file"


def _metrics(table: Table, contents: Contents, sound: dict[str, ListedFile]) -> tuple[str, None]:
    if not sound:
        raise NotTriedError("there is no Parquet file to read")
    return found(
        metric_problems(table.io, contents, sound),
        f"true of the rows: metrics of {counted(len(sound), 'file')}",
        "Readers skip files by these metrics and may miss rows. Write the file's rows again.",
    )


def verify(  # noqa: PLR0913  # one parameter for each choice of the user
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    deep: bool = False,
    unique_keys: bool = False,
    all_snapshots: bool = False,
    orphans: bool = True,
    older_than: str = DEFAULT_GRACE,
    delete_orphans: bool = False,
    force: bool = False,
) -> VerifyResult:
    """Prove a table intact, no matter which engine wrote it.

    It checks the history; the epochs of streaming queries and their transaction markers; manifest lists and manifests
    of all snapshots, with their counts, sequence numbers and partitions; the summaries; statistics; and that the data
    and delete files of all branches and tags exist, with the recorded size and row count (read from their footers). Of
    tables of format version 3 it checks deletion vectors and row ids, too.

    Args:
        table: Identifier of the table, such as `db.events`.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no
            options.
        deep: Also read all rows, and recompute the metrics of each file. In tables of format version 3, find row ids
            that several rows have, in the snapshots that branches and tags point at.
        unique_keys: Also read the key columns of all visible rows, and find keys that have several rows: in the
            snapshots that branches and tags point at, by the table's identifier fields.
        all_snapshots: Look at the files of all snapshots, not only of those that branches and tags point at.
        orphans: Look for files that nothing refers to; they fail no check.
        older_than: Age from which such a file is an orphan: a number with `s`, `m`, `h` or `d`, such as `36h` or `3d`.
        delete_orphans: Delete orphans, after another load of the table has confirmed that nothing refers to them.
        force: Also delete orphans that are younger than 24 hours; safe only if nothing writes to the table.

    Returns:
        What each check found, and the orphans. A check that fails is in `failures` and raises nothing.

    Raises:
        OptionError: The options or arguments are malformed, name another table, or ask to delete files that a running
            write may need.
    """
    require_types(
        "verify the table",
        deep=(deep, FLAG),
        unique_keys=(unique_keys, FLAG),
        all_snapshots=(all_snapshots, FLAG),
        orphans=(orphans, FLAG),
        delete_orphans=(delete_orphans, FLAG),
        force=(force, FLAG),
        older_than=(older_than, AGE),
    )
    grace_ms = parse_grace_ms(older_than)
    if delete_orphans:
        require_safe_grace(older_than, force=force)
    given = options_of_call(table, options)
    parsed = parse_options(given)
    scope = Scope(
        deep=deep,
        unique_keys=unique_keys,
        all_snapshots=all_snapshots,
        orphans=orphans or delete_orphans,
        grace_ms=grace_ms,
        delete_orphans=delete_orphans,
    )
    gone: tuple[Orphan, ...] = ()
    for look in range(1, _LOOKS + 1):
        checklist = Checklist.for_options(given, threading.TIMEOUT_MAX)
        catalog, contents, found = _verify(checklist, parsed, scope)
        found = (*gone, *found)
        gone = tuple(orphan for orphan in found if orphan.deleted)
        if look == _LOOKS or not _has_expired(catalog, parsed, contents, checklist):
            break
    return VerifyResult(table=identifier_text(parsed.table), checks=tuple(checklist.checks), orphans=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The arguments of `verify` that say what to check, under the same names."""

    deep: bool
    unique_keys: bool
    all_snapshots: bool
    orphans: bool
    grace_ms: int
    delete_orphans: bool


def _verify(
    checklist: Checklist, options: SinkOptions, scope: Scope
) -> tuple[CatalogClient | None, Contents | None, tuple[Orphan, ...]]:
    def load() -> tuple[str, tuple[CatalogClient, Table, float]]:
        catalog = connect_to_existing(options).reading_anew()
        table, load_ms = timed(lambda: catalog.load_table(options.table))
        return _described(table), (catalog, table, load_ms)

    loaded = checklist.attempt(TABLE, load)
    if loaded is None:
        return None, None, ()
    catalog, table, load_ms = loaded
    checklist.secrets.update(table.io.properties)
    started = time.monotonic()
    contents = read_contents(table.io, table.metadata)
    took = Durations(load_ms=load_ms, contents_s=time.monotonic() - started)
    check_metadata(checklist, table, contents, load=lambda: catalog.load_table(options.table), took=took)
    check_files(checklist, table, contents, deep=scope.deep, all_snapshots=scope.all_snapshots)
    if scope.unique_keys:
        check_unique_keys(checklist, table)
    if not scope.orphans:
        return catalog, contents, ()
    wish = OrphanWish(grace_ms=scope.grace_ms, delete=scope.delete_orphans)
    return catalog, contents, check_orphans(checklist, catalog, options.table, contents, wish)


def _described(table: Table) -> str:
    metadata = table.metadata
    return (
        f"version {metadata.format_version}, {counted(len(metadata.snapshots), 'snapshot')}, "
        f"{counted(len(metadata.refs), 'ref')}, at {metadata.location}"
    )


def _has_expired(
    catalog: CatalogClient | None, options: SinkOptions, contents: Contents | None, checklist: Checklist
) -> bool:
    """Return whether a check failed and some of the checked snapshots have expired meanwhile."""
    if catalog is None or contents is None or all(check.outcome != "failed" for check in checklist.checks):
        return False
    try:
        table = catalog.find_table(options.table)
    except IcebergSinkError:  # the result stays as it is
        return False
    present = {snapshot.snapshot_id for snapshot in table.metadata.snapshots} if table is not None else set()
    return any(snapshot.snapshot_id not in present for snapshot in contents.metadata.snapshots)
