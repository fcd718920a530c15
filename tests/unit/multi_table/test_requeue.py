"""Which rows of a quarantine table a requeue takes: those that came since the last one, or none if that is unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import LongType
from pyspark.sql.types import StructType
from support.tables.bad_rows import SENT, TABLE, commit, quarantining, sent, write
from support.tables.changes_by_others import cherry_pick, expire, plain_catalog, set_branch
from support.tables.sink import Row, Sink, arrow_batch, embedded_options, epoch

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import has_landed
from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.multi_table.requeue import Passed, RequeueResult, Target, pending_rows, requeue, row_texts
from iceberg_ds.options.parse import parse_options
from iceberg_ds.writers.bad_rows import QUARANTINE_COLUMNS, QUARANTINE_SCHEMA
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

BIG = "3000000000"  # for the table's `amount` once that is a long


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
    target = Target.of(sink.table().metadata, sink.options)
    return [
        (number, [row_texts(text)["id"] for text in rows.column("row").to_pylist()])
        for number, rows in pending_rows(load(sink), target, after=after)
    ]


@dataclass
class Frame:
    """What a requeue asks of a DataFrame: it is written as Spark does it, as one task."""

    rows: list[Row]
    schema: StructType
    before: Callable[[], object]
    given: dict[str, str] = field(default_factory=dict)

    @property
    def write(self) -> Frame:
        """Return what writes the rows."""
        return self

    def format(self, _: str) -> Frame:
        """Return the same writer."""
        return self

    def options(self, **options: str) -> Frame:
        """Return the writer with these options."""
        return replace(self, given=options)

    def mode(self, _: str) -> Frame:
        """Return the same writer."""
        return self

    def save(self) -> None:
        """Write the rows."""
        self.before()
        options = parse_options(self.given)
        target = Sink(catalog=connect(catalog_settings(options)), options=options)
        plan = target.plan(self.schema)
        if not has_landed(target.catalog, plan.write):
            attempt = TaskAttempt(partition_id=0, task_attempt_id=1)
            commit(target, [report_task(plan, [arrow_batch(self.rows, self.schema)], attempt)])


@dataclass
class Session:
    """What a requeue asks of Spark; `before` is called before each batch is written."""

    before: Callable[[], object] = lambda: None

    def createDataFrame(self, rows: list[tuple[Any, ...]], schema: StructType) -> Frame:  # noqa: N802  # Spark's name
        """Return the rows as what is to be written."""
        return Frame([dict(zip(schema.names, row, strict=True)) for row in rows], schema, self.before)


def requeued(sink: Sink, session: Session | None = None, **options: str) -> RequeueResult:
    """Requeue the rows of `db.t`."""
    given = {"warehouse": str(sink.options.warehouse), **{name.replace("_", "-"): one for name, one in options.items()}}
    return requeue(session or Session(), "db.t__quarantine", "db.t", options=given)  # type: ignore[arg-type]


def mend(sink: Sink) -> None:
    """Let the table take the rows."""
    with plain_catalog(sink).load_table("db.t").update_schema() as change:
        change.update_column("amount", LongType())


def write_as_told(sink: Sink, refusal: pytest.ExceptionInfo[UnsupportedTableError]) -> None:
    """Write all rows of `db.t` as of the snapshot that an error names, in the batch that it names."""
    told = re.search(r"as of its snapshot (\d+), .*txn-app-id='(.+)' and txn-version=(\d+)", str(refusal.value))
    assert told is not None
    texts = load(sink).scan(snapshot_id=int(told[1])).to_arrow()["row"].to_pylist()
    write(sink, [row_texts(text) for text in texts], txn_app_id=told[2], txn_version=int(told[3]))


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


def test_requeue_numbers_itself() -> None:
    """The user's number would take the place of the quarantine's."""
    with pytest.raises(OptionError, match="requeue numbers its batches itself"):
        requeue(None, "db.q", "db.t", options={"txn-version": "1"})  # type: ignore[arg-type]  # needs no Spark
