"""Requests to a store side by side: most of each is waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

# Requests to the store that run at once, unless a caller says otherwise.
_AT_ONCE = 16
# The largest number of results that wait for their turn, unless a caller says otherwise.
_WAITING = 1024

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
