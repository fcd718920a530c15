"""Requests to a store side by side, because each mostly waits, and work that goes on while its results are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

# Requests to the store that run at once, unless a caller says otherwise.
_AT_ONCE = 16
# The largest number of results that wait for their turn, unless a caller says otherwise.
_WAITING = 1024

_END = object()

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def in_parallel(
    call: Callable[[_Item], _Found], items: Iterable[_Item], at_once: int = _AT_ONCE, waiting: int = _WAITING
) -> Iterator[_Found]:
    """Yield what `call` returns for each item, in order.

    Args:
        call: Is called in threads.
        items: Are taken as they are needed.
        at_once: How many calls run at once.
        waiting: The largest number of results that wait for their turn.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(at_once, thread_name_prefix="iceberg-ds-read") as pool:
        while window := list(islice(remaining, waiting)):
            yield from pool.map(call, window)


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield items; a thread makes the next one while the caller uses the one before.

    Gains time where both are reading, writing or Arrow's work, during which other threads of Python run. What making
    an item raises is raised in its place; a caller that stops waits for the item that is being made.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="iceberg-ds-ahead") as pool:
        following = pool.submit(next, remaining, _END)
        while (item := following.result()) is not _END:
            following = pool.submit(next, remaining, _END)
            yield item  # type: ignore[misc]  # not the end
