"""Rows that cannot be written: each kind in each mode, replays, deaths between the commits, limits and counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import EqualTo
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
from support.tables.changes_by_others import (
    cherry_pick,
    expire,
    head_of,
    plain_table,
    rename,
    set_branch,
    set_columns,
)
from support.tables.sink import Row, Sink, arrow_batch, embedded_options, epoch, paths_of

from iceberg_ds.catalog.answers import ManyTablesRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit import together
from iceberg_ds.commit.commit import exceeded_limit
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
    RowCountError,
    SchemaMismatchError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.messages import WIRE_VERSION
from iceberg_ds.metrics.delivery import Reporting
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.multi_table.requeue import Target, pending_rows
from iceberg_ds.parsing import count_or_share
from iceberg_ds.plan import BadRowPolicy
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.planning.quarantine import quarantine_writes
from iceberg_ds.writers import bad_rows
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS, QUARANTINE_SCHEMA
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
    # A null would be read as a delete.
    "delete-when": Kind(
        table=Schema(PLAIN.fields[0], NestedField(2, "token", ice.UUIDType()), identifier_field_ids=[1]),
        columns=frame(id=LONG, TOKEN=TEXT),
        good={"id": 1, "TOKEN": UUID},
        bad={"id": 2, "TOKEN": "no uuid"},
        column="token",
        reason="malformed",
        options={"keys": ("id",), "delete_when": "token IS NULL"},
    ),
    "delete-when-of-marks": Kind(
        table=Schema(
            PLAIN.fields[0], NestedField(2, "token", ice.UUIDType()), NestedField(3, "gone", ice.BooleanType())
        ),
        columns=frame(id=LONG, token=TEXT),
        good={"id": 1, "token": UUID},
        bad={"id": 2, "token": "no uuid"},
        column="token",
        reason="malformed",
        options={"soft_delete_column": "gone", "delete_when": "token = 'no uuid'"},
    ),
    # The partition of null would be replaced.
    "partition-to-replace": Kind(
        table=Schema(PLAIN.fields[0], NestedField(2, "day", ice.DateType())),
        columns=frame(id=LONG, day=TEXT),
        good={"id": 1, "day": "2026-01-01"},
        bad={"id": 2, "day": "n/a"},
        column="day",
        reason="cast",
        spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")),
        mode=WriteMode.OVERWRITE,
        options={"overwrite_mode": "dynamic"},
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
    # A null that is bad is there, too: `requeue` would miss its column.
    assert json.loads(row["row"]).keys() == kind.bad.keys()
    assert json.loads(row["row"])["id"] == kind.bad["id"]
    check_clean(sink.table())


@BAD_KINDS
def test_bad_row_is_told_alike_if_spark_sends_large_offsets(sink: Sink, kind: Kind) -> None:
    """Text and bytes would land without a check: 30 digits as another number, `0x1F` as 31."""
    sink = made_for(sink, kind, "quarantine")
    batch = arrow_batch([kind.good, kind.bad], kind.columns)
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    columns = [column.cast(large.get(column.type, column.type)) for column in batch.columns]
    sent_rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    plan = sink.plan(kind.columns, kind.mode)

    commit(sink, [report_task(plan, [sent_rows], TaskAttempt(partition_id=0, task_attempt_id=7))])

    assert ids(sink) == [1]
    (row,) = quarantined(sink)
    assert row["reason"].startswith(f"{kind.reason}: ")


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
    assert [row["row"] for row in quarantined(sink) if row["epoch"] == 1] == ['{"id":"7","amount":"x"}']
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
                FaultPoint.COMMITTED,
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

    with pytest.raises(
        SchemaMismatchError, match=r"table db\.t__quarantine \(option 'quarantine-table'\), nothing was"
    ):
        commit(sink, messages)

    assert sink.ids() == []
    assert not any(path.exists() for path in paths_of(messages))


def test_quarantine_with_a_required_column_is_named(sink: Sink) -> None:
    """The user would look for the null in a table of another name, and in a column that no DataFrame has."""
    sink = quarantining(sink)
    made_so = pa.schema([field.with_nullable(field.name != "epoch") for field in QUARANTINE_SCHEMA])
    sink.catalog.raw.create_table(("db", "t__quarantine"), made_so)

    with pytest.raises(
        SchemaMismatchError, match=r"(?s)db\.t__quarantine \(option 'quarantine-table'\).*into column 'ep"
    ):
        write(sink, MIXED)

    assert sink.ids() == []


def test_quarantine_whose_commit_fails_keeps_the_rows_out_of_the_table(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bad rows would be lost, because the replay skips the table."""
    sink = quarantining(sink)
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: False))
    commit_one = together._commit_one

    def failing(catalog: CatalogClient, given: TableWrite, epoch_id: int | None) -> CommitResult:
        if given.table == "db.t__quarantine":
            raise CommitConflictError("others are faster")
        return commit_one(catalog, given, epoch_id)

    monkeypatch.setattr(together, "_commit_one", failing)
    messages = tasks(sink, MIXED, of_epoch=epoch(0))

    with pytest.raises(CommitConflictError, match=r"Nothing was committed to db\.t, because"):
        commit(sink, messages)

    assert sink.ids() == []
    assert not any(path.exists() for path in paths_of(messages))


