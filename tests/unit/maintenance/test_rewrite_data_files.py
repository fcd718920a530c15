"""Rewrites of data files without Spark: the rows stay the same, for every reader, whatever others do meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.checks.invariants import check_clean
from support.checks.reader import listed, rows_of
from support.checks.version_3 import row_ids
from support.exhaustive import EXHAUSTIVE
from support.keys.conversions import meanwhile
from support.tables.changes_by_others import set_columns
from support.tables.data_rewrites import data_paths, delete_paths, rewrite
from support.tables.delete_files import commit_file, delete_equal, delete_ids, delete_positions, entries, with_ids
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import NAME, Sink, epoch, local, rows

import iceberg_ds
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, DataFileError, OptionError
from iceberg_ds.expressions.metrics_evaluator import facts_of
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.maintenance import rewrite_data_files
from iceberg_ds.maintenance.moved_places import places_by_value
from iceberg_ds.maintenance.rewrite_data_files import Rewrite
from iceberg_ds.maintenance.rewrite_tasks import move_deletes
from iceberg_ds.spark.task_job import TaskJob
from iceberg_ds.table.spec_parser import parse_partition_by
from iceberg_ds.writers.deletion_vectors import write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows
from iceberg_ds.writers.rolling import RollingWriter


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


def test_late_delete_by_a_dropped_column_finds_its_rows(sink: Sink) -> None:
    """Another engine deletes by a column that new files do not have any more: the rows would come back."""
    small_files(sink)
    set_columns(sink, NestedField(2, "name", StringType()))

    with meanwhile(FaultPoint.TASK_WRITTEN, lambda: delete_ids(sink, 20, 31)):
        rewrite(sink)

    left = [number for number in all_ids() if number not in {20, 31}]
    assert sorted(row["name"] for row in rows_of(sink.table())) == sorted(f"row {number}" for number in left)
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


GRID = spark.StructType(
    [
        spark.StructField("a", spark.IntegerType()),
        spark.StructField("b", spark.LongType()),
        spark.StructField("c", spark.StringType()),
    ]
)
TINY = {
    "target_file_size_bytes": "2500",
    "min_file_size_bytes": "1",
    "max_file_size_bytes": "3000",
    "rewrite_all": "true",
}


def grid_files(sink: Sink, files: int = 6) -> None:
    """Write each pair of 64 numbers from -20 on and 64 large ones once, in any order, and a text for each row."""
    pairs = [(a, b) for a in range(-20, 44) for b in range(64)]
    random.Random(7).shuffle(pairs)  # noqa: S311  # no secrets
    for number in range(files):
        part = [{"a": a, "b": b * 10**9, "c": f"sensor-{b:05d}"} for a, b in pairs[number::files]]
        sink.commit(sink.write(part, schema=GRID, plan=sink.plan(GRID, partition_by=None)))


def share_read(sink: Sink, field_id: int, values: Sequence[object], kind: IcebergType) -> float:
    """Return the share of files that a reader opens who looks for one value, on average."""
    files = [found.data_file for found in entries(sink)]
    bounds = [facts_of(file, field_id, kind) for file in files]
    return sum(fact.low <= value <= fact.high for fact in bounds for value in values) / len(files) / len(values)


def test_every_column_of_a_z_order_lets_readers_skip_files(sink: Sink) -> None:
    """The rewrite would cost as much as a sort, and serve one column alone."""
    grid_files(sink)
    found: dict[str, list[float]] = {}

    for strategy, order in (("sort", "a, b, c"), ("sort", "zorder(a, b)"), ("zorder", "a, c")):
        rewrite(sink, strategy=strategy, sort_order=order, **TINY)  # type: ignore[arg-type]
        found[order] = [
            share_read(sink, 1, range(-20, 44), LongType()),
            share_read(sink, 2, [b * 10**9 for b in range(64)], LongType()),
            share_read(sink, 3, [f"sensor-{b:05d}".encode() for b in range(64)], StringType()),
        ]
        assert len(data_paths(sink)) > 8
        assert {found.data_file.sort_order_id for found in entries(sink)} <= {None, 0}
        assert all({*file.by_field()} == {1, 2, 3} for file in listed(sink.table())[DataFileContent.DATA])
        assert len(rows_of(sink.table())) == 64 * 64
        check_clean(sink.table())

    assert found["a, b, c"][1] > 0.9
    assert max(found["zorder(a, b)"]) < 0.65
    assert max(found["a, c"]) < 0.65


def test_partition_columns_have_no_part_in_a_z_order(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Bits would be lost to values that are alike in all rows of a file."""
    for number in range(6):
        plan = sink.plan(GRID, partition_by=parse_partition_by("a"))
        sink.commit(sink.write([{"a": number % 2, "b": number, "c": "x"}], schema=GRID, plan=plan))

    rewrite(sink, strategy="zorder", sort_order="a, b", min_input_files="2")

    assert "No Z-order of db.t by a" in caplog.text
    assert len(data_paths(sink)) == 2
    with pytest.raises(OptionError, match="all rows of a partition have the same value of a"):
        rewrite(sink, strategy="zorder", sort_order="a", min_input_files="2")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"strategy": "zorder"}, "no columns are named. Give sort_order, such as zorder"),
        ({"strategy": "zorder", "sort_order": "id desc"}, "takes names of columns and stands alone"),
        ({"strategy": "sort", "sort_order": "zorder(id), name"}, "takes names of columns and stands alone"),
        ({"strategy": "sort", "sort_order": "zorder(id"}, "takes names of columns and stands alone"),
        ({"strategy": "sort", "sort_order": "zorder(nothing)"}, "there is no column nothing among id, name"),
        ({"strategy": "zorder", "sort_order": "id, ID"}, "column ID is given more than once"),
        ({"strategy": "zorder", "sort_order": "id", "max_output_size": "0"}, "option 'max-output-size' is '0'"),
        (
            {"strategy": "zorder", "sort_order": "id", "var_length_contribution": "1025"},
            "a whole number from 1 to 1024",
        ),
    ],
)
def test_wrong_z_order_is_named(sink: Sink, asked: dict[str, Any], problem: str) -> None:
    """Rows would be sorted by other columns than asked, or a job fail for a misspelt name."""
    small_files(sink)

    with pytest.raises(OptionError, match=problem):
        rewrite(sink, **asked)


