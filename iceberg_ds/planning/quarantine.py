"""Rows that cannot be written go into the quarantine table, in the same epoch as the good rows go into their tables.

Tasks send such rows to the driver, which plans and writes them as a write of its own, with a transaction marker of its
own. Four rules hold:

* A table never gets the rows of a write whose rows for the quarantine are not there. So writes of quarantine tables
  land first (`commit_tables`): in one request with the tables only where that is surely carried out as a whole.
* Before anything is written or sent, each table with such rows is looked at. If it has the epoch or version already, by
  the first rule the quarantine has what it had then, and its rows are dropped. If the write may not land in the table
  at all, as that of a second driver, nothing is written.
* The quarantine table tells by a digest which rows an earlier try of the same epoch or version put there
  (`quarantined`). The same rows are not written again. If there are others, or the table does not tell any more, the
  write is refused: rows would be lost, or be both in the quarantine and in the table.
* Of batches that an application numbers, each table has a write of its own into the quarantine, and a writer of its
  own there, because a repeated transaction skips tables one by one. An epoch of a stream repeats all rows: it has one
  write for each quarantine table, under the query's own id.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.commit import Publish, check_bad_rows, commit_write, give_up_write, has_landed, report_replay
from iceberg_ds.commit.outcomes import why_refused
from iceberg_ds.commit.retry import find_patiently
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite, giving_up
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.errors import CommitConflictError, RefusedRowsError, SchemaMismatchError
from iceberg_ds.messages import LooseRows, TaskCommit, check_rows, complete_commits
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import EpochId, NumberedWrite, TxnId, WriteIdentity
from iceberg_ds.planning.plan_write import plan_write
from iceberg_ds.snapshots.commit_status import CommitStatus, check_commit_status
from iceberg_ds.snapshots.origins import REQUEUED_SINCE_KEY, Origin, origins_entry
from iceberg_ds.snapshots.quarantined import (
    QUARANTINED_ROWS_KEY,
    Earlier,
    EarlierTry,
    RowsDigest,
    find_earlier_try,
)
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory, branch_property
from iceberg_ds.snapshots.txn import TXNS, find_markers, find_own, kind_of
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.writers.loose import batches_of, on_driver
from iceberg_ds.writers.reporting import report_task

logger = logging.getLogger(__name__)

_LONGEST_NAME = 120
# Stands for a table in the name of the writer of rows that name none; tables have a dot in their names.
_UNROUTED = "route-by"


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
    if not any(isinstance(message, TaskCommit) and _concerns_a_quarantine(message) for message in messages):
        return commit_write(catalog, messages, epoch_id=epoch_id, publish=publish)
    write = TableWrite(commits=complete_commits(messages, epoch_id=epoch_id), publish=publish)
    return commit_with_quarantines(catalog, [write], lambda _: options, epoch_id=epoch_id)[0]


@waiting_once()
def commit_with_quarantines(
    catalog: CatalogClient,
    writes: Sequence[TableWrite],
    options_of: Callable[[str], SinkOptions],
    *,
    unrouted: UnroutedRows | None = None,
    epoch_id: int | None = None,
) -> list[CommitResult]:
    """Commit the writes of one epoch or batch as `commit_tables` does, together with their rows for quarantine tables.

    Args:
        catalog: The catalog of all tables.
        writes: The writes.
        options_of: Returns the options of a write from the identifier of its table.
        unrouted: Rows that name no table; None if there are none, and no earlier try can have put some there.
        epoch_id: The micro-batch that Spark commits; None for a batch write.

    Returns:
        The results of the writes, in their order.

    Raises:
        IcebergSinkError: As `quarantine_writes` and `commit_tables`.
    """
    with giving_up(catalog, writes):
        quarantines, writes = quarantine_writes(catalog, writes, options_of, unrouted)
    return commit_tables(catalog, writes, first=quarantines, epoch_id=epoch_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnroutedRows:
    """Rows of an epoch or batch that name no table which may be written.

    Attributes:
        quarantine: Identifier of the quarantine table.
        rows: The rows, as tasks sent them; none if an earlier try alone may have had some.
        numbered: The number of the epoch or batch; None for a batch without one.
        options: The options of the write.
    """

    quarantine: str
    rows: Sequence[LooseRows]
    numbered: NumberedWrite | None
    options: SinkOptions


def quarantine_writes(
    catalog: CatalogClient,
    writes: Sequence[TableWrite],
    options_of: Callable[[str], SinkOptions],
    unrouted: UnroutedRows | None = None,
) -> tuple[list[TableWrite], list[TableWrite]]:
    """Write the rows for quarantine tables into files; return the writes of these tables, and the given ones without.

    Args:
        catalog: The catalog of all tables.
        writes: The writes of one epoch or batch.
        options_of: Returns the options of a write from the identifier of its table.
        unrouted: As for `commit_with_quarantines`.

    Returns:
        The writes that `commit_tables` takes as `first`, and the rest. Rows that a quarantine table has already, by an
        earlier try of the same epoch or version, are not written again.

    Raises:
        RefusedRowsError: More rows than `max-bad-rows` allows cannot be written; or an earlier try put other rows into
            the quarantine, or which ones is unknown.
        CommitConflictError: A table with such rows may not get this epoch or version.
        IcebergSinkError: As `plan_write` for a quarantine table. The files of the given writes are still there.
    """
    made: list[TableWrite] = []
    try:
        for write in writes:
            check_bad_rows(write.commits)
        for table, sources in _by_quarantine(writes, unrouted).items():
            if due := _due(catalog, table[0], sources):
                tables = [source.write.table for source in due if source.write is not None]
                own = options_of(min(tables)) if tables or unrouted is None else unrouted.options
                made.append(TableWrite(commits=[_written(catalog, own, table[0], due)], sources=tables))
    except BaseException:
        for given_up in made:
            give_up_write(catalog, given_up.table, given_up.commits)
        raise
    return made, [replace(write, commits=[_taken(commit) for commit in write.commits]) for write in writes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The rows of one table's write for the quarantine, or those that name no table.

    Attributes:
        write: The write; None for rows that name no table.
        numbered: Its number; None for a batch without one.
        rows: The rows, as tasks sent them; none if all could be written.
        digest: Their digest.
        found: The table as it was looked at, if there are such rows; None if there is no table of that name.
    """

    write: WriteIdentity | None
    numbered: NumberedWrite | None
    rows: Sequence[LooseRows]
    digest: RowsDigest
    found: Table | None = None

    @classmethod
    def of(cls, write: WriteIdentity | None, numbered: NumberedWrite | None, rows: Sequence[LooseRows]) -> _Source:
        """Return the source of rows that tasks sent."""
        texts = (
            (row.as_py(), table.as_py() or "")
            for batch in batches_of(rows)
            for row, table in zip(batch.column("row"), batch.column("table"), strict=True)
        )
        return cls(write=write, numbered=numbered, rows=rows, digest=RowsDigest.of(texts))

    def digest_under(self, names: Mapping[str, str]) -> RowsDigest:
        """Return the digest of the rows, had the table had the name that `names` gives to its UUID, if any."""
        name = None if self.write is None else names.get(self.write.table_uuid)
        if self.write is None or name is None or name == self.write.table:
            return self.digest
        return RowsDigest.of((row.as_py(), name) for batch in batches_of(self.rows) for row in batch.column("row"))

    @property
    def names(self) -> list[NumberedWrite]:
        """The number, under the names that the writer may have in the quarantine table, the own one first."""
        return _names(self.write, self.numbered)

    @property
    def has_number(self) -> bool:
        """Whether the table has this epoch or version already; rows without a table are in the quarantine alone.

        Raises:
            CommitConflictError: The table may not get it.
        """
        if self.write is None or self.found is None:
            return False
        finding = check_commit_status(self.found.metadata, self.write, [], bool)
        if (reason := why_refused(self.write, finding)) is not None:
            raise CommitConflictError(reason)
        return finding.status in {CommitStatus.REPLAYED, CommitStatus.SUCCESS}

    def looked_at(self, catalog: CatalogClient) -> _Source:
        """Return the source with the table as it is now.

        Raises:
            CatalogError: The catalog cannot be reached.
        """
        if self.write is None:
            return self
        return replace(self, found=find_patiently(catalog, parse_identifier(self.write.table)))


