"""Tables that follow the columns of batches and streams, with real Spark and with several writers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType, StructType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import check_sound
from support.exhaustive import EXHAUSTIVE, few
from support.spark.jobs import numbered
from support.spark.process import wait_until
from support.spark.tables import FORMAT, Warehouse, read_with_chdb

TIMEOUT_S = 300
WRITERS = 2


def fields_of(house: Warehouse) -> dict[str, tuple[int, str]]:
    """Return id and type of the table's columns by name."""
    return {field.name: (field.field_id, str(field.field_type)) for field in house.table().schema().fields}


def rows_of(house: Warehouse) -> list[dict[str, Any]]:
    """Return all rows in the order of their ids."""
    return sorted(house.rows().to_pylist(), key=lambda row: row["id"])


def create(house: Warehouse, schema: Schema, spec: PartitionSpec | None = None) -> None:
    """Create the table through PyIceberg."""
    catalog = house.catalog()
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table("db.t", schema, partition_spec=spec or PartitionSpec())


@pytest.mark.parametrize("option", few(1, [{"schema_evolution": "add-columns"}, {"mergeSchema": "true"}]))
def test_batch_adds_its_new_columns(spark: SparkSession, house: Warehouse, option: dict[str, str]) -> None:
    """A new column would stop a job, or its values be lost; old rows would not be readable."""
    house.append(numbered(spark, 0, 2))

    house.append(numbered(spark, 2, 3).selectExpr("1.5D AS score", "*", "array(id) AS ids"), **option)
    house.append(numbered(spark, 3, 4), **option)

    assert fields_of(house) == {
        "id": (1, "long"),
        "name": (2, "string"),
        "score": (3, "double"),
        "ids": (4, "list<long>"),
    }
    assert [(row["id"], row["name"], row["score"], row["ids"]) for row in rows_of(house)] == [
        (0, "row 0", None, None),
        (1, "row 1", None, None),
        (2, "row 2", 1.5, [2]),
        (3, "row 3", None, None),
    ]
    found = read_with_chdb(house.folder / "db" / "t", "id, score")
    assert [row["score"] for row in found] == [None, None, 1.5, None]


def test_batch_is_refused_by_default_and_told_how_to_rename(spark: SparkSession, house: Warehouse) -> None:
    """A misspelt column would become one of the table."""
    house.append(numbered(spark, 0, 2))

    with pytest.raises(PySparkException, match=r"ALTER TABLE db\.t RENAME COLUMN name TO nmae"):
        house.append(numbered(spark, 2, 3).withColumnRenamed("name", "nmae"))

    assert fields_of(house) == {"id": (1, "long"), "name": (2, "string")}


@EXHAUSTIVE
def test_batch_widens_adds_relaxes_and_leaves_out_with_full(spark: SparkSession, house: Warehouse) -> None:
    """A job would stop at a change that keeps all rows readable."""
    inner = StructType(NestedField(4, "x", IntegerType(), required=True))
    create(
        house,
        Schema(
            NestedField(1, "id", IntegerType(), required=True),
            NestedField(2, "amount", DecimalType(5, 2), required=True),
            NestedField(3, "s", inner),
            NestedField(5, "name", StringType()),
        ),
    )
    house.append(
        spark.sql("SELECT 1 AS id, CAST(1.25 AS DECIMAL(5,2)) AS amount, named_struct('x', 7) AS s, 'a' AS name")
    )

    ids = {name: field_id for name, (field_id, _) in fields_of(house).items()}
    wide = "SELECT 3000000000 AS id, CAST(12345678.25 AS DECIMAL(12,2)) AS amount, named_struct('y', 'new') AS s"
    house.append(spark.sql(wide), schema_evolution="full")

    schema = house.table().schema()
    assert {name: field_id for name, (field_id, _) in fields_of(house).items()} == ids
    assert [str(schema.find_type(name)) for name in ("id", "amount", "s.x", "s.y")] == [
        "long",
        "decimal(12, 2)",
        "int",
        "string",
    ]
    assert not schema.find_field("s.x").required
    assert rows_of(house) == [
        {"id": 1, "amount": Decimal("1.25"), "s": {"x": 7, "y": None}, "name": "a"},
        {"id": 3_000_000_000, "amount": Decimal("12345678.25"), "s": {"x": None, "y": "new"}, "name": None},
    ]


@pytest.mark.exhaustive
def test_columns_are_dropped_if_asked_for(spark: SparkSession, house: Warehouse) -> None:
    """A column that nobody fills any more would stay for ever, or go without being asked for."""
    house.append(numbered(spark, 0, 1).selectExpr("*", "1 AS gone"))

    house.append(numbered(spark, 1, 2), schema_evolution="full")
    assert [*fields_of(house)] == ["id", "name", "gone"]
    house.append(numbered(spark, 2, 3), schema_evolution="full", drop_missing_columns="true")

    assert rows_of(house) == [{"id": number, "name": f"row {number}"} for number in range(3)]


@EXHAUSTIVE
def test_overwrite_of_all_rows_may_change_types(spark: SparkSession, house: Warehouse) -> None:
    """A table would have to be dropped, with its history and its grants, to change a type."""
    house.append(numbered(spark, 0, 2))
    rows = numbered(spark, 5, 6).selectExpr("CAST(id AS STRING) AS id", "name")
    options = {**house.options, "schema-evolution": "full"}

    with pytest.raises(PySparkException, match="column 'id' is string in the DataFrame and bigint in the table"):
        house.append(rows, schema_evolution="full")
    rows.write.format(FORMAT).mode("overwrite").options(**options).save("db.t")

    assert fields_of(house) == {"id": (3, "string"), "name": (2, "string")}
    assert house.rows().to_pylist() == [{"id": "5", "name": "row 5"}]
    first = house.table().snapshots()[0]
    old = house.table().scan(snapshot_id=first.snapshot_id).to_arrow()
    assert sorted(old["id"].to_pylist()) == [0, 1]


