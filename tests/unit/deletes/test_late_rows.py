"""Rows that come late lose to newer ones that the table has (`sequence-scope=table`), whoever writes beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.checks.invariants import check_clean, stored_files, unreferenced_files
from support.keys.conversions import convert
from support.keys.messages import COLUMNS, SENT, Event, keyed_tasks
from support.keys.upserts import SEQUENCED_SCHEMA, apart, commit_upsert, upsert_by_sequence
from support.tables.sink import Sink

from iceberg_ds.cdc import task_changes
from iceberg_ds.commit import together as committing
from iceberg_ds.deletes import match as key_sets
from iceberg_ds.deletes import match as matching
from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.planning.plan_write import WriteMode

pytestmark = pytest.mark.usefixtures("waits")

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
FIRST: list[Event] = [("I", number, "EU", number, 10) for number in range(4)]


@pytest.fixture
def sequenced(sink: Sink) -> Sink:
    """Return the sink of an unpartitioned table with key `id`, with rows of sequence 10."""
    sink.create(SEQUENCED_SCHEMA)
    upsert_by_sequence(sink, *apart(FIRST))
    return sink


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows that PyIceberg finds in the table, and check its files."""
    check_clean(sink.table())
    return [tuple(row.values()) for row in sink.rows()]


@pytest.mark.parametrize("spec", [PartitionSpec(), BY_REGION, BY_ID], ids=["plain", "by another column", "by key"])
def test_late_rows_lose_and_others_win(sink: Sink, spec: PartitionSpec) -> None:
    """A late row would undo a newer one, or a new one would be lost."""
    sink.create(SEQUENCED_SCHEMA, spec)
    upsert_by_sequence(sink, *apart(FIRST))

    late = [("U", 0, "US", -1, 9), ("U", 1, "US", 1, 10), ("U", 2, "US", 2, 11), ("D", 3, "EU", None, 9)]
    result = upsert_by_sequence(sink, *apart([*late, ("U", 7, "US", 7, 1)]))

    assert values(sink) == [
        (0, "EU", 0, 10),
        (1, "US", 1, 10),
        (2, "US", 2, 11),
        (3, "EU", 3, 10),
        (7, "US", 7, 1),
    ]
    assert (result.rows, result.late_rows, result.replaced_rows) == (3, 2, 2)
    assert "2 rows were late" in str(result)


def test_nulls_are_the_lowest(sequenced: Sink) -> None:
    """A row without a sequence would win over all others, or be none."""
    none: Any = None
    upsert_by_sequence(sequenced, [("U", 0, "US", 1, none), ("U", 8, "US", 1, none), ("U", 9, "US", 1, none)])
    upsert_by_sequence(sequenced, [("U", 8, "US", 2, -5), ("U", 9, "US", 2, none)])

    assert [row for row in values(sequenced) if row[0] in {0, 8, 9}] == [
        (0, "EU", 0, 10),
        (8, "US", 2, -5),
        (9, "US", 2, None),
    ]


def test_late_deletes_alone_change_nothing(sequenced: Sink) -> None:
    """Each of them would add a snapshot, or delete a newer row."""
    result = upsert_by_sequence(sequenced, [("D", 1, "EU", None, 9)])

    assert (result.snapshot_id, result.late_rows) == (None, 1)
    assert len(sequenced.table().metadata.snapshots) == 1
    assert len(values(sequenced)) == 4


def test_rows_of_all_tasks_are_hidden_if_they_are_late(sequenced: Sink) -> None:
    """One of two rows of a late key would stay, or one that is not late would go."""
    upsert_by_sequence(
        sequenced,
        [("U", 1, "US", 8, 8), ("U", 2, "US", 8, 8), ("U", 5, "US", 8, 8)],
        [("U", 1, "US", 9, 9), ("U", 2, "US", 12, 12), ("U", 5, "US", 9, 9)],
    )

    assert values(sequenced)[1:] == [(1, "EU", 1, 10), (2, "US", 12, 12), (3, "EU", 3, 10), (5, "US", 9, 9)]


