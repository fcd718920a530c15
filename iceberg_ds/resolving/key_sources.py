"""The files of keys that a search looks for, and the columns that these keys have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, PrimitiveType

from iceberg_ds.resolving.live_files import LiveFile
from iceberg_ds.resolving.values import KeyFile


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """A file of keys to look for: of a snapshot, or one that a task has written and that is in none.

    Attributes:
        data_file: Its entry, with `equality_ids`, partition and spec; bounds spare work.
        sequence_number: Rows of data files below it are meant; None for rows of all data files.
    """

    data_file: DataFile
    sequence_number: int | None

    @classmethod
    def of(cls, live: LiveFile) -> KeySource:
        """Return a file of equality deletes of a snapshot."""
        return cls(data_file=live.data_file, sequence_number=live.sequence_number)

    @property
    def key_file(self) -> KeyFile:
        """The same for tasks."""
        return KeyFile(
            path=self.data_file.file_path,
            size_bytes=self.data_file.file_size_in_bytes,
            field_ids=field_ids(self.data_file),
            sequence_number=self.sequence_number,
        )


def field_ids(data_file: DataFile) -> tuple[int, ...]:
    """Return the columns by which a file deletes, ascending."""
    return tuple(sorted(data_file.equality_ids or ()))


def key_types(metadata: TableMetadata, field_ids: Iterable[int]) -> dict[int, IcebergType]:
    """Return the types of columns by id, of dropped ones as they were last.

    Raises:
        ValueError: A field was never in the table, or is none that could be a key.
    """
    newest_last = [*sorted(metadata.schemas, key=lambda schema: schema.schema_id), metadata.schema()]
    types: dict[int, IcebergType] = {}
    for number in sorted(set(field_ids)):
        found = [schema.find_type(number) for schema in newest_last if number in schema.field_ids]
        if not found or not isinstance(found[-1], PrimitiveType):
            raise ValueError(f"field {number} is no column that rows can be deleted by")
        types[number] = found[-1]
    return types
