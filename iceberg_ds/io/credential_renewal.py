"""Renews the storage credentials of a task: asks the catalog for new ones before the old ones expire.

Only where the properties allow it (`client.refresh-credentials-enabled=true`), with the token that the driver has
put into them for this. It needs no catalog client, so that no task loads one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TypeAlias

import requests

from iceberg_ds.io.vended_credentials import (
    REFRESH_CA_BUNDLE,
    REFRESH_ENABLED,
    REFRESH_ENDPOINTS,
    credentials_for,
    expires_at_ms,
    needs_renewal,
    renewal_headers,
    storage_credentials,
)
from iceberg_ds.secrets import mask_text

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10
_ANSWER_TIMEOUT_S = 30
_ATTEMPTS = 3
_WAIT_S = 0.5
_OK = 200
_SERVER_ERROR = 500
_TOO_MANY_REQUESTS = 429

CurrentProperties: TypeAlias = Callable[[], Mapping[str, str]]


def renewing(properties: Mapping[str, str], location: str) -> CurrentProperties | None:
    """Return a function that returns properties with valid credentials, or None if they are not to be renewed.

    Args:
        properties: Storage properties, as the driver sends them.
        location: A location that the credentials open.
    """
    is_allowed = str(properties.get(REFRESH_ENABLED, "")).lower() == "true"
    endpoint = next((properties[name] for name in REFRESH_ENDPOINTS if properties.get(name)), None)
    if not is_allowed or endpoint is None or expires_at_ms(properties) is None:
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
    for attempt in range(1, _ATTEMPTS + 1):
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
