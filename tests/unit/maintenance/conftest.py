"""Maintenance runs in the process of its test: faults and replaced functions have no effect in Spark's workers."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _no_active_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session that tests of another folder may have left active in this process."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
