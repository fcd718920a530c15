"""Tables that Iceberg's own Spark runtime wrote, read by both readers as the runtime reads them."""

from __future__ import annotations

import json

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import DataFrame, SparkSession
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.spark.session import shared_session
from support.tables.sink import NAME

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

COLUMNS = (
    "id BIGINT, name STRING, n INT, of STRUCT<code: INT, day: DATE>, price DECIMAL(9, 2), at TIMESTAMP, "
    "local TIMESTAMP_NTZ, raw BINARY, tags ARRAY<STRING>, pairs MAP<STRING, INT>, part STRING"
)
IN_JSON = "to_json(struct(*), map('timeZone', 'UTC')) AS row"


def values(first: int, last: int) -> str:
    """Return rows of `COLUMNS` in SQL, for the columns as they were at first."""
    return ", ".join(
        f"({key}, {'NULL' if key % 4 == 0 else repr(f'n{key % 3}')}, {key}, "
        f"struct({key % 5}, DATE'2026-11-01' + {key}), {key}.50, "
        f"TIMESTAMP'2026-11-22 03:00:00' + INTERVAL '{key}' HOUR, "
        f"TIMESTAMP_NTZ'2026-11-22 03:00:00', X'0A', "
        f"array('a', NULL), map('k', {key}), 'p {key % 3}/%')"
        for key in range(first, last)
    )


@pytest.fixture
def spark() -> SparkSession:
    """Return this process's own Spark, which knows nothing of the runtime."""
    return shared_session("local[2]")


def assert_same(shared: SharedCatalog, spark: SparkSession, where: str = "true") -> None:
    """Assert that both readers return what the runtime reads."""
    wanted = sorted(shared.jvm.values(f"SELECT {IN_JSON} FROM {NAME} WHERE {where}"))  # noqa: S608  # no outside input
    for reader in ("spark", "python"):
        frame = iceberg_ds.read(spark, NAME, where=where, options={"warehouse": str(shared.folder)}, reader=reader)
        assert in_json(frame) == wanted, reader


def in_json(frame: DataFrame) -> list[str]:
    """Return the rows as texts, in order."""
    return sorted(row["row"] for row in frame.selectExpr(IN_JSON).collect())


@pytest.mark.parametrize("version", [pytest.param("1", marks=EXHAUSTIVE), pytest.param("2", marks=EXHAUSTIVE), "3"])
def test_tables_that_the_jvm_wrote(shared: SharedCatalog, spark: SparkSession, version: str) -> None:
    """Rows that the runtime deleted would come back, or columns that it renamed would be null or of another column."""
    modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
    properties = f"TBLPROPERTIES ('format-version' = '{version}'{'' if version == '1' else f', {modes}'})"
    shared.create_by_jvm(COLUMNS, f"PARTITIONED BY (part, bucket(4, id)) {properties}")
    run = shared.jvm.run
    run(f"INSERT INTO {NAME} VALUES {values(0, 40)}")  # noqa: S608

    assert_same(shared, spark)
    run(f"DELETE FROM {NAME} WHERE id % 7 = 3")  # noqa: S608
    run(f"UPDATE {NAME} SET name = 'changed' WHERE id % 5 = 1")  # noqa: S608
    assert_same(shared, spark)
    for change in (
        "RENAME COLUMN name TO label",
        "RENAME COLUMN n TO name",
        "ALTER COLUMN name TYPE BIGINT",
        "ALTER COLUMN price TYPE DECIMAL(18, 2)",
        "DROP COLUMN raw",
        "ADD COLUMN raw STRING",
        "ADD COLUMN of.more STRING",
        "RENAME COLUMN of.code TO number",
        "DROP PARTITION FIELD part",
        "ADD PARTITION FIELD days(at)",
    ):
        run(f"ALTER TABLE {NAME} {change}")
    run(
        f"INSERT INTO {NAME} SELECT id + 100, label, name + 5000000000, struct(of.number, of.day, 'x'), price, at, "  # noqa: S608
        f"local, tags, pairs, part, 'raw' FROM {NAME} WHERE id < 20"
    )
    run(f"DELETE FROM {NAME} WHERE id BETWEEN 30 AND 32 OR id = 105")  # noqa: S608
    run(f"DELETE FROM {NAME} WHERE id = 33")  # noqa: S608  # a second time in one file
    for where in (
        "true",
        "name < 5000000000",
        "label = 'n1' AND name > 5000000000",
        "part = 'p 1/%' AND of.number < 4",
    ):
        assert_same(shared, spark, where)
    run(f"CALL system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true'))")
    assert_same(shared, spark)


