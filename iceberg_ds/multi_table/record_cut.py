"""Records a consistent cut: which snapshots of several tables belong together, for readers that read all of them.

Where tables are committed one after the other, a reader may find an epoch in some tables and not yet in the rest. So,
once all tables of an epoch have their rows, the sink tags the epoch's snapshot in each of them, and then records the
cut: for each table that any epoch so far has written, the snapshot that has the rows of all epochs up to this one. If
the last cut is not that of the epoch before, tables without rows in this one may have got some since: they are asked.
One that cannot be asked, because it is away, has no snapshot in the cut until a later one can.

The cut stands in a table of its own, which option `consistent-cut` names: one partition for each writer, with a row for
each table. The record is an ordinary numbered write that replaces this partition. So it is one commit, which readers
see whole or not at all; a repeated epoch records it once; and an epoch before the last one, or that of a second driver,
is refused like any other write of that kind. A table property would not do: catalogs change properties without the
condition that they still are what the writer has read, so that a slow driver could set an older cut in place of a newer
one. And a tag alone does not tell which tables belong to an epoch.

The tags record nothing. They keep the snapshots of the last cuts from expiring.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.commit.commit import commit_write, has_number, report_replay
from iceberg_ds.commit.retry import Pace, RetryPolicy
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.errors import CommitConflictError, IcebergSinkError, TableNotFoundError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.messages import TaskCommit
from iceberg_ds.multi_table.cut_table import (
    COLUMNS,
    OPTION,
    ROWS,
    WRITER,
    CutWriter,
    WriterKind,
    place_of,
    read_cuts,
    refuse_other_writer,
)
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import DynamicOverwrite, StreamName, WriteIdentity
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory, branch_head, branch_snapshot_id
from iceberg_ds.snapshots.txn import TxnMarker, find_last_marker, find_markers, find_stream, kind_of, next_record
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.spec_parser import parse_partition_by
from iceberg_ds.writers.loose import on_driver
from iceberg_ds.writers.reporting import report_task

Row: TypeAlias = Mapping[str, object]
# The rows of a cut by the names of their tables.
Rows: TypeAlias = Mapping[str, Row]
# Returns the snapshot of a table that belongs to a cut, beside its row of the last cut; or None.
Find: TypeAlias = Callable[[TableMetadata, Row], int | None]

logger = logging.getLogger(__name__)

# Tags of a writer that each table keeps: that of the epoch which is being recorded, that of the last cut, and one more
# for readers that have just asked for a cut.
KEPT_TAGS = 3

_FOR_EVER_MS = 2**63 - 1  # else a table property could let tags expire
_LONGEST_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def refuse_rows_without_cut(catalog: CatalogClient, options: SinkOptions, writes: Iterable[TableWrite]) -> None:
    """Refuse an epoch, before anything of it is committed, whose rows no cut would have.

    Args:
        catalog: The catalog of all tables.
        options: The options of the write, with `consistent-cut`.
        writes: What tasks have written for the epoch.

    Raises:
        CommitConflictError: The cut of this epoch, or of a later one, is recorded, and a table lacks the epoch; or the
            cuts are those of another query.
        CatalogError: The catalog could not be reached.
    """
    due = [write.commits[0].write for write in writes if any(map(_has_changes, write.commits))]
    cuts = catalog.find_table(place_of(options)) if due else None
    if cuts is None:
        return
    first, name = due[0], identifier_text(cuts.name())
    numbered, stream, metadata = first.numbered, first.stream, cuts.metadata
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    if stream is not None and _is_displaced(metadata, stream, numbered.writer):
        raise CommitConflictError(
            f"Cannot commit {numbered} of stream '{stream.name}', nothing was committed: {name} has the cuts of "
            "another query, and a new checkpoint is not accepted, or was before. Restore the checkpoint of that query; "
            "or set accept-new-checkpoint=true, which counts again once that query has committed without it; or name "
            f"another table in option '{OPTION}'."
        )
    marker = _marker(metadata, first, MAIN_BRANCH)
    if marker is None or marker.number < numbered.number:
        return
    if lacking := [write.table for write in due if not has_number(catalog, write)]:
        raise CommitConflictError(
            f"Cannot commit {numbered}, nothing was committed: {name} has the cut of number {marker.number} already, "
            f"so {', '.join(lacking)} would get rows that no cut has. A number stands for one set of tables. Repeat it "
            "with the tables that it had; and write others with a higher number, or all in one transaction."
        )


def _is_displaced(cuts: TableMetadata, stream: StreamName, query_id: str) -> bool:
    """Return whether the cuts of a stream are those of another query, in whose place this one may not come."""
    return next_record(find_stream(cuts, MAIN_BRANCH, stream.name), stream, query_id) is None


def _has_changes(commit: TaskCommit) -> bool:
    return bool(commit.counts.to_add or commit.delete_files or commit.rows is not None)


def record_cut(
    catalog: CatalogClient, options: SinkOptions, writes: Sequence[WriteIdentity], *, is_repeated: bool = False
) -> None:
    """Tag the snapshots of an epoch in all of its tables, which have it, and record the cut.

    Does nothing if the cut of this epoch, or of a later one, is recorded.

    Args:
        catalog: The catalog of all tables.
        options: The options of the write, with `consistent-cut`.
        writes: The writes of the epoch that have put rows into their tables, in this run or in an earlier one; for
            none, there is nothing to record.
        is_repeated: Whether a table had its rows by an earlier run, which may have written further tables, too.

    Raises:
        IcebergSinkError: The cut was not recorded, and a repeated epoch goes on with it. The error has the type of its
            cause, and says that the rows have landed.
    """
    if not writes:
        return
    try:
        _record(catalog, options, writes, is_repeated=is_repeated)
    except IcebergSinkError as failure:
        raise type(failure)(
            f"The rows of {writes[0].numbered} have landed in all tables, but their cut was not recorded in "
            f"{identifier_text(place_of(options))}. Run this again: it goes on with the cut, and writes no row twice. "
            f"The cause: {failure}"
        ) from failure


def _record(
    catalog: CatalogClient, options: SinkOptions, writes: Sequence[WriteIdentity], *, is_repeated: bool
) -> None:
    place, first = place_of(options), writes[0]
    numbered, writer = first.numbered, CutWriter.of(first)
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    marker: TxnMarker | None = None
    known: Rows = {}
    cuts = catalog.find_table(place)
    if cuts is not None:
        marker = _marker(cuts.metadata, first, MAIN_BRANCH)
        if marker is not None and marker.number >= numbered.number:
            logger.info("The cut of %s is recorded in %s", numbered, identifier_text(place))
            report_replay(catalog, numbered, identifier_text(place), cuts, marker, stream=first.stream)
            return
        # Planning has refused it before any row was written, but knew no stream without a name, nor who came since.
        refuse_other_writer(catalog, cuts, writer)
        known = {row["table_name"]: row for row in read_cuts(catalog, cuts, writer.app_id).to_pylist()}
    fault_point(FaultPoint.CUT_BEGUN)
    found = _tag_written(catalog, known, writes)
    if found is None:
        return
    if cuts is not None:
        others = found.keys() - {write.table for write in writes}
        if marker is not None and marker.number == numbered.number - 1 and not is_repeated:
            others = {name for name in others if found[name]["snapshot_id"] is None}
        branch = options.branch or MAIN_BRANCH
        find = partial(_left_out, cuts=cuts.metadata, branch=branch, write=first)
        found = {**found, **{name: _tag_left_out(catalog, found[name], first, branch, find) for name in sorted(others)}}
    rows = [{**row, WRITER: writer.app_id, "epoch": numbered.number} for _, row in sorted(found.items())]
    plan = plan_write(
        catalog,
        _options_of_cut(options, place, first),
        COLUMNS,
        WriteMode.OVERWRITE,
        is_stream=first.epoch is not None,
        table=cuts,
    ).in_epoch(first.epoch)
    plan = replace(plan, write=replace(plan.write, overwrite=_of_what_was_read(cuts)))
    commit = report_task(plan, [pa.RecordBatch.from_pylist(rows, schema=ROWS)], on_driver())
    commit_write(catalog, [commit], epoch_id=None if first.epoch is None else first.epoch.epoch_id)
    logger.info("Recorded the cut of %s over %d tables in %s", numbered, len(rows), identifier_text(place))


def _of_what_was_read(cuts: Table | None) -> DynamicOverwrite:
    """Return what the record replaces: a cut that others have recorded since the rows were read is a conflict.

    Args:
        cuts: The table of cuts as its rows were read; None if there was none, so that any cut there is a conflict.
    """
    base_id = None if cuts is None else branch_snapshot_id(cuts.metadata, MAIN_BRANCH)
    return DynamicOverwrite(isolation_level="serializable", base_snapshot_id=base_id)


def _tag_written(catalog: CatalogClient, rows: Rows, writes: Sequence[WriteIdentity]) -> Rows | None:
    """Tag the snapshots of an epoch, and return the rows of the cut with them; None if a table has a later epoch.

    Raises:
        CommitConflictError: A table no longer has its snapshot.
    """
    for write in sorted(writes, key=lambda write: write.table):
        table, snapshot_id = _with_epoch(catalog, write)
        if snapshot_id is None:
            logger.info("%s has a later epoch than %s, whose cut is left out", write.table, write.numbered)
            return None
        tagged = _tag_epoch(catalog, table, write, snapshot_id)
        rows = _with_row(rows, write.table, table.metadata, tagged)
        fault_point(FaultPoint.CUT_TAGGED)
    return rows


def _tag_epoch(catalog: CatalogClient, table: Table, write: WriteIdentity, snapshot_id: int) -> int:
    """Tag the snapshot of an epoch, and return it; or the newest one, if it has expired since the table was loaded."""
    tagged = snapshot_id

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        nonlocal tagged
        tagged = _or_newest(metadata, _shown(write), snapshot_id) or snapshot_id
        return tag_request(metadata, snapshot_id=tagged, write=write)

    alter_table(catalog, parse_identifier(write.table), propose, loaded=table)
    return tagged


def _with_epoch(catalog: CatalogClient, write: WriteIdentity) -> tuple[Table, int | None]:
    """Return a table that an epoch has just written and the snapshot with its rows; None if it has a later epoch.

    A catalog may answer from an older state, so a table that shows nothing of the epoch is asked again.

    Raises:
        CommitConflictError: The table does not have the epoch.
        TableNotFoundError: It is gone.
    """
    numbered, branch, pace = write.numbered, _shown(write), Pace()
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    while True:
        is_exhausted = pace.begin_attempt()
        try:
            table = catalog.load_table(parse_identifier(write.table))
        except TableNotFoundError as gone:
            problem: IcebergSinkError = gone
        else:
            metadata = table.metadata
            pace.policy = RetryPolicy.of(metadata.properties)
            markers = find_markers(BranchHistory(metadata, branch), kind_of(numbered), numbered.writer)
            last, stray = markers.last, markers.stray
            if last is not None and last.number > numbered.number:  # an old version runs again, or a second driver
                return table, None
            if last is not None and last.number == numbered.number:
                return table, _or_newest(metadata, branch, last.snapshot_id)
            problem = CommitConflictError(
                f"{write.table} does not have the rows of {numbered} any more: somebody has rolled branch '{branch}' "
                "back, or replaced the table. Set it to a snapshot that has them."
            )
            is_exhausted |= stray is not None and stray.marker.number >= numbered.number  # it shows that it had them
        if is_exhausted:
            raise problem
        pace.wait_after(problem)


def _tag_left_out(catalog: CatalogClient, row: Row, write: WriteIdentity, branch: str, find: Find) -> Row:
    """Tag what a table without rows in this epoch has of earlier ones, and return its row of the cut.

    Such an epoch was written without the option, or died before its cut. The row has no snapshot if the table is away,
    or another one has its name: it may have got epochs before that. Or if it was rolled back to before such an epoch.
    Readers of it are told, and the next cut asks again.

    The tag is set, or set again as it is, under the condition that the branch still stands where it was seen: else a
    catalog that answers from an older state would hide an epoch.
    """
    untold: Row = {**row, "snapshot_id": None}
    told: Row | None = None  # once the catalog has confirmed the condition
    seen: tuple[str, int] | None = None

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        nonlocal seen
        if told is not None and seen is not None:
            return tag_request(metadata, snapshot_id=seen[1], write=write)
        snapshot_id = find(metadata, row)
        if snapshot_id is None:
            return None
        seen = str(metadata.table_uuid), snapshot_id
        return tag_request(metadata, snapshot_id=snapshot_id, write=write, if_at=branch)

    def hear(_: TableMetadata, failure: Exception | None) -> None:
        nonlocal told
        if failure is None and seen is not None:
            told = {**row, "table_uuid": seen[0], "snapshot_id": seen[1]}

    with suppress(TableNotFoundError):
        alter_table(catalog, parse_identifier(str(row["table_name"])), propose, hear=hear)
    return told or untold


def _with_row(rows: Rows, table: str, metadata: TableMetadata, snapshot_id: int) -> Rows:
    """Return the rows of a cut with that of a table, in place of the row under an earlier name of it."""
    uuid = str(metadata.table_uuid)
    others = {name: row for name, row in rows.items() if row["table_uuid"] != uuid}
    return {**others, table: {"table_name": table, "table_uuid": uuid, "snapshot_id": snapshot_id}}


def tag_prefix(writer: CutWriter) -> str:
    """Return how the names of a writer's tags begin; the number of the epoch or version follows."""
    safe = _UNSAFE.sub("_", writer.app_id)
    if safe != writer.app_id or len(safe) > _LONGEST_NAME:
        # Two names must not share tags because they differ in what is left out.
        safe = f"{safe[:_LONGEST_NAME]}-{hashlib.blake2b(writer.app_id.encode(), digest_size=4).hexdigest()}"
    # A stream and an application may have one name, each with a table of cuts of its own.
    return f"{safe}-{'version' if writer.kind is WriterKind.APPLICATION else 'epoch'}-"


