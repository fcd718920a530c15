"""Options beside a catalog whose credentials the driver's file or environment hold: none may lead these elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tables.hostile_tables import listening

from iceberg_ds.catalog.settings import CatalogSettings, catalog_settings, configured_properties, why_not_beside
from iceberg_ds.errors import OptionError
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.sink_options import SinkOptions

SECRET = "hunter2-s3cr3t"  # noqa: S105  # the thing to hide
URI = "https://catalog.example"

CREDENTIALS: list[dict[str, Any]] = [
    {"token": SECRET},
    {"credential": f"writer:{SECRET}"},
    {"uri": f"postgresql://writer:{SECRET}@db.example/catalog"},
    {"header.authorization": f"Bearer {SECRET}"},
    {"auth": {"type": "oauth2", "oauth2": {"client-id": "writer", "client-secret": SECRET}}},
    {"auth.type": "google"},
    {"s3.access-key-id": "writer", "s3.secret-access-key": SECRET},
    {"gcs.oauth2.token": SECRET},
    {"adls.account-key": SECRET},
]
LEADING = [
    "oauth2-server-uri",
    "rest.authorization-url",
    "rest.sigv4-enabled",
    "rest.signing-region",
    "auth.type",
    "auth.oauth2.token-url",
    "auth.impl",
    "header.host",
    "header.x-forwarded-host",
    "prefix",
    "scope",
    "type",
    "py-catalog-impl",
    "py-io-impl",
    "ssl.cabundle",
    "s3.endpoint",
    "s3.proxy-uri",
    "s3.signer.uri",
    "s3.role-arn",
    "s3.profile-name",
    "client.refresh-credentials-enabled",
    "gcs.service.host",
    "adls.account-host",
    "adls.account-name",
    "hdfs.host",
    "glue.endpoint",
    "unknown",
]
HARMLESS = {
    "warehouse": "another",
    "header.x-iceberg-access-delegation": "vended-credentials",
    "rest.client.socket-timeout-ms": "1000",
    "s3.region": "eu-west-1",
    "s3.multipart.part-size-bytes": "8388608",
    "s3.server-side-encryption": "aws:kms",
    "lock-check-retries": "3",
}


def options(**catalog: str) -> SinkOptions:
    """Return the options of a write through the catalog `lake`, with these properties beside its configuration."""
    named = {f"catalog.{key}": text for key, text in catalog.items()}
    return parse_options({"table": "db.t", "catalog": "lake", **named})


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the catalog `lake` with a credential, by the environment."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", URI)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__CREDENTIAL", f"writer:{SECRET}")


@pytest.mark.parametrize("configured", CREDENTIALS, ids=lambda configured: next(iter(configured)))
@pytest.mark.parametrize("key", LEADING)
def test_option_that_could_lead_a_configured_credential_elsewhere_is_refused(
    configured: dict[str, Any], key: str
) -> None:
    """On a shared server any user could send the server's secret to a host of theirs."""
    reason = why_not_beside({"uri": URI, **configured}, {key: "of-the-user"})

    if (key, configured) == ("auth.type", {"auth.type": "google"}):
        assert reason is None  # it takes the place of the only way to sign in
        return
    assert reason is not None
    assert f"catalog.{key}" in reason
    assert SECRET not in reason


@pytest.mark.parametrize("configured", CREDENTIALS, ids=lambda configured: next(iter(configured)))
def test_option_that_leads_nowhere_is_taken_beside_a_configured_credential(configured: dict[str, Any]) -> None:
    """Nobody could tune a write, or choose another warehouse, without a credential of his own."""
    assert why_not_beside({"uri": URI, **configured}, HARMLESS) is None
    assert why_not_beside({"warehouse": "w", **configured}, {"warehouse": "w"}) is None


def test_users_own_credential_in_the_place_of_the_configured_one_goes_where_he_says() -> None:
    """A user with a catalog and a credential of his own would be refused for the server's."""
    own = {"uri": "https://mine.example", "credential": "me:mine"}

    assert why_not_beside({"uri": URI, "credential": SECRET}, own) is None
    assert why_not_beside({"uri": f"postgresql://w:{SECRET}@db.example/c"}, {"uri": "sqlite:////mine.db"}) is None
    assert why_not_beside({"uri": URI, "credential": SECRET, "s3.session-token": SECRET}, own) is not None


@pytest.mark.parametrize("configured", [{}, {"uri": URI, "auth.type": "none"}, {"uri": URI, "s3.region": "eu"}])
def test_catalog_without_a_configured_credential_takes_every_option(configured: dict[str, str]) -> None:
    """Options could not describe a catalog any more."""
    assert why_not_beside(configured, {"uri": "https://mine.example", "s3.endpoint": "https://mine.example"}) is None


def test_address_that_is_the_configured_one_is_no_redirection() -> None:
    """A job that says again what the file says would be refused."""
    assert why_not_beside({"uri": URI, "token": SECRET}, {"uri": URI}) is None


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("key", ["uri", "oauth2-server-uri"])
def test_nothing_is_sent_to_the_host_of_an_option_beside_a_configured_credential(key: str) -> None:
    """The credential would be gone before anybody is refused."""
    with listening() as listener:
        asked = options(**{key: f"http://{listener.address}"})
        with pytest.raises(OptionError, match=rf"catalog 'lake': options catalog\.{key} .*\(credential\)"):
            catalog_settings(asked)

        assert listener.received == []


@pytest.mark.usefixtures("lake")
def test_option_without_a_value_takes_no_configured_credential_away() -> None:
    """An empty credential would count as the user's own, and the server's would be sent to a host of the user's."""
    with listening() as listener:
        asked = options(uri=f"http://{listener.address}", credential="")
        with pytest.raises(OptionError, match=r"options catalog\.credential, catalog\.uri .*\(credential\)"):
            catalog_settings(asked)

        assert listener.received == []


@pytest.mark.usefixtures("lake")
def test_secret_beside_an_option_without_a_value_is_known_to_the_masker() -> None:
    """Errors of a catalog would show the credential that is used, because the option seems to take it away."""
    settings = CatalogSettings(name="lake", properties=(("credential", ""), ("warehouse", "mine")))

    found = configured_properties(settings)

    assert (found["credential"], found["warehouse"]) == (f"writer:{SECRET}", "mine")


@pytest.mark.usefixtures("lake")
def test_configured_catalog_with_a_harmless_option_is_used() -> None:
    """Every option beside a configured catalog would be refused."""
    settings = catalog_settings(options(warehouse="another"))

    assert settings == CatalogSettings(name="lake", properties=(("warehouse", "another"),))


def test_credential_in_the_configuration_file_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret would be safe in the environment, and not in the file that the docs advise."""
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  lake:\n    uri: {URI}\n    auth:\n      basic: {SECRET}\n")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))

    with pytest.raises(OptionError, match=r"catalog\.uri .*\(auth\.basic\)"):
        catalog_settings(options(uri="https://mine.example"))
