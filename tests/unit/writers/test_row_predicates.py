"""The check of a task's rows against the range that the write replaces."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from support.tables.sink import SCHEMA, Sink, arrow_batch, rows

from iceberg_ds.plan import DynamicOverwrite, Overwrite, OverwriteByFilter, WritePlan
from iceberg_ds.writers.row_predicates import RangeCheck


def by_filter(predicate: str) -> OverwriteByFilter:
    """Return an overwrite of the rows that satisfy a predicate."""
    return OverwriteByFilter(
        predicate=predicate, case_sensitive=False, isolation_level="serializable", base_snapshot_id=None
    )


@pytest.fixture
def plan(sink: Sink) -> WritePlan:
    """Return the plan of an append."""
    return sink.plan()


def batch(*ids: int) -> pa.RecordBatch:
    """Return rows with these ids."""
    return arrow_batch(rows(*ids), SCHEMA)


@pytest.mark.parametrize(
    "overwrite", [None, by_filter("true"), DynamicOverwrite(isolation_level="snapshot", base_snapshot_id=None)], ids=str
)
def test_every_row_passes_where_no_range_is_given(plan: WritePlan, overwrite: Overwrite | None) -> None:
    """Appends and whole overwrites would lose rows."""
    check = RangeCheck(replace(plan, write=replace(plan.write, overwrite=overwrite)))

    assert check.passing(batch(1, 2)).num_rows == 2
    assert check.refused is None


def test_rows_within_the_range_pass(plan: WritePlan) -> None:
    """A correct overwrite would be refused."""
    check = RangeCheck(replace(plan, write=replace(plan.write, overwrite=by_filter("ID >= 1"))))

    assert check.passing(batch(1, 2)).column(0).to_pylist() == [1, 2]
    assert check.refused is None


def test_rows_outside_are_counted_over_all_batches_and_one_is_shown(plan: WritePlan) -> None:
    """A user would not know how many rows are wrong, nor what one looks like."""
    check = RangeCheck(replace(plan, write=replace(plan.write, overwrite=by_filter("id < 5"))))

    for ids in [(1, 2), (3, 7), (8, 9), (4,)]:
        check.passing(batch(*ids))

    assert check.refused is not None
    assert check.refused.count == 3
    assert check.refused.example == "{'id': 7, 'name': 'row 7'}"


def test_nothing_more_is_written_once_a_row_was_outside(plan: WritePlan) -> None:
    """Hours of writing would go into files that the commit deletes."""
    check = RangeCheck(replace(plan, write=replace(plan.write, overwrite=by_filter("id < 5"))))

    assert check.passing(batch(1, 7)).num_rows == 0
    assert check.passing(batch(2, 3)).num_rows == 0


@pytest.mark.parametrize("predicate", ["name = 'x'", "name <> 'x'", "not name = 'x'", "name in ('x', 'y')"])
def test_row_of_which_the_predicate_is_unknown_is_outside(plan: WritePlan, predicate: str) -> None:
    """Rows with null would be added again by each run of the job."""
    check = RangeCheck(replace(plan, write=replace(plan.write, overwrite=by_filter(predicate))))
    check.passing(arrow_batch([{"id": 1, "name": None}], SCHEMA))

    assert check.refused is not None
    assert check.refused.example == "{'id': 1, 'name': None}"


def test_example_is_short(plan: WritePlan) -> None:
    """A row with a large value would fill the log and the message to the driver."""
    check = RangeCheck(replace(plan, write=replace(plan.write, overwrite=by_filter("id < 5"))))
    check.passing(arrow_batch([{"id": 7, "name": "x" * 1_000_000}], SCHEMA))

    assert check.refused is not None
    assert len(check.refused.example) == 1_000
