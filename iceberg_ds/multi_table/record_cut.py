"""Records a consistent cut: which snapshots of several tables belong together, for readers that read all of them.

Where tables are committed one after the other, a reader may find an epoch in some tables and not yet in the others. So,
once all tables of an epoch have their rows, the sink tags the epoch's snapshot in each of them, and then records the
cut: for each table that any epoch so far has written, the snapshot that has the rows of all epochs up to this one. If
the last cut is not that of the epoch before, tables without rows in this one may have got some since: they are asked.

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
from functools import partial
from typing import TypeAlias

import pyarrow as pa
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
from iceberg_ds.commit.commit import commit_write, report_replay
from iceberg_ds.errors import CommitConflictError, IcebergSinkError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.multi_table.cut_table import COLUMNS, ROWS, WRITER, CutWriter, place_of, read_cuts, refuse_other_writer
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head
from iceberg_ds.snapshots.txn import TxnMarker, find_last_marker, kind_of
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.spec_parser import parse_partition_by
from iceberg_ds.writers.loose import ON_DRIVER
from iceberg_ds.writers.reporting import report_task

# Returns the snapshot of a table that belongs to a cut, or None.
Find: TypeAlias = Callable[[TableMetadata], int | None]
# The rows of a cut by the names of their tables.
Rows: TypeAlias = Mapping[str, Mapping[str, object]]

logger = logging.getLogger(__name__)

# Tags of a writer that each table keeps: that of the epoch which is being recorded, that of the last cut, and one more
# for readers that have just asked for a cut.
KEPT_TAGS = 3

_FOR_EVER_MS = 2**63 - 1  # else a table property could let tags expire
_LONGEST_NAME = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def record_cut(catalog: CatalogClient, options: SinkOptions, writes: Sequence[WriteIdentity]) -> None:
    """Tag the snapshots of an epoch in all of its tables, which have it, and record the cut.

    Does nothing if the cut of this epoch, or of a later one, is recorded.

    Args:
        catalog: The catalog of all tables.
        options: The options of the write, with `consistent-cut`.
        writes: The writes of the epoch that have put rows into their tables, in this run or in an earlier one; for
            none, there is nothing to record.

    Raises:
        IcebergSinkError: The cut was not recorded, and a repeated epoch goes on with it. The error has the type of its
            cause, and says that the rows have landed.
    """
    if not writes:
        return
    try:
        _record(catalog, options, writes)
    except IcebergSinkError as failure:
        raise type(failure)(
            f"The rows of {writes[0].numbered} have landed in all tables, but their cut was not recorded in "
            f"{identifier_text(place_of(options))}. Run this again: it goes on with the cut, and writes no row twice. "
            f"The cause: {failure}"
        ) from failure


def _record(catalog: CatalogClient, options: SinkOptions, writes: Sequence[WriteIdentity]) -> None:
    place, first = place_of(options), writes[0]
    numbered, writer = first.numbered, CutWriter.of(first)
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    marker: TxnMarker | None = None
    cuts = catalog.find_table(place)
    if cuts is not None:
        marker = _marker(cuts.metadata, first, MAIN_BRANCH)
        if marker is not None and marker.number >= numbered.number:
            logger.info("The cut of %s is recorded in %s", numbered, identifier_text(place))
            report_replay(catalog, first, identifier_text(place), cuts, marker)
            return
        refuse_other_writer(catalog, cuts, writer)
    fault_point(FaultPoint.CUT_BEGUN)
    known: Rows = {}
    if cuts is not None:
        known = {row["table_name"]: row for row in read_cuts(catalog, cuts, writer.app_id).to_pylist()}
    found = _tag_written(catalog, known, writes)
    if found is None:
        return
    if cuts is not None and (marker is None or marker.number != numbered.number - 1):
        others = found.keys() - {write.table for write in writes}
        branch = options.branch or MAIN_BRANCH
        found = _tag_left_out(
            catalog, found, others, first, partial(_left_out, cuts=cuts.metadata, branch=branch, write=first)
        )
    rows = [{**row, WRITER: writer.app_id, "epoch": numbered.number} for _, row in sorted(found.items())]
    plan = plan_write(
        catalog,
        _options_of_cut(options, place, first),
        COLUMNS,
        WriteMode.OVERWRITE,
        is_stream=first.epoch is not None,
    ).in_epoch(first.epoch)
    commit = report_task(plan, [pa.RecordBatch.from_pylist(rows, schema=ROWS)], ON_DRIVER)
    commit_write(catalog, [commit], epoch_id=None if first.epoch is None else first.epoch.epoch_id)
    logger.info("Recorded the cut of %s over %d tables in %s", numbered, len(rows), identifier_text(place))


def _tag_written(catalog: CatalogClient, rows: Rows, writes: Sequence[WriteIdentity]) -> Rows | None:
    """Tag the snapshots of an epoch, and return the rows of the cut with them; None if a table has a later epoch.

    Raises:
        CommitConflictError: A table no longer has its snapshot.
    """
    for write in sorted(writes, key=lambda write: write.table):
        find = partial(_snapshot_of, write=write)
        metadata = _tag(catalog, write.table, find, write)
        if _has_gone_on(metadata, write):
            logger.info("%s has a later epoch than %s, whose cut is left out", write.table, write.numbered)
            return None
        if (snapshot_id := find(metadata)) is None:
            raise CommitConflictError(
                f"{write.table} does not have the rows of {write.numbered} any more: somebody has rolled branch "
                f"'{_shown(write)}' back, or replaced the table. Set it to a snapshot that has them."
            )
        rows = _with_row(rows, write.table, metadata, snapshot_id)
        fault_point(FaultPoint.CUT_TAGGED)
    return rows


def _tag_left_out(catalog: CatalogClient, rows: Rows, tables: Iterable[str], write: WriteIdentity, find: Find) -> Rows:
    """Tag the snapshots of epochs that have no cut, and return the rows of the cut with them.

    Such an epoch was written without the option, or died before its cut.
    """
    for table in sorted(tables):
        if catalog.find_table(parse_identifier(table)) is None:
            continue  # readers of its row are told
        metadata = _tag(catalog, table, find, write)
        if (snapshot_id := find(metadata)) is not None:
            rows = _with_row(rows, table, metadata, snapshot_id)
    return rows


def _with_row(rows: Rows, table: str, metadata: TableMetadata, snapshot_id: int) -> Rows:
    """Return the rows of a cut with that of a table, in place of the row under an earlier name of it."""
    uuid = str(metadata.table_uuid)
    others = {name: row for name, row in rows.items() if row["table_uuid"] != uuid}
    return {**others, table: {"table_name": table, "table_uuid": uuid, "snapshot_id": snapshot_id}}


def _tag(catalog: CatalogClient, table: str, find: Find, write: WriteIdentity) -> TableMetadata:
    """Tag the snapshot of a table for the cut of a write's epoch, and return the table as it is then."""
    return alter_table(catalog, parse_identifier(table), partial(tag_request, find=find, write=write)).metadata


