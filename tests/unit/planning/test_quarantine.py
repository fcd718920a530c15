"""Rows that cannot be written: each kind in each mode, replays, deaths between the commits, limits and counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE
from support.tables.bad_rows import SENT, TABLE, UUID, commit, quarantined, quarantining, reasons, sent, tasks, write
from support.tables.sink import Row, Sink, embedded_options, epoch, paths_of

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.together import TableWrite
from iceberg_ds.errors import (
    CommitConflictError,
    CommitMessageError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
    RowCountError,
    SchemaMismatchError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.messages import WIRE_VERSION
from iceberg_ds.planning import quarantine
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers import bad_rows
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

LONG, TEXT = spark.LongType(), spark.StringType()
GOOD = ("1", "10", UUID)
MIXED = sent(GOOD, ("x", "10", None), (None, "10", None), ("4", "1e3", None), ("5", "10", "no uuid"), ("6", None, None))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of row that cannot be written: a table, the columns sent, a good row, and one that is bad."""

    table: Schema
    columns: StructType
    good: Row
    bad: Row
    column: str | None
    reason: str
    spec: PartitionSpec | None = None
    mode: WriteMode = WriteMode.APPEND
    options: dict[str, Any] = field(default_factory=dict)
    can_be_null: bool = False


def frame(**columns: spark.DataType) -> StructType:
    """Return columns of a DataFrame."""
    return StructType([StructField(name, data_type) for name, data_type in columns.items()])


PLAIN = Schema(NestedField(1, "id", ice.LongType(), required=True), NestedField(2, "value", ice.IntegerType()))
KEYED = Schema(*PLAIN.fields, identifier_field_ids=[1])
OF_FEED = frame(id=LONG, value=spark.IntegerType(), op=TEXT)
BY_KEYS = {"keys": ("id",), "operation_column": "op"}
NAMED = Schema(NestedField(1, "id", ice.LongType(), required=True), NestedField(2, "name", ice.StringType()))
INNER = spark.StructType([StructField("n", LONG)])
NESTED = Schema(
    NestedField(1, "id", ice.LongType(), required=True),
    NestedField(
        2,
        "tags",
        ice.ListType(3, ice.StructType(NestedField(4, "n", ice.LongType(), required=True)), element_required=True),
    ),
)
KINDS = {
    "required": Kind(
        table=PLAIN,
        columns=frame(id=LONG),
        good={"id": 1},
        bad={"id": None},
        column="id",
        reason="required",
    ),
    "required-inside": Kind(
        table=NESTED,
        columns=frame(id=LONG, tags=spark.ArrayType(INNER)),
        good={"id": 1, "tags": [{"n": 1}]},
        bad={"id": 2, "tags": [{"n": 1}, {"n": None}]},
        column="tags",
        reason="required",
        can_be_null=True,
    ),
    "overflow": Kind(
        table=PLAIN,
        columns=frame(id=LONG, value=LONG),
        good={"id": 1, "value": 5},
        bad={"id": 2, "value": 2**40},
        column="value",
        reason="cast",
        can_be_null=True,
    ),
    "text": Kind(
        table=PLAIN,
        columns=frame(id=LONG, value=TEXT),
        good={"id": 1, "value": "5"},
        bad={"id": 2, "value": "five"},
        column="value",
        reason="cast",
        can_be_null=True,
    ),
    "uuid": Kind(
        table=TABLE,
        columns=frame(id=LONG, token=TEXT),
        good={"id": 1, "token": UUID},
        bad={"id": 2, "token": "no uuid"},
        column="token",
        reason="malformed",
        can_be_null=True,
    ),
    "time": Kind(
        table=Schema(PLAIN.fields[0], NestedField(2, "at", ice.TimeType())),
        columns=frame(id=LONG, at=TEXT),
        good={"id": 1, "at": "10:00:00"},
        bad={"id": 2, "at": "25:00"},
        column="at",
        reason="malformed",
        can_be_null=True,
    ),
    "fixed": Kind(
        table=Schema(PLAIN.fields[0], NestedField(2, "raw", ice.FixedType(2))),
        columns=frame(id=LONG, raw=spark.BinaryType()),
        good={"id": 1, "raw": b"ab"},
        bad={"id": 2, "raw": b"abc"},
        column="raw",
        reason="malformed",
        can_be_null=True,
    ),
    "operation": Kind(
        table=KEYED,
        columns=OF_FEED,
        good={"id": 1, "value": 5, "op": "c"},
        bad={"id": 2, "value": 5, "op": "?"},
        column="op",
        reason="operation",
        options=BY_KEYS,
    ),
    "operation-of-append": Kind(
        table=Schema(PLAIN.fields[0], NestedField(2, "_operation", ice.StringType())),
        columns=frame(id=LONG, op=TEXT),
        good={"id": 1, "op": "c"},
        bad={"id": 2, "op": None},
        column="op",
        reason="operation",
        options={"operation_column": "op", "metadata_columns": ("_operation",)},
    ),
    "key": Kind(
        table=KEYED,
        columns=OF_FEED,
        good={"id": 1, "value": 5, "op": "c"},
        bad={"id": None, "value": 5, "op": "d"},
        column="id",
        reason="key",
        options=BY_KEYS,
    ),
    "range": Kind(
        table=PLAIN,
        columns=frame(id=LONG, value=TEXT),
        good={"id": 1, "value": "5"},
        bad={"id": 2, "value": "7"},
        column=None,
        reason="range",
        mode=WriteMode.OVERWRITE,
        options={"replace_where": "value = 5"},
    ),
    "partition": Kind(
        table=PLAIN,
        columns=frame(id=LONG, value=spark.IntegerType()),
        good={"id": 1, "value": 5},
        bad={"id": 2, "value": -(2**31)},
        column="value",
        reason="partition",
        spec=PartitionSpec(PartitionField(2, 1000, TruncateTransform(100), "value_trunc")),
        can_be_null=True,
    ),
}
BAD_KINDS = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
_TRIED = {"overflow", "operation", "range"}
SOME_KINDS = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=name, marks=() if name in _TRIED else EXHAUSTIVE) for name, kind in KINDS.items()],
)


