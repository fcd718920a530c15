"""Rows that replace others by their keys, in tables of version 3: they have the ids of those, whoever writes beside."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)
from pyspark.sql.types import LongType as SparkLong
from pyspark.sql.types import StructType
from support.checks.invariants import check_clean, stored_files, unreferenced_files
from support.checks.reader import listed
from support.exhaustive import each_value, few
from support.keys.conversions import Compaction
from support.keys.conversions import meanwhile as at_step
from support.keys.messages import COLUMNS, KEYED_SCHEMA, SENT, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import (
    apart,
    commit_upsert,
    commit_upsert_epoch,
    upsert,
    upsert_by_sequence,
    upsert_epoch,
    upsert_plan,
)
from support.spark.local_frame import without_moving_rows
from support.tables.data_rewrites import rewrite
from support.tables.row_ids import all_row_ids, row_ids
from support.tables.shop import CUSTOMERS, ORDERS, PRICES, Shop, epoch_of, frame
from support.tables.sink import Sink, epoch, local, write_batches

from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.table_write import giving_up
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes import kept_ids
from iceberg_ds.deletes.kept_ids import IdsFile
from iceberg_ds.deletes.upsert import UpsertCommit
from iceberg_ds.errors import DataFileError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.lineage import LAST_UPDATED, ROW_ID, with_lineage
from iceberg_ds.table.requests import UpgradeFormatVersion
from iceberg_ds.table.spark_types import spark_type
from iceberg_ds.table.specs import parse_sort_by
from iceberg_ds.writers.rewriting import FileRewriter

pytestmark = pytest.mark.usefixtures("waits")

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
FIRST: list[Event] = [("I", number, "EU" if number % 2 else "US", number, 1) for number in range(8)]
STEPS = (FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN)
Write = Callable[..., object]


def put(sink: Sink, *parts: Sequence[Event], **options: Any) -> None:
    """Write the first micro-batch of a new stream."""
    of_epoch = epoch(0, query_id=str(uuid4()))
    assert upsert_epoch(sink, of_epoch, *parts, **options).snapshot_id is not None


def by_position(sink: Sink, *parts: Sequence[Event], **options: Any) -> None:
    """Upsert, and hide old rows."""
    upsert(sink, "position", *parts, **options)


def again(sink: Sink, *parts: Sequence[Event], **options: Any) -> None:
    """Upsert, and write the files of old rows again."""
    upsert(sink, "copy-on-write", *parts, **options)


WAYS = pytest.mark.parametrize("write", [put, by_position, again], ids=["epoch", "position", "copy-on-write"])

ONE_WAY = pytest.mark.parametrize("write", few(1, [put, by_position, again]))
MEANWHILE = pytest.mark.parametrize(("write", "step"), each_value([put, by_position, again], STEPS))


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table with key `id` and the rows of `FIRST`, in three data files."""
    return created(sink)


def created(sink: Sink, spec: PartitionSpec | None = None) -> Sink:
    """Create the table of version 3, with the rows of `FIRST` in three tasks' files."""
    sink.create(KEYED_SCHEMA, spec or PartitionSpec(), format_version="3")
    upsert(sink, "position", *apart(FIRST))
    return sink


def changed(*ids: int, amount: int = 100, region: str = "EU") -> list[Event]:
    """Return an event of each row, whose amount becomes its id times `amount`."""
    return [("U", number, region, number * amount, 2) for number in ids]


def amounts(sink: Sink) -> dict[int, Any]:
    """Return the amounts of all rows by id."""
    return {row["id"]: row["amount"] for row in sink.rows()}


def new_of(before: dict[int, int | None], after: dict[int, int | None]) -> set[int]:
    """Return the ids of the rows whose row id is none that any row had."""
    return {number for number, row_id in after.items() if row_id not in before.values()}


