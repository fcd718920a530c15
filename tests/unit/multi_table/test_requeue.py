"""Which rows of a quarantine table a requeue takes: those that came since the last one, or none if that is unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import NestedField, StringType
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.checks.reader import rows_of
from support.spark.requeued_frame import BIG, Frame, Session, mend, requeued
from support.tables.bad_rows import SENT, TABLE, commit, quarantined, quarantining, sent, write
from support.tables.changes_by_others import (
    cherry_pick,
    drop_branch,
    expire,
    head_of,
    plain_catalog,
    plain_table,
    register_edited,
    rename,
    set_branch,
    set_columns,
)
from support.tables.sink import Sink, embedded_options, epoch

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import CommitConflictError, OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.multi_table.requeue import Passed, RequeueResult, Target, pending_rows, requeue, row_texts
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS, QUARANTINE_SCHEMA
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

TYPED = StructType(
    [
        StructField("id", spark.LongType()),
        StructField("amount", spark.IntegerType()),
        StructField("token", spark.StringType()),
    ]
)


@pytest.fixture
def quarantine(sink: Sink) -> Table:
    """Return a quarantine table with a bad row of each of three epochs, one of them of another table."""
    first = quarantining(sink)
    write(first, sent(("a", None, None)), of_epoch=epoch(0))
    other = quarantining(
        replace(sink, options=replace(sink.options, table=("db", "other"))), quarantine_table=("t__quarantine",)
    )
    write(other, sent(("b", None, None)), of_epoch=epoch(0, "another"))
    write(first, sent(("c", None, None), ("d", None, None)), of_epoch=epoch(1))
    return load(sink)


def load(sink: Sink) -> Table:
    """Load the quarantine table."""
    return sink.catalog.raw.load_table(("db", "t__quarantine"))


def pending(sink: Sink, *, after: int | None = None) -> list[tuple[int, list[str | None]]]:
    """Return the number and the ids of each batch of rows of `db.t`."""
    target = Target.of(sink.table().metadata, replace(sink.options, txn_app_id=None, txn_version=None))
    return [
        (number, [row_texts(text)["id"] for text in rows.column("row").to_pylist()])
        for number, rows in pending_rows(load(sink), target, after=after)
    ]


def write_as_told(sink: Sink, refusal: pytest.ExceptionInfo[UnsupportedTableError]) -> None:
    """Write all rows of `db.t` as of the snapshot that an error names, in the batch that it names."""
    told = re.search(r"as of its snapshot (\d+), .*txn-app-id='(.+)' and txn-version=(\d+)", str(refusal.value))
    assert told is not None
    texts = load(sink).scan(snapshot_id=int(told[1])).to_arrow()["row"].to_pylist()
    write(sink, [row_texts(text) for text in texts], txn_app_id=told[2], txn_version=int(told[3]))


@contextmanager
def dying(step: FaultPoint) -> Iterator[None]:
    """Let the process die at a step."""

    def hear(reached: FaultPoint) -> None:
        if reached is step:
            raise KeyboardInterrupt

    listen(hear)
    try:
        yield
    finally:
        listen(None)


def test_null_that_was_sent_comes_back_as_null(sink: Sink) -> None:
    """The default of its column would take its place, where the other rows of the write have the null."""
    made = quarantining(sink, format_version="3")
    fields, text = made.table().schema().fields, StringType()
    defaults = NestedField(7, "kind", text, initial_default="old", write_default="new")
    set_columns(made, *fields, defaults)
    schema = StructType([*SENT, StructField("kind", spark.StringType())])
    rows = [{"id": number, "amount": amount, "kind": None} for number, amount in (("1", "1"), ("2", BIG))]
    write(made, [{"token": None, **row} for row in rows], schema=schema)
    write(made, sent(("3", BIG, None)))
    mend(made)

    requeued(made)

    assert {row["id"]: row["kind"] for row in rows_of(made.table())} == {1: None, 2: None, 3: "new"}


def test_row_of_nulls_does_not_stand_in_the_way_of_others(sink: Sink) -> None:
    """Its JSON has no column: every later call would fail at it, and no mended row be written any more."""
    made = quarantining(sink)
    fields = made.table().schema().fields
    set_columns(made, *(NestedField(one.field_id, one.name, one.field_type) for one in fields))
    nulls = {"id": None, "amount": None, "token": None}
    write(made, [{**nulls, "id": "1"}, nulls], mode=WriteMode.OVERWRITE, replace_where="id = 1")
    write(made, sent(("3", BIG, None)))
    mend(made)
    assert "{}" in [row["row"] for row in quarantined(made)]

    assert requeued(made).rows == 2
    assert sorted(str(row["id"]) for row in rows_of(made.table())) == ["1", "3", "None"]


def test_quarantine_table_whose_columns_were_renamed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows could not be written, and a library would say why."""
    made = quarantining(sink)
    write(made, sent(("3", BIG, None)))
    mend(made)
    with load(made).update_schema() as change:
        change.rename_column("row", "ROW")
    write(made, sent(("4", BIG + "0" * 20, None)))
    read = pq.read_table

    def compacted(file: object) -> pa.Table:
        found = read(file)
        return found.rename_columns(["source", *found.column_names[1:]])

    with monkeypatch.context() as patched:
        patched.setattr(pq, "read_table", compacted)
        with pytest.raises(UnsupportedTableError, match="its column 'row' was renamed or dropped"):
            requeued(made)
    assert requeued(made).rows == 2