def made_for(sink: Sink, kind: Kind, mode: str, **options: Any) -> Sink:
    """Return a sink with the table of a kind."""
    chosen = {**kind.options, "on_bad_row": mode, "accept_lost_rows": mode == "drop", **options}
    if mode == "null":
        chosen["schema_evolution"] = "add-columns"
    sink = replace(sink, options=replace(sink.options, **chosen))
    sink.create(kind.table, *([kind.spec] if kind.spec else []))
    return sink


def ids(sink: Sink) -> list[int]:
    """Return the ids of all rows, those hidden by equality deletes excluded."""
    return sorted(row["id"] for row in rows_of(sink.table()))


@pytest.fixture
def dies_at() -> Iterator[Callable[[FaultPoint], None]]:
    """Return a function that lets the process die, once, at a step."""

    def die_at(step: FaultPoint) -> None:
        def hear(reached: FaultPoint) -> None:
            if reached is step:
                listen(None)
                raise KeyboardInterrupt(step.name)

        listen(hear)

    yield die_at
    listen(None)


@BAD_KINDS
def test_bad_row_goes_into_the_quarantine_and_the_others_into_the_table(sink: Sink, kind: Kind) -> None:
    """One bad row would stop the stream, or be lost."""
    sink = made_for(sink, kind, "quarantine")

    result = write(sink, [kind.good, kind.bad], schema=kind.columns, mode=kind.mode)

    assert ids(sink) == [1]
    assert result.record_count == 1
    (row,) = quarantined(sink)
    assert row["columns"] == ([] if kind.column is None else [kind.column])
    assert row["reason"].startswith(f"{kind.reason}: ")
    assert row["table"] == "db.t"
    assert row["epoch"] is None
    assert row["time"] is not None
    assert json.loads(row["row"]).keys() == kind.bad.keys()
    assert json.loads(row["row"])["id"] == kind.bad["id"]
    check_clean(sink.table())


