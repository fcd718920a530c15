"""What is kept of files that a process has read or written last, so that they are not read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from re import Pattern
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class KnownFiles(Generic[T]):
    """What files hold, by path; threads may share it.

    Args:
        unique_name: Is found in the path of a file that cannot have been another one before; others are not kept.
        weight: Returns how much room a file takes.
        max_weight: How much all of them take at most; those that were not used for the longest time go first.
    """

    def __init__(self, unique_name: Pattern[str], weight: Callable[[T], int], max_weight: int) -> None:
        self._unique_name = unique_name
        self._weight = weight
        self._max_weight = max_weight
        self._lock = Lock()
        self._by_path: OrderedDict[str, T] = OrderedDict()

    def find(self, path: str) -> T | None:
        """Return what the file holds, None if that is not known."""
        with self._lock:
            known = self._by_path.get(path)
            if known is not None:
                self._by_path.move_to_end(path)
            return known

    def find_such(self, is_wanted: Callable[[T], bool]) -> T | None:
        """Return what the first such file holds, None if none is known."""
        with self._lock:
            return next((known for known in self._by_path.values() if is_wanted(known)), None)

    def keep(self, path: str, held: T, replaces: Callable[[T], bool] | None = None) -> None:
        """Keep what the file holds, in the place of files that it replaces, unless that alone would be too much."""
        with self._lock:
            self._by_path.pop(path, None)
            if replaces is not None:
                for other in [other for other, known in self._by_path.items() if replaces(known)]:
                    del self._by_path[other]
            if self._unique_name.search(path) and self._weight(held) <= self._max_weight:
                self._by_path[path] = held
            while sum(map(self._weight, self._by_path.values())) > self._max_weight:
                self._by_path.popitem(last=False)