@pytest.mark.parametrize("is_together", [True, False])
def test_row_that_a_call_at_the_same_time_wrote_stays_out_of_the_quarantine(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, *, is_together: bool
) -> None:
    """The next call would write it a second time."""
    monkeypatch.setattr(CatalogClient, "takes_many_tables", is_together)
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    tasks_left = 2  # that of the table, which was looked at after it, and that of the quarantine

    def other_call(step: FaultPoint) -> None:
        nonlocal tasks_left
        tasks_left -= step is FaultPoint.TASK_WRITTEN
        if not tasks_left:
            listen(None)
            mend(sink)
            requeued(sink)

    listen(other_call)
    with pytest.raises(CommitConflictError, match=r"another run .* committed to db\.t at the same"):
        requeued(sink)

    assert (sink.ids(), len(quarantined(sink))) == ([1], 1)
    assert requeued(sink).rows == 0
    assert sink.ids() == [1]


@pytest.mark.parametrize("word", ["quarantine", "Quarantine"])
def test_rows_that_are_still_bad_are_taken_up_again(sink: Sink, word: str) -> None:
    """They would go to another quarantine table than the one that the call names, and be forgotten."""
    name = ("db", "bad")
    made = quarantining(sink, quarantine_table=name)
    write(made, sent(("a", "1", None)), of_epoch=epoch(0))
    warehouse = str(sink.options.warehouse)

    for _ in range(2):
        options = {"warehouse": warehouse, "on-bad-row": word}
        assert requeue(Session(), "db.bad", "db.t", options=options).rows == 1  # type: ignore[arg-type]


@pytest.mark.usefixtures("quarantine")
def test_rows_of_the_table_come_in_order_and_once(sink: Sink) -> None:
    """Rows of another table would be written, or those of an earlier call again."""
    assert pending(sink) == [(1, ["a"]), (3, ["c", "d"])]
    assert pending(sink, after=1) == [(3, ["c", "d"])]
    assert pending(sink, after=3) == []


def first_version(sink: Sink) -> Sink:
    """Return the sink with a quarantine table of format version 1 that has the rows of two epochs."""
    name, first = ("db", "t__quarantine"), {"format-version": "1"}
    sink.catalog.raw.create_namespace("db")
    sink.catalog.raw.create_table(name, QUARANTINE_SCHEMA, properties=first)
    made = quarantining(sink)
    write(made, sent(("1", BIG, None)), of_epoch=epoch(0))
    write(made, sent(("2", BIG, None)), of_epoch=epoch(1))
    mend(made)
    return made


