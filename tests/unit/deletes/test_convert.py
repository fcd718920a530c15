"""Conversions of deletes without Spark: the rows stay the same, for every reader, whatever others do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType
from support.checks.invariants import check_clean, unreferenced_files
from support.checks.reader import listed, rows_of
from support.keys.conversions import (
    ENCODINGS,
    Compaction,
    CompactionRefusedError,
    compact,
    convert,
    keyed_deletes,
    meanwhile,
    numbers,
)
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.tables.changes_by_others import set_columns
from support.tables.delete_files import delete_equal, delete_ids, delete_positions, with_ids
from support.tables.sink import NAME, Sink, epoch, local, rows, write_batches

import iceberg_ds
from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes import search
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import CommitConflictError, OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.table.specs import parse_sort_by

GLOBAL = PartitionSpec(spec_id=1)
LAYOUTS: dict[str, tuple[PartitionSpec, PartitionSpec | None]] = {
    "none": (PartitionSpec(), None),
    "by a column that moves": (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")), GLOBAL),
    "by the key": (PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")), None),
}
EPOCHS: Sequence[Sequence[Sequence[Event]]] = (
    [[("I", key, "EU", key, 0) for key in range(6)], [("I", key, "US", key, 0) for key in range(6, 9)]],
    [
        [("U", 1, "EU", 10, 5), ("U", 2, "EU", 20, 5), ("U", 3, "US", 30, 5)],
        [("U", 2, "US", 21, 6), ("D", 3, "US", None, 7), ("U", 7, "EU", 70, 1)],
    ],
    [[("D", 4, "EU", None, 8), ("D", 7, "EU", None, 8)], [("U", 1, "US", 11, 9)]],
)
AFTER = [(0, "EU", 0), (1, "US", 11), (2, "US", 21), (5, "EU", 5), (6, "US", 6), (8, "US", 8)]
NEXT: Sequence[Event] = [("U", 0, "DE", 100, 10), ("D", 5, "EU", None, 10), ("I", 50, "EU", 50, 10)]
AFTER_NEXT = [(0, "DE", 100), *AFTER[1:3], *AFTER[4:], (50, "EU", 50)]
REPLACED = DataFileContent.DATA


def put(sink: Sink, number: int, *parts: Sequence[Event], layout: str = "none") -> None:
    """Write and commit an epoch by key."""
    plan = plan_by_keys(sink, delete_spec=LAYOUTS[layout][1])
    sink.commit(keyed_tasks(plan, *parts, of_epoch=epoch(number)))


def make(sink: Sink, layout: str = "none", epochs: int = 3) -> Sink:
    """Create the table of a layout with some epochs."""
    spec, deletes = LAYOUTS[layout]
    sink.create(KEYED_SCHEMA, spec)
    if deletes is not None:
        sink.catalog.send(sink.table(), (), (AddPartitionSpecUpdate(spec=deletes),))
    for number in range(epochs):
        put(sink, number, *EPOCHS[number], layout=layout)
    return sink


def values(sink: Sink, branch: str = "main") -> list[tuple[Any, ...]]:
    """Return the rows, read as the spec says."""
    return sorted(tuple(row.values()) for row in rows_of(sink.table(), branch))


def check(sink: Sink, expected: Sequence[tuple[Any, ...]], *, is_converted: bool = True) -> None:
    """Assert that a whole table has these rows, and that PyIceberg reads them if it has no deletes by key."""
    assert values(sink) == list(expected)
    if is_converted:
        assert keyed_deletes(sink.table()) == []
        assert [tuple(row.values()) for row in sink.rows()] == list(expected)
    check_clean(sink.table())
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, deep=True)
    assert result.ok, str(result)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_reader_reads_the_same_rows_afterwards(sink: Sink, encoding: RowEncoding, layout: str) -> None:
    """Users of PyIceberg, Polars or Daft could not read the table, or would see deleted rows."""
    make(sink, layout)
    deletes = len(keyed_deletes(sink.table()))

    result = convert(sink, encoding)

    check(sink, AFTER)
    head = sink.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation is (Operation.OVERWRITE if encoding == "position" else Operation.REPLACE)
    assert head.snapshot_id == result.snapshot_id
    assert (result.delete_files, result.rows) == (deletes, 7)
    assert head.summary["removed-equality-delete-files"] == str(deletes)
    assert head.summary["total-equality-deletes"] == "0"
    assert result.read_bytes > 0
    assert bool(result.position_delete_files) == (encoding == "position")
    assert bool(result.rewritten_files) == (encoding == "copy-on-write")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_again_there_is_nothing_to_do(sink: Sink, encoding: RowEncoding) -> None:
    """A scheduler would add a snapshot each hour for nothing."""
    make(sink)
    convert(sink, encoding)

    result = convert(sink, encoding)

    assert result.snapshot_id is None
    assert "Nothing to convert" in str(result)
    assert len(sink.table().metadata.snapshots) == 4


def test_table_without_deletes_by_key_stays_as_it_is(sink: Sink) -> None:
    """A snapshot would be added, or an empty table be an error."""
    sink.create(KEYED_SCHEMA)
    assert convert(sink).snapshot_id is None
    put(sink, 0, [("D", 99, "EU", None, 1)])
    assert convert(sink).delete_files == 1
    assert convert(sink).snapshot_id is None
    check(sink, [])


def test_conversions_between_epochs_change_no_row(sink: Sink) -> None:
    """A converted table would take later epochs otherwise."""
    make(sink, epochs=1)
    for number in (1, 2):
        convert(sink, ENCODINGS[number % 2])
        put(sink, number, *EPOCHS[number])
    convert(sink)
    put(sink, 3, NEXT)

    check(sink, AFTER_NEXT, is_converted=False)
    convert(sink, "copy-on-write")
    check(sink, AFTER_NEXT)


def test_rewritten_file_keeps_order_partition_and_number(sink: Sink) -> None:
    """Deletes that come later would miss its rows, or deletes that came before hit rows that came after them."""
    make(sink, "by a column that moves", epochs=1)
    put(sink, 1, [("D", 2, "EU", None, 1)], layout="by a column that moves")
    before = {found.path: found for found in listed(sink.table())[REPLACED]}

    convert(sink, "copy-on-write")

    after = listed(sink.table())[REPLACED]
    (new,) = [found for found in after if found.path not in before]
    (old,) = [found for path, found in before.items() if path not in {found.path for found in after}]
    assert (new.number, new.spec_id, new.partition) == (old.number, old.spec_id, old.partition)
    assert [row["id"] for row in new.rows()] == [0, 1, 3, 4, 5]
    assert "region=EU" in new.path


def test_file_without_rows_left_is_dropped(sink: Sink) -> None:
    """Readers would open files that have nothing in them."""
    make(sink, epochs=1)
    put(sink, 1, [("D", key, "EU", None, 1) for key in range(9)])

    result = convert(sink, "copy-on-write")

    assert listed(sink.table())[REPLACED] == []
    assert (result.rows, result.rewritten_files) == (9, 2)
    check(sink, [])


def test_only_files_with_hidden_rows_are_rewritten(sink: Sink) -> None:
    """The whole table would be written for one row."""
    make(sink, epochs=1)
    before = {found.path for found in listed(sink.table())[REPLACED]}
    put(sink, 1, [("D", 7, "EU", None, 1)])

    result = convert(sink, "copy-on-write")

    after = {found.path for found in listed(sink.table())[REPLACED]}
    assert len(before & after) == 1
    assert result.data_files == 1


def test_rows_that_are_hidden_already_are_not_counted_or_brought_back(sink: Sink) -> None:
    """The result would be wrong, or a rewritten file have rows that position deletes had hidden."""
    make(sink, epochs=1)
    (first, *_) = [found for found in listed(sink.table())[REPLACED] if found.rows()[0]["id"] == 0]
    delete_positions(sink, first.path, [2, 3])
    put(sink, 1, [("D", 2, "EU", None, 1), ("D", 4, "EU", None, 1)])

    for encoding in ENCODINGS:
        table = sink.table()
        result = convert(sink, encoding)
        assert result.rows == 1
        check(sink, [row for row in before_any() if row[0] not in {2, 3, 4}])
        with sink.table().manage_snapshots() as refs:
            refs.set_current_snapshot(snapshot_id=table.current_snapshot().snapshot_id)  # type: ignore[union-attr]


def before_any() -> list[tuple[Any, ...]]:
    """Return the rows of the first epoch."""
    return [(key, "EU" if key < 6 else "US", key) for key in range(9)]


def test_position_deletes_of_rewritten_files_go_with_them(sink: Sink) -> None:
    """Delete files of data files that are gone would be read by every reader, for good."""
    make(sink, epochs=1)
    paths = [found.path for found in listed(sink.table())[REPLACED]]
    for path in paths:
        delete_positions(sink, path, [0])
    put(sink, 1, [("D", 2, "EU", None, 1)])

    convert(sink, "copy-on-write")

    left = listed(sink.table())[DataFileContent.POSITION_DELETES]
    assert [row["file_path"] for found in left for row in found.rows()] == [
        path for path in paths if path in {found.path for found in listed(sink.table())[REPLACED]}
    ]
    check(sink, [row for row in before_any() if row[0] not in {0, 2, 6}])


def test_files_of_deletes_are_of_one_data_file_where_the_table_asks_for_it(sink: Sink) -> None:
    """The table's property would mean nothing."""
    make(sink, epochs=1)
    put(sink, 1, [("D", 1, "EU", None, 1), ("D", 7, "EU", None, 1)])
    with sink.table().transaction() as change:
        change.set_properties({"write.delete.granularity": "file"})

    assert convert(sink).position_delete_files == 2
    check(sink, [row for row in before_any() if row[0] not in {1, 7}])


