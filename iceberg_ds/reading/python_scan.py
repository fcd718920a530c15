"""A scan by Python tasks: the visible rows of data files as Arrow batches, as Spark takes them.

Knows neither Spark nor the catalog. Slower than Spark's own reader, since all rows pass through Python; reads what
Spark has no filesystem, no credentials or no type for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType, StructType

from iceberg_ds.deletes.hidden import hidden_rows
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.expressions.row_filter import RowFilter
from iceberg_ds.io.files import file_io
from iceberg_ds.reading.extras import EXTRAS, PARTITION, POS, extra_value, partition_type, partitions_of
from iceberg_ds.reading.file_errors import naming_data_file
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_arrow import spark_values
from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.bin_packing import packed
from iceberg_ds.table.lineage import LINEAGE, is_lineage
from iceberg_ds.table.name_mapping import NAME_MAPPING, UnknownColumnsError, parsed_mapping
from iceberg_ds.table.projection import project
from iceberg_ds.table.variant import variant_ids, why_not_opened
from iceberg_ds.writers.rewriting import batches_of

if TYPE_CHECKING:
    from iceberg_ds.reading.request import PlannedRead

# Spark's defaults for files, and Iceberg's for splits (`read.split.target-size`, `read.split.open-file-cost`).
TASK_BYTES, _OPEN_COST_BYTES = 128 * 1024 * 1024, 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTest:
    """A predicate that rows must satisfy.

    Attributes:
        predicate: Its text.
        case_sensitive: Whether names in it must match exactly.
        time_zone: Time zone of times in it without a zone, or None if unknown.
    """

    predicate: str
    case_sensitive: bool
    time_zone: str | None


@dataclass(frozen=True, kw_only=True)
class PythonScan:
    """What all tasks are told.

    Attributes:
        name: Identifier of the table, for messages.
        location: Location of the table.
        io_properties: What opens its storage.
        schema: The table's columns.
        columns: Names of the columns of the result, metadata columns among them.
        key_types: Types of the columns that equality deletes delete by, by field id.
        specs: The table's partition specs, by spec id.
        partition: The type of column `_partition`, empty if it is not asked for.
        name_mapping: The name mapping of files without field ids, as JSON; None if the table has none.
        test: The rows to return; None for all rows.
    """

    name: str
    location: str
    io_properties: Mapping[str, str]
    schema: Schema
    columns: Sequence[str]
    key_types: Mapping[int, IcebergType]
    specs: Mapping[int, PartitionSpec]
    partition: StructType
    name_mapping: str | None
    test: RowTest | None

    @classmethod
    def of(cls, planned: PlannedRead) -> PythonScan:
        """Return what tasks are told of a planned read."""
        plan, request = planned.plan, planned.request
        if any(map(variant_ids, plan.metadata.schemas)) and (reason := why_not_opened()) is not None:
            raise UnsupportedTableError(f"Cannot read {plan.name} by Python tasks: {reason}.")
        options = request.options
        test = RowTest(
            predicate="true" if request.where is None else request.where,
            case_sensitive=bool(options.case_sensitive),
            time_zone=options.time_zone,
        )
        scan = cls(
            name=plan.name,
            location=plan.metadata.location,
            io_properties=planned.io_properties,
            schema=plan.schema,
            columns=planned.names,
            key_types=plan.key_types,
            specs=plan.specs,
            partition=partition_type(plan.metadata) if PARTITION in planned.extras else StructType(),
            name_mapping=plan.metadata.properties.get(NAME_MAPPING),
            test=None if request.where is None else test,
        )
        try:
            scan.check()
        except ValueError as problem:
            raise OptionError(f"Cannot read {plan.name}: where is no predicate on its columns: {problem}.") from problem
        planned.require_spark_types()
        return scan

    def rows(self, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
        """Yield the visible rows of some data files; those of one partition follow each other.

        Raises:
            UnsupportedTableError: A file has no field ids, or values of other types than the table.
            DataFileError: A file is missing or damaged.
        """
        io = file_io(self.io_properties, self.location)
        for task, hidden, meant in self._with_deletes(io, tasks):
            work = task.work
            if meant is not None and not len(meant):  # as of most files that a delete by key may concern
                continue
            try:
                yield from self._rows_of(io, task, hidden, meant)
            except UnknownColumnsError as problem:
                raise UnsupportedTableError(
                    f"Cannot read {self.name}: {work.path} cannot be matched with the table's columns: {problem}. "
                    f"{problem.next_step}"
                ) from problem
            except pa.ArrowException as problem:
                raise UnsupportedTableError(
                    f"Cannot read {self.name}: {work.path} has values that are not of the table's types: {problem}."
                ) from problem

    def _with_deletes(
        self, io: FileIO, tasks: Sequence[ScanTask]
    ) -> Iterator[tuple[ScanTask, pa.Array, pa.Array | None]]:
        """Yield the data files, each with the positions of deleted rows, and of those that are meant; None for all."""
        for _, group in groupby(tasks, key=attrgetter("state")):
            some = list(group)
            meant = self._hidden(io, [task.hidden_by for task in some if task.hidden_by is not None])
            for task, hidden in zip(some, self._hidden(io, some), strict=True):
                yield task, hidden, None if task.hidden_by is None else next(meant)

    def _hidden(self, io: FileIO, tasks: Sequence[ScanTask]) -> Iterator[pa.Array]:
        """Yield the positions of the deleted rows of each data file."""
        for _, hidden in hidden_rows(io, self.key_types, [task.work for task in tasks], self._mapping):
            yield hidden

    def _rows_of(
        self, io: FileIO, task: ScanTask, hidden: pa.Array, meant: pa.Array | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a data file that are not hidden and, of these, are meant; None for all."""
        work = task.work
        for positions, batch in self._batches_of(io, task, hidden):
            found = project(batch, self._read, work.partition_values)
            rows, kept = found, positions
            if meant is not None:
                is_meant = pc.is_in(kept, meant)
                rows, kept = rows.filter(is_meant), kept.filter(is_meant)
            if self._filter is not None:
                is_meant = self._filter.mask(rows)
                rows, kept = rows.filter(is_meant), kept.filter(is_meant)
            if rows.num_rows:
                yield self._shown(rows, kept, task)

    def _batches_of(self, io: FileIO, task: ScanTask, hidden: pa.Array) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        work = task.work
        with naming_data_file(self.name, io, work.path):
            yield from batches_of(io, work.path, self._read, hidden, self._mapping, work.partition_values)

    def _shown(self, rows: pa.RecordBatch, positions: pa.Array, task: ScanTask) -> pa.RecordBatch:
        """Return the columns of the result."""
        fields = {field.name: (number, field) for number, field in enumerate(self._read.fields)}
        columns = []
        for name in self.columns:
            if name in fields:
                number, field = fields[name]
                values = rows.column(number)
                if is_lineage(field):
                    columns.append(_lineage(name, values, positions, task))
                else:
                    columns.append(spark_values(values, field.field_type))
            elif name == PARTITION:
                own = partitions_of([task.data_file], self.partition, self.specs)
                columns.append(own.take(pa.repeat(0, rows.num_rows)))
            else:
                value = None if name == POS else pa.scalar(extra_value(name, task), arrow_type(EXTRAS[name].field_type))
                columns.append(positions if value is None else pa.repeat(value, rows.num_rows))
        # Spark matches columns by their places.
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))

    def check(self) -> None:
        """Look at the predicate.

        Raises:
            ValueError: It cannot be evaluated.
        """
        _ = self._filter

    @cached_property
    def _mapping(self) -> NameMapping | None:
        return parsed_mapping(self.name_mapping)

    @cached_property
    def _read(self) -> Schema:
        """The columns to read: those of the table and of the lineage in the result, and those of the predicate."""
        tested = set() if self.test is None else {column.field_id for column in self._filter_of(self.schema).columns}
        wanted = [field for field in self.schema.fields if field.name in self.columns or field.field_id in tested]
        own = {field.name for field in self.schema.fields}
        lineage = [LINEAGE[name] for name in self.columns if name in LINEAGE and name not in own]
        # Batches without a column could not tell how many rows there are.
        return Schema(*(wanted or self.schema.fields[:1]), *lineage)

    @cached_property
    def _filter(self) -> RowFilter | None:
        return None if self.test is None else self._filter_of(self._read)

    def _filter_of(self, schema: Schema) -> RowFilter:
        assert self.test is not None  # noqa: S101  # asked for only then
        test = self.test
        return RowFilter(test.predicate, schema, case_sensitive=test.case_sensitive, time_zone=test.time_zone)


def _lineage(name: str, own: pa.Array, positions: pa.Array, task: ScanTask) -> pa.Array:
    """Return a column of the lineage; nulls if the rows have no ids, even if the file has such a column."""
    lineage = task.lineage
    return pa.nulls(len(own), pa.int64()) if lineage is None else lineage.column(name, own, positions)


def task_groups(files: Sequence[ScanTask]) -> list[list[ScanTask]]:
    """Return the data files of a scan in groups of bounded size, one for each task, partition after partition.

    Args:
        files: The data files, each once if it has deletes.
    """
    by_place = sorted(files, key=lambda task: (task.state, task.work.place))
    return list(packed(by_place, TASK_BYTES, lambda task: max(task.work.size_bytes, _OPEN_COST_BYTES)))
