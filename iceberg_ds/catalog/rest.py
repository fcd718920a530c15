"""PyIceberg's REST catalog with what it lacks: time-outs, safe retries, OAuth2 tokens, vended keys, whole messages.

PyIceberg talks to the server while the catalog is constructed, so this is a subclass that overrides some
of its private steps. Contract tests hold them. Runs on the driver only.

A request that may change something is sent again only if it cannot have been carried out: the connection was never
made, or the answer is 429. Whether a commit landed is found out by looking at the table. Tokens for PyIceberg's
`auth.type=oauth2` are fetched within limits, too, where PyIceberg would wait for ever; this rests on private parts of
its provider, which contract tests hold.

PyIceberg declares the parts of a commit by its own classes, and leaves out of the JSON what a subclass adds; Nessie
refuses such a request. A server's answer about a table holds its whole history, and is parsed without pauses for the
garbage collector. So a request and its answer have classes of their own here, which `pyiceberg_patches` puts in place;
for other callers they do what PyIceberg does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import urllib3
from pydantic import SerializeAsAny
from pyiceberg.catalog.rest import (
    API_PREFIX,
    CA_BUNDLE,
    OAUTH2_SERVER_URI,
    SIGV4,
    SSL,
    Capability,
    Endpoint,
    Endpoints,
    HttpMethod,
    RestCatalog,
    TableResponse,
)
from pyiceberg.catalog.rest.auth import OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import CommitTableRequest, CommitTableResponse, StagedTable, Table, TableIdentifier
from pyiceberg.table.update import TableUpdate
from pyiceberg.utils.properties import get_header_properties, property_as_bool
from requests import HTTPError, PreparedRequest, RequestException, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ChunkedEncodingError, ConnectionError  # noqa: A004  # requests' own

from iceberg_ds._version import __version__
from iceberg_ds.catalog.answers import StagingRefusedError, TogetherRefusedError, sent_login
from iceberg_ds.catalog.metadata_files import files_at_hand, no_garbage_collection
from iceberg_ds.catalog.unparsed import telling_unparsed
from iceberg_ds.io.files import file_io
from iceberg_ds.io.logged_addresses import masking_logged_addresses
from iceberg_ds.io.vended_credentials import (
    REFRESH_CA_BUNDLE,
    REFRESH_ENABLED,
    REFRESH_ENDPOINT,
    REFRESH_ENDPOINTS,
    REFRESH_HEADER_PREFIX,
    REFRESH_TOKEN,
    credentials_for,
    expires_at_ms,
    has_credentials,
    opens_more,
    with_vended,
    without_signing,
)
from iceberg_ds.metrics.report import CommitReport, rest_report
from iceberg_ds.parsing import count, positive_integer
from iceberg_ds.secrets import is_secret, mask_text, storage_properties
from iceberg_ds.table.encryption import noting_encryption
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer", TableResponse, CommitTableResponse)

CONNECT_TIMEOUT = "rest.client.connection-timeout-ms"
METRICS_REPORTING = "rest-metrics-reporting-enabled"
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
# A token that tasks get should last nearly as long as tokens do.
_FRESH_TOKEN_S = 60
_METRICS = "namespaces/{namespace}/tables/{table}/metrics"
_TRANSACTION = "transactions/commit"
_COMMIT_TABLES = Endpoint(http_method=HttpMethod.POST, path=f"{API_PREFIX}/{_TRANSACTION}")
_EXPIRED_LOGIN = (401, 419)
# A server that knows its tables and not this path answers 404; then the next look finds all tables.
_TABLES_REFUSALS: Mapping[int, type[Exception]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NoSuchTableError,
    405: TogetherRefusedError,
    409: CommitFailedException,
    429: TooManyRequestsError,
    501: TogetherRefusedError,
}
_REPORT_METRICS = Endpoint(http_method=HttpMethod.POST, path=f"{API_PREFIX}/{_METRICS}")
# Seconds to connect, and to wait for the answer.
_REPORT_TIMEOUT_S = (2.0, 5.0)
_REMOTE_SIGNING = "s3.remote-signing-enabled"


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


class SinkRestCatalog(RestCatalog):
    """A REST catalog.

    Args:
        name: Its name.
        properties: Its properties, as `settings.rest_properties` returns them.

    Attributes:
        may_renew: Whether the user allows tasks to have a bearer token, to renew vended credentials with.
    """

    def __init__(self, name: str, **properties: Any) -> None:  # noqa: ANN401  # text, or trees of it
        self._asked = properties
        self.may_renew = property_as_bool(properties, REFRESH_ENABLED, False)  # noqa: FBT003  # PyIceberg's signature
        if self.may_renew and property_as_bool(properties, SIGV4, False):  # noqa: FBT003
            raise ValueError(
                f"{REFRESH_ENABLED} needs a bearer token that tasks may have, and {SIGV4} signs with AWS credentials: "
                "drop one"
            )
        super().__init__(name, **properties)
        self._token_fetched_s = time.monotonic()
        self.properties = _without_file_io(self.properties)
        if PY_IO_IMPL in properties:
            self.properties[PY_IO_IMPL] = properties[PY_IO_IMPL]

    def _create_table(self, *args: Any, **kwargs: Any) -> TableResponse:  # noqa: ANN401  # as PyIceberg's
        try:
            return super()._create_table(*args, **kwargs)
        except (BadRequestError, RESTError, NotImplementedError) as refusal:
            if kwargs.get("stage_create") and "stage" in str(refusal).lower():
                raise StagingRefusedError(str(refusal)) from refusal
            raise

    def report_commit(self, report: CommitReport) -> None:
        """Send the report on a commit to the server, if it takes reports and the catalog's property allows it.

        Raises:
            RESTError: The server refused it, or could not be reached in time; the text holds no secret.
        """
        is_wanted = property_as_bool(self.properties, METRICS_REPORTING, True)  # noqa: FBT003  # as in Java's catalog
        if report.snapshot_id is None or report.outcome != "committed" or not is_wanted:
            return
        if _REPORT_METRICS not in self._supported_endpoints:
            return
        place = self._split_identifier_for_path(parse_identifier(report.table))
        url = self.url(_METRICS, prefixed=True, **place)
        body, timeout = rest_report(report), _REPORT_TIMEOUT_S
        try:
            # Another host that an answer leads to would get the catalog's own headers, and may be anyone's.
            answer = self._session.post(url, json=body, timeout=timeout, allow_redirects=False)
            answer.raise_for_status()
        except RequestException as error:
            known = {**self.properties, **sent_login(error)}
            raise RESTError(mask_text(f"{type(error).__name__}: {error}", known)) from None
        if answer.is_redirect:
            raise RESTError(f"the server answers with status {answer.status_code}, and reports follow no redirect")

    @property
    def can_commit_tables(self) -> bool:
        """Whether the server says that it takes one request for several tables."""
        return _COMMIT_TABLES in self._supported_endpoints

    def commit_tables(self, changes: Sequence[tuple[Table, CommitRequest]]) -> None:
        """Send one request that changes several tables.

        Raises:
            CommitFailedException: The server refused it, because a requirement does not hold.
            TogetherRefusedError: The server has no such request.
            BadRequestError, UnauthorizedError, ForbiddenError, NoSuchTableError, TooManyRequestsError: The server
                refused it.
            HTTPError, RequestException: Anything else: it may have been carried out.
        """
        response = self._post_tables(_text_of(changes))
        if response.status_code in _EXPIRED_LOGIN:  # nothing was carried out
            self._refresh_token()
            response = self._post_tables(_text_of(changes))
        try:
            response.raise_for_status()
        except HTTPError as failure:
            refusal = _TABLES_REFUSALS.get(response.status_code)
            if refusal is None:
                raise
            raise refusal(f"{response.status_code}: {response.text}") from failure

    def _post_tables(self, body: str) -> Response:
        return self._session.post(self.url(_TRANSACTION, prefixed=True), data=body.encode())

    @property
    def _ca_bundle(self) -> str | None:
        return (self.properties.get(SSL) or {}).get(CA_BUNDLE)  # a tree

    def _config_headers(self, session: Session) -> None:
        # The first thing that PyIceberg does to a session, before it fetches a token with it.
        super()._config_headers(session)
        session.headers["User-Agent"] = f"iceberg-ds/{__version__} {session.headers['User-Agent']!s}"
        token_uri = self.properties.get(OAUTH2_SERVER_URI) or self.url(Endpoints.get_token, prefixed=False)
        mount(session, Limits.of(self.properties), ca_bundle=self._ca_bundle, token_uri=token_uri)

    def _create_session(self) -> Session:
        session = super()._create_session()
        if isinstance(self._auth_manager, OAuth2AuthManager):
            self._auth_manager.token_provider = BoundedTokenProvider(
                self._auth_manager.token_provider, Limits.of(self.properties), ca_bundle=self._ca_bundle
            )
        return session

    def _init_sigv4(self, session: Session) -> None:
        try:
            super()._init_sigv4(session)
        except ModuleNotFoundError as missing:
            raise ValueError(f"{SIGV4} needs {missing.name}: install the extra 'sigv4'") from missing
        signer = cast("HTTPAdapter", session.get_adapter(self.uri))
        session.mount(self.uri, BoundedAdapter(Limits.of(self.properties), signer, ca_bundle=self._ca_bundle))

    def _refresh_token(self) -> None:
        # PyIceberg calls this after a 401 or 419, and sends the request once more.
        if isinstance(self._auth_manager, OAuth2AuthManager):
            cast("BoundedTokenProvider", self._auth_manager.token_provider).forget()
        super()._refresh_token()
        self._token_fetched_s = time.monotonic()

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        return Table(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=cast("str", table_response.metadata_location),
            io=self._storage(identifier_tuple, table_response),
            catalog=self,
            config=table_response.config,
        )

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        if opens_more(storage_properties(self.properties), _vended(table_response)):
            raise StagingRefusedError("the catalog vends access to the table, and does so again only if it exists")
        return StagedTable(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=cast("str", table_response.metadata_location),
            io=self._storage(identifier_tuple, table_response),
            catalog=self,
        )

    def _storage(self, identifier: tuple[str, ...], response: TableResponse) -> FileIO:
        """Return the FileIO for the files of the table, with the credentials that came with it, if any did."""
        vended = _vended(response)
        # The table's own properties are not among them: someone other than the catalog may set those.
        properties = with_vended(storage_properties(self.properties), storage_properties(vended))
        if has_credentials(properties) or self._asked.get(_REMOTE_SIGNING) == "false":
            properties = without_signing(properties)
        return file_io({**properties, **self._renewal(identifier, vended)}, response.metadata.location)

    def _renewal(self, identifier: tuple[str, ...], vended: Mapping[str, str]) -> dict[str, str]:
        """Return how a task renews vended credentials; empty if they last, or if the user did not allow renewal."""
        if not self.may_renew or expires_at_ms(vended) is None:
            return {}
        endpoint = self._renewal_endpoint(identifier, vended)
        token = vended.get("token") or self._bearer_token()
        if endpoint is None or token is None:
            lacking = "credentials endpoint" if endpoint is None else "bearer token"
            logger.warning(
                "Tasks cannot renew credentials for %s: there is no %s", identifier_text(identifier), lacking
            )
            return {}
        headers = {name: text for name, text in get_header_properties(self.properties).items() if not _is_telling(name)}
        renewal = {REFRESH_ENABLED: "true", REFRESH_ENDPOINT: endpoint, REFRESH_TOKEN: token}
        renewal |= {f"{REFRESH_HEADER_PREFIX}{name}": text for name, text in headers.items()}
        return renewal if self._ca_bundle is None else {**renewal, REFRESH_CA_BUNDLE: self._ca_bundle}

    def _renewal_endpoint(self, identifier: tuple[str, ...], vended: Mapping[str, str]) -> str | None:
        given = next((vended[key] for key in REFRESH_ENDPOINTS if key in vended), None)
        if given is not None:
            endpoint = given if "://" in given else f"{self.uri.rstrip('/')}/{given.lstrip('/')}"
            if _origin(endpoint) == _origin(self.uri):  # the token is for the catalog alone
                return endpoint
        elif Capability.V1_LOAD_CREDENTIALS not in self._supported_endpoints:
            return None
        path = self._split_identifier_for_path(identifier)
        return self.url(Endpoints.load_credentials, prefixed=True, **path)

    def _bearer_token(self) -> str | None:
        if time.monotonic() - self._token_fetched_s > _FRESH_TOKEN_S:
            self._refresh_token()
        header = self._auth_manager.auth_header() if self._auth_manager is not None else None
        kind, _, token = (header or "").partition(" ")
        return token if kind == "Bearer" and token not in ("", "None") else None


def _vended(response: TableResponse) -> dict[str, str]:
    """Return what the catalog sent with a table; credentials for its location take precedence."""
    credentials = [(credential.prefix, credential.config) for credential in response.storage_credentials]
    config = {**response.config, **(credentials_for(response.metadata.location, credentials) or {})}
    return _without_file_io(config)


def _without_file_io(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties without the class of a FileIO: which code runs in tasks is the user's choice alone."""
    return {key: value for key, value in properties.items() if key != PY_IO_IMPL}


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.netloc.lower()


