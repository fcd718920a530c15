"""Commits what the tasks of a write into several tables report: each table of the epoch, exactly once.

Every message is checked as that of a write of one table is. Rows that tasks could not write, because their table or a
column of it is new, are planned and written here before anything is committed: as one task of a write of its own, or as
one more of the write that has the others, so that all that holds for a task holds here.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.cdc.dedup import decode_key_report, encode_key_report
from iceberg_ds.commit.commit import abort_write, exceeded_limit
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite, giving_up
from iceberg_ds.errors import RefusedRowsError
from iceberg_ds.messages import (
    BadRows,
    LooseRows,
    RowCounts,
    TablesCommit,
    TaskCommit,
    check_rows,
    check_tables,
    complete_messages,
)
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.multi_table.plan import fitting
from iceberg_ds.multi_table.record_cut import record_cut, refuse_rows_without_cut
from iceberg_ds.options.routes import RouteOptions
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import EpochId, TaskKeys, WriteIdentity
from iceberg_ds.planning.columns import columns_named, columns_there
from iceberg_ds.planning.decide import txn_of, unrouted_rows
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.planning.quarantine import UnroutedRows, commit_with_quarantines
from iceberg_ds.spark.session_settings import in_zone_of_option
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.routes import allowed
from iceberg_ds.writers.loose import batches_of, on_driver
from iceberg_ds.writers.reporting import report_task

logger = logging.getLogger(__name__)


@waiting_once()
def commit_routed(
    catalog: CatalogClient, options: RouteOptions, messages: Sequence[object], *, epoch_id: int | None = None
) -> list[CommitResult]:
    """Commit what the tasks of one write into several tables report.

    Args:
        catalog: The catalog of the tables.
        options: The options of the write.
        messages: What Spark hands to `commit`: a message per task.
        epoch_id: The micro-batch that Spark commits; None for a batch write.

    Raises:
        CommitMessageError: Messages are missing or contradict each other; nothing was committed.
        RefusedRowsError: Rows name no table that may be written; nothing was committed.
        IcebergSinkError: As `plan_write` for new tables, with nothing committed; or as `commit_tables`.
    """
    commits = complete_messages(messages, epoch_id=epoch_id)
    written = {table: TableWrite(commits=found) for table, found in _by_table(commits).items()}
    mode = WriteMode.OVERWRITE if commits[0].is_overwrite else WriteMode.APPEND
    with giving_up(catalog, written.values()):
        _check_refused(commits, options)
        unrouted = _unrouted(commits, options)
        for commit in commits:
            check_tables(commit)
        for table, parts in _loose(commits).items():
            own = options.of(table)
            there = catalog.find_table(own.table)
            columns, batches = _filled(own, parts, there, is_picked=table.lower() in options.columns)
            own = fitting(own, columns)
            if table in written:
                sent = written[table].commits
                all_sent = _with_more(sent, _one_more(catalog, own, sent, columns, batches, there=there))
            else:
                epoch = commits[0].epoch
                all_sent = [_plan_and_write(catalog, own, columns, batches, there, mode=mode, epoch=epoch)]
            written[table] = TableWrite(commits=all_sent)
        if options.of_all.consistent_cut is not None:
            refuse_rows_without_cut(catalog, options.of_all, written.values())
    writes = [written[table] for table in sorted(written)]
    if not writes and not (unrouted and unrouted.rows):
        logger.info("Nothing to add to any table of route-by=%s", options.column)
    results = commit_with_quarantines(catalog, writes, options.of, unrouted=unrouted, epoch_id=epoch_id)
    if options.of_all.consistent_cut is not None:
        landed = [
            write.commits[0].write
            for write, result in zip(writes, results, strict=True)
            if result.was_replayed or result.snapshot_id is not None
        ]
        record_cut(catalog, options.of_all, landed, is_repeated=any(result.was_replayed for result in results))
    return results


def abort_routed(catalog: CatalogClient, messages: Sequence[object]) -> None:
    """Delete the reported files of every table if it is certain that no commit began; else leave and log them.

    Raises:
        CatalogError: The catalog could not be reached; nothing more was deleted.
    """
    commits = [message for message in messages if isinstance(message, TablesCommit)]
    is_complete = len(commits) == len(messages)
    for found in _by_table(commits).values():
        abort_write(catalog, found if is_complete else [*found, None])


def _by_table(commits: Sequence[TablesCommit]) -> dict[str, list[TaskCommit]]:
    """Return the messages of each table's own write, with one of no rows for each task that had none of them."""
    sent: dict[str, dict[int, TaskCommit]] = defaultdict(dict)
    for message in commits:
        for commit in message.commits:
            sent[commit.write.table][message.partition_id] = commit
    partitions = sorted(message.partition_id for message in commits)
    return {
        table: [found.get(partition) or _without_rows(found, partition) for partition in partitions]
        for table, found in sent.items()
    }