@pytest.mark.parametrize(("write", "spec"), each_value([put, by_position, again], [None, BY_REGION, BY_ID]))
def test_replaced_rows_stay_the_same_rows(sink: Sink, write: Write, spec: PartitionSpec | None) -> None:
    """Readers of changes would see a row go and another one come, where one row has changed."""
    created(sink, spec)
    before = row_ids(sink)

    write(sink, *apart([*changed(0, 1, 2, 6), ("I", 50, "EU", 5, 2), ("D", 5, "EU", None, 2)]))
    after = row_ids(sink)
    write(sink, *apart([*changed(1, 3, 50, amount=7), ("D", 6, "US", None, 3)]))
    last = row_ids(sink)

    assert after == {**{key: before[key] for key in before if key != 5}, 50: after[50]}
    assert new_of(before, after) == {50}
    assert last == {key: row_id for key, row_id in after.items() if key != 6}
    assert amounts(sink) == {0: 0, 1: 7, 2: 200, 3: 21, 4: 4, 7: 7, 50: 350}
    check_clean(sink.table())


@ONE_WAY
def test_rows_keep_their_order_and_their_ids_in_sorted_tables(sink: Sink, write: Write) -> None:
    """Engines would sort rows again that are sorted, or read them in an order that they do not have."""
    by_amount = {"sort_by": parse_sort_by("amount desc"), "format_version": "3"}
    upsert(sink, "position", *apart(FIRST), **by_amount)
    before = row_ids(sink)
    sorted_id = listed(sink.table())[DataFileContent.DATA][0].entry.data_file.sort_order_id

    write(sink, [*changed(3, 1, 7), ("I", 50, "EU", 500, 2), ("I", 51, "EU", 1, 2)])

    after = row_ids(sink)
    assert {key: after[key] for key in before} == before
    (new,) = (file for file in listed(sink.table())[DataFileContent.DATA] if 50 in file.by_field()[1])
    assert new.by_field()[3] == [700, 500, 300, 100, 1]
    assert new.entry.data_file.sort_order_id == sorted_id != 0


@ONE_WAY
def test_rows_of_old_versions_say_when_they_were_changed_last(keyed: Sink, write: Write) -> None:
    """Readers of changes would take a changed row for one that has not changed."""
    write(keyed, changed(1))

    (new,) = (file for file in listed(keyed.table())[DataFileContent.DATA] if file.by_field()[1] == [1])
    assert new.by_field()[ROW_ID.field_id] == [row_ids(keyed)[1]]
    assert new.by_field()[LAST_UPDATED.field_id] == [None], "a row that inherits its number was changed last now"
    assert new.number == keyed.table().metadata.last_sequence_number


def test_rows_that_lose_to_other_tasks_do_not_take_the_id(keyed: Sink) -> None:
    """The row that counts would be a new row, or two rows would have one id."""
    before = row_ids(keyed)
    for write in (put, by_position):
        parts = [
            [("U", 9, "EU", 90, 9), ("U", 1, "EU", 10, 1), ("U", 2, "EU", 1, 1)],
            [("U", 1, "EU", 30, 3), ("D", 2, "EU", None, 2), ("U", 3, "EU", 5, 1)],
            [("U", 1, "EU", 20, 2)],
        ]
        write(keyed, *parts)

        after = row_ids(keyed)
        assert amounts(keyed) == {0: 0, 1: 30, 3: 5, 4: 4, 5: 5, 6: 6, 7: 7, 9: 90}
        assert {key: after[key] for key in before if key != 2} == {key: before[key] for key in before if key != 2}
        check_clean(keyed.table())


def test_rows_that_lose_are_hidden_in_the_files_that_they_moved_to(keyed: Sink) -> None:
    """Rows that lose are told by their places: they would stay, and others be hidden in their stead."""
    before = row_ids(keyed)
    many: list[Event] = [("U", number, "EU", 1_000 + number, 5) for number in range(40)]

    put(keyed, many, [("U", number, "EU", 1, 4) for number in range(0, 40, 3)], [("U", 5, "EU", 2, 6)])

    assert amounts(keyed) == {number: 2 if number == 5 else 1_000 + number for number in range(40)}
    after = row_ids(keyed)
    assert {key: after[key] for key in before} == before


