"""Adapts Spark's Python Data Source API; holds no Iceberg logic, and alone reads Spark's `TaskContext`.

Spark makes these objects in several Python processes, so each imports only what its role needs, at the
time it needs it: finding the data source must work where PyIceberg does not.

* planner: `writer()` and `streamWriter()` decide everything and ship a `WritePlan`;
* tasks: `write()` turns Arrow batches into files and a message;
* committer: `commit()` and `abort()`. In a batch it gets the planner's writer, as the tasks do, in a stream a new
  one that is made from an unpickled `IcebergSink`; that one plans nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from iceberg_ds.errors import CommitMessageError, IcebergSinkError, OptionError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.garbage_collection import no_garbage_collection
from iceberg_ds.io.configuration import read_configuration
from iceberg_ds.spark.driver_secrets import KeptOnDriver
from iceberg_ds.spark.workers import acknowledging, eased

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 has none, and hands Arrow batches to a writer that is of both kinds

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef,misc]
        """A streaming writer that gets Arrow batches."""


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from iceberg_ds.catalog.client import CatalogClient
    from iceberg_ds.options.routes import RouteOptions
    from iceberg_ds.options.sink_options import SinkOptions
    from iceberg_ds.plan import EpochId, RoutedPlan, WritePlan

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_EPOCH_ID = "streaming.sql.batchId"
_CATALOG_PREFIX = "catalog."  # as in the table of options, which tasks do not load
_RUN_ID = "spark.jobGroup.id"  # a streaming query's jobs are grouped by its run


class IcebergSink(DataSource):
    """The data source `icebergsink`: writes batch and streaming DataFrames into Iceberg tables.

    Register it with `spark.dataSource.register(IcebergSink)` or `iceberg_ds.register(spark)`, or rely on
    PySpark, which finds it by itself where the package is installed. Options: docs/options.md.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_committer = False

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "icebergsink"

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Only Spark's stream committer gets the data source pickled.
        self.__dict__.update(state, _is_committer=True)

    def writer(self, schema: StructType, overwrite: bool) -> IcebergBatchWriter:  # noqa: FBT001  # Spark's signature
        """Plan a batch write of a DataFrame with `schema`.

        Raises:
            IcebergSinkError: The options, the table or the schema do not allow the write.
        """
        plan = _plan(_Options(self.options), schema, overwrite=overwrite, is_stream=False)
        return IcebergBatchWriter(self.options, plan)

    def streamWriter(self, schema: StructType, overwrite: bool) -> IcebergStreamWriter:  # noqa: FBT001, N802  # Spark's
        """Plan a micro-batch with `schema`, or make the writer that commits one.

        Raises:
            IcebergSinkError: The options, the table or the schema do not allow the write.
        """
        options = _Options(self.options)
        if self._is_committer:
            return IcebergStreamWriter(options, None)
        return IcebergStreamWriter(options, _plan(options, schema, overwrite=overwrite, is_stream=True))

    def schema(self) -> NoReturn:
        """Refuse to read."""
        _refuse_reading()

    def reader(self, schema: StructType) -> NoReturn:  # noqa: ARG002  # Spark's signature
        """Refuse to read."""
        _refuse_reading()

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: ARG002, N802  # Spark's signature
        """Refuse to read."""
        _refuse_reading()