def test_option_of_a_z_order_is_refused_without_one() -> None:
    """It would have no effect."""
    with pytest.raises(OptionError, match="max-output-size is for a Z-order, and none is asked for"):
        iceberg_ds.rewrite_data_files(NAME, options={"max-output-size": "2"}, strategy="sort", sort_order="id")


@pytest.mark.parametrize("order", [("sort", "id desc"), ("zorder", "id, name")], ids=["sort", "zorder"])
def test_late_deletes_of_a_sorted_group_cost_no_work(sink: Sink, order: tuple[Any, str]) -> None:
    """A table with a stream of deletes would never be sorted; or the deletes would hide other rows."""
    small_files(sink)
    sink.append(30, 30, 30)
    old, runs = data_paths(sink), []
    left = [(6, [1]), (2, [0]), (4, [1, 2])]

    def land() -> None:
        number, positions = left.pop()
        delete_positions(sink, old[number], positions)

    with meanwhile(FaultPoint.MANIFESTS_WRITTEN, land, times=3):
        runs.append(rewrite(sink, strategy=order[0], sort_order=order[1]))

    assert ids(sink) == sorted([30, 30, *(number for number in all_ids() if number not in {20, 41, 42})])
    assert len(data_paths(sink)) == 1
    deletes = listed(sink.table())[DataFileContent.POSITION_DELETES]
    assert sum(len(file.rows()) for file in deletes) == 4
    assert runs[0].rewritten_data_files_count == 7
    check_clean(sink.table())


def test_late_deletes_of_a_group_that_goes_to_other_partitions_cost_no_work(sink: Sink) -> None:
    """Deletes would be in a partition whose files they do not apply to, and the rows come back."""
    small_files(sink)
    table, old = sink.table(), data_paths(sink)
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "bucket"), spec_id=1)
    with table.transaction() as transaction:
        transaction._apply((AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)), ())

    with meanwhile(FaultPoint.TASK_WRITTEN, lambda: [delete_positions(sink, path, [0, 2]) for path in old]):
        rewrite(sink)

    assert ids(sink) == [1, 11, 21, 31, 41, 51]
    assert len(data_paths(sink)) == 3
    assert sum(len(file.rows()) for file in listed(sink.table())[DataFileContent.POSITION_DELETES]) == 12
    check_clean(sink.table())


@pytest.mark.parametrize("order", [{}, {"strategy": "sort", "sort_order": "id desc"}], ids=["binpack", "sort"])
@EXHAUSTIVE
def test_partition_that_others_keep_deleting_from_does_not_hold_up_another(sink: Sink, order: dict[str, Any]) -> None:
    """All work of a rewrite would be thrown away because of one busy partition."""
    plan = sink.plan(partition_by=parse_partition_by("name"))
    for first in range(0, 300, 100):
        rows = [{"id": number, "name": name} for name in ("busy", "quiet") for number in range(first, first + 100)]
        sink.commit(sink.write(rows, plan=sink.plan() if first else plan))
    done: list[int] = []

    def land() -> None:
        done.append(len(done))
        delete_positions(sink, next(path for path in data_paths(sink) if "name=busy" in path), [done[-1]])

    with meanwhile(FaultPoint.TASK_WRITTEN, land, times=100):
        rewrite(sink, min_input_files="2", **order)  # type: ignore[arg-type]

    assert len([path for path in data_paths(sink) if "name=quiet" in path]) == 1
    assert len(ids(sink)) == 600 - len(done)
    check_clean(sink.table())