def _names(write: WriteIdentity | None, numbered: NumberedWrite | None) -> list[NumberedWrite]:
    """Return the number of a write, under the names that its writer may have in the quarantine table.

    A table that exists may be renamed before the write is repeated, so that its UUID tells it; one that the write is to
    create gets another UUID each time.
    """
    if not isinstance(numbered, TxnId):
        return [] if numbered is None else [numbered]
    if write is None:
        told = [_UNROUTED]
    else:
        told = [write.table] if write.new_table is not None else [write.table_uuid, write.table]
    branch = MAIN_BRANCH if write is None else write.branch
    return [TxnId(app_id=_writer(numbered.app_id, name, branch), version=numbered.version) for name in told]


def _by_quarantine(writes: Sequence[TableWrite], unrouted: UnroutedRows | None) -> dict[tuple[str, str], list[_Source]]:
    """Return the sources of each write of a quarantine table, by that table and what sets such writes apart."""
    found: dict[tuple[str, str], list[_Source]] = defaultdict(list)
    for write in writes:
        own = write.commits[0].write
        policy = own.bad_rows
        if policy is None or policy.quarantine is None or not any(map(_concerns_a_quarantine, write.commits)):
            continue
        rows = [commit.bad.rows for commit in write.commits if commit.bad is not None and commit.bad.rows is not None]
        found[policy.quarantine, "" if own.txn is None else write.table].append(_Source.of(own, own.numbered, rows))
    if unrouted is not None:
        apart = _UNROUTED if isinstance(unrouted.numbered, TxnId) else ""
        found[unrouted.quarantine, apart].append(_Source.of(None, unrouted.numbered, unrouted.rows))
    return found


