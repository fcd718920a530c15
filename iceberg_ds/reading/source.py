"""The data source `icebergsource`: reads tables by Python tasks, for `spark.read.format` and for SQL.

Adapts Spark's Python Data Source API. Spark makes these objects in several Python processes, so each imports only what
its role needs, when it needs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from iceberg_ds.io.configuration import read_configuration
from iceberg_ds.spark.data_sources import make_known
from iceberg_ds.spark.workers import loading_modules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from iceberg_ds.reading.python_scan import PythonScan
    from iceberg_ds.reading.request import PlannedRead
    from iceberg_ds.reading.scan_task import ScanTask

NAME = "icebergsource"
# What the plan of a read has chosen already.
_CHOICES = frozenset({"branch", "tag", "as-of-timestamp", "snapshot-id", "schema-id", "columns", "where", "path"})


class IcebergSource(DataSource):
    """The data source `icebergsource`: reads Iceberg tables by Python tasks, without a jar.

    `iceberg_ds.register(spark)` makes it known. Where Spark itself can read the files, `iceberg_ds.read` is several
    times as fast. Options: docs/reading.md.
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
        planned = self._planned()
        from iceberg_ds.reading.request import EXTRAS
        from iceberg_ds.table.spark_types import spark_struct

        return spark_struct([*planned.fields, *(EXTRAS[name] for name in planned.extras)])

    def reader(self, schema: StructType) -> IcebergReader:  # noqa: ARG002  # Spark's signature
        """Plan the read.

        Raises:
            IcebergSinkError: The options are wrong, or the table cannot be read.
        """
        planned = self._planned()
        from iceberg_ds.reading.python_scan import PythonScan, task_groups

        return IcebergReader(PythonScan.of(planned), task_groups(planned.plan))

    def _planned(self) -> PlannedRead:
        read_configuration()  # before PyIceberg does, whose errors show its content
        with loading_modules():
            from iceberg_ds.reading.request import ReadRequest

        request = ReadRequest.of({key.lower(): value for key, value in self.options.items()})
        return request.plan(request.load())


@dataclass
class FileGroup(InputPartition):
    """The data files of one task."""

    tasks: Sequence[ScanTask]


class IcebergReader(DataSourceReader):
    """A planned read: made by the planner and pickled into the tasks, without the options."""

    def __init__(self, scan: PythonScan, groups: Sequence[Sequence[ScanTask]]) -> None:
        self._scan = scan
        self._groups = groups

    def partitions(self) -> Sequence[InputPartition]:
        """Return the data files of each task."""
        groups, self._groups = self._groups, ()  # tasks get their own alone
        return [FileGroup(tasks=tasks) for tasks in groups] or [FileGroup(tasks=())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task.

        Raises:
            IcebergSinkError: A file cannot be read.
        """
        assert isinstance(partition, FileGroup)  # noqa: S101  # as `partitions` returns them
        yield from self._scan.rows(partition.tasks)


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
