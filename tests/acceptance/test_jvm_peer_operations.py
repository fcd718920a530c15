"""What Iceberg's own Spark runtime does to a table beside appends, the sink's next write leaves as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer import Row
from support.tables.event_rows import EVENT, EVENT_COLUMNS, make_events, struct
from support.tables.sink import epoch

from iceberg_ds.snapshots import manifests

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

BY_REGION = "PARTITIONED BY (region)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A statement that changes rows, and what it makes of each."""

    statement: str
    convert: Callable[[Row], Row | None]


def unless(condition: Callable[[Row], bool]) -> Callable[[Row], Row | None]:
    """Return what drops the rows that satisfy a condition."""
    return lambda row: None if condition(row) else row


ROW_CHANGES = {
    "delete": RowChange(statement="DELETE FROM db.t WHERE id % 3 = 0", convert=unless(lambda row: row["id"] % 3 == 0)),
    "delete-partition": RowChange(
        statement="DELETE FROM db.t WHERE region = 'EU'", convert=unless(lambda row: row["region"] == "EU")
    ),
    "update": RowChange(
        statement="UPDATE db.t SET s = 'changed', region = 'US' WHERE id % 4 = 1",
        convert=lambda row: {**row, "s": "changed", "region": "US"} if row["id"] % 4 == 1 else row,
    ),
    "merge": RowChange(
        statement="MERGE INTO db.t USING (SELECT id FROM range(0, 12, 5)) AS new ON db.t.id = new.id "
        "WHEN MATCHED AND new.id = 5 THEN DELETE WHEN MATCHED THEN UPDATE SET s = NULL",
        convert=lambda row: None if row["id"] == 5 else {**row, "s": None} if row["id"] in (0, 10) else row,
    ),
    "truncate": RowChange(statement="TRUNCATE TABLE db.t", convert=unless(lambda _: True)),
}


@pytest.mark.parametrize("mode", few(1, ["merge-on-read", "copy-on-write"]))
@pytest.mark.parametrize("change", few(2, ROW_CHANGES.values()), ids=ROW_CHANGES.keys())
def test_rows_that_the_jvm_changed(shared: SharedCatalog, change: RowChange, mode: str) -> None:
    """An append would bring deleted rows back, or delete the rows that it adds."""
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
    shared.create_by_jvm(EVENT_COLUMNS, f"{BY_REGION} TBLPROPERTIES ({modes})")
    old, new = make_events(0), make_events(12)
    shared.append(old, EVENT)
    shared.jvm.run(change.statement)

    shared.append(new, EVENT)

    shared.check_rows([*(row for row in map(change.convert, old) if row is not None), *new])