def upgrade(sink: Sink) -> None:
    """Let the quarantine table be of format version 2."""
    with plain_catalog(sink).load_table("db.t__quarantine").transaction() as change:
        change.upgrade_table_version(2)


def test_quarantine_table_of_the_first_version_is_refused_with_the_way_on(sink: Sink) -> None:
    """Its rows would be lost: after the upgrade that the error asks for, there seemed to be none."""
    sink = first_version(sink)
    with pytest.raises(
        UnsupportedTableError, match=r"format version 1, .*Upgrade it to format version 2, and run this"
    ):
        requeued(sink)

    upgrade(sink)
    with pytest.raises(UnsupportedTableError, match=r"snapshots without a number.*txn-version=0: requeue") as refused:
        requeued(sink)
    write(sink, sent(("3", "x", None)), of_epoch=epoch(2))  # a row that comes meanwhile
    write_as_told(sink, refused)
    assert pending(sink, after=0) == [(1, ["3"])]
    write(sink, sent(("4", BIG, None), (None, "4", None)), of_epoch=epoch(3))
    requeued(sink)

    assert sink.ids() == [1, 2, 4]
    assert requeued(sink).rows == 2  # those that are still bad came again
    assert sink.ids() == [1, 2, 4]


def test_expired_snapshots_of_the_first_version_are_no_guess(sink: Sink) -> None:
    """Rows of theirs that are there still would be left out without a word."""
    sink = first_version(sink)
    upgrade(sink)
    write(sink, sent(("3", "x", None)), of_epoch=epoch(2))
    expire(replace(sink, options=replace(sink.options, table=("db", "t__quarantine"))))

    with pytest.raises(UnsupportedTableError, match=r"without a number, .* or had such ones"):
        requeued(sink)


def test_rows_of_a_table_that_was_dropped_are_not_those_of_the_one_made_anew(sink: Sink) -> None:
    """A stream that begins anew sends them again: they would be there twice."""
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    sink.catalog.raw.drop_table(("db", "t"))
    sink.create(TABLE)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0, "anew"))
    mend(sink)

    with pytest.raises(UnsupportedTableError, match=r"are for a table db\.t that was dropped .*not for the one"):
        requeued(sink)
    assert sink.ids() == []


def anew(sink: Sink, of_query: str = "anew") -> None:
    """Let a stream with a new checkpoint send the same rows."""
    write(sink, sent(("1", BIG, None), ("2", "2", None)), of_epoch=epoch(0, of_query))


def is_refused(sink: Sink, problem: str) -> pytest.ExceptionInfo[UnsupportedTableError]:
    """Check that nothing is requeued while it is unknown what the table lacks, and something once the user has."""
    mend(sink)
    before = sink.ids()
    with pytest.raises(UnsupportedTableError, match=problem) as refused:
        requeued(sink)
    assert sink.ids() == before
    return refused


@pytest.mark.parametrize("is_empty", [False, True], ids=["some-rows", "only-bad"])
def test_rows_from_before_the_table_was_replaced_are_no_guess(sink: Sink, *, is_empty: bool) -> None:
    """CREATE OR REPLACE TABLE keeps the UUID, and a stream that begins anew sends the rows again: they came twice."""
    sink = quarantining(sink)
    write(sink, sent(("9", "9", None)))
    write(sink, sent(("1", BIG, None), *([] if is_empty else [("2", "2", None)])), of_epoch=epoch(0))
    drop_branch(sink, "main")
    anew(sink)

    refused = is_refused(sink, r"rows of snapshot \d+ are of a write before branch 'main' of the table began anew")

    told = re.search(r"txn-app-id='(.+)' and txn-version=(\d+)", str(refused.value))
    assert told is not None
    write(sink, sent(("1", BIG, None)), txn_app_id=told[1], txn_version=int(told[2]))
    assert requeued(sink).rows == 0
    write(sink, sent(("3", "3000000000", None), ("x", "4", None)), of_epoch=epoch(1, "anew"))
    assert requeued(sink).rows == 1  # bad still
    assert sink.ids() == [1, 2, 3]