class IcebergBatchWriter(DataSourceArrowWriter):
    """One batch write, made by the planner and pickled into the tasks and the committer."""

    def __init__(self, options: Mapping[str, str], plan: WritePlan | RoutedPlan) -> None:
        # Spark ships this object to the tasks and to the committer. What describes the catalog, credentials
        # included, stays on the driver; everything else may be seen by all.
        of_catalog = {key: value for key, value in options.items() if key.lower().startswith(_CATALOG_PREFIX)}
        self._options = {key: value for key, value in options.items() if key not in of_catalog}
        self._of_catalog = KeptOnDriver.keep(of_catalog)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return _write_task(self._plan, iterator, epoch=None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what all tasks report.

        Raises:
            IcebergSinkError: See `iceberg_ds.commit.commit.commit_write`.
        """
        _commit(self._all_options(), messages, epoch_id=None)
        self._of_catalog.forget()  # not after a failure: Spark calls `abort` then, in another process

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up what can be proven to be unreferenced."""
        try:
            _abort(self._all_options(), messages)
        finally:
            self._of_catalog.forget()

    def _all_options(self) -> _Options:
        return _Options({**self._options, **self._of_catalog.options()})


class IcebergStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch: the planner's writer runs the tasks, and another one commits what they report."""

    def __init__(self, options: _Options, plan: WritePlan | RoutedPlan | None) -> None:
        self._options = options
        self._plan = plan

    def __getstate__(self) -> dict[str, Any]:
        # Only tasks get this object, and they must not get the options, which may hold credentials.
        return {**self.__dict__, "_options": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        if self._plan is None:
            raise CommitMessageError("Cannot write: this writer was made to commit. Nothing was committed.")
        return _write_task(self._plan, iterator, epoch=_epoch_of_task())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit what all tasks of epoch `batchId` report.

        Raises:
            IcebergSinkError: See `iceberg_ds.commit.commit.commit_write`.
        """
        try:
            _commit(self._options, messages, epoch_id=batchId)
        except IcebergSinkError as error:
            # A query with trigger(continuous=...) shows no exception; the log is all that its user gets.
            logger.error("Epoch %d was not committed: %s", batchId, error)  # noqa: TRY400  # Spark logs the traceback
            raise

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803  # Spark's
        """Clean up what can be proven to be unreferenced."""
        _abort(self._options, messages)


def _refuse_reading() -> NoReturn:
    raise OptionError(
        'Cannot read with format("icebergsink"): it only writes. Read with iceberg_ds.read(spark, "db.table"), or with '
        'format("icebergsource").'
    )


class _Options:
    """The options of a write, parsed.

    Attributes:
        parsed: The options.
        route: The options of each table, None for a write into one table.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        read_configuration()  # before PyIceberg does, whose errors show its content
        with no_garbage_collection():
            from iceberg_ds.options.parse import parse_options

        raw = {key.lower(): value for key, value in given.items()}
        self.parsed: SinkOptions = parse_options(raw)
        self.route: RouteOptions | None = None
        if self.parsed.route_by is not None:
            from iceberg_ds.options.routes import parse_route

            self.route = parse_route(raw, self.parsed)

    @property
    def maintains(self) -> bool:
        """Whether tables of the write are maintained after a commit."""
        given = self.parsed.route_options.items() if self.route is not None else ()
        return self.parsed.maintenance == "auto" or any(key.endswith(".maintenance") for key, _ in given)

    def of_table(self, table: str) -> SinkOptions:
        """Return the options of the write into one table, by its identifier."""
        return self.parsed if self.route is None else self.route.of(table)

    def connect(self) -> CatalogClient:
        """Return the catalog of the write."""
        with no_garbage_collection():
            from iceberg_ds.catalog.client import connect
            from iceberg_ds.catalog.settings import catalog_settings

            return connect(catalog_settings(self.parsed), self.parsed.reports)


@eased
def _plan(options: _Options, schema: StructType, *, overwrite: bool, is_stream: bool) -> WritePlan | RoutedPlan:
    with no_garbage_collection():
        from iceberg_ds.planning.plan_write import WriteMode, plan_write

    mode = WriteMode.OVERWRITE if overwrite else WriteMode.APPEND
    catalog = options.connect()
    plan: WritePlan | RoutedPlan
    with catalog.hiding_secrets():
        if options.route is not None:
            from iceberg_ds.multi_table.plan import plan_routed

            plan = plan_routed(catalog, options.route, schema, mode, is_stream=is_stream)
        else:
            plan = plan_write(catalog, options.parsed, schema, mode, is_stream=is_stream)
    fault_point(FaultPoint.PLANNED)
    return plan


@eased
def _write_task(
    plan: WritePlan | RoutedPlan, batches: Iterator[pa.RecordBatch], epoch: EpochId | None
) -> WriterCommitMessage:
    with no_garbage_collection():
        from iceberg_ds.plan import RoutedPlan
        from iceberg_ds.spark.session_settings import check_audit_settings, check_zone_of_session, in_zone_of_option
        from iceberg_ds.writers.reporting import report_task
        from iceberg_ds.writers.task_writer import TaskAttempt

    task = _task_context()
    attempt = TaskAttempt(partition_id=task.partitionId(), task_attempt_id=task.taskAttemptId())
    if isinstance(plan, RoutedPlan):
        from iceberg_ds.writers.routed import report_routed_task

        plans = [table.plan for table in plan.tables.values()]
        for of_table in plans:
            check_audit_settings(of_table, task.getLocalProperty)
            check_zone_of_session(of_table, task.getLocalProperty)
        for of_zone in {of_table.time_zone: of_table for of_table in plans}.values():
            batches = in_zone_of_option(of_zone, batches)
        return report_routed_task(plan.in_epoch(epoch), acknowledging(batches), attempt)
    check_audit_settings(plan, task.getLocalProperty)
    check_zone_of_session(plan, task.getLocalProperty)
    return report_task(plan.in_epoch(epoch), acknowledging(in_zone_of_option(plan, batches)), attempt)


def _epoch_of_task() -> EpochId:
    from iceberg_ds.plan import EpochId

    task = _task_context()
    query_id, epoch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_EPOCH_ID)
    if query_id is None or epoch_id is None:
        raise CommitMessageError("Cannot write a micro-batch: Spark tells the task neither its query nor its epoch.")
    return EpochId(query_id=query_id, epoch_id=int(epoch_id), run_id=task.getLocalProperty(_RUN_ID))


def _task_context() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise CommitMessageError("Cannot write: this is not a Spark task.")
    return task


@eased
def _commit(options: _Options, messages: Sequence[WriterCommitMessage | None], epoch_id: int | None) -> None:
    catalog = options.connect()
    with catalog.hiding_secrets():
        if options.route is not None:
            from iceberg_ds.multi_table.commit import commit_routed

            results = commit_routed(catalog, options.route, messages, epoch_id=epoch_id)
        elif options.parsed.publish_converted:
            from iceberg_ds.deletes.publish import commit_converted

            results = [commit_converted(catalog, options.parsed, messages, epoch_id=epoch_id)]
        elif options.parsed.looks_for_rows:
            from iceberg_ds.deletes.epoch import commit_epoch

            results = [commit_epoch(catalog, options.parsed, messages, epoch_id=epoch_id)]
        else:
            with no_garbage_collection():
                from iceberg_ds.planning.quarantine import commit_with_quarantine

            results = [commit_with_quarantine(catalog, options.parsed, messages, epoch_id=epoch_id)]
    if options.maintains:
        from iceberg_ds.maintenance.auto import maintain_after

        maintain_after(catalog, options.of_table, results)


def _abort(options: _Options, messages: Sequence[WriterCommitMessage | None]) -> None:
    catalog = options.connect()
    with catalog.hiding_secrets():
        if options.route is not None:
            from iceberg_ds.multi_table.commit import abort_routed

            abort_routed(catalog, messages)
        else:
            from iceberg_ds.commit.commit import abort_write

            abort_write(catalog, messages)
