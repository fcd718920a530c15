"""Portions of bounded size."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.table.bin_packing import packed

SIZES = st.lists(st.integers(min_value=0, max_value=20))


@given(sizes=SIZES, most=st.integers(min_value=1, max_value=30))
def test_no_item_is_lost_and_no_portion_too_large(sizes: list[int], most: int) -> None:
    """A file would not be rewritten, or a task run out of memory."""
    portions = list(packed(enumerate(sizes), most, lambda item: item[1]))

    assert [item for portion in portions for item in portion] == list(enumerate(sizes))
    assert all(portion and (len(portion) == 1 or sum(size for _, size in portion) <= most) for portion in portions)


@given(sizes=SIZES, most=st.integers(min_value=1, max_value=30))
def test_portions_are_as_large_as_they_may_be(sizes: list[int], most: int) -> None:
    """Many small files would be written where one does."""
    portions = list(packed(sizes, most, lambda size: size))

    assert all(sum(portion) + after[0] > most for portion, after in itertools.pairwise(portions))