def test_rows_of_a_table_that_was_replaced_before_are_written(sink: Sink) -> None:
    """The rows of a stream that began anew could never be requeued."""
    sink = quarantining(sink)
    write(sink, sent(("1", "1", None)))
    drop_branch(sink, "main")
    anew(sink)
    expire(sink)
    mend(sink)

    assert requeued(sink).rows == 1
    assert sink.ids() == [1, 2]


@pytest.mark.parametrize("is_logged", [True, False])
def test_rows_from_before_the_table_was_set_back_are_no_guess(sink: Sink, *, is_logged: bool) -> None:
    """The source sends them again from there: they would come twice."""
    sink = quarantining(sink)
    write(sink, sent(("8", "8", None)))
    first = head_of(sink)
    write(sink, sent(("9", "9", None)))
    if is_logged:
        first = head_of(sink)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    write(sink, sent(("2", "2", None)))
    set_branch(sink, "main", first)
    anew(sink)

    is_refused(sink, r"before branch 'main' of the table began anew or was set back")


def test_rows_of_a_write_that_the_table_still_has_are_written_after_it_was_set_back(sink: Sink) -> None:
    """Any rollback would stop the requeue."""
    sink = quarantining(sink)
    anew(sink)
    at = head_of(sink)
    write(sink, sent(("3", "3", None)))
    set_branch(sink, "main", at)
    mend(sink)

    assert requeued(sink).rows == 1
    assert sink.ids() == [1, 2]


OVERWRITES: dict[str, dict[str, Any]] = {
    "all": {},
    "range": {"replace_where": "id < 5"},
    "partitions": {"overwrite_mode": "dynamic"},
}


@pytest.mark.parametrize("kind", OVERWRITES)
@pytest.mark.parametrize("numbers", [True, False], ids=["numbers", "no-numbers"])
@pytest.mark.parametrize("good", [True, False], ids=["some-rows", "only-bad"])
def test_rows_from_before_an_overwrite_are_no_guess(sink: Sink, kind: str, *, numbers: bool, good: bool) -> None:
    """The same rows came again in each night: all of them would be written, beside a row that was mended since."""
    sink = quarantining(sink)
    rows = sent(("1", BIG, None), *([("2", "2", None)] if good else []))
    for night in range(2):
        of_txn = {"txn_app_id": "nightly", "txn_version": night} if numbers else {}
        write(sink, rows, mode=WriteMode.OVERWRITE, **OVERWRITES[kind], **of_txn)

    is_refused(sink, r"before snapshot \d+ of the table, which replaced rows|a write that replaces rows, and that br")


def test_rows_from_before_an_overwrite_that_expired_are_no_guess(sink: Sink) -> None:
    """The table does not show the overwrite any more, but the quarantine has rows of it, too."""
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None), ("2", "2", None)))
    write(sink, sent(("1", BIG, None), ("2", "2", None)), mode=WriteMode.OVERWRITE)
    write(sink, sent(("3", "3", None)))
    expire(sink)

    is_refused(sink, r"are of a write before another one that replaced rows, and has rows here, too")


