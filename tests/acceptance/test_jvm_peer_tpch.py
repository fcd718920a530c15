"""TPC-H's queries over tables that the sink wrote: both readers answer as Iceberg's own Spark runtime does."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.peer.jvm_peer import REPOSITORY, JvmPeer, PeerCatalog
from support.scripts import load_script
from support.spark.session import shared_session

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

SCALE = Decimal("0.01")
tpch = load_script(REPOSITORY / "benchmarks" / "tpch.py")
QUERIES = load_script(REPOSITORY / "benchmarks" / "tpch_queries.py").queries(SCALE)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Return this process's own Spark, which knows nothing of the runtime."""
    session = shared_session("local[2]")
    iceberg_ds.register(session)
    return session


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """Return the folder of an embedded catalog with the tables, which the sink wrote."""
    folder = tmp_path_factory.mktemp("tpch")
    for table, file in tpch.make_tables(folder / "made", SCALE).items():
        rows = spark.read.parquet(str(file))
        rows.write.format("icebergsink").option("warehouse", str(folder / "warehouse")).mode("append").save(
            f"h.{table}"
        )
    return folder / "warehouse"


@pytest.fixture(scope="module")
def runtime(peer: JvmPeer, warehouse: Path) -> Iterator[PeerCatalog]:
    """Return the catalog as the runtime sees it."""
    catalog = peer.open_catalog(warehouse)
    catalog.run("USE h")
    yield catalog
    catalog.close()


@EXHAUSTIVE
@pytest.mark.parametrize("name", QUERIES)
def test_answers_are_those_of_the_runtime(
    spark: SparkSession, warehouse: Path, runtime: PeerCatalog, name: str
) -> None:
    """A join, a filter or a sum over what we read would be wrong, without any error."""
    query = QUERIES[name]
    found = runtime.run(query)
    expected = tpch.as_answer(found.columns, found.rows)

    for reader in ("spark", "python"):
        for table in tpch.tables_of(query):
            rows = iceberg_ds.read(spark, f"h.{table}", options={"warehouse": str(warehouse)}, reader=reader)
            rows.createOrReplaceTempView(table)
        answer = spark.sql(query)
        assert tpch.difference(query, tpch.as_answer(answer.columns, answer.collect()), expected) is None, reader


def test_queries_name_their_tables() -> None:
    """A query would be answered over the view of an earlier one, or not at all."""
    assert len(QUERIES) == 22
    assert tpch.tables_of(QUERIES["Q16"]) == ["supplier", "part", "partsupp"]
    assert {table for query in QUERIES.values() for table in tpch.tables_of(query)} == set(tpch.TABLES)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ([["name", "total"], ["b", "2.50"], ["a", "1.00"]], None),
        ([["name", "total"], ["b", "2.50"], ["a", "1.0"]], "2 rows instead of 2: [('a', '1.0')] instead of"),
        ([["name", "total"], ["b", "2.50"]], "1 rows instead of 2: [] instead of [('a', '1.00')]"),
        (
            [["name", "total"], *[["b", "2.50"]] * 2, ["a", "1.00"]],
            "3 rows instead of 2: [('b', '2.50')] instead of []",
        ),
        ([["name", "total"], ["a", "1.00"], ["b", "2.50"]], "another order from row 1 on"),
        ([["name", "sum"], ["b", "2.50"], ["a", "1.00"]], "columns ['name', 'sum'] instead of"),
    ],
)
def test_differences_are_noticed(other: list[list[str]], problem: str | None) -> None:
    """A benchmark or a test would call wrong answers right."""
    query = "SELECT name, total\nFROM t\nORDER BY total DESC\nLIMIT 2\n"

    found = tpch.difference(query, other, [["name", "total"], ["b", "2.50"], ["a", "1.00"]])

    assert found == problem if problem is None else found.startswith(problem)


def test_rows_that_are_equal_in_the_order_come_in_any_order() -> None:
    """Answers would differ at random."""
    rows = [["a", "1"], ["b", "1"]]

    assert tpch.difference("ORDER BY total\n", [["name", "total"], *rows], [["name", "total"], *rows[::-1]]) is None
