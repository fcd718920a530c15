"""What single kinds of catalogs get beside what the user says, and which are refused."""

from __future__ import annotations

import pytest

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.loading import defaults_for
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.errors import OptionError

LOCK = {"lock-check-min-wait-time": "0.05", "lock-check-max-wait-time": "0.25", "lock-check-retries": "80"}


@pytest.mark.parametrize(
    "hive", [{"type": "hive", "uri": "thrift://127.0.0.1:1"}, {"uri": "thrift://127.0.0.1:1"}, {"type": "HIVE"}]
)
def test_hives_lock_is_looked_at_often(hive: dict[str, str]) -> None:
    """Every writer beside another one would wait for seconds."""
    assert defaults_for(hive) == LOCK


def test_what_the_user_says_of_hives_lock_counts() -> None:
    """A metastore that cannot bear so many requests could not be spared them."""
    named = {"type": "hive", "lock-check-max-wait-time": "30"}

    assert defaults_for(named).keys() == {"lock-check-min-wait-time", "lock-check-retries"}


def test_other_catalogs_get_nothing() -> None:
    """A catalog would be sent properties that it does not know."""
    for named in ({"type": "rest", "uri": "http://127.0.0.1:1"}, {"uri": "sqlite:////x/c.db"}, {}, {"type": "glue"}):
        assert defaults_for(named) == {}


@pytest.mark.parametrize(
    "named",
    [
        {"type": "in-memory"},
        {"type": "in-memory", "uri": "sqlite:///:memory:", "warehouse": "file:///x"},
        {"type": "sql", "uri": "sqlite:///:memory:"},
        {"type": "sql", "uri": "sqlite://"},
        {"uri": "sqlite:///:memory:"},
    ],
)
def test_catalog_in_memory_is_refused(named: dict[str, str]) -> None:
    """Rows would be committed to a catalog that ends with the process that commits them."""
    with pytest.raises(OptionError, match=r"catalog in memory: Spark plans and commits.*option 'warehouse'"):
        connect(CatalogSettings(name="m", properties=tuple(sorted(named.items()))))


def test_catalog_in_memory_from_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the catalog is described would decide whether rows are lost."""
    monkeypatch.setenv("PYICEBERG_CATALOG__M__TYPE", "in-memory")

    with pytest.raises(OptionError, match="catalog in memory"):
        connect(CatalogSettings(name="m", properties=()))