def test_rows_of_an_overwrite_that_was_killed_wait_for_it(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is repeated it replaces them: they would be lost."""
    monkeypatch.setattr(CatalogClient, "is_atomic_over_tables", property(lambda _: False))
    sink = quarantining(sink, txn_app_id="nightly", txn_version=0)
    rows = sent(("1", BIG, None), ("2", "2", None))
    with dying(FaultPoint.QUARANTINED), pytest.raises(KeyboardInterrupt):
        write(sink, rows, mode=WriteMode.OVERWRITE)

    with pytest.raises(UnsupportedTableError, match=r"a write that replaces rows, and that branch 'main' does not sh"):
        pending(sink)
    write(sink, rows, mode=WriteMode.OVERWRITE)
    assert pending(sink) == [(1, ["1"])]


@pytest.mark.parametrize("kind", OVERWRITES)
@pytest.mark.parametrize("numbers", [True, False], ids=["numbers", "no-numbers"])
def test_rows_of_the_last_overwrite_are_written(sink: Sink, kind: str, *, numbers: bool) -> None:
    """The overwrite's own snapshot would keep its rows back for ever."""
    sink = quarantining(sink)
    write(sink, sent(("1", "1", None)))
    of_txn = {"txn_app_id": "nightly", "txn_version": 3} if numbers else {}
    write(sink, sent(("1", BIG, None), ("2", "2", None)), mode=WriteMode.OVERWRITE, **OVERWRITES[kind], **of_txn)
    write(sink, sent(("3", "3", None)))
    mend(sink)

    assert requeued(sink).rows == 1
    assert sink.ids() == [1, 2, 3]


def as_compaction(document: dict[str, Any]) -> None:
    """Let the last snapshot be one of another engine that writes rows again into other files."""
    summary = document["snapshots"][-1]["summary"]
    kept = {key: value for key, value in summary.items() if not key.startswith("icebergsink.")}
    document["snapshots"][-1]["summary"] = {**kept, "operation": "replace", "engine-name": "spark"}


@pytest.mark.parametrize("how", ["overwrite", "delete", "replace-partitions", "delete-some", "compact"])
def test_what_others_did_to_the_table_since(sink: Sink, how: str) -> None:
    """An overwrite by others may have the rows, mended; a deletion or a compaction of some has not."""
    sink = quarantining(sink)
    write(sink, sent(("8", "8", None)))
    write(sink, sent(("1", BIG, None), ("9", "9", None)), of_epoch=epoch(0))
    table = plain_table(sink)
    if how == "overwrite":
        table.overwrite(table.scan().to_arrow())
    elif how == "delete":
        table.delete()
        table.append(pa.Table.from_pylist([{"id": 1, "amount": 1}], schema=table.schema().as_arrow()))
    elif how == "replace-partitions":
        table.delete(EqualTo("id", 9), snapshot_properties={"replace-partitions": "true"})
    elif how == "delete-some":
        table.delete(EqualTo("id", 9))
    else:
        write(sink, sent(("8", "8", None), ("9", "9", None)), mode=WriteMode.OVERWRITE)
        register_edited(sink, as_compaction)

    if how in ("delete-some", "compact"):
        mend(sink)
        assert requeued(sink).rows == 1
        assert 1 in sink.ids()
    else:
        is_refused(sink, r"before snapshot \d+ of the table, which replaced rows")


def test_upserts_of_ones_own_replace_no_rows_of_others(sink: Sink) -> None:
    """A table that is written by keys could never have its bad rows back."""
    sink = quarantining(sink, keys=("id",), evolve_keys=True)
    for number in range(3):
        write(sink, sent((str(number), BIG, None), ("9", "9", None)), of_epoch=epoch(number))
    mend(sink)

    assert requeued(sink, keys="id").rows == 3
    assert [row["id"] for row in rows_of(sink.table())] == [0, 1, 2, 9]


def test_rows_by_key_are_written_as_of_now(sink: Sink) -> None:
    """The docs tell users so, and what to do: an older row takes the place of a newer one of its key."""
    options = {"keys": ("id",), "evolve_keys": True, "sequence_by": ("amount",)}
    sink = quarantining(sink, **options)
    older, newer = ({"id": 1, "amount": 5, "token": "no uuid"}, {"id": 1, "amount": 7, "token": None})
    write(sink, [older], schema=TYPED, of_epoch=epoch(0))
    write(sink, [newer], schema=TYPED, of_epoch=epoch(1))

    given = {"warehouse": str(sink.options.warehouse), "keys": "id", "sequence-by": "amount"}
    frame = Frame([{**older, "token": None}], TYPED, lambda: None)
    requeue(Session(), "db.t__quarantine", "db.t", options=given, transform=lambda _: frame)  # type: ignore[arg-type, return-value]

    assert [(row["id"], row["amount"]) for row in rows_of(sink.table())] == [(1, 5)]


def test_rows_find_their_table_under_every_name(sink: Sink) -> None:
    """Rows from before a rename would be left out for ever once those of the new name were requeued."""
    sink = quarantining(sink, quarantine_table=("db", "t__quarantine"))
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    renamed = rename(sink, "db.renamed")
    write(renamed, sent(("2", BIG, None)), of_epoch=epoch(1))
    sink = rename(renamed, "db.t")
    write(sink, sent(("3", BIG, None)), of_epoch=epoch(2))
    mend(sink)

    result = requeued(sink)

    assert (result.rows, result.other_tables) == (3, ())
    assert sink.ids() == [1, 2, 3]


@pytest.mark.parametrize("numbers", ["epochs", "versions"])
def test_rows_of_a_new_table_whose_driver_died_are_written(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, numbers: str
) -> None:
    """The table has another UUID than the one that the first try would have made: requeue said it was dropped."""
    monkeypatch.setattr(CatalogClient, "is_atomic_over_tables", property(lambda _: False))
    of_epoch = epoch(0) if numbers == "epochs" else None
    of_txn: dict[str, Any] = {} if of_epoch else {"txn_app_id": "app", "txn_version": 0}
    sink = replace(sink, options=replace(sink.options, on_bad_row="quarantine", keys=("id",), **of_txn))
    sent_rows = sent(("1", "1", None), (None, "2", None))
    with dying(FaultPoint.QUARANTINED), pytest.raises(KeyboardInterrupt):
        write(sink, sent_rows, of_epoch=of_epoch)
    assert sink.catalog.find_table(("db", "t")) is None
    write(sink, sent_rows, of_epoch=of_epoch)

    assert pending(sink) == [(1, [None])]

    sink.catalog.raw.drop_table(("db", "t"))
    write(sink, sent_rows[:1], of_epoch=epoch(1), txn_app_id=None, txn_version=None)
    with pytest.raises(UnsupportedTableError, match="dropped or renamed since"):
        pending(sink)


def test_rows_of_another_branch_are_no_guess(sink: Sink) -> None:
    """A stream that is tried out on a branch sends the rows of `main`, too: they would come twice."""
    sink = quarantining(sink)
    write(sink, sent(("9", "9", None)))
    for query, options in (("a", {}), ("b", {"branch": "dev", "create_branch": True})):
        write(sink, sent(("1", BIG, None), ("2", "2", None)), of_epoch=epoch(0, query), **options)
    mend(sink)

    with pytest.raises(UnsupportedTableError, match="of a write to branch 'dev', which branch 'main' does not show"):
        requeued(sink)

    assert sink.ids() == [1, 2, 9]
    set_branch(sink, "main", head_of(sink, "dev"))  # rows of a branch that was published are those of main
    assert pending(sink)[-1] == (2, ["1"])


def test_quarantine_that_does_not_tell_its_writes_is_no_guess(sink: Sink) -> None:
    """Snapshots of an earlier version say which tables their rows are of, and not since when the table lacks them."""
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    name = replace(sink, options=replace(sink.options, table=("db", "t__quarantine")))

    def without_origins(document: dict[str, Any]) -> None:
        summary = document["snapshots"][0]["summary"]
        del summary["icebergsink.quarantined-from"]
        summary["icebergsink.quarantined-tables"] = str(sink.table().metadata.table_uuid)

    register_edited(name, without_origins)
    with pytest.raises(UnsupportedTableError, match=r"snapshot \d+ does not say which writes its rows are of"):
        pending(sink)
    with pytest.raises(UnsupportedTableError, match="does not say which writes"):
        pending(rename(sink, "db.renamed"))


def test_rows_that_main_has_are_not_written_into_a_branch_that_is_forked(sink: Sink) -> None:
    """They were counted, and were not written."""
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None), ("2", "2", None)), of_epoch=epoch(0))
    mend(sink)
    assert requeued(sink).rows == 1

    result = requeued(sink, branch="b", create_branch="true")

    assert (result.rows, result.batches, sink.ids()) == (0, 0, [1, 2])


