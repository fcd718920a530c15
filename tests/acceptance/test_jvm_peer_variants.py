"""Columns of type variant: the sink and the runtime write one table in turn, and read the same values."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.catalogs.shared_catalog import SharedCatalog
from support.spark.session import shared_session
from support.spark.tables import Warehouse
from support.tables.sink import NAME
from support.tables.variants import TEXTS, TYPED, nested, variants

import iceberg_ds
from iceberg_ds.errors import DataFileError
from iceberg_ds.reading.read import Reader

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

PRINTED = "id", "to_json({0}) AS text", "schema_of_variant({0}) AS kind"
WHERE = {"v": "v", "s": "s.v", "l": "l[0]", "m": "m['k']"}


@pytest.fixture
def spark() -> SparkSession:
    """Return this process's Spark."""
    return shared_session("local[2]")


def by_jvm(shared: SharedCatalog, value: str = "v") -> dict[int, Any]:
    """Return what the runtime reads: JSON and type of each variant, by id."""
    columns = ", ".join(PRINTED).format(value)
    return {row["id"]: (row["text"], row["kind"]) for row in shared.jvm.sql(f"SELECT {columns} FROM {NAME}")}  # noqa: S608


def by_us(spark: SparkSession, shared: SharedCatalog, reader: Reader, value: str = "v") -> dict[int, Any]:
    """Return what a reader of ours reads; the session is one of the runtime's Spark, or a newer one."""
    rows = iceberg_ds.read(spark, NAME, options={"warehouse": str(shared.folder)}, reader=reader)
    return {
        row.id: (row.text, row.kind) for row in rows.selectExpr(*(part.format(value) for part in PRINTED)).collect()
    }


def check(spark: SparkSession, shared: SharedCatalog, expected: dict[int, Any], *values: str) -> None:
    """Assert that all read this."""
    for value in values or ("v",):
        assert by_jvm(shared, value) == expected
        for reader in ("spark", "python"):
            assert by_us(spark, shared, reader, value) == expected, (reader, value)  # type: ignore[arg-type]


@pytest.mark.exhaustive
def test_runtime_reads_what_the_sink_writes_and_goes_on(shared: SharedCatalog, spark: SparkSession) -> None:
    """Values would be others for its users, or its own changes would not be seen by ours."""
    rows = nested(variants(spark, typed=True)).localCheckpoint()
    columns = [part.format("v") for part in PRINTED]
    expected = {row.id: (row.text, row.kind) for row in rows.selectExpr(*columns).collect()}
    assert expected.keys() == TEXTS.keys() | TYPED.keys()

    Warehouse(folder=shared.folder).append(rows, format_version="3")
    # Iceberg 1.12 fails to read variants in batches from a table with structs, its own, too.
    shared.alter("SET TBLPROPERTIES ('read.parquet.vectorization.enabled' = 'false')")
    check(spark, shared, expected, *WHERE.values())

    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 2")  # noqa: S608  # no outside input
    shared.jvm.run(f"UPDATE {NAME} SET v = parse_json('[3]') WHERE id = 3")  # noqa: S608
    shared.jvm.run(f"INSERT INTO {NAME} SELECT 40, parse_json('{{\"b\": 1}}'), NULL, NULL, NULL, NULL")
    del expected[2]
    expected[3] = ("[3]", "ARRAY<BIGINT>")
    expected[40] = ('{"b":1}', "OBJECT<b: BIGINT>")
    check(spark, shared, expected)

    options = {"warehouse": str(shared.folder), "rewrite-all": "true"}
    iceberg_ds.rewrite_data_files(NAME, spark, options=options)
    check(spark, shared, expected)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    check(spark, shared, expected)


@pytest.mark.exhaustive
def test_runtime_reads_structs_that_tasks_made_variants_of(shared: SharedCatalog, spark: SparkSession) -> None:
    """A field would be missed by its name, or be of another type than where the runtime makes the variant."""
    document = (
        "named_struct('z', id, 'a', array(float(id), NULL), 'm', map('k', named_struct('d', 1.50BD, 'z', 'x')), "
        "'b', X'00ff', 'at', TIMESTAMP'2024-02-29 12:00:00.000001', 'day', DATE'1969-12-31', 'none', CAST(NULL AS int))"
    )
    wide = "map_from_arrays(transform(sequence(0, 60), x -> concat('k', x * 7 % 61)), sequence(0, 60))"
    rows = spark.range(40).selectExpr("id", f"IF(id = 7, NULL, {document}) AS v", f"{wide} AS w")
    Warehouse(folder=shared.folder).append(rows, format_version="3", nested_as_variant="true")

    shared.jvm.run(f"INSERT INTO {NAME} SELECT id + 40, to_variant_object({document}), NULL FROM range(40)")  # noqa: S608
    found = by_jvm(shared)
    assert found[7] == (None, None)
    assert all(found[number] == found[number + 40] for number in range(40) if number != 7)
    check(spark, shared, found)
    values = ", ".join(f"variant_get(w, '$.k{number}', 'int') AS k{number}" for number in range(61))
    (row,) = shared.jvm.sql(f"SELECT {values} FROM {NAME} WHERE id = 3")  # noqa: S608
    assert sorted(row.values()) == list(range(61))


def test_shredded_variants_are_read_by_spark_and_refused_by_tasks(shared: SharedCatalog, spark: SparkSession) -> None:
    """A part of each value would be missing."""
    shared.create_by_jvm(
        "id bigint, v variant", "TBLPROPERTIES ('format-version' = '3', 'write.parquet.shred-variants' = 'true')"
    )
    shared.jvm.run(
        f"INSERT INTO {NAME} SELECT /*+ REPARTITION(1) */ id, parse_json(concat('{{\"n\": ', id, '}}')) FROM range(100)"  # noqa: S608
    )
    expected = {number: (f'{{"n":{number}}}', "OBJECT<n: BIGINT>") for number in range(100)}
    assert by_jvm(shared) == expected

    assert by_us(spark, shared, "spark") == expected
    with pytest.raises(Exception, match="shredded"):
        by_us(spark, shared, "python")
    with pytest.raises(DataFileError, match=r"nothing was committed.*shredded"):
        iceberg_ds.rewrite_data_files(NAME, spark, options={"warehouse": str(shared.folder), "rewrite-all": "true"})
    assert by_jvm(shared) == expected
