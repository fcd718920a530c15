"""Which catalogs are REST catalogs, how their properties are read, and what of PyIceberg's inner parts they rest on.

What happens on the wire is tested in `tests/integration/catalogs`.
"""

from __future__ import annotations

import inspect

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import OAuth2TokenProvider

from iceberg_ds.catalog.rest import SinkRestCatalog
from iceberg_ds.catalog.rest_requests import BoundedTokenProvider, Limits
from iceberg_ds.catalog.settings import as_trees, rest_properties

OVERRIDDEN = (
    "_config_headers",
    "_create_session",
    "_create_table",
    "_init_sigv4",
    "_refresh_token",
    "_response_to_staged_table",
    "_response_to_table",
)


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "rest", "uri": "x"},
        {"type": "REST", "uri": "x"},
        {"uri": "http://127.0.0.1:1"},
        {"uri": "https://127.0.0.1:1"},
    ],
)
def test_rest_catalog_is_recognised(properties: dict[str, str]) -> None:
    """It would be opened without time-outs."""
    assert rest_properties("lake", properties) == properties


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql", "uri": "http://127.0.0.1:1"},
        {"uri": "sqlite:///x"},
        {"uri": "http://127.0.0.1:1", "py-catalog-impl": "my.Catalog"},
        {"uri": "http://127.0.0.1:1", "type": "rest", "py-catalog-impl": "my.Catalog"},
        {"type": "rest"},
        {},
    ],
)
def test_other_catalogs_are_left_to_pyiceberg(properties: dict[str, str]) -> None:
    """They would be opened as what they are not."""
    assert rest_properties("lake", properties) is None


def test_configuration_of_pyiceberg_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who keeps secrets out of options would have no time-outs, and no `ssl.cabundle`."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "http://127.0.0.1:1")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__SSL__CABUNDLE", "/ca.pem")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "of the environment")

    assert rest_properties("lake", {"token": "of the option"}) == {
        "uri": "http://127.0.0.1:1",
        "token": "of the option",
        "ssl": {"cabundle": "/ca.pem"},
    }


def test_flat_properties_become_the_trees_that_pyiceberg_reads() -> None:
    """`ssl.cabundle` and `auth.type` as options would not be heeded, without a word."""
    flat = {
        "uri": "x",
        "ssl.cabundle": "ca",
        "ssl.client.cert": "c",
        "auth.type": "oauth2",
        "auth.oauth2.token-url": "t",
    }

    assert as_trees({**flat, "ssl": {"client": {"key": "k"}}, "s3.region": "r"}) == {
        "uri": "x",
        "ssl": {"cabundle": "ca", "client": {"cert": "c", "key": "k"}},
        "auth": {"type": "oauth2", "oauth2": {"token_url": "t"}},
        "s3.region": "r",
    }


def test_limits_have_defaults_and_are_read_in_milliseconds() -> None:
    """A user would wait a thousand times as long, or for ever."""
    given = {"rest.client.connection-timeout-ms": "1500", "rest.client.socket-timeout-ms": "2000"}

    assert Limits.of({}) == Limits(connect_timeout_s=10, read_timeout_s=60, max_retries=5)
    assert Limits.of({**given, "rest.client.max-retries": "0"}) == Limits(
        connect_timeout_s=1.5, read_timeout_s=2, max_retries=0
    )


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_private_steps_of_pyicebergs_catalog_are_where_they_were(name: str) -> None:
    """A new PyIceberg would go past our time-outs and credentials, without a word."""
    theirs = inspect.signature(getattr(RestCatalog, name))
    ours = inspect.signature(SinkRestCatalog.__dict__[name])

    if name == "_create_table":
        assert "stage_create" in theirs.parameters
    else:
        assert list(ours.parameters) == list(theirs.parameters)


def test_nothing_else_of_pyicebergs_catalog_is_overridden() -> None:
    """A private step would be overridden by accident, and have no contract."""
    ours = {name for name in SinkRestCatalog.__dict__ if not name.startswith(("__", "_abc_"))}

    assert {name for name in ours if hasattr(RestCatalog, name)} == set(OVERRIDDEN)


def test_token_provider_of_pyiceberg_is_as_it_was() -> None:
    """A new PyIceberg would fetch tokens in another way, without time-outs."""
    provider = OAuth2TokenProvider("id", "secret", "http://127.0.0.1:1", "scope")

    assert {"_token", "_expires_at", "_lock", "_client_secret_header", "_refresh_token"} <= set(dir(provider))
    assert "_refresh_token" in BoundedTokenProvider.__dict__
