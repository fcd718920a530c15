"""`upsert` and `upsert_into`: rows replace those of their keys, and no reader meets a delete by keys."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from iceberg_ds.catalogs.client import CatalogClient, connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.changes.values import TaskKeys
from iceberg_ds.commits.abort import delete_reported_files
from iceberg_ds.distribution import distribute
from iceberg_ds.errors import CatalogError, IcebergSinkError, OptionError
from iceberg_ds.identifiers import identifier_text
from iceberg_ds.messages import TaskCommit, WriteIdentity
from iceberg_ds.options import SinkOptions, given_options, parse_options
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning import WriteMode, plan_write
from iceberg_ds.resolving.values import RowEncoding
from iceberg_ds.row_counts import RowCounts
from iceberg_ds.session_settings import check_audit_settings, check_zone_of_session
from iceberg_ds.snapshots.landing import Landing, find_landing
from iceberg_ds.steps import Step, reach
from iceberg_ds.upserts.committing import UpsertCommit
from iceberg_ds.upserts.job import write_by_keys
from iceberg_ds.upserts.result import UpsertResult

logger = logging.getLogger(__name__)

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
        options: The options of a write by keys. `delete-encoding` is `position`, also by default, which marks old rows
            by position deletes, or `copy-on-write`, which writes the files that have them again.

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
    Option `txn-app-id` names the query where its id cannot be known (Spark Connect), or where the name shall outlive a
    checkpoint.

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
    given = given_options(options)
    if keys is None:
        return given
    return {**given, "keys": keys if isinstance(keys, str) else ", ".join(identifier_text([name]) for name in keys)}


def _numbered(app_id: str, version: int) -> dict[str, str]:
    return {"txn-app-id": app_id, "txn-version": str(version)}


def _query_id(df: DataFrame) -> str | None:
    try:
        found = df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # Spark Connect has no such thing
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
        reach(Step.PLANNED)
        if self._has_landed(plan):
            result = UpsertResult(table=plan.table, branch=plan.route.branch, was_replayed=True)
        else:
            encoding: RowEncoding = "copy-on-write" if self._options.delete_encoding == "copy-on-write" else "position"
            commit = UpsertCommit(self._catalog, plan, encoding, self._df.sparkSession)
            result = commit.run(self._written(plan))
        return replace(result, seconds=time.monotonic() - self._started)

    def _has_landed(self, plan: WritePlan) -> bool:
        """Return whether the table has this version of the application's already, so that nothing need be written."""
        table = None if plan.txn is None else self._catalog.find_table(self._options.table)
        if table is None:
            return False
        return find_landing(table.metadata, WriteIdentity.of(plan, None), [], bool).landing is Landing.REPLAYED

    def _give_up(self, commits: Sequence[TaskCommit]) -> None:
        try:
            delete_reported_files(self._catalog, commits)
        except CatalogError as unreachable:  # there is a problem to report already
            logger.warning("Left behind what tasks wrote for %s: %s", identifier_text(self._options.table), unreachable)

    def _written(self, plan: WritePlan) -> list[TaskCommit]:
        """Write rows and keys, and return what the tasks report."""
        key_ids = plan.changes.key_ids if plan.changes else ()
        keys = [str(plan.schema.find_column_name(number)) for number in key_ids]
        answers = write_by_keys(distribute(self._df, keys=keys), plan)
        commits = [answer for answer in answers if isinstance(answer, TaskCommit)]
        problem = next((answer for answer in answers if isinstance(answer, IcebergSinkError)), None)
        if problem is not None:
            self._give_up(commits)
            raise problem
        # Spark runs no task for rows that it knows to be none.
        return commits or [_of_no_rows(plan)]


def _of_no_rows(plan: WritePlan) -> TaskCommit:
    return TaskCommit(
        WriteIdentity.of(plan, None), 0, (), keys=TaskKeys(count=0, modulus=0), counts=RowCounts(received=0)
    )