def tag_request(
    metadata: TableMetadata, *, snapshot_id: int, write: WriteIdentity, if_at: str | None = None
) -> CommitRequest | None:
    """Return the request that tags a snapshot and drops the writer's oldest tags, or None for no change.

    Args:
        metadata: The table.
        snapshot_id: The snapshot.
        write: A write of the epoch whose cut is being recorded.
        if_at: A branch that must stand where `metadata` shows it. The request is then due even if it changes nothing.
    """
    if write.numbered is None:
        return None
    prefix = tag_prefix(CutWriter.of(write))
    tags = {
        name: ref.snapshot_id
        for name, ref in metadata.refs.items()
        if _is_ours(ref) and re.fullmatch(re.escape(prefix) + r"\d+(-\d+)?", name)
    }
    own = next((name for name, tagged in tags.items() if tagged == snapshot_id), f"{prefix}{write.numbered.number}")
    if own in metadata.refs and tags.get(own) != snapshot_id:
        # Of a user, or of the last cut: a new checkpoint of a named stream begins with 0 again.
        own = f"{own}-{snapshot_id}"
    # Not by their numbers, which begin with 0 again under a new checkpoint.
    others = sorted(tags.keys() - {own}, key=lambda name: _age(metadata, tags[name]), reverse=True)
    dropped = others[KEPT_TAGS - 1 :]
    if tags.get(own) == snapshot_id and not dropped and if_at is None:
        return None
    conditions = {own: tags.get(own), **{name: tags[name] for name in dropped}}
    if if_at is not None:
        conditions[if_at] = branch_snapshot_id(metadata, if_at)
    setting = SetSnapshotRefUpdate(
        ref_name=own,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=_FOR_EVER_MS,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            *(AssertRefSnapshotId(ref=name, snapshot_id=found) for name, found in conditions.items()),
        ),
        updates=(setting, *(RemoveSnapshotRefUpdate(ref_name=name) for name in dropped)),
    )


