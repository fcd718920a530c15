"""Pure: what the `gcs.*` and `adls.*` properties of PyIceberg say, as the arguments of gcsfs and adlfs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from iceberg_ds.option_values import boolean
from iceberg_ds.storage.store_properties import KnownProperties, PropertyReader

_SAS_OF_HOST = "adls.sas-token."

_GCS = KnownProperties(
    store="Google Cloud Storage",
    prefixes=("gcs.",),
    used=frozenset(
        f"gcs.{name}"
        for name in (
            *("oauth2.token", "project-id", "access", "consistency", "cache-timeout", "requester-pays"),
            *("session-kwargs", "service.host", "default-bucket-location", "version-aware"),
        )
    ),
    nothing_to_do=re.compile(r"gcs\.(oauth2\.(token-expires-at|refresh-credentials)|channel\.|delete\.)"),
    protects=re.compile(r"gcs\.(encr|decr|kms|oauth2|user-project|no-auth|credential)"),
)
_AZURE = KnownProperties(
    store="Azure",
    prefixes=("adls.",),
    used=frozenset(
        f"adls.{name}"
        for name in (
            *("connection-string", "credential", "account-name", "account-key", "sas-token", "tenant-id"),
            *("client-id", "client-secret", "account-host", "token", "anon"),
        )
    ),
    nothing_to_do=re.compile(
        r"adls\.(sas-token\.|sas-token-expires-at-ms|refresh-credentials|read\.|write\.|(blob|dfs)-storage-)"
    ),
    protects=re.compile(r"adls\.(auth|connection|encr|key|token)"),
)


def gcs_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of gcsfs; None stands for its own default.

    Raises:
        OptionError: Properties are wrong, or would not be heeded although they must be.
    """
    reader = PropertyReader(properties)
    arguments: dict[str, Any] = {
        "project": reader.text("gcs.project-id"),
        "access": reader.text("gcs.access") or "full_control",
        "token": reader.text("gcs.oauth2.token"),
        "consistency": reader.text("gcs.consistency") or "none",
        "cache_timeout": reader.value(("gcs.cache-timeout",), _number, default=None),
        "requester_pays": reader.value(("gcs.requester-pays",), boolean, default=False),
        "session_kwargs": reader.value(("gcs.session-kwargs",), _object, default=None),
        "endpoint_url": reader.text("gcs.service.host"),
        "default_location": reader.text("gcs.default-bucket-location"),
        "version_aware": reader.value(("gcs.version-aware",), boolean, default=False),
    }
    reader.check(_GCS)
    return arguments


def azure_arguments(properties: Mapping[str, str], host: str) -> dict[str, Any]:
    """Return the arguments of adlfs; None stands for its own default.

    Args:
        properties: Properties of the store.
        host: The account's host in the location, such as `account.dfs.core.windows.net`; may be empty.

    Raises:
        OptionError: Properties are wrong, or would not be heeded although they must be.
    """
    reader = PropertyReader(properties)
    hosts = [name.removeprefix(_SAS_OF_HOST) for name in sorted(properties) if name.startswith(_SAS_OF_HOST)]
    account = host if "." in host else next(iter(hosts), "")
    arguments: dict[str, Any] = {
        "connection_string": reader.text("adls.connection-string"),
        "credential": reader.text("adls.credential"),
        "account_name": reader.text("adls.account-name") or account.partition(".")[0] or None,
        "account_key": reader.text("adls.account-key"),
        "sas_token": reader.text("adls.sas-token", _SAS_OF_HOST + account),
        "tenant_id": reader.text("adls.tenant-id"),
        "client_id": reader.text("adls.client-id"),
        "client_secret": reader.text("adls.client-secret"),
        "account_host": reader.text("adls.account-host"),
        "anon": reader.value(("adls.anon",), boolean, default=None),
    }
    reader.check(_AZURE)
    return arguments


def _number(text: str) -> float | None:
    return float(text)


def _object(text: str) -> dict[str, Any] | None:
    parsed: object = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004  # what a property's parser raises
    return parsed