@SOME_KINDS
def test_bad_row_is_dropped_and_counted(sink: Sink, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    """A row would be lost without a trace."""
    sink = made_for(sink, kind, "drop")

    (message,) = tasks(sink, [kind.good, kind.bad], schema=kind.columns, mode=kind.mode)
    with caplog.at_level(logging.WARNING):
        commit(sink, [message])

    assert ids(sink) == [1]
    assert quarantined(sink) == []
    assert (message.counts.dropped, message.counts.quarantined) == (1, 0)
    told = [record.getMessage() for record in caplog.records if "cannot be written" in record.getMessage()]
    assert len(told) == 1
    assert f"{kind.reason}: 1" in told[0]
    assert "they are lost" in told[0]


@BAD_KINDS
def test_bad_value_becomes_null_or_is_refused(sink: Sink, kind: Kind) -> None:
    """A required column or a key would get a null, or the reason would be forgotten."""
    sink = made_for(sink, kind, "null")

    if not kind.can_be_null:
        with pytest.raises((SchemaMismatchError, RefusedRowsError)):
            write(sink, [kind.good, kind.bad], schema=kind.columns, mode=kind.mode)
        assert sink.ids() == []
        return
    write(sink, [kind.good, kind.bad], schema=kind.columns, mode=kind.mode)
    kept, nulled = sink.rows()
    assert (kept["id"], kept["_errors"] or None) == (1, None)
    assert kept[kind.column or ""] not in (None, [])
    assert nulled[kind.column or ""] in (None, [])  # PyIceberg reads a null list as an empty one
    (error,) = nulled["_errors"]
    assert (error["column"], error["change"]) == (kind.column, "NULLED")
    assert error["reason"].startswith(f"{kind.reason}: ")


@SOME_KINDS
def test_bad_row_fails_the_write_by_default(sink: Sink, kind: Kind) -> None:
    """The default would have become another one."""
    sink = made_for(sink, kind, "fail")

    with pytest.raises(IcebergSinkError):
        write(sink, [kind.good, kind.bad], schema=kind.columns, mode=kind.mode)

    assert sink.ids() == []


def test_null_of_a_required_column_cannot_be_made_null(sink: Sink) -> None:
    """The user would look for the option that helps."""
    sink = quarantining(sink, "null")

    with pytest.raises(SchemaMismatchError, match=r"column 'id', which is required.*on-bad-row=quarantine"):
        write(sink, sent((None, None, None)))
    with pytest.raises(SchemaMismatchError, match="no value of type long in column 'id', which is required"):
        write(sink, sent(("x", None, None)))


def test_each_bad_row_is_told_once_with_all_its_columns(sink: Sink) -> None:
    """Who mends a row would find its next fault only by writing it again."""
    sink = quarantining(sink)

    messages = tasks(sink, MIXED, sent(("x", "y", "z")), of_epoch=epoch(3))
    commit(sink, messages)

    assert sink.ids() == [1, 6]
    assert reasons(sink) == [
        (["amount"], "cast"),
        (["token"], "malformed"),
        (["id"], "cast"),
        (["id", "amount", "token"], "cast"),
        (["id"], "required"),
    ]
    assert {row["epoch"] for row in quarantined(sink)} == {3}
    assert [message.counts.quarantined for message in messages] == [4, 1]
    assert [dict(message.bad.counts) for message in messages if message.bad] == [
        {"required": 1, "cast": 2, "malformed": 1},
        {"cast": 1},
    ]


def test_write_without_a_bad_row_makes_no_quarantine(sink: Sink) -> None:
    """Every table would get an empty one beside it."""
    sink = quarantining(sink)

    (message,) = tasks(sink, sent(GOOD))
    commit(sink, [message])

    assert message.bad is None
    assert sink.ids() == [1]
    assert not sink.catalog.raw.table_exists(("db", "t__quarantine"))


def test_rows_that_are_all_bad_land_in_the_quarantine_alone(sink: Sink) -> None:
    """They would be lost because the table gets no snapshot."""
    sink = quarantining(sink)

    write(sink, sent(("x", None, None)), of_epoch=epoch(0))
    write(sink, sent(("x", None, None)), of_epoch=epoch(0))

    assert sink.ids() == []
    assert reasons(sink) == [(["id"], "cast")]


@pytest.mark.parametrize("can", [True, False], ids=["together", "one-by-one"])
def test_replay_changes_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:  # noqa: FBT001
    """Rows would be in the quarantine twice, or be lost from it."""
    sink = quarantining(sink)
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: can))
    write(sink, MIXED, of_epoch=epoch(0))
    before = (sink.ids(), quarantined(sink))

    result = write(sink, MIXED, of_epoch=epoch(0))
    write(sink, sent(("7", "x", None)), of_epoch=epoch(1))

    assert result.was_replayed
    assert before == ([1, 6], [row for row in quarantined(sink) if row["epoch"] == 0])
    assert [row["row"] for row in quarantined(sink) if row["epoch"] == 1] == ['{"id":"7","amount":"x","token":null}']
    check_clean(sink.table())


