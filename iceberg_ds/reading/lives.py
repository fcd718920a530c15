"""Pure: when files are in a table, over the snapshots whose changes are read.

Time is counted in moments: 2 n is before the snapshot with number n, 2 n + 1 after it. What a snapshot does to a file
happens at an odd moment; what others did in between, which changes no row, at an even one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

# Path and data sequence number: a file that is added again with another number is another one, whose rows other deletes
# hide, and which as a delete file hides other rows.
FileId: TypeAlias = tuple[str, int]

# Above all moments; even, as nothing happens then.
END = 2**30


class Life(NamedTuple):
    """Moments in which a file is in the table.

    Attributes:
        since: The first one.
        until: The first one in which it is gone; END for none.
    """

    since: int
    until: int = END


class Lives:
    """Notes the lives of files, moment after moment."""

    def __init__(self) -> None:
        self._ended: dict[FileId, list[Life]] = defaultdict(list)
        self._since: dict[FileId, int] = {}

    def note(self, moment: int, present: Iterable[FileId], among: Iterable[FileId] | None = None) -> None:
        """Note which files are there.

        Args:
            moment: The moment, later than those before.
            present: The files that are there.
            among: The files that are looked at: of others it is as it was. None for all.
        """
        there = set(present)
        looked_at = self._since.keys() if among is None else self._since.keys() & set(among)
        for file in looked_at - there:
            self._ended[file].append(Life(self._since.pop(file), moment))
        for file in there - self._since.keys():
            self._since[file] = moment

    def of(self, file: FileId) -> tuple[Life, ...]:
        """Return the lives of a file, in order."""
        last = (Life(self._since[file]),) if file in self._since else ()
        return (*self._ended.get(file, ()), *last)
