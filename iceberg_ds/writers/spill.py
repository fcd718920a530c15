"""Temporary files for rows that do not fit in memory, read in any order or in the order in which the rows came.

Such a file has no name, so it vanishes with the process, however that ends. Knows only rows, neither table nor order.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows in the file: their offset and length there in bytes, and the Arrow bytes that they take in memory."""

    offset: int
    length: int
    arrow_bytes: int


class SpillFile:
    """A file without a name in Spark's local folder, or in the system's temporary folder.

    Args:
        purpose: Why the rows are there, such as `being sorted`, for errors.
    """

    # Compression halves the disk space at no cost in time; threads would take the cores of Spark's other tasks.
    _writing = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    _reading = pa.ipc.IpcReadOptions(use_threads=False)

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._folder = spill_folder()
        self._size = 0
        with self._explained():
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # open until the merge is done

    def write(self, rows: pa.RecordBatch) -> Chunk:
        """Append rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=self._writing) as stream:
            stream.write_batch(rows)
        content = sink.getvalue()
        with self._explained():
            self._file.seek(self._size)
            self._file.write(content)
        chunk = Chunk(offset=self._size, length=content.size, arrow_bytes=rows.nbytes)
        self._size += content.size
        return chunk

    def read(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk."""
        with self._explained():
            self._file.seek(chunk.offset)
            content = self._file.read(chunk.length)
        return pa.ipc.open_stream(content, options=self._reading).read_next_batch()

    def close(self) -> None:
        """Close and so delete the file."""
        with contextlib.suppress(OSError):  # of a last write, which is not read any more
            self._file.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(f"rows that are {self._purpose} cannot be kept in {self._folder}: {error}") from error


def spill_folder() -> str:
    """Return one of the folders that Spark names to its Python workers, else the system's temporary folder."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    usable = [folder for folder in named if folder and os.access(folder, os.W_OK)]
    return usable[os.getpid() % len(usable)] if usable else tempfile.gettempdir()


class Spool:
    """Takes batches of one schema and gives them back in the same order; no file exists before the first batch."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._spill: SpillFile | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            OSError: The rows could not be kept on disk.
        """
        self._spill = self._spill or SpillFile("waiting for others of their keys")
        self._chunks.append(self._spill.write(rows))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches.

        Raises:
            OSError: The rows could not be read again.
        """
        if self._spill is not None:
            for chunk in self._chunks:
                yield self._spill.read(chunk)

    def close(self) -> None:
        """Forget all rows."""
        self._chunks = []
        if self._spill is not None:
            self._spill.close()
