"""The checks of a table's metadata: history, epochs, manifests, summaries, statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from iceberg_ds.checks.checklist import Checklist, CheckWarnedError, NotTriedError
from iceberg_ds.checks.growth import check_growth
from iceberg_ds.snapshots.branches import MAIN_BRANCH
from iceberg_ds.verification.contents import Contents
from iceberg_ds.verification.findings import counted, found
from iceberg_ds.verification.history import expired_parents, history_problems
from iceberg_ds.verification.listings import manifest_problems, number_problems, partition_problems, repeated_files
from iceberg_ds.verification.stored import metadata_problems, statistics_problems
from iceberg_ds.verification.streams import (
    branch_writes,
    mark_problems,
    missing_epochs,
    order_problems,
    property_marks,
    unrecorded_marks,
)
from iceberg_ds.verification.summaries import continuity_problems, summary_problems

TABLE = "table"
HISTORY, METADATA_FILES = "history", "metadata files"
EPOCHS, GAPS, MARKS, LASTING = "epochs", "gaps between epochs", "epoch marks", "lasting marks"
MANIFESTS, REPEATED, NUMBERS, PARTITIONS = "manifests", "each file once", "sequence numbers", "partitions"
SUMMARIES, CARRIED, STATISTICS = "summaries", "rows carried over", "statistics files"

_ROLL_BACK = "Roll back to a snapshot that is whole, or restore the file from a backup of the store."
_REPORT = "Find out who committed it before anyone writes again; a snapshot before it is whole."


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long it took to read what is checked.

    Attributes:
        load_ms: Milliseconds of loading the table.
        contents_s: Seconds of reading what it lists.
    """

    load_ms: float
    contents_s: float


def check_metadata(
    checklist: Checklist, table: Table, contents: Contents, *, load: Callable[[], Table], took: Durations
) -> None:
    """Make the checks that need no look at data files.

    Args:
        checklist: Takes what is found.
        table: The table.
        contents: What it lists.
        load: Loads the table afresh.
        took: How long it took to read the two.
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
    check_growth(checklist, table, MAIN_BRANCH, took.load_ms)
    checklist.attempt(METADATA_FILES, lambda: _metadata_files(table, load))
    checklist.attempt(EPOCHS, lambda: _epochs(table), needs=[HISTORY])
    checklist.attempt(GAPS, lambda: _gaps(table), needs=[HISTORY])
    checklist.attempt(MARKS, lambda: _marks(table), needs=[HISTORY])
    checklist.attempt(LASTING, lambda: _lasting(table), needs=[HISTORY])
    _check_manifests(checklist, contents, took.contents_s)
    checklist.attempt(STATISTICS, lambda: _statistics(table))


def _metadata_files(table: Table, load: Callable[[], Table]) -> tuple[str, None]:
    count = len(table.metadata.metadata_log) + 1
    return found(metadata_problems(table, load), f"found {counted(count, 'metadata file')} of the log", _ROLL_BACK)


def _epochs(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    writers = {writer for branch in branches for writer in branch.writers}
    if not writers and not any(branch.unreadable for branch in branches):
        raise NotTriedError("no streaming query and no numbered batch has written, as far as history goes")
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
        raise NotTriedError("no streaming query has written, as far as history goes")
    if missing := missing_epochs(branches):
        more = f"; and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckWarnedError(
            f"{missing[0]}{more}: without rows an epoch commits nothing, so that it had none, or is lost",
            "Compare with the source of the query, if it gives rows to each of its epochs.",
        )
    return "every epoch has a snapshot", None


def _marks(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    marks, unreadable = property_marks(table.metadata, branches)
    if not marks and not unreadable and not any(branch.writes for branch in branches):
        raise NotTriedError("no streaming query and no numbered batch has left a mark")
    return found(
        [*unreadable, *mark_problems(table.metadata, branches)],
        f"compared with the summaries: {counted(len(marks), 'mark')}",
        "If the branch was rolled back on purpose, drop the property before the query goes on; else find out who did.",
    )


def _lasting(table: Table) -> tuple[str, None]:
    branches = branch_writes(table.metadata)
    if not any(landed.is_own for branch in branches for landed in branch.writes):
        raise NotTriedError("no streaming query and no numbered batch of this sink has written, as far as history goes")
    if unrecorded := unrecorded_marks(table.metadata, branches):
        more = f"; and {len(unrecorded) - 1} more" if len(unrecorded) > 1 else ""
        raise CheckWarnedError(
            f"history alone knows that {unrecorded[0]}{more}: once it expires, that write would be added again",
            "Let the writer commit to the branch once more before its snapshots expire, or drop the branch.",
        )
    return "each last write is recorded where expiry does not reach it", None


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
            "what each snapshot has is what its parent had, with what it adds and without what it drops",
            "Rows were lost or doubled by the commit of that snapshot: find out who made it; its parent is whole.",
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
        "Readers are not misled, but later totals build on these: find out who committed it.",
    )


def _statistics(table: Table) -> tuple[str, None]:
    count = len(table.metadata.statistics) + len(table.metadata.partition_statistics)
    if not count:
        raise NotTriedError("the table has none")
    return found(
        statistics_problems(table),
        f"found {counted(count, 'file')}, as recorded",
        "Compute the statistics again: readers do without them.",
    )