def test_manifests_of_many_epochs_become_few(sink: Sink) -> None:
    """A conversion after a thousand epochs would write a thousand manifests, one after the other."""
    make(sink)
    for number in range(3, 9):
        put(sink, number, [("U", 0, "EU", number, number)])
    before = sink.table().current_snapshot()
    assert before is not None

    convert(sink, "copy-on-write")

    after = sink.table().current_snapshot()
    assert after is not None
    assert len(before.manifests(sink.table().io)) > 15
    known = {manifest.manifest_path for manifest in before.manifests(sink.table().io)}
    written = [found for found in after.manifests(sink.table().io) if found.manifest_path not in known]
    assert len(written) == 3  # of new files, of old ones, and of deletes
    check(sink, [(0, "EU", 8), *AFTER[1:]])


def test_manifests_do_not_become_too_large(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that want one file would read the list of all of them."""
    monkeypatch.setattr(search, "MANIFEST_ENTRIES", 3)
    make(sink)

    convert(sink)

    head = sink.table().current_snapshot()
    assert head is not None
    counts = [
        (found.existing_files_count or 0) + (found.deleted_files_count or 0)
        for found in head.manifests(sink.table().io)
    ]
    assert max(counts) <= 3
    check(sink, AFTER)


def test_rewritten_file_keeps_its_sort_order(sink: Sink) -> None:
    """Engines would sort rows again that are sorted."""
    sink.create(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))
    plan = sink.plan(sort_by=parse_sort_by("id desc"))
    sink.commit(sink.write(rows(3, 1, 2), plan=plan))
    (before,) = listed(sink.table())[REPLACED]
    delete_ids(sink, 2)

    convert(sink, "copy-on-write")

    (after,) = listed(sink.table())[REPLACED]
    assert after.entry.data_file.sort_order_id == before.entry.data_file.sort_order_id > 0
    assert [row["id"] for row in after.rows()] == [3, 1]


def list_again(sink: Sink) -> None:
    """Add the first data file of the table once more, as `add_files` of other writers may."""
    data_file = min(listed(sink.table())[DataFileContent.DATA], key=lambda found: found.number).entry.data_file
    counts = RowCounts(received=data_file.record_count)
    sink.commit([TaskCommit(sink.plan(COLUMNS).write, 0, (data_file,), counts=counts)])


@pytest.mark.parametrize("number", [1, 2], ids=["before the deletes", "after them"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_file_that_is_listed_twice_loses_no_row(sink: Sink, encoding: RowEncoding, number: int) -> None:
    """Rows that readers see twice would be there once, or not at all, though a conversion keeps all rows."""
    make(sink, epochs=number)
    list_again(sink)
    put(sink, 5, *EPOCHS[1])
    before = values(sink)

    with pytest.raises(UnsupportedTableError, match="parquet 2 times"):
        convert(sink, encoding)

    assert values(sink) == before
    assert not unreferenced_files(sink.table())


def test_deletes_that_are_listed_twice_are_refused_by_name(sink: Sink) -> None:
    """A user would be told to wait for a compaction that does not run."""
    make(sink, epochs=1)
    plan = plan_by_keys(sink)
    (message,) = keyed_tasks(plan, [("D", 1, "EU", None, 5)])
    sink.commit([message])
    sink.commit([replace(message, write=plan_by_keys(sink).write)])

    with pytest.raises(UnsupportedTableError, match=r"deletes\.parquet 2 times"):
        convert(sink)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_file_that_is_listed_again_meanwhile_loses_no_row(sink: Sink, encoding: RowEncoding) -> None:
    """The rows that another writer brings once more would go with those that were deleted before."""
    make(sink, epochs=2)

    with (
        meanwhile(FaultPoint.COMMIT_BEGUN, lambda: list_again(sink)),
        pytest.raises(UnsupportedTableError, match="parquet 2 times"),
    ):
        convert(sink, encoding)

    assert len(values(sink)) == len(AFTER) + 2 + 6
    assert not unreferenced_files(sink.table())


# What others do meanwhile.

STEPS = [FaultPoint.PLANNED, FaultPoint.TASK_WRITTEN, FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_epoch_that_lands_meanwhile_loses_nothing(sink: Sink, encoding: RowEncoding, step: FaultPoint) -> None:
    """The deletes of a running stream would be dropped, or miss rows of files that were rewritten."""
    make(sink)

    with meanwhile(step, lambda: put(sink, 3, NEXT)) as done:
        result = convert(sink, encoding)

    assert done
    assert result.snapshot_id is not None
    check(sink, AFTER_NEXT, is_converted=False)
    assert numbers(sink.table(), DataFileContent.EQUALITY_DELETES) == [4]
    convert(sink, encoding)
    check(sink, AFTER_NEXT)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_compaction_that_lands_meanwhile_brings_no_row_back(
    sink: Sink, encoding: RowEncoding, step: FaultPoint
) -> None:
    """Rows that a compaction read before they were deleted would be there again."""
    make(sink, epochs=2)
    begun = sink.table()
    put(sink, 2, *EPOCHS[2])

    with meanwhile(step, lambda: compact(sink, begun)):
        convert(sink, encoding)

    check(sink, AFTER)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compaction_that_began_before_the_deletes_is_refused_after_their_conversion(
    sink: Sink, encoding: RowEncoding, layout: str
) -> None:
    """Rows that a compaction read before they were deleted would be there again, with nothing left that hides them."""
    make(sink, layout, epochs=2)
    begun = sink.table()
    put(sink, 2, *EPOCHS[2], layout=layout)
    convert(sink, encoding)

    with pytest.raises(CompactionRefusedError):
        compact(sink, begun)

    check(sink, AFTER)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_position_deletes_that_are_taken_back_meanwhile_hide_what_deletes_by_keys_hid(
    sink: Sink, encoding: RowEncoding
) -> None:
    """A row that is deleted by key and by position would be there again once the latter is rolled back."""
    make(sink, epochs=1)
    put(sink, 1, [("D", 2, "EU", None, 1), ("D", 4, "EU", None, 1)])
    before = sink.table().current_snapshot()
    first = next(found for found in listed(sink.table())[REPLACED] if found.rows()[0]["id"] == 0)
    delete_positions(sink, first.path, [2, 3])

    with meanwhile(FaultPoint.COMMIT_BEGUN, lambda: set_back(sink, before)):
        convert(sink, encoding)

    check(sink, [row for row in before_any() if row[0] not in {2, 4}])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("step", [FaultPoint.TASK_WRITTEN, FaultPoint.COMMIT_BEGUN], ids=lambda step: step.name)
@pytest.mark.usefixtures("waits")
def test_deletes_that_are_taken_back_meanwhile_hide_nothing(
    sink: Sink, encoding: RowEncoding, step: FaultPoint
) -> None:
    """Rows of an epoch that is rolled back, while its deletes are converted, would be gone for good."""
    make(sink, epochs=1)
    put(sink, 1, [("D", 2, "EU", None, 1)])
    before = sink.table().current_snapshot()
    delete_ids(sink, 4)

    with meanwhile(step, lambda: set_back(sink, before)):
        result = convert(sink, encoding)

    assert result.rows == 1
    check(sink, [row for row in before_any() if row[0] != 2])
    assert unreferenced_files(sink.table()) == set()


def set_back(sink: Sink, snapshot: Snapshot | None) -> None:
    """Roll `main` back to a snapshot."""
    assert snapshot is not None
    with sink.table().manage_snapshots() as refs:
        refs.set_current_snapshot(snapshot_id=snapshot.snapshot_id)


@pytest.mark.parametrize("step", STEPS[2:], ids=lambda step: step.name)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_compaction_with_new_numbers_that_lands_meanwhile_doubles_no_row(
    sink: Sink, encoding: RowEncoding, step: FaultPoint
) -> None:
    """Rows would be in a rewritten file and in a compacted one."""
    make(sink)

    with meanwhile(step, lambda: compact(sink, keeps_numbers=False)):
        convert(sink, encoding)

    check(sink, AFTER)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_search_is_not_repeated_for_files_that_stay(sink: Sink, encoding: RowEncoding) -> None:
    """Each compaction of one partition would have the whole table searched again."""
    make(sink, "by the key")
    spans: list[int] = []
    real = search.resolve

    def noting(spark: Any, plan: Any, work: Any) -> Any:
        spans.append(len(work))
        return real(spark, plan, work)

    def rewrite_one() -> None:
        table = sink.table()
        found = next(file for file in listed(table)[REPLACED] if file.number == 1)
        plan = plan_by_keys(sink)
        files = write_batches(
            replace(plan, write=replace(plan.write, changes=None)), found.rows(), COLUMNS, partition_id=7
        )
        numbers = {file.file_path: 1 for file in files}
        base = table.current_snapshot()
        assert base is not None
        compaction = Compaction(files=[found], added=Added(tuple(files)), base=base, sequence_numbers=numbers)
        write = replace(plan.write, changes=None, delete_spec_id=None)
        commit_rewrite(sink.catalog, write, compaction, CommitMeter(write))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "resolve", noting)
        with meanwhile(FaultPoint.COMMIT_BEGUN, rewrite_one):
            convert(sink, encoding)

    assert spans[1:] == [1]
    assert spans[0] > 1
    check(sink, AFTER)


@pytest.mark.usefixtures("waits")
def test_position_deletes_on_a_file_that_is_being_rewritten_are_kept(sink: Sink) -> None:
    """A row that another engine deletes meanwhile would be there again."""
    make(sink)
    first = next(found for found in listed(sink.table())[REPLACED] if found.rows()[0]["id"] == 0)

    for step in (FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN):
        with meanwhile(step, lambda: delete_positions(sink, first.path, [0])):
            convert(sink, "copy-on-write")

    check(sink, AFTER[1:])


@pytest.mark.parametrize("other", ENCODINGS)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("step", [FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN], ids=lambda step: step.name)
@pytest.mark.usefixtures("waits")
def test_two_conversions_at_once_leave_each_row_once(
    sink: Sink, encoding: RowEncoding, other: RowEncoding, step: FaultPoint
) -> None:
    """Rewritten rows would be there twice."""
    make(sink)

    with meanwhile(step, lambda: convert(sink, other)):
        result = convert(sink, encoding)

    assert result.snapshot_id is None
    check(sink, AFTER)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.usefixtures("waits")
def test_table_that_is_emptied_meanwhile_stays_empty(sink: Sink, encoding: RowEncoding) -> None:
    """Rows that somebody deletes would come back in rewritten files."""
    make(sink)

    with meanwhile(FaultPoint.MANIFESTS_WRITTEN, lambda: sink.overwrite([], schema=COLUMNS)):
        convert(sink, encoding)

    check(sink, [])


@pytest.mark.usefixtures("waits")
def test_files_that_are_rewritten_each_time_are_given_up_without_a_trace(sink: Sink) -> None:
    """A conversion beside an endless compaction would never end, or leave its files behind."""
    make(sink)

    def disturb() -> None:
        path = next(found.path for found in listed(sink.table())[REPLACED] if found.number == 1)
        delete_positions(sink, path, [4])

    with (
        meanwhile(FaultPoint.MANIFESTS_WRITTEN, disturb, times=99),
        pytest.raises(CommitConflictError, match=r"in 5 tries, nothing was committed: another writer has removed"),
    ):
        convert(sink, "copy-on-write")

    assert unreferenced_files(sink.table()) == set()
    assert [row for row in AFTER if row[0] != 4] == values(sink)


def test_replayed_epoch_is_still_recognised(sink: Sink) -> None:
    """A stream that is started again would write its last epoch twice."""
    make(sink)
    convert(sink)
    with sink.table().maintenance.expire_snapshots() as expiry:
        for snapshot in sink.table().metadata.snapshots[:-1]:
            expiry.by_id(snapshot.snapshot_id)

    result = sink.commit(keyed_tasks(plan_by_keys(sink), *EPOCHS[2], of_epoch=epoch(2)))

    assert result.was_replayed
    assert values(sink) == AFTER


def test_branch_is_converted_alone(sink: Sink) -> None:
    """Readers of main would see a branch that is not published, or lose theirs."""
    make(sink)
    before = sink.table().current_snapshot()
    assert before is not None
    with sink.table().manage_snapshots() as refs:
        refs.create_branch(before.snapshot_id, "audit")

    result = convert(sink, branch="audit")

    assert result.branch == "audit"
    assert sink.table().current_snapshot() == before
    assert len(keyed_deletes(sink.table())) == result.delete_files
    assert keyed_deletes(sink.table(), "audit") == []
    assert values(sink, "audit") == values(sink) == AFTER
    check_clean(sink.table())


# Tables of others, and of other times.


def test_deletes_by_other_columns_with_nulls(sink: Sink) -> None:
    """Rows of a table that Flink writes would come back, or others be lost."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    sink.commit(sink.write([*rows(1, 2, 3), {"id": None, "name": "x"}, {"id": 5, "name": None}]))
    delete_equal(sink, with_ids(pa.table({"name": pa.array(["row 2", None])}), name=2), [2])
    delete_equal(
        sink,
        with_ids(pa.table({"id": pa.array([3, None, 1], pa.int64()), "name": ["row 3", "x", "other"]}), id=1, name=2),
        [1, 2],
    )

    for _ in range(2):
        assert [row["id"] for row in rows_of(sink.table())] == [1]
        convert(sink)

    assert sink.rows() == rows(1)


def test_schema_that_changed_since(sink: Sink) -> None:
    """Deletes would miss rows that were written before a column was renamed, widened or added."""
    sink.create(Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType())))
    table = sink.table()
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "c"]}))
    with table.update_schema() as change:
        change.update_column("id", LongType()).rename_column("name", "label").add_column("kind", StringType())
    table = sink.table()
    table.append(pa.table({"id": pa.array([2**40, 4], pa.int64()), "label": ["a", "d"], "kind": ["new", "new"]}))
    delete_equal(sink, with_ids(pa.table({"id": pa.array([2, 2**40], pa.int64())}), id=1), [1])
    delete_equal(
        sink, with_ids(pa.table({"label": ["c", "d"], "kind": [None, "new"]}).cast(TEXTS), label=2, kind=3), [2, 3]
    )
    with sink.table().update_schema() as change:
        change.delete_column("kind")

    for encoding in ENCODINGS:
        before = sink.table().current_snapshot()
        assert before is not None
        result = convert(sink, encoding)
        assert sink.rows() == [{"id": 1, "label": "a"}]
        assert result.rows == 4
        with sink.table().manage_snapshots() as refs:
            refs.set_current_snapshot(snapshot_id=before.snapshot_id)