@pytest.mark.parametrize("write", few(1, [put, by_position]))
def test_files_that_are_too_large_are_split_when_they_are_written_again(keyed: Sink, write: Write) -> None:
    """Rows of the second file would have ids of other rows, or rows that lose would be looked for in the wrong file."""
    before = row_ids(keyed)
    upsert(keyed, "position", *apart([("I", number, "EU", 0, 1) for number in range(100, 900)]))
    more = row_ids(keyed)
    events: list[Event] = [("U", number, "EU", number, 2) for number in (*range(8), *range(100, 900))]

    write(keyed, events, [("U", 500, "EU", -1, 1)], target_file_size_bytes=2_000)

    after = row_ids(keyed)
    assert after == {**before, **more}
    assert len(listed(keyed.table())[DataFileContent.DATA]) > 6 + 2
    assert amounts(keyed) == {event[1]: event[3] for event in events}
    check_clean(keyed.table())


@ONE_WAY
def test_key_that_comes_back_after_its_row_was_deleted_has_a_new_row(keyed: Sink, write: Write) -> None:
    """A row that is gone would be back for those who follow rows by their ids."""
    before = row_ids(keyed)
    write(keyed, [("D", 1, "EU", None, 2)])

    write(keyed, changed(1, 2))

    after = row_ids(keyed)
    assert new_of(before, after) == {1}


def test_rows_that_are_marked_as_deleted_stay_the_same_rows(sink: Sink) -> None:
    """A key that is deleted and comes back would be three rows to those who follow rows by their ids."""
    soft: dict[str, Any] = {
        "keys": ("id",),
        "operation_column": "op",
        "sequence_by": ("lsn",),
        "soft_delete_column": "gone",
        "schema_evolution": "add-columns",
    }
    sink.create(KEYED_SCHEMA, format_version="3")
    found: list[dict[int, int | None]] = []

    for number, events in enumerate(
        [FIRST, [("D", 1, "EU", None, 2), *changed(2)], [("U", 1, "EU", 5, 3), ("D", 2, "EU", None, 4)]]
    ):
        plan = sink.plan(SENT, WriteMode.UPSERT, **soft)
        messages = keyed_tasks(plan, *apart(events), of_epoch=plan.write.epoch)
        if number % 2:
            commit_upsert_epoch(sink, messages)
        else:
            commit_upsert(sink, plan, "position", messages)
        found.append(row_ids(sink))

    assert found[0] == found[1] == found[2]
    assert {row["id"]: row["gone"] for row in sink.rows() if row["id"] < 3} == {0: False, 1: False, 2: True}


@WAYS
def test_of_several_old_rows_the_last_one_stays(keyed: Sink, write: Write) -> None:
    """Which row stays would be up to chance, or two new rows have one id."""
    before = dict(all_row_ids(keyed))
    for number in (1, 2):
        keyed.commit(keyed.write([{"id": 1, "region": "EU", "amount": number}] * 2, schema=COLUMNS))
    of_key = [row_id for key, row_id in all_row_ids(keyed) if key == 1]
    assert len(of_key) == 5

    write(keyed, changed(1, 3))

    assert row_ids(keyed) == {**before, 1: max(of_key)}
    check_clean(keyed.table())


@pytest.mark.parametrize(("first", "last"), each_value([put, by_position, again], [by_position, again, put]))
def test_ids_in_columns_are_kept(keyed: Sink, first: Write, last: Write) -> None:
    """Rows would get new ids once they have moved: by an upsert, or a compaction."""
    before = row_ids(keyed)
    first(keyed, changed(0, 1, 2))
    rewrite(keyed, min_input_files="1", rewrite_all="true")
    assert row_ids(keyed) == before
    first(keyed, changed(2, 3, amount=7))

    last(keyed, [*changed(0, 2, 4, 3, amount=9), ("I", 60, "EU", 1, 1)])

    after = row_ids(keyed)
    assert after == {**before, 60: after[60]}
    assert new_of(before, after) == {60}
    check_clean(keyed.table())


@pytest.mark.parametrize(
    ("write", "theirs", "step"), each_value([put, by_position, again], [again, put, by_position], STEPS)
)
def test_rows_that_others_replace_meanwhile_keep_their_ids(
    keyed: Sink, write: Write, theirs: Write, step: FaultPoint
) -> None:
    """Two rows would have one id, or a row a new one, because the search had found where it was before."""
    before = row_ids(keyed)

    with at_step(step, lambda: theirs(keyed, [*changed(1, 2, amount=5), ("I", 50, "EU", 5, 2)])) as done:
        write(keyed, *apart([*changed(1, 3, 50), ("I", 60, "EU", 6, 2)]))

    after = row_ids(keyed)
    assert done
    assert {key: after[key] for key in before} == before
    assert new_of(before, after) == {50, 60}
    assert amounts(keyed) == {0: 0, 1: 100, 2: 10, 3: 300, 4: 4, 5: 5, 6: 6, 7: 7, 50: 5_000, 60: 6}
    check_clean(keyed.table())