def test_quarantine_lands_before_the_first_rows_of_a_branch(sink: Sink, dies_at: Callable[[FaultPoint], None]) -> None:
    """Such a write goes table by table in every catalog: the bad rows would be lost if the table landed alone."""
    sink = quarantining(sink)
    write(sink, MIXED)
    new = {"table": ("db", "new"), "branch": "dev", "create_branch": True, "quarantine_table": ("db", "bad")}
    new |= {"txn_app_id": "app", "txn_version": 1}
    other = replace(sink, options=replace(sink.options, **new, keys=("id",)))
    other = replace(other, options=replace(other.options, evolve_keys=True))

    dies_at(FaultPoint.QUARANTINED)
    with pytest.raises(KeyboardInterrupt):
        write(other, sent(GOOD, (None, "1", None)))
    assert (len(quarantined(sink, "bad")), sink.catalog.find_table(("db", "new"))) == (1, None)
    write(other, sent(GOOD, (None, "1", None)))

    assert [row["id"] for row in rows_of(other.table(), "dev")] == ["1"]
    assert [row["table"] for row in quarantined(sink, "bad")] == ["db.new"]


def test_quarantine_that_is_gone_when_tables_go_singly_keeps_the_rows_out_of_the_table(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table would land alone: the bad rows would be lost, because the replay skips the table."""
    sink = quarantining(sink, txn_app_id="app", txn_version=1)
    write(sink, MIXED, txn_app_id=None, txn_version=None)
    messages = tasks(sink, sent(("7", "1", None), ("8", "x", None)))

    def refuse(catalog: CatalogClient, _: object) -> None:
        catalog.raw.drop_table(("db", "t__quarantine"))
        raise ManyTablesRefusedError("there is no such route", is_lasting=True)

    with monkeypatch.context() as patched:
        patched.setattr(CatalogClient, "send_together", refuse)
        with pytest.raises(IcebergSinkError, match=r"Nothing was committed to db\.t, because the rows that cannot be"):
            commit(sink, messages)
    assert sink.ids() == [1, 6]
    write(sink, sent(("7", "1", None), ("8", "x", None)))

    assert sink.ids() == [1, 6, 7]
    assert [json.loads(row["row"])["id"] for row in quarantined(sink)] == ["8"]


def test_another_run_that_comes_between_keeps_the_rows_out_of_the_table(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bad rows may be others: those of this run would be lost."""
    sink = quarantining(sink, txn_app_id="app", txn_version=1)
    for can, number in ((False, "8"), (True, "9")):
        monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _, can=can: can))
        options = {"txn_version": int(number)}
        mine = tasks(sink, sent(("7", "1", None), (number, "x", None)), **options)
        theirs = tasks(sink, sent(("7", "1", None), (number, "y", None)), **options)
        quarantines, writes = quarantine_writes(sink.catalog, [TableWrite(commits=mine)], lambda _: sink.options)
        faster, _ = quarantine_writes(sink.catalog, [TableWrite(commits=theirs)], lambda _: sink.options)
        commit_tables(sink.catalog, faster)

        with pytest.raises(CommitConflictError, match="another run of the same epoch or version committed to it"):
            commit_tables(sink.catalog, writes, first=quarantines)

        assert not any(path.exists() for path in paths_of(mine))
    assert sink.ids() == []
    assert [json.loads(row["row"])["amount"] for row in quarantined(sink)] == ["y", "y"]


def other_type(sink: Sink, amount: Any) -> None:
    """Let others drop column `amount` and add it as another type."""
    schema = sink.table().schema()
    kept = [column for column in schema.fields if column.name != "amount"]
    set_columns(sink, *kept)
    set_columns(sink, *kept, NestedField(schema.highest_field_id + 1, "amount", amount))


