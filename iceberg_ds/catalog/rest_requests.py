"""How requests to a REST catalog are sent: within limits of time, and again only where that is safe.

A request that may change something is sent again only if it cannot have been carried out: the connection was never
made, or the answer is 429. Whether a commit landed is found out by looking at the table. Tokens for PyIceberg's
`auth.type=oauth2` are fetched within limits, too, where PyIceberg would wait for ever; this rests on private parts of
its provider, which contract tests hold.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3
from pyiceberg.catalog.rest.auth import OAuth2TokenProvider
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ChunkedEncodingError, ConnectionError  # noqa: A004  # requests' own

from iceberg_ds.io.logged_addresses import masking_logged_addresses
from iceberg_ds.parsing import count, positive_integer

CONNECT_TIMEOUT = "rest.client.connection-timeout-ms"
READ_TIMEOUT = "rest.client.socket-timeout-ms"
MAX_RETRIES = "rest.client.max-retries"

_CONNECT_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 60_000
_MAX_RETRIES = 5
# A host that does not answer costs a whole time-out each time.
_MAX_CONNECTION_RETRIES = 2
_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 10.0
# A server may ask for an hour; a job would seem to hang.
_MAX_RETRY_AFTER_S = 60.0

_TOO_MANY_REQUESTS = 429
_BUSY = (_TOO_MANY_REQUESTS, 502, 503, 504)
_READING = frozenset({"GET", "HEAD"})
_ANY = frozenset({"GET", "HEAD", "POST"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long requests wait, and how often they are sent.

    Attributes:
        connect_timeout_s: Seconds until a connection that is not made counts as failed.
        read_timeout_s: Seconds without a byte of an answer until a request counts as failed.
        max_retries: How often a request is sent again, where that is safe.
    """

    connect_timeout_s: float = _CONNECT_TIMEOUT_MS / 1000
    read_timeout_s: float = _READ_TIMEOUT_MS / 1000
    max_retries: int = _MAX_RETRIES

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Limits:
        """Return the limits that properties of a catalog set.

        Raises:
            ValueError: A property is no number, or out of range.
        """
        return cls(
            connect_timeout_s=_milliseconds(properties, CONNECT_TIMEOUT, _CONNECT_TIMEOUT_MS) / 1000,
            read_timeout_s=_milliseconds(properties, READ_TIMEOUT, _READ_TIMEOUT_MS) / 1000,
            max_retries=_retries(properties),
        )


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    try:
        return positive_integer(str(properties.get(name, default)))
    except ValueError as problem:
        raise ValueError(f"property {name} is '{properties[name]}': {problem}") from None


def _retries(properties: Mapping[str, str]) -> int:
    text = str(properties.get(MAX_RETRIES, _MAX_RETRIES))
    try:
        return count(text)
    except ValueError as problem:
        raise ValueError(f"property {MAX_RETRIES} is '{text}': {problem}") from None


class _Retries(urllib3.Retry):
    """Which requests are sent again, and after which wait."""

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:  # noqa: FBT001, FBT002  # urllib3's
        """Return whether an answer calls for the request to be sent again: 429 was never carried out."""
        return status_code == _TOO_MANY_REQUESTS or super().is_retry(method, status_code, has_retry_after)

    def get_retry_after(self, response: urllib3.response.BaseHTTPResponse) -> float | None:
        """Return the seconds that the server asks to wait, bounded; None if it does not say."""
        seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, _MAX_RETRY_AFTER_S)


def _policy(limits: Limits, methods: Collection[str]) -> urllib3.Retry:
    connections = min(limits.max_retries, _MAX_CONNECTION_RETRIES)
    return _Retries(
        total=None,
        connect=connections,
        read=connections,
        status=limits.max_retries,
        other=0,  # a certificate that cannot be verified will not get better
        allowed_methods=methods,
        status_forcelist=_BUSY,
        backoff_factor=_BACKOFF_S,
        backoff_max=_MAX_BACKOFF_S,
        backoff_jitter=_BACKOFF_S,
        raise_on_status=False,  # the last answer says more
    )


