"""Rows of the runtime are found in their partitions by every transform of every type, and ours by the runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.types import TimeType
from pyspark.sql.types import LongType, StructField, StructType
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.keys.conversions import convert
from support.tables.data_rewrites import rewrite
from support.tables.every_partition import BY_KEYS, BY_OTHERS, COUNT, EveryPartition
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME

from iceberg_ds.deletes.search import SnapshotReader

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

# Spark has no type for times.
KNOWN_KEYS = {name: column for name, column in BY_KEYS.columns.items() if not isinstance(column.kind, TimeType)}


@pytest.mark.parametrize(
    "every", few(1, [replace(BY_KEYS, columns=KNOWN_KEYS), BY_OTHERS]), ids=["by key", "by others"]
)
@EXHAUSTIVE
def test_rows_are_found_in_every_partition_whoever_wrote_them(shared: SharedCatalog, every: EveryPartition) -> None:
    """Every upsert into a table of the runtime's would double every key, or bring deleted rows back."""
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    shared.create(every.schema, every.spec, **modes)
    sink = shared.sink()
    shared.append_by_jvm(every.rows(1), every.sent)
    late = every.upsert(sink, "position", 0, lsn=0, sequence_by=("lsn",), sequence_scope="table")
    marked = every.upsert(sink, "position", 2)
    shared.jvm.run(f"UPDATE {NAME} SET value = 3")  # noqa: S608  # no outside input
    rewritten = every.upsert(sink, "copy-on-write", 4)
    shared.jvm.run(f"UPDATE {NAME} SET value = 5")  # noqa: S608
    every.write_by_keys(sink, 6)
    convert(sink)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    shared.append_by_jvm(every.rows(7), every.sent)

    before = shared.jvm.values(f"SELECT value FROM {NAME} ORDER BY value")  # noqa: S608
    sink.overwrite(every.rows(8)[1:2], schema=every.sent, overwrite_mode="dynamic")

    assert (late.late_rows, marked.replaced_rows, rewritten.replaced_rows) == (COUNT, COUNT, COUNT)
    assert before == [6, 6, 6, 7, 7, 7]
    assert shared.jvm.values(f"SELECT value FROM {NAME} ORDER BY value") == [6, 6, 7, 7, 8]  # noqa: S608
    live = SnapshotReader().read(sink.table().io, sink.table().current_snapshot()).files
    assert (live.equalities, len({found.place for found in live.data})) == ([], COUNT)


LEFT = StructType([StructField("id", LongType()), StructField("amount", LongType())])


@pytest.mark.parametrize(("first", "last"), few(1, [("1", "3"), ("1", "2"), ("2", "2"), ("3", "3")]))
def test_table_of_a_column_that_expiry_forgot_is_written_in_turn(shared: SharedCatalog, first: str, last: str) -> None:
    """One append would make a table unreadable for everybody: no schema says the type of its partition field."""
    properties = f"PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '{first}')"
    shared.create_by_jvm("id bigint, region string, amount bigint", properties)
    shared.jvm.run(f"INSERT INTO {NAME} VALUES (1, 'EU', 1), (2, 'EU', 2), (3, NULL, 3)")  # noqa: S608
    shared.alter(
        "DROP PARTITION FIELD region", f"SET TBLPROPERTIES ('format-version' = '{last}')", "DROP COLUMN region"
    )
    shared.jvm.run(f"INSERT INTO {NAME} VALUES (4, 4)")  # noqa: S608
    expire = "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1, clean_expired_metadata => true"
    shared.call("expire_snapshots", expire)
    assert len(shared.table().metadata.schemas) == 1

    shared.append([{"id": 5, "amount": 5}], LEFT)
    shared.sink().overwrite([{"id": 1, "amount": 10}], schema=LEFT, replace_where="id = 1")
    shared.jvm.run(f"UPDATE {NAME} SET amount = 20 WHERE id = 2")  # noqa: S608
    rewrite(shared.sink(), min_input_files="1", rewrite_all="true")
    shared.jvm.run(f"INSERT INTO {NAME} VALUES (6, 6)")  # noqa: S608

    amounts = {1: 10, 2: 20, 3: 3, 4: 4, 5: 5, 6: 6}
    shared.check_rows([{"id": number, "amount": amount} for number, amount in amounts.items()])
    assert {row["id"]: row["amount"] for row in read_by_tasks(shared.sink())} == amounts
