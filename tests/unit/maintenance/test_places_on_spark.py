"""Which session works on a table, if none is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support.tables.sink import Sink

from iceberg_ds.maintenance import places_on_spark
from iceberg_ds.maintenance.places_on_spark import session_for

SESSION: Any = object()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A table of one file, and what is asked and installed."""

    large_from: int
    has_pandas: bool = True
    is_wanted: bool = False
    is_used: bool


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(large_from=1, is_used=True), id="large"),
        pytest.param(Case(large_from=2, is_used=False), id="small"),
        pytest.param(Case(large_from=2, is_wanted=True, is_used=True), id="small, and streamed"),
        pytest.param(Case(large_from=1, has_pandas=False, is_used=False), id="without pandas"),
    ],
)
def test_active_session_works_on_large_tables(sink: Sink, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """Jobs would take longer than a small table, or a large one fill the driver."""
    sink.append(1)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: SESSION)
    monkeypatch.setattr(places_on_spark, "LARGE_TABLE_FILES", case.large_from)
    monkeypatch.setattr(places_on_spark, "find_spec", lambda _: SESSION if case.has_pandas else None)

    found = session_for(None, lambda: sink.table().metadata, is_wanted=case.is_wanted)

    assert found is (SESSION if case.is_used else None)
    assert session_for(SESSION, lambda: sink.table().metadata) is SESSION


def test_table_without_snapshots_is_small(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new table could not be cleaned up."""
    sink.create(pa.schema([("id", pa.int64())]))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: SESSION)

    assert session_for(None, lambda: sink.table().metadata) is None