def test_late_vector_of_a_sorted_group_hides_the_row_with_its_id(sink: Sink) -> None:
    """Of rows with the same values another one would go, and the id of the row that is deleted would stay."""
    sink.create(ID_AND_NAME, format_version="3")
    sink.append(30, 30, 30, 5)
    sink.append(30, 7)
    before = row_ids(sink.table())
    of = next(entry.data_file for entry in entries(sink) if entry.data_file.file_path == data_paths(sink)[0])

    def land() -> None:
        table = sink.table()
        hidden = [HiddenRows(data_file=of, positions=[1])]
        (vector,) = write_deletion_vectors(table.io, f"{table.metadata.location}/data/late.puffin", hidden)
        commit_file(sink, vector, "main")

    with meanwhile(FaultPoint.TASK_WRITTEN, land):
        rewrite(sink, strategy="sort", sort_order="id desc", min_input_files="2")

    assert len(data_paths(sink)) == 1
    (gone,) = before.keys() - row_ids(sink.table()).keys()
    assert before[gone]["id"] == 30
    assert gone == min(number for number, row in before.items() if row["id"] == 30) + 1
    check_clean(sink.table())


def test_row_that_is_not_in_the_new_files_is_not_taken_for_another() -> None:
    """A delete would be forgotten, and its row come back."""
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 2]})

    assert places_by_value([rows.slice(1, 1)], [[rows], [rows]]) == {0: [1]}
    assert places_by_value([rows, rows.slice(0, 1)], [[rows], [rows]]) == {0: [0, 1, 2], 1: [0]}
    with pytest.raises(LookupError, match="1 rows that were deleted meanwhile are not in the new files"):
        places_by_value([rows, rows.slice(1)], [[rows], [rows.slice(2)]])


def test_other_rows_in_the_new_files_are_never_committed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of a library would change values in silence, and the old files expire."""
    small_files(sink)
    append = RollingWriter.append

    def change(writer: RollingWriter, batch: pa.RecordBatch) -> None:
        names = pa.array(["another"] * batch.num_rows)
        append(writer, batch.set_column(1, batch.schema.field(1), names))

    monkeypatch.setattr(RollingWriter, "append", change)
    with pytest.raises(DataFileError, match="the new files have 18 rows as they should, and not the same ones"):
        rewrite(sink)

    assert len(data_paths(sink)) == 6
    check_clean(sink.table())


def test_rows_in_another_order_are_never_committed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes that land meanwhile are moved by places: they would hide others."""
    small_files(sink)
    append = RollingWriter.append

    def turn(writer: RollingWriter, batch: pa.RecordBatch) -> None:
        append(writer, batch.take(pa.array(range(batch.num_rows))[::-1]))

    monkeypatch.setattr(RollingWriter, "append", turn)
    with pytest.raises(DataFileError, match="not the same ones, or in another order"):
        rewrite(sink)

    assert len(data_paths(sink)) == 6
    check_clean(sink.table())


def test_delete_of_another_partition_does_not_reach_rows_that_move_there(sink: Sink) -> None:
    """It never deleted them, and would from then on."""
    small_files(sink)
    table = sink.table()
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=1)
    with table.transaction() as transaction:
        transaction._apply((AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)), ())
    sink.append(10)

    def delete() -> None:
        keys = with_ids(pa.table({"id": pa.array([10], pa.int64())}), id=1)
        delete_equal(sink, keys, [1], of=next(one for one in entries(sink) if one.data_file.spec_id == 1).data_file)

    with meanwhile(FaultPoint.TASK_WRITTEN, delete):
        rewrite(sink)

    assert ids(sink) == all_ids()
    assert len(data_paths(sink)) == 19
    check_clean(sink.table())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"min_input_files": "0"}, "option 'min-input-files' is '0': expected a whole number above 0"),
        ({"min_file_size_bytes": "9", "target_file_size_bytes": "9"}, r"min-file-size-bytes \(9\) must be below"),
        ({"output_spec_id": "7"}, "output-spec-id is 7, and the table has 0"),
        ({"delete_ratio_threshold": "2"}, "expected a number above 0, at most 1"),
    ],
)
def test_wrong_option_is_named(sink: Sink, given: dict[str, str], problem: str) -> None:
    """It would be passed over, and files be rewritten otherwise than asked."""
    small_files(sink)

    with pytest.raises(OptionError, match=problem):
        rewrite(sink, **given)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"where": b"id = 1"}, "where is b'id = 1', expected a text or None"),
        ({"options": 5, "branch": 5}, "branch is 5, expected a text or None"),
        ({"strategy": "sort", "sort_order": ["id"]}, r"sort_order is \['id'\]"),
    ],
)
def test_argument_that_is_no_text_is_named(arguments: dict[str, Any], problem: str) -> None:
    """A user would have to find the argument by a traceback of the parser."""
    with pytest.raises(OptionError, match=f"Cannot rewrite data files: {problem}"):
        iceberg_ds.rewrite_data_files(NAME, **arguments)


