"""Pure: how many rows make the next row group of a file, and when a file is full.

How large a row group becomes in the file is estimated from the row groups before it, with care: an estimate that
is too high makes the file too large, one that is too low only costs another row group.
"""

from __future__ import annotations

from collections import deque

# Arrow bytes of one row group at most, unless the table says its size; compressed it is a third of that or less.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Arrow bytes of one row group at most, for each byte of the compressed size that the table says.
MOST_EXPANSION = 4
# A file that is this close to its target size is full: the next row group would be tiny.
FULL_AT = 0.97

# What is missing to the target size is filled up at once if it is no more than this share of the target.
_NEAR = 0.1
# Else a row group takes this share of it, as long as its compressed size is a guess,
_CAREFUL = 0.6
# and is at most so many times as large as any before it: rows to come may compress less.
_GROWTH = 8
# It is known if the last row groups compressed as alike as this.
_STEADY = 1.25
# Row groups smaller than this share of the target size say little of how larger ones compress.
_TELLING = 0.2


class GroupSizes:
    """Decides how many Arrow bytes the next row group of a partition has.

    Args:
        target: Compressed size of a file.
        group_size: Compressed size of a row group, None for what `ROW_GROUP_BYTES` become.
    """

    def __init__(self, target: int, group_size: int | None) -> None:
        self._target = target
        self._group_size = group_size
        self._ratios: deque[float] = deque(maxlen=3)
        self._overhead = 0
        self._largest = 0

    def is_full(self, written: int) -> bool:
        """Return whether a file of `written` bytes is near its target size."""
        has_no_room = written + self._overhead >= self._target and written >= (1 - _NEAR) * self._target
        return has_no_room or written >= FULL_AT * self._target

    def next_group(self, written: int) -> int:
        """Return the Arrow bytes of the row group to come in a file of `written` bytes."""
        missing = self._target - written - self._overhead
        ratio = max(self._ratios, default=1.0)
        is_known = written > 0 and len(self._ratios) > 1 and ratio <= _STEADY * min(self._ratios)
        share = 1 if is_known or missing <= _NEAR * self._target else _CAREFUL
        most = self._limit() if is_known or not self._largest else min(_GROWTH * self._largest, self._limit())
        return max(1, min(int(missing * share / ratio), most))

    def note(self, arrow_bytes: int, written: int, overhead: int = 0) -> None:
        """Learn what a row group became: bytes of rows, and bytes that any row group takes beside them."""
        self._overhead = overhead
        self._largest = max(self._largest, arrow_bytes)
        if not self._ratios or arrow_bytes >= self._limit() // 2 or written >= _TELLING * self._target:
            self._ratios.append(max(written, 1) / max(arrow_bytes, 1))

    def _limit(self) -> int:
        if self._group_size is None:
            return ROW_GROUP_BYTES
        return int(self._group_size * min(1 / max(self._ratios, default=1.0), MOST_EXPANSION))
