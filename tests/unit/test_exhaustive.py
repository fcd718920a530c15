"""What `make test` leaves out of a matrix, and what it keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
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


COMBINED = """
import pytest
from support.exhaustive import spare

def pytest_collection_modifyitems(items):
    spare(items)
"""
TESTS = """
import pytest

@pytest.mark.parametrize("one", [1, 2, 3])
@pytest.mark.parametrize("other", ["a", "b"])
def test_both(one, other): ...

@pytest.mark.parametrize("one", [1, 2, 3])
def test_single(one): ...
"""


def test_each_value_of_a_test_with_several_parameters_is_run(tmp_path: Path) -> None:
    """A value would be tried by `make test-all` alone, or each with each other one by `make test`."""
    (tmp_path / "conftest.py").write_text(COMBINED)
    (tmp_path / "test_cells.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir"]
    chosen = ["-m", "not exhaustive", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    done = subprocess.run(
        [*command, str(tmp_path), *chosen], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    run = [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]
    both = [name.removeprefix("test_both[").rstrip("]").split("-") for name in run if "both" in name]
    assert sorted({other for other, _ in both}) == ["a", "b"]
    assert sorted({one for _, one in both}) == ["1", "2", "3"]
    assert len(both) == 3
    assert sum("single" in name for name in run) == 3
