"""The live files of a snapshot, as a search for keys looks at them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent

from iceberg_ds.layouts.partitioning import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file of a snapshot.

    Attributes:
        data_file: Its manifest entry.
        sequence_number: Its data sequence number.
    """

    data_file: DataFile
    sequence_number: int

    @property
    def path(self) -> str:
        """Where it is."""
        return self.data_file.file_path

    @property
    def place(self) -> tuple[int, str]:
        """Its partition."""
        return place_of(self.data_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """All files of a snapshot, by what they hold."""

    data: Sequence[LiveFile] = ()
    positions: Sequence[LiveFile] = ()
    equalities: Sequence[LiveFile] = ()

    @classmethod
    def of(cls, files: Iterable[LiveFile]) -> LiveFiles:
        """Return the files, told apart."""
        found: dict[DataFileContent, list[LiveFile]] = defaultdict(list)
        for live in files:
            found[live.data_file.content].append(live)
        return cls(
            data=found[DataFileContent.DATA],
            positions=found[DataFileContent.POSITION_DELETES],
            equalities=found[DataFileContent.EQUALITY_DELETES],
        )