TEXTS = pa.schema([("label", pa.string()), ("kind", pa.string())])


def test_nested_and_odd_columns(sink: Sink) -> None:
    """Deletes of other engines by fields of structs, or by doubles, would stop the conversion or miss rows."""
    nested = StructType(NestedField(3, "code", LongType(), required=False))
    sink.create(Schema(NestedField(1, "of", nested), NestedField(2, "price", DoubleType())))
    data = pa.table(
        {
            "of": pa.array([{"code": 1}, None, {"code": None}, {"code": 2}], pa.struct([("code", pa.int64())])),
            "price": [1.5, float("nan"), -0.0, 0.0],
        }
    )
    sink.table().append(data)
    code = pa.field("code", pa.int64(), metadata={"PARQUET:field_id": "3"})
    top = pa.field("of", pa.struct([code]), metadata={"PARQUET:field_id": "1"})
    delete_equal(
        sink,
        pa.Table.from_arrays([pa.array([{"code": 1}], top.type)], schema=pa.schema([top])),
        [3],
    )
    delete_equal(sink, with_ids(pa.table({"price": [float("nan"), 0.0]}), price=2), [2])

    result = convert(sink)

    assert result.rows == 3
    assert sink.table().scan().to_arrow().to_pylist() == [{"of": {"code": None}, "price": -0.0}]


