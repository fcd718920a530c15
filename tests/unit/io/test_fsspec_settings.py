"""What properties say of Google Cloud Storage and Azure."""

from __future__ import annotations

import pytest

from iceberg_ds.errors import OptionError
from iceberg_ds.io.store_settings import azure_arguments, gcs_arguments

HOST = "acme.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("name", "text", "argument", "value"),
    [
        ("project-id", "p", "project", "p"),
        ("oauth2.token", "t", "token", "t"),
        ("service.host", "http://h:1", "endpoint_url", "http://h:1"),
        ("access", "read_write", "access", "read_write"),
        ("consistency", "md5", "consistency", "md5"),
        ("cache-timeout", "5", "cache_timeout", 5),
        ("requester-pays", "true", "requester_pays", True),
        ("session-kwargs", '{"trust_env": true}', "session_kwargs", {"trust_env": True}),
        ("default-bucket-location", "EU", "default_location", "EU"),
        ("version-aware", "true", "version_aware", True),
    ],
)
def test_property_of_google_is_used(name: str, text: str, argument: str, value: object) -> None:
    """A user's setting would be taken and do nothing."""
    assert gcs_arguments({f"gcs.{name}": text})[argument] == value


@pytest.mark.parametrize(
    ("name", "text", "argument", "value"),
    [
        ("connection-string", "c", "connection_string", "c"),
        ("credential", "c", "credential", "c"),
        ("account-name", "other", "account_name", "other"),
        ("account-key", "k", "account_key", "k"),
        ("sas-token", "s", "sas_token", "s"),
        (f"sas-token.{HOST}", "s", "sas_token", "s"),
        ("tenant-id", "t", "tenant_id", "t"),
        ("client-id", "i", "client_id", "i"),
        ("client-secret", "s", "client_secret", "s"),
        ("account-host", "h", "account_host", "h"),
        ("anon", "false", "anon", False),
    ],
)
def test_property_of_azure_is_used(name: str, text: str, argument: str, value: object) -> None:
    """A user's setting would be taken and do nothing."""
    assert azure_arguments({f"adls.{name}": text}, HOST)[argument] == value


def test_account_of_azure_is_in_the_location() -> None:
    """Every table would need the name of its account twice."""
    assert azure_arguments({}, HOST)["account_name"] == "acme"


def test_token_of_another_account_is_not_used() -> None:
    """A vended token would go to an account that it is not for."""
    assert azure_arguments({"adls.sas-token.other.dfs.core.windows.net": "s"}, HOST)["sas_token"] is None


@pytest.mark.parametrize("name", ["gcs.encryption-key", "gcs.oauth2.tokn", "gcs.decryption-key"])
def test_unknown_property_of_google_that_protects_is_refused(name: str) -> None:
    """Files would be written without the protection that somebody asked for."""
    with pytest.raises(OptionError, match=name):
        gcs_arguments({name: "x"})


@pytest.mark.parametrize("name", ["adls.acount-key", "adls.auth.shared-key.account.key"])
def test_unknown_property_of_azure_that_protects_is_refused(name: str) -> None:
    """Files would be written as somebody else, or not at all."""
    with pytest.raises(OptionError, match=name):
        azure_arguments({name: "x"}, HOST)


@pytest.mark.parametrize("text", ["[1]", "{"])
def test_malformed_arguments_are_refused(text: str) -> None:
    """A user would see an error of another library's insides."""
    with pytest.raises(OptionError, match=r"gcs\.session-kwargs"):
        gcs_arguments({"gcs.session-kwargs": text})


def test_vended_properties_pass(caplog: pytest.LogCaptureFixture) -> None:
    """A catalog's usual answer would stop every write."""
    gcs_arguments({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1"})
    azure_arguments({f"adls.sas-token.{HOST}": "s", f"adls.sas-token-expires-at-ms.{HOST}": "1"}, HOST)

    assert caplog.records == []
