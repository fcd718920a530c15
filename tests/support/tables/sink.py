"""Tables and writes without Spark: `Sink` takes the steps that Spark's processes take, in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import CommitResult, commit_write
from iceberg_ds.commit.create_table import create_without_rows
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.publish import commit_converted
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import CountedBatches, RowCounts, TaskCommit
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import EpochId, NewTable, WritePlan
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.writers.keyed import report_keyed_task
from iceberg_ds.writers.reporting import report_files, write_or_hand_over
from iceberg_ds.writers.row_predicates import RangeCheck
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

IDENTIFIER = ("db", "t")
NAME = "db.t"
QUERY = "0b9f2c1e-1111-4222-8333-444455556666"

SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])

Row = dict[str, Any]

_attempts = count()
_LOCAL_IO = LocalFileIO()
_ARROW_SCHEMA_TAKES = signature(to_arrow_schema).parameters


def rows(*ids: int) -> list[Row]:
    """Return rows of `SCHEMA` with these ids."""
    return [{"id": number, "name": f"row {number}"} for number in ids]


def arrow_batch(data: Sequence[Mapping[str, Any]], schema: StructType, timezone: str = "UTC") -> pa.RecordBatch:
    """Return the rows as Spark would hand them to a task in a session with that time zone."""
    # Below Spark 4.2 the function cannot be told a zone, and takes UTC.
    zone = {"timezone": timezone} if timezone != "UTC" or "timezone" in _ARROW_SCHEMA_TAKES else {}
    return pa.RecordBatch.from_pylist(list(data), schema=to_arrow_schema(schema, **zone))


def epoch(epoch_id: int, query_id: str = QUERY) -> EpochId:
    """Return a micro-batch of the query that most tests use."""
    return EpochId(query_id=query_id, epoch_id=epoch_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """One table, and the steps of a write into it.

    Attributes:
        catalog: The connected catalog.
        options: Options of every write.
    """

    catalog: CatalogClient
    options: SinkOptions

    def plan(
        self,
        schema: StructType = SCHEMA,
        mode: WriteMode = WriteMode.APPEND,
        *,
        is_stream: bool = False,
        **options: Any,
    ) -> WritePlan:
        """Plan a write, with these options changed."""
        return plan_write(self.catalog, replace(self.options, **options), schema, mode, is_stream=is_stream)

    def write(
        self,
        *parts: Sequence[Mapping[str, Any]],
        schema: StructType = SCHEMA,
        plan: WritePlan | None = None,
        of_epoch: EpochId | None = None,
        may_hand_over: bool = False,
    ) -> list[TaskCommit]:
        """Run one task for each of `parts`, and return what the tasks report.

        They write files, unless they may hand over their rows instead, or the plan is one by keys.
        """
        plan = (plan or self.plan(schema)).in_epoch(of_epoch)
        work = write_or_hand_over if may_hand_over else _write_files
        messages = []
        for number, part in enumerate(parts):
            check = RangeCheck(plan)
            attempt = TaskAttempt(partition_id=number, task_attempt_id=next(_attempts))
            batches = CountedBatches([arrow_batch(part, schema)] if part else [])
            if plan.write.changes is not None:
                messages.append(report_keyed_task(plan, batches, attempt))
                continue
            files, left = work(plan, batches, attempt, check)
            report = report_files(plan, attempt, files)
            messages.append(
                TaskCommit(
                    plan.write,
                    number,
                    report.data_files,
                    check.refused,
                    manifests=report.manifests,
                    rows=left,
                    counts=RowCounts(received=batches.rows, left_out=check.left_out),
                )
            )
        return messages

    def hand_over(self, *parts: Sequence[Mapping[str, Any]], **choices: Any) -> list[TaskCommit]:
        """Run the tasks of `write` as Spark does: they may hand over their rows instead of writing files."""
        return self.write(*parts, **choices, may_hand_over=True)

    def commit(self, messages: Sequence[object]) -> CommitResult:
        """Commit what tasks report, as the epoch that they name."""
        write = next(message.write for message in messages if isinstance(message, TaskCommit))
        epoch_id = write.epoch.epoch_id if write.epoch else None
        if write.route.converts:
            return commit_converted(self.catalog, self.options, messages, epoch_id=epoch_id)
        return commit_write(self.catalog, messages, epoch_id=epoch_id)

    def append(self, *ids: int, of_epoch: EpochId | None = None) -> CommitResult:
        """Write and commit rows of `SCHEMA` with these ids, in one task."""
        return self.commit(self.write(rows(*ids), of_epoch=of_epoch))

    def write_over(
        self,
        *parts: Sequence[Mapping[str, Any]],
        schema: StructType = SCHEMA,
        of_epoch: EpochId | None = None,
        **options: Any,
    ) -> list[TaskCommit]:
        """Plan an overwrite with these options changed, and run one task for each of `parts`."""
        plan = self.plan(schema, WriteMode.OVERWRITE, **options)
        return self.write(*parts, schema=schema, plan=plan, of_epoch=of_epoch)

    def overwrite(
        self,
        *parts: Sequence[Mapping[str, Any]],
        schema: StructType = SCHEMA,
        of_epoch: EpochId | None = None,
        **options: Any,
    ) -> CommitResult:
        """Write and commit an overwrite, as `write_over` plans it."""
        return self.commit(self.write_over(*parts, schema=schema, of_epoch=of_epoch, **options))

    def create(
        self, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, *, format_version: str = "2"
    ) -> None:
        """Create the table through PyIceberg; that of version 3, which it refuses, as a write does."""
        if format_version == "3":
            new = NewTable(schema=schema, spec=spec, format_version=format_version)
            staged = self.catalog.stage_table(self.options.table, new)
            assert staged is not None
            create_without_rows(self.catalog, self.options.table, staged)
            return
        settings = catalog_settings(self.options)
        catalog = load_catalog(settings.name, **dict(settings.properties))
        catalog.create_namespace_if_not_exists(self.options.table[:-1])
        properties = {"format-version": format_version}
        catalog.create_table(self.options.table, schema, partition_spec=spec, properties=properties)

    def table(self) -> Table:
        """Load the table afresh, and from its files."""
        return self.catalog.reading_anew().load_table(self.options.table)

    def rows(self) -> list[Row]:
        """Return all rows, ordered by their first column."""
        found = self.table().scan().to_arrow()
        return found.sort_by(found.column_names[0]).to_pylist()

    def rows_of(self, branch: str) -> list[Row]:
        """Return all rows of a branch, ordered by their first column."""
        table = self.table()
        found = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow()
        return found.sort_by(found.column_names[0]).to_pylist()

    def ids(self) -> list[int]:
        """Return the ids of all rows in order."""
        return [row["id"] for row in self.rows()]


def _write_files(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt, check: RangeCheck
) -> tuple[tuple[DataFile, ...], None]:
    """Do the work of a task that hands nothing over."""
    return write_task(plan, batches, attempt, check), None


def write_batches(
    plan: WritePlan,
    data: Sequence[Mapping[str, Any]],
    schema: StructType,
    partition_id: int = 0,
    check: RangeCheck | None = None,
) -> tuple[Any, ...]:
    """Write rows as one task attempt, in one batch; return its files."""
    attempt = TaskAttempt(partition_id=partition_id, task_attempt_id=next(_attempts))
    return write_task(plan, [arrow_batch(data, schema)], attempt, check)


def embedded_options(warehouse: Path, **options: str) -> SinkOptions:
    """Return the options of writes to `db.t` in the embedded catalog in `warehouse`."""
    raw = {name.replace("_", "-"): value for name, value in options.items()}
    return parse_options({"table": NAME, "warehouse": str(warehouse), **raw})


def paths_of(messages: Sequence[TaskCommit]) -> list[Path]:
    """Return the data files that tasks report, and the manifests that name further ones with what they name."""
    added = Added.of(messages)
    return [local(path) for path in dict.fromkeys([*added.manifest_paths, *added.every_path(_LOCAL_IO)])]


# Folders that hold the objects of stores, by the beginning of their locations.
FOLDERS_OF_STORES: dict[str, Path] = {}


def local(location: str) -> Path:
    """Return the file or folder at a `file:` location, which Java writes with one slash, or of an object there."""
    for store, folder in FOLDERS_OF_STORES.items():
        if location.startswith(f"{store}/"):
            return folder / location.removeprefix(f"{store}/")
    return Path(location.removeprefix("file://").removeprefix("file:"))