def _without_rows(sent: dict[int, TaskCommit], partition_id: int) -> TaskCommit:
    """Return the message of a task without rows of a table, beside messages of tasks that have some."""
    example = next(iter(sent.values()))
    keys = None
    if example.keys is not None:
        told = next(
            (commit.keys.key_report for commit in sent.values() if commit.keys and commit.keys.key_report), None
        )
        key_report = None if told is None else encode_key_report([], decode_key_report(told).schema)
        keys = TaskKeys(count=0, modulus=0, key_report=key_report)
    return TaskCommit(example.write, partition_id, (), keys=keys, counts=RowCounts(received=0), metrics=None)


def _check_refused(commits: Sequence[TablesCommit], options: RouteOptions) -> None:
    refused = [commit.refused for commit in commits if commit.refused is not None]
    if not refused:
        return
    count = sum(rows.count for rows in refused)
    raise RefusedRowsError(
        f"Cannot write to several tables, nothing was committed: {count} rows name no table that may be written, for "
        f"example {refused[0].example} in column '{options.column}'. Tables that may be written: "
        f"{allowed(options.rule)}. Filter these rows out, allow their tables, or keep them with 'on-bad-row' as "
        "quarantine and 'quarantine-table'."
    )


def _unrouted(commits: Sequence[TablesCommit], options: RouteOptions) -> UnroutedRows | None:
    """Return the rows that name no table and go to the quarantine, None if there are none; tell of all such rows.

    Of an epoch or a numbered batch none are returned as such, too: an earlier try may have put some there.

    Raises:
        RefusedRowsError: There are more than `max-bad-rows` allows.
    """
    found = [commit.bad for commit in commits if commit.bad is not None]
    rows = [bad.rows for bad in found if bad.rows is not None]
    if found:
        _allow_unrouted(commits, options, found, rows)
    epoch = commits[0].epoch
    numbered = txn_of(options.of_all) if epoch is None else epoch
    target = options.unrouted_quarantine
    if target is None or (numbered is None and not rows):
        return None
    return UnroutedRows(quarantine=identifier_text(target), rows=rows, numbered=numbered, options=options.of_all)


def _allow_unrouted(
    commits: Sequence[TablesCommit], options: RouteOptions, found: Sequence[BadRows], rows: Sequence[LooseRows]
) -> None:
    count, received = sum(bad.record_count for bad in found), sum(commit.received for commit in commits)
    if (limit := exceeded_limit(unrouted_rows(options), count, received)) is not None:
        raise RefusedRowsError(
            f"Cannot write to several tables, nothing was committed: {count:,} of {received:,} rows cannot be written "
            f"({found[0].example}), and option 'max-bad-rows' is {limit}. Mend the source, or raise the limit."
        )
    fate = f"they go to {rows[0].table}" if rows else "they are lost, as accept-lost-rows allows"
    logger.warning("%d of %d rows cannot be written (%s): %s", count, received, found[0].example, fate)


def _loose(commits: Sequence[TablesCommit]) -> dict[str, list[LooseRows]]:
    """Return the rows that the driver writes, by their tables."""
    parts: dict[str, list[LooseRows]] = defaultdict(list)
    for commit in commits:
        for part in commit.loose:
            parts[part.table].append(part)
    return parts