@pytest.mark.parametrize("can", [True, False], ids=["together", "one-by-one"])
@pytest.mark.parametrize(
    "step",
    [
        FaultPoint.QUARANTINED,
        FaultPoint.TABLES_ANSWERED,
        *(
            pytest.param(step, marks=EXHAUSTIVE)
            for step in (
                FaultPoint.COMMIT_BEGUN,
                FaultPoint.MANIFESTS_WRITTEN,
                FaultPoint.REQUEST_ANSWERED,
                FaultPoint.TABLES_CREATED,
                FaultPoint.TABLES_PREPARED,
                FaultPoint.LANDED,
            )
        ),
    ],
)
def test_driver_that_dies_between_the_commits_finishes_forward(
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    dies_at: Callable[[FaultPoint], None],
    step: FaultPoint,
    can: bool,  # noqa: FBT001
) -> None:
    """The repeated epoch would double rows in one table, or lose them from the other."""
    sink = quarantining(sink)
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: can))
    messages = tasks(sink, MIXED, of_epoch=epoch(0))

    dies_at(step)
    try:
        commit(sink, messages)
    except KeyboardInterrupt:
        if sink.ids():
            assert len(quarantined(sink)) == 4, "the table had its rows before the quarantine had the others"
    listen(None)
    write(sink, MIXED, of_epoch=epoch(0))

    assert sink.ids() == [1, 6]
    assert len(quarantined(sink)) == 4


def test_together_both_tables_get_their_rows_or_none_does(sink: Sink) -> None:
    """A reader would see the rows of an epoch that lacks the others."""
    sink = quarantining(sink)
    write(sink, MIXED, of_epoch=epoch(0))
    assert sink.catalog.takes_many_tables
    before = len(quarantined(sink))
    messages = tasks(sink, MIXED, of_epoch=epoch(1))
    refused = [
        replace(one, write=replace(one.write, table_uuid="0b9f2c1e-0000-4222-8333-444455556666")) for one in messages
    ]

    with pytest.raises(IcebergSinkError):
        commit(sink, refused)

    assert sink.ids() == [1, 6]
    assert len(quarantined(sink)) == before


def test_quarantine_that_cannot_be_written_keeps_the_rows_out_of_the_table(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bad rows would be lost, because the replay skips the table."""
    sink = quarantining(sink)
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: False))
    of_others = Schema(NestedField(1, "x", ice.LongType(), required=True))
    replace(sink, options=replace(sink.options, table=("db", "t__quarantine"))).create(of_others)
    messages = tasks(sink, MIXED, of_epoch=epoch(0))

    with pytest.raises(SchemaMismatchError, match="t__quarantine"):
        commit(sink, messages)

    assert sink.ids() == []
    assert not any(path.exists() for path in paths_of(messages))


def test_quarantine_whose_commit_fails_keeps_the_rows_out_of_the_table(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bad rows would be lost, because the replay skips the table."""
    sink = quarantining(sink)
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: False))
    commit_tables = quarantine.commit_tables

    def failing(catalog: CatalogClient, writes: Sequence[TableWrite], **choices: Any) -> list[CommitResult]:
        if writes[0].table == "db.t__quarantine":
            raise CommitConflictError("others are faster")
        return commit_tables(catalog, writes, **choices)

    monkeypatch.setattr(quarantine, "commit_tables", failing)
    messages = tasks(sink, MIXED, of_epoch=epoch(0))

    with pytest.raises(CommitConflictError, match=r"Nothing was committed to db\.t, because"):
        commit(sink, messages)

    assert sink.ids() == []
    assert not any(path.exists() for path in paths_of(messages))


@pytest.mark.parametrize(
    ("most", "is_refused"), [(3, True), (4, False), (0.5, True), (0.7, False), (0, True), (0.0, True), (1.0, False)]
)
@pytest.mark.parametrize("mode", ["quarantine", "drop"])
def test_too_many_bad_rows_commit_nothing_anywhere(sink: Sink, mode: str, most: float, is_refused: bool) -> None:  # noqa: FBT001
    """A source that broke as a whole would be written into the quarantine as a whole."""
    sink = quarantining(sink, mode, max_bad_rows=most)
    messages = tasks(sink, MIXED, [])

    if not is_refused:
        commit(sink, messages)
        assert sink.ids() == [1, 6]
        return
    with pytest.raises(RefusedRowsError, match=r"nothing was committed: 4 of 6 rows cannot be written \(cast: 2, mal"):
        commit(sink, messages)
    assert sink.ids() == []
    assert quarantined(sink) == []
    assert not any(path.exists() for path in paths_of(messages))


