"""Which rows of a quarantine table a requeue takes: those that came since the last one, or none if that is unknown."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from support.tables.bad_rows import SENT, commit, quarantining, sent, write
from support.tables.changes_by_others import cherry_pick, set_branch
from support.tables.sink import Sink, epoch

from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.multi_table.requeue import Passed, RequeueResult, pending_rows, requeue, row_texts
from iceberg_ds.writers.bad_rows import QUARANTINE_SCHEMA
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt


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


def pending(table: Table, *, after: int | None = None) -> list[tuple[int, list[str | None]]]:
    """Return the number and the ids of each batch of rows of `db.t`."""
    return [
        (number, [row_texts(text)["id"] for text in rows.column("row").to_pylist()])
        for number, rows in pending_rows(table, "db.t", after=after)
    ]


def test_rows_of_the_table_come_in_order_and_once(quarantine: Table) -> None:
    """Rows of another table would be written, or those of an earlier call again."""
    assert pending(quarantine) == [(1, ["a"]), (3, ["c", "d"])]
    assert pending(quarantine, after=1) == [(3, ["c", "d"])]
    assert pending(quarantine, after=3) == []


def test_quarantine_table_of_the_first_version_is_refused_with_the_way_on(sink: Sink) -> None:
    """Its snapshots have no numbers, and the refusal itself failed over that."""
    sink.catalog.raw.create_namespace("db")
    name, first = ("db", "t__quarantine"), {"format-version": "1"}
    table = sink.catalog.raw.create_table(name, QUARANTINE_SCHEMA, properties=first)
    table.append(QUARANTINE_SCHEMA.empty_table())

    with pytest.raises(UnsupportedTableError, match=r"format version 1.*Upgrade it to format version 2"):
        pending(load(sink))


def test_rows_that_were_requeued_may_be_deleted(quarantine: Table) -> None:
    """The quarantine could never be cleaned."""
    quarantine.delete(EqualTo("epoch", 0))

    assert pending(quarantine.refresh(), after=1) == [(3, ["c", "d"])]


def test_deleted_rows_that_were_not_requeued_are_no_guess(quarantine: Table) -> None:
    """A row that someone took out on purpose would come back."""
    quarantine.delete(EqualTo("epoch", 1))

    with pytest.raises(UnsupportedTableError, match="others deleted rows of snapshot"):
        pending(quarantine.refresh(), after=1)


@pytest.mark.parametrize("how", ["overwrite", "part", "cherry-pick", "append"])
def test_rows_that_others_wrote_are_never_taken(quarantine: Table, sink: Sink, how: str) -> None:
    """Rows that were requeued would come again, as those of a new snapshot."""
    snapshots, rows = quarantine.metadata.snapshots, quarantine.scan().to_arrow()
    after = 3
    if how == "overwrite":
        quarantine.overwrite(rows)
    elif how == "part":
        quarantine.overwrite(rows.slice(0, 1))
    elif how == "append":
        quarantine.append(rows)
    else:
        kept = replace(sink, options=replace(sink.options, table=("db", "t__quarantine")))
        set_branch(kept, "main", snapshots[1].snapshot_id)
        cherry_pick(kept, snapshots[2].snapshot_id)
    foreign = load(sink).current_snapshot()
    assert foreign is not None

    with pytest.raises(UnsupportedTableError, match=f"snapshot {foreign.snapshot_id} .*not of a write that quaran"):
        pending(load(sink), after=after)
    assert pending(load(sink), after=foreign.sequence_number) == []


def test_rows_for_other_names_are_told(quarantine: Table) -> None:
    """A table that was renamed would seem to have no bad rows."""
    passed = Passed()

    found = list(pending_rows(quarantine, "db.renamed", after=None, passed=passed))

    assert (found, passed.other_tables) == ([], {"db.t", "db.other"})
    result = RequeueResult(table="db.renamed", quarantine="db.q", other_tables=("db.other", "db.t"))
    assert "no rows for a table of that name" in str(result)
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

    ((_, rows),) = pending_rows(load(sink), "db.t", after=None, passed=passed)

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

    assert pending(load(sink), after=3) == []
    with pytest.raises(UnsupportedTableError, match="have expired"):
        pending(load(sink), after=1)


def test_table_of_another_kind_is_refused(sink: Sink) -> None:
    """Any table could be written into another one."""
    sink.append(1)

    with pytest.raises(SchemaMismatchError, match="no column 'row'"):
        pending(sink.table())


def test_numbers_stay_as_they_were_sent() -> None:
    """A decimal would be rounded on its way back."""
    row = '{"a":1.10,"b":12345678901234567890.123456789,"c":null,"d":"x","e":true,"f":"NaN"}'

    texts = row_texts(row)

    assert texts == {"a": "1.10", "b": "12345678901234567890.123456789", "c": None, "d": "x", "e": "true", "f": "NaN"}
    with pytest.raises(SchemaMismatchError, match="column 'n' holds structs"):
        row_texts('{"n":[1]}')


def test_requeue_numbers_itself() -> None:
    """The user's number would take the place of the quarantine's."""
    with pytest.raises(OptionError, match="requeue numbers its batches itself"):
        requeue(None, "db.q", "db.t", options={"txn-version": "1"})  # type: ignore[arg-type]  # needs no Spark
