"""What one task makes of the rows of a change feed."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)
from support.keys.change_feeds import ADDED, MARKED, SCHEMA, SEED, SENT, Row, TaskOutput, feed, run_task, sent

from iceberg_ds.cdc import task_changes
from iceberg_ds.cdc import task_changes as waiting
from iceberg_ds.cdc.dedup import decode_key_report, repeated
from iceberg_ds.cdc.reader import key_texts
from iceberg_ds.cdc.task_changes import TaskChanges
from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.plan import AddedColumns, ChangeFeed
from iceberg_ds.writers.spill import ExternalSort, Spool


def event(op: str | None, number: int | None, amount: int | None = 1, **more: Any) -> Row:
    """Return an event of the key (number, "EU")."""
    return {"op": op, "id": number, "region": "EU", "amount": amount, **more}


def amounts(output: TaskOutput) -> list[int]:
    """Return what was written of one column."""
    return [row["amount"] for file in output.files for row in file]


def run_columns(columns: dict[str, pa.Array], kinds: dict[str, IcebergType], **changed: Any) -> TaskOutput:
    """Return what a task makes of upserts by column `k` of a table with these columns."""
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), 1)]
    schema = Schema(*(field.model_copy(update={"required": field.name == "k"}) for field in fields))
    return run_task(ChangeFeed(key_ids=(1,), **changed), [pa.record_batch(columns)], schema=schema)


def test_rows_keep_the_order_in_which_they_came() -> None:
    """Files would compress worse, and lose what sorting before gave them."""
    rows = [event("c", number, amount) for amount, number in enumerate([5, 3, 9, 1, 3, 7])]
    for row in rows:
        row["lsn"] = row["amount"]

    assert amounts(run_task(feed(), [sent(rows[:4]), sent(rows[4:])])) == [0, 2, 3, 4, 5]


def test_every_key_is_deleted_that_the_table_may_have() -> None:
    """The table would keep the old row beside the new one."""
    output = run_task(feed(), [sent([event("c", 1), event("u", 2), event("d", 3), event("-U", 4)])])

    assert output.deleted == {(1, "EU"), (2, "EU"), (3, "EU"), (4, "EU")}
    assert amounts(output) == [1, 1]


def test_inserts_that_are_known_to_be_new_delete_nothing() -> None:
    """An epoch of new keys would slow every reader down."""
    rows = [event("c", 1), event("c", 2), event("u", 3), event("d", 4, lsn=1), event("c", 4, lsn=2)]

    output = run_task(feed(trusts_inserts=True), [sent(rows)])

    assert output.deleted == {(3, "EU"), (4, "EU")}


def test_a_key_of_many_inserts_is_deleted_if_it_was_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table would keep the old row of a key with so many events that not all are in memory."""
    monkeypatch.setattr(waiting, "EVENT_BYTES", 0)
    rows = [event("d", 1, lsn=0), *(event("c", 1, lsn, lsn=lsn) for lsn in range(1, 1500))]

    output = run_task(feed(trusts_inserts=True), [sent(rows)])

    assert output.deleted == {(1, "EU")}
    assert amounts(output) == [1499]


def test_a_delete_needs_no_more_than_its_key() -> None:
    """Debezium's deletes, which have nulls elsewhere, would fail the stream."""
    output = run_task(feed(), [sent([event("d", 1, None), event("-U", 2, None)])])

    assert output.deleted == {(1, "EU"), (2, "EU")}


def test_a_row_with_a_null_that_the_table_forbids_is_an_error() -> None:
    """The table would break for its readers."""
    with pytest.raises(SchemaMismatchError, match="amount"):
        run_task(feed(), [sent([event("u", 1, None)])])


def test_null_keys_are_counted_with_examples() -> None:
    """Rows that no delete ever finds again would be in the table, or be dropped in silence."""
    rows = [event("c", None, region=f"r{number}") for number in range(7)]

    output = run_task(feed(), [sent([*rows, event("c", 1)]), sent(rows)])

    assert output.report.null_keys.count == 14
    assert len(output.report.null_keys.examples) == 5
    assert output.report.null_keys.examples[0] == "{'id': None, 'region': 'r0'}"
    assert amounts(output) == [1]


def test_unknown_operations_are_counted() -> None:
    """Rows would be dropped, or taken for something, without a word."""
    output = run_task(feed(), [sent([event("t", 1), event(None, 2), event("c", 3)]), sent([event("t", None)])])

    assert output.report.unknown_operations == {"'t'": 2, "null": 1}
    assert output.report.null_keys.count == 0
    assert output.deleted == {(3, "EU")}


