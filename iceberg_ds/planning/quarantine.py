"""Rows that cannot be written go into the quarantine table, in the same epoch as the others go into theirs.

Tasks send such rows to the driver, which plans and writes them as a write of its own, with a transaction marker of its
own. Where the catalog takes one request for several tables, it takes both; elsewhere the quarantine table comes first,
and the table only after it: a driver that dies in between leaves no row behind, and the repeated epoch goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.commit import Publish, check_bad_rows, commit_write, delete_reported_files
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.together import TableWrite, check_apart, commit_tables
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.messages import LooseRows, TaskCommit, check_rows, complete_commits
from iceberg_ds.metrics.commit_meter import reporting_failures
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.planning.plan_write import plan_write
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.writers.loose import ON_DRIVER, batches_of
from iceberg_ds.writers.reporting import report_task

_LONGEST_NAME = 120


def commit_with_quarantine(
    catalog: CatalogClient,
    options: SinkOptions,
    messages: Sequence[object],
    *,
    epoch_id: int | None = None,
    publish: Publish | None = None,
) -> CommitResult:
    """Commit what the tasks of one write report, and their rows for the quarantine table.

    Args:
        catalog: The catalog of both tables.
        options: The options of the write.
        messages: What Spark hands to `commit`: a message per task.
        epoch_id: The micro-batch that Spark commits; None for a batch write.
        publish: As `commit_write` takes it.

    Raises:
        IcebergSinkError: As `commit_write`; or the quarantine table did not get its rows.
    """
    if all(not isinstance(message, TaskCommit) or message.bad is None for message in messages):
        return commit_write(catalog, messages, epoch_id=epoch_id, publish=publish)
    write = TableWrite(commits=complete_commits(messages, epoch_id=epoch_id), publish=publish)
    return commit_with_quarantines(catalog, [write], lambda _: options, epoch_id=epoch_id)[0]


def commit_with_quarantines(
    catalog: CatalogClient,
    writes: Sequence[TableWrite],
    options_of: Callable[[str], SinkOptions],
    *,
    epoch_id: int | None = None,
) -> list[CommitResult]:
    """Commit the writes of one epoch or batch as `commit_tables` does, together with their rows for quarantine tables.

    Args:
        catalog: The catalog of all tables.
        writes: The writes.
        options_of: Returns the options of a write from the identifier of its table.
        epoch_id: The micro-batch that Spark commits; None for a batch write.

    Returns:
        The results of the writes, in their order.

    Raises:
        IcebergSinkError: As `quarantine_writes` and `commit_tables`. Where tables are committed one after the other, no
            table gets rows if a quarantine table did not get its rows.
    """
    with reporting_failures(catalog.reporting, [write.commits for write in writes]):
        quarantines, writes = quarantine_writes(catalog, writes, options_of)
        check_apart(catalog, [*quarantines, *writes])
    return commit_beside(catalog, quarantines, writes, epoch_id=epoch_id)


def commit_beside(
    catalog: CatalogClient,
    quarantines: Sequence[TableWrite],
    writes: Sequence[TableWrite],
    *,
    epoch_id: int | None = None,
) -> list[CommitResult]:
    """Commit what `quarantine_writes` returns, and return the results of `writes`; raises as `commit_tables`."""
    if not quarantines or catalog.takes_many_tables:
        return commit_tables(catalog, [*quarantines, *writes], epoch_id=epoch_id)[len(quarantines) :]
    try:
        with reporting_failures(catalog.reporting, [write.commits for write in writes]):
            commit_tables(catalog, quarantines, epoch_id=epoch_id)
    except IcebergSinkError as failure:
        for write in writes:
            delete_reported_files(catalog, write.commits, write.rewrite)
        raise type(failure)(
            f"Nothing was committed to {', '.join(write.table for write in writes)}, because the rows that cannot be "
            f"written there did not get into their quarantine table: {failure}"
        ) from failure
    fault_point(FaultPoint.QUARANTINED)
    return commit_tables(catalog, writes, epoch_id=epoch_id)


def quarantine_writes(
    catalog: CatalogClient, writes: Sequence[TableWrite], options_of: Callable[[str], SinkOptions]
) -> tuple[list[TableWrite], list[TableWrite]]:
    """Write the rows for quarantine tables into files; return the writes of these tables, and the given ones without.

    Args:
        catalog: The catalog of all tables.
        writes: The writes of one epoch or batch.
        options_of: Returns the options of a write from the identifier of its table.

    Raises:
        RefusedRowsError: More rows than `max-bad-rows` allows cannot be written. All reported files were deleted.
        IcebergSinkError: As `plan_write` for a quarantine table. All reported files were deleted.
    """
    parts: dict[tuple[str, str], list[tuple[WriteIdentity, LooseRows]]] = defaultdict(list)
    for write in writes:
        for commit in write.commits:
            if commit.bad is not None and commit.bad.rows is not None:
                # A transaction that is repeated skips tables that landed, one by one, and their bad rows with them; an
                # epoch has one marker in a table, and repeats all rows.
                is_apart = commit.write.epoch is None and not catalog.takes_many_tables
                key = (commit.bad.rows.table, write.table if is_apart else "")
                parts[key].append((commit.write, commit.bad.rows))
    made: list[TableWrite] = []
    try:
        for write in writes:
            check_bad_rows(catalog, write.commits)
        for (table, _), found in parts.items():
            own = options_of(min(identity.table for identity, _ in found))
            made.append(TableWrite(commits=[_written(catalog, own, table, found)]))
    except BaseException:
        for given_up in [*made, *writes]:
            delete_reported_files(catalog, given_up.commits, given_up.rewrite)
        raise
    return made, [replace(write, commits=[_taken(commit) for commit in write.commits]) for write in writes]


def give_up_quarantines(catalog: CatalogClient, quarantines: Sequence[TableWrite]) -> None:
    """Delete the files of writes of quarantine tables whose commit was never sent."""
    for write in quarantines:
        delete_reported_files(catalog, write.commits)


def _written(
    catalog: CatalogClient, options: SinkOptions, table: str, parts: Sequence[tuple[WriteIdentity, LooseRows]]
) -> TaskCommit:
    """Write the rows of one quarantine table, as the one task of a write of its own."""
    first = min((write for write, _ in parts), key=lambda write: write.table)
    columns = StructType.fromJson(json.loads(parts[0][1].columns))
    plan = plan_write(catalog, _options(options, table, first), columns, is_stream=first.epoch is not None)
    commit = report_task(plan.in_epoch(first.epoch), batches_of([rows for _, rows in parts]), ON_DRIVER)
    count = sum(rows.record_count for _, rows in parts)
    check_rows(f"commit to {table}", "tasks sent", count, {"written into the quarantine table": commit.counts.to_add})
    return commit


def _options(options: SinkOptions, table: str, write: WriteIdentity) -> SinkOptions:
    """Return the options of the write of a quarantine table beside that of a table.

    Several tables may have one quarantine table, and their writes the same number: each has a writer of its own there.
    """
    return SinkOptions(
        table=parse_identifier(table),
        catalog=options.catalog,
        catalog_properties=options.catalog_properties,
        warehouse=options.warehouse,
        txn_app_id=None if write.txn is None else _writer(write.txn.app_id, write),
        txn_version=None if write.txn is None else write.txn.version,
        stream_name=None if write.stream is None else _writer(write.stream.name, write),
        accept_new_checkpoint=options.accept_new_checkpoint,
        snapshot_properties=options.snapshot_properties,
        metrics_file=options.metrics_file,
        metrics_reporter=options.metrics_reporter,
        snapshot_metrics=options.snapshot_metrics,
    )


def _writer(name: str, write: WriteIdentity) -> str:
    branch = "" if write.branch == MAIN_BRANCH else f"@{write.branch}"
    full = f"{name} > {write.table}{branch}"
    if len(full) <= _LONGEST_NAME and full.isascii():
        return full
    return f"quarantine {hashlib.blake2b(full.encode(), digest_size=16).hexdigest()}"


def _taken(commit: TaskCommit) -> TaskCommit:
    """Return the message without the rows for the quarantine table, which are written."""
    if commit.bad is None or commit.bad.rows is None:
        return commit
    return replace(commit, bad=replace(commit.bad, rows=None, taken=commit.bad.rows.record_count))
