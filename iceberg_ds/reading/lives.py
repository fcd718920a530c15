"""Pure: when files are in a table, over the snapshots whose changes are read.

Time is counted in moments: 2 n is before the snapshot with number n, 2 n + 1 after it. What a snapshot does to a file
happens at an odd moment; what others did in between, which changes no row, at an even one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

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
        self._ended: dict[str, list[Life]] = defaultdict(list)
        self._since: dict[str, int] = {}

    def note(self, moment: int, present: Iterable[str], among: Iterable[str] | None = None) -> None:
        """Note which files are there.

        Args:
            moment: The moment, later than those before.
            present: Paths of the files that are there.
            among: Paths of the files that are looked at: of others it is as it was. None for all.
        """
        there = set(present)
        looked_at = self._since.keys() if among is None else self._since.keys() & set(among)
        for path in looked_at - there:
            self._ended[path].append(Life(self._since.pop(path), moment))
        for path in there - self._since.keys():
            self._since[path] = moment

    def of(self, path: str) -> tuple[Life, ...]:
        """Return the lives of a file, in order."""
        last = (Life(self._since[path]),) if path in self._since else ()
        return (*self._ended.get(path, ()), *last)
