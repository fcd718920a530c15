"""The data source `icebergsource`: reads tables by Python tasks, for `spark.read.format`, `readStream` and SQL.

Adapts Spark's Python Data Source API. Spark makes these objects in several Python processes, so each imports only what
its role needs, when it needs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from iceberg_ds.errors import OptionError
from iceberg_ds.garbage_collection import no_garbage_collection
from iceberg_ds.io.configuration import read_configuration
from iceberg_ds.spark.data_sources import make_known
from iceberg_ds.spark.workers import eased

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from iceberg_ds.reading.python_scan import PythonScan
    from iceberg_ds.reading.request import LoadedTable, PlannedRead, ReadRequest
    from iceberg_ds.reading.scan_task import ScanTask, TaskFiles
    from iceberg_ds.reading.stream import Offset
    from iceberg_ds.reading.stream_read import StreamRead

NAME = "icebergsource"
# The process in which Spark pushes filters down runs this module, and no other does.
_PUSHES_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"
# What the plan of a read has chosen already.
_CHOICES = frozenset({"branch", "tag", "as-of-timestamp", "snapshot-id", "schema-id", "columns", "where", "path"})


class IcebergSource(DataSource):
    """The data source `icebergsource`: reads Iceberg tables by Python tasks, without a jar.

    PySpark finds it by itself where the package is installed. Where Spark itself can read the files, `iceberg_ds.read`
    is several times as fast. Options: docs/reading.md.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns.

        Raises:
            IcebergSinkError: The options are wrong, or the table cannot be read.
        """
        request = self._request()
        from iceberg_ds.table.spark_types import spark_struct

        return spark_struct(request.result_fields())

    @eased
    def reader(self, schema: StructType) -> IcebergReader:
        """Plan the read.

        Args:
            schema: The columns: those of the table when the DataFrame was made, or some of them that are asked for.

        Raises:
            IcebergSinkError: The options are wrong, or the table cannot be read.
        """
        request = self._last_request()
        loaded = request.load_for_tasks()
        request = request.with_columns(loaded.table.metadata, schema)
        request.refuse_options_of_streams()
        if _PUSHES_FILTERS in sys.modules:
            return PrunedReader(request, loaded)
        return IcebergReader(request.plan(loaded))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002, FBT001  # Spark's signature
        """Refuse to write.

        Raises:
            OptionError: Always.
        """
        raise OptionError('Cannot write with format("icebergsource"): it reads. Write with format("icebergsink").')

    def streamReader(self, schema: StructType) -> IcebergStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of what is appended to the table.

        Raises:
            OptionError: The options are wrong.
        """
        request = self._last_request()
        request.refuse_options_of_batches()
        with suppress(ImportError):  # Spark below 4.2 has no such trigger
            from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

            SupportsTriggerAvailableNow.register(IcebergStreamReader)
        return IcebergStreamReader(request, schema)

    def _last_request(self) -> ReadRequest:
        """Return what is asked for, and forget the options: Spark pickles this object into the tasks, too."""
        request = self._request()
        self.options = {}
        return request

    def _request(self) -> ReadRequest:
        read_configuration()  # before PyIceberg does, whose errors show its content
        with no_garbage_collection():
            from iceberg_ds.reading.request import ReadRequest

        return ReadRequest.of({key.lower(): value for key, value in self.options.items()})


@dataclass
class FileGroup(InputPartition):
    """The data files of one task."""

    tasks: Sequence[ScanTask]


class IcebergReader(DataSourceReader):
    """A planned read: made by the planner and pickled into the tasks, without the options."""

    def __init__(self, planned: PlannedRead) -> None:
        from iceberg_ds.reading.python_scan import PythonScan, task_groups

        self._scan: PythonScan = PythonScan.of(planned)
        self._groups: Sequence[Sequence[ScanTask]] = task_groups(planned.plan.tasks)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the data files of each task."""
        groups, self._groups = self._groups, ()  # tasks get their own alone
        return [FileGroup(tasks=tasks) for tasks in groups] or [FileGroup(tasks=())]

    @eased
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            IcebergSinkError: A file cannot be read.
        """
        assert isinstance(partition, FileGroup)  # noqa: S101  # as `partitions` returns them
        yield from self._scan.rows(partition.tasks)