def _concerns_a_quarantine(commit: TaskCommit) -> bool:
    """Return whether there are rows for a quarantine, or an earlier try of the same number may have put rows there."""
    if commit.bad is not None and commit.bad.rows is not None:
        return True
    policy = commit.write.bad_rows
    return policy is not None and policy.quarantine is not None and commit.write.numbered is not None


def _due(catalog: CatalogClient, table: str, sources: Sequence[_Source]) -> Sequence[_Source]:
    """Return the sources whose rows are to be written into a quarantine table.

    Raises:
        RefusedRowsError: An earlier try put other rows there, or it is unknown which.
        CommitConflictError: A table may not get this epoch or version.
        CatalogError: The catalog cannot be reached.
    """
    looked_at = [source.looked_at(catalog) for source in sources if source.rows]
    names = sources[0].names
    if not names:
        return looked_at
    missing = [source for source in looked_at if not source.has_number]
    quarantine = find_patiently(catalog, parse_identifier(table))
    if quarantine is None:
        return missing

    def rows(had: Mapping[str, str]) -> list[RowsDigest]:
        return [RowsDigest.over(source.digest_under(had) for source in some) for some in (sources, missing)]

    earlier = find_earlier_try(quarantine.metadata, names, rows)
    if earlier.found is EarlierTry.NONE:
        return missing
    of_tables = [source for source in sources if source.write is not None]
    without = (source.looked_at(catalog) for source in of_tables if not source.rows)
    have_landed = of_tables and not missing
    if earlier.found is EarlierTry.SAME_ROWS or (have_landed and all(source.has_number for source in without)):
        if earlier.marker is not None:
            place = identifier_text(parse_identifier(table))
            report_replay(catalog, earlier.numbered, place, quarantine, earlier.marker)
        return []
    raise RefusedRowsError(_refusal(table, sources, earlier))


def was_written_before(catalog: CatalogClient, write: WriteIdentity) -> bool:
    """Return whether the table has this version already, as `has_landed` does; tell of its rows in the quarantine, too.

    Raises:
        CatalogError: The catalog could not be reached for the table itself.
    """
    if not has_landed(catalog, write):
        return False
    if write.bad_rows is not None and write.bad_rows.quarantine is not None:
        try:
            _report_rows_there(catalog, write, write.bad_rows.quarantine)
        except Exception as problem:  # of any catalog; no row is due, and a report fails no write
            logger.warning(
                "It is not reported which rows of %s quarantine table %s has: %s",
                write,
                write.bad_rows.quarantine,
                catalog.describe(problem),
            )
    return True


