"""Conversions as Iceberg's own Spark runtime sees them: of our deletes, of its own, and beside its compactions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE, few
from support.keys.conversions import ENCODINGS, convert, keyed_deletes
from support.tables.delete_files import delete_equal, with_ids
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.deletes.work import RowEncoding

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

COLUMNS = (
    "id BIGINT, name STRING, of STRUCT<code: INT, day: DATE>, price DECIMAL(9, 2), at TIMESTAMP, raw BINARY, "
    "part STRING"
)
AT, AT_TYPE = dt.datetime(2026, 11, 22, 3, tzinfo=dt.timezone.utc), pa.timestamp("us", "UTC")
ROWS = ", ".join(
    f"({key}, {'NULL' if key % 4 == 0 else repr(f'n{key % 3}')}, struct({key % 5}, DATE'2026-11-{10 + key}'), "
    f"{key}.50, TIMESTAMP'2026-11-22 0{key}:00:00', X'0{key}', 'p{key % 2}')"
    for key in range(1, 10)
)


def read(shared: SharedCatalog) -> list[list[Any]]:
    """Return the rows as the runtime reads them."""
    return shared.jvm.run(f"SELECT * FROM {NAME} ORDER BY id").rows  # noqa: S608  # no outside input


def make(shared: SharedCatalog) -> Sink:
    """Create a table that the runtime writes in turn with deletes by keys, as Flink leaves them."""
    properties = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
    shared.create_by_jvm(COLUMNS, f"PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '2', {properties})")
    shared.jvm.run(f"INSERT INTO {NAME} VALUES {ROWS}")  # noqa: S608
    sink = shared.sink()
    schema = sink.table().schema()
    name = schema.find_field("name").field_id
    ids = {part: schema.find_field(part).field_id for part in ("id", "price", "at", "raw")}
    # Of one partition, by two columns, a null among them.
    pair = pa.table({"name": pa.array([None, "n1"]), "id": pa.array([4, 7], pa.int64())})
    delete_equal(sink, with_ids(pair, name=name, id=ids["id"]), [name, ids["id"]])
    shared.jvm.run(f"INSERT INTO {NAME} SELECT id + 20, name, of, price, at, raw, part FROM {NAME} WHERE id < 4")  # noqa: S608
    price = pa.table({"price": pa.array([Decimal("3.50")], pa.decimal128(9, 2)), "at": pa.array([AT], AT_TYPE)})
    delete_equal(sink, with_ids(price, price=ids["price"], at=ids["at"]), [ids["price"], ids["at"]])
    raw = pa.table({"raw": pa.array([b"\x02"], pa.binary())})
    delete_equal(sink, with_ids(raw, raw=ids["raw"]), [ids["raw"]])
    shared.jvm.run(f"UPDATE {NAME} SET price = 99.99 WHERE id = 9")  # noqa: S608
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 5")  # noqa: S608
    return sink


@pytest.mark.exhaustive
@pytest.mark.parametrize("encoding", few(1, ENCODINGS))
def test_rows_stay_the_same_for_the_runtime_and_become_so_for_pyiceberg(
    shared: SharedCatalog, encoding: RowEncoding
) -> None:
    """A table that Flink and Spark write would have other rows after its conversion."""
    sink = make(shared)
    before = read(shared)
    assert 0 < len(before) < 12

    result = convert(sink, encoding)

    assert result.rows > 0
    assert read(shared) == before
    assert sorted(row["id"] for row in sink.table().scan().to_arrow().to_pylist()) == [row[0] for row in before]
    assert [row["id"] for row in sorted(rows_of(sink.table()), key=lambda row: row["id"])] == [row[0] for row in before]
    assert keyed_deletes(sink.table()) == []
    verified = iceberg_ds.verify(NAME, options={"warehouse": str(shared.folder)}, deep=True)
    assert verified.ok, str(verified)


@EXHAUSTIVE
@pytest.mark.parametrize("encoding", few(1, ENCODINGS))
def test_runtime_goes_on_writing_and_compacting_afterwards(shared: SharedCatalog, encoding: RowEncoding) -> None:
    """Rows would come back with the next compaction, or the runtime refuse what a conversion wrote."""
    sink = make(shared)
    convert(sink, encoding)
    before = read(shared)

    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    assert read(shared) == before
    shared.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    assert read(shared) == before
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 9")  # noqa: S608
    delete_equal(
        sink,
        with_ids(pa.table({"id": pa.array([8], pa.int64())}), id=sink.table().schema().find_field("id").field_id),
        [sink.table().schema().find_field("id").field_id],
    )
    rest = read(shared)
    convert(sink, encoding)

    assert read(shared) == rest
    assert [row[0] for row in rest] == sorted(row["id"] for row in sink.table().scan().to_arrow().to_pylist())


@pytest.mark.parametrize("keeps_numbers", few(1, ["true", "false"]))
@EXHAUSTIVE
def test_compaction_before_a_conversion(shared: SharedCatalog, keeps_numbers: str) -> None:
    """Rows of compacted files would be hidden by deletes that are older than they are."""
    sink = make(shared)
    before = read(shared)
    options = f"'rewrite-all', 'true', 'use-starting-sequence-number', '{keeps_numbers}'"
    shared.call("rewrite_data_files", f"options => map({options})")

    convert(sink)

    assert read(shared) == before
    assert sorted(row["id"] for row in sink.table().scan().to_arrow().to_pylist()) == [row[0] for row in before]


@pytest.mark.parametrize("encoding", few(1, ENCODINGS))
@EXHAUSTIVE
def test_summary_is_understood(shared: SharedCatalog, encoding: RowEncoding) -> None:
    """Spark's streaming readers would take a conversion for new rows, or compactions not see what it marks."""
    sink = make(shared)
    result = convert(sink, encoding)

    (row,) = shared.jvm.sql(
        "SELECT operation, summary['total-equality-deletes'] AS keyed, summary['removed-equality-delete-files'] AS gone"  # noqa: S608
        f" FROM {NAME}.snapshots WHERE snapshot_id = {result.snapshot_id}"
    )

    operation = "overwrite" if encoding == "position" else "replace"
    assert row == {"operation": operation, "keyed": "0", "gone": str(result.delete_files)}