@MEANWHILE
def test_rows_that_others_delete_meanwhile(keyed: Sink, write: Write, step: FaultPoint) -> None:
    """Two rows would have one id, or the table two rows of a key."""
    before = row_ids(keyed)

    with at_step(step, lambda: by_position(keyed, [("D", 1, "EU", None, 2), ("D", 2, "EU", None, 2)])):
        write(keyed, changed(1, 3))

    after = row_ids(keyed)
    assert after.keys() == before.keys() - {2}
    assert {key: after[key] for key in after if key != 1} == {key: before[key] for key in before if key not in {1, 2}}
    check_clean(keyed.table())


@MEANWHILE
def test_rows_that_others_compact_meanwhile_keep_their_ids(keyed: Sink, write: Write, step: FaultPoint) -> None:
    """Two rows would have one id, or rows of the compaction would be looked for where they were before."""
    before = row_ids(keyed)

    with at_step(step, lambda: rewrite(keyed, min_input_files="1", rewrite_all="true")):
        write(keyed, changed(1, 3, 50))

    after = row_ids(keyed)
    assert {key: after[key] for key in before} == before
    check_clean(keyed.table())


def move_to_another_key(sink: Sink, old: int, new: int) -> None:
    """Give a row another key, as an update of another engine does: its id stays."""
    table = sink.table()
    (file,) = (file for file in listed(table)[DataFileContent.DATA] if old in file.by_field()[1])
    before = row_ids(sink)
    rows = [{**row, "id": new if row["id"] == old else row["id"], "_row_id": before[row["id"]]} for row in file.rows()]
    plan = sink.plan(COLUMNS)
    columns = StructType([*COLUMNS, *StructType().add("_row_id", SparkLong()).add(LAST_UPDATED.name, SparkLong())])
    files = write_batches(replace(plan, schema=with_lineage(plan.schema)), rows, columns, partition_id=99)
    head = table.current_snapshot()
    assert head is not None
    change = Compaction(files=[file], added=Added(tuple(files)), base=head, keeps_rows=False)
    commit_rewrite(sink.catalog, plan.write, change, CommitMeter(plan.write))


@MEANWHILE
def test_row_that_gets_another_key_meanwhile_has_its_id_alone(keyed: Sink, write: Write, step: FaultPoint) -> None:
    """The row under its new key and the new row of its old key would have one id."""
    before = row_ids(keyed)

    with at_step(step, lambda: move_to_another_key(keyed, 1, 71)):
        write(keyed, *apart(changed(1, 2)))

    after = row_ids(keyed)
    assert after[71] == before[1]
    assert new_of(before, after) == {1}
    assert {key: after[key] for key in before if key != 1} == {key: before[key] for key in before if key != 1}
    check_clean(keyed.table())


