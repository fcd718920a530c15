"""Rewrites of data files as Iceberg's own Spark runtime sees them: of its tables, and beside its own commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE, few
from support.keys.conversions import meanwhile
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_equal, with_ids
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

COLUMNS = (
    "id BIGINT, name STRING, of STRUCT<code: INT, day: DATE>, tags ARRAY<STRING>, counts MAP<STRING, INT>, "
    "price DECIMAL(9, 2), at TIMESTAMP, raw BINARY, ratio DOUBLE, part STRING"
)


def row(key: int) -> str:
    """Return a row as SQL."""
    name = "NULL" if key % 4 == 0 else f"'n{key % 3}'"
    return (
        f"({key}, {name}, struct({key % 5}, DATE'2026-11-{10 + key % 9}'), array('a{key}', NULL), map('k', {key}), "
        f"{key % 90}.50, TIMESTAMP'2026-11-22 0{key % 9}:00:00', X'0{key % 9}', double('NaN'), 'p{key % 2}')"
    )


def read(shared: SharedCatalog) -> list[list[Any]]:
    """Return the rows as the runtime reads them."""
    columns = "id, name, of, tags, counts, price, at, hex(raw), CAST(ratio AS STRING), part"
    return shared.jvm.run(f"SELECT {columns} FROM {NAME} ORDER BY id").rows  # noqa: S608  # no outside input


def make(shared: SharedCatalog) -> Sink:
    """Create a table that the runtime writes, with deletes by position and by key."""
    properties = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
    shared.create_by_jvm(COLUMNS, f"PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '2', {properties})")
    for first in range(0, 24, 4):
        shared.jvm.run(f"INSERT INTO {NAME} VALUES {', '.join(map(row, range(first, first + 4)))}")  # noqa: S608
    sink = shared.sink()
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id IN (5, 12)")  # noqa: S608
    number = sink.table().schema().find_field("id").field_id
    delete_equal(sink, with_ids(pa.table({"id": pa.array([2, 8], pa.int64())}), id=number), [number])
    return sink


@pytest.mark.exhaustive
def test_rows_stay_the_same_for_the_runtime(shared: SharedCatalog) -> None:
    """A table that Spark and Flink write would have other rows after its compaction."""
    sink = make(shared)
    before = read(shared)
    assert len(before) < 24

    result = rewrite(sink, min_input_files="2", remove_dangling_deletes="true")

    assert read(shared) == before
    assert result.rewritten_data_files_count == 12
    assert sorted(found["id"] for found in rows_of(sink.table())) == [found[0] for found in before]
    verified = iceberg_ds.verify(NAME, options={"warehouse": str(shared.folder)}, deep=True)
    assert verified.ok, str(verified)


BESIDE: dict[str, tuple[str, Callable[[int], bool]]] = {
    "DELETE": ("DELETE FROM db.t WHERE id % 5 = 0", lambda key: key % 5 != 0),
    "MERGE": (
        "MERGE INTO db.t t USING (SELECT id FROM range(0, 24, 3)) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        lambda key: key % 3 != 0,
    ),
}


@pytest.mark.parametrize("statement", few(1, BESIDE))
def test_deletes_of_the_runtime_meanwhile_are_moved(shared: SharedCatalog, statement: str) -> None:
    """Its deleted rows would come back, as they do with compactions that pass them over, or all work be done again."""
    sink = make(shared)
    before = read(shared)
    sql, stays = BESIDE[statement]

    with meanwhile(FaultPoint.COMMIT_BEGUN, lambda: shared.jvm.run(sql)) as done:
        result = rewrite(sink, min_input_files="2")

    assert done
    assert result.rewritten_data_files_count == 12
    assert read(shared) == [found for found in before if stays(found[0])]
    assert sorted(found["id"] for found in rows_of(sink.table())) == [found[0] for found in read(shared)]


@EXHAUSTIVE
def test_compactions_of_both_side_by_side_keep_the_rows(shared: SharedCatalog) -> None:
    """Each would replace what the other has replaced."""
    sink = make(shared)
    before = read(shared)

    with meanwhile(
        FaultPoint.COMMIT_BEGUN, lambda: shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    ) as done:
        rewrite(sink, min_input_files="2")

    assert done
    assert read(shared) == before
    shared.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    rewrite(sink, rewrite_all="true")
    assert read(shared) == before