def test_rows_without_operations_are_upserts() -> None:
    """A plain table could not be upserted."""
    output = run_task(feed(operation_column=None), [sent([event("d", 1), event(None, 2)])])

    assert amounts(output) == [1, 1]


def test_rows_that_satisfy_the_predicate_are_deletes() -> None:
    """Rows that the source marks as deleted would be written."""

    def is_delete(batch: pa.RecordBatch) -> pa.Array:
        return pc.equal(batch.column("digest"), "gone")

    rows = [event("u", 1, digest="gone"), event("u", 2, digest=None), event("-U", 3, digest="gone")]

    output = run_task(feed(delete_when="digest = 'gone'"), [sent(rows)], is_delete=is_delete)

    assert amounts(output) == [1]
    assert output.deleted == {(1, "EU"), (2, "EU"), (3, "EU")}


def test_both_images_of_an_update_are_one_event() -> None:
    """Every update of a feed with images before and after would be a tie."""
    rows = [event("-U", 1, 1), event("+U", 1, 2), event("-U", 2, 1), event("+U", 3, 3)]

    output = run_task(feed(sequence=()), [sent(rows)])

    assert amounts(output) == [2, 3]
    assert output.report.tied_count == 0


def test_keys_that_change_places_are_no_tie() -> None:
    """Rows that swap their keys in one change would be lost."""
    rows = [event("-U", 1, 1), event("+U", 2, 1), event("-U", 2, 2), event("+U", 1, 2)]

    output = run_task(feed(sequence=()), [sent(rows)])

    assert sorted((row["id"], row["amount"]) for file in output.files for row in file) == [(1, 2), (2, 1)]


@pytest.mark.parametrize("words", [("c", "c"), ("c", "d"), ("u", "+U")])
def test_a_repeated_key_without_order_is_a_tie(words: tuple[str, str]) -> None:
    """One of two rows would be chosen by chance."""
    output = run_task(feed(sequence=()), [sent([event(word, 1) for word in words])])

    assert output.report.tied_count == 1
    assert output.report.tied_keys == ("{'id': 1, 'region': 'EU'}",)


@pytest.mark.parametrize("words", [("d", "d"), ("d", "-U"), ("-U", "-U")])
def test_deletes_agree(words: tuple[str, str]) -> None:
    """A delete that comes twice would stop the stream."""
    output = run_task(feed(sequence=()), [sent([event(word, 1) for word in words])])

    assert output.report.tied_count == 0
    assert output.deleted == {(1, "EU")}


def test_a_tie_below_the_highest_sequence_does_no_harm() -> None:
    """A feed would be refused for rows that are overtaken anyway."""
    rows = [event("u", 1, 1, lsn=4), event("d", 1, 2, lsn=4), event("u", 1, 3, lsn=5)]

    output = run_task(feed(), [sent(rows)])

    assert amounts(output) == [3]
    assert output.report.tied_count == 0


def test_of_tied_rows_the_last_one_is_written_and_before_a_delete() -> None:
    """With keys-not-enforced a key would be in the table twice, or not at all."""
    rows = [event("u", 1, 1), event("u", 1, 2), event("d", 1, 3)]

    assert amounts(run_task(feed(sequence=(), is_enforced=False), [sent(rows)])) == [2]


@pytest.mark.parametrize(
    ("values", "winner"),
    [
        ([None, 1.0], 1),
        ([math.nan, math.inf], 0),
        ([-0.0, 0.0], None),
        ([None, None], None),
        ([math.nan, -math.nan], None),
        ([-math.inf, None], 0),
    ],
)
def test_sequences_are_ordered_as_documented(values: list[float | None], winner: int | None) -> None:
    """An older row would win over a newer one."""
    sequence = (NestedField(3, "s", DoubleType()),)
    columns = {"k": pa.array([1, 1]), "amount": pa.array([0, 1]), "s": pa.array(values, pa.float64())}

    output = run_columns(columns, {"k": LongType(), "amount": LongType()}, sequence=sequence)

    assert output.report.tied_count == (1 if winner is None else 0)
    assert winner is None or amounts(output) == [winner]


def test_later_sequence_columns_decide_where_earlier_ones_are_equal() -> None:
    """A position within a transaction would be overlooked."""
    sequence = (NestedField(3, "s", StringType()), NestedField(4, "t", TimestamptzType()))
    times = [dt.datetime(2026, 1, day, tzinfo=dt.timezone.utc) for day in (3, 2, 9)]
    columns = {
        "k": pa.array([1, 1, 1]),
        "amount": pa.array([0, 1, 2]),
        "s": pa.array(["b", "b", "a"]),
        "t": pa.array(times, pa.timestamp("us", "Europe/Zurich")),
    }

    output = run_columns(columns, {"k": LongType(), "amount": LongType()}, sequence=sequence)

    assert amounts(output) == [0]


