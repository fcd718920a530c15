"""A proxy on loopback before an HTTP server, a catalog or an object store, that lets requests fail on demand.

It passes everything on as it came, `Host` included, because signatures cover it. A fault strikes the nth request of
a kind: before it was passed on, after, later, or instead of its answer.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from pyiceberg.table.metadata import TableMetadataUtil
from support.catalogs.faulty_catalog import NoSnapshotError, beside
from support.faults.kinds import CONFLICT, Effect, Kind, Way, error_body
from support.services.readiness import has_hung_up, is_readable

_PATIENCE_S = 60
_OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        method: Its method.
        target: Path and query.
    """

    method: str
    target: str

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFault:
    """What goes wrong.

    Attributes:
        request: Pattern that the text of the request matches whole, such as `POST .*/tables/t`.
        numbers: Which of these requests since the last `begin`, from 1.
        kind: How it fails.
    """

    request: str
    numbers: frozenset[int]
    kind: Kind


@dataclass(slots=True, kw_only=True)
class FaultProxy:
    """The proxy.

    Attributes:
        uri: Its address.
        upstream: The server's.
        requests: What it was asked since the last `begin`, and by which kind of fault it was struck.
        lied: Whether a commit was refused since then for a race that nobody won.
        authorizations: Who has asked since then, as the requests say.
    """

    uri: str
    upstream: str
    requests: list[tuple[Request, Kind | None]] = field(default_factory=list)
    lied: bool = False
    authorizations: set[str] = field(default_factory=set)
    _faults: tuple[WireFault, ...] = ()
    _counts: Counter[WireFault] = field(default_factory=Counter)
    _answers: dict[str, list[Answer]] = field(default_factory=dict)
    _late: list[tuple[Effect, Callable[[], object]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, *faults: WireFault) -> None:
        """Count requests anew, and let these fail."""
        with self._lock:
            self.requests = []
            self.lied = False
            self.authorizations = set()
            self._counts.clear()
            self._faults = faults

    def deliver(self, *effects: Effect) -> int:
        """Pass on the requests that were held up, all unless `effects` are given; return how many there were."""
        with self._lock:
            due = [send for effect, send in self._late if not effects or effect in effects]
            self._late = [(effect, send) for effect, send in self._late if effects and effect not in effects]
        for send in due:
            with suppress(OSError, http.client.HTTPException):  # nobody hears its answer
                send()
        return len(due)

    def hold(self, effect: Effect, send: Callable[[], object]) -> None:
        """Keep a request for later."""
        with self._lock:
            self._late.append((effect, send))

    def kind_for(self, request: Request) -> Kind | None:
        """Take note of a request; return how it fails, None if it does not."""
        with self._lock:
            kind = None
            for fault in self._faults:
                if re.fullmatch(fault.request, str(request)):
                    self._counts[fault] += 1
                    if self._counts[fault] in fault.numbers:
                        kind = fault.kind
            self.requests.append((request, kind))
            return kind

    def remember(self, request: Request, answer: Answer) -> None:
        """Keep an answer, to give it again when it is out of date."""
        if request.method == "GET":
            with self._lock:
                known = self._answers.setdefault(request.target, [])
                if not known or known[-1].body != answer.body:
                    self._answers[request.target] = [*known[-1:], answer]

    def stale(self, request: Request, now: Answer) -> Answer:
        """Return the answer before the present one, the present one if there was no other."""
        with self._lock:
            known = [answer for answer in self._answers.get(request.target, []) if answer.body != now.body]
        return known[-1] if known else now


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FaultProxy

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET  # noqa: N815  # the library's names

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        request = Request(method=self.command, target=self.path)
        self.proxy.authorizations.add(self.headers.get("Authorization", ""))
        kind = self.proxy.kind_for(request)
        if kind is not None and kind.way is Way.STALL:
            has_hung_up(self.connection.fileno(), _PATIENCE_S)
            self._reset()
            return
        body = self._body()
        if request.method not in {"GET", "HEAD"}:
            self.proxy.deliver(Effect.BEFORE_NEXT_COMMIT)
        send = _sender(self.proxy.upstream, request, dict(self.headers.items()), body)
        if kind is None:
            answer = send()
            self.proxy.remember(request, answer)
            self._send(answer)
            return
        if kind == CONFLICT and b'"updates"' in body:
            self._commit_another(request)
        self._fail(request, kind, send)

    def _commit_another(self, request: Request) -> None:
        """Let a commit win the race that another one is to lose."""
        kept = {name: text for name in ("Host", "Authorization") if (text := self.headers.get(name)) is not None}
        headers = {**kept, "Accept": "application/json", "Accept-Encoding": "identity"}
        shown = _sender(self.proxy.upstream, Request(method="GET", target=request.target), headers, b"")()
        try:
            snapshot = beside(TableMetadataUtil.parse_obj(json.loads(shown.body)["metadata"]))
        except (KeyError, NoSnapshotError):  # the table was to be created, or has no snapshot yet
            self.proxy.lied = True
            return
        update = {"action": "add-snapshot", "snapshot": json.loads(snapshot.model_dump_json())}
        body = json.dumps({"requirements": [], "updates": [update]}).encode()
        answer = _sender(self.proxy.upstream, request, dict(self.headers.items()), body)()
        self.proxy.lied = self.proxy.lied or answer.status != http.client.OK

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _fail(self, request: Request, kind: Kind, send: Callable[[], Answer]) -> None:
        answer = send() if kind.effect is Effect.AT_ONCE or kind.way in {Way.HALF, Way.STALE} else None
        if kind.effect in {Effect.BEFORE_NEXT_COMMIT, Effect.AT_LAST}:
            self.proxy.hold(kind.effect, send)
        match kind.way:
            case Way.STATUS:
                headers = {"Content-Type": "application/json", **dict(kind.headers)}
                self._send(Answer(status=kind.status or 0, headers=headers, body=_error(kind.status or 0)))
                return
            case Way.STALE if answer is not None:
                self._send(self.proxy.stale(request, answer))
                return
            case Way.HALF if answer is not None:
                self._send_head(answer)
                self.wfile.write(answer.body[: len(answer.body) // 2])
            case Way.HANG:
                is_readable(self.connection.fileno(), _PATIENCE_S)  # until the client hangs up
        self._reset()

    def _send(self, answer: Answer) -> None:
        with suppress(OSError):  # the client has given up
            self._send_head(answer)
            if self.command != "HEAD":
                self.wfile.write(answer.body)

    def _send_head(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _OF_A_CONNECTION:
                self.send_header(name, value)
        told = {name.lower(): text for name, text in answer.headers.items()}
        length = told.get("content-length", "0") if self.command == "HEAD" else str(len(answer.body))
        if answer.status != http.client.NO_CONTENT:
            self.send_header("Content-Length", length)
        self.end_headers()

    def _reset(self) -> None:
        # Closing with data left to send, and no time to linger, resets the connection.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


def _error(status: int) -> bytes:
    return json.dumps(error_body(status)).encode()


def _sender(upstream: str, request: Request, headers: Mapping[str, str], body: bytes) -> Callable[[], Answer]:
    """Return what passes a request on."""
    kept = {name: value for name, value in headers.items() if name.lower() not in _OF_A_CONNECTION | {"expect"}}
    if body or request.method in {"POST", "PUT"}:
        kept["Content-Length"] = str(len(body))

    def send() -> Answer:
        connection = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=_PATIENCE_S)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in kept.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Answer(status=response.status, headers=dict(response.getheaders()), body=response.read())
        finally:
            connection.close()

    return send


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Stay silent: clients that give up, and connections that are reset, are what tests ask for."""


@contextmanager
def serve_faults(upstream: str) -> Iterator[FaultProxy]:
    """Serve a proxy of the server at `upstream`."""
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    handler.proxy = proxy = FaultProxy(uri=f"http://127.0.0.1:{server.server_address[1]}", upstream=upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
