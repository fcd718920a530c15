"""How the checks of a table say what they found: a sentence if all is well, else the first few problems."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from iceberg_ds.checks.checklist import CheckFailedError

_EXAMPLES = 5
_THREADS = 16
# Results that wait for their turn, at most.
_WINDOW = 1024

# Why a file could not be read that is not there.
IS_MISSING = "is missing"

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def found(problems: Iterable[str], well: str, next_step: str) -> tuple[str, None]:
    """Return what a check found if there are no problems.

    Args:
        problems: What is wrong, a sentence each.
        well: What is said if nothing is.
        next_step: What to do about them.

    Raises:
        CheckFailedError: There are problems; its text has the first few.
    """
    every = list(dict.fromkeys(problems))
    if not every:
        return well, None
    more = f"; and {len(every) - _EXAMPLES} more" if len(every) > _EXAMPLES else ""
    raise CheckFailedError(f"{counted(len(every), 'problem')}: {'; '.join(every[:_EXAMPLES])}{more}", next_step)


def counted(number: int, thing: str) -> str:
    """Return a number of things in words."""
    if number == 1:
        return f"1 {thing}"
    if thing.endswith("y") and not thing.endswith("ey"):
        return f"{number:,} {thing.removesuffix('y')}ies"
    return f"{number:,} {thing}{'es' if thing.endswith('nch') else 's'}"


def in_parallel(call: Callable[[_Item], _Found], items: Iterable[_Item]) -> Iterator[_Found]:
    """Yield what `call` returns for each item, in order, with a bounded number of results waiting."""
    remaining = iter(items)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="iceberg-ds-verify") as pool:
        while window := list(itertools.islice(remaining, _WINDOW)):
            yield from pool.map(call, window)


def why_unreadable(error: Exception) -> str:
    """Return in words why a file could not be read."""
    if isinstance(error, FileNotFoundError):
        return IS_MISSING
    return f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