class BoundedAdapter(BaseAdapter):
    """Sends requests within limits.

    Args:
        limits: The limits.
        inner: The adapter that sends a request; it may sign the request.
        ca_bundle: File or folder of the certificates to trust, None for the environment's or the public ones.
        is_repeatable: Whether a POST may be carried out twice.
    """

    def __init__(
        self,
        limits: Limits,
        inner: HTTPAdapter | None = None,
        *,
        ca_bundle: str | None = None,
        is_repeatable: bool = False,
    ) -> None:
        super().__init__()
        self._inner = inner or HTTPAdapter()
        self._timeout = (limits.connect_timeout_s, limits.read_timeout_s)
        self._ca_bundle = ca_bundle
        self._methods = _ANY if is_repeatable else _READING
        self._inner.max_retries = _policy(limits, self._methods)
        self._sends = 1 + min(limits.max_retries, _MAX_CONNECTION_RETRIES)

    def send(  # noqa: PLR0913, PLR0917  # requests' signature
        self,
        request: PreparedRequest,
        stream: bool = False,  # noqa: FBT001, FBT002
        timeout: Any = None,  # noqa: ANN401
        verify: Any = True,  # noqa: ANN401, FBT002
        cert: Any = None,  # noqa: ANN401
        proxies: Any = None,  # noqa: ANN401
    ) -> Response:
        """Send the request, again if that is safe, and read the whole answer."""
        # The environment's REQUESTS_CA_BUNDLE would win over the session's.
        trusted = self._ca_bundle or verify
        with masking_logged_addresses():
            for left in reversed(range(self._sends)):
                response = self._inner.send(request, stream, timeout or self._timeout, trusted, cert, proxies)
                try:
                    _ = response.content  # a connection may break in the middle of an answer
                except (ChunkedEncodingError, ConnectionError):
                    if left and request.method in self._methods:
                        continue
                    raise
                return response
        raise AssertionError("unreachable: the last sending returns or raises")

    def close(self) -> None:
        """Close the pooled connections."""
        self._inner.close()


def mount(session: Session, limits: Limits, *, ca_bundle: str | None = None, token_uri: str | None = None) -> None:
    """Let `session` send within limits; requests for a token may be repeated."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, BoundedAdapter(limits, ca_bundle=ca_bundle))
    if token_uri is not None:
        session.mount(token_uri, BoundedAdapter(limits, ca_bundle=ca_bundle, is_repeatable=True))


class BoundedTokenProvider(OAuth2TokenProvider):
    """A provider whose requests have time-outs, are repeated if that helps, and trust the catalog's certificates.

    Args:
        provider: PyIceberg's provider of the same tokens.
        limits: The limits of its requests.
        ca_bundle: The certificates to trust, or None for the public ones.
    """

    def __init__(self, provider: OAuth2TokenProvider, limits: Limits, *, ca_bundle: str | None) -> None:
        super().__init__(
            provider.client_id,
            provider.client_secret,
            provider.token_url,
            provider.scope,
            int(provider.refresh_margin),  # options hold text
            None if provider.expires_in is None else int(provider.expires_in),
        )
        self._session = Session()
        mount(self._session, limits, ca_bundle=ca_bundle, token_uri=provider.token_url)

    def forget(self) -> None:
        """Let the next request fetch a new token: the catalog has refused the present one."""
        with self._lock:
            self._token = None

    def _refresh_token(self) -> None:
        response = self._session.post(
            self.token_url,
            data={"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})},
            headers={"Authorization": self._client_secret_header},
        )
        response.raise_for_status()
        answer = response.json()
        expires_in = answer.get("expires_in", self.expires_in)
        if expires_in is None:
            raise ValueError("the token server does not say when tokens expire: set auth.oauth2.expires_in (seconds)")
        self._token = answer["access_token"]
        self._expires_at = int(time.monotonic() + expires_in - self.refresh_margin)
