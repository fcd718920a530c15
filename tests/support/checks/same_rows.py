"""What two readers of one table, or two tables, differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

_SHOWN = 5


def difference(found: Iterable[tuple[Any, ...]], expected: Iterable[tuple[Any, ...]]) -> str | None:
    """Return in words which rows were found and not expected, and the other way round; None if they are the same."""
    first, second = Counter(found), Counter(expected)
    if first == second:
        return None
    return f"{_some(first - second)} and not {_some(second - first)}"


def _some(rows: Counter[tuple[Any, ...]]) -> str:
    return f"{rows.total()} rows {sorted(rows.elements(), key=str)[:_SHOWN]}"
