"""Fixtures of the tests with real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark.session import shared_session
from support.spark.tables import Warehouse

_CHANGED_BY_TESTS = ("spark.sql.preserveCharVarcharTypeInfo", "spark.sql.session.timeZone")


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """Return this process's Spark, with the settings it was started with."""
    session = shared_session("local[2]")
    before = {key: session.conf.get(key) for key in _CHANGED_BY_TESTS}
    yield session
    for key, value in before.items():
        session.conf.set(key, str(value))


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    """Return a new embedded catalog."""
    return Warehouse(folder=tmp_path / "warehouse")
