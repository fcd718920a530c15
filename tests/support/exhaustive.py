"""What takes a minute, or proves again what another test proves: `make test` leaves it out, `make test-all` runs it.

There is one mark for it, `exhaustive`. A matrix whose cells are alike to the sink in some respect says in which, and
keeps a cell for each of these ways to look at it. Of all other tests with several parameters, so many combinations are
run that each value is in one.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

T = TypeVar("T")
# Of the profile that `make test-all` has.
_ALL_EXAMPLES = 90
EXHAUSTIVE = pytest.mark.exhaustive


def examples(number: int) -> int:
    """Return with how many examples a property is tried that takes long: so many in `make test-all`, else a third."""
    return max(1, number * settings().max_examples // _ALL_EXAMPLES)


def drawn(cells: Iterable[T], *kinds: Callable[[T], Hashable]) -> list[T]:
    """Return cells among which there is one of each kind, for every way to say what kind a cell is of.

    They are drawn by their names: the same in each run, and other ones in each set of cells that are alike.
    """
    found = list(cells)
    taken: set[int] = set()
    for kind in kinds:
        chosen: dict[Hashable, int] = {}
        for number in sorted(range(len(found)), key=lambda number: zlib.crc32(str(found[number]).encode())):
            chosen.setdefault(kind(found[number]), number)
        taken.update(chosen.values())
    return [found[number] for number in sorted(taken)]


def one_of_each(cells: Iterable[T], *kinds: Callable[[T], Hashable]) -> list[ParameterSet]:
    """Return all cells as parameters of a test; those that `drawn` leaves out are marked."""
    found = list(cells)
    kept = {id(cell) for cell in drawn(found, *kinds)}
    return [pytest.param(cell, marks=() if id(cell) in kept else EXHAUSTIVE) for cell in found]


def each_value(*parameters: Sequence[Any]) -> list[ParameterSet]:
    """Return all combinations as parameters of a test; without a mark are so many that each value is among them."""
    most = max(map(len, parameters))
    kept = {tuple(number % len(values) for values in parameters) for number in range(most)}
    return [
        pytest.param(
            *(values[number] for values, number in zip(parameters, numbers, strict=True)),
            marks=() if numbers in kept else EXHAUSTIVE,
        )
        for numbers in product(*(range(len(values)) for values in parameters))
    ]


def spare(tests: Iterable[pytest.Item]) -> None:
    """Mark combinations of parameters, so many that each value of each parameter of a test is left in one.

    Args:
        tests: Tests, of which those with a mark are left alone.
    """
    found: dict[tuple[str, str], dict[pytest.Item, set[tuple[str, str]]]] = defaultdict(dict)
    for test in tests:
        parameters = test.callspec.params if isinstance(test, pytest.Function) and hasattr(test, "callspec") else {}
        if len(parameters) > 1 and test.get_closest_marker(EXHAUSTIVE.name) is None:
            cells = found[str(test.parent), str(getattr(test, "originalname", ""))]
            cells[test] = {(name, repr(value)) for name, value in parameters.items()}
    for cells in found.values():
        left = set[tuple[str, str]]().union(*cells.values())
        while left:
            newest = max(cells, key=lambda test: len(cells[test] & left))
            left -= cells.pop(newest)
        for test in cells:
            test.add_marker(EXHAUSTIVE)


def few(number: int, values: Iterable[Any]) -> list[ParameterSet]:
    """Return all values as parameters of a test, tuples for several; so many, evenly spread, are without a mark."""
    found = [value if isinstance(value, tuple) else (value,) for value in values]
    kept = {len(found) * place // number for place in range(number)}
    return [pytest.param(*value, marks=() if place in kept else EXHAUSTIVE) for place, value in enumerate(found)]
