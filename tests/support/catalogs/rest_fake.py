"""A REST catalog that records what it is asked and fails on demand; a SQL catalog keeps its tables.

It listens on loopback, on a port that was free, with TLS if it is given certificates.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, CommitTableResponse, StagedTable, Table
from support.services.tls_files import TlsFiles

from iceberg_ds.catalog.own_storage import with_own_storage
from iceberg_ds.snapshots.version_3 import metadata_json
from iceberg_ds.table.requests import CommitRequest

TOKEN_PATH = "/v1/oauth/tokens"  # noqa: S105  # a path
_STATUS_OF = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}
_STAGING_REFUSED = {"message": "Stage create is not supported", "type": "BadRequestException", "code": 400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request.

    Attributes:
        method: Its method.
        target: Path and query, as they came.
        headers: Its headers, by lower-case names.
        body: Its body.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """Return the path, as it came."""
        return urlsplit(self.target).path

    @property
    def form(self) -> dict[str, str]:
        """Return the fields of a form."""
        return {key: values[0] for key, values in parse_qs(self.body.decode()).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with a request.

    Attributes:
        method: Requests with this method.
        path: Whose path has this part.
        status: Answer this instead; None to break the connection.
        headers: Headers of that answer.
        is_carried_out: Whether the request is carried out all the same.
        hang_s: Seconds to wait first.
        sent: Share of the true answer that is sent before the connection breaks.
    """

    method: str
    path: str
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_carried_out: bool = False
    hang_s: float = 0
    sent: float = 0


@dataclass(slots=True, kw_only=True)
class RestFake:
    """The server.

    Attributes:
        uri: Its address.
        tables: Where it keeps its tables.
        recorded: All requests so far.
        faults: What goes wrong next; each happens once.
        defaults: Properties that `/config` proposes.
        overrides: Properties that `/config` demands.
        endpoints: What `/config` says that it can do, None for nothing.
        credential: `id:secret` that gets a token; None lets everybody in.
        tokens: Tokens that are valid.
        refusal: Status that a request without a valid token gets.
        vend: Returns what a table's answer has beside its metadata.
        can_stage: Whether it stages tables.
        idle_s: Seconds after which it closes an idle connection without a word, None for never.
        loses: Tables whose change the next request for several tables loses, although it is answered.
        before: Called with each request before it is carried out; may take its time.
        land: Changes a table; None for PyIceberg's own way, which does not write version 3.
    """

    uri: str
    tables: SqlCatalog
    recorded: list[Recorded] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    defaults: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    endpoints: list[str] | None = None
    credential: str | None = None
    tokens: list[str] = field(default_factory=list)
    refusal: int = 401
    vend: Callable[[Table], dict[str, Any]] = lambda _: {}
    can_stage: bool = True
    idle_s: float | None = None
    loses: tuple[str, ...] = ()
    before: Callable[[Recorded], None] = lambda _: None
    land: Callable[[Table, CommitRequest], CommitTableResponse] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, method: str, path: str) -> list[Recorded]:
        """Return the requests with this method whose path has this part."""
        return [request for request in self.recorded if request.method == method and path in request.path]

    def fault_for(self, request: Recorded) -> Fault | None:
        """Take the next fault of the request off the list."""
        for fault in self.faults:
            if fault.method == request.method and fault.path in request.path:
                self.faults.remove(fault)
                return fault
        return None

    def answer(self, request: Recorded) -> tuple[int, dict[str, Any] | None]:
        """Carry the request out; return status and JSON."""
        if request.path == TOKEN_PATH:
            return self._issue_token(request)
        if self.credential is not None and request.headers.get("authorization", "")[7:] not in self.tokens:
            return self.refusal, _error(self.refusal, "the token is not valid")
        if request.path == "/v1/config":
            config: dict[str, Any] = {"defaults": self.defaults, "overrides": self.overrides}
            return 200, config | ({} if self.endpoints is None else {"endpoints": self.endpoints})
        try:
            return self._answer_for_table(request)
        except tuple(_STATUS_OF) as error:
            return _STATUS_OF[type(error)], _error(_STATUS_OF[type(error)], str(error))

    def _issue_token(self, request: Recorded) -> tuple[int, dict[str, Any]]:
        form = request.form
        if self.credential not in (None, f"{form.get('client_id')}:{form.get('client_secret')}"):
            return 401, {"error": "invalid_client", "error_description": "unknown client"}
        token = f"token-{len(self.asked('POST', TOKEN_PATH))}"
        self.tokens.append(token)
        return 200, {"access_token": token, "token_type": "bearer", "expires_in": 3600}

    def _answer_for_table(self, request: Recorded) -> tuple[int, dict[str, Any] | None]:  # noqa: PLR0911  # one a path
        path = request.path.removeprefix("/v1/")
        if (prefix := self.overrides.get("prefix")) is not None:
            path = path.removeprefix(f"{prefix}/")
        match [unquote(part) for part in path.split("/")]:
            case ["namespaces"]:
                self.tables.create_namespace(tuple(json.loads(request.body)["namespace"]))
                return 200, json.loads(request.body)
            case ["namespaces", namespace]:
                return 200, {"namespace": [namespace], "properties": self.tables.load_namespace_properties(namespace)}
            case ["namespaces", namespace, "tables"]:
                asked = {"location": None, **json.loads(request.body)}
                return self._create(namespace, CreateTableRequest.model_validate(asked))
            case ["namespaces", namespace, "tables", name] if request.method == "POST":
                # Iceberg's Java library leaves the table to the path.
                body = {"identifier": {"namespace": [namespace], "name": name}, **json.loads(request.body)}
                return self._commit((namespace, name), CommitTableRequest.model_validate(body))
            case ["namespaces", namespace, "tables", name]:
                return 200, self._shown(self.tables.load_table((namespace, name)))
            case ["namespaces", namespace, "tables", name, "credentials"]:
                vended = self.vend(self.tables.load_table((namespace, name)))
                return 200, {"storage-credentials": vended["storage-credentials"]}
            case ["transactions", "commit"]:
                changes = [
                    CommitTableRequest.model_validate(part) for part in json.loads(request.body)["table-changes"]
                ]
                return self._commit_together(changes)
            case ["namespaces", _, "tables", _, "metrics"]:
                return 204, None
        return 404, _error(404, f"nothing is at {request.path}")

    def _create(self, namespace: str, request: CreateTableRequest) -> tuple[int, dict[str, Any]]:
        if request.stage_create and not self.can_stage:
            return 400, {"error": _STAGING_REFUSED}
        order = {} if request.write_order is None else {"sort_order": request.write_order}
        arguments = {"location": request.location, "partition_spec": request.partition_spec, **order}
        identifier, properties = (namespace, request.name), dict(request.properties)
        if not request.stage_create:
            return 200, self._shown(
                self.tables.create_table(identifier, request.table_schema, properties=properties, **arguments)
            )
        staged = self.tables.create_table_transaction(
            identifier, request.table_schema, properties=properties, **arguments
        )
        metadata = staged.table_metadata
        return 200, self._shown(
            StagedTable(identifier, metadata, None, self.tables._load_file_io({}, metadata.location), self.tables)
        )

    def _commit(self, identifier: tuple[str, ...], request: CommitTableRequest) -> tuple[int, dict[str, Any]]:
        try:
            table = self.tables.load_table(identifier)
        except NoSuchTableError:
            table = StagedTable(identifier, None, None, None, self.tables)
        done = (self.land or _land)(table, CommitRequest(requirements=request.requirements, updates=request.updates))
        return 200, json.loads(done.model_dump_json())

    def _commit_together(self, changes: list[CommitTableRequest]) -> tuple[int, None]:
        """Change several tables, or all but those that it loses, as Iceberg's reference server does beside a writer."""
        found = [
            (self.tables.load_table((*part.identifier.namespace.root, part.identifier.name)), part) for part in changes
        ]
        lost, self.loses = self.loses, ()
        if lost:
            for table, part in found:
                if part.identifier.name not in lost:
                    self.tables.commit_table(table, part.requirements, part.updates)
        else:
            self.tables.commit_tables(
                [(table, CommitRequest(requirements=part.requirements, updates=part.updates)) for table, part in found]
            )
        return 204, None

    def _shown(self, table: Table) -> dict[str, Any]:
        answer = {"metadata": json.loads(metadata_json(table.metadata)), "config": {}}
        if table.metadata_location is not None:
            answer["metadata-location"] = table.metadata_location
        return answer | self.vend(table)


