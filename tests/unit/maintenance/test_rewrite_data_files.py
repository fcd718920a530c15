"""Rewrites of data files without Spark: the rows stay the same, for every reader, whatever others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation
from support.checks.invariants import check_clean
from support.checks.reader import listed, rows_of
from support.keys.conversions import meanwhile
from support.tables.delete_files import delete_ids, delete_positions
from support.tables.rewrites import data_paths, delete_paths, rewrite
from support.tables.sink import Sink, epoch, rows

from iceberg_ds.fault_points import FaultPoint


def small_files(sink: Sink, count: int = 6) -> None:
    """Write files with three rows each: 0, 1, 2; 10, 11, 12; and so on."""
    for number in range(count):
        sink.append(*range(10 * number, 10 * number + 3), of_epoch=epoch(number))


def ids(sink: Sink, branch: str = "main") -> list[int]:
    """Return the ids of all rows, read without any library."""
    return sorted(row["id"] for row in rows_of(sink.table(), branch))


def all_ids(count: int = 6) -> list[int]:
    """Return the ids of `small_files`."""
    return [10 * number + row for number in range(count) for row in range(3)]


def test_small_files_become_one(sink: Sink) -> None:
    """Every reader opens thousands of files."""
    small_files(sink)
    before = data_paths(sink)

    result = rewrite(sink)

    (path,) = data_paths(sink)
    assert path not in before
    assert ids(sink) == all_ids()
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (6, 1)
    snapshot = sink.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert result.snapshot_ids == (snapshot.snapshot_id,)
    assert snapshot.summary.operation is Operation.REPLACE
    check_clean(sink.table())


def test_nothing_is_committed_if_nothing_is_worth_it(sink: Sink) -> None:
    """Tables would get a snapshot with each call."""
    small_files(sink, 4)

    result = rewrite(sink)

    assert result.snapshot_ids == ()
    assert len(sink.table().metadata.snapshots) == 4
    assert str(result) == "Nothing to rewrite in branch 'main' of db.t."


def test_second_call_finds_nothing(sink: Sink) -> None:
    """A job that runs every hour would write the table anew each time."""
    small_files(sink)
    rewrite(sink)

    assert rewrite(sink).snapshot_ids == ()


def test_deleted_rows_are_left_out_with_their_delete_files(sink: Sink) -> None:
    """Deleted rows would come back, or be kept for ever."""
    small_files(sink)
    delete_positions(sink, data_paths(sink)[0], [1])
    delete_ids(sink, 20, 31)

    result = rewrite(sink, remove_dangling_deletes="true")

    assert ids(sink) == [number for number in all_ids() if number not in {1, 20, 31}]
    assert delete_paths(sink) == []
    assert (result.removed_rows_count, result.removed_delete_files_count) == (3, 2)
    check_clean(sink.table())


LANDING: dict[str, Callable[[Sink], object]] = {
    "rows": lambda sink: sink.append(100, 101),
    "a delete by position": lambda sink: delete_positions(sink, data_paths(sink)[2], [0, 2]),
    "a delete by key": lambda sink: delete_ids(sink, 21, 30),
    "both deletes": lambda sink: (delete_ids(sink, 21), delete_positions(sink, data_paths(sink)[3], [1])),
    "a rewrite": lambda sink: rewrite(sink, max_files_to_rewrite="5", min_input_files="2"),
    "an overwrite": lambda sink: sink.overwrite(rows(15), replace_where="id between 10 and 20"),
}


@pytest.mark.parametrize("step", [FaultPoint.PLANNED, FaultPoint.TASK_WRITTEN, FaultPoint.MANIFESTS_WRITTEN])
@pytest.mark.parametrize("landing", LANDING)
def test_what_others_land_meanwhile_stays(sink: Sink, landing: str, step: FaultPoint) -> None:
    """Deleted rows would come back, and new ones be lost."""
    small_files(sink)
    delete_positions(sink, data_paths(sink)[0], [1])
    delete_positions(sink, data_paths(sink)[2], [1])
    expected: list[list[int]] = []

    def land() -> None:
        LANDING[landing](sink)
        expected.append(ids(sink))

    with meanwhile(step, land):
        result = rewrite(sink)

    assert [ids(sink)] == expected
    assert result.snapshot_ids or landing == "a rewrite"
    check_clean(sink.table())


def test_delete_that_lands_meanwhile_costs_no_work(sink: Sink) -> None:
    """A table with a stream of deletes would never be compacted."""
    small_files(sink)

    with meanwhile(FaultPoint.TASK_WRITTEN, lambda: delete_positions(sink, data_paths(sink)[2], [0, 2])):
        result = rewrite(sink)

    (path,) = data_paths(sink)
    (deletes,) = listed(sink.table())[DataFileContent.POSITION_DELETES]
    assert {row["file_path"] for row in deletes.rows()} == {path}
    assert [row["pos"] for row in deletes.rows()] == [6, 8]
    assert result.rewritten_data_files_count == 6


def test_deletes_that_land_during_each_try_are_moved_each_time(sink: Sink) -> None:
    """Positions that were moved once would be forgotten, or counted twice."""
    small_files(sink)
    left = [(1, [0]), (3, [2]), (1, [1]), (5, [0])]

    def land() -> None:
        number, positions = left.pop()
        delete_positions(sink, old[number], positions)

    old = data_paths(sink)
    with meanwhile(FaultPoint.MANIFESTS_WRITTEN, land, times=4):
        rewrite(sink)

    assert ids(sink) == [number for number in all_ids() if number not in {10, 11, 32, 50}]
    assert len(data_paths(sink)) == 1
    check_clean(sink.table())


@pytest.mark.parametrize("order", ["id desc", "name, id"])
def test_rows_are_sorted(sink: Sink, order: str) -> None:
    """Readers could not skip row groups."""
    small_files(sink)

    rewrite(sink, strategy="sort", sort_order=order)

    (found,) = listed(sink.table())[DataFileContent.DATA]
    key = (lambda row: -row["id"]) if order == "id desc" else (lambda row: (row["name"], row["id"]))
    assert found.rows() == sorted(found.rows(), key=key)
    assert ids(sink) == all_ids()


def test_sorted_group_with_a_late_delete_is_done_again(sink: Sink) -> None:
    """The delete would hide another row."""
    small_files(sink)

    with meanwhile(FaultPoint.TASK_WRITTEN, lambda: delete_positions(sink, data_paths(sink)[2], [0])):
        rewrite(sink, strategy="sort", sort_order="id desc")

    assert ids(sink) == [number for number in all_ids() if number != 20]
    assert len(data_paths(sink)) == 1
    check_clean(sink.table())