@EXHAUSTIVE
@pytest.mark.parametrize("region", few(1, ["PARTITIONED BY (region)", ""]), ids=["partitioned", "unpartitioned"])
def test_list_of_many_blocks(shared: SharedCatalog, monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    """After some hundred commits the runtime would miss rows, or fail at the table."""
    monkeypatch.setattr(manifests, "_BLOCK_ENTRIES", 2)
    shared.create_by_jvm(EVENT_COLUMNS, region)
    parts = [make_events(12 * number) for number in range(9)]
    for number, part in enumerate(parts):
        if number == 5:
            shared.append_by_jvm(part, EVENT)
        else:
            shared.append(part, EVENT)

    shared.check_rows([row for part in parts for row in part])

    assert len(shared.metadata("manifests", "path")) == len(parts)
    shared.jvm.run("DELETE FROM db.t WHERE id < 12")
    shared.append(make_events(120), EVENT)
    shared.check_rows([*(row for part in parts[1:] for row in part), *make_events(120)])


MAINTENANCE: dict[str, list[tuple[str, str]]] = {
    "rewrite-data-files": [("rewrite_data_files", "options => map('rewrite-all', 'true')")],
    "rewrite-manifests": [("rewrite_manifests", "")],
    "expire-snapshots": [("expire_snapshots", "older_than => now(), retain_last => 1")],
    "compute-statistics": [("compute_table_stats", ""), ("compute_partition_stats", "")],
    "all": [
        ("rewrite_data_files", "options => map('rewrite-all', 'true')"),
        ("rewrite_manifests", ""),
        ("expire_snapshots", "older_than => now(), retain_last => 1"),
        ("remove_orphan_files", ""),
    ],
}


@pytest.mark.parametrize("procedures", few(1, MAINTENANCE.values()), ids=MAINTENANCE.keys())
def test_maintenance_by_the_jvm_between_epochs(shared: SharedCatalog, procedures: list[tuple[str, str]]) -> None:
    """A stream that goes on after maintenance would lose rows, or write an epoch a second time."""
    shared.create_by_jvm(EVENT_COLUMNS, BY_REGION)
    sink = shared.sink()
    parts = [make_events(12 * number) for number in range(3)]
    for number in range(2):
        sink.commit(sink.write(parts[number], schema=EVENT, of_epoch=epoch(number)))

    for procedure, arguments in procedures:
        shared.call(procedure, arguments)
    sink.commit(sink.write(parts[1], schema=EVENT, of_epoch=epoch(1)))  # replayed
    sink.commit(sink.write(parts[2], schema=EVENT, of_epoch=epoch(2)))

    shared.check_rows([row for part in parts for row in part])


def test_rollback_by_the_jvm(shared: SharedCatalog) -> None:
    """Rows that were rolled back would return with the next append."""
    shared.create_by_jvm(EVENT_COLUMNS, BY_REGION)
    first, second, third = make_events(0), make_events(12), make_events(24)
    kept = shared.append(first, EVENT).snapshot_id
    shared.append(second, EVENT)
    shared.call("rollback_to_snapshot", f"snapshot_id => {kept}")

    shared.append(third, EVENT)

    shared.check_rows([*first, *third])


def test_branch_and_tag_of_the_jvm(shared: SharedCatalog) -> None:
    """An append to the main branch would move or lose what others have named."""
    shared.create_by_jvm(EVENT_COLUMNS, BY_REGION)
    first, second, third = make_events(0), make_events(12), make_events(24)
    shared.append(first, EVENT)
    shared.alter("CREATE TAG released", "CREATE BRANCH audit")
    shared.append(second, EVENT)
    shared.jvm.append("db.t.branch_audit", third, EVENT)

    shared.append(make_events(36), EVENT)

    shared.check_rows([*first, *second, *make_events(36)])
    shared.check_branch("audit", [*first, *third])
    shared.check_branch("released", first)


PROPERTIES = {
    "object-storage": {"write.object-storage.enabled": "true"},
    "object-storage-without-partitions": {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": "false",
    },
    "folders": {"write.data.path": "{folder}/rows", "write.metadata.path": "{folder}/about"},
    "no-metrics": {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.id": "counts"},
    "short-bounds": {"write.metadata.metrics.default": "truncate(1)"},
    "full-bounds": {"write.metadata.metrics.default": "full"},
    "gzip": {"write.parquet.compression-codec": "gzip"},
    "small-pages": {"write.parquet.page-row-limit": "2", "write.parquet.row-group-size-bytes": "1"},
    "bloom-filters": {"write.parquet.bloom-filter-enabled.column.s": "true"},
    "avro-codec": {"write.avro.compression-codec": "zstd", "write.metadata.compression-codec": "gzip"},
    "old-metadata": {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"},
    "merged-manifests": {"commit.manifest.min-count-to-merge": "1"},
}


@EXHAUSTIVE
@pytest.mark.parametrize("properties", few(2, PROPERTIES.values()), ids=PROPERTIES.keys())
def test_properties_that_the_jvm_set(shared: SharedCatalog, properties: dict[str, str], tmp_path: Path) -> None:
    """A table's own settings would make its rows unreadable, or queries lose them."""
    values = {key: value.format(folder=tmp_path) for key, value in properties.items()}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in values.items())
    shared.create_by_jvm(EVENT_COLUMNS, f"{BY_REGION} TBLPROPERTIES ({listed})")
    first, second, third = make_events(0), make_events(12), make_events(24)

    shared.append(first, EVENT)
    shared.append_by_jvm(second, EVENT)
    shared.append(third, EVENT)

    shared.check_rows([*first, *second, *third])
    shared.check_filters([*first, *second, *third], struct(id=spark.LongType(), s=spark.StringType()))


@pytest.mark.exhaustive
def test_columns_with_every_kind_of_name(shared: SharedCatalog) -> None:
    """Columns whose names are no plain words would be written under other names, or read as null."""
    names = ["Größe (m)", "a.b", "select", "2nd", "x-y", "_", "日本", "👍🏽", "a b", "a%20b", "CamelCase"]
    schema = struct(id=spark.LongType(), **dict.fromkeys(names, spark.StringType()))
    columns = ", ".join(["id BIGINT", *(f"`{name}` STRING" for name in names)])
    shared.create_by_jvm(columns, "PARTITIONED BY (`Größe (m)`, `2nd`, bucket(2, `👍🏽`), truncate(1, `a b`))")
    ours: list[Row] = [{"id": 0, **{name: name for name in names}}, {**dict.fromkeys(schema.names), "id": 1}]
    theirs = [{**row, "id": row["id"] + 10} for row in ours]

    shared.append(ours, schema)
    shared.append_by_jvm(theirs, schema)

    shared.check_rows([*ours, *theirs])
    shared.check_filters([*ours, *theirs], schema)


@EXHAUSTIVE
def test_required_columns_of_the_jvm(shared: SharedCatalog) -> None:
    """Tables whose columns may not be null could not be written, or not be read by others."""
    nested = "STRUCT<x: INT NOT NULL, y: STRING>"
    shared.create_by_jvm(
        f"id BIGINT NOT NULL, s STRING NOT NULL, place {nested}, region STRING NOT NULL",
        "PARTITIONED BY (region, bucket(4, id))",
    )
    schema = struct(
        id=spark.LongType(),
        s=spark.StringType(),
        place=spark.StructType(
            [
                spark.StructField("x", spark.IntegerType(), nullable=False),
                spark.StructField("y", spark.StringType()),
            ]
        ),
        region=spark.StringType(),
    )
    rows: list[dict[str, Any]] = [
        {"id": 0, "s": "a", "place": {"x": 1, "y": None}, "region": "EU"},
        {"id": 1, "s": "", "place": None, "region": ""},
    ]

    shared.append(rows, schema)

    shared.check_rows(rows)
    shared.check_filters(rows, schema)


ORDERS = {
    "columns": "region DESC NULLS LAST, s, id",
    "floats": "amount, id DESC",
    "transforms": "bucket(4, id), truncate(2, s) DESC NULLS LAST, days(ts), id",
}


@EXHAUSTIVE
@pytest.mark.parametrize("order", few(1, ORDERS.values()), ids=ORDERS.keys())
def test_write_order_of_the_jvm(shared: SharedCatalog, order: str) -> None:
    """Files would say that they are sorted and not be, or be sorted otherwise than those of the peer."""
    shared.create_by_jvm(EVENT_COLUMNS)
    shared.alter(f"WRITE ORDERED BY {order}")
    # The spec has -0.0 before 0.0, as the sink sorts; for the peer they are equal.
    rows = [row for row in make_events(0, 30) if row["amount"] != 0.0]
    sink = shared.sink()

    sink.commit(sink.write(rows, schema=EVENT))
    shared.append_by_jvm(rows, EVENT)

    ours, theirs = shared.metadata("entries", "sequence_number, data_file.*", order="sequence_number")
    assert ids_in_file(shared, ours["file_path"]) == ids_in_file(shared, theirs["file_path"])
    assert ours["sort_order_id"] == theirs["sort_order_id"] == 1


def ids_in_file(shared: SharedCatalog, path: str) -> list[int]:
    """Return the ids of a file's rows in the order in which they lie there."""
    found: list[int] = shared.jvm.values(f"SELECT id FROM db.t WHERE _file = '{path}' ORDER BY _pos")  # noqa: S608
    return found
