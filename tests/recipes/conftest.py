"""Fixtures of the tests that run the recipes; `test_airflow.py` gets a copy of `examples/airflow`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.recipes import Recipe, copy_recipe
from support.services.kafka import Kafka, serve_kafka
from support.spark.tables import Warehouse


@pytest.fixture
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Recipe:
    """Return a copy of the recipe that the test module is named for."""
    return copy_recipe(request.path.stem.removeprefix("test_"), tmp_path / "recipe")


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Return a Kafka broker."""
    with serve_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    """Return the embedded catalog of the programs that run in `tmp_path`."""
    return Warehouse(folder=tmp_path / "iceberg-warehouse")
