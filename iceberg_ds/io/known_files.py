"""Keeps the contents of files that a process has read or written recently, so that they are not read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from re import Pattern
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class KnownFiles(Generic[T]):
    """The contents of files by their paths; threads may share it.

    Args:
        unique_name: Matches the paths of files whose contents never change; other files are not kept.
        weight: Returns the room that a file takes.
        max_weight: The room that all files take at most; the least recently used ones are dropped first.
    """

    def __init__(self, unique_name: Pattern[str], weight: Callable[[T], int], max_weight: int) -> None:
        self._unique_name = unique_name
        self._weight = weight
        self._max_weight = max_weight
        self._lock = Lock()
        self._by_path: OrderedDict[str, T] = OrderedDict()

    def find(self, path: str) -> T | None:
        """Return the contents of the file, or None if they are not known."""
        with self._lock:
            known = self._by_path.get(path)
            if known is not None:
                self._by_path.move_to_end(path)
            return known

    def find_such(self, is_wanted: Callable[[T], bool]) -> T | None:
        """Return the contents of the first such file, or None if none is known."""
        with self._lock:
            return next((known for known in self._by_path.values() if is_wanted(known)), None)

    def keep(self, path: str, held: T, replaces: Callable[[T], bool] | None = None) -> None:
        """Keep the contents of a file instead of the files that it replaces, unless they alone exceed the limit."""
        with self._lock:
            self._by_path.pop(path, None)
            if replaces is not None:
                for other in [other for other, known in self._by_path.items() if replaces(known)]:
                    del self._by_path[other]
            if self._unique_name.search(path) and self._weight(held) <= self._max_weight:
                self._by_path[path] = held
            while sum(map(self._weight, self._by_path.values())) > self._max_weight:
                self._by_path.popitem(last=False)
