"""How the files of a write become rows of the table, exactly once.

The protocol
------------
A write's snapshot id is decided when the write is planned. Every task returns the files that it wrote;
nothing that a task does can be seen in the table. Then, on the driver:

1. All tasks must have reported, each once, and all about this write. A missing message means that the
   commit never begins. What they report must add up: the rows that Spark sent to a task are in its files, in its
   message or left out for a reason; later the files and manifests of the snapshot must have just these (`messages`).
2. Every attempt loads the table afresh and first asks whether the write has landed already. It has if
   its snapshot is in the table, or if the query's last recorded epoch is this one. The record stands
   in the summaries of the branch's snapshots and in a table property, which expiry does not touch. An
   epoch that an earlier run landed is skipped, and the new files are deleted. If this run has committed
   before, the other run is not an earlier one but a second driver, which is an error; and so is an epoch
   below the last one, which comes from a rolled-back checkpoint or again from a second driver.
   A batch that an application numbers is recorded alike; if its version is not above the last one, it is
   skipped in any case, because the application says by the number that the table has these rows. And a
   stream with a name has a record of its query: another query under that name is an error.
3. Otherwise one request adds the snapshot, moves the branch and records the epoch or version, under the condition
   that the branch still is where it was when we looked. The look and the commit are thereby one
   compare-and-set: of two drivers that both saw "not landed", one is refused, looks again, and
   finds itself fenced.
4. No answer of the catalog is believed on its own. After a refusal, a lost answer, a time-out, the loop
   waits, loads the table and looks: what the table shows is the outcome. An answer that was lost
   after landing is found as a landing; one that was lost before is tried again, with the same snapshot
   id, so that it cannot land twice even if the first request arrives late.
   Before the request, and only after the look, rows that tasks handed over are written once, into files that count
   as files of the write like those of its tasks. So are the position deletes that hide rows of one task which lose
   to rows of the same key from another task or in the table; and only after the look are rows refused that cannot
   be committed.
5. The manifests of what a write adds are written once and reused; each attempt writes its own manifest list. A
   merged manifest takes the place of other manifests only if all of them are still listed (`manifest_merge`).
   What a write replaces is found anew in each attempt, in the branch as it is then (`overwrite`), and the same
   condition on the branch makes sure that this still holds when the request is carried out.
6. Files are deleted in three cases only: nothing that names them was ever sent; or every request was
   refused, or can no longer succeed because the branch has moved on, and the table does not show the
   write; or the write landed through another file in their place. In any other case they stay, and
   the error says how to find out. "Another commit was faster" is no proof by itself, because a request that
   a gateway on the way sent twice gets that answer after it landed: the table must show the other commit. And
   a look counts only if it is younger than the request, because a catalog may answer from a cache.

Step 1 is `messages.complete_commits`, the look of steps 2 and 4 is `commit_status.check_commit_status`, the request of
step 3 is `snapshot.commit_request`, the loop is `retry.bring_in`, the write that it brings in is a
`snapshot_update.SnapshotUpdate`, and `cleanup.Proof` names the cases of step 6.
`abort_write` follows the same rules for a write that Spark gives up. Spark calls it in a process that does not know
what the commit did, with the messages of the tasks that succeeded: if one is missing, no commit ever began, and files
may be deleted; if all are there, a commit was tried and failed or died.

Several tables of one epoch go through the same steps: in one request where the catalog takes it (`together`), else by
one request for each table, and all requests are ready before the first is sent (`in_turn`).

What this rests on: the catalog carries out a request whole or not at all, and refuses it if a
condition does not hold. Source: Iceberg spec, "Commit Conflict Resolution and Retry"; REST catalog
spec, `updateTable`.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.catalog.staged_metadata import tidying_metadata
from iceberg_ds.commit.create_table import create_without_rows
from iceberg_ds.commit.cross_task import KeyReports
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.commit.overwrite import RewriteFiles
from iceberg_ds.commit.retry import bring_in
from iceberg_ds.commit.snapshot_update import CommitResult, SnapshotUpdate
from iceberg_ds.commit.write_files import Added, InlineRows, WriteFiles
from iceberg_ds.errors import (
    CommitMessageError,
    DataFileError,
    IcebergSinkError,
    RefusedRowsError,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.local_paths import is_local, local_size
from iceberg_ds.messages import TaskCommit, check_rows, complete_commits, reported_commits
from iceberg_ds.metrics.commit_meter import CommitMeter, metered
from iceberg_ds.metrics.report import figures_of
from iceberg_ds.plan import (
    ERRORS,
    BadRowPolicy,
    EpochId,
    FileSettings,
    NumberedWrite,
    OverwriteByFilter,
    Route,
    StreamName,
    TxnId,
    WriteIdentity,
)
from iceberg_ds.snapshots.commit_status import CommitStatus, check_commit_status
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory
from iceberg_ds.snapshots.txn import TxnMarker, find_own
from iceberg_ds.table.names import parse_identifier

logger = logging.getLogger(__name__)

# Of a replay, which writes no file.
_NO_FILES = FileSettings(target_file_size_bytes=0, compression_codec="", compression_level=None, metrics_properties={})

# Makes a write that has landed on its branch visible to readers, who use another branch.
Publish: TypeAlias = Callable[[CommitResult], None]


def abort_write(catalog: CatalogClient, messages: Sequence[object]) -> None:
    """Delete the reported files if it is certain that no commit began; else leave and log them.

    Args:
        catalog: The catalog of the table.
        messages: What Spark hands to `abort`: a message per task, None for those that failed.

    Raises:
        CatalogError: The catalog could not be reached; nothing was deleted.
    """
    fault_point(FaultPoint.ABORT_BEGUN)
    commits = reported_commits(messages)
    if not commits:
        return
    write = commits[0].write
    identifier = parse_identifier(write.table)
    if len(commits) < len(messages):
        left = delete_reported_files(catalog, commits)
        reported = Added.of(commits).file_count
        logger.info("Gave up %s before any commit: it had %d files, and %d could not be deleted", write, reported, left)
        return
    table = catalog.find_table(identifier)
    if table is not None and table.metadata.snapshot_by_id(write.snapshot_id) is not None:
        logger.warning("Spark gave up %s after it had landed as snapshot %d", write, write.snapshot_id)
    else:
        # The commit has deleted the files if it could prove that it failed; a request may still be under way.
        logger.warning("Spark gave up %s in its commit; files with this id in their names may be left behind", write)


def delete_reported_files(catalog: CatalogClient, commits: Sequence[TaskCommit]) -> int:
    """Delete the files of a write whose commit was never sent; return how many could not be deleted.

    Raises:
        CatalogError: The catalog could not be reached; nothing was deleted.
    """
    added = Added.of(commits)
    path = added.any_path()
    if path is None:
        return 0
    io = catalog.file_io(parse_identifier(commits[0].write.table), path)
    return delete_files(io, added.every_path(io), Proof.NEVER_SENT)


def with_rewritten(added: Added, rewrite: RewriteFiles | None) -> Added:
    """Return the files that the tasks of a write report, and further files of it, as `commit_write` takes them."""
    return added if rewrite is None else added.with_files(rewrite.added.data_files, rewrite.added.delete_files)


def give_up_write(
    catalog: CatalogClient,
    table: str,
    commits: Sequence[TaskCommit],
    rewrite: RewriteFiles | None = None,
    proof: Proof = Proof.NEVER_SENT,
) -> int:
    """Delete all files of a write, even if the catalog cannot be reached; raise nothing.

    Args:
        catalog: The catalog of the table.
        table: Identifier of the table.
        commits: What the tasks of the write report.
        rewrite: Further files of the write, as `commit_write` takes them.
        proof: Why no table refers to the files.

    Returns:
        How many files stay; the log names them.
    """
    added = with_rewritten(Added.of(commits), rewrite)
    path = added.any_path()
    if path is None:
        return 0
    try:
        io = storage_at_hand(catalog, table, path)
    except Exception as problem:  # of any storage library; the caller already has a problem to report
        logger.warning("Left behind what was written for %s, such as %s: %s", table, path, catalog.describe(problem))
        return added.file_count
    return delete_files(io, added.every_path(io), proof)


def storage_at_hand(catalog: CatalogClient, table: str, path: str) -> FileIO:
    """Return what opens the storage of a file of the table, which may be reachable while the catalog is not."""
    try:
        return catalog.file_io(parse_identifier(table), path)
    except IcebergSinkError:
        return catalog.storage_of(path)


def has_landed(catalog: CatalogClient, write: WriteIdentity) -> bool:
    """Return whether the table already has this version of the application, so that no row need be written.

    Raises:
        CatalogError: The catalog could not be reached.
    """
    table = None if write.txn is None else catalog.find_table(parse_identifier(write.table))
    if table is None:
        return False
    found = check_commit_status(table.metadata, write, [], bool)
    if found.status is not CommitStatus.REPLAYED:
        return False
    with metered(catalog.reporting, write) as meter:
        meter.replayed(table.metadata, found.own_id)
    return True


def has_number(catalog: CatalogClient, write: WriteIdentity) -> bool:
    """Return whether the table has the epoch or version of a write by now; False for a write without a number.

    Raises:
        CatalogError: The catalog could not be reached.
    """
    table = None if write.numbered is None else catalog.find_table(parse_identifier(write.table))
    return table is not None and check_commit_status(table.metadata, write, [], bool).status is CommitStatus.REPLAYED


def report_replay(  # noqa: PLR0913  # the last by name
    catalog: CatalogClient,
    numbered: NumberedWrite,
    table: str,
    found: Table,
    marker: TxnMarker | None,
    *,
    stream: StreamName | None = None,
) -> None:
    """Hand out the report on a replay in a table that the sink keeps beside others; it is not written again.

    Args:
        catalog: The catalog of the table.
        numbered: The number, and the writer under the name that it has in the table.
        table: Identifier of the table.
        found: The table.
        marker: The writer's last marker in it, or None.
        stream: The name of the stream as the table has it; None if the write has none.
    """
    metadata = found.metadata
    landed = find_own(BranchHistory(metadata, MAIN_BRANCH), numbered, marker)
    replay = WriteIdentity(
        table=table,
        table_uuid=str(metadata.table_uuid),
        route=Route(branch=MAIN_BRANCH),
        operation_id="",  # no file has it
        snapshot_id=0,
        schema_id=metadata.current_schema_id,
        files=_NO_FILES,
        epoch=numbered if isinstance(numbered, EpochId) else None,
        txn=numbered if isinstance(numbered, TxnId) else None,
        stream=stream,
    )
    with metered(catalog.reporting, replay) as meter:
        meter.replayed(metadata, None if landed is None else landed.snapshot_id)


@tidying_metadata()
def commit_write(
    catalog: CatalogClient,
    messages: Sequence[object],
    *,
    epoch_id: int | None = None,
    publish: Publish | None = None,
) -> CommitResult:
    """Commit what the tasks of one write report.

    Args:
        catalog: The catalog of the table.
        messages: What Spark hands to `commit`: a message per task.
        epoch_id: The micro-batch that Spark commits; None for a batch write.
        publish: As `end_commit` takes it.

    Raises:
        CommitMessageError: Messages are missing or contradict each other; nothing was committed.
        CommitConflictError: Nothing was committed, for certain.
        CommitStateUnknownError: It may have been committed; nothing was deleted.
        SchemaMismatchError: The table has changed so that the files no longer fit it.
        CatalogError: The catalog could not be reached, or refuses for good; nothing was committed.
        DataFileError: The driver does not see a file that a task reports.
        RefusedRowsError: Rows lie outside the range that the write replaces, cannot be read as changes of keys, or
            have no clear winner for their key; or more rows than allowed cannot be written; nothing was committed.
        UnsupportedTableError: What the write replaces cannot be determined or read; nothing was committed.
        RowCountError: Rows were lost or doubled on the way; nothing was committed, and the files were deleted.
    """
    commits = complete_commits(messages, epoch_id=epoch_id)
    with metered(catalog.reporting, commits[0].write, figures_of(commits)) as meter:
        return end_commit(catalog, commits[0].write, commit_to_branch(catalog, commits, meter), publish)


def commit_to_branch(
    catalog: CatalogClient,
    commits: Sequence[TaskCommit],
    meter: CommitMeter,
    rewrite: RewriteFiles | None = None,
    late_keys: pa.Table | None = None,
) -> CommitResult:
    """Commit what the tasks of one write report as `commit_write` does, and publish nothing.

    Args:
        catalog: The catalog of the table.
        commits: The complete messages of the write's tasks.
        meter: Notes what the commit takes.
        rewrite: As `begin_commit`.
        late_keys: As `begin_commit`.

    Raises:
        RewriteValidationError: The rewrite no longer fits the table; nothing was committed, and all files are still
            there.
        IcebergSinkError: As `commit_write`.
    """
    begun = begin_commit(catalog, commits, meter, rewrite, late_keys)
    return bring_in(begun) if isinstance(begun, SnapshotUpdate) else begun


def begin_commit(
    catalog: CatalogClient,
    commits: Sequence[TaskCommit],
    meter: CommitMeter,
    rewrite: RewriteFiles | None = None,
    late_keys: pa.Table | None = None,
) -> SnapshotUpdate | CommitResult:
    """Check what the tasks of a write report, and return what brings it in, or the result if it adds nothing.

    Args:
        catalog: The catalog of the table.
        commits: The complete messages of its tasks.
        meter: Notes what the commit takes.
        rewrite: Further files to add, and the files that they replace; None for no replacement.
        late_keys: Digests and keys whose rows in the write lose to rows in the table, in the form that
            `cdc.cross_task.find_duplicates` takes; None for no late keys.

    Raises:
        RefusedRowsError, RowCountError, DataFileError: As `commit_write`; the files of the tasks were deleted.
        CatalogError: As `commit_write`.
    """
    write = commits[0].write
    added = Added.of(commits)
    meter.files_at_stake = with_rewritten(added, rewrite).file_count
    fault_point(FaultPoint.COMMIT_BEGUN)
    try:
        check_reports(commits, rewrite)
        _check_taken(commits)
    except BaseException:
        meter.gave_up(give_up_write(catalog, write.table, commits, rewrite))
        raise
    _tell_of_bad_rows(commits)
    is_void = write.new_table is not None or not isinstance(write.overwrite, OverwriteByFilter)
    gathered = InlineRows(catalog, write, commits)
    keys = KeyReports(write, commits, partial(catalog.file_io, parse_identifier(write.table)), late_keys)
    is_empty = rewrite is None and not (added or gathered.record_count or keys.have_unreadable_rows)
    if is_empty and is_void and write.txn is None:
        if write.new_table is not None and write.epoch is None:
            create_without_rows(catalog, parse_identifier(write.table), planned_metadata(write.new_table))
        logger.info("Nothing to add to %s", write)
        return CommitResult(snapshot_id=None)
    row_count = sum(commit.counts.to_add for commit in commits)
    files = WriteFiles(added, gathered, keys, row_count=row_count)
    return SnapshotUpdate(catalog, write, files, meter, rewrite)


def end_commit(
    catalog: CatalogClient, write: WriteIdentity, result: CommitResult, publish: Publish | None = None
) -> CommitResult:
    """Publish the branch that the write landed on, if that is asked for, and return the result.

    Args:
        catalog: The catalog of the table.
        write: The write.
        result: What became of it on its branch.
        publish: Publishes a branch whose deletes are to be converted; None for other writes.

    Raises:
        IcebergSinkError: The rows are on the staging branch, and could not be published.
    """
    route = write.route
    if publish is not None:
        publish(result)
    elif route.publish_to is not None and not route.converts and result.snapshot_id is not None:
        _publish(catalog, write, route.publish_to, result.snapshot_id)
    return result


@tidying_metadata()
def commit_rewrite(
    catalog: CatalogClient, write: WriteIdentity, rewrite: RewriteFiles, meter: CommitMeter
) -> CommitResult:
    """Commit files that replace other files; the write has no rows of its own, no epoch and no number.

    Args:
        catalog: The catalog of the table.
        write: The write, with an id of its own for each call.
        rewrite: The files to add, and the files that they replace.
        meter: Notes what the commit takes.

    Raises:
        RewriteValidationError: Other writers have changed what the files were made from; nothing was committed, and
            the files are still there.
        CommitConflictError, CommitStateUnknownError, SchemaMismatchError, CatalogError: As `commit_write`.
        DataFileError: The driver does not see a file that a task has written; nothing was committed, and the files
            are still there.
    """
    fault_point(FaultPoint.COMMIT_BEGUN)
    if (unseen := _unseen(rewrite.added)) is not None:
        raise DataFileError(f"Cannot commit to {write.table}: {unseen}")
    return bring_in(SnapshotUpdate(catalog, write, WriteFiles(Added(())), meter, rewrite))


def _publish(catalog: CatalogClient, write: WriteIdentity, to: str, snapshot_id: int) -> None:
    try:
        publish_branch(catalog, parse_identifier(write.table), write.branch, to, with_snapshot=snapshot_id)
    except IcebergSinkError as failure:
        raise type(failure)(
            f"The rows of {write} were committed to branch '{write.branch}' as snapshot {snapshot_id}, and are not on "
            f"'{to}': {failure}"
        ) from failure


def check_reports(commits: Sequence[TaskCommit], rewrite: RewriteFiles | None = None) -> None:
    """Refuse a write that can never be committed by what its tasks report; its files are still there.

    Args:
        commits: What the tasks of the write report.
        rewrite: Further files of the write, as `commit_write` takes them.

    Raises:
        RefusedRowsError, RowCountError, DataFileError: As `commit_write`.
    """
    _check_refused(commits)
    check_bad_rows(commits)
    _check_rows(commits)
    _check_visible(commits, rewrite)


def _check_refused(commits: Sequence[TaskCommit]) -> None:
    """Refuse a write that has rows outside the range that it replaces."""
    refused = [commit.refused for commit in commits if commit.refused is not None]
    if not refused:
        return
    count = sum(rows.count for rows in refused)
    raise RefusedRowsError(
        f"Cannot commit to {commits[0].write.table}, nothing was committed: {count} rows do not satisfy replace-where, "
        f"for example {refused[0].example}. They would stay beside the rows that the next such write replaces: filter "
        "them out, or widen the predicate."
    )


def check_bad_rows(commits: Sequence[TaskCommit]) -> None:
    """Refuse a write with more rows that cannot be written than `max-bad-rows` allows; its files are still there.

    Args:
        commits: What the tasks of the write report.

    Raises:
        RefusedRowsError: There are too many; says how many, and why.
    """
    policy, found = commits[0].write.bad_rows, bad_rows_of(commits)
    if policy is None or not found:
        return
    count, received = sum(found.values()), sum(commit.counts.received for commit in commits)
    if (limit := exceeded_limit(policy, count, received)) is None:
        return
    raise RefusedRowsError(
        f"Cannot commit to {commits[0].write.table}, nothing was committed: {count:,} of {received:,} rows cannot be "
        f"written ({_by_reason(found)}; for example {_example_of(commits)}), and option 'max-bad-rows' is {limit}. "
        "Mend the source, or raise the limit."
    )


def exceeded_limit(policy: BadRowPolicy | None, count: int, received: int) -> str | None:
    """Return the limit of rows that cannot be written, if there are more of them, as text; else None."""
    if policy is None:
        return None
    if policy.most_share is not None and count > policy.most_share * received:
        return f"{float(policy.most_share * 100):g}%"
    return None if policy.most_rows is None or count <= policy.most_rows else f"{policy.most_rows:,}"


def bad_rows_of(commits: Sequence[TaskCommit]) -> dict[str, int]:
    """Return how many rows of a write could not be written as they came, by the first reason of each."""
    counts: Counter[str] = Counter()
    for commit in commits:
        counts.update(commit.bad.counts if commit.bad else {})
    return dict(sorted(counts.items()))


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())


def _example_of(commits: Sequence[TaskCommit]) -> str:
    return next(commit.bad.example for commit in commits if commit.bad is not None)


def _check_taken(commits: Sequence[TaskCommit]) -> None:
    """Refuse a write whose rows for the quarantine table are written by none; they would be lost."""
    if any(commit.bad is not None and commit.bad.rows is not None for commit in commits):
        raise CommitMessageError(
            f"Cannot commit {commits[0].write}, nothing was committed: rows for the quarantine table are not "
            "committed with it. This is a defect of iceberg_ds: please report it."
        )


def _tell_of_bad_rows(commits: Sequence[TaskCommit]) -> None:
    policy, found = commits[0].write.bad_rows, bad_rows_of(commits)
    if policy is None or not found:
        return
    fate = {
        "null": f"their bad values become null, and column {ERRORS} says so",
        "quarantine": f"they go to {policy.quarantine}",
        "drop": "they are lost, as accept-lost-rows allows",
    }
    logger.warning(
        "Rows of %s cannot be written as they are (%s; for example %s): %s",
        commits[0].write,
        _by_reason(found),
        _example_of(commits),
        fate[policy.mode],
    )


def _check_rows(commits: Sequence[TaskCommit]) -> None:
    """Refuse a write with a task that does not account for all rows that it received."""
    for commit in commits:
        counts = commit.counts
        found = {**commit.reported_rows, "left out": counts.left_out, "lost as asked": counts.dropped}
        check_rows(f"commit {commit.write}", f"task {commit.partition_id} got", commit.counts.received, found)


def _check_visible(commits: Sequence[TaskCommit], rewrite: RewriteFiles | None) -> None:
    """Refuse local files that the driver does not see: other readers would not see them either."""
    if (unseen := _unseen(Added.of(commits), *([] if rewrite is None else [rewrite.added]))) is not None:
        raise DataFileError(f"Cannot commit to {commits[0].write.table}: {unseen}")


def _unseen(*added: Added) -> str | None:
    """Return an error text that names a local file that the driver does not see, or None if it sees all."""
    for path, size in itertools.chain.from_iterable(files.told_sizes() for files in added):
        if is_local(path) and (seen := local_size(path)) != size:
            return (
                f"a task reports {path} with {size} bytes, and the driver sees {seen}. On a cluster, use an object "
                "store or a shared file system as warehouse. Nothing was committed."
            )
    return None