def test_rows_that_another_call_writes_meanwhile_are_not_counted(sink: Sink) -> None:
    """The numbers of two calls at once would add up to more rows than came."""
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    mend(sink)
    others: list[int] = []

    result = requeued(sink, Session(lambda: others.append(requeued(sink).rows)))

    assert (others, result.rows, result.batches) == ([1], 0, 0)
    assert sink.ids() == [1]


def test_quarantine_that_was_registered_as_it_once_was_is_refused(sink: Sink) -> None:
    """Its numbers come again, so that new rows would be taken for those that the table has."""
    sink = quarantining(sink)
    write(sink, sent(("1", BIG, None)), of_epoch=epoch(0))
    once = load(sink).metadata_location
    write(sink, sent(("2", BIG, None)), of_epoch=epoch(1))
    mend(sink)
    requeued(sink)
    plain_catalog(sink).drop_table("db.t__quarantine")
    plain_catalog(sink).register_table("db.t__quarantine", once)

    with pytest.raises(UnsupportedTableError, match=r"up to number 2, and its last one is 1.*drop it"):
        requeued(sink)

    plain_catalog(sink).drop_table("db.t__quarantine")
    write(sink, sent(("3", "x", None)), of_epoch=epoch(2))
    assert pending(sink) == [(1, ["3"])]