def test_nulled_rows_count_for_the_limit(sink: Sink) -> None:
    """A table would fill with nulls unseen."""
    sink = quarantining(sink, "null", max_bad_rows=1)
    of = [row for row in MIXED if row["id"] not in (None, "x")]

    with pytest.raises(RefusedRowsError, match="2 of 4 rows cannot be written"):
        write(sink, of)

    assert sink.ids() == []


def test_secret_values_are_in_no_log_and_no_error(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """The values of bad rows would be in logs, which others read."""
    sink = quarantining(sink, max_bad_rows=1)
    secret = "hunter2hunter2"  # noqa: S105  # a value of a row

    with caplog.at_level(logging.DEBUG):
        write(sink, sent(("1", secret, None)))
        with pytest.raises(RefusedRowsError) as refused:
            write(sink, sent(("1", secret, None), ("2", None, secret)))

    assert secret not in caplog.text
    assert secret not in str(refused.value)
    assert quarantined(sink)[0]["row"] == json.dumps(
        {"id": "1", "amount": secret, "token": None}, separators=(",", ":")
    )


def test_lost_bad_row_is_found_by_the_count(sink: Sink) -> None:
    """A row would vanish between the task and the quarantine."""
    sink = quarantining(sink)
    (message,) = tasks(sink, MIXED)
    assert message.bad is not None
    assert message.bad.rows is not None
    (other,) = tasks(sink, MIXED[1:4])
    assert other.bad is not None
    assert other.bad.rows is not None
    fewer = replace(message.bad.rows, arrow_stream=other.bad.rows.arrow_stream)

    with pytest.raises(RowCountError, match="tasks sent 4 rows, and 3 are accounted for"):
        commit(sink, [replace(message, bad=replace(message.bad, rows=fewer))])
    with pytest.raises(RowCountError, match="1 would be lost"):
        commit(sink, [replace(message, bad=replace(message.bad, rows=other.bad.rows))])

    assert sink.ids() == []
    assert quarantined(sink) == []


def test_lost_dropped_row_is_found_by_the_count(sink: Sink) -> None:
    """More rows would be dropped than are told."""
    sink = quarantining(sink, "drop")
    (message,) = tasks(sink, MIXED)

    with pytest.raises(RowCountError, match="1 would be lost"):
        commit(sink, [replace(message, counts=replace(message.counts, dropped=3))])


def test_rows_for_the_quarantine_that_nobody_writes_are_refused(sink: Sink) -> None:
    """A path of the code that forgets them would lose them."""
    sink = quarantining(sink)

    with pytest.raises(CommitMessageError, match="rows for the quarantine table"):
        sink.commit(tasks(sink, MIXED))

    assert sink.ids() == []


def test_more_bad_rows_than_the_driver_can_take_fail_the_task(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver would run out of memory."""
    sink = quarantining(sink)
    monkeypatch.setattr(bad_rows, "MOST_LOOSE_BYTES", 100)

    with pytest.raises(DataFileError, match="a task has more than 0 MiB of rows that cannot be written: 4 so far"):
        tasks(sink, MIXED)


def test_one_quarantine_of_several_tables_keeps_the_rows_of_all(sink: Sink) -> None:
    """The second table's rows would be taken for a replay of the first one's."""
    options = {"quarantine_table": ("db", "bad"), "txn_app_id": "app", "txn_version": 1}
    first = quarantining(sink, **options)
    second = replace(first, options=replace(first.options, table=("db", "other")))
    second.create(TABLE)

    for _ in range(2):
        write(first, MIXED)
        write(second, sent(("x", None, None)))

    assert first.ids() == [1, 6]
    assert sorted(row["table"] for row in quarantined(sink, "bad")) == ["db.other", *["db.t"] * 4]


def test_text_that_is_no_utf8_is_kept_readable(sink: Sink) -> None:
    """The quarantine could not be read."""
    table = Schema(NAMED.fields[0], NAMED.fields[1])
    sink = replace(sink, options=replace(sink.options, on_bad_row="quarantine"))
    sink.create(table, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    columns = frame(id=LONG, name=TEXT)
    plan = sink.plan(columns)
    raw = pa.array([b"ok", b'\xff\\x"', None], pa.binary())
    names = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), names], names=["id", "name"])

    message = report_task(plan, [batch], TaskAttempt(partition_id=0, task_attempt_id=7))
    commit(sink, [message])

    assert sink.ids() == [1, 3]
    (row,) = quarantined(sink)
    assert row["reason"].startswith("partition: column 'name'")
    assert json.loads(row["row"]) == {"id": 2, "name": '\udcff\\x"'}


def test_columns_of_other_rows_than_written_ones_may_be_anything(sink: Sink) -> None:
    """A delete of a change feed, which has nulls beside its key, would be quarantined."""
    table = Schema(*KEYED.fields, NestedField(3, "name", ice.StringType(), required=True), identifier_field_ids=[1])
    sink = replace(sink, options=replace(sink.options, on_bad_row="quarantine", **BY_KEYS))
    sink.create(table)
    columns = frame(id=TEXT, value=TEXT, name=TEXT, op=TEXT)
    first = [{"id": "1", "value": "1", "name": "a", "op": "c"}, {"id": "2", "value": "2", "name": "b", "op": "c"}]
    second = [
        {"id": "1", "value": "gone", "name": None, "op": "d"},
        {"id": "x", "value": None, "name": None, "op": "d"},
        {"id": "3", "value": None, "name": None, "op": "c"},
    ]

    write(sink, first, schema=columns)
    write(sink, second, schema=columns)

    assert ids(sink) == [2]
    assert reasons(sink) == [(["name"], "required"), (["id"], "cast")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"on_bad_row": "drop"}, "give accept-lost-rows=true"),
        ({"accept_lost_rows": "true"}, "needs 'on-bad-row=drop'"),
        ({"quarantine_table": "db.q"}, "needs 'on-bad-row=quarantine'"),
        ({"on_bad_row": "drop", "accept_lost_rows": "true", "quarantine_table": "db.q"}, "needs 'on-bad-row=quar"),
        ({"max_bad_rows": "5"}, "needs 'on-bad-row' as null"),
        ({"on_bad_row": "quarantine", "max_bad_rows": "101%"}, "expected a whole number, 0 or more, or a share"),
        ({"on_bad_row": "quarantine", "max_bad_rows": "-1"}, "expected a whole number, 0 or more, or a share"),
        ({"on_bad_row": "quarantine", "max_bad_rows": "nan%"}, "expected a whole number, 0 or more, or a share"),
        ({"on_bad_row": "skip"}, "expected one of fail, null, quarantine, drop"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, str], problem: str) -> None:
    """Rows would be lost by an option that was misspelt."""
    with pytest.raises(OptionError, match=problem):
        embedded_options(tmp_path, **options)


def test_table_is_not_its_own_quarantine(sink: Sink) -> None:
    """Bad rows would come back into the table."""
    sink = quarantining(sink, quarantine_table=("t",))

    with pytest.raises(OptionError, match="names the table itself"):
        sink.plan(SENT)


def test_errors_column_must_be_allowed_and_free(sink: Sink) -> None:
    """The reasons would be lost, or the user's own column overwritten."""
    sink = quarantining(sink, "null", schema_evolution="strict")

    with pytest.raises(SchemaMismatchError, match="column '_errors'"):
        sink.plan(SENT)
    with pytest.raises(OptionError, match="'_errors' is in the DataFrame, and option 'on-bad-row' fills it in"):
        sink.plan(StructType([*SENT, StructField("_errors", TEXT)]), schema_evolution="add-columns")


@pytest.mark.parametrize("column", ["sequence", "nested"])
def test_columns_that_are_not_cast_are_refused_as_before(sink: Sink, column: str) -> None:
    """Another row would win than the feed says, or a nested value would be lost."""
    sink = replace(sink, options=replace(sink.options, on_bad_row="quarantine", keys=("id",), sequence_by=("value",)))
    if column == "sequence":
        sink.create(KEYED)
        columns = frame(id=LONG, value=TEXT)
    else:
        sink = replace(sink, options=replace(sink.options, keys=None, sequence_by=()))
        sink.create(NESTED)
        columns = frame(id=LONG, tags=spark.ArrayType(spark.StructType([StructField("n", TEXT)])))

    with pytest.raises(SchemaMismatchError, match=r"in the DataFrame and (int|long) in the table"):
        sink.plan(columns)


def test_type_of_the_quarantine_is_what_spark_says() -> None:
    """The driver would plan other columns than the tasks send."""
    columns = StructType.fromJson(json.loads(QUARANTINE_COLUMNS))

    assert columns == frame(
        row=TEXT, table=TEXT, columns=spark.ArrayType(TEXT), reason=TEXT, epoch=LONG, time=spark.TimestampType()
    )
    assert WIRE_VERSION >= 11
