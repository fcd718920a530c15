"""Fetches OAuth2 tokens within limits, for PyIceberg's `auth.type=oauth2`; PyIceberg would wait for ever.

Rests on private parts of PyIceberg's provider; contract tests hold them.
"""

from __future__ import annotations

import time

from pyiceberg.catalog.rest.auth import OAuth2TokenProvider
from requests import Session

from iceberg_ds.storage.http_transport import Limits, mount


class BoundedTokenProvider(OAuth2TokenProvider):
    """A provider whose requests have time-outs, are repeated if that helps, and trust the catalog's certificates.

    Args:
        provider: PyIceberg's provider of the same tokens.
        limits: The limits of its requests.
        ca_bundle: The certificates to trust, None for the public ones.
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
