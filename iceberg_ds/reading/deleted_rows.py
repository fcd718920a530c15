"""Which rows of data files are deleted by position: read from position delete files and from deletion vectors.

Source: Iceberg spec, "Position Delete Files" and "Deletion Vectors".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.reading.file_errors import naming_delete_file
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.snapshots.live_files import DeletionVector, Source
from iceberg_ds.writers.deletion_vectors import vector_positions
from iceberg_ds.writers.position_deletes import positions_by_file

# The largest number of deleted positions that the driver reads.
MOST_POSITIONS = 20_000_000
_WORD_BITS = 64


def position_count(tasks: Iterable[ScanTask], deletes: Mapping[str, DataFile]) -> int:
    """Return how many rows are deleted by position: as many positions `deleted_positions` reads, or fewer.

    Args:
        tasks: The data files.
        deletes: The position delete files that apply to them, by path.
    """
    sources = {source for task in tasks for source in task.work.hidden_by.sources}
    return sum(deletes[one].record_count if isinstance(one, str) else one.cardinality for one in sources)


def deleted_positions(io: FileIO, tasks: Sequence[ScanTask]) -> dict[str, Sequence[int]]:
    """Return the positions of the rows that are deleted by position, by path of the data file.

    Each delete file is read once. Memory grows with the number of positions.

    Raises:
        DataFileError: A delete file is missing or damaged.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for (path, _), positions in positions_by_source(io, tasks).items():
        found[path] += positions.to_pylist()
    return dict(found)


def positions_by_source(io: FileIO, tasks: Iterable[ScanTask]) -> dict[tuple[str, Source], pa.ChunkedArray]:
    """Return the positions of rows by path of the data file and what names them, a delete file or a deletion vector.

    Each delete file is read once.

    Raises:
        DataFileError: A delete file is missing or damaged.
    """
    vectors: dict[DeletionVector, ScanTask] = {}
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for task in tasks:
        hidden_by = task.work.hidden_by
        if hidden_by.vector is not None:
            vectors[hidden_by.vector] = task
        for path in hidden_by.positions:
            wanted[path][task.work.path] = None
    found: dict[tuple[str, Source], list[pa.Array]] = defaultdict(list)

    def of_vector(vector: DeletionVector) -> pa.Array:
        with naming_delete_file(io, vector.path):
            return vector_positions(io, vector, vectors[vector].data_file.record_count)

    def of_file(path: str) -> list[tuple[str, pa.Array]]:
        with naming_delete_file(io, path):
            return [*positions_by_file(io, path, [*wanted[path]])]

    of_vectors = in_parallel(of_vector, vectors)
    for (vector, task), positions in zip(vectors.items(), of_vectors, strict=True):
        found[task.work.path, vector].append(positions)
    of_files = in_parallel(of_file, wanted)
    for source, listed in zip(wanted, of_files, strict=True):
        for path, positions in listed:
            found[path, source].append(positions)
    return {key: pa.chunked_array(arrays, pa.int64()) for key, arrays in found.items()}


def word_count(task: ScanTask) -> int:
    """Return how many 64-bit words have a bit for each row of a data file."""
    return -(-task.data_file.record_count // _WORD_BITS)


def as_words(tasks: Sequence[ScanTask], positions: Mapping[str, Sequence[int]]) -> tuple[pa.Array, dict[str, int]]:
    """Return a bit for each row, set if it is deleted, in 64-bit words, the lowest bit first, file after file.

    Args:
        tasks: The data files.
        positions: As `deleted_positions` returns them; positions that no row of a file has are passed over.

    Returns:
        The words of all files, and the number of the first word of each file by its path.
    """
    bits, first = bytearray(), {}
    for task in tasks:
        first[task.work.path] = len(bits) // 8
        bits += _bits(positions.get(task.work.path, ()), word_count(task))
    return pa.Array.from_buffers(pa.int64(), len(bits) // 8, [None, pa.py_buffer(bytes(bits))]), first


def _bits(positions: Iterable[int], words: int) -> bytearray:
    bits = bytearray(8 * words)
    for position in positions:
        if 0 <= position >> 3 < len(bits):
            bits[position >> 3] |= 1 << (position & 7)
    return bits
