"""`upsert` and `upsert_into`: new rows replace the rows with their keys, without equality deletes in the table.

A Spark job writes the rows (`spark.write_job`): each task writes data files, and files of the keys to look for. Then
other tasks look for the keys in the table, and hide the rows that they find by position deletes or rewrite their files,
and one commit adds the new rows and removes the old ones. Data files that others commit meanwhile are searched, too:
the later commit wins.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import give_up_write, storage_at_hand
from iceberg_ds.commit.cross_task import KeyReports
from iceberg_ds.commit.overwrite import RewriteValidationError
from iceberg_ds.commit.retry import find_patiently
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite, giving_up
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.deletes.index import KeySource, key_types
from iceberg_ds.deletes.kept_ids import with_kept_ids
from iceberg_ds.deletes.key_blocks import Indexed
from iceberg_ds.deletes.key_index import index_place, open_index
from iceberg_ds.deletes.search import KeySearch, KeysToDelete, RewriteByKeys
from iceberg_ds.deletes.work import KeyIndexPlace, RowEncoding, SearchPlan
from iceberg_ds.errors import CommitConflictError, DataFileError, OptionError, RefusedRowsError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.messages import TaskCommit
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WritePlan, new_operation
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.planning.quarantine import quarantine_writes, was_written_before
from iceberg_ds.secrets import mask_url
from iceberg_ds.snapshots.refs import write_base
from iceberg_ds.spark.write_job import check_session, query_id_of, write_rows
from iceberg_ds.table.names import identifier_text, parse_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

# The largest number of rounds: each one also searches the data files that others committed during the one before.
ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertResult:
    """What `upsert` did to a branch.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the snapshot that was committed; None if there was nothing to change.
        was_replayed: Whether the table already had this `txn-version` of the application, so that nothing was written.
        rows: Number of rows that were added to the table.
        late_rows: Number of rows, deletes included, that lost to newer rows of the table (`sequence-scope=table`).
        replaced_rows: Number of rows of the table that were replaced or deleted.
        data_files: Number of data files that were added for the rows.
        position_delete_files: Number of position delete files that were added to hide the old rows.
        rewritten_files: Number of data files that were rewritten without the old rows.
        read_bytes: Compressed bytes of data files that were read to find the old rows.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    was_replayed: bool = False
    rows: int = 0
    late_rows: int = 0
    replaced_rows: int = 0
    data_files: int = 0
    position_delete_files: int = 0
    rewritten_files: int = 0
    read_bytes: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.was_replayed:
            return f"Nothing to upsert: {where} has this version already."
        late = f" {self.late_rows:,} rows were late: the table has newer ones." if self.late_rows else ""
        if self.snapshot_id is None:
            return f"Nothing to upsert into {where}.{late}"
        hidden = (
            f"{self.rewritten_files:,} data files were written again"
            if self.rewritten_files
            else f"{self.position_delete_files:,} files of position deletes hide them"
        )
        return (
            f"Upserted {self.rows:,} rows into {where}, in place of {self.replaced_rows:,}; {hidden}. Snapshot "
            f"{self.snapshot_id}, {self.read_bytes:,} bytes read, {self.seconds:.1f} s.{late}"
        )


