"""Work that goes on while its results are used."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iceberg_ds.io.parallel import ahead


def test_all_items_come_in_their_order() -> None:
    """Rows would be lost, or change places, by which deletes are moved."""
    assert list(ahead(iter(range(1000)))) == list(range(1000))
    assert list(ahead([None, 0, ""])) == [None, 0, ""]
    assert list(ahead([])) == []


def test_next_item_is_made_while_one_is_used_and_no_more() -> None:
    """Nothing would be gained; or a task would hold rows without bound."""
    made: list[int] = []
    third = threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(5):
            made.append(number)
            if number == 2:
                third.set()
            yield number

    found = ahead(numbers())
    assert next(found) == 0
    assert next(found) == 1
    assert third.wait(10)

    assert made == [0, 1, 2]
    assert list(found) == [2, 3, 4]


def test_error_comes_in_the_place_of_its_item() -> None:
    """A file that cannot be read would end a task as if it had no more rows."""

    def failing() -> Iterator[int]:
        yield 1
        raise OSError("no such file")

    found = ahead(failing())

    assert next(found) == 1
    with pytest.raises(OSError, match="no such file"):
        next(found)


def test_caller_that_stops_leaves_no_thread() -> None:
    """Each failed group of a rewrite would leave one."""
    before = threading.active_count()
    found = ahead(iter(range(100)))
    next(found)
    found.close()  # type: ignore[attr-defined]  # a generator

    assert threading.active_count() == before