BIG = sent(GOOD, ("2", "x", None), ("3", str(2**40), None))


@pytest.mark.parametrize("numbers", ["epochs", "versions"])
def test_repeated_epoch_that_the_table_has_adds_no_bad_rows(sink: Sink, numbers: str) -> None:
    """Rows that the table has would be in the quarantine, too, because others changed a column between the tries."""
    sink = quarantining(sink, **({"txn_app_id": "app", "txn_version": 1} if numbers == "versions" else {}))
    other_type(sink, ice.LongType())
    of_epoch = epoch(0) if numbers == "epochs" else None
    write(sink, BIG[::2], of_epoch=of_epoch)
    other_type(sink, ice.IntegerType())

    messages = tasks(sink, BIG[::2], of_epoch=of_epoch)
    result = commit(sink, messages)

    assert [message.counts.quarantined for message in messages] == [1]
    assert result.was_replayed
    assert sink.ids() == [1, 3]
    assert quarantined(sink) == []


@pytest.mark.parametrize("can", [True, False], ids=["together", "one-by-one"])
def test_second_driver_adds_no_bad_rows(sink: Sink, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:  # noqa: FBT001
    """A row that the first driver wrote would be in the quarantine, too."""
    sink = quarantining(sink)
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: can))
    write(sink, sent(GOOD), of_epoch=replace(epoch(0), run_id="A"))
    mine = tasks(sink, MIXED, of_epoch=replace(epoch(1), run_id="A"))
    write(sink, sent(("9", "1", None)), of_epoch=replace(epoch(1), run_id="B"))

    with pytest.raises(CommitConflictError, match="another live driver"):
        commit(sink, mine)

    assert sink.ids() == [1, 9]
    assert quarantined(sink) == []
    assert not any(path.exists() for path in paths_of(mine))


def die_after_the_quarantine(sink: Sink, dies_at: Callable[[FaultPoint], None], rows: list[Row]) -> None:
    """Let the quarantine table alone have an epoch."""
    dies_at(FaultPoint.QUARANTINED)
    with pytest.raises(KeyboardInterrupt):
        write(sink, rows, of_epoch=epoch(0))
    assert (sink.ids(), bool(quarantined(sink))) == ([], True)


@pytest.mark.parametrize("to", [ice.IntegerType(), ice.StringType()], ids=["more", "none"])
def test_repeated_epoch_with_other_bad_rows_is_refused_until_the_user_decides(
    sink: Sink, one_by_one: None, dies_at: Callable[[FaultPoint], None], to: Any
) -> None:
    """A row would be lost, or be both in the quarantine and in the table, because others changed a column."""
    sink = quarantining(sink)
    other_type(sink, ice.LongType())
    die_after_the_quarantine(sink, dies_at, BIG)
    before = quarantined(sink)
    other_type(sink, to)
    messages = tasks(sink, BIG, of_epoch=epoch(0))

    with pytest.raises(RefusedRowsError, match=r"other rows there.*'icebergsink\.last-epoch\.main\.") as refused:
        commit(sink, messages)
    assert (sink.ids(), quarantined(sink)) == ([], before)
    assert not any(path.exists() for path in paths_of(messages))
    # The rows would stay in the first one, and a requeue would write them once more.
    assert "quarantine-table" not in str(refused.value)

    # What the error says.
    name = replace(sink, options=replace(sink.options, table=("db", "t__quarantine")))
    plain_table(name).delete(EqualTo("epoch", 0))
    expire(name)
    with pytest.raises(RefusedRowsError, match="it cannot be told whether"):
        write(sink, BIG, of_epoch=epoch(0))
    with plain_table(name).transaction() as change:
        change.remove_properties(str(refused.value).partition("table property '")[2].partition("'")[0])
    write(sink, BIG, of_epoch=epoch(0))
    write(sink, BIG, of_epoch=epoch(0))
    assert one_by_one is None

    bad = [json.loads(row["row"])["id"] for row in quarantined(sink)]
    assert (sink.ids(), bad) == (([1], ["2", "3"]) if to == ice.IntegerType() else ([1, 2, 3], []))
    with pytest.raises(UnsupportedTableError, match="snapshots of its branch 'main' have expired"):
        list(pending_rows(plain_table(name), Target.of(sink.table().metadata, sink.options), after=None))


