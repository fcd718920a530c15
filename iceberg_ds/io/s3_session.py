"""Makes the filesystem of s3fs with its credentials, region and time-outs. Opens no connection.

Its requests are made by aiobotocore. Credentials of a role, a web identity, an instance or a catalog are renewed before
they expire.

aiohttp bounds the time of connecting and of waiting for an answer, and not of sending: a store that no longer reads
would be waited for as long as the connection lasts. A bound on the whole request would cut off slow lines, so the body
of a request is sent piece by piece, and the time for each piece is bounded; here and not by `TCP_USER_TIMEOUT`, which
only Linux has.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

from aiobotocore.config import AioConfig
from aiobotocore.credentials import (
    AioAssumeRoleCredentialFetcher,
    AioCredentialResolver,
    AioDeferredRefreshableCredentials,
)
from aiobotocore.session import AioSession
from aiohttp import ClientError as BrokenOffError
from aiohttp import ServerTimeoutError
from aiohttp.payload import Payload
from botocore.credentials import CredentialProvider
from botocore.exceptions import ClientError, NoCredentialsError, ResponseStreamingError
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader
from s3fs import S3FileSystem

from iceberg_ds.io.store_settings import AssumedRole, S3Settings

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from botocore.awsrequest import AWSPreparedRequest
    from botocore.credentials import Credentials

# New credentials as botocore takes them: `access_key`, `secret_key`, `token` and `expiry_time` (ISO 8601).
FreshCredentials: TypeAlias = dict[str, str]
_DEFAULT_REGION = "us-east-1"  # S3 redirects from there to every other region, and other stores ignore it
_PIECE_BYTES = 256 * 1024


class S3Requests(S3FileSystem):  # type: ignore[misc]  # s3fs ships no types
    """The filesystem of s3fs, whose requests are made by their names in botocore."""

    protocol = "iceberg-ds-s3"  # not "s3", for which fsspec's configuration may hold another job's keys
    retries = 1  # botocore retries, and its answers say how often

    async def answer(self, request: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  # they are Amazon's
        """Return the store's answer, its `Body` as bytes; a `Body` to send is sent from its beginning.

        Raises:
            ClientError: The store refuses the request.
            BotoCoreError: The store does not answer.
        """
        if "Body" in arguments:
            arguments["Body"].seek(0)
        try:
            answer: dict[str, Any] = await self._call_s3(request, **arguments)
            if "Body" in answer:
                async with answer["Body"] as body:
                    answer["Body"] = await body.read()
        except BrokenOffError as error:
            raise ResponseStreamingError(error=error) from error
        except OSError as error:
            if not isinstance(error.__cause__, ClientError):
                raise
            # s3fs raises an error of files, which does not say whether the request was retried.
            refusal = error.__cause__
        else:
            return answer
        raise refusal  # not inside `except`, where the error would become its own cause's cause


def s3_filesystem(
    settings: S3Settings, renew: Callable[[], FreshCredentials] | None, loop: asyncio.AbstractEventLoop
) -> S3Requests:
    """Return a new filesystem for one set of settings; threads may share it.

    Args:
        settings: How the store is reached.
        renew: Returns new credentials before the old ones expire; None to use those of the settings.
        loop: The event loop that makes the requests.
    """
    session = _session(settings)
    if settings.access_key_id is not None:
        session.set_credentials(settings.access_key_id, settings.secret_access_key, settings.session_token)
    region = settings.region or session.get_config_variable("region") or _DEFAULT_REGION
    if renew is not None:
        session = _session_with(settings, partial(asyncio.to_thread, renew), "iceberg-catalog")
    elif settings.role is not None:
        session = _session_with(settings, _role_credentials(session, settings, settings.role, region), "assume-role")
    # `Expect: 100-continue` makes each small file wait for two answers instead of one.
    session.unregister("before-call.s3", add_expect_header)
    session.register("before-send.s3", partial(_pace_body, settings.request_timeout_s))
    return S3Requests(
        anon=settings.is_anonymous,
        session=session,
        client_kwargs={"region_name": region, "endpoint_url": settings.endpoint},
        config_kwargs={
            **_connection(settings),
            "s3": {"addressing_style": settings.addressing_style},
            "max_pool_connections": settings.upload_threads + 10,
            "use_dualstack_endpoint": settings.use_dualstack or None,
            "request_checksum_calculation": None if settings.sends_checksums else "when_required",
        },
        s3_additional_kwargs=dict(settings.upload_arguments),
        loop=loop,
        skip_instance_cache=True,
        use_listings_cache=False,
    )


def _pace_body(patience_s: float, request: AWSPreparedRequest, **_: object) -> None:
    if request.body:
        request.body = PacedBody(request.body, patience_s)


@cache
def _service_descriptions(data_path: str | None) -> Loader:
    return create_loader(data_path)


def _session(settings: S3Settings) -> AioSession:
    session = AioSession(profile=settings.profile)
    # By default each session reads the descriptions of Amazon's services again, the slowest part of making a client. A
    # catalog that opens storage for each load and commit would spend most of a commit's time on that.
    session.register_component("data_loader", _service_descriptions(session.get_config_variable("data_path")))
    return session


class _Given(CredentialProvider):  # type: ignore[misc]  # botocore ships no types
    """Provides the credentials that it was made with."""

    METHOD = "iceberg-ds"

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    async def load(self) -> Credentials:
        """Return the credentials."""
        return self._credentials


def _session_with(
    settings: S3Settings, ask: Callable[[], Coroutine[Any, Any, FreshCredentials]], method: str
) -> AioSession:
    session = _session(settings)
    credentials = AioDeferredRefreshableCredentials(ask, method)
    session.register_component("credential_provider", AioCredentialResolver([_Given(credentials)]))
    return session


def _role_credentials(
    session: AioSession, settings: S3Settings, role: AssumedRole, region: str
) -> Callable[[], Coroutine[Any, Any, FreshCredentials]]:
    arguments: dict[str, Any] = {"RoleSessionName": role.session_name}
    if role.external_id is not None:
        arguments["ExternalId"] = role.external_id
    if role.duration_s is not None:
        arguments["DurationSeconds"] = role.duration_s
    # The environment or the profile may name an endpoint of the token service.
    create = partial(
        session.create_client, region_name=role.region or region, config=AioConfig(**_connection(settings))
    )

    async def assume() -> FreshCredentials:
        source = await session.get_credentials()
        if source is None:
            raise NoCredentialsError
        fetcher = AioAssumeRoleCredentialFetcher(create, source, role.arn, extra_args=arguments)
        fresh: FreshCredentials = await fetcher.fetch_credentials()
        return fresh

    return assume


def _connection(settings: S3Settings) -> dict[str, Any]:
    return {
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.request_timeout_s,
        "retries": {"mode": "standard", "total_max_attempts": settings.retries + 1},
        "proxies": {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None,
        "user_agent_extra": "iceberg-ds",
    }


class PacedBody(Payload):
    """A body that the store has to take in pieces of 256 KiB, each within a time.

    Args:
        body: Bytes, or a stream of them that can be read from its beginning again.
        patience_s: Seconds for each 256 KiB, what is buffered before them included.
    """

    def __init__(self, body: Any, patience_s: float) -> None:  # noqa: ANN401  # botocore's streams share no type
        super().__init__(BytesIO(body) if isinstance(body, (bytes, bytearray)) else body)
        self._patience_s = patience_s

    def seek(self, position: int) -> object:
        """Go to the beginning, as botocore does before it retries a request."""
        return self._value.seek(position)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError: a body is bytes."""
        raise TypeError(f"A body is not {encoding} ({errors}).")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body from its beginning.

        Raises:
            ServerTimeoutError: The store took nothing for too long; botocore retries the request.
        """
        self.seek(0)  # a redirected request sends it again
        while piece := await self._read():
            try:
                await asyncio.wait_for(_send(writer, piece), self._patience_s)
            except asyncio.TimeoutError:
                if writer.transport is not None:
                    writer.transport.abort()  # closing would wait for the store to take what is buffered
                raise ServerTimeoutError(f"The store took nothing for {self._patience_s} s") from None

    async def _read(self) -> bytes:
        piece = self._value.read(_PIECE_BYTES)  # the stream that adds checksums is asynchronous
        return bytes(await piece if inspect.isawaitable(piece) else piece)


async def _send(writer: AbstractStreamWriter, piece: bytes) -> None:
    await writer.write(piece)
    await writer.drain()
