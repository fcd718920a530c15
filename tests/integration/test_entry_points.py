"""The ways to reach the sink, a table and a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.spark.jobs import BatchJob, StreamJob, dump, numbered, write_source
from support.spark.process import SparkProcess
from support.spark.session import shared_session
from support.spark.tables import FORMAT, Warehouse

import iceberg_ds
from iceberg_ds import IcebergSink

MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.fixture
def new_session() -> SparkSession:
    """Return a session in which nothing is registered or set."""
    return shared_session("local[2]").newSession()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the working directory of a driver process."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Warehouse]:
    """Return the warehouses of two catalogs by their names: one is in a file, one in the environment."""
    folder = tmp_path_factory.mktemp("configured")
    houses = {name: Warehouse(folder=folder / name) for name in ("lab", "prod")}
    lines = [
        "catalog:",
        "  lab:",
        "    type: sql",
        f"    uri: {houses['lab'].uri}",
        f"    warehouse: file://{houses['lab'].folder}",
    ]
    (folder / ".pyiceberg.yaml").write_text("\n".join(lines))
    return houses


@pytest.fixture(scope="module")
def driver(
    elsewhere: Path, configured: dict[str, Warehouse], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkProcess]:
    """Return a fresh driver process in its own working directory, which finds these catalogs in its configuration.

    It imports nothing of the package by itself.
    """
    house = configured["prod"]
    environment = {
        "PYICEBERG_HOME": str(house.folder.parent),
        "PYICEBERG_CATALOG__PROD__TYPE": "sql",
        "PYICEBERG_CATALOG__PROD__URI": house.uri,
        "PYICEBERG_CATALOG__PROD__WAREHOUSE": f"file://{house.folder}",
    }
    for each in configured.values():
        each.folder.mkdir()
    with SparkProcess(tmp_path_factory.mktemp("driver"), cwd=elsewhere, environment=environment) as process:
        yield process


def test_spark_registers_the_class(new_session: SparkSession, house: Warehouse) -> None:
    """The way that PySpark's own documentation shows would not work."""
    is_refused = pyspark.__version__.startswith("4.0.")  # a name that Spark has found by itself
    with pytest.raises(AnalysisException, match="DATA_SOURCE_ALREADY_EXISTS") if is_refused else nullcontext():
        new_session.dataSource.register(IcebergSink)
    house.append(numbered(new_session, 0, 3))

    assert house.ids() == [0, 1, 2]


def test_register_works_twice(new_session: SparkSession, house: Warehouse) -> None:
    """A notebook cell could not be run again."""
    iceberg_ds.register(new_session)
    iceberg_ds.register(new_session)
    house.append(numbered(new_session, 0, 3))

    assert house.ids() == [0, 1, 2]


def test_register_sets_the_size_of_arrow_batches(new_session: SparkSession) -> None:
    """Rows would go to Python at half the speed."""
    before = new_session.conf.get(MAX_BYTES)
    iceberg_ds.register(new_session)

    assert before != "2147483647"
    assert new_session.conf.get(MAX_BYTES) == "2147483647"


def test_register_keeps_the_users_size_of_arrow_batches(new_session: SparkSession) -> None:
    """A job with huge rows, which has lowered the size, would run out of memory."""
    new_session.conf.set(MAX_BYTES, "1000000")
    iceberg_ds.register(new_session)

    assert new_session.conf.get(MAX_BYTES) == "1000000"


@EXHAUSTIVE
def test_batch_and_stream_work_without_registration_in_a_fresh_process(
    driver: SparkProcess, house: Warehouse, tmp_path: Path
) -> None:
    """Every job would need code of this package; SQL-only and hosted jobs could not use it."""
    batch = driver.run(dump(BatchJob(options=house.options)))
    write_source(tmp_path / "source", [range(10, 20)])
    job = StreamJob(source=str(tmp_path / "source"), checkpoint=str(tmp_path / "checkpoint"), options=house.options)
    stream = driver.run(dump(job))

    assert (batch, stream) == (None, None)
    assert house.ids() == list(range(20))


@EXHAUSTIVE
def test_embedded_catalog_is_below_the_drivers_working_directory(driver: SparkProcess, elsewhere: Path) -> None:
    """With no catalog named, nothing would work; or readers in another folder would not find the files."""
    error = driver.run(dump(BatchJob()))

    house = Warehouse(folder=elsewhere / "iceberg-warehouse")
    assert error is None
    assert house.ids() == list(range(10))
    assert house.table().metadata.location == f"file://{elsewhere}/iceberg-warehouse/db/t"


def test_option_names_the_table(spark: SparkSession, house: Warehouse) -> None:
    """Jobs whose table comes from their configuration could not set it beside the other options."""
    writer = numbered(spark, 0, 3).write.format(FORMAT).mode("append").options(**house.options)
    writer.option("table", "db.named").save()

    assert house.ids("db.named") == [0, 1, 2]


def test_catalog_comes_from_options(spark: SparkSession, house: Warehouse) -> None:
    """A job could not bring its catalog along, and would need files on the driver."""
    writer = numbered(spark, 0, 3).write.format(FORMAT).mode("append").options(**house.catalog_options)
    writer.option("catalog", "mine").save("db.t")

    mine = house.catalog()
    mine.name = "mine"
    assert sorted(mine.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("name", ["lab", "prod"])
@EXHAUSTIVE
def test_catalog_comes_from_pyicebergs_configuration(
    driver: SparkProcess, configured: dict[str, Warehouse], name: str
) -> None:
    """Credentials would have to stand in the options of a job, where Spark shows them."""
    error = driver.run(dump(BatchJob(options={"catalog": name})))

    catalog = configured[name].catalog()
    catalog.name = name
    assert error is None
    assert sorted(catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()) == list(range(10))


def test_unknown_catalog_is_refused_with_the_known_ones(driver: SparkProcess) -> None:
    """A misspelt name would quietly write into the embedded catalog, where nobody looks."""
    error = driver.run(dump(BatchJob(options={"catalog": "prdo"})))

    assert error is not None
    assert "OptionError" in error
    assert "Catalog 'prdo' is not configured (known: lab, prod)" in error