class UpsertCommit:
    """The commit of one upsert.

    Args:
        catalog: The catalog of the table.
        plan: The plan of the write.
        encoding: How old rows are removed.
        spark: Runs the tasks of the search; None to run them in this process.
        options: The options of the write; None if no row of it is for a quarantine table.
        has_index: Whether keys are looked for by an index on the driver's disk, and not in the key columns of the
            table's data files.
    """

    def __init__(  # noqa: PLR0913  # the last by name
        self,
        catalog: CatalogClient,
        plan: WritePlan,
        encoding: RowEncoding,
        spark: SparkSession | None,
        options: SinkOptions | None = None,
        *,
        has_index: bool = False,
    ) -> None:
        self._has_index = has_index
        self._spark = spark
        self._catalog = catalog
        self._options = options or SinkOptions(table=parse_identifier(plan.write.table))
        self._plan = plan
        self._encoding: RowEncoding = encoding
        self._name = plan.write.table
        self._identifier = parse_identifier(self._name)
        self._search = KeySearch(f"upsert into {self._name}", spark, _base_of(plan))
        self._commits: Sequence[TaskCommit] = []
        self._of_keys: list[TaskCommit] = []
        self._as_written = frozenset[str]()
        self._to_delete = KeysToDelete(paths=frozenset(), key_types={})
        self._late_keys: pa.Table | None = None
        self._rounds = 0
        self._started = time.monotonic()

    def run(self, commits: Sequence[TaskCommit]) -> UpsertResult:
        """Search and commit, as `commit`, and return what the upsert did."""
        return self.result(self.commit(commits))

    @waiting_once()
    def commit(
        self, commits: Sequence[TaskCommit], *, epoch_id: int | None = None, table: Table | None = None
    ) -> CommitResult:
        """Search and commit; leave no unreferenced file, unless the outcome of a request is unknown.

        Args:
            commits: The messages of the tasks; their equality delete files have the keys to look for.
            epoch_id: The micro-batch that Spark commits; None for a batch write.
            table: The table, if it was loaded just now; None to load it.

        Raises:
            IcebergSinkError: As `upsert`.
        """
        quarantines: list[TableWrite] = []
        try:
            with giving_up(self._catalog, lambda: [self.at_stake(commits), *quarantines]):
                # Once: the write is made anew if its search has become stale.
                quarantines, (own,) = quarantine_writes(
                    self._catalog, [TableWrite(commits=commits)], lambda _: self._options
                )
                write = self.begin(own.commits, table)
            return commit_tables(self._catalog, [write], first=quarantines, epoch_id=epoch_id)[0]
        finally:
            self.forget_keys()

    def at_stake(self, commits: Sequence[TaskCommit]) -> TableWrite:
        """Return the write with all files that it has now, those of the search and those of the keys, too.

        Args:
            commits: As for `begin`.
        """
        if self._commits:  # `begin` has written some of their files again
            pairs = zip(self._commits, self._of_keys, strict=True)
            commits = [replace(own, delete_files=keys.delete_files) for own, keys in pairs]
        return TableWrite(commits=commits, rewrite=RewriteByKeys(self._to_delete, self._search))

    def begin(self, commits: Sequence[TaskCommit], table: Table | None = None) -> TableWrite:
        """Search the branch as it is now, and return the write that is to be committed.

        Args:
            commits: As for `run`.
            table: As for `commit`.

        Raises:
            IcebergSinkError: As `upsert`; nothing was committed, and the files are still there.
        """
        self._commits = [replace(commit, delete_files=()) for commit in commits]
        self._of_keys = [replace(commit, data_files=(), manifests=()) for commit in commits]
        self._as_written = frozenset(file.file_path for commit in commits for file in commit.data_files)
        self._check_losers()
        files = (file for commit in commits for file in commit.delete_files)
        keys = tuple(KeySource(data_file=file, sequence_number=None) for file in files)
        try:
            types = key_types([self._plan.schema], keys)
        except ValueError as problem:
            raise CommitConflictError(
                f"Cannot upsert into {self._name}, nothing was committed: its key columns were changed while rows were "
                f"written by keys: {problem}. Run the write again, with option 'keys' as the table is now."
            ) from problem
        self._to_delete = KeysToDelete(
            paths=frozenset(),
            key_types=types,
            written=keys,
            counts_stored=self._plan.write.changes is not None and self._plan.write.changes.counts_stored,
        )
        return self._searched(self._commits, table)

    def result(self, committed: CommitResult) -> UpsertResult:
        """Return what the upsert did, once its write was committed."""
        found, late = self._search.answers, self._late_keys
        late_rows = 0 if late is None else late.num_rows
        if committed.snapshot_id is None:
            return UpsertResult(
                table=self._name,
                branch=self._plan.write.route.branch,
                was_replayed=committed.was_replayed,
                late_rows=0 if committed.was_replayed else late_rows,
                seconds=time.monotonic() - self._started,
            )
        data_files = [file for commit in self._commits for file in commit.data_files]
        return UpsertResult(
            table=self._name,
            branch=self._plan.write.route.branch,
            snapshot_id=committed.snapshot_id,
            rows=committed.record_count or 0,
            late_rows=late_rows,
            replaced_rows=sum(answer.rows for answer in found.hit),
            data_files=len(data_files) - committed.lost_files,
            position_delete_files=len(found.added.delete_files),
            rewritten_files=len(found.rewritten),
            read_bytes=self._search.read_bytes,
            seconds=time.monotonic() - self._started,
        )

    def forget_keys(self) -> None:
        """Delete the files of keys, and of ids, which are in no table."""
        give_up_write(self._catalog, self._name, self._of_keys)
        if paths := sorted(self._search.ids_paths):
            delete_files(self._catalog.storage_of(paths[0]), paths, Proof.NEVER_SENT)

    def _searched(self, commits: Sequence[TaskCommit], table: Table | None = None) -> TableWrite:
        self._commits = commits = self._look_for_rows(commits, table)
        self._late_keys = self._search.answers.late_keys
        rewrite = RewriteByKeys(self._to_delete, self._search) if self._to_delete.written else None
        return TableWrite(commits=commits, rewrite=rewrite, late_keys=self._late_keys, renew=self._renew)

    def _renew(self, stale: RewriteValidationError) -> TableWrite:
        self._rounds += 1
        if self._rounds < ROUNDS:
            return self._searched(_renamed(self._commits))
        raise CommitConflictError(
            f"Cannot upsert into {self._name} in {ROUNDS} tries, nothing was committed: {stale}. Run it again."
        ) from stale

    def _check_losers(self) -> None:
        """Refuse rows that lose to rows of other tasks where no position delete may hide them."""
        if self._encoding == "copy-on-write" and self._count_losers():
            raise RefusedRowsError(
                f"Cannot upsert into {self._name}, nothing was committed: rows of one key came to several tasks, "
                "because Spark and the table tell these keys apart in different ways, such as UUIDs as text. Bring "
                "them into one form, or write with delete-encoding=position."
            )

    def _count_losers(self) -> int | None:
        try:
            storage_of = partial(storage_at_hand, self._catalog, self._name)
            return KeyReports(self._plan.write, self._commits, storage_of).hidden_count
        except Exception as problem:  # of any storage library: files are read for keys in doubt
            raise DataFileError(
                f"Cannot upsert into {self._name}, nothing was committed: keys that came to several tasks cannot "
                f"be read again: {self._catalog.describe(problem)}."
            ) from None  # the cause's own text may have secrets

    def _look_for_rows(self, commits: Sequence[TaskCommit], table: Table | None) -> Sequence[TaskCommit]:
        """Search the branch, and return the messages with the ids that rows keep."""
        table = find_patiently(self._catalog, self._identifier) if table is None else table
        if table is None:  # the commit creates the table, or says that it is gone
            return commits
        if (work := self._search.look(table, self._to_delete)) is None:
            return commits
        plan = SearchPlan.of(self._plan, table.metadata, self._to_delete.key_types, self._encoding)
        plan = replace(plan, keeps_ids=plan.with_vectors)
        if self._has_index:
            plan = replace(plan, index=self._tidy_index(plan.writing.name_mapping))
        self._search.run(work, plan)
        ids = self._search.answers.ids
        return with_kept_ids(self._spark, plan, ids, commits, table.io, as_written=self._as_written)

    def _tidy_index(self, name_mapping: str | None) -> KeyIndexPlace:
        """Let the index forget what the branch does not list any more, and return its place."""
        write, types = self._plan.write, self._to_delete.key_types
        place = index_place(self._options.key_index_folder, write.table_uuid, write.branch, types, name_mapping)
        with suppress(OSError), open_index(place) as index:  # what cannot be tidied now is tidied another time
            index.tidy({Indexed.of(found.data_file) for found in self._search.live.data})
        return place