def _is_ours(ref: SnapshotRef) -> bool:
    """Return whether a tag is one of this sink: other tools and users set no such age."""
    return ref.snapshot_ref_type is SnapshotRefType.TAG and ref.max_ref_age_ms == _FOR_EVER_MS


def _age(metadata: TableMetadata, snapshot_id: int) -> tuple[int, int]:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    return (0, 0) if snapshot is None else (snapshot.sequence_number or 0, snapshot.timestamp_ms)


def _left_out(
    metadata: TableMetadata, row: Row, *, cuts: TableMetadata, branch: str, write: WriteIdentity
) -> int | None:
    """Return the snapshot with all epochs of a table up to that of `write`: that of its row if the last cut has them.

    None if the row has no snapshot of this table, and no epoch of the writer is in it; or if the branch lacks one that
    it had, because somebody has rolled it back.
    """
    numbered, writer = write.numbered, CutWriter.of(write)
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    told = next((one.snapshot_id for one in metadata.snapshots if one.snapshot_id == row["snapshot_id"]), None)
    query_id = writer.id_in(metadata, branch)  # maybe of an earlier checkpoint
    if query_id is None:
        return told
    last = writer.last_marker(metadata, branch, of=numbered.writer, up_to=numbered.number)
    marker = None if last is None else last[1]
    stray = find_markers(BranchHistory(metadata, branch), writer.markers, query_id).stray
    lost = None if stray is None else stray.marker
    if lost is not None and query_id == numbered.writer and lost.number > numbered.number:
        lost = None
    recorded = find_last_marker(cuts, MAIN_BRANCH, writer.markers, query_id)
    in_cut = -1 if recorded is None else recorded.number
    if told is not None and all(one is None or one.number <= in_cut for one in (marker, lost)):
        return told
    return None if marker is None or lost is not None else _or_newest(metadata, branch, marker.snapshot_id)


def _or_newest(metadata: TableMetadata, branch: str, snapshot_id: int) -> int | None:
    """Return the snapshot of an epoch.

    If it has expired before it was tagged, the newest one of the branch takes its place. It has no rows of later
    epochs: none begins before the cut of this one is recorded.
    """
    if metadata.snapshot_by_id(snapshot_id) is not None:
        return snapshot_id
    head = branch_head(metadata, branch)
    return None if head is None else head.snapshot_id


def _shown(write: WriteIdentity) -> str:
    """Return the branch that readers are to use."""
    return write.route.publish_to or write.branch


def _marker(metadata: TableMetadata, write: WriteIdentity, branch: str) -> TxnMarker | None:
    numbered = write.numbered
    return None if numbered is None else find_last_marker(metadata, branch, kind_of(numbered), numbered.writer)


def _options_of_cut(options: SinkOptions, place: tuple[str, ...], write: WriteIdentity) -> SinkOptions:
    return replace(
        options.beside(place, write.txn),
        stream_name=None if write.stream is None else write.stream.name,
        accept_new_checkpoint=options.accept_new_checkpoint,
        overwrite_mode="dynamic",
        partition_by=parse_partition_by(WRITER),
    )