def test_rows_that_were_requeued_may_be_deleted(quarantine: Table, sink: Sink) -> None:
    """The quarantine could never be cleaned."""
    quarantine.delete(EqualTo("epoch", 0))

    assert pending(sink, after=1) == [(3, ["c", "d"])]


def test_deleted_rows_that_were_not_requeued_are_no_guess(quarantine: Table, sink: Sink) -> None:
    """A row that someone took out on purpose would come back."""
    quarantine.delete(EqualTo("epoch", 1))

    with pytest.raises(UnsupportedTableError, match="others deleted rows of snapshot"):
        pending(sink, after=1)


@pytest.mark.parametrize("how", ["overwrite", "part", "cherry-pick", "append", "append-by-this-sink"])
def test_rows_that_others_wrote_are_never_taken(quarantine: Table, sink: Sink, how: str) -> None:
    """Rows that were requeued would come again, as those of a new snapshot."""
    snapshots, rows = quarantine.metadata.snapshots, quarantine.scan().to_arrow()
    kept = replace(sink, options=replace(sink.options, table=("db", "t__quarantine")))
    after = 3
    if how == "overwrite":
        quarantine.overwrite(rows)
    elif how == "part":
        quarantine.overwrite(rows.slice(0, 1))
    elif how == "append":
        quarantine.append(rows)
    elif how == "append-by-this-sink":
        columns = StructType.fromJson(json.loads(QUARANTINE_COLUMNS))
        kept.commit(kept.write(rows.to_pylist(), schema=columns))
    else:
        set_branch(kept, "main", snapshots[1].snapshot_id)
        cherry_pick(kept, snapshots[2].snapshot_id)
    foreign = load(sink).current_snapshot()
    assert foreign is not None

    with pytest.raises(UnsupportedTableError, match=f"snapshot {foreign.snapshot_id} .*not of a write that quaran"):
        pending(sink, after=after)
    assert pending(sink, after=foreign.sequence_number) == []