def _report_rows_there(catalog: CatalogClient, write: WriteIdentity, quarantine: str) -> None:
    table = catalog.find_table(parse_identifier(quarantine))  # asked once: nothing waits for a report
    if table is None:
        return
    history = BranchHistory(table.metadata, MAIN_BRANCH)
    for there in _names(write, write.txn):
        last = find_markers(history, TXNS, there.writer).last
        if find_own(history, there, last) is not None:  # most versions put no rows there
            report_replay(catalog, there, identifier_text(table.name()), table, last)
            return


def _refusal(table: str, sources: Sequence[_Source], earlier: Earlier) -> str:
    numbered = earlier.numbered
    number = f"version {numbered.number}" if isinstance(numbered, TxnId) else f"epoch {numbered.number}"
    tables = sorted("several tables" if source.write is None else source.write.table for source in sources)
    known = (
        f"an earlier try of {number} put other rows there than this one would: others have changed a column of the "
        "table since, or the source gives other rows each time"
        if earlier.found is EarlierTry.OTHER_ROWS
        else f"it cannot be told whether an earlier try of {number} put the rows of this one there, because the "
        "snapshot that would tell has expired, or is of another version of iceberg_ds"
    )
    key = branch_property(kind_of(numbered).property_prefix, MAIN_BRANCH, numbered.writer)
    return (
        f"Cannot commit {number} to {', '.join(tables)}, nothing was "
        f"committed: quarantine table {table} has it already, and the tables do not; and {known}. Rows would be lost, "
        f"or be in both. Look at the rows of {number} in {table}, delete them there, let the snapshots before that "
        f"expire, remove table property '{key}' of {table}, and run this again: the rows come as they are now."
    )


def _written(catalog: CatalogClient, options: SinkOptions, table: str, sources: Sequence[_Source]) -> TaskCommit:
    """Write the rows of one quarantine table, as the one task of a write of its own."""
    rows = [part for source in sources for part in source.rows]
    columns = StructType.fromJson(json.loads(rows[0].columns))
    numbered = sources[0].numbered
    epoch = numbered if isinstance(numbered, EpochId) else None
    try:
        plan = plan_write(catalog, _options(options, table, sources), columns, is_stream=epoch is not None)
        commit = report_task(plan.in_epoch(epoch), batches_of(rows), on_driver())
    except SchemaMismatchError as problem:
        needed = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in columns)
        raise SchemaMismatchError(
            f"Cannot write bad rows into quarantine table {table} (option 'quarantine-table'), nothing was committed: "
            f"it needs the columns {needed}, and all its columns optional. Alter it, or name another one. {problem}"
        ) from problem
    count = sum(part.record_count for part in rows)
    check_rows(f"commit to {table}", "tasks sent", count, {"written into the quarantine table": commit.counts.to_add})
    return commit


def _options(options: SinkOptions, table: str, sources: Sequence[_Source]) -> SinkOptions:
    """Return the options of the write of a quarantine table beside those of tables.

    The name of a stream is checked in its tables, which are looked at first. A record of it in the quarantine table
    would miss epochs without such rows, and with them a query that took the place of another one.
    """
    numbered = next(iter(sources[0].names), None)
    digest = RowsDigest.over(source.digest for source in sources)
    origins = {
        source.write.table: Origin.of(source.write, None if source.found is None else source.found.metadata)
        for source in sources
        if source.write is not None
    }
    own = options.beside(parse_identifier(table), numbered if isinstance(numbered, TxnId) else None)
    told = {QUARANTINED_ROWS_KEY: str(digest), **origins_entry(origins)}
    # That of the table that they were requeued into says nothing of this one.
    given = {key: text for key, text in options.snapshot_properties.items() if key != REQUEUED_SINCE_KEY}
    return replace(own, snapshot_properties={**given, **told})


def _writer(app_id: str, table: str, branch: str) -> str:
    """Return the name of an application in a quarantine table, which other tables of the application share."""
    full = f"{app_id} > {table}" + ("" if branch == MAIN_BRANCH else f"@{branch}")
    if len(full) <= _LONGEST_NAME and full.isascii():
        return full
    return f"quarantine {hashlib.blake2b(full.encode(), digest_size=16).hexdigest()}"


def _taken(commit: TaskCommit) -> TaskCommit:
    """Return the message without the rows for the quarantine table, which are written."""
    if commit.bad is None or commit.bad.rows is None:
        return commit
    return replace(commit, bad=replace(commit.bad, rows=None, taken=commit.bad.rows.record_count))