@WAYS
def test_rows_of_an_upgraded_table_get_ids(sink: Sink, write: Write) -> None:
    """An upsert into a table whose files have no ids yet would fail, or give two rows one id."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))
    assert set(row_ids(sink).values()) == {None}

    write(sink, changed(1, 2))
    first = row_ids(sink)
    write(sink, changed(1, 3, amount=7))

    assert None not in first.values()
    assert row_ids(sink) == first
    check_clean(sink.table())


@WAYS
def test_rows_keep_their_ids_where_deletes_by_key_hid_rows_before_the_upgrade(sink: Sink, write: Write) -> None:
    """Each row of a stream that went on after an upgrade would become another one at its first change."""
    sink.create(KEYED_SCHEMA)
    for number, amount in enumerate((1, 2)):
        sink.commit(keyed_tasks(plan_by_keys(sink), *apart([("U", key, "EU", amount, number) for key in range(8)])))
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))
    by_position(sink, [("I", 50, "EU", 5, 3)])  # the rows get ids, those of older files higher ones
    before = row_ids(sink)
    assert None not in before.values()

    write(sink, *apart(changed(1, 2, 3)))

    assert row_ids(sink) == before
    check_clean(sink.table())


@WAYS
def test_row_that_got_the_key_of_one_that_a_delete_by_key_hid_keeps_its_id(keyed: Sink, write: Write) -> None:
    """A row that was deleted would come back for those who follow rows by their ids, and one that was not, go."""
    before = row_ids(keyed)
    low, high = sorted((1, 2), key=lambda key: before[key] or 0)
    keyed.commit(keyed_tasks(plan_by_keys(keyed), [("D", high, "EU", None, 2)]))
    move_to_another_key(keyed, low, high)

    write(keyed, changed(high))

    assert row_ids(keyed)[high] == before[low]
    check_clean(keyed.table())


@ONE_WAY
def test_table_that_is_upgraded_meanwhile(sink: Sink, write: Write) -> None:
    """Rows of a table that has just got its first ids would share one, or the write would fail."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))

    def upgraded() -> None:
        sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))
        upsert(sink, "position", changed(7))

    with at_step(FaultPoint.COMMIT_BEGUN, upgraded):
        write(sink, changed(1, 2))

    assert None not in row_ids(sink).values()
    assert amounts(sink) == {0: 0, 1: 100, 2: 200, 3: 3, 4: 4, 5: 5, 6: 6, 7: 700}
    check_clean(sink.table())


@ONE_WAY
def test_tables_of_version_2_have_no_ids(sink: Sink, write: Write) -> None:
    """Other engines would find columns in files that their version does not have."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))

    write(sink, changed(1, 2))

    files = listed(sink.table())[DataFileContent.DATA]
    assert all(ROW_ID.field_id not in file.by_field() for file in files)


@pytest.mark.parametrize(("write", "failures"), each_value([put, by_position, again], [99, 1, 2]))
def test_files_that_cannot_be_written_again_leave_nothing(
    keyed: Sink, write: Write, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files would lie around that no table has, or rows be in the table without the ids that they keep."""
    before, stored, tries = row_ids(keyed), stored_files(keyed.table().location()), itertools.count()
    rewritten = FileRewriter.rewrite
    monkeypatch.setattr(kept_ids, "_TASK_ROWS", 1)

    def failing(rewriter: FileRewriter, file: DataFile, *arguments: Any) -> Any:
        if 1 in (keys := [row["id"] for row in file_rows(file)]) and len(keys) == 1 and next(tries) < failures:
            raise OSError("no space")
        return rewritten(rewriter, file, *arguments)

    monkeypatch.setattr(kept_ids.FileRewriter, "rewrite", failing)

    if failures < 3:
        write(keyed, *apart(changed(0, 1, 2)))
        assert row_ids(keyed) == before
        assert not unreferenced_files(keyed.table())
        return
    with pytest.raises(DataFileError, match=r"nothing was committed: a task failed: OSError: no space"):
        write(keyed, *apart(changed(0, 1, 2)))
    assert row_ids(keyed) == before
    assert amounts(keyed) == {number: number for number in range(8)}
    assert stored_files(keyed.table().location()) == stored


def file_rows(file: DataFile) -> list[dict[str, Any]]:
    """Return the rows of a data file."""
    found: list[dict[str, Any]] = pq.read_table(local(file.file_path), partitioning=None).to_pylist()
    return found


