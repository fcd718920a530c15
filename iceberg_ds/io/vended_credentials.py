"""Temporary storage credentials that a REST catalog vends, and how a task renews them before they expire.

The driver plans with them; the FileIO of a task asks the catalog for new ones, without a catalog client, so that no
task loads one. Renewal needs a bearer token of the catalog in the task, which the driver puts into the properties, so
it happens only where the user has allowed it (`client.refresh-credentials-enabled=true`). Only `renewing` sends
requests; all else is pure.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from threading import Lock
from typing import TypeAlias

from iceberg_ds.io.logged_addresses import masking_logged_addresses
from iceberg_ds.secrets import mask_text

logger = logging.getLogger(__name__)

# Iceberg's own names; a catalog may send the second one with a table.
REFRESH_ENABLED = "client.refresh-credentials-enabled"
REFRESH_ENDPOINT = "client.refresh-credentials-endpoint"
# Iceberg's names of the endpoint for other stores.
REFRESH_ENDPOINTS = (REFRESH_ENDPOINT, "gcs.oauth2.refresh-credentials-endpoint", "adls.refresh-credentials-endpoint")
# Our own names: what else a task needs to ask the endpoint.
REFRESH_TOKEN = "client.refresh-credentials-token"  # noqa: S105  # a name, no secret
REFRESH_HEADER_PREFIX = "client.refresh-credentials-header."
REFRESH_CA_BUNDLE = "client.refresh-credentials-ca-bundle"

_RENEWAL_KEYS = (REFRESH_ENABLED, REFRESH_ENDPOINT, REFRESH_TOKEN, REFRESH_CA_BUNDLE)
_EXPIRY_KEY = re.compile(
    r"(s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at|adls\.sas-token-expires-at-ms\..+)$"
)
_OWN_S3 = re.compile(
    r"(s3|client)\.(access-key-id|secret-access-key|session-token|profile-name|role-|assume-role\.|factory$)"
)
_SIGNING_KEY = re.compile(r"s3\.(signer($|\.)|remote-signing-enabled$)")
# For each store: the property that shows vended credentials, and the user's properties that they replace.
_STORES = (
    (re.compile(r"s3\.access-key-id$"), re.compile(rf"{_OWN_S3.pattern}|{_SIGNING_KEY.pattern}")),
    (re.compile(r"gcs\.oauth2\.token$"), re.compile(r"gcs\.oauth2\.")),
    (
        re.compile(r"adls\.sas-token"),
        re.compile(
            r"adls\.(account-key|connection-string|sas-token|tenant-id|client-id|client-secret|token|credential)"
        ),
    ),
)
# Properties beside credentials that reach a store; different names of one thing stand together.
_WAY = (
    ("s3.endpoint",),
    ("s3.region", "client.region"),
    ("s3.path-style-access", "s3.force-virtual-addressing"),
    ("gcs.service.host",),
)
_MARGIN_MS = 5 * 60 * 1000

Credential: TypeAlias = tuple[str, Mapping[str, str]]

_CONNECT_TIMEOUT_S = 10
_ANSWER_TIMEOUT_S = 30
_ATTEMPTS = 3
_WAIT_S = 0.5
_OK = 200
_SERVER_ERROR = 500
_TOO_MANY_REQUESTS = 429

CurrentProperties: TypeAlias = Callable[[], Mapping[str, str]]


def storage_credentials(answer: object) -> list[Credential]:
    """Return prefix and properties of each entry of `storage-credentials` in a catalog's answer.

    Args:
        answer: The parsed JSON of a loaded table, or of the credentials endpoint.

    Raises:
        ValueError: The answer has another form; the message quotes nothing of it, because it holds secrets.
    """
    entries = answer.get("storage-credentials") or [] if isinstance(answer, Mapping) else None
    if not isinstance(entries, list):
        raise ValueError("the catalog's answer holds no list 'storage-credentials'")  # noqa: TRY004  # not of the caller
    credentials: list[Credential] = []
    for entry in entries:
        prefix, config = (entry.get("prefix"), entry.get("config")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(prefix, str) or not isinstance(config, Mapping):
            raise ValueError("an entry of 'storage-credentials' lacks its prefix or its config")  # noqa: TRY004
        credentials.append((prefix, {str(key): str(value) for key, value in config.items()}))
    return credentials


def credentials_for(location: str, credentials: Sequence[Credential]) -> dict[str, str] | None:
    """Return the properties with the longest prefix that matches `location`, or None."""
    matching = [(prefix, config) for prefix, config in credentials if _plain(location).startswith(_plain(prefix))]
    if not matching:
        return None
    return dict(max(matching, key=lambda credential: len(credential[0]))[1])


def expires_at_ms(properties: Mapping[str, str]) -> int | None:
    """Return the earliest expiry of the credentials, in milliseconds since the Unix epoch, or None if none expires."""
    ends = [value for key, value in properties.items() if _EXPIRY_KEY.match(key)]
    return min((int(float(value)) for value in ends if _is_number(value)), default=None)


def needs_renewal(end_ms: int | None, now_ms: int, lifetime_ms: int | None = None) -> bool:
    """Return whether the catalog must be asked for new credentials before a file is opened.

    Args:
        end_ms: Expiry of the credentials, or None if they do not expire.
        now_ms: The time now.
        lifetime_ms: How long the credentials were valid when they came, or None if they came from another process.
            They are renewed half of this before their expiry, and at most five minutes before it: otherwise
            short-lived ones would be renewed at every file.
    """
    if end_ms is None:
        return False
    margin_ms = _MARGIN_MS if lifetime_ms is None else min(_MARGIN_MS, lifetime_ms // 2)
    return now_ms >= end_ms - margin_ms


def why_ended(properties: Mapping[str, str], now_ms: int) -> str | None:
    """Return a message if the credentials have expired and are not renewed, or None.

    Stores answer an expired key in many ways, so their errors alone do not show it.
    """
    end_ms = expires_at_ms(properties)
    if end_ms is None or now_ms < end_ms or _may_renew(properties):
        return None
    ended = datetime.fromtimestamp(end_ms / 1000, tz=timezone.utc).isoformat(timespec="seconds")
    return (
        f"The storage credentials that the catalog vended ended at {ended}: let tasks renew them "
        f"({REFRESH_ENABLED}=true as a property of the catalog), let the catalog vend longer ones, or write with "
        "shorter tasks"
    )


def renewal_headers(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request to the credentials endpoint, its bearer token among them."""
    headers = {
        key.removeprefix(REFRESH_HEADER_PREFIX): value
        for key, value in properties.items()
        if key.startswith(REFRESH_HEADER_PREFIX)
    }
    if (token := properties.get(REFRESH_TOKEN)) is not None:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def renewal_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that credentials are renewed with."""
    return {
        key: value for key, value in properties.items() if key in _RENEWAL_KEYS or key.startswith(REFRESH_HEADER_PREFIX)
    }


def opens_more(own: Mapping[str, str], vended: Mapping[str, str]) -> bool:
    """Return whether the properties that a catalog sent with a table open storage that the user's own do not."""
    has_vended = any(telling.match(key) for telling, _ in _STORES for key in vended)
    return has_vended or any(not _is_told(group, own) and _is_told(group, vended) for group in _WAY)


