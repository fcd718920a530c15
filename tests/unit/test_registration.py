"""`register(spark)`: what it makes known, and what it sets."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from iceberg_ds import IcebergSink, IcebergSource, register

CREDENTIAL_KEYS = [
    "token",
    "credential",
    "password",
    "header.Authorization",
    "header.X-Any",
    "auth.oauth2.client-secret",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
    "s3.sse.key",
    "client.access-key-id",
    "adls.account-key",
    "adls.client-secret",
    "adls.connection-string",
    "adls.sas-token.account",
    "gcs.oauth2.token",
    "gcs.encryption-key",
    "hf.token",
]

KEY = "spark.sql.execution.arrow.maxBytesPerBatch"
OPTIONS_REGEX = "spark.sql.redaction.options.regex"
TEXT_REGEX = "spark.sql.redaction.string.regex"


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


class FakeThread:
    """The active session of a thread, as Spark's JVM has it."""

    def __init__(self, active: object = None) -> None:
        self.active = active
        self.SparkSession = SimpleNamespace(getActiveSession=self._get, setActiveSession=self._set)

    def _get(self) -> SimpleNamespace:
        return SimpleNamespace(isEmpty=lambda: self.active is None)

    def _set(self, session: object) -> None:
        self.active = session


def refusal(condition: str) -> AnalysisException:
    """Return Spark's refusal for that reason."""
    error = AnalysisException("refused")
    error.getCondition = lambda: condition  # type: ignore[method-assign]  # what Spark's JVM would say
    return error


def test_source_is_made_known_and_arrow_batches_are_tuned() -> None:
    """Neither format would be known, or writes would be half as fast."""
    session: Any = FakeSession()

    register(session)

    assert session.registered == [IcebergSink, IcebergSource]
    assert session.settings[KEY] == "2147483647"


def test_setting_of_the_user_stays() -> None:
    """A user who bounds the batches because of memory would run out of it."""
    session: Any = FakeSession(spark__sql__execution__arrow__maxBytesPerBatch="1000")

    register(session)

    assert session.settings[KEY] == "1000"


def test_source_that_spark_has_found_already_is_no_error() -> None:
    """The first line of every script would fail on Spark 4.0."""
    session: Any = FakeSession(refusal("DATA_SOURCE_ALREADY_EXISTS"))

    register(session)

    assert session.settings[KEY] == "2147483647"


def test_other_refusals_of_spark_are_passed_on() -> None:
    """A user would not learn why the format is unknown."""
    session: Any = FakeSession(refusal("DATA_SOURCE_NOT_FOUND"))

    with pytest.raises(AnalysisException, match="refused"):
        register(session)


SECRET_OPTIONS = [f"catalog.{key}" for key in CREDENTIAL_KEYS]
PLAIN_OPTIONS = ["catalog.uri", "catalog.warehouse", "catalog.s3.endpoint", "table", "partition-by", "path"]


@pytest.mark.parametrize("option", SECRET_OPTIONS)
def test_secret_options_are_hidden_in_plans(option: str) -> None:
    """A credential would stand in Spark's UI and in its event logs."""
    session: Any = FakeSession()
    register(session)

    assert re.search(session.settings[OPTIONS_REGEX], option)
    assert re.search(session.settings[OPTIONS_REGEX], option.lower())


@pytest.mark.parametrize("option", PLAIN_OPTIONS)
def test_plain_options_are_shown_in_plans(option: str) -> None:
    """A user could not see in a plan where a write goes."""
    session: Any = FakeSession()
    register(session)

    assert not re.search(session.settings[OPTIONS_REGEX], option)


@pytest.mark.parametrize(
    ("value", "is_hidden"),
    [
        ("postgresql://writer:pass@127.0.0.1/catalog", True),
        ("https://account.blob.example/container?sv=1&sig=abc", True),
        ("https://catalog.example/api?access_token=abc", True),
        ("abfss://container@account.dfs.core.windows.net/warehouse", False),
        ("sqlite:////data/catalog.db?timeout=60", False),
        ("http://127.0.0.1:8181", False),
    ],
)
def test_address_with_a_secret_in_it_is_hidden_in_plans(value: str, *, is_hidden: bool) -> None:
    """The password of the catalog's database would stand in Spark's UI, because it is part of an address."""
    session: Any = FakeSession()
    register(session)

    assert bool(re.search(session.settings[OPTIONS_REGEX], value)) is is_hidden


def test_what_the_user_hides_stays(caplog: pytest.LogCaptureFixture) -> None:
    """An administrator's choice of what Spark hides would be undone."""
    session: Any = FakeSession(
        spark__sql__redaction__options__regex="(?i)key|authorization", spark__redaction__string__regex="secret"
    )

    register(session)

    assert session.settings[OPTIONS_REGEX] == "(?i)key|authorization"
    assert TEXT_REGEX not in session.settings
    assert caplog.text == ""


def test_choice_of_the_user_that_shows_secrets_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A user who hides something else would not know that credentials are shown."""
    session: Any = FakeSession(spark__sql__redaction__options__regex="(?i)account-key|header")

    register(session)

    assert "Spark shows options such as catalog.s3.access-key-id in plans" in caplog.text
    assert "account-key" not in caplog.text


def test_pattern_that_only_java_knows_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The first line of every script would fail because of a setting of the cluster's."""
    session: Any = FakeSession(spark__sql__redaction__options__regex=r"\p{Alpha}+")

    register(session)

    assert session.settings[OPTIONS_REGEX] == r"\p{Alpha}+"
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("before", "after"), [(None, "this one"), ("another", "another")], ids=["new thread", "active"]
)
def test_session_is_active_in_a_thread_that_has_none(before: str | None, after: str) -> None:
    """Writes in a thread of one's own would fail: Spark looks for data sources in the thread's active session."""
    session: Any = FakeSession()
    session._jvm, session._jsparkSession = FakeThread(active=before), "this one"

    register(session)

    assert session._jvm.active == after
