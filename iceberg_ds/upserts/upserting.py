"""`upsert` and `upsert_into`: rows replace those of their keys, and no reader meets a delete by keys.

The tasks of a first job write the rows, and files of the keys; those of a second one look for the keys in the table, and
mark or rewrite what they find. Then one snapshot adds the rows and takes the old ones away. If others bring data files
meanwhile, these are searched, too: what commits later wins.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType
from pyspark.sql import DataFrame

from iceberg_ds.catalogs.client import CatalogClient, connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.commits.abort import delete_reported_files
from iceberg_ds.commits.commit import commit_write
from iceberg_ds.commits.commit_loop import CommitResult
from iceberg_ds.commits.swapping import StaleWorkError
from iceberg_ds.distribution import distribute
from iceberg_ds.errors import CatalogError, CommitConflictError, IcebergSinkError, OptionError
from iceberg_ds.layouts.terms import quoted
from iceberg_ds.messages import TaskCommit, WriteIdentity
from iceberg_ds.options import SinkOptions, parse_options
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning import WriteMode, plan_write
from iceberg_ds.resolving.scan import KeySource, LiveFiles
from iceberg_ds.resolving.search import KeySearch
from iceberg_ds.resolving.swap import ResolvedSwap
from iceberg_ds.resolving.values import ResolvePlan, RowEncoding
from iceberg_ds.snapshots.branches import write_base
from iceberg_ds.snapshots.landing import Landing, find_landing
from iceberg_ds.steps import Step, reach
from iceberg_ds.storage.cleanup import Proof, delete_files
from iceberg_ds.upserts.job import write_by_keys
from iceberg_ds.upserts.result import UpsertResult

logger = logging.getLogger(__name__)

_SIGNED_64_BIT = 0x7FFF_FFFF_FFFF_FFFF
# How often data files that others have brought meanwhile are searched, too.
_ROUNDS = 10
_QUERY_ID = "sql.streaming.queryId"


def upsert(
    df: DataFrame,
    table: str,
    *,
    keys: Sequence[str] | str | None = None,
    options: Mapping[str, str] | None = None,
) -> UpsertResult:
    """Write rows by key into a table that every reader can read afterwards: no delete by keys comes into it.

    One snapshot has the new rows and not the old ones. The old ones are looked for by a job of Spark, which reads the
    key columns of the data files that may have them.

    Args:
        df: The rows, or the change feed; a batch, such as that of `foreachBatch`.
        table: Identifier of the table, such as `db.events`; it is created if it does not exist.
        keys: Names of the key columns, or text with commas; None if option `keys` says them.
        options: The options of a write by keys. `delete-encoding` is `position`, also by default, which marks old rows by
            position deletes, or `copy-on-write`, which writes the files that have them again.

    Raises:
        OptionError: The options are malformed, or do not fit the table or the DataFrame.
        RefusedRowsError: Rows cannot be read as changes of keys; nothing was committed.
        CommitConflictError: Others change the same files again and again; nothing was committed.
        IcebergSinkError: As a write with `format("icebergsink")`.
    """
    if df.isStreaming:
        raise OptionError(
            f"Cannot upsert into {table}: the DataFrame is a stream. Write it with foreachBatch and "
            "iceberg_ds.upsert_into."
        )
    parsed = parse_options({**_given(keys, options), "table": table})
    catalog = connect(catalog_settings(parsed))
    with catalog.hiding_secrets():
        return _Upsert(catalog, parsed, df).run()


def upsert_into(
    table: str, *, keys: Sequence[str] | str | None = None, options: Mapping[str, str] | None = None
) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` takes to upsert each micro-batch exactly once; arguments as of `upsert`.

    Each micro-batch is recorded under the id of the streaming query, so that one that Spark repeats changes nothing.
    Option `txn-app-id` names the query where its id cannot be known (Spark Connect), or where it shall outlive a checkpoint.

    Raises:
        OptionError: The options are malformed.
    """
    given = _given(keys, options)
    if "txn-version" in given:
        raise OptionError(
            f"Cannot upsert into {table}: option 'txn-version' is given, and micro-batches number themselves."
        )
    parse_options({**given, "table": table, **_numbered(given.get("txn-app-id", "query"), 0)})

    def write(df: DataFrame, epoch_id: int) -> None:
        app_id = given.get("txn-app-id") or _query_id(df)
        if app_id is None:
            raise OptionError(
                f"Cannot upsert into {table}: this session does not tell the query's id. Give option 'txn-app-id', a "
                "name of the query that no other one has."
            )
        result = upsert(df, table, options={**given, **_numbered(app_id, epoch_id)})
        logger.info("%s", result)

    return write


