"""Which keys equality delete files delete, read by the driver where they are few: a job of Spark takes longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from iceberg_ds.deletes.key_reader import ColumnReader, canonical_type
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.reading.file_errors import naming_delete_file
from iceberg_ds.table.arrow_schema import arrow_type

# The most keys that the driver reads.
MOST_KEYS = 1_000_000
BELOW, PLACE = "__below", "__place"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDeletes:
    """An equality delete file of a read.

    Attributes:
        path: Where it is.
        below: It deletes rows of data files with lower data sequence numbers.
        place: Number of the partition in which it deletes rows.
    """

    path: str
    below: int
    place: int


def deleted_keys(io: FileIO, types: Mapping[int, IcebergType], files: Sequence[KeyDeletes]) -> pa.Table:
    """Return the deleted keys, each once a partition, with the highest `below` and the `place`.

    The columns are named by the field ids, and come in the order of `types`.

    Args:
        io: Opens the table's storage.
        types: The types of the key columns, by field id.
        files: The equality delete files of these columns.

    Raises:
        UnsupportedTableError: A file cannot be read.
        DataFileError: A file is missing or damaged.
    """
    keys = [(str(number), canonical_type(kind)) for number, kind in types.items()]
    schema = pa.schema([*keys, (PLACE, pa.int32()), (BELOW, pa.int64())])

    def read(file: KeyDeletes) -> list[pa.RecordBatch]:
        numbers = pa.scalar(file.place, pa.int32()), pa.scalar(file.below, pa.int64())
        with naming_delete_file(io, file.path):
            return [
                pa.RecordBatch.from_arrays(
                    [*batch.columns, *(pa.repeat(number, len(batch.columns[0])) for number in numbers)], schema=schema
                )
                for batch in ColumnReader(io, file.path, types).batches()
            ]

    found = pa.Table.from_batches([batch for batches in in_parallel(read, files) for batch in batches], schema)
    together = found.group_by(schema.names[:-1]).aggregate([(BELOW, "max")])
    shown = [_shown(together.column(str(number)).combine_chunks(), kind) for number, kind in types.items()]
    return pa.table([*shown, together.column(PLACE), together.column(f"{BELOW}_max")], names=schema.names)


def _shown(values: pa.Array, kind: IcebergType) -> pa.Array:
    """Return canonical values of a key column (`key_reader.canonical`) in the type that Spark takes."""
    match kind:
        case DateType():
            return values.cast(pa.int32()).view(pa.date32())
        case TimestampType() | TimestamptzType():
            return values.view(pa.timestamp("us", "UTC" if isinstance(kind, TimestamptzType) else None))
        case IntegerType() | StringType() | DecimalType():
            return values.cast(arrow_type(kind))
    return values