class PrunedReader(IcebergReader):
    """A read that is planned when Spark has told its filters.

    A class of its own: Spark refuses one that takes filters wherever the session does not push them down.

    Args:
        request: What is asked for.
        loaded: The table.
    """

    def __init__(self, request: ReadRequest, loaded: LoadedTable) -> None:
        self._asked: tuple[ReadRequest, LoadedTable] | None = (request, loaded)

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  # Spark's name
        """Plan the read, pass over files by the filters, and let Spark look at all rows again.

        Raises:
            IcebergSinkError: The table cannot be read.
        """
        from iceberg_ds.reading.pushed_filters import predicate_of

        assert self._asked is not None  # noqa: S101  # Spark asks once
        (request, loaded), self._asked = self._asked, None
        super().__init__(request.plan(loaded, pushed=predicate_of(filters, request.schema_of(loaded.table.metadata))))
        return filters


@dataclass
class StreamedFiles(InputPartition):
    """The data files of one task of a micro-batch, and how they are read."""

    scan: PythonScan
    files: TaskFiles


class IcebergStreamReader(DataSourceStreamReader):
    """Reads what is appended to a table, or changed in it.

    Lives in a process of the driver as long as the query runs. For each micro-batch Spark makes another one, which is
    pickled into the tasks: it loads nothing, and takes no options along.

    Args:
        request: What is read.
        schema: The columns, as Spark has them.
    """

    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._start: Offset | None = None  # where the next micro-batch begins, which Spark below 4.2 does not tell
        self._until: int | None = None  # the last snapshot to read

    def __getstate__(self) -> dict[str, object]:
        """Return nothing: tasks get all they need with their files."""
        return {}

    @cached_property
    def _read(self) -> StreamRead:
        with no_garbage_collection():
            from iceberg_ds.reading.stream_read import StreamRead

        return StreamRead(self._request, self._schema)

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name
        """Return the offset before everything.

        Raises:
            IcebergSinkError: The table cannot be loaded.
        """
        return self._read.begin().as_json()

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: Mapping[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """Return where the next micro-batch ends.

        Args:
            start: Where it begins; None for Spark below 4.2.
            limit: The most that it takes; None for Spark below 4.2.

        Raises:
            IcebergSinkError: The table cannot be read, or what follows is not known.
        """
        limits = self._request.stream.limits
        if limit is not None:
            from pyspark.sql.streaming.datasource import ReadAllAvailable

            from iceberg_ds.reading.stream import NO_LIMITS

            limits = NO_LIMITS if isinstance(limit, ReadAllAvailable) else limits
        begin = self._offset(start) if start is not None else self._start or self._read.begin()
        return self._read.next(begin, limits, self._until).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit that Spark is to pass on; with any limit both of the options count."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

        limits = self._request.stream.limits
        if limits.files is not None:
            return ReadMaxFiles(limits.files)
        return ReadAllAvailable() if limits.rows is None else ReadMaxRows(limits.rows)

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name
        """Return the end of the branch, for the progress of the query.

        Raises:
            IcebergSinkError: The table cannot be loaded.
        """
        return self._read.head().as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Note the last snapshot to read.

        Raises:
            IcebergSinkError: The table cannot be loaded.
        """
        self._until = self._read.head().snapshot

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        """Return the data files of each task of a micro-batch.

        Raises:
            IcebergSinkError: The table cannot be read, or what follows is not known.
        """
        self._start = self._offset(end)
        scan, groups = self._read.plan(self._offset(start), self._start)
        return [StreamedFiles(scan=scan, files=files) for files in groups]

    @eased
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            IcebergSinkError: A file cannot be read, or a snapshot changed several rows of one key.
        """
        assert isinstance(partition, StreamedFiles)  # noqa: S101  # as `partitions` returns them
        from iceberg_ds.reading.row_changes import changed_rows

        yield from changed_rows(partition.scan, partition.files)

    def commit(self, end: Mapping[str, object]) -> None:
        """Let the table say how far the stream has read, if it has a name.

        Raises:
            IcebergSinkError: The table cannot be loaded, or the stream's name is that of another one.
        """
        self._read.commit(self._offset(end))

    def _offset(self, given: Mapping[str, object]) -> Offset:
        from iceberg_ds.reading.stream import Offset

        return Offset.of(self._request.name, given)


def frame_by_python(
    spark: SparkSession, given: Mapping[str, str], planned: PlannedRead, columns: Sequence[str]
) -> DataFrame:
    """Return all rows of a planned read, by Python tasks.

    Args:
        spark: The session.
        given: Options of the read, in lower case.
        planned: The read.
        columns: Names of the columns.
    """
    make_known(spark, IcebergSource)
    chosen = {"columns": json.dumps(columns), "snapshot-id": str(planned.plan.snapshot_id)}
    chosen["schema-id"] = str(planned.plan.schema.schema_id)
    kept = {key: text for key, text in given.items() if key not in _CHOICES}
    return spark.read.format(NAME).options(**kept, **chosen).load()