def test_keys_are_compared_as_the_table_holds_them() -> None:
    """One key in two scales would be in the table twice."""
    keys = pa.array([decimal.Decimal("1.50"), decimal.Decimal("1.5")], pa.decimal128(6, 2))
    columns = {"k": keys, "amount": pa.array([1, 2])}

    output = run_columns(columns, {"k": DecimalType(10, 4), "amount": LongType()})

    assert output.report.tied_count == 1
    assert output.deleted == {(decimal.Decimal("1.5000"),)}


def test_uuids_of_text_are_one_key_in_any_case() -> None:
    """One UUID in two cases would be in the table twice, and be taken for two keys by the proof of the layout."""
    text = str(uuid.UUID(int=0xABCDEF))
    columns = {"k": pa.array([text, text.upper()]), "amount": pa.array([1, 2])}

    output = run_columns(columns, {"k": UUIDType(), "amount": LongType()}, is_enforced=False)

    assert amounts(output) == [2]
    assert output.report.count == 1


def test_keys_that_python_cannot_hold_are_shown() -> None:
    """The error would be one of Python's, and tell nobody which key it is."""
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    far = pa.array([2**22], pa.int32()).view(pa.date32())

    assert key_texts(pa.record_batch({"k": text, "n": [7]})) == ["{'k': b'\\xff', 'n': 7}"]
    assert key_texts(pa.record_batch({"k": far})) == ["{'k': '13453-08-13'}"]


def test_columns_are_found_whatever_their_case_and_order() -> None:
    """Spark's users would have to rename their columns."""
    batch = sent([event("c", 1)])
    renamed = batch.select(batch.schema.names[::-1]).rename_columns([name.upper() for name in SENT.names[::-1]])
    sequence = (NestedField(6, "LSN", LongType()),)

    output = run_task(feed(operation_column="OP", sequence=sequence), [renamed])

    assert output.deleted == {(1, "EU")}


def test_keys_that_differ_only_in_the_case_of_their_names_are_two_columns() -> None:
    """The wrong column would be the key."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "ID", LongType(), required=True),
        NestedField(3, "amount", LongType()),
    )
    batch = pa.record_batch({"ID": [1, 1], "id": [7, 8], "amount": [1, 2]})

    output = run_task(ChangeFeed(key_ids=(1,)), [batch], schema=schema)

    assert output.deleted == {(7,), (8,)}


def test_a_delete_file_has_the_keys_alone_with_their_ids() -> None:
    """Readers would match deletes by other columns, or not at all."""
    changes = TaskChanges(
        feed(), SCHEMA, case_sensitive=None, partition_id=0, seed=SEED, sorter=ExternalSort, spool=Spool
    )

    fields = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in changes.delete_schema}

    assert fields == {"id": 1, "region": 2}
    assert changes.row_schema.names[: len(SCHEMA.fields)] == ["id", "region", "amount", "digest"]


def test_a_report_says_what_became_of_each_key_in_the_order_of_the_files() -> None:
    """The commit would hide other rows than those that lost."""
    rows = [event("c", 4, lsn=1), event("d", 1, lsn=2), event("c", 2, lsn=3), event("-U", 3, lsn=4)]

    key_report = decode_key_report(run_task(feed(), [sent(rows)]).report.key_report or b"").to_pydict()

    assert key_report["sequence_0"] == [1, 3, 2, 4]
    assert key_report["rank"] == [2, 2, 1, 0]


def test_many_keys_that_look_as_distributed_by_key_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch of a large table would send all its keys to the driver for nothing."""
    monkeypatch.setattr(task_changes, "REPORTED_ANYWAY", 1)
    laid_out = run_task(feed(), [sent([event("c", 1), event("d", 1, lsn=5)])])
    monkeypatch.setattr(task_changes, "MAX_REPORTED_KEYS", 99)
    scattered = run_task(feed(), [sent([event("c", number) for number in range(50)])])
    monkeypatch.setattr(task_changes, "MAX_REPORTED_KEYS", 49)
    too_many = run_task(feed(), [sent([event("c", number) for number in range(50)])])

    assert laid_out.report.key_report is not None
    assert (scattered.report.modulus, scattered.report.key_report is None) == (1, False)
    assert too_many.report.key_report is None


@pytest.mark.parametrize("count", [10, 250_000])
def test_repeated_digests_are_found_among_few_and_many(count: int) -> None:
    """A key that comes twice in a large task would be in the table twice."""
    different = pc.multiply(pa.array(range(1, count + 1), pa.uint64()), pa.scalar(0x9E3779B97F4A7C15, pa.uint64()))
    twice = pa.concat_arrays([different, different.slice(7, 1)])

    assert repeated(different) is None
    assert pc.indices_nonzero(repeated(twice)).to_pylist() == [7, count]