def _base_of(plan: WritePlan) -> Callable[[TableMetadata], Snapshot | None]:
    return partial(write_base, route=plan.write.route)


def _renamed(commits: Sequence[TaskCommit]) -> list[TaskCommit]:
    """Return the messages with a new operation id and snapshot id, so that file names are new, too."""
    operation_id, snapshot_id = new_operation()
    write = replace(commits[0].write, operation_id=operation_id, snapshot_id=snapshot_id)
    return [replace(commit, write=write) for commit in commits]


def upsert(
    df: DataFrame,
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    keys: Sequence[str] | str | None = None,
) -> UpsertResult:
    """Write rows by key, in one snapshot that every reader can read: it has the new rows, and not the old ones.

    No equality delete is added to the table. A Spark job finds the old rows: it reads the key columns of the data files
    that may have them.

    Args:
        df: The rows, or the change feed: a batch, such as the one that `foreachBatch` gets.
        table: Identifier of the table, such as `db.events`; it is created if it does not exist.
        options: The options of a write by keys. `delete-encoding` is `position` (the default), which hides old rows by
            position deletes, or `copy-on-write`, which rewrites their data files without them. None for no options.
        keys: Names of the key columns, or one text with commas between them; None for the names in option `keys`.

    Returns:
        What was written and replaced; its `snapshot_id` is None if there was nothing to change.

    Raises:
        OptionError: The options are malformed, name another table, or do not fit the table or the DataFrame.
        RefusedRowsError: Rows cannot be read as changes of keys; nothing was committed.
        CommitConflictError: Others kept changing the same files; nothing was committed.
        IcebergSinkError: As a write with `format("icebergsink")`.
    """
    if df.isStreaming:
        raise OptionError(
            f"Cannot upsert into {mask_url(table)}: the DataFrame is a stream. Write it with foreachBatch and "
            "iceberg_ds.upsert_into."
        )
    parsed = parse_options(_options_of_call(table, options, keys))
    catalog = connect(catalog_settings(parsed), parsed.reports)
    with catalog.hiding_secrets():
        return _Upsert(catalog, parsed, df).run()


