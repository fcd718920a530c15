"""The files of keys that a search looks for, and the columns that these keys have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
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
    def field_ids(self) -> tuple[int, ...]:
        """The columns of its keys, ascending."""
        return tuple(sorted(self.data_file.equality_ids or ()))

    @property
    def key_file(self) -> KeyFile:
        """The same for tasks."""
        return KeyFile(
            path=self.data_file.file_path,
            field_ids=self.field_ids,
            sequence_number=self.sequence_number,
        )


def key_types(schemas: Sequence[Schema], sources: Iterable[KeySource]) -> dict[int, IcebergType]:
    """Return the types of all key columns by id, of dropped ones as they were last.

    Args:
        schemas: Those that the table has had, the one of now last.
        sources: The keys.

    Raises:
        ValueError: A field was never in the table, or is none that could be a key.
    """
    types: dict[int, IcebergType] = {}
    for number in sorted({number for source in sources for number in source.field_ids}):
        found = [schema.find_type(number) for schema in schemas if number in schema.field_ids]
        if not found or not isinstance(found[-1], PrimitiveType):
            raise ValueError(f"field {number} is no column that rows can be deleted by")
        types[number] = found[-1]
    return types
