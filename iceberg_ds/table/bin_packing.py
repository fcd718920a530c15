"""Files in portions of bounded size, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def packed(items: Iterable[Item], most: int, size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield items in their order, in portions as long as possible whose sizes add up to `most` at most.

    An item that is larger than that is a portion of its own; no items are no portions.
    """
    portion: list[Item] = []
    size = 0
    for item in items:
        if portion and size + size_of(item) > most:
            yield portion
            portion, size = [], 0
        portion.append(item)
        size += size_of(item)
    if portion:
        yield portion