def test_partitions_of_rows_are_those_of_the_runtime(shared: SharedCatalog, spark: SparkSession) -> None:
    """Rows would be counted by other partitions than those that the table has."""
    shared.create_by_jvm(
        "id BIGINT, part STRING, price DECIMAL(9, 2), at TIMESTAMP, day DATE, raw BINARY",
        "PARTITIONED BY (part, bucket(4, id), days(at), price, day, truncate(1, raw))",
    )
    some = (
        "SELECT id, IF(id = 3, NULL, concat('p', id % 2)), CAST(id / 4 AS DECIMAL(9, 2)), "
        "TIMESTAMP'2026-11-22 03:00:00' + make_interval(0, 0, 0, CAST(id AS INT)), DATE'1969-12-30' + CAST(id AS INT), "
        "CAST(concat('b', id) AS BINARY) FROM range({}, {})"
    )
    shared.jvm.run(f"INSERT INTO {NAME} {some.format(0, 5)}")  # no outside input
    for change in (
        "DROP PARTITION FIELD part",
        "DROP PARTITION FIELD price",
        "ADD PARTITION FIELD months(at)",
        "RENAME COLUMN part TO region",
    ):
        shared.alter(change)
    shared.jvm.run(f"INSERT INTO {NAME} {some.format(5, 9)}")

    shown = "id", "_spec_id", "to_json(_partition) AS partition"
    wanted = shared.jvm.sql(f"SELECT {', '.join(shown)} FROM {NAME}")  # noqa: S608
    expected = {row["id"]: (row["_spec_id"], json.loads(row["partition"])) for row in wanted}
    for reader in ("spark", "python"):
        read = iceberg_ds.read(
            spark,
            NAME,
            columns=["id", "_spec_id", "_partition"],
            options={"warehouse": str(shared.folder)},
            reader=reader,  # type: ignore[arg-type]
        )
        found = {row.id: (row._spec_id, json.loads(row.partition)) for row in read.selectExpr(*shown).collect()}
        assert found == expected, reader


# No uuid: the runtime fails on its bounds with a ClassCastException. No time: Spark has no such type here.
MEASURED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "part", StringType()),
    NestedField(3, "old", IntegerType()),
    NestedField(5, "price", DecimalType(30, 2)),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "code", FixedType(3)),
    NestedField(8, "tags", ListType(9, StringType(), element_required=False)),
    NestedField(10, "of", StructType(NestedField(11, "n", IntegerType()))),
)
MEASURED_ROWS = (
    "SELECT id, CASE id % 4 WHEN 0 THEN '' WHEN 1 THEN NULL ELSE concat('p', id % 2) END AS part, "
    "CAST(id % 2 AS INT) AS old, CAST(-id / 4 AS DECIMAL(30, 2)) AS price, "
    "TIMESTAMP'1969-12-31 23:59:59Z' + make_interval(0, 0, 0, id) AS at, "
    "CAST(concat('c0', id % 10) AS BINARY) AS code, array('a') AS tags, named_struct('n', CAST(id AS INT)) AS of "
    "FROM range({}, {})"
)


@pytest.mark.exhaustive
def test_metadata_tables_of_files_are_those_of_the_runtime(shared: SharedCatalog, spark: SparkSession) -> None:
    """What users count files, partitions and deletes by would say something else than with the runtime."""
    options = {"warehouse": str(shared.folder)}
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "part"), PartitionField(3, 1001, IdentityTransform(), "old")
    )
    shared.sink().create(MEASURED, spec, format_version="3")

    def append(first: int, last: int) -> None:
        rows = spark.sql(MEASURED_ROWS.format(first, last)).coalesce(1)
        rows.write.format("icebergsink").mode("append").options(**options).save(NAME)

    append(0, 12)
    iceberg_ds.delete_from(NAME, "id IN (2, 6, 7)", spark, options=options)
    shared.alter("DROP PARTITION FIELD old", "ADD PARTITION FIELD days(at)")
    append(12, 16)
    shared.alter("REPLACE PARTITION FIELD part WITH part AS region")
    append(16, 18)
    iceberg_ds.delete_from(NAME, "id IN (2, 3, 14)", spark, options=options)
    iceberg_ds.delete_from(NAME, "id IN (16, 17)", spark, options=options)

    for table in ("files", "data_files", "delete_files", "all_files", "all_delete_files", "entries", "partitions"):
        assert_same_table(shared, spark, table)
    # It holds what delete files of version 2 may have beside positions; we do not read it.
    assert_same_table(shared, spark, "position_deletes", left_out="row")

    shared.alter("DROP COLUMN old", "RENAME COLUMN price TO cost")
    for table in ("files", "delete_files", "all_files"):
        # Here it keeps the field of the column that was dropped, as `_partition` of a read does.
        assert_same_table(shared, spark, table, left_out="partition")


def assert_same_table(shared: SharedCatalog, spark: SparkSession, table: str, left_out: str = "") -> None:
    """Assert that a metadata table has the columns and the rows of the runtime's, in any order of rows."""
    described = shared.jvm.sql(f"DESCRIBE {NAME}.{table}")
    kinds = [(row["col_name"], row["data_type"]) for row in described if row["col_name"] != left_out]
    ends = [number for number, (name, _) in enumerate(kinds) if not name or name.startswith("#")]
    frame = iceberg_ds.read(spark, f"{NAME}.{table}", options={"warehouse": str(shared.folder)}).drop(left_out)
    assert frame.dtypes == kinds[: min(ends, default=len(kinds))], table

    as_json = f"to_json(struct({', '.join(frame.columns)}), map('timeZone', 'UTC', 'ignoreNullFields', 'false')) AS row"
    wanted = shared.jvm.values(f"SELECT {as_json} FROM {NAME}.{table}")  # noqa: S608  # no outside input
    found = [row["row"] for row in frame.selectExpr(as_json).collect()]
    assert sorted(map(sorted_keys, found)) == sorted(map(sorted_keys, wanted)) != [], table


def sorted_keys(text: str) -> str:
    """Return JSON with its keys in order: the order of maps means nothing."""
    return json.dumps(json.loads(text), sort_keys=True)
