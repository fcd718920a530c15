"""Keeps the contents of files that a process has read or written recently, so that they are not read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from re import Pattern
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    content: T
    weight: int
    owner: str | None


class KnownFiles(Generic[T]):
    """The contents of files by their paths; threads may share it.

    No call takes longer because more files are kept.

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
        self._by_path: OrderedDict[str, _Held[T]] = OrderedDict()
        self._path_of: dict[str, str] = {}  # of the file that is kept of an owner
        self._total = 0  # the weights of all files

    def find(self, path: str) -> T | None:
        """Return the contents of the file, or None if they are not known."""
        with self._lock:
            known = self._by_path.get(path)
            if known is None:
                return None
            self._by_path.move_to_end(path)
            return known.content

    def find_of(self, owner: str) -> T | None:
        """Return the contents of the file that is kept of an owner, or None if none is."""
        with self._lock:
            path = self._path_of.get(owner)
            return None if path is None else self._by_path[path].content

    def keep(self, path: str, content: T, owner: str | None = None) -> None:
        """Keep the contents of a file, unless they alone exceed the limit.

        Args:
            path: Where the file is.
            content: What it holds.
            owner: What the file is a state of: its file takes the place of the one that was kept of the same owner.
                None if it takes no other's place.
        """
        with self._lock:
            self._drop(path)
            if owner is not None and (before := self._path_of.get(owner)) is not None:
                self._drop(before)
            weight = self._weight(content)
            if self._unique_name.search(path) and weight <= self._max_weight:
                self._by_path[path] = _Held(content, weight, owner)
                self._total += weight
                if owner is not None:
                    self._path_of[owner] = path
            while self._total > self._max_weight:
                self._drop(next(iter(self._by_path)))

    def _drop(self, path: str) -> None:
        held = self._by_path.pop(path, None)
        if held is None:
            return
        self._total -= held.weight
        if held.owner is not None:
            del self._path_of[held.owner]
