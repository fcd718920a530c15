"""Rows to remove that a job has chosen by position: their positions are read from files that are in no table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from iceberg_ds.deletes.match import Matches
from iceberg_ds.deletes.work import PORTION_ROWS, FileWork
from iceberg_ds.writers.position_deletes import positions_by_file


class ChosenRows:
    """Finds the chosen rows of data files.

    Args:
        io: Opens the table's storage.

    Attributes:
        read_bytes: 0: no column of a data file is read.
        portion_rows: The largest number of rows of data files that are searched together.
    """

    read_bytes = 0
    portion_rows = PORTION_ROWS

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def find(self, work: Sequence[FileWork]) -> dict[str, Matches]:
        """Return the chosen rows, each once, by path of the data file; files without such rows are left out.

        Args:
            work: Data files of one partition.
        """
        named: dict[str, list[str]] = defaultdict(list)
        for item in work:
            for path in item.chosen:
                named[path].append(item.path)
        found: dict[str, list[pa.Array]] = defaultdict(list)
        for path, data_files in named.items():
            for data_file, positions in positions_by_file(self._io, path, data_files):
                found[data_file].append(positions)
        return {path: Matches(positions=pc.unique(pa.concat_arrays(parts)).sort()) for path, parts in found.items()}
