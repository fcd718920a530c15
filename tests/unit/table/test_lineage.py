"""What the rows of a data file inherit, where the file does not say it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_ds.table.lineage import LAST_UPDATED, LINEAGE, ROW_ID, FileLineage, is_lineage, with_lineage

OF_FILE = FileLineage(first_row_id=2**40, sequence_number=7)


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        (ROW_ID.name, pa.nulls(3), [2**40, 2**40 + 4, 2**40 + 5]),
        (ROW_ID.name, pa.array([None, 3, None], pa.int64()), [2**40, 3, 2**40 + 5]),
        (LAST_UPDATED.name, pa.nulls(3), [7, 7, 7]),
        (LAST_UPDATED.name, pa.array([1, None, 2], pa.int64()), [1, 7, 2]),
    ],
)
def test_row_inherits_what_its_file_does_not_say(name: str, own: Any, expected: list[int]) -> None:
    """A row that moved would be another row, or one that was deleted before it give it its id."""
    found = OF_FILE.column(name, own, pa.array([0, 4, 5], pa.int64()))

    assert found.type == pa.int64()
    assert found.to_pylist() == expected


def test_no_rows_inherit_nothing() -> None:
    """A file all of whose rows are deleted could not be read."""
    none = pa.array([], pa.int64())

    assert [OF_FILE.column(name, pa.nulls(0), none).to_pylist() for name in LINEAGE] == [[], []]


def test_columns_of_the_lineage_are_told_by_their_ids() -> None:
    """A column of the table that has such a name would be filled with numbers."""
    own = NestedField(2, ROW_ID.name, LongType())
    schema = with_lineage(Schema(NestedField(1, "id", LongType())))

    assert [is_lineage(field) for field in (*schema.fields, own)] == [False, True, True, False]
