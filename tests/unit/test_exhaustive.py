"""What `make test` leaves out of a matrix, and what it keeps."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from support.exhaustive import drawn, each_value, few, one_of_each

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

CELLS = [*product("abc", range(5), [True, False])]


def kept(parameters: list[ParameterSet]) -> list[Any]:
    """Return the values of the parameters that `make test` runs."""
    return [parameter.values for parameter in parameters if not parameter.marks]


def test_cell_of_each_kind_is_drawn_for_every_way_to_look_at_it() -> None:
    """A kind of fault that no drawn cell stands for would be met by users first."""
    some = drawn(CELLS, lambda cell: cell[:2], lambda cell: cell[2])

    assert {cell[:2] for cell in some} == {cell[:2] for cell in CELLS}
    assert {cell[2] for cell in some} == {True, False}
    assert len(some) < len(CELLS)
    assert drawn(CELLS, lambda cell: cell[:2], lambda cell: cell[2]) == some


def test_cells_that_are_not_drawn_are_marked_and_none_is_lost() -> None:
    """`make test-all` would not run every cell either."""
    parameters = one_of_each(CELLS, lambda cell: cell[0])

    assert [parameter.values for parameter in parameters] == [(cell,) for cell in CELLS]
    assert len(kept(parameters)) == 3


@pytest.mark.parametrize("others", [[1], [1, 2], [1, 2, 3, 4]], ids=len)
def test_each_value_is_in_a_combination_without_a_mark(others: list[int]) -> None:
    """A value of a shorter list, or of a longer one, would be left out."""
    parameters = each_value(["a", "b", "c"], others)

    assert {values[0] for values in kept(parameters)} == {"a", "b", "c"}
    assert {values[1] for values in kept(parameters)} == {*others}
    assert len(parameters) == 3 * len(others)


def test_few_are_as_many_as_asked_for_and_spread_over_all() -> None:
    """Only the first cases of a list would ever be run."""
    parameters = few(3, range(10))

    assert kept(parameters) == [(0,), (3,), (6,)]
    assert len(parameters) == 10
    assert kept(few(1, [("a", 1), ("b", 2)])) == [("a", 1)]
