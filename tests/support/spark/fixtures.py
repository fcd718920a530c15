"""Fixtures of the tests with real Spark; the `conftest.py` of their folders import them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark.process import SparkProcess
from support.spark.session import shared_session, stop_shared_session
from support.spark.tables import Warehouse


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    """Return a new embedded catalog."""
    return Warehouse(folder=tmp_path / "warehouse")


@pytest.fixture(scope="session")
def _spark_of_this_process() -> Iterator[None]:
    """Stop this process's Spark after the last test."""
    yield
    stop_shared_session()


@pytest.fixture
def spark(_spark_of_this_process: None) -> SparkSession:
    """Return a session with settings and data sources of its own; a failed task fails its job at once."""
    return shared_session("local[2]").newSession()


@pytest.fixture
def retrying_spark(_spark_of_this_process: None) -> SparkSession:
    """Return such a session in which each task is tried four times."""
    return shared_session("local[2,4]").newSession()


@pytest.fixture(scope="module")
def first_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Return a Spark driver in a process of its own."""
    with SparkProcess(tmp_path_factory.mktemp("first-driver")) as process:
        yield process


@pytest.fixture(scope="module")
def second_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Return another Spark driver, as after a restart."""
    with SparkProcess(tmp_path_factory.mktemp("second-driver")) as process:
        yield process
