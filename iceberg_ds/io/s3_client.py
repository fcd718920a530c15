"""Makes the client that talks to S3: whose credentials, which region, what time-outs. Opens no connection.

Built on botocore, whose credentials renew themselves before they end, whoever gave them: a role, a web identity,
an instance or a catalog. Its requests are made by the threads that ask for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader
from botocore.session import Session

from iceberg_ds.io.s3_settings import AssumedRole, S3Settings

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.credentials import Credentials

# What botocore wants of new credentials: `access_key`, `secret_key`, `token` and `expiry_time` (ISO 8601).
FreshCredentials: TypeAlias = dict[str, str]
_SHARED_FOR_S = 60
_DEFAULT_REGION = "us-east-1"  # S3 answers there for all its regions, and other stores do not care


def s3_client(settings: S3Settings, renew: Callable[[], FreshCredentials] | None = None) -> BaseClient:
    """Return the client for one set of settings; threads may share it.

    Args:
        settings: What the properties say.
        renew: Gives credentials, and is asked again before they end; None for those of the settings. A client without
            it is the same for all that ask within a minute.
    """
    return _shared_client(settings) if renew is None else _client(settings, renew)


def _client(settings: S3Settings, renew: Callable[[], FreshCredentials] | None) -> BaseClient:
    session = _session(settings)
    region = settings.region or session.get_config_variable("region") or _DEFAULT_REGION
    if renew is not None:
        session = _session_with(settings, DeferredRefreshableCredentials(renew, "iceberg-catalog"))
    elif settings.role is not None:
        session = _session_with(settings, _role_credentials(session, settings, settings.role, region))
    client = session.create_client("s3", region_name=region, endpoint_url=settings.endpoint, config=_config(settings))
    # Asking first whether a body is welcome makes each small file wait for two answers instead of one.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A client, and when it was made, by the clock that never goes back."""

    client: BaseClient
    made_s: float


_clients: dict[tuple[object, ...], _Shared] = {}
_clients_lock = Lock()


def _shared_client(settings: S3Settings) -> BaseClient:
    """Return the client of these settings, the same for all storage that a process opens in a minute.

    Each load of a table and each commit opens its storage anew. It would assume the role, or ask the instance for its
    credentials, each time, connect anew, and making a client takes longer than a request. Not for longer, because a
    profile's files may change.
    """
    # The default chain reads the environment. A process that was forked makes its own.
    key = (os.getpid(), settings, frozenset(os.environ.items()))
    with _clients_lock:
        now_s = time.monotonic()
        for old in [old for old, shared in _clients.items() if now_s - shared.made_s > _SHARED_FOR_S]:
            del _clients[old]
        if key not in _clients:
            _clients[key] = _Shared(client=_client(settings, None), made_s=now_s)
        return _clients[key].client


@cache
def _service_descriptions(data_path: str | None) -> Loader:
    return create_loader(data_path)


def _new_session(settings: S3Settings) -> Session:
    session = Session(profile=settings.profile)
    # A session reads the descriptions of Amazon's services anew, which takes longer than all else in a client: a
    # catalog that opens storage for each load and commit would spend most of a commit's time on it.
    session.register_component("data_loader", _service_descriptions(session.get_config_variable("data_path")))
    return session


def _session(settings: S3Settings) -> Session:
    session = _new_session(settings)
    if settings.access_key_id is not None:
        session.set_credentials(settings.access_key_id, settings.secret_access_key, settings.session_token)
    return session


class _Given(CredentialProvider):  # type: ignore[misc]  # botocore ships no types
    """Provides the credentials that it is made with."""

    METHOD = "iceberg-ds"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        """Return the credentials."""
        return self._credentials


def _session_with(settings: S3Settings, credentials: Credentials) -> Session:
    session = _new_session(settings)
    session.register_component("credential_provider", CredentialResolver([_Given(credentials)]))
    return session


def _role_credentials(session: Session, settings: S3Settings, role: AssumedRole, region: str) -> Credentials:
    arguments: dict[str, Any] = {"RoleSessionName": role.session_name}
    if role.external_id is not None:
        arguments["ExternalId"] = role.external_id
    if role.duration_s is not None:
        arguments["DurationSeconds"] = role.duration_s
    # The token service has an endpoint of its own, which the environment or the profile may name.
    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    create = partial(session.create_client, region_name=role.region or region, config=_connection(settings))
    fetcher = AssumeRoleCredentialFetcher(create, source, role.arn, extra_args=arguments)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _config(settings: S3Settings) -> Config:
    return _connection(settings).merge(
        Config(
            signature_version=UNSIGNED if settings.is_anonymous else None,
            s3={"addressing_style": settings.addressing_style},
            max_pool_connections=settings.upload_threads + 10,
            use_dualstack_endpoint=settings.use_dualstack or None,
        )
    )


def _connection(settings: S3Settings) -> Config:
    return Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.request_timeout_s,
        retries={"mode": "standard", "total_max_attempts": settings.retries + 1},
        proxies={"http": settings.proxy, "https": settings.proxy} if settings.proxy else None,
        user_agent_extra="iceberg-ds",
    )
