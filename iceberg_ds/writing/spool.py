"""Keeps rows that do not fit in memory in a temporary file, and gives them back in the order in which they came.

Knows rows alone, neither table nor order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from iceberg_ds.writing.spill import Chunk, SpillFile


class Spool:
    """Takes batches of one schema and gives them back as they came; there is no file before the first."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._spill: SpillFile | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            OSError: They could not be kept on disk.
        """
        self._spill = self._spill or SpillFile("waiting for others of their keys")
        self._chunks.append(self._spill.write(rows))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches.

        Raises:
            OSError: They could not be read again.
        """
        if self._spill is not None:
            for chunk in self._chunks:
                yield self._spill.read(chunk)

    def close(self) -> None:
        """Forget all rows."""
        self._chunks = []
        if self._spill is not None:
            self._spill.close()