def test_unknown_option_is_refused_with_the_nearest_name() -> None:
    """A misspelt option would have no effect."""
    with pytest.raises(OptionError, match="unknown option 'min-input-file': did you mean 'min-input-files'"):
        iceberg_ds.rewrite_data_files(NAME, options={"min-input-file": "2"})
    with pytest.raises(OptionError, match="how Spark's own rewrite divides rows"):
        iceberg_ds.rewrite_data_files(NAME, options={"compression-factor": "2"})


def test_task_that_fails_leaves_no_file(sink: Sink) -> None:
    """Half a rewrite would lie around, or be committed."""
    small_files(sink)
    local(data_paths(sink)[3]).write_bytes(b"no Parquet")

    with pytest.raises(
        DataFileError, match=r"Cannot rewrite data files of db\.t, nothing was committed: a task failed"
    ):
        rewrite(sink)

    assert len(data_paths(sink)) == 6
    check_clean(sink.table())


def test_failed_group_is_passed_over_if_asked(sink: Sink) -> None:
    """One bad file would keep a table from ever being compacted."""
    small_files(sink, 12)
    local(data_paths(sink)[0]).write_bytes(b"no Parquet")
    size = str(6 * local(data_paths(sink)[1]).stat().st_size)

    result = rewrite(sink, target_file_size_bytes=size, partial_progress_enabled="true")

    assert (result.failed_data_files_count, result.rewritten_data_files_count) == (6, 6)
    check_clean(sink.table())


def test_failed_move_of_deletes_leaves_no_file(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a group that others have made stale would lie around."""
    small_files(sink, 12)
    old, size = data_paths(sink), str(6 * local(data_paths(sink)[1]).stat().st_size)
    run = TaskJob.run

    def fail(job: TaskJob[Any, Any, Any], *work: Any) -> Any:
        if job.answer is move_deletes:
            raise DataFileError("the job failed")
        return run(job, *work)

    def land() -> None:
        sink.overwrite(rows(0), replace_where="id between 0 and 1")
        delete_positions(sink, old[8], [0])

    monkeypatch.setattr(TaskJob, "run", fail)
    with meanwhile(FaultPoint.TASK_WRITTEN, land), pytest.raises(DataFileError, match="the job failed"):
        rewrite(sink, target_file_size_bytes=size)

    check_clean(sink.table())


def test_each_failed_file_counts_once(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report would name more files than the table has."""
    small_files(sink, 12)
    local(data_paths(sink)[0]).write_bytes(b"no Parquet")
    size = str(6 * local(data_paths(sink)[1]).stat().st_size)

    def refuse(*_: object) -> None:
        raise CommitConflictError("others are faster")

    monkeypatch.setattr(rewrite_data_files, "commit_rewrite", refuse)
    result = rewrite(
        sink, target_file_size_bytes=size, partial_progress_enabled="true", partial_progress_max_commits="1"
    )

    assert result.failed_data_files_count == 12


def test_limit_holds_for_all_plans_of_a_call_together(sink: Sink) -> None:
    """A budget would be overdrawn where others change what was planned."""
    small_files(sink, 12)
    size = str(3 * local(data_paths(sink)[1]).stat().st_size)

    with meanwhile(FaultPoint.TASK_WRITTEN, lambda: sink.overwrite(rows(0), replace_where="id between 0 and 1")):
        result = rewrite(sink, target_file_size_bytes=size, max_files_to_rewrite="6")

    assert result.rewritten_data_files_count == 5  # the sixth alone would be copied


def test_error_of_a_later_commit_says_which_ones_stay(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would read that nothing was committed, and look for what has changed the table."""
    small_files(sink, 12)
    size = str(6 * local(data_paths(sink)[1]).stat().st_size)
    commit, calls = Rewrite._commit, []

    def fail_at_the_second(rewrite_: Rewrite, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise CommitStateUnknownError("planned")
        return commit(rewrite_, *arguments)

    monkeypatch.setattr(Rewrite, "_commit", fail_at_the_second)
    with pytest.raises(
        CommitStateUnknownError, match=r"planned That is of the last commit; snapshots \d+ of this call"
    ):
        rewrite(sink, target_file_size_bytes=size, partial_progress_enabled="true")

    assert ids(sink) == all_ids(12)