def _is_told(names: tuple[str, ...], properties: Mapping[str, str]) -> bool:
    return any(properties.get(name) for name in names)


def with_vended(own: Mapping[str, str], vended: Mapping[str, str]) -> dict[str, str]:
    """Return the user's storage properties with vended credentials instead of the user's own for the same store.

    A session token or a role of the user would not fit a vended key.
    """
    replaced = [credentials for telling, credentials in _STORES if any(telling.match(key) for key in vended)]
    kept = {key: value for key, value in own.items() if not any(pattern.match(key) for pattern in replaced)}
    return {**kept, **vended}


def without_signing(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those that let the catalog sign each request to the store."""
    return {key: value for key, value in properties.items() if not _SIGNING_KEY.match(key)}


def has_credentials(properties: Mapping[str, str]) -> bool:
    """Return whether the properties themselves, and not the machine's environment, hold credentials for S3."""
    return any(_OWN_S3.match(key) for key in properties)


def _plain(location: str) -> str:
    """Return the location with the scheme `s3` for Hadoop's `s3a` and `s3n`."""
    return re.sub("^s3[an]://", "s3://", location)


def _may_renew(properties: Mapping[str, str]) -> bool:
    return str(properties.get(REFRESH_ENABLED, "")).lower() == "true"


def _is_number(value: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", value) is not None


def renewing(properties: Mapping[str, str], location: str) -> CurrentProperties | None:
    """Return a function that returns properties with valid credentials, or None if they are not to be renewed.

    Args:
        properties: Storage properties, as the driver sends them.
        location: A location that the credentials open.
    """
    endpoint = next((properties[name] for name in REFRESH_ENDPOINTS if properties.get(name)), None)
    if not _may_renew(properties) or endpoint is None or expires_at_ms(properties) is None:
        return None
    return _Renewing(properties, location, endpoint)


class _Renewing:
    """The latest credentials. Threads may share it: while one thread asks for new ones, the others wait."""

    def __init__(self, properties: Mapping[str, str], location: str, endpoint: str) -> None:
        self._properties = dict(properties)
        self._location = location
        self._endpoint = endpoint
        self._lifetime_ms: int | None = None
        self._lock = Lock()

    def __call__(self) -> Mapping[str, str]:
        """Return properties whose credentials are valid for a while.

        Raises:
            PermissionError: The credentials have expired, and the catalog gives no new ones.
        """
        with self._lock:
            end_ms, now_ms = expires_at_ms(self._properties), _now_ms()
            if needs_renewal(end_ms, now_ms, self._lifetime_ms):
                self._renew(has_ended=end_ms is not None and now_ms >= end_ms)
            return dict(self._properties)

    def _renew(self, *, has_ended: bool) -> None:
        try:
            fresh = self._ask()
        except (OSError, ValueError) as problem:
            reason = mask_text(str(problem), self._properties)
            if has_ended:
                raise PermissionError(
                    f"Cannot renew the storage credentials for {self._location}, which have ended: {reason}. "
                    "Check that the catalog can be reached from the executors, and that its token lasts longer than "
                    "a task."
                ) from None  # the cause may show the token
            logger.warning("Could not renew the storage credentials for %s yet: %s", self._location, reason)
            return
        self._properties |= fresh
        end_ms = expires_at_ms(self._properties)
        self._lifetime_ms = None if end_ms is None else end_ms - _now_ms()
        logger.info("Renewed the storage credentials for %s", self._location)

    def _ask(self) -> dict[str, str]:
        credentials = storage_credentials(_ask(self._endpoint, self._properties))
        fresh = credentials_for(self._location, credentials)
        if fresh is None:
            raise ValueError(f"the catalog's answer holds no credentials for {self._location}")
        return fresh


def _ask(endpoint: str, properties: Mapping[str, str]) -> object:
    """Return the parsed answer of the credentials endpoint.

    Raises:
        OSError: The endpoint cannot be reached.
        ValueError: The endpoint refuses.
    """
    import requests  # noqa: PLC0415  # most processes renew nothing

    for attempt in range(1, _ATTEMPTS + 1):
        with masking_logged_addresses():
            answer = requests.get(
                endpoint,
                headers=renewal_headers(properties),
                timeout=(_CONNECT_TIMEOUT_S, _ANSWER_TIMEOUT_S),
                verify=properties.get(REFRESH_CA_BUNDLE) or True,
                allow_redirects=False,  # the token goes only to the catalog
            )
        may_change = answer.status_code >= _SERVER_ERROR or answer.status_code == _TOO_MANY_REQUESTS
        if not may_change or attempt == _ATTEMPTS:
            break
        time.sleep(_WAIT_S * attempt)
    if answer.status_code != _OK:
        raise ValueError(f"the catalog's credentials endpoint answered {answer.status_code} {answer.reason}")
    parsed: object = answer.json()
    return parsed


def _now_ms() -> int:
    return int(time.time() * 1000)