def _given(keys: Sequence[str] | str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    given = {key.lower(): str(value) for key, value in (options or {}).items()}
    if keys is None:
        return given
    return {**given, "keys": keys if isinstance(keys, str) else ", ".join(quoted([name]) for name in keys)}


def _numbered(app_id: str, version: int) -> dict[str, str]:
    return {"txn-app-id": app_id, "txn-version": str(version)}


def _query_id(df: DataFrame) -> str | None:
    try:
        found = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # Spark Connect has no such thing
        return None
    return None if found is None else str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenKeys:
    """The keys of the rows that tasks have written, in files of no snapshot.

    Attributes:
        files: The files.
        key_types: The types of the key columns, by field id.
    """

    files: Sequence[DataFile]
    key_types: Mapping[int, IcebergType]

    def sources(self, live: LiveFiles) -> list[KeySource]:  # noqa: ARG002  # what is there changes nothing
        """Return the files, which mean rows of all data files."""
        return [KeySource(data_file=file, sequence_number=None) for file in self.files]


class _Upsert:
    """One upsert."""

    def __init__(self, catalog: CatalogClient, options: SinkOptions, df: DataFrame) -> None:
        self._catalog = catalog
        self._options = options
        self._df = df
        self._name = ".".join(options.table)
        self._started = time.monotonic()

    def run(self) -> UpsertResult:
        """Plan, write, search and commit."""
        plan = plan_write(self._catalog, self._options, self._df.schema, WriteMode.UPSERT, is_stream=False)
        reach(Step.PLANNED)
        identity = WriteIdentity.of(plan, None)
        if self._has_landed(identity):
            return UpsertResult(table=self._name, branch=plan.branch, was_replayed=True, seconds=self._seconds)
        commits = self._written(plan)
        key_files = [file for commit in commits for file in commit.delete_files]
        try:
            return self._commit(plan, [replace(commit, delete_files=()) for commit in commits], key_files)
        finally:
            self._discard(key_files)

    def _has_landed(self, write: WriteIdentity) -> bool:
        """Return whether the table has this version of the application's already, so that nothing need be written."""
        table = None if write.txn is None else self._catalog.find_table(self._options.table)
        return table is not None and find_landing(table.metadata, write, [], bool).landing is Landing.REPLAYED

    def _written(self, plan: WritePlan) -> list[TaskCommit]:
        """Write rows and keys, and return what the tasks report."""
        keys = [str(plan.schema.find_column_name(number)) for number in plan.changes.key_ids] if plan.changes else []
        answers = write_by_keys(distribute(self._df, keys=keys), plan)
        commits = [answer for answer in answers if isinstance(answer, TaskCommit)]
        if problem := next((answer for answer in answers if isinstance(answer, IcebergSinkError)), None):
            delete_reported_files(self._catalog, commits)
            raise problem
        return commits

    def _commit(self, plan: WritePlan, commits: Sequence[TaskCommit], key_files: Sequence[DataFile]) -> UpsertResult:
        goal = WrittenKeys(files=key_files, key_types=_key_types(plan))
        search = KeySearch(f"upsert into {self._name}", self._df.sparkSession, _base_of(plan))
        stale: StaleWorkError | None = None
        for number in range(_ROUNDS):
            renamed = commits if number == 0 else _renamed(commits)
            self._search(plan, search, goal, renamed)
            swap = ResolvedSwap(goal, search, keeps_rows=False)
            try:
                committed = commit_write(self._catalog, renamed, swap=swap if key_files else None)
            except StaleWorkError as problem:
                logger.info("Searching %s again: %s", self._name, problem)
                stale = problem
            else:
                return self._result(plan, commits, search, committed)
        self._give_up(commits, search)
        raise CommitConflictError(
            f"Cannot upsert into {self._name} in {_ROUNDS} tries, nothing was committed: {stale}. Run it again."
        ) from stale

    def _search(self, plan: WritePlan, search: KeySearch, goal: WrittenKeys, commits: Sequence[TaskCommit]) -> None:
        table = self._catalog.find_table(self._options.table)
        if table is None:  # it is created by the commit, or the commit says that it is gone
            return
        try:
            if (look := search.look(table, goal)) is not None:
                search.run(look, self._search_plan(plan, table.metadata, goal))
        except BaseException:
            self._give_up(commits, search)
            raise

    def _give_up(self, commits: Sequence[TaskCommit], search: KeySearch) -> None:
        """Delete what tasks have written; no commit has landed, and none can land any more."""
        self._discard([file for commit in commits for file in commit.data_files])
        self._discard(search.resolution.added.files)

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Delete files that no table has; what cannot be reached stays, and is logged."""
        if not files:
            return
        try:
            io = self._catalog.file_io(self._options.table, files[0].file_path)
        except CatalogError as unreachable:  # there is an outcome to report already
            logger.warning("Left behind %d files, such as %s: %s", len(files), files[0].file_path, unreachable)
        else:
            delete_files(io, [file.file_path for file in files], Proof.REFUSED)

    def _search_plan(self, plan: WritePlan, metadata: TableMetadata, goal: WrittenKeys) -> ResolvePlan:
        return ResolvePlan(
            write=plan, specs=metadata.specs(), key_types=goal.key_types, encoding=row_encoding(self._options)
        )

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _result(
        self, plan: WritePlan, commits: Sequence[TaskCommit], search: KeySearch, committed: CommitResult
    ) -> UpsertResult:
        found = search.resolution
        data_files = [file for commit in commits for file in commit.data_files]
        return UpsertResult(
            table=self._name,
            branch=plan.branch,
            snapshot_id=committed.snapshot_id,
            was_replayed=committed.was_replayed,
            rows=sum(file.record_count for file in data_files),
            replaced_rows=sum(answer.rows for answer in found.hit),
            data_files=len(data_files),
            position_delete_files=len(found.added.delete_files),
            rewritten_files=len(found.rewritten),
            read_bytes=search.read_bytes,
            seconds=self._seconds,
        )


def _key_types(plan: WritePlan) -> dict[int, IcebergType]:
    return {number: plan.schema.find_type(number) for number in plan.changes.key_ids} if plan.changes else {}


def _base_of(plan: WritePlan) -> Callable[[TableMetadata], Snapshot | None]:
    return partial(write_base, branch=plan.branch, fork_from=plan.fork_from, publish_to=plan.publish_to)


def _renamed(commits: Sequence[TaskCommit]) -> list[TaskCommit]:
    """Return the messages as those of another write, whose commit has other names and another id."""
    operation_id = uuid.uuid4()
    snapshot_id = (operation_id.int & _SIGNED_64_BIT) or 1
    write = replace(commits[0].write, operation_id=str(operation_id), snapshot_id=snapshot_id)
    return [replace(commit, write=write) for commit in commits]
