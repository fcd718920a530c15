"""What a task of a read is told of a data file. Frozen and picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile

from iceberg_ds.deletes.work import FileWork


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVector:
    """Where a deletion vector is.

    Attributes:
        path: Path of the Puffin file.
        offset: Its first byte in the file.
        length: Its bytes.
        cardinality: How many rows it hides.
    """

    path: str
    offset: int
    length: int
    cardinality: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTask:
    """A data file to read.

    Attributes:
        work: The file, with the equality deletes and the position delete files that apply to it.
        vector: Its deletion vector, in the place of position delete files; None if it has none.
        absent: Values of identity partition fields whose columns the file may lack, by column id: physical values.
    """

    work: FileWork
    vector: DeletionVector | None
    absent: Mapping[int, object]

    @property
    def data_file(self) -> DataFile:
        """Manifest entry of the file, without metrics."""
        return self.work.data_file

    @property
    def has_deletes(self) -> bool:
        """Whether rows of the file may be deleted."""
        return bool(self.work.keys or self.work.positions or self.vector)