def test_repeated_epoch_with_the_same_bad_rows_in_other_tasks_goes_on(
    sink: Sink, one_by_one: None, dies_at: Callable[[FaultPoint], None]
) -> None:
    """Spark divides the rows of a repeated epoch otherwise: a healthy stream would stop."""
    sink = quarantining(sink)
    die_after_the_quarantine(sink, dies_at, MIXED)

    write(sink, MIXED[3:], MIXED[:3], of_epoch=epoch(0))

    assert one_by_one is None
    assert sink.ids() == [1, 6]
    assert len(quarantined(sink)) == 4


def test_repeated_epoch_whose_bad_rows_were_picked_goes_on(
    sink: Sink, one_by_one: None, dies_at: Callable[[FaultPoint], None]
) -> None:
    """The stream would stop, and be told of another run that there is not."""
    sink = quarantining(sink)
    write(sink, MIXED[1:2], of_epoch=epoch(7, "another"))
    name = replace(sink, options=replace(sink.options, table=("db", "t__quarantine")))
    before = head_of(name)
    die_after_the_quarantine(sink, dies_at, MIXED)
    picked = head_of(name)
    set_branch(name, "main", before)
    cherry_pick(name, picked)

    write(sink, MIXED, of_epoch=epoch(0))
    result = write(sink, MIXED, of_epoch=epoch(0))

    assert one_by_one is None
    assert result.was_replayed
    assert sink.ids() == [1, 6]
    assert len(quarantined(sink)) == 5


def test_numbers_that_begin_anew_with_their_table_are_told_apart(sink: Sink) -> None:
    """The bad rows would be skipped in silence, or the batch refused: the quarantine has those of the table before."""
    sink = quarantining(sink)
    for version in (0, 1):
        write(sink, sent(("1", f"old {version}", None)), txn_app_id="app", txn_version=version)
    sink.catalog.raw.drop_table(("db", "t"))
    sink.create(TABLE)

    for _ in range(2):
        for version in (0, 1):
            write(sink, sent(("1", f"new {version}", None)), txn_app_id="app", txn_version=version)

    amounts = sorted(json.loads(row["row"])["amount"] for row in quarantined(sink))
    assert amounts == ["new 0", "new 1", "old 0", "old 1"]


@pytest.mark.parametrize("numbers", ["epochs", "versions"])
def test_write_that_is_repeated_after_a_rename_finds_its_bad_rows(
    sink: Sink, one_by_one: None, dies_at: Callable[[FaultPoint], None], numbers: str
) -> None:
    """They would be there twice, or the stream would stop and say that others changed a column."""
    of_txn: dict[str, Any] = {"txn_app_id": "app", "txn_version": 1} if numbers == "versions" else {}
    sink = quarantining(sink, quarantine_table=("db", "bad"), **of_txn)
    of_epoch = epoch(0) if numbers == "epochs" else None
    dies_at(FaultPoint.QUARANTINED)
    with pytest.raises(KeyboardInterrupt):
        write(sink, MIXED, of_epoch=of_epoch)
    renamed = rename(sink, "db.renamed")

    for _ in range(2):
        write(renamed, MIXED, of_epoch=of_epoch)

    assert one_by_one is None
    assert renamed.ids() == [1, 6]
    assert len(quarantined(sink, "bad")) == 4


@pytest.mark.parametrize("numbers", ["epochs", "versions"])
def test_write_that_is_repeated_after_another_made_its_table_finds_its_bad_rows(
    sink: Sink, one_by_one: None, dies_at: Callable[[FaultPoint], None], numbers: str
) -> None:
    """They would be there twice: the table has another UUID than the one that the first try would have made."""
    of_txn: dict[str, Any] = {"txn_app_id": "app", "txn_version": 1} if numbers == "versions" else {}
    of_epoch, columns = (epoch(0) if numbers == "epochs" else None), frame(id=LONG, value=LONG)
    sink = replace(sink, options=replace(sink.options, on_bad_row="quarantine", keys=("id",), **of_txn))
    rows = [{"id": 1, "value": 1}, {"id": None, "value": 2}]
    dies_at(FaultPoint.QUARANTINED)
    with pytest.raises(KeyboardInterrupt):
        write(sink, rows, schema=columns, of_epoch=of_epoch)
    schema = Schema(NestedField(1, "id", ice.LongType(), required=True), NestedField(2, "value", ice.LongType()))
    sink.create(Schema(*schema.fields, identifier_field_ids=[1]))

    write(sink, rows, schema=columns, of_epoch=of_epoch)

    assert one_by_one is None
    assert (ids(sink), len(quarantined(sink))) == ([1], 1)