def _land(table: Table, request: CommitRequest) -> CommitTableResponse:
    return table.catalog.commit_table(table, request.requirements, request.updates)


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Fake", "code": code}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: RestFake

    def setup(self) -> None:
        self.timeout = self.fake.idle_s
        super().setup()

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815  # the library's names

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(method=self.command, target=self.path, headers=headers, body=body)
        self.fake.before(request)
        with self.fake.lock:
            self.fake.recorded.append(request)
            fault = self.fake.fault_for(request)
            answer = self.fake.answer(request) if fault is None or fault.is_carried_out or fault.sent else None
        if fault is None:
            assert answer is not None
            self._send(answer[0], answer[1], {})
            return
        time.sleep(fault.hang_s)
        if fault.status is not None:
            self._send(fault.status, _error(fault.status, "planned"), fault.headers)
        else:
            if fault.sent and answer is not None:
                text = json.dumps(answer[1]).encode()
                self._send_head(answer[0], len(text), {})
                self.wfile.write(text[: int(len(text) * fault.sent)])
            self._reset()

    def _send(self, status: int, answer: object, headers: Mapping[str, str]) -> None:
        text = b"" if answer is None or self.command == "HEAD" else json.dumps(answer).encode()
        self._send_head(status, len(text), headers)
        self.wfile.write(text)

    def _send_head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _reset(self) -> None:
        # Closing with data left to send, and no time to linger, resets the connection.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Stay silent: clients that give up, and connections that are reset, are what tests ask for."""


@contextmanager
def serve_rest_fake(
    folder: Path,
    *,
    tls: TlsFiles | None = None,
    wants_client: bool = False,
    storage: Mapping[str, str] | None = None,
    warehouse: str | None = None,
) -> Iterator[RestFake]:
    """Serve an empty catalog whose files lie in `folder`.

    Args:
        folder: For its database, and for its tables unless `warehouse` says where they go.
        tls: Certificates, None for plain HTTP.
        wants_client: Whether it lets nobody in who has no certificate of its authority.
        storage: Properties that its own storage access needs.
        warehouse: Location of its tables.
    """
    properties = {"warehouse": warehouse or f"file://{folder}/warehouse", **(storage or {})}
    tables = SqlCatalog("fake", uri=f"sqlite:///{folder}/fake.db", **properties)
    with_own_storage(tables)  # as a real server does not believe its tables
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.server, tls.server_key)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(tls.authority)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if tls is None else "https"
    handler.fake = fake = RestFake(uri=f"{scheme}://127.0.0.1:{server.server_address[1]}", tables=tables)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        tables.engine.dispose()
