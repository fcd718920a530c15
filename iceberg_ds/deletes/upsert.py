"""`upsert` and `upsert_into`: new rows replace the rows with their keys, without equality deletes in the table.

A Spark job writes the rows: each task writes data files, and files of the keys to look for. A failing task leaves no
file and says so in its answer instead of failing the job, which would lose the messages of the other tasks. The task
fails only if Spark will try it again. Then other tasks look for the keys in the table, and hide the rows that they find
by position deletes or rewrite their files, and one commit adds the new rows and removes the old ones. Data files that
others commit meanwhile are searched, too: the later commit wins.
"""

from __future__ import annotations

import json
import logging
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from iceberg_ds._version import __version__, why_not_version
from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import commit_write, delete_reported_files
from iceberg_ds.commit.cross_task import KeyReports
from iceberg_ds.commit.overwrite import StaleWorkError
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.together import TableWrite, commit_tables
from iceberg_ds.deletes.index import KeySource, key_types
from iceberg_ds.deletes.job import job_failure
from iceberg_ds.deletes.search import KeySearch, KeysToDelete, RewriteByKeys
from iceberg_ds.deletes.work import RowEncoding, SearchPlan
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
    RowCountError,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.metrics.commit_meter import metered
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import TaskKeys, WritePlan, new_operation
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.planning.quarantine import quarantine_writes
from iceberg_ds.secrets import mask_url
from iceberg_ds.snapshots.commit_status import CommitStatus, check_commit_status
from iceberg_ds.snapshots.refs import write_base
from iceberg_ds.spark.distribution import distribute
from iceberg_ds.spark.session_settings import check_audit_settings, check_zone_of_session
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.writers.keyed import report_keyed_task
from iceberg_ds.writers.task_writer import TaskAttempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

_ANSWER = "answer"
_DEFAULT_TRIES = 4

# What a task reports, or why it failed.
Answer: TypeAlias = TaskCommit | IcebergSinkError
# The largest number of rounds: each one also searches the data files that others committed during the one before.
ROUNDS = 10
_QUERY_ID = "sql.streaming.queryId"


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


def write_by_keys(df: DataFrame, plan: WritePlan) -> list[Answer]:
    """Write the changes of a DataFrame; works with classic Spark and with Spark Connect.

    Args:
        df: The rows; all rows of a key are in one task.
        plan: The plan of the write.

    Raises:
        DataFileError: The job could not begin, or it failed as a whole, and what its tasks wrote is unknown.
    """
    try:
        with warnings.catch_warnings():
            # PySpark warns that it does not know this version of pandas, but nothing here uses pandas.
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            rows = df.mapInArrow(_task(plan, _tries(df.sparkSession)), f"{_ANSWER} BINARY").collect()
    except ImportError as missing:
        raise DataFileError(
            f"Cannot upsert into {plan.write.table}, nothing was written: Spark's mapInArrow needs pandas ({missing}). "
            "Install it here: pip install 'iceberg-ds[upserts]'."
        ) from missing
    except Exception as error:  # Spark's own
        raise job_failure(f"upsert into {plan.write.table}", plan.write, error) from error
    return [pickle.loads(row[_ANSWER]) for row in rows]  # noqa: S301  # made by our own tasks