def test_a_task_without_rows_reports_no_keys() -> None:
    """An empty partition would fail the write."""
    output = run_task(feed(), [sent([])])

    assert (output.report.count, output.files, output.deleted) == (0, [], set())


def marked(rows: list[Row], **changed: Any) -> TaskOutput:
    """Return what a task makes of events if deletes leave rows."""
    return run_task(feed(keeps_deleted=True, **changed), [sent(rows)], schema=MARKED, added=ADDED)


def test_deletes_that_are_kept_are_rows_with_a_mark() -> None:
    """A user who asked to keep deleted rows would lose them, or could not tell them from others."""
    rows = [event("c", 1, lsn=1), event("d", 2, 7, lsn=2), event("-U", 3, lsn=3), event("+U", 4, lsn=3)]

    output = marked(rows)

    kept = [(row["id"], row["amount"], row["gone"], row["_operation"]) for file in output.files for row in file]
    assert kept == [
        (1, 1, False, "insert"),
        (2, 7, True, "delete"),
        (3, 1, True, "update_before"),
        (4, 1, False, "update"),
    ]
    assert output.deleted == {(number, "EU") for number in (1, 2, 3, 4)}
    assert decode_key_report(output.report.key_report or b"")["rank"].to_pylist() == [2, 1, 0, 2]


def test_a_key_with_a_kept_delete_has_one_row() -> None:
    """A key would be in the table with a mark and without one."""
    again = [event("d", 1, 5, lsn=1), event("c", 1, 6, lsn=2)]
    twice = [event("d", 2, 5, lsn=1), event("d", 2, 5, lsn=1), event("-U", 2, 6, lsn=1), event("c", 2, 7, lsn=0)]

    rows = [row for file in marked([*again, *twice]).files for row in file]

    assert [(row["id"], row["amount"], row["gone"]) for row in rows] == [(1, 6, False), (2, 5, True)]


def test_a_kept_delete_needs_what_the_table_requires() -> None:
    """A stream would fail with a null in a column that its user never looked at, and without the way out."""
    with pytest.raises(
        SchemaMismatchError, match=r"Cannot keep deleted rows: column 'amount' is required .* 1 deletes"
    ):
        marked([event("c", 1), event("d", 2, None)])
    with pytest.raises(SchemaMismatchError, match="Cannot write a null into column 'amount'"):
        marked([event("c", 1, None)])


def test_a_mark_of_the_dataframe_is_written_over() -> None:
    """A required mark with nulls in the DataFrame would be refused, or keep what the source had in it."""
    sent_marks = [*SENT, pa.field("gone", pa.bool_())]
    rows = [event("c", 1, gone=True), event("d", 2, gone=None), event("u", 3, gone=None)]

    output = run_task(feed(keeps_deleted=True), [sent(rows, pa.schema(sent_marks))], schema=MARKED, added=ADDED)

    assert [row["gone"] for file in output.files for row in file] == [False, True, False]


def test_predicate_may_look_at_the_column_that_is_marked() -> None:
    """A flag that tells deletes would have been written over before anybody looked at it."""
    sent_marks = pa.schema([*SENT, pa.field("gone", pa.bool_())])
    rows = [event("u", 1, gone=True), event("u", 2, gone=None)]

    output = run_task(
        feed(keeps_deleted=True),
        [sent(rows, sent_marks)],
        schema=MARKED,
        added=ADDED,
        is_delete=lambda batch: batch.column("gone"),
    )

    kept = [(row["gone"], row["_operation"]) for file in output.files for row in file]
    assert kept == [(True, "delete"), (False, "update")]


def test_columns_are_filled_in_where_deletes_take_rows_away() -> None:
    """Upserts would lack the columns that tell of the write."""
    schema = Schema(*SCHEMA.fields, NestedField(5, "_epoch_id", LongType()), NestedField(6, "_operation", StringType()))
    added = AddedColumns(names=("_operation", "_epoch_id"), instant_us=0, number=3)

    by_words = run_task(feed(), [sent([event("c", 1), event("d", 2), event("r", 3)])], schema=schema, added=added)
    alike = run_task(feed(operation_column=None), [sent([event("d", 1)])], schema=schema, added=added)

    found = [(row["_operation"], row["_epoch_id"]) for file in by_words.files for row in file]
    assert found == [("insert", 3), ("read", 3)]
    assert [row["_operation"] for file in alike.files for row in file] == ["upsert"]
