"""Reads of rows what tells them apart: their keys, and their sequences where rows are held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.types import IcebergType

from iceberg_ds.resolving.columns import ColumnReader
from iceberg_ds.resolving.sequences import SequenceRule
from iceberg_ds.schemas.projection import NO_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """Some rows of a file.

    Attributes:
        first: Position of the first one in the file.
        keys: Canonical values of the key columns.
        sequence: Comparable values of the sequence columns, none without a rule.
    """

    first: int
    keys: list[pa.Array]
    sequence: list[pa.Array]

    def __len__(self) -> int:
        return len(self.keys[0])

    @property
    def nbytes(self) -> int:
        """Arrow bytes of all columns."""
        return sum(int(column.nbytes) for column in (*self.keys, *self.sequence))


class KeyedRowReader:
    """The rows of files by certain keys.

    Args:
        io: Opens the table's storage.
        types: The types of the key columns, by field id, in the order in which they are wanted.
        rule: How rows are held against each other, None if they are not.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(self, io: FileIO, types: Mapping[int, IcebergType], rule: SequenceRule | None = None) -> None:
        self.read_bytes = 0
        self.types = types
        self.rule = rule
        self._io = io
        self._wanted = types if rule is None else {**types, **rule.types}

    def read(self, path: str, partition_values: Mapping[int, object] = NO_VALUES) -> Iterator[KeyedRows]:
        """Yield all rows of a file in order.

        Args:
            path: The file.
            partition_values: The values of its identity partition fields, by the ids of their columns.

        Raises:
            UnsupportedTableError: The file cannot be read.
        """
        reader = ColumnReader(self._io, path, self._wanted, partition_values)
        for batch in reader.batches():
            values = dict(zip(self._wanted, batch.columns, strict=True))
            keys = [values[number] for number in self.types]
            ordered = [] if self.rule is None else [values[number] for number in self.rule.types]
            sequence = [] if self.rule is None else self.rule.comparable(ordered)
            yield KeyedRows(first=batch.first, keys=keys, sequence=sequence)
        self.read_bytes += reader.read_bytes