def test_partitioning_that_changed_since(sink: Sink) -> None:
    """Files of an older spec would be rewritten into other partitions, or their deletes not be found."""
    make(sink, "by the key", epochs=2)
    with sink.table().update_spec() as change:
        change.remove_field("bucket").add_identity("region")
    put_by = PartitionSpec(spec_id=2)
    sink.catalog.send(sink.table(), (), (AddPartitionSpecUpdate(spec=put_by),))
    plan = plan_by_keys(sink, delete_spec=put_by)
    sink.commit(keyed_tasks(plan, *EPOCHS[2], of_epoch=epoch(2)))
    before = {found.spec_id for found in listed(sink.table())[REPLACED]}
    assert len(before) == 2

    for encoding in ENCODINGS:
        head = sink.table().current_snapshot()
        assert head is not None
        convert(sink, encoding)
        check(sink, AFTER)
        assert {found.spec_id for found in listed(sink.table())[REPLACED]} == before
        with sink.table().manage_snapshots() as refs:
            refs.set_current_snapshot(snapshot_id=head.snapshot_id)


def test_wrong_wishes_are_refused(sink: Sink) -> None:
    """A typing error would convert another branch, or nothing."""
    options = {"warehouse": str(sink.options.warehouse)}
    with pytest.raises(TableNotFoundError):
        iceberg_ds.convert_deletes(NAME, options=options)
    make(sink)

    with pytest.raises(OptionError, match="encoding is 'vector', expected position or copy-on-write"):
        iceberg_ds.convert_deletes(NAME, encoding="vector", options=options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="it has no branch 'nope'"):
        iceberg_ds.convert_deletes(NAME, branch="nope", options=options)
    with pytest.raises(OptionError, match="branch is 5, expected a text or None"):
        iceberg_ds.convert_deletes(NAME, branch=5, options=options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="unknown option 'werehouse'"):
        iceberg_ds.convert_deletes(NAME, options={"werehouse": "x"})