def test_files_of_late_rows_alone_are_left_out(sequenced: Sink) -> None:
    """A topic that is read again from its beginning would double the table's files, for nothing."""
    before = stored_files(sequenced.table().location())

    alone = upsert_by_sequence(sequenced, *apart([("U", number, "US", 0, 9) for number in range(4)]))

    assert (alone.snapshot_id, alone.late_rows) == (None, 4)
    assert stored_files(sequenced.table().location()) == before
    result = upsert_by_sequence(sequenced, [("U", 0, "US", 0, 9)], [("U", 1, "US", 1, 11)])
    assert (result.rows, result.late_rows, result.data_files) == (1, 1, 1)
    assert values(sequenced)[:2] == [(0, "EU", 0, 10), (1, "US", 1, 11)]


def test_incoming_rows_of_one_key_in_several_sets_are_one(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row would be late by one set and replaced by another, so that the key has none."""
    monkeypatch.setattr(key_sets, "SET_ROWS", 1)

    upsert_by_sequence(sequenced, [("U", 1, "US", 9, 9)], [("U", 1, "US", 12, 12)], [("U", 2, "US", 0, 9)])

    assert values(sequenced)[1:3] == [(1, "US", 12, 12), (2, "EU", 2, 10)]


def test_late_rows_are_found_whatever_their_number(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would run out of memory, or be wrong about what is on the border of two portions."""
    sink.create(SEQUENCED_SCHEMA)
    upsert_by_sequence(sink, *apart([("I", number, "EU", 0, number % 5) for number in range(40)]))
    monkeypatch.setattr(key_sets, "SET_ROWS", 7)
    monkeypatch.setattr(matching, "LOOKUP_BYTES", 100)
    monkeypatch.setattr("iceberg_ds.deletes.key_reader._BATCH_ROWS", 4)

    result = upsert_by_sequence(sink, *apart([("U", number, "US", 1, 2) for number in range(0, 40, 3)], 2))

    expected = {number: ("EU", 0, number % 5) for number in range(40)}
    newer = {number: ("US", 1, 2) for number in range(0, 40, 3) if number % 5 <= 2}
    assert values(sink) == [(number, *row) for number, row in {**expected, **newer}.items()]
    assert (result.rows, result.late_rows) == (len(newer), len(range(0, 40, 3)) - len(newer))


def test_tie_that_is_late_is_none(sequenced: Sink) -> None:
    """A batch would be refused for rows that nobody would see."""
    upsert_by_sequence(sequenced, [("U", 1, "US", 1, 9), ("U", 1, "DE", 2, 9)], [("U", 2, "US", 1, 9)])
    upsert_by_sequence(sequenced, [("U", 1, "US", 1, 9)], [("U", 1, "DE", 2, 9)])

    assert values(sequenced)[1] == (1, "EU", 1, 10)
    with pytest.raises(RefusedRowsError, match="1 keys have several rows"):
        upsert_by_sequence(sequenced, [("U", 1, "US", 1, 11)], [("U", 1, "DE", 2, 11)])


def test_key_that_the_table_has_twice_keeps_its_newest_row(sequenced: Sink) -> None:
    """A late row would win because the table has an older one as well."""
    append(sequenced, {"id": 1, "region": "DE", "amount": 0, "lsn": 5})

    upsert_by_sequence(sequenced, [("U", 1, "US", 7, 7)])

    assert [row for row in values(sequenced) if row[0] == 1] == [(1, "EU", 1, 10)]


def append(sink: Sink, *rows: dict[str, Any]) -> None:
    """Append rows as a writer does that knows no keys."""
    columns = StructType([column for column in SENT if column.name != "op"])
    sink.commit(sink.write(list(rows), schema=columns))


def test_hidden_rows_have_no_say(sequenced: Sink) -> None:
    """A key that was deleted could never come back, or a late row that was hidden would hide others."""
    upsert_by_sequence(sequenced, [("D", 1, "EU", None, 11), ("U", 2, "US", 2, 5)])
    upsert_by_sequence(sequenced, [("U", 1, "US", 3, 3), ("U", 2, "US", 4, 4)])

    assert values(sequenced)[1:3] == [(1, "US", 3, 3), (2, "EU", 2, 10)]


def test_marked_deletes_keep_their_sequence(sink: Sink) -> None:
    """A late insert would bring a deleted row back."""
    marked = {"soft_delete_column": "gone"}
    upsert_by_sequence(sink, *apart(FIRST), **marked)
    upsert_by_sequence(sink, [("D", 1, "EU", 1, 20)], **marked)

    result = upsert_by_sequence(sink, [("U", 1, "US", 2, 15), ("D", 2, "EU", 2, 9)], **marked)
    upsert_by_sequence(sink, [("U", 1, "US", 3, 21)], [("D", 3, "EU", 3, 11)], **marked)

    assert values(sink) == [
        (0, "EU", 0, 10, False),
        (1, "US", 3, 21, False),
        (2, "EU", 2, 10, False),
        (3, "EU", 3, 11, True),
    ]
    assert (result.rows, result.late_rows) == (0, 2)


# Beside others.


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Let others act one after the other, each between a search and the commit that rests on it."""
    left = list(acts)
    original = committing.commit_to_branch

    def commit(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop(0)()
        return original(*arguments, **named)

    monkeypatch.setattr(committing, "commit_to_branch", commit)


def test_rows_that_came_meanwhile_win_if_they_are_newer(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two writers at once the slower one would win, however old its rows are."""
    rival: list[Event] = [("U", 1, "DE", -1, 12), ("U", 2, "DE", -2, 10), ("U", 8, "DE", -8, 12)]
    meanwhile(monkeypatch, lambda: upsert_by_sequence(sequenced, rival))

    result = upsert_by_sequence(
        sequenced, *apart([("U", 1, "US", 1, 11), ("U", 2, "US", 2, 11), ("U", 8, "US", 8, 11)])
    )

    assert values(sequenced)[1:] == [(1, "DE", -1, 12), (2, "US", 2, 11), (3, "EU", 3, 10), (8, "DE", -8, 12)]
    assert (result.rows, result.late_rows) == (1, 2)


def test_row_that_was_newer_and_is_gone_has_no_say(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key would have no row at all: the newer one was deleted meanwhile, and the new one hidden because of it."""
    by_epoch = {"sequence_scope": "batch"}
    meanwhile(
        monkeypatch,
        lambda: upsert_by_sequence(sequenced, [("U", 1, "DE", -1, 3), ("D", 2, "EU", None, 3)], **by_epoch),
    )

    result = upsert_by_sequence(sequenced, [("U", 1, "US", 1, 5), ("U", 2, "US", 2, 5), ("U", 3, "US", 3, 5)])

    assert values(sequenced)[1:] == [(1, "US", 1, 5), (2, "US", 2, 5), (3, "EU", 3, 10)]
    assert (result.rows, result.late_rows) == (2, 1)


def test_compaction_meanwhile_changes_nothing(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows would win because the files with the newer ones were written again."""
    meanwhile(monkeypatch, lambda: rewrite(sequenced))

    result = upsert_by_sequence(sequenced, *apart([("U", 1, "US", 1, 5), ("U", 2, "US", 2, 15)]))

    assert values(sequenced)[1:3] == [(1, "EU", 1, 10), (2, "US", 2, 15)]
    assert result.late_rows == 1


def rewrite(sink: Sink) -> None:
    """Write the table's rows again, as PyIceberg does."""
    table = sink.table()
    table.overwrite(table.scan().to_arrow())


def test_version_that_the_table_has_is_skipped(sequenced: Sink) -> None:
    """A micro-batch that Spark repeats would add rows that are hidden at once."""
    numbered = {"txn_app_id": "query", "txn_version": 7}
    events: list[Event] = [("U", 1, "US", 1, 12), ("U", 2, "US", 2, 9)]
    upsert_by_sequence(sequenced, events, **numbered)
    before = stored_files(sequenced.table().location())

    result = upsert_by_sequence(sequenced, events, **numbered)

    assert (result.was_replayed, result.late_rows) == (True, 0)
    assert {path for path in stored_files(sequenced.table().location()) ^ before if "/data/" in str(path)} == set()
    assert values(sequenced)[1:3] == [(1, "US", 1, 12), (2, "EU", 2, 10)]


def test_version_of_late_rows_alone_is_recorded(sequenced: Sink) -> None:
    """A micro-batch would be done again after the newer row has gone."""
    numbered = {"txn_app_id": "query", "txn_version": 7}
    first = upsert_by_sequence(sequenced, [("U", 1, "US", 1, 9)], **numbered)
    upsert_by_sequence(sequenced, [("D", 1, "US", None, 11)])

    result = upsert_by_sequence(sequenced, [("U", 1, "US", 1, 9)], **numbered)

    assert (first.rows, first.late_rows, first.snapshot_id is None) == (0, 1, False)
    assert result.was_replayed
    assert len(values(sequenced)) == 3


def test_branch_with_deletes_by_keys_is_refused(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is deleted by key would hide late ones, and the key would have none."""
    meanwhile(monkeypatch, lambda: delete_by_key(sequenced))

    for _ in ("before the commit", "before the search"):
        with pytest.raises(UnsupportedTableError, match=r"1 files of deletes by keys.*convert_deletes"):
            upsert_by_sequence(sequenced, [("U", 1, "US", 1, 5)])

    assert unreferenced_files(sequenced.table()) == set()
    convert(sequenced)
    upsert_by_sequence(sequenced, [("U", 1, "US", 1, 5)])
    assert values(sequenced)[1] == (1, "US", 1, 5)


def delete_by_key(sink: Sink) -> None:
    """Delete a row as a stream does."""
    plan = sink.plan(SENT, keys=("id",), operation_column="op")
    sink.commit(keyed_tasks(plan, [("D", 1, "EU", None, 3)]))


def test_task_with_too_many_keys_is_refused_if_some_are_late(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows would win in large batches."""
    monkeypatch.setattr(task_changes, "MAX_REPORTED_KEYS", 2)
    many: list[Event] = [("U", number, "US", 0, 5) for number in range(3, 6)]
    before = stored_files(sequenced.table().location())

    with pytest.raises(RefusedRowsError, match=r"1 tasks \(such as 0, with 3 keys\) have too many keys to tell"):
        upsert_by_sequence(sequenced, many)

    assert stored_files(sequenced.table().location()) == before
    upsert_by_sequence(sequenced, [("U", number, "US", 0, 50) for number in range(3, 6)])
    assert len(values(sequenced)) == 6


def test_tasks_report_all_keys_however_they_are_laid_out(sequenced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches whose tasks prove that they share no keys would be refused."""
    monkeypatch.setattr(task_changes, "REPORTED_ANYWAY", 0)

    result = upsert_by_sequence(sequenced, [("U", 0, "US", 0, 5)])

    assert result.late_rows == 1


@pytest.mark.parametrize("is_stream", [False, True])
def test_writes_that_do_not_look_for_rows_are_refused(sequenced: Sink, *, is_stream: bool) -> None:
    """Late rows would win although the user has asked that they lose."""
    with pytest.raises(OptionError, match=r"iceberg_ds\.upsert\(df.*foreachBatch\(iceberg_ds\.upsert_into"):
        sequenced.plan(SENT, is_stream=is_stream, keys=("id",), sequence_by=("lsn",), sequence_scope="table")


def test_sequence_that_the_table_lacks_is_added_if_asked_to(sink: Sink) -> None:
    """The table's rows would have to be written again before the option may be used."""
    sink.create(Schema(*SEQUENCED_SCHEMA.fields[:3], identifier_field_ids=[1]))
    sink.commit(sink.write([{"id": 1, "region": "EU", "amount": 1}], schema=COLUMNS))

    with pytest.raises(SchemaMismatchError, match="lsn"):
        upsert_by_sequence(sink, [("U", 1, "US", 1, -5)])
    upsert_by_sequence(sink, [("U", 1, "US", 1, -5)], schema_evolution="add-columns")
    upsert_by_sequence(sink, [("U", 1, "US", 2, -6)])

    assert values(sink) == [(1, "US", 1, -5)]


def test_stored_types_count(sink: Sink) -> None:
    """A column that is wider in the table than in the DataFrame would be compared as something else, or not at all."""
    narrow = StructType([StructField("id", spark.LongType(), nullable=False), StructField("at", spark.IntegerType())])
    sink.create(
        Schema(
            NestedField(1, "id", LongType(), required=True), NestedField(2, "At", LongType()), identifier_field_ids=[1]
        )
    )
    by_sequence = {"keys": ("id",), "sequence_by": ("at",), "sequence_scope": "table"}

    for rows in ([{"id": 1, "at": 7}, {"id": 2, "at": 7}], [{"id": 1, "at": 6}, {"id": 2, "at": 8}]):
        plan = sink.plan(narrow, WriteMode.UPSERT, **by_sequence)
        commit_upsert(sink, plan, "position", sink.write(rows, schema=narrow, plan=plan))

    assert values(sink) == [(1, 7), (2, 8)]
