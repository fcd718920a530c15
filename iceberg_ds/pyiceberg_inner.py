"""The private names of PyIceberg that decisions on files and histories need, behind functions of our own.

Contract tests hold them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Snapshot


def deleted_positions(io: FileIO, task: FileScanTask) -> pa.Array:
    """Return the positions, from 0, of the rows of a file that position deletes hide; in any order."""
    from pyiceberg.io.pyarrow import _read_all_delete_files  # noqa: PLC0415  # planners need none of it

    hidden = _read_all_delete_files(io, [task]) if task.delete_files else {}
    chunks = [chunk.cast(pa.int64()) for positions in hidden.get(task.file.file_path, []) for chunk in positions.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.int64())


def summary_entries(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what the summary of a snapshot says beside its operation, nothing if the snapshot has none.

    The public way to it takes ten times as long, and all snapshots of a long history are asked.
    """
    if snapshot.summary is None:
        return {}
    private = snapshot.summary.__pydantic_private__ or {}
    entries: Mapping[str, str] | None = private.get("_additional_properties")
    return snapshot.summary.additional_properties if entries is None else entries