def _task(plan: WritePlan, tries: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    version, packed = __version__, pickle.dumps(plan)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answer = answer_of_task(version, packed, tries, batches)
        yield pa.RecordBatch.from_pydict({_ANSWER: pa.array([answer], pa.binary())})

    return run


def answer_of_task(version: str, plan: bytes, tries: int, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Write the rows of one task, and return its answer, pickled.

    Args:
        version: Version of the package on the driver.
        plan: The plan of the write, pickled.
        tries: How often Spark tries a task.
        batches: The rows.
    """
    if (problem := why_not_version(version)) is not None:
        return pickle.dumps(DataFileError(f"Cannot upsert, nothing was written: {problem}."))
    task = TaskContext.get()
    if task is None:
        raise CommitMessageError("Cannot upsert: this is not a Spark task.")
    attempt = TaskAttempt(partition_id=task.partitionId(), task_attempt_id=task.taskAttemptId())
    is_last_try = task.attemptNumber() + 1 >= tries
    return pickle.dumps(_written(pickle.loads(plan), batches, attempt, is_last_try=is_last_try))  # noqa: S301  # our own


def _written(plan: WritePlan, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt, *, is_last_try: bool) -> Answer:
    try:
        return report_keyed_task(plan, batches, attempt)
    except IcebergSinkError as problem:
        if isinstance(problem, DataFileError) and not is_last_try:
            raise
        return problem


def _tries(spark: SparkSession) -> int:
    """Return how often Spark tries a task, or 1 if that is unknown."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has none
        return 1
    if str(context.master).startswith("local"):
        return 1
    return int(context.getConf().get("spark.task.maxFailures", str(_DEFAULT_TRIES)))


class UpsertCommit:
    """The commit of one upsert.

    Args:
        catalog: The catalog of the table.
        plan: The plan of the write.
        encoding: How old rows are removed.
        spark: Runs the tasks of the search; None to run them in this process.
        options: The options of the write; None if no row of it can be for a quarantine table.
    """

    def __init__(
        self,
        catalog: CatalogClient,
        plan: WritePlan,
        encoding: RowEncoding,
        spark: SparkSession | None,
        options: SinkOptions | None = None,
    ) -> None:
        self._catalog = catalog
        self._plan = plan
        self._encoding: RowEncoding = encoding
        self._options = options or SinkOptions(table=parse_identifier(plan.write.table))
        self._name = plan.write.table
        self._identifier = parse_identifier(self._name)
        self._search = KeySearch(f"upsert into {self._name}", spark, _base_of(plan))
        self._started = time.monotonic()

    def run(self, commits: Sequence[TaskCommit]) -> UpsertResult:
        """Search and commit; leave no unreferenced file, unless the outcome of a request is unknown.

        Args:
            commits: The messages of the tasks; their equality delete files have the keys to look for.

        Raises:
            IcebergSinkError: As `upsert`.
        """
        key_files = [file for commit in commits for file in commit.delete_files]
        try:
            return self._commit([replace(commit, delete_files=()) for commit in commits], key_files)
        finally:
            self._discard(key_files)

    def _commit(self, commits: Sequence[TaskCommit], key_files: Sequence[DataFile]) -> UpsertResult:
        self._check_losers(commits)
        quarantines, (write,) = quarantine_writes(self._catalog, [TableWrite(commits=commits)], lambda _: self._options)
        commits = write.commits
        keys = tuple(KeySource(data_file=file, sequence_number=None) for file in key_files)
        to_delete = KeysToDelete(
            paths=frozenset(),
            key_types=key_types([self._plan.schema], keys),
            written=keys,
            counts_stored=self._plan.write.changes is not None and self._plan.write.changes.counts_stored,
        )
        rewrite = RewriteByKeys(to_delete, self._search) if keys else None
        stale: StaleWorkError | None = None
        for number in range(ROUNDS):
            named = commits if number == 0 else _renamed(commits)
            self._look_for_rows(to_delete, named)
            if number == 0 and quarantines:
                self._commit_quarantine(quarantines, commits)
            try:
                late_keys = self._search.answers.late_keys
                committed = commit_write(self._catalog, named, rewrite=rewrite, late_keys=late_keys)
            except StaleWorkError as problem:
                logger.info("Searching %s again: %s", self._name, problem)
                stale = problem
            except (CommitMessageError, DataFileError, RowCountError):
                # Before the first request, only the files of the write's own tasks were deleted.
                self._discard(self._search.answers.added.files)
                raise
            else:
                return self._result(commits, committed, 0 if late_keys is None else late_keys.num_rows)
        self._give_up(commits)
        raise CommitConflictError(
            f"Cannot upsert into {self._name} in {ROUNDS} tries, nothing was committed: {stale}. Run it again."
        ) from stale

    def _commit_quarantine(self, quarantines: Sequence[TableWrite], commits: Sequence[TaskCommit]) -> None:
        """Commit the rows that cannot be written, before the others: a later round of the search repeats only those."""
        try:
            commit_tables(self._catalog, quarantines)
        except BaseException:
            self._give_up(commits)
            raise
        fault_point(FaultPoint.QUARANTINED)

    def _check_losers(self, commits: Sequence[TaskCommit]) -> None:
        """Refuse rows that lose to rows of other tasks where no position delete may hide them."""
        if self._encoding == "copy-on-write" and self._count_losers(commits):
            self._give_up(commits)
            raise RefusedRowsError(
                f"Cannot upsert into {self._name}, nothing was committed: rows of one key came to several tasks, "
                "because Spark and the table tell these keys apart in different ways, such as UUIDs as text. Bring "
                "them into one form, or write with delete-encoding=position."
            )

    def _count_losers(self, commits: Sequence[TaskCommit]) -> int | None:
        try:
            return KeyReports(commits[0].write, commits, self._storage_of).hidden_count
        except Exception as problem:  # of any storage library: files are read for keys in doubt
            self._give_up(commits)
            raise DataFileError(
                f"Cannot upsert into {self._name}, nothing was committed: keys that came to several tasks cannot "
                f"be read again: {self._catalog.describe(problem)}."
            ) from None  # the cause's own text may have secrets

    def _look_for_rows(self, to_delete: KeysToDelete, commits: Sequence[TaskCommit]) -> None:
        try:
            table = self._catalog.find_table(self._identifier)
            if table is None:  # the commit creates the table, or says that it is gone
                return
            if (work := self._search.look(table, to_delete)) is not None:
                self._search.run(work, SearchPlan.of(self._plan, table.metadata, to_delete.key_types, self._encoding))
        except BaseException:
            self._give_up(commits)
            raise

    def _give_up(self, commits: Sequence[TaskCommit]) -> None:
        """Delete what the tasks wrote; no commit has landed, and none can land any more."""
        self._discard([file for commit in commits for file in commit.data_files])
        self._discard(self._search.answers.added.files)

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Delete files that no table refers to; log the files that stay because their storage cannot be opened."""
        if not files:
            return
        path = files[0].file_path
        try:
            io = self._storage_of(path)
        except Exception as problem:  # of any storage library; the caller already has an outcome to report
            reason = self._catalog.describe(problem)
            logger.warning("Left behind %d files, such as %s: %s", len(files), path, reason)
        else:
            delete_files(io, [file.file_path for file in files], Proof.REFUSED)

    def _storage_of(self, path: str) -> FileIO:
        try:
            return self._catalog.file_io(self._identifier, path)
        except IcebergSinkError:  # the catalog cannot be reached; the storage may be
            return self._catalog.storage_of(path)

    def _result(self, commits: Sequence[TaskCommit], committed: CommitResult, late_count: int) -> UpsertResult:
        found = self._search.answers
        if committed.snapshot_id is None:
            return UpsertResult(
                table=self._name,
                branch=self._plan.write.route.branch,
                was_replayed=committed.was_replayed,
                late_rows=0 if committed.was_replayed else late_count,
                seconds=time.monotonic() - self._started,
            )
        data_files = [file for commit in commits for file in commit.data_files]
        return UpsertResult(
            table=self._name,
            branch=self._plan.write.route.branch,
            snapshot_id=committed.snapshot_id,
            rows=committed.record_count or 0,
            late_rows=late_count,
            replaced_rows=sum(answer.rows for answer in found.hit),
            data_files=len(data_files) - committed.lost_files,
            position_delete_files=len(found.added.delete_files),
            rewritten_files=len(found.rewritten),
            read_bytes=self._search.read_bytes,
            seconds=time.monotonic() - self._started,
        )


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
        app_id = given.get("txn-app-id") or _query_id(df)
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
    return {**given, "keys": keys if isinstance(keys, str) else ", ".join(identifier_text([name]) for name in keys)}


def _numbered(app_id: str, version: int) -> dict[str, str]:
    return {"txn-app-id": app_id, "txn-version": str(version)}


def _query_id(df: DataFrame) -> str | None:
    try:
        found = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # Spark Connect has no SparkContext
        return None
    return None if found is None else str(found)


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
        for check in (check_audit_settings, check_zone_of_session):
            check(plan, lambda key: self._df.sparkSession.conf.get(key, None))
        fault_point(FaultPoint.PLANNED)
        if self._has_landed(plan):
            result = UpsertResult(table=plan.write.table, branch=plan.write.route.branch, was_replayed=True)
        else:
            encoding: RowEncoding = "copy-on-write" if self._options.delete_encoding == "copy-on-write" else "position"
            commit = UpsertCommit(self._catalog, plan, encoding, self._df.sparkSession, self._options)
            result = commit.run(self._written(plan))
        return replace(result, seconds=time.monotonic() - self._started)

    def _has_landed(self, plan: WritePlan) -> bool:
        """Return whether the table already has this `txn-version` of the application."""
        table = None if plan.write.txn is None else self._catalog.find_table(self._options.table)
        if table is None:
            return False
        found = check_commit_status(table.metadata, plan.write, [], bool)
        if found.status is not CommitStatus.REPLAYED:
            return False
        with metered(self._catalog.reporting, plan.write) as meter:
            meter.replayed(table.metadata, found.marker.snapshot_id if found.marker else None)
        return True

    def _give_up(self, commits: Sequence[TaskCommit]) -> None:
        try:
            delete_reported_files(self._catalog, commits)
        except CatalogError as unreachable:  # the caller already has a problem to report
            logger.warning("Left behind what tasks wrote for %s: %s", identifier_text(self._options.table), unreachable)

    def _written(self, plan: WritePlan) -> list[TaskCommit]:
        """Write rows and keys, and return the messages of the tasks."""
        key_ids = plan.write.changes.key_ids if plan.write.changes else ()
        keys = [str(plan.schema.find_column_name(number)) for number in key_ids]
        answers = write_by_keys(distribute(self._df, keys=keys), plan)
        commits = [answer for answer in answers if isinstance(answer, TaskCommit)]
        problem = next((answer for answer in answers if isinstance(answer, IcebergSinkError)), None)
        if problem is not None:
            self._give_up(commits)
            raise problem
        # Spark runs no task for a DataFrame that it knows to be empty.
        return commits or [_of_no_rows(plan)]


def _of_no_rows(plan: WritePlan) -> TaskCommit:
    return TaskCommit(plan.write, 0, (), keys=TaskKeys(count=0, modulus=0), counts=RowCounts(received=0))