def _is_telling(header: str) -> bool:
    return is_secret(header) or "key" in header.lower() or "cookie" in header.lower()


def _parsing() -> AbstractContextManager[None]:
    """Return the context in which an answer is parsed: without garbage collection if the sink asked for it."""
    return nullcontext() if files_at_hand() is None else no_garbage_collection()


def _noting_encryption(answer: _Answer, text: str, *_: object) -> _Answer:
    """Return an answer about a table with a note of what PyIceberg leaves out of it, if the sink asked for it."""
    if files_at_hand() is None:
        return answer
    noted = noting_encryption(answer.metadata, text, "metadata")
    return answer if noted is answer.metadata else answer.model_copy(update={"metadata": noted})


class QuickTableResponse(TableResponse):
    """The answer to a load."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> TableResponse:  # type: ignore[override]  # noqa: ANN401  # as pydantic's
        """Return the parsed answer.

        Raises:
            UnparsedMetadataError: The sink has asked for it, and the metadata in it cannot be parsed.
        """
        telling = nullcontext() if files_at_hand() is None else telling_unparsed(of_answer=True)
        with _parsing(), telling:
            return _noting_encryption(TableResponse.model_validate_json(*args, **kwargs), *args)


class QuickCommitTableResponse(CommitTableResponse):
    """The answer to a commit."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> CommitTableResponse:  # type: ignore[override]  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with _parsing():
            return _noting_encryption(CommitTableResponse.model_validate_json(*args, **kwargs), *args)


class _WithOwnFields(CommitTableRequest):
    """A commit request that writes each update with all fields of its own class."""

    updates: tuple[SerializeAsAny[TableUpdate], ...] = ()


class WholeCommitTableRequest(CommitTableRequest):
    """A commit request; with all fields of each update's own class if the sink sends it."""

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401  # as PyIceberg's
        """Return the message."""
        if files_at_hand() is None:
            return super().model_dump_json(*args, **kwargs)
        own = _WithOwnFields(identifier=self.identifier, requirements=self.requirements, updates=self.updates)
        return own.model_dump_json(*args, **kwargs)


def _text_of(changes: Sequence[tuple[Table, CommitRequest]]) -> str:
    """Return the JSON of one request that changes several tables; PyIceberg has no class for it."""
    parts = (
        _WithOwnFields(
            identifier=TableIdentifier(namespace=table.name()[:-1], name=table.name()[-1]),
            requirements=request.requirements,
            updates=request.updates,
        ).model_dump_json()
        for table, request in changes
    )
    return f'{{"table-changes": [{", ".join(parts)}]}}'