def test_sources_of_partitions_are_widened(spark: SparkSession, house: Warehouse) -> None:
    """Queries would miss the rows of before, or fail on them."""
    create(
        house,
        Schema(NestedField(1, "id", IntegerType()), NestedField(2, "amount", DecimalType(5, 2))),
        PartitionSpec(
            PartitionField(1, 1000, IdentityTransform(), "id"),
            PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
            PartitionField(2, 1002, TruncateTransform(10), "amount_trunc"),
            PartitionField(2, 1003, IdentityTransform(), "amount"),
        ),
    )
    house.append(spark.sql("SELECT 34 AS id, CAST(1.25 AS DECIMAL(5,2)) AS amount"))

    for _ in range(2):
        house.append(
            spark.sql("SELECT 34L AS id, CAST(1.25 AS DECIMAL(20,2)) AS amount UNION ALL SELECT 5000000000, 7.75"),
            schema_evolution="full",
        )

    table = house.table()
    assert len(table.scan("id = 34 AND amount = 1.25").to_arrow()) == 3
    assert len(table.scan("id > 34").to_arrow()) == 2
    assert len(list(table.scan("id = 34").plan_files())) == 3
    check_sound(table)


def write_json(folder: Path, number: int, *rows: dict[str, Any]) -> None:
    """Write rows as one more file of a source, which streams take in the order of `number`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:06d}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run_stream(spark: SparkSession, house: Warehouse, folder: Path, schema: str, **options: str) -> None:
    """Run a query over all that is in the source, from where it stopped."""
    rows: DataFrame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder / "source"))
    more = {key.replace("_", "-"): value for key, value in options.items()}
    writer = rows.writeStream.format(FORMAT).options(**house.options, **more)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start("db.t")
    try:
        assert query.awaitTermination(TIMEOUT_S), query.status
    finally:
        query.stop()


def test_stream_restarted_with_a_wider_schema_goes_on(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A new column in the source would mean a new table, or rows without it."""
    narrow, wide = "id BIGINT, n INT", "n BIGINT, id BIGINT, new STRING"
    write_json(tmp_path / "source", 0, {"id": 0, "n": 1}, {"id": 1, "n": 2})
    run_stream(spark, house, tmp_path, narrow, schema_evolution="full")

    write_json(tmp_path / "source", 1, {"id": 2, "n": 5_000_000_000, "new": "x"})
    write_json(tmp_path / "source", 2, {"id": 3})
    run_stream(spark, house, tmp_path, wide, schema_evolution="full")
    write_json(tmp_path / "source", 3, {"id": 4, "n": 3, "new": "not read"})
    run_stream(spark, house, tmp_path, narrow, schema_evolution="add-columns")

    assert fields_of(house) == {"id": (1, "long"), "n": (2, "long"), "new": (3, "string")}
    assert [(row["id"], row["n"], row["new"]) for row in rows_of(house)] == [
        (0, 1, None),
        (1, 2, None),
        (2, 5_000_000_000, "x"),
        (3, None, None),
        (4, 3, None),
    ]
    assert len(house.snapshots()) == 4


def test_stream_leaves_required_columns_required(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Spark calls all columns of a stream nullable: its start would end what the table promises to readers."""
    create(house, Schema(NestedField(1, "id", LongType(), required=True)))
    write_json(tmp_path / "source", 0, {"id": 0, "new": "x"})

    run_stream(spark, house, tmp_path, "id BIGINT, new STRING", schema_evolution="full")

    schema = house.table().schema()
    assert schema.find_field("id").required
    assert rows_of(house) == [{"id": 0, "new": "x"}]


@EXHAUSTIVE
def test_processes_that_add_columns_at_once_end_with_all_of_them_once(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """Of two jobs that add a column at the same moment, one would fail, or the column be there twice."""
    house.append(numbered(spark, 0, 2))
    rounds, program = 5, "support.programs.schema_changer"
    commands = [
        [sys.executable, "-m", program, str(house.folder), str(tmp_path), str(number), str(rounds)]
        for number in range(WRITERS)
    ]
    processes = [
        subprocess.Popen(command, cwd=Path(__file__).parent.parent, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == WRITERS or _any_ended(processes), "all are ready")
        (tmp_path / "go").touch()
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.wait()

    added = {f"shared_{position}" for position in range(rounds)} | {
        f"own_{number}_{position}" for number in range(WRITERS) for position in range(rounds)
    }
    columns = fields_of(house)
    metadata = house.table().metadata
    assert sorted(columns) == sorted({"id", "name"} | added)
    assert sorted(field_id for field_id, _ in columns.values()) == [*range(1, 3 + len(added))]
    assert metadata.last_column_id == 2 + len(added)
    assert len({schema.schema_id for schema in metadata.schemas}) == len(metadata.schemas) == 1 + len(added)
    assert house.rows().num_rows == 2


def _any_ended(processes: list[subprocess.Popen[str]]) -> bool:
    return any(process.poll() is not None for process in processes)
