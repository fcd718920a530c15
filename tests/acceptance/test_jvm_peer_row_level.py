"""`delete_from`, `update` and `merge` beside the same statements of Iceberg's own Spark runtime."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import few
from support.spark.session import shared_session

import iceberg_ds
from iceberg_ds import Delete, Insert, Update

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

MODES = ("merge-on-read", "copy-on-write")
LAYOUTS = ("", "PARTITIONED BY (part)")
COLUMNS = "id BIGINT, part INT, name STRING, of STRUCT<code: INT, text: STRING>, price DECIMAL(9, 2), day DATE"
ROWS = ", ".join(
    f"({n}, {n % 3 if n % 7 else 'NULL'}, {'NULL' if n % 4 == 0 else repr(f'n{n}')}, "
    f"{'NULL' if n % 5 == 0 else f'struct({n}, NULL)'}, {n}.25, DATE'2026-11-01' + {n})"
    for n in range(30)
)
SOURCE = "SELECT * FROM VALUES {} AS s(id, part, name, of, price, day)".format(  # noqa: S608  # no outside input
    ", ".join(
        f"({n}, 9, {'NULL' if n % 3 == 0 else repr(f's{n}')}, named_struct('code', {n}, 'text', 'x'), {n}.5, NULL)"
        for n in range(20, 40)
    )
)
Ours = Callable[[SparkSession, Any, dict[str, Any]], object]
# What both do, one after the other; `{t}` is the table, `s` the source.
STATEMENTS: list[tuple[str, Ours]] = [
    (
        "DELETE FROM {t} WHERE name IS NULL",
        lambda spark, _, how: iceberg_ds.delete_from("db.t", "name IS NULL", spark, **how),
    ),
    ("DELETE FROM {t} WHERE part = 2", lambda spark, _, how: iceberg_ds.delete_from("db.t", "part = 2", spark, **how)),
    (
        "UPDATE {t} SET price = price * 2, of.text = concat('t', id), part = id % 2 WHERE id BETWEEN 5 AND 19",
        lambda spark, _, how: iceberg_ds.update(
            "db.t",
            {"price": "price * 2", "of.text": "concat('t', id)", "part": "id % 2"},
            where="id BETWEEN 5 AND 19",
            spark=spark,
            **how,
        ),
    ),
    (
        """MERGE INTO {t} AS target USING s AS source ON target.id = source.id
        WHEN MATCHED AND source.name IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET name = source.name, price = target.price + source.price
        WHEN NOT MATCHED AND source.id < 35 THEN INSERT *
        WHEN NOT MATCHED THEN INSERT (id, name) VALUES (source.id, 'late')
        WHEN NOT MATCHED BY SOURCE AND target.id < 8 THEN UPDATE SET name = 'alone'
        WHEN NOT MATCHED BY SOURCE AND target.id > 17 THEN DELETE""",
        lambda spark, source, how: iceberg_ds.merge(
            spark,
            source,
            "db.t",
            on=["id"],
            when_matched=[
                Delete("source.name IS NULL"),
                Update({"name": "source.name", "price": "target.price + source.price"}),
            ],
            when_not_matched=[Insert(condition="source.id < 35"), Insert({"id": "source.id", "name": "'late'"})],
            when_not_matched_by_source=[
                Update({"name": "'alone'"}, "target.id < 8"),
                Delete("target.id > 17"),
            ],
            **how,
        ),
    ),
]


@pytest.fixture
def spark() -> SparkSession:
    """Return this process's own Spark, which knows nothing of the runtime."""
    return shared_session("local[2]")


@pytest.mark.parametrize(("mode", "layout", "version"), few(1, [*product(MODES, LAYOUTS, "23")]))
def test_statements_change_the_same_rows(
    shared: SharedCatalog, spark: SparkSession, mode: Any, layout: str, version: str
) -> None:
    """A row would differ from what the same statement of the runtime leaves, or the runtime could not read it."""
    told = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
    layout = f"{layout} TBLPROPERTIES ('format-version' = '{version}', {told})"
    run, values = shared.jvm.run, shared.jvm.values
    shared.create_by_jvm(COLUMNS, layout)
    run(f"CREATE TABLE db.u ({COLUMNS}) USING iceberg {layout}")
    for table in ("db.t", "db.u"):
        run(f"INSERT INTO {table} VALUES {ROWS}")  # noqa: S608
    run(f"CREATE OR REPLACE TEMPORARY VIEW s AS {SOURCE}")

    for statement, ours in STATEMENTS:
        run(statement.format(t="db.u"))
        ours(spark, spark.sql(SOURCE), {"options": {"warehouse": str(shared.folder)}})

        rows = [sorted(values(f"SELECT to_json(struct(*)) FROM {table}")) for table in ("db.t", "db.u")]  # noqa: S608
        assert rows[0] == rows[1], statement
    for statement, _ in STATEMENTS:  # the runtime goes on where we have been
        for table in ("db.t", "db.u"):
            run(statement.format(t=table))
    rows = [sorted(values(f"SELECT to_json(struct(*)) FROM {table}")) for table in ("db.t", "db.u")]  # noqa: S608
    assert rows[0] == rows[1]
