"""Fixtures of the tests that run the recipes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services.kafka import Kafka, serve_kafka
from support.spark.tables import Warehouse


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Return a Kafka broker."""
    with serve_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    """Return the embedded catalog of the programs that run in `tmp_path`."""
    return Warehouse(folder=tmp_path / "iceberg-warehouse")