def tag_prefix(app_id: str) -> str:
    """Return how the names of a writer's tags begin; the number of the epoch follows."""
    safe = _UNSAFE.sub("_", app_id)
    if safe != app_id or len(safe) > _LONGEST_NAME:
        # Two names must not share tags because they differ in what is left out.
        safe = f"{safe[:_LONGEST_NAME]}-{hashlib.blake2b(app_id.encode(), digest_size=4).hexdigest()}"
    return f"{safe}-epoch-"


def tag_request(metadata: TableMetadata, *, find: Find, write: WriteIdentity) -> CommitRequest | None:
    """Return the request that tags a snapshot and drops the writer's oldest tags, or None for no change.

    Args:
        metadata: The table.
        find: Returns the snapshot; None if there is none to tag.
        write: A write of the epoch whose cut is being recorded.
    """
    snapshot_id = find(metadata)
    if snapshot_id is None or write.numbered is None:
        return None
    prefix = tag_prefix(CutWriter.of(write).app_id)
    tags = {
        name: ref.snapshot_id
        for name, ref in metadata.refs.items()
        if _is_ours(ref) and re.fullmatch(re.escape(prefix) + r"\d+(-\d+)?", name)
    }
    own = f"{prefix}{write.numbered.number}"
    if own in metadata.refs and tags.get(own) != snapshot_id:
        # Of a user, or of the last cut: a new checkpoint of a named stream begins with 0 again.
        own = f"{own}-{snapshot_id}"
    # Not by their numbers, which begin with 0 again under a new checkpoint.
    others = sorted(tags.keys() - {own}, key=lambda name: _age(metadata, tags[name]), reverse=True)
    dropped = others[KEPT_TAGS - 1 :]
    is_set = tags.get(own) == snapshot_id
    if is_set and not dropped:
        return None
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
            AssertRefSnapshotId(ref=own, snapshot_id=tags.get(own)),
            *(AssertRefSnapshotId(ref=name, snapshot_id=tags[name]) for name in dropped),
        ),
        updates=(
            *(() if is_set else (setting,)),
            *(RemoveSnapshotRefUpdate(ref_name=name) for name in dropped),
        ),
    )


