"""What counts as a secret, how it is masked, and what tasks may have."""

from __future__ import annotations

import pytest

from iceberg_ds.secrets import MASK, is_secret, mask_properties, mask_text, storage_properties

SECRET = "hunter2-s3cr3t"  # noqa: S105  # the thing to hide

CREDENTIAL_KEYS = [
    "token",
    "credential",
    "s3.secret-access-key",
    "s3.access-key-id",
    "s3.session-token",
    "client.secret-access-key",
    "adls.account-key",
    "adls.sas-token",
    "adls.client-secret",
    "gcs.oauth2.token",
    "rest.authorization-url",
    "header.Authorization",
    "dynamodb.session-token",
    "password",
    "hive.kerberos-authentication",
]


@pytest.mark.parametrize("key", CREDENTIAL_KEYS)
def test_credential_keys_are_secret_in_any_case(key: str) -> None:
    """A credential would stand in a log."""
    assert is_secret(key)
    assert is_secret(key.upper())


@pytest.mark.parametrize("key", ["uri", "warehouse", "type", "s3.endpoint", "s3.region", "io-impl"])
def test_plain_keys_are_shown(key: str) -> None:
    """A user could not see in an error which catalog was meant."""
    assert mask_properties({key: "value"}) == {key: "value"}


@pytest.mark.parametrize("key", CREDENTIAL_KEYS)
def test_secret_values_are_masked(key: str) -> None:
    """A credential would stand in a log."""
    assert mask_properties({key: SECRET}) == {key: MASK}


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql+psycopg2://writer:{SECRET}@db.example:5432/catalog",
        f"postgresql://writer:{SECRET}/2@db.example/catalog",
        f"postgresql://writer:2@{SECRET}@db.example/catalog",
        f"https://{SECRET}@catalog.example/api",
        f"postgresql://db.example/catalog?user=writer&password={SECRET}",
        f"https://catalog.example/api?access_token={SECRET}&x=1",
    ],
)
def test_credentials_in_a_url_are_masked(uri: str) -> None:
    """A database password would stand in a log, because it came in the URL."""
    assert SECRET not in mask_properties({"uri": uri})["uri"]
    assert SECRET not in mask_text(f"cannot connect to {uri}", {"uri": uri})


def test_url_without_credentials_stays_readable() -> None:
    """A user could not see in an error which address was meant."""
    uri = "sqlite:////data/warehouse/catalog.db?timeout=60"

    assert mask_properties({"uri": uri}) == {"uri": uri}
    assert mask_text(f"cannot open {uri}", {"uri": uri}) == f"cannot open {uri}"


def test_text_of_another_library_loses_secret_values() -> None:
    """A library's error that quotes a credential would put it into our error."""
    properties = {"token": SECRET, "s3.region": "eu-west-1", "s3.session-token": ""}

    masked = mask_text(f"401 for Bearer {SECRET} in eu-west-1", properties)

    assert masked == f"401 for Bearer {MASK} in eu-west-1"


def test_tasks_get_storage_keys_and_no_catalog_credential() -> None:
    """The catalog's credential would travel to every executor."""
    storage = {
        "s3.endpoint": "http://127.0.0.1:7070",
        "s3.secret-access-key": SECRET,
        "gcs.oauth2.token": SECRET,
        "adls.account-key": SECRET,
        "client.region": "eu-west-1",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    of_catalog = {"token": SECRET, "credential": SECRET, "uri": f"postgresql://u:{SECRET}@h/d", "rest.sigv4": "true"}

    assert storage_properties({**storage, **of_catalog}) == storage