def test_files_that_cannot_be_read_are_refused(sink: Sink) -> None:
    """Rows would come back that a file hides which was passed over; or the error would not say what to do."""
    sink.append(1, 2)
    sink.commit(sink.write(rows(3)))
    delete_ids(sink, 1)
    path = next(found.path for found in listed(sink.table())[REPLACED] if found.number == 1)
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), local(path))

    for encoding in ENCODINGS:
        with pytest.raises(
            iceberg_ds.DataFileError, match=r"a task failed: .* does not say which column has field id 1"
        ):
            convert(sink, encoding)

    assert len(keyed_deletes(sink.table())) == 1
    assert unreferenced_files(sink.table()) == set()


def test_file_whose_other_columns_have_no_field_ids_is_not_rewritten(sink: Sink) -> None:
    """Values would be taken for those of other columns; or the error would not say what to do."""
    sink.append(1, 2)
    delete_ids(sink, 1)
    (data,) = listed(sink.table())[DataFileContent.DATA]
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}), pa.field("name", pa.string())])
    pq.write_table(pa.table([[1, 2], ["a", "b"]], schema=schema), local(data.path))

    with pytest.raises(
        iceberg_ds.DataFileError,
        match=r"Cannot rewrite .*\.parquet: its columns.* have no field ids, .* and the table has no property",
    ):
        convert(sink, "copy-on-write")

    assert len(keyed_deletes(sink.table())) == 1
    assert unreferenced_files(sink.table()) == set()


def test_files_are_not_written_without_a_column_that_others_delete_by(sink: Sink) -> None:
    """Rows that are deleted by a column that the table has dropped would come back."""
    sink.append(0, 1, 2)
    delete_ids(sink, 0)
    set_columns(sink, NestedField(2, "name", StringType()))

    with (
        meanwhile(FaultPoint.TASK_WRITTEN, lambda: delete_ids(sink, 1)),
        pytest.raises(UnsupportedTableError, match="deletes rows by a column that the table has dropped"),
    ):
        convert(sink, "copy-on-write")

    assert [row["name"] for row in rows_of(sink.table())] == ["row 2"]
    check_clean(sink.table())
    convert(sink, "copy-on-write")
    assert [row["name"] for row in rows_of(sink.table())] == ["row 2"]