def _is_ours(ref: SnapshotRef) -> bool:
    """Return whether a tag is one of this sink: other tools and users set no such age."""
    return ref.snapshot_ref_type is SnapshotRefType.TAG and ref.max_ref_age_ms == _FOR_EVER_MS


def _age(metadata: TableMetadata, snapshot_id: int) -> tuple[int, int]:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    return (0, 0) if snapshot is None else (snapshot.sequence_number or 0, snapshot.timestamp_ms)


def _snapshot_of(metadata: TableMetadata, write: WriteIdentity) -> int | None:
    """Return the snapshot with an epoch's rows; None if the branch does not have it."""
    branch = _shown(write)
    marker = _marker(metadata, write, branch)
    if marker is None or write.numbered is None or marker.number != write.numbered.number:
        return None
    return _snapshot_at(metadata, branch, marker)


def _left_out(metadata: TableMetadata, *, cuts: TableMetadata, branch: str, write: WriteIdentity) -> int | None:
    """Return the snapshot of the newest epoch of a table, up to that of `write`; None if the last cut has it."""
    numbered, writer = write.numbered, CutWriter.of(write)
    assert numbered is not None  # noqa: S101  # checked by `refuse_unfit_cut`
    last = writer.last_marker(metadata, branch, of=numbered.writer, up_to=numbered.number)
    if last is None:
        return None
    query_id, marker = last  # maybe of an earlier checkpoint
    recorded = find_last_marker(cuts, MAIN_BRANCH, writer.markers, query_id)
    is_in_cut = recorded is not None and recorded.number >= marker.number
    return None if is_in_cut else _snapshot_at(metadata, branch, marker)


def _snapshot_at(metadata: TableMetadata, branch: str, marker: TxnMarker) -> int | None:
    """Return the snapshot of an epoch.

    If it has expired before it was tagged, the newest one of the branch takes its place. It has no rows of later
    epochs: none begins before the cut of this one is recorded.
    """
    if metadata.snapshot_by_id(marker.snapshot_id) is not None:
        return marker.snapshot_id
    head = branch_head(metadata, branch)
    return None if head is None else head.snapshot_id


def _has_gone_on(metadata: TableMetadata, write: WriteIdentity) -> bool:
    """Return whether the table has a later epoch of this writer: an old version runs again, or a second driver."""
    marker = _marker(metadata, write, _shown(write))
    return marker is not None and write.numbered is not None and marker.number > write.numbered.number


def _shown(write: WriteIdentity) -> str:
    """Return the branch that readers are to use."""
    return write.route.publish_to or write.branch


def _marker(metadata: TableMetadata, write: WriteIdentity, branch: str) -> TxnMarker | None:
    numbered = write.numbered
    return None if numbered is None else find_last_marker(metadata, branch, kind_of(numbered), numbered.writer)


def _options_of_cut(options: SinkOptions, place: tuple[str, ...], write: WriteIdentity) -> SinkOptions:
    return SinkOptions(
        table=place,
        catalog=options.catalog,
        catalog_properties=options.catalog_properties,
        warehouse=options.warehouse,
        txn_app_id=None if write.txn is None else write.txn.app_id,
        txn_version=None if write.txn is None else write.txn.version,
        stream_name=None if write.stream is None else write.stream.name,
        accept_new_checkpoint=options.accept_new_checkpoint,
        overwrite_mode="dynamic",
        partition_by=parse_partition_by(WRITER),
        metrics_file=options.metrics_file,
        metrics_reporter=options.metrics_reporter,
        snapshot_metrics=options.snapshot_metrics,
    )
