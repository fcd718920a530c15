"""Commits by keys as Iceberg's own Spark runtime sees them: it reads, counts, changes and compacts what they left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.table import Table
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.checks.delete_soundness import check_deletes
from support.exhaustive import each_value, few
from support.keys.epochs import EPOCHS, LAYOUTS, check, expected, make, run
from support.tables.sink import NAME

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

MERGE_ON_READ = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}


def summary(table: Table) -> dict[str, str]:
    """Return the summary of the newest snapshot, and its operation."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_epoch_is_read_as_it_is_meant(shared: SharedCatalog, layout: str) -> None:
    """Users of Spark, Trino or Flink would see deleted rows, or two rows of a key."""
    sink = make(shared, layout)

    for number in range(len(EPOCHS)):
        run(sink, layout, number)
        check(shared, expected(number + 1))


@pytest.mark.parametrize(("layout", "keeps_numbers"), each_value([*LAYOUTS], ["true", "false"]))
def test_compaction_between_epochs(shared: SharedCatalog, layout: str, keeps_numbers: str) -> None:
    """Deleted rows would come back with a compaction, or later epochs miss the rows that it has written."""
    sink = make(shared, layout)
    run(sink, layout, 0)
    run(sink, layout, 1)

    options = f"'rewrite-all', 'true', 'use-starting-sequence-number', '{keeps_numbers}'"
    shared.call("rewrite_data_files", f"options => map({options})")
    check(shared, expected(2))
    run(sink, layout, 1)  # replayed
    run(sink, layout, 2)

    check(shared, expected(3))


def test_rows_of_both_replace_each_other(shared: SharedCatalog) -> None:
    """An upsert would miss rows that the runtime has merged in, or bring back what it has deleted."""
    sink = make(shared, "none", **MERGE_ON_READ)
    run(sink, "none", 0)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 5")  # noqa: S608
    shared.jvm.run(f"UPDATE {NAME} SET amount = 99 WHERE id IN (0, 1)")  # noqa: S608

    run(sink, "none", 1)

    rows = [[0, "EU", 99], *(row for row in expected(2) if row[0] not in {0, 5})]
    check(shared, rows)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 2")  # noqa: S608
    check(shared, [row for row in rows if row[0] != 2])


def test_summary_is_what_the_runtime_writes_for_rows_and_position_deletes(shared: SharedCatalog) -> None:
    """Tools that read summaries would not understand those of commits by keys."""
    sink = make(shared, "none", **MERGE_ON_READ)
    run(sink, "none", 0)
    shared.jvm.run(f"UPDATE {NAME} SET amount = 99 WHERE id = 5")  # noqa: S608
    theirs = summary(sink.table())
    run(sink, "none", 1)
    ours = summary(sink.table())

    counted = {name for name in theirs if name.startswith(("added-", "total-", "deleted-", "removed-", "operation"))}
    assert "added-position-delete-files" in counted
    more = {"added-equality-delete-files", "added-equality-deletes"}
    of_ours = {name for name in ours if name.startswith(("added-", "total-", "deleted-", "removed-", "operation"))}
    assert of_ours == counted | more
    assert ours["operation"] == theirs["operation"] == "overwrite"


def test_files_are_what_the_runtime_makes_of_deletes(shared: SharedCatalog) -> None:
    """The runtime would take a delete file for another kind, or for one of other rows."""
    sink = make(shared, "none")
    run(sink, "none", 0)
    run(sink, "none", 1)

    found = shared.jvm.run(
        f"SELECT content, record_count, equality_ids, sort_order_id FROM {NAME}.all_delete_files ORDER BY 1, 2"  # noqa: S608
    ).rows
    positions = shared.jvm.run(f"SELECT pos FROM {NAME}.position_deletes ORDER BY 1").rows  # noqa: S608

    assert [row[:2] for row in found] == [[1, 1], [1, 1], [2, 3], [2, 3], [2, 6]]
    assert [row[2] for row in found] == [None, None, [1], [1], [1]]
    assert [row[3] for row in found] == [None] * 5
    assert len(positions) == 2


LONG = "the same long beginning of many keys, "
KEY_VALUES: Mapping[str, tuple[spark.DataType, Sequence[Any]]] = {
    "byte": (spark.ByteType(), (-1, 0, 1)),
    "int": (spark.IntegerType(), (-(2**31), 0, 2**31 - 1)),
    "long": (spark.LongType(), (-(2**63), 0, 2**63 - 1)),
    "small decimal": (spark.DecimalType(10, 2), (Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99"))),
    "large decimal": (spark.DecimalType(38, 10), (Decimal("-1e27"), Decimal("1e-10"), Decimal("1e27"))),
    "date": (spark.DateType(), (date(1582, 10, 15), date(1969, 12, 31), date(2026, 2, 28))),
    "instant": (spark.TimestampType(), tuple(datetime(y, 1, 1, 0, 0, 0, 1, timezone.utc) for y in (1900, 1969, 2026))),
    "local time": (spark.TimestampNTZType(), tuple(datetime(y, 1, 1, 0, 0, 0, 1) for y in (1900, 1969, 2026))),  # noqa: DTZ001
    "text": (spark.StringType(), ("", "ä", "\U0001f600")),
    "long text": (spark.StringType(), (LONG, LONG + "1", LONG * 9)),
    "binary": (spark.BinaryType(), (b"", b"\0", b"\xff" * 20)),
}


@pytest.mark.parametrize("kind", few(4, KEY_VALUES))
def test_keys_of_every_type_are_replaced_and_deleted(shared: SharedCatalog, kind: str) -> None:
    """Rows with such keys would stay beside those that replace them, or be skipped by the bounds of their deletes."""
    data_type, values = KEY_VALUES[kind]
    fields = [("key", data_type), ("part", spark.StringType()), ("amount", spark.IntegerType())]
    schema = spark.StructType([spark.StructField(name, kind_of_it) for name, kind_of_it in fields])
    sink = shared.sink()

    def upsert(*amounts: int | None) -> None:
        rows = [
            {"key": value, "part": "p", "amount": amount}
            for value, amount in zip(values, amounts, strict=True)
            if amount is not None
        ]
        plan = sink.plan(schema, keys=("part", "key"), delete_when="amount < 0")
        sink.commit(sink.write(rows[:1], rows[1:], schema=schema, plan=plan))

    upsert(1, 2, 3)
    upsert(None, 20, -1)
    first = sorted(shared.jvm.values(f"SELECT amount FROM {NAME}"))  # noqa: S608  # no outside input
    upsert(-1, None, 30)

    assert first == [1, 20]
    assert sorted(shared.jvm.values(f"SELECT amount FROM {NAME}")) == [20, 30]  # noqa: S608  # no outside input
    check_deletes(sink.table())
