"""What is asked of PyIceberg's private tests on metrics: a new version that answers otherwise is found here."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from support.delete_files import delete_positions, entries
from support.tables import Sink

from iceberg_ds.predicates.predicates import parse_predicate
from iceberg_ds.predicates.typed import typed_predicate
from iceberg_ds.pyiceberg_inner import deleted_positions, may_match, must_match

SCHEMA = Schema(
    NestedField(1, "x", ice.DoubleType()),
    NestedField(2, "text", ice.StringType()),
    NestedField(3, "i", ice.IntegerType()),
)


def data_file(**metrics: Any) -> DataFile:
    """Return a data file of ten rows."""
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///t/a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=10,
        file_size_in_bytes=1,
        **metrics,
    )


def bounds(low: float, high: float) -> dict[str, dict[int, bytes]]:
    """Return the bounds of column `x`."""
    kind = ice.DoubleType()
    return {"lower_bounds": {1: to_bytes(kind, low)}, "upper_bounds": {1: to_bytes(kind, high)}}


def answers(text: str, file: DataFile) -> tuple[bool, bool]:
    """Return whether a row may match, and whether all must."""
    predicate = typed_predicate(parse_predicate(text), SCHEMA, case_sensitive=False)
    return may_match(SCHEMA, predicate)(file), must_match(SCHEMA, predicate)(file)


@pytest.mark.parametrize(
    ("text", "may", "must"),
    [
        ("x < 1", False, False),
        ("x <= 1", True, False),
        ("x < 10", True, True),
        ("x > 9", False, False),
        ("x = 5", True, False),
        ("x = 10", False, False),
        ("x <> 10", True, True),
        ("x in (5, 10)", True, False),
        ("x in (10, 11)", False, False),
        ("x not in (10, 11)", True, True),
        ("x is null", False, False),
        ("x is not null", True, True),
        ("x is nan", False, False),
        ("x is not nan", True, True),
        ("x < 10 and x > 9", False, False),
        ("x < 10 or x > 9", True, True),
        ("true", True, True),
        ("false", False, False),
    ],
)
def test_answers_follow_from_bounds_and_counts(text: str, *, may: bool, must: bool) -> None:
    """Files would be dropped whole, kept whole or read wrongly."""
    file = data_file(value_counts={1: 10}, null_value_counts={1: 0}, nan_value_counts={1: 0}, **bounds(1.0, 9.0))

    assert answers(text, file) == (may, must)


@pytest.mark.parametrize("text", ["x < 10", "x = 1", "text = 'a'", "i > 1", "i is null", "x is nan", "text like 'a%'"])
def test_nothing_is_known_of_a_file_without_metrics(text: str) -> None:
    """Files of other writers would be dropped or kept whole."""
    assert answers(text, data_file()) == (True, False)


def test_counts_of_nulls_and_nan_keep_a_file_from_being_dropped_whole() -> None:
    """Rows with null and NaN would be dropped with their file."""
    for counts in ({"null_value_counts": {1: 1}}, {"nan_value_counts": {1: 1}}):
        file = data_file(value_counts={1: 10}, **counts, **bounds(1.0, 9.0))
        assert answers("x < 10", file) == (True, False)


def test_what_was_not_counted_is_taken_for_none() -> None:
    """The check in `ranges` that everything was counted could be dropped; until then rows depend on it."""
    file = data_file(value_counts={1: 10}, **bounds(1.0, 9.0))

    assert answers("x < 10", file) == (True, True)


def test_deleted_positions_are_those_of_all_delete_files_of_a_file(sink: Sink) -> None:
    """Rows that another engine deleted would come back when their file is written again."""
    sink.append(1, 2, 3, 4)
    sink.append(5, 6)
    first, second = (entry.data_file.file_path for entry in reversed(entries(sink)))
    delete_positions(sink, first, [0, 3])
    delete_positions(sink, first, [1])
    table = sink.table()
    tasks = {task.file.file_path: task for task in table.scan().plan_files()}

    assert sorted(deleted_positions(table.io, tasks[first]).to_pylist()) == [0, 1, 3]
    assert deleted_positions(table.io, tasks[second]).to_pylist() == []


def test_file_without_rows_matches_nothing() -> None:
    """Empty files would be written again and again."""
    file = data_file()
    file[4] = 0

    assert answers("x < 10", file) == (False, True)
