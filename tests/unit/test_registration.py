"""`register(spark)`: what it makes known, and what it sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from iceberg_ds import IcebergSink, register

KEY = "spark.sql.execution.arrow.maxBytesPerBatch"


class FakeSession:
    """As much of a Spark session as registration needs."""

    def __init__(self, error: Exception | None = None, **settings: str) -> None:
        self.registered: list[Any] = []
        self.settings = {name.replace("__", "."): value for name, value in settings.items()}
        self.conf = SimpleNamespace(get=self.settings.get, set=self.settings.__setitem__)
        self.dataSource = SimpleNamespace(register=self._register)
        self._error = error

    def _register(self, source: Any) -> None:
        if self._error is not None:
            raise self._error
        self.registered.append(source)


def refusal(condition: str) -> AnalysisException:
    """Return Spark's refusal for that reason."""
    error = AnalysisException("refused")
    error.getCondition = lambda: condition  # type: ignore[method-assign]  # what Spark's JVM would say
    return error


def test_source_is_made_known_and_arrow_batches_are_tuned() -> None:
    """`format("icebergsink")` would be unknown, or half as fast."""
    session: Any = FakeSession()

    register(session)

    assert session.registered == [IcebergSink]
    assert session.settings == {KEY: "2147483647"}


def test_setting_of_the_user_stays() -> None:
    """A user who bounds the batches because of memory would run out of it."""
    session: Any = FakeSession(spark__sql__execution__arrow__maxBytesPerBatch="1000")

    register(session)

    assert session.settings == {KEY: "1000"}


def test_source_that_spark_has_found_already_is_no_error() -> None:
    """The first line of every script would fail on Spark 4.0."""
    session: Any = FakeSession(refusal("DATA_SOURCE_ALREADY_EXISTS"))

    register(session)

    assert session.settings == {KEY: "2147483647"}


def test_other_refusals_of_spark_are_passed_on() -> None:
    """A user would not learn why the format is unknown."""
    session: Any = FakeSession(refusal("DATA_SOURCE_NOT_FOUND"))

    with pytest.raises(AnalysisException, match="refused"):
        register(session)
