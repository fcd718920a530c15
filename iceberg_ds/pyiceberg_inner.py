"""The private names of PyIceberg that decisions on files need, behind functions of our own.

Contract tests hold them.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.table import FileScanTask


def deleted_positions(io: FileIO, task: FileScanTask) -> pa.Array:
    """Return the positions, from 0, of the rows of a file that position deletes hide; in any order."""
    hidden = _read_all_delete_files(io, [task]) if task.delete_files else {}
    chunks = [chunk.cast(pa.int64()) for positions in hidden.get(task.file.file_path, []) for chunk in positions.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.int64())
