"""What the words of an operation column mean."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from iceberg_ds.cdc.row_kind import OTHER_WORDS, RowKind, count_words, describe_words, read_operations, with_deletes

DIALECTS = {
    "Debezium": (["c", "r", "u", "d"], [RowKind.INSERT, RowKind.UPSERT, RowKind.UPSERT, RowKind.DELETE]),
    "Flink": (["+I", "-U", "+U", "-D"], [RowKind.INSERT, RowKind.BEFORE, RowKind.UPSERT, RowKind.DELETE]),
    "Spark and Delta": (
        ["insert", "update_preimage", "update_postimage", "delete"],
        [RowKind.INSERT, RowKind.BEFORE, RowKind.UPSERT, RowKind.DELETE],
    ),
    "letters": (["I", "U", "D"], [RowKind.INSERT, RowKind.UPSERT, RowKind.DELETE]),
    "words": (
        ["Insert", "UPDATE", "Upsert", "dELETE"],
        [RowKind.INSERT, RowKind.UPSERT, RowKind.UPSERT, RowKind.DELETE],
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_words_of_every_dialect_are_known(dialect: str) -> None:
    """A change feed would need a translation first, or deletes become rows."""
    words, kinds = DIALECTS[dialect]

    assert read_operations(pa.array(words)).kinds.to_pylist() == kinds


def test_materializes_differences_are_known() -> None:
    """Retractions would become rows."""
    found = read_operations(pa.array([1, -1, 1], pa.int64()))

    assert found.kinds.to_pylist() == [RowKind.UPSERT, RowKind.BEFORE, RowKind.UPSERT]


def test_other_words_are_counted() -> None:
    """Rows would be dropped, or taken for something, without a word."""
    found = read_operations(pa.array(["c", "t", None, "t", "D "]))

    assert found.kinds.to_pylist() == [RowKind.INSERT, None, None, None, None]
    assert found.unknown == {"'t'": 2, "null": 1, "'D '": 1}


def test_other_numbers_are_counted() -> None:
    """A row that is there twice would be written once."""
    found = read_operations(pa.array([1, 2, None, 0], pa.int32()))

    assert found.kinds.to_pylist() == [RowKind.UPSERT, None, None, None]
    assert found.unknown == {"2": 1, "null": 1, "0": 1}


def test_many_different_words_are_counted_together() -> None:
    """A wrong column would make a message of any size."""
    counted: Counter[str] = Counter()
    count_words(counted, {str(number): 2 for number in range(1000)})

    assert len(counted) <= 21
    assert counted.total() == 2000
    assert counted[OTHER_WORDS] > 0


def test_a_mark_makes_a_delete_of_all_but_images_before_a_change() -> None:
    """`delete-when` would bring a row back, or hide it twice."""
    kinds = pa.array([RowKind.INSERT, RowKind.UPSERT, RowKind.BEFORE, RowKind.DELETE, RowKind.UPSERT, None], pa.int8())
    marked = pa.array([True, True, True, True, None, True])

    found = with_deletes(kinds, marked).to_pylist()

    assert found == [RowKind.DELETE, RowKind.DELETE, RowKind.BEFORE, RowKind.DELETE, RowKind.UPSERT, None]


def test_errors_name_the_words_of_all_dialects() -> None:
    """A user would have to search for what to write."""
    assert "c, " in describe_words()
    assert "update_preimage" in describe_words()
