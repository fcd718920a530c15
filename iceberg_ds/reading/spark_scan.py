"""A scan as a DataFrame over Spark's own Parquet reader: no row passes through Python.

Rows that are deleted by position are left out by a bit for each row, which tasks look up by the row's position in its
file; rows that are deleted by key, by an anti-join with the equality delete files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.types import NestedField
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import LongType, StringType

from iceberg_ds.reading.deleted_rows import as_words, deleted_positions
from iceberg_ds.reading.extras import EXTRAS, PARTITION, POS, extra_field, extra_value, partition_type, partitions_of
from iceberg_ds.reading.file_marks import Portion, constant, portions
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_files import ROW, SparkFiles, alike, as_shown, shown, together
from iceberg_ds.reading.spark_keys import without_deleted
from iceberg_ds.table.lineage import LINEAGE, ROW_ID, is_lineage
from iceberg_ds.table.names import quoted
from iceberg_ds.table.spark_types import spark_struct, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BITS_IN_WORD, _WORD_SHIFT = 63, 6
# A second scan takes Spark longer than to look for bits of so few rows of files without deletes: one in so many.
_FEW = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkScan:
    """A scan of a snapshot that Spark carries out.

    Attributes:
        files: Reads its files.
        fields: The columns of the result, in order.
        extras: Further columns of the result: `_file`, `_pos`, `_spec_id`, `_partition` and those of the lineage.
    """

    files: SparkFiles
    fields: Sequence[NestedField]
    extras: Sequence[str] = ()

    def frame(self) -> DataFrame:
        """Return the rows.

        Raises:
            DataFileError: A data file is missing, or a delete file is damaged.
        """
        self.files.let_spark_read()
        frames = list(self._frames())
        return together(frames) if frames else self._nothing()

    def _frames(self) -> Iterator[DataFrame]:
        """Yield the rows of different files."""
        plain, special = list[ScanTask](), list[ScanTask]()
        for task in self.files.plan.tasks:
            (special if task.has_deletes or task.absent or self.extras else plain).append(task)
        if _rows(plain) * _FEW <= _rows(special):
            plain, special = [], [*special, *plain]
        if plain:
            columns = self.files.columns(self.fields, ())
            yield shown(self.files.read([task.data_file for task in plain], columns), columns)
        positions = deleted_positions(self.files.io, special)
        for some in alike(special, self._lineage):
            for portion in portions(some):
                yield self._portion(portion, positions)

    def _nothing(self) -> DataFrame:
        partition = partition_type(self.files.plan.metadata)
        fields = spark_struct([*self.fields, *(extra_field(name, partition) for name in self.extras)])
        return self.files.spark.createDataFrame([], fields)

    def _portion(self, portion: Portion[ScanTask], positions: Mapping[str, Sequence[int]]) -> DataFrame:
        """Return the visible rows of a portion of the files.

        Args:
            portion: The files.
            positions: The positions of the deleted rows, by path.
        """
        keys = [key for task in portion.files for key in task.work.keys]
        columns = self.files.columns(self.fields, keys, self._lineage)
        rows = self.files.marked(portion, columns)
        if any(positions.get(task.work.path) for task in portion.files):
            rows = rows.where(_is_visible(self.files.spark, portion, positions))
        rows = without_deleted(self.files, rows, portion, columns)
        if not self.extras:
            return shown(rows, columns[: len(self.fields)])
        own = {column.field.name: F.col(quoted(column.name)) for column in columns if is_lineage(column.field)}
        return rows.select(
            *map(as_shown, columns[: len(self.fields)]),
            *(
                _inherited(own[name], name, portion) if name in own else self._extra(name, portion)
                for name in self.extras
            ),
        )

    def _extra(self, name: str, portion: Portion[ScanTask]) -> Column:
        """Return a metadata column that is not of the lineage."""
        if name != PARTITION:
            return _extra(self.files.spark, name, portion)
        plan = self.files.plan
        values = partitions_of([task.data_file for task in portion.files], partition_type(plan.metadata), plan.specs)
        return portion.value(self.files.spark, values).alias(name)

    @property
    def _lineage(self) -> list[NestedField]:
        """The columns of the lineage that are asked for."""
        return [LINEAGE[name] for name in self.extras if name in LINEAGE]


def _rows(tasks: Sequence[ScanTask]) -> int:
    return sum(task.data_file.record_count for task in tasks)


def _is_visible(spark: SparkSession, portion: Portion[ScanTask], positions: Mapping[str, Sequence[int]]) -> Column:
    """Return whether the bit of a row is not set."""
    words, first = as_words(portion.files, positions)
    first_word = portion.number_text(lambda task: first[task.work.path])
    at = F.expr(f"{first_word} + int(shiftright({ROW}, {_WORD_SHIFT}))")
    bit = F.bit_get(F.get(constant(spark, words), at), F.expr(f"int({ROW} & {_BITS_IN_WORD})"))
    return F.coalesce(bit, F.lit(0)) == 0


def _inherited(own: Column, name: str, portion: Portion[ScanTask]) -> Column:
    """Return a column of the lineage.

    Args:
        own: What the files have in it; null where a row inherits, and where a file lacks it.
        name: Name of the column.
        portion: The files: the rows of all of them have ids, or of none.
    """

    def number(task: ScanTask) -> int:
        lineage = task.lineage
        assert lineage is not None  # noqa: S101  # the rows of all files have ids
        return lineage.first_row_id if name == ROW_ID.name else lineage.sequence_number

    if portion.files[0].lineage is None:
        return F.lit(None).cast(LongType()).alias(name)
    first = portion.number(number)
    inherited = first + F.col(ROW) if name == ROW_ID.name else first
    return F.coalesce(own, inherited.cast(LongType())).alias(name)


def _extra(spark: SparkSession, name: str, portion: Portion[ScanTask]) -> Column:
    """Return a metadata column of Iceberg."""
    kind = spark_type(EXTRAS[name].field_type)
    if name == POS:
        value = F.col(ROW)
    elif isinstance(kind, StringType):
        value = portion.text(spark, lambda task: str(extra_value(name, task)))
    else:
        value = portion.number(lambda task: int(extra_value(name, task))).cast(kind)
    return value.alias(name)