@MEANWHILE
def test_write_that_is_given_up_in_its_second_round_leaves_nothing(
    keyed: Sink, write: Write, step: FaultPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that were written again in the first round would lie around, and nobody would know of them."""

    def theirs() -> None:
        upsert(keyed, "position", changed(1, 2, amount=5))
        monkeypatch.setattr(kept_ids, "_answer", lambda *_: kept_ids._refused("the disk is full"))

    with at_step(step, theirs), pytest.raises(DataFileError, match="the disk is full"):
        write(keyed, *apart(changed(1, 2, 3)))

    assert amounts(keyed) == {0: 0, 1: 5, 2: 10, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7}
    assert not unreferenced_files(keyed.table())


def test_write_that_others_give_up_takes_its_new_files_along(keyed: Sink) -> None:
    """Of a transaction whose second table fails, files of the first one would lie around."""
    stored = stored_files(keyed.table().location())
    plan = upsert_plan(keyed)
    messages = keyed_tasks(plan, *apart(changed(1, 2, 3)))
    commit = UpsertCommit(keyed.catalog, plan, "position", None)

    def begin_and_fail() -> None:
        commit.begin(messages)
        raise KeyError

    with pytest.raises(KeyError), giving_up(keyed.catalog, lambda: [commit.at_stake(messages)]):
        begin_and_fail()
    commit.forget_keys()

    assert stored_files(keyed.table().location()) == stored


def test_transaction_whose_second_search_fails_leaves_nothing(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of ids, and files that were written again to keep them, would lie around in the first table."""
    shop = Shop(folder=warehouse)
    found, searched = IdsFile.close, itertools.count()

    def upserts() -> None:
        with without_moving_rows(), shop.begin(format_version="3") as both:
            for table in (CUSTOMERS, ORDERS):
                both.upsert(frame(table, epoch_of(0)[table]), table, keys="id")

    def failing(file: IdsFile) -> None:
        if next(searched):
            raise OSError("no space")
        found(file)

    upserts()
    before = shop.data_files()
    monkeypatch.setattr(IdsFile, "close", failing)

    with pytest.raises(DataFileError, match=f"upsert into {ORDERS}, nothing was committed: a task failed: OSError"):
        upserts()

    assert shop.data_files() == before
    assert shop.snapshots() == {CUSTOMERS: 1, ORDERS: 1, PRICES: 0}


def test_late_rows_do_not_take_the_id(sink: Sink) -> None:
    """The row that wins would have the id of none, or two rows would have one id."""
    schema = Schema(*KEYED_SCHEMA.fields, NestedField(4, "lsn", LongType()), identifier_field_ids=[1])
    sink.create(schema, format_version="3")
    upsert_by_sequence(sink, *apart([("I", number, "EU", number, 5) for number in range(6)]))
    before = row_ids(sink)

    events: list[Event] = [("U", 1, "EU", 10, 9), ("U", 2, "EU", 20, 3), ("D", 3, "EU", None, 4), ("U", 4, "EU", 40, 9)]
    upsert_by_sequence(sink, *apart(events))

    assert row_ids(sink) == before
    assert amounts(sink) == {0: 0, 1: 10, 2: 2, 3: 3, 4: 40, 5: 5}
    check_clean(sink.table())


KEY_TYPES: dict[IcebergType, Callable[[int], Any]] = {
    IntegerType(): int,
    StringType(): lambda number: "é" * number,
    BinaryType(): bytes,
    DecimalType(20, 3): lambda number: Decimal(number - 2),
    DateType(): lambda number: dt.date(1970, 1, 1 + number),
    TimestampType(): lambda number: dt.datetime(1969, 12, 31, number),  # noqa: DTZ001  # it has no zone
    BooleanType(): lambda number: number == 1,
    UUIDType(): lambda number: str(UUID(int=number << 60)),
}


@pytest.mark.parametrize(("of", "is_epoch"), each_value([*KEY_TYPES], [True, False]), ids=str)
def test_keys_of_every_type_find_their_ids(sink: Sink, of: IcebergType, *, is_epoch: bool) -> None:
    """Rows with such keys would be new rows after each change."""
    value = KEY_TYPES[of]
    columns = StructType().add("key", spark_type(of), nullable=False).add("id", "long")
    schema = Schema(
        NestedField(1, "key", of, required=True), NestedField(2, "id", LongType()), identifier_field_ids=[1]
    )
    sink.create(schema, format_version="3")
    found = []
    for number, keys in enumerate([range(2) if of == BooleanType() else range(5), range(1, 2), range(2)]):
        plan = sink.plan(columns, WriteMode.UPSERT, keys=("key",))
        of_epoch = epoch(number) if is_epoch else None
        parts = [[{"key": value(key), "id": key} for key in keys if key % 2 == part] for part in range(2)]
        messages = sink.write(*parts, schema=columns, plan=plan, of_epoch=of_epoch)
        if is_epoch:
            commit_upsert_epoch(sink, messages)
        else:
            commit_upsert(sink, plan, "position", messages)
        found.append(row_ids(sink))

    assert found[0] == found[1] == found[2]
