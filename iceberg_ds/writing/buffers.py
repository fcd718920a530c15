"""How many rows of a task wait in memory, over all its table partitions, and which of them give way to others."""

from __future__ import annotations

from typing import Protocol

from iceberg_ds.plan import FileSettings
from iceberg_ds.writing.group_sizes import MOST_EXPANSION

# Arrow bytes that wait in all buffers of a task at most; more if the table asks for larger row groups.
BUFFER_BYTES = 64 * 1024 * 1024


class BufferingWriter(Protocol):
    """What has rows of one table partition in memory."""

    buffered_bytes: int

    @property
    def has_open_file(self) -> bool:
        """Whether a file is begun and not finished."""

    def shrink(self) -> None:
        """Move the buffer out of memory, into the file or onto the disk."""

    def flush(self) -> None:
        """Write all that waits into the file."""


class Buffers:
    """The buffers of one task.

    Args:
        settings: How files are written.

    Attributes:
        buffered_bytes: Arrow bytes in all of them.
    """

    def __init__(self, settings: FileSettings) -> None:
        self.buffered_bytes = 0
        self._most_bytes = max(BUFFER_BYTES, MOST_EXPANSION * (settings.row_group_size_bytes or 0))
        self._has_one_file = settings.max_open_files == 1
        self._writers: dict[BufferingWriter, None] = {}  # those with rows in memory

    def count(self, writer: BufferingWriter, added: int) -> None:
        """Note that the buffer of `writer` has grown by `added` bytes."""
        writer.buffered_bytes += added
        self.buffered_bytes += added
        if writer.buffered_bytes:
            self._writers[writer] = None
        else:
            self._writers.pop(writer, None)

    def bound(self, latest: BufferingWriter) -> None:
        """Shrink the largest buffers, if all are too large, until half is free, so that this is seldom needed.

        If rows are clustered by partition, all but the latest partition are complete, so its buffer is the last.
        """
        if self.buffered_bytes <= self._most_bytes:
            return
        enough = self._most_bytes // 2
        if self._has_one_file and latest.has_open_file:  # which the others would make it finish
            latest.flush()
            enough = self._most_bytes
        others = [writer for writer in self._writers if writer is not latest]
        for writer in (*sorted(others, key=lambda other: other.buffered_bytes, reverse=True), latest):
            if self.buffered_bytes <= enough:
                break
            writer.shrink()