def test_new_checkpoint_is_accepted_for_the_quarantine_without_its_rows(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream would stop at its first bad row, long after the run that accepted the checkpoint."""
    sink = quarantining(sink, stream_name="feed")
    old, new = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"
    write(sink, MIXED, of_epoch=epoch(0, old))
    write(sink, sent(GOOD), of_epoch=epoch(0, new), accept_new_checkpoint=True)
    write(sink, sent(GOOD), of_epoch=epoch(1, new))
    with caplog.at_level(logging.WARNING):
        write(sink, MIXED, of_epoch=epoch(2, new))

    assert len(quarantined(sink)) == 8
    assert "has rows of another query" not in caplog.text
    with pytest.raises(CommitConflictError, match="the stream 'feed' is written by another query"):
        write(sink, MIXED, of_epoch=epoch(1, old))
    assert len(quarantined(sink)) == 8


def test_catalog_that_cannot_be_reached_for_a_moment_is_asked_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """A stream would stop where a commit waits for the catalog."""
    sink = quarantining(sink)
    messages = tasks(sink, MIXED, of_epoch=epoch(0))
    find, left = CatalogClient.find_table, iter([True, True])

    def failing(catalog: CatalogClient, identifier: Sequence[str]) -> Any:
        if next(left, False):
            raise CatalogError("no route to host")
        return find(catalog, identifier)

    monkeypatch.setattr(CatalogClient, "find_table", failing)
    commit(sink, messages)

    assert len(waits) == 2
    assert (sink.ids(), len(quarantined(sink))) == ([1, 6], 4)


@pytest.mark.parametrize(
    ("most", "is_refused"),
    [("3", True), ("4", False), ("66.6%", True), ("67%", False), ("0", True), ("0%", True), ("100%", False)],
)
@pytest.mark.parametrize("mode", ["quarantine", "drop"])
def test_too_many_bad_rows_commit_nothing_anywhere(sink: Sink, mode: str, most: str, is_refused: bool) -> None:  # noqa: FBT001
    """A source that broke as a whole would be written into the quarantine as a whole."""
    sink = quarantining(sink, mode, max_bad_rows=count_or_share(most))
    taken: list[CommitReport] = []
    sink.catalog.reporting = Reporting([("the list", taken.append)])
    messages = tasks(sink, MIXED, [])

    if not is_refused:
        commit(sink, messages)
        assert sink.ids() == [1, 6]
        return
    with pytest.raises(RefusedRowsError, match=r"nothing was committed: 4 of 6 rows cannot be written \(cast: 2, mal"):
        commit(sink, messages)
    assert [(report.outcome, sum(report.tasks.bad_rows.values())) for report in taken] == [("failed", 4)]
    assert sink.ids() == []
    assert quarantined(sink) == []
    assert not any(path.exists() for path in paths_of(messages))


@pytest.mark.parametrize("percent", [*range(100)])
def test_share_allows_as_many_rows_as_it_says(percent: int) -> None:
    """A write with as many bad rows as its limit allows would fail, because no float is 29 hundredths."""
    policy = BadRowPolicy(mode="drop", most_share=Decimal(count_or_share(f"{percent}%")))
    for received in (100, 700, 2_000, 10**12):
        most = percent * received // 100
        assert exceeded_limit(policy, most, received) is None
        assert exceeded_limit(policy, most + 1, received) == f"{percent}%"


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
    assert quarantined(sink)[0]["row"] == json.dumps({"id": "1", "amount": secret}, separators=(",", ":"))


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

    with pytest.raises(SchemaMismatchError, match="column '_errors' is what on-bad-row=null fills in"):
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

    with pytest.raises(SchemaMismatchError, match=r"in the DataFrame and (int|bigint) in the table"):
        sink.plan(columns)


def test_type_of_the_quarantine_is_what_spark_says() -> None:
    """The driver would plan other columns than the tasks send."""
    columns = StructType.fromJson(json.loads(QUARANTINE_COLUMNS))

    assert columns == frame(
        row=TEXT, table=TEXT, columns=spark.ArrayType(TEXT), reason=TEXT, epoch=LONG, time=spark.TimestampType()
    )
    assert WIRE_VERSION >= 11