def upsert_into(
    table: str, *, options: Mapping[str, str] | None = None, keys: Sequence[str] | str | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that upserts each micro-batch exactly once.

    Each micro-batch is recorded under the id of the streaming query, so one that Spark repeats changes nothing. Option
    `txn-app-id` names the query where its id is unknown (Spark Connect), or where the name has to outlive a checkpoint.

    Args:
        table: Identifier of the table, such as `db.events`; it is created if it does not exist.
        options: The options of a write by keys, as `upsert` takes them. None for no options.
        keys: Names of the key columns, or one text with commas between them; None for the names in option `keys`.

    Returns:
        The function; it takes a DataFrame and the number of its epoch, raises as `upsert` does, and logs the result.

    Raises:
        OptionError: The options are malformed, or name another table.
    """
    given = _options_of_call(table, options, keys)
    if "txn-version" in given:
        raise OptionError(
            f"Cannot upsert into {mask_url(table)}: option 'txn-version' is given, and micro-batches number "
            "themselves. Drop it."
        )
    parse_options({**given, **_numbered(given.get("txn-app-id", "query"), 0)})

    def write(df: DataFrame, epoch_id: int) -> None:
        app_id = given.get("txn-app-id") or query_id_of(df.sparkSession)
        if app_id is None:
            raise OptionError(
                f"Cannot upsert into {table}: this session does not tell the query's id. Give option 'txn-app-id', a "
                "name that no other query has."
            )
        result = upsert(df, table, options={**given, **_numbered(app_id, epoch_id)})
        logger.info("%s", result)

    return write


def _options_of_call(table: str, options: Mapping[str, str] | None, keys: Sequence[str] | str | None) -> dict[str, str]:
    given = options_of_call(table, options)
    if keys is None:
        return given
    if not isinstance(keys, Sequence) or not all(isinstance(name, str) for name in keys):
        raise OptionError(f"Cannot upsert into {table}: keys is {keys!r}, expected a text or a list of names.")
    return {**given, "keys": keys if isinstance(keys, str) else ", ".join(identifier_text([name]) for name in keys)}


def _numbered(app_id: str, version: int) -> dict[str, str]:
    return {"txn-app-id": app_id, "txn-version": str(version)}


class _Upsert:
    """One upsert."""

    def __init__(self, catalog: CatalogClient, options: SinkOptions, df: DataFrame) -> None:
        self._catalog = catalog
        self._options = options
        self._df = df
        self._started = time.monotonic()

    def run(self) -> UpsertResult:
        """Plan, write, search and commit."""
        plan = plan_write(self._catalog, self._options, self._df.schema, WriteMode.UPSERT, is_stream=False)
        check_session(plan, self._df.sparkSession)
        fault_point(FaultPoint.PLANNED)
        if was_written_before(self._catalog, plan.write):
            result = UpsertResult(table=plan.write.table, branch=plan.write.route.branch, was_replayed=True)
        else:
            encoding = row_encoding(self._options)
            commit = UpsertCommit(self._catalog, plan, encoding, self._df.sparkSession, self._options)
            name = plan.write.table
            discard = partial(give_up_write, self._catalog, name)
            result = commit.run(write_rows(self._df, plan, f"upsert into {name}", discard))
        return replace(result, seconds=time.monotonic() - self._started)


def row_encoding(options: SinkOptions) -> RowEncoding:
    """Return how an upsert with these options removes old rows."""
    return "copy-on-write" if options.delete_encoding == "copy-on-write" else "position"