def _filled(
    options: SinkOptions, parts: Sequence[LooseRows], there: Table | None, *, is_picked: bool
) -> tuple[StructType, list[pa.RecordBatch]]:
    """Return the columns in which rows of a table have values, those that it has, and those that options name.

    The rows are returned with them. A column that the table has is written with nulls, too: it must not depend on the
    rows beside them what becomes of a value. All columns that were sent are returned, as any write takes them, if there
    are none of these.

    Args:
        options: The options of the table.
        parts: The rows as tasks sent them.
        there: The table, None if it is yet to be made.
        is_picked: Whether options name the columns of the table, so that all that were sent are kept.
    """
    rows = pa.Table.from_batches(batches_of(parts))
    count = sum(part.record_count for part in parts)
    check_rows(f"write to {parts[0].table}", "tasks sent to the driver", count, {"read by it": rows.num_rows})
    frame = StructType.fromJson(json.loads(parts[0].columns))
    kept = columns_named(options, frame)
    if there is not None:
        kept |= columns_there(options, frame, there.schema())
    names = {
        name for name in rows.column_names if is_picked or name in kept or rows.column(name).null_count < len(rows)
    }
    columns = StructType([column for column in frame if column.name in names] or list(frame))
    return columns, rows.select(columns.names).to_batches()


def _plan_and_write(  # noqa: PLR0913  # most are given by name
    catalog: CatalogClient,
    options: SinkOptions,
    columns: StructType,
    batches: Iterable[pa.RecordBatch],
    table: Table | None,
    *,
    mode: WriteMode,
    epoch: EpochId | None,
) -> TaskCommit:
    """Plan a write of rows and write their files; return the message of its one task.

    Args:
        catalog: The catalog of the table.
        options: Options of the write, with its table.
        columns: The columns of the rows, as Spark has them.
        batches: The rows.
        table: The table, if it is there.
        mode: What the write does; rows of a new table must lie in the range that an overwrite replaces, too.
        epoch: The micro-batch, None for a batch.

    Raises:
        IcebergSinkError: As `plan_write`, and as a task of the write.
    """
    own = _creating(options) if table is None else _planned_before(options)
    plan = plan_write(catalog, own, columns, mode, is_stream=epoch is not None, table=table)
    return report_task(plan.in_epoch(epoch), in_zone_of_option(plan, batches), on_driver())


def _planned_before(options: SinkOptions) -> SinkOptions:
    """Return the options without limits that were looked at when the write was planned: its rows are there by now."""
    return replace(options, max_snapshots=None, max_small_files=None)


def _creating(options: SinkOptions) -> SinkOptions:
    """Return the options without those that speak of the snapshots and the columns of a table that is there."""
    none = SinkOptions()
    return replace(
        options, validate_from_snapshot_id=none.validate_from_snapshot_id, overwrite_schema=none.overwrite_schema
    )


def _appending(options: SinkOptions) -> SinkOptions:
    """Return the options without those that say what of a table is replaced or dropped: its write knows it already."""
    none = SinkOptions()
    return replace(
        _planned_before(_creating(options)),
        drop_missing_columns=none.drop_missing_columns,
        overwrite_mode=none.overwrite_mode,
        replace_where=none.replace_where,
        isolation_level=none.isolation_level,
    )


def _one_more(  # noqa: PLR0913  # what the caller knows
    catalog: CatalogClient,
    options: SinkOptions,
    commits: Sequence[TaskCommit],
    columns: StructType,
    batches: Sequence[pa.RecordBatch],
    *,
    there: Table | None,
) -> TaskCommit:
    """Add the columns of rows to a table, and write the rows as one more task of the write that wrote its others."""
    write = commits[0].write
    is_stream = write.epoch is not None
    plan = plan_write(catalog, _appending(options), columns, is_stream=is_stream, table=there).in_epoch(write.epoch)
    # Rows that are handed over have the columns that the other tasks know.
    plan = replace(plan, write=_widened(write, plan.write), small_task_size_bytes=0)
    return report_task(plan, in_zone_of_option(plan, batches), on_driver(len(commits)))


def _widened(write: WriteIdentity, planned: WriteIdentity) -> WriteIdentity:
    """Return the identity of a write some of whose files have the columns that `planned` has found or added.

    The commit looks at what both schemas mean in the table by then: the files of tasks have the columns of the first.
    """
    before, after = write.fingerprint, planned.fingerprint
    if before is None or after is None or planned.table_uuid != write.table_uuid:
        return write  # the table was dropped, which the commit refuses
    return replace(
        write,
        later_schemas={planned.schema_id: after.schema},
        fingerprint=replace(before, specs={**after.specs, **before.specs}),
    )


def _with_more(commits: Sequence[TaskCommit], more: TaskCommit) -> list[TaskCommit]:
    """Return the messages of a write with one more, whose identity all of them get, so that they agree."""
    return [*(replace(commit, write=more.write) for commit in commits), more]
