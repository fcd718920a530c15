"""Random writes, deletes and changes of columns: a read returns the rows that the spec says, and no others."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.tables.random_history import RandomHistory
from support.tables.reading import in_order, read_by_tasks

VALUES = st.none() | st.integers(0, 9)
changes = st.one_of(
    st.tuples(st.just("append"), st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5)),
    st.tuples(st.just("delete keys"), st.lists(VALUES, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("delete row"), st.integers(0, 99)),
    st.sampled_from([("swap names",), ("widen",), ("partition",), ("drop",), ("add",)]),
)
Test = Callable[[Mapping[str, Any]], bool]
# Predicates over columns that are always there, and what they say of a row.
PREDICATES: Mapping[str, Test] = {
    "true": lambda _: True,
    "id < 5": lambda row: row["id"] is not None and row["id"] < 5,
    "id IS NULL": lambda row: row["id"] is None,
    "id = 3 OR id > 7": lambda row: row["id"] is not None and (row["id"] == 3 or row["id"] > 7),
    "NOT id BETWEEN 2 AND 6": lambda row: row["id"] is not None and not 2 <= row["id"] <= 6,
}


@settings(max_examples=examples(60))
@given(history=st.lists(changes, min_size=2, max_size=12), where=st.sampled_from(sorted(PREDICATES)))
def test_read_returns_the_rows_that_the_spec_says(history: Any, where: str) -> None:
    """Rows would be lost, doubled, or come back, or columns would have the values of other ones."""
    folder = Path(tempfile.mkdtemp())
    try:
        history_of = RandomHistory(folder)
        for change in history:
            history_of.take(*change)
        wanted = in_order([row for row in rows_of(history_of.sink.table()) if PREDICATES[where](row)])

        assert read_by_tasks(history_of.sink, where=where) == wanted
    finally:
        shutil.rmtree(folder)