def test_rows_for_other_tables_are_told(quarantine: Table, tmp_path: Path) -> None:
    """A table that was named by mistake would seem to have no bad rows."""
    passed = Passed()

    target = Target.of(quarantine.metadata, embedded_options(tmp_path, table="db.new"))
    found = list(pending_rows(quarantine, target, after=None, passed=passed))

    assert (found, passed.other_tables) == ([], {"db.t", "db.other"})
    result = RequeueResult(table="db.new", quarantine="db.q", other_tables=("db.other", "db.t"))
    assert "has no rows of it" in str(result)
    assert "rows for db.other, db.t" in str(result)


def test_row_with_bytes_that_are_no_text_is_left(sink: Sink) -> None:
    """Other characters than those that were sent would land."""
    first = quarantining(sink)
    plan = first.plan(SENT, is_stream=False)
    raw = pa.array([b"\xff\\udcff", b"\\udcff", b"\\\\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "c"]), pa.nulls(3, pa.string()), raw], names=["id", "amount", "token"]
    )
    commit(first, [report_task(plan, [batch], TaskAttempt(partition_id=0, task_attempt_id=1))])
    passed = Passed()

    ((_, rows),) = pending_rows(load(sink), Target.of(first.table().metadata, first.options), after=None, passed=passed)

    assert [row_texts(row) for row in rows.column("row").to_pylist()] == [
        {"id": "b", "token": "\\udcff"},
        {"id": "c", "token": "\\\\xff"},
    ]
    assert passed.not_text == 1
    assert "1 rows were left" in str(RequeueResult(table="t", quarantine="q", not_text=1))


def test_expired_history_is_no_guess(quarantine: Table, sink: Sink) -> None:
    """Rows would be left out without a word."""
    ids = [snapshot.snapshot_id for snapshot in quarantine.metadata.snapshots]
    quarantine.maintenance.expire_snapshots().by_ids(ids[:2]).commit()

    assert pending(sink, after=3) == []
    with pytest.raises(UnsupportedTableError, match="have expired"):
        pending(sink, after=1)


def test_table_of_another_kind_is_refused(sink: Sink) -> None:
    """Any table could be written into another one."""
    sink.append(1)

    with pytest.raises(UnsupportedTableError, match="not of a write that quarantined rows"):
        list(pending_rows(sink.table(), Target.of(sink.table().metadata, sink.options), after=None))


def test_numbers_stay_as_they_were_sent() -> None:
    """A decimal would be rounded on its way back."""
    row = '{"a":1.10,"b":12345678901234567890.123456789,"c":null,"d":"x","e":true,"f":"NaN"}'

    texts = row_texts(row)

    assert texts == {"a": "1.10", "b": "12345678901234567890.123456789", "c": None, "d": "x", "e": "true", "f": "NaN"}
    with pytest.raises(SchemaMismatchError, match="column 'n' holds structs"):
        row_texts('{"n":[1]}')


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"quarantine": None}, "quarantine is None, expected the identifier of a table"),
        ({"transform": "x"}, "transform is 'x', expected a function"),
        ({"transform": lambda _: None}, "transform returns None, expected a DataFrame"),
    ],
)
def test_arguments_of_another_type_are_refused_by_name(sink: Sink, arguments: dict[str, Any], reason: str) -> None:
    """A library would say what it expects, deep inside."""
    made = quarantining(sink)
    write(made, sent(("3", BIG, None)))
    given: dict[str, Any] = {"quarantine": "db.t__quarantine", **arguments}
    with pytest.raises(OptionError, match=reason):
        requeue(Session(), table="db.t", options={"warehouse": str(made.options.warehouse)}, **given)  # type: ignore[arg-type]


def test_requeue_numbers_itself() -> None:
    """The user's number would take the place of the quarantine's."""
    with pytest.raises(OptionError, match="requeue numbers its batches itself"):
        requeue(None, "db.q", "db.t", options={"txn-version": "1"})  # type: ignore[arg-type]  # needs no Spark
