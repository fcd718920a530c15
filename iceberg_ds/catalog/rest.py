"""PyIceberg's REST catalog with what it lacks: limits of time, safe retries, vended keys, reports, several tables.

PyIceberg talks to the server while the catalog is constructed, so this is a subclass that overrides some of its private
steps. Contract tests hold them. Runs on the driver only. How requests are sent stands in `rest_requests`, what is in
them in `rest_messages`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

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
from pyiceberg.catalog.rest.auth import OAuth2AuthManager
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
from pyiceberg.table import StagedTable, Table
from pyiceberg.utils.properties import get_header_properties, property_as_bool
from requests import HTTPError, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from iceberg_ds._version import __version__
from iceberg_ds.catalog.answers import StagingRefusedError, TogetherRefusedError, sent_login
from iceberg_ds.catalog.rest_messages import text_of_changes
from iceberg_ds.catalog.rest_requests import BoundedAdapter, BoundedTokenProvider, Limits, mount
from iceberg_ds.io.files import file_io
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
from iceberg_ds.secrets import is_secret, mask_text, storage_properties
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

METRICS_REPORTING = "rest-metrics-reporting-enabled"
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
        response = self._post_tables(text_of_changes(changes))
        if response.status_code in _EXPIRED_LOGIN:  # nothing was carried out
            self._refresh_token()
            response = self._post_tables(text_of_changes(changes))
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
