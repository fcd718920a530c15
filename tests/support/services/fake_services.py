"""Servers in this process that answer in one fixed way: with an error, without trust, or not at all."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server says to every request."""

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def s3_answer(status: int, code: str, **headers: str) -> Answer:
    """Return S3's answer with an error code; header names are given with `_` for `-`."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said by the store</Message></Error>"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=body, headers={"content-type": "application/xml", **named})


def rest_answer(status: int, kind: str = "SomeException", message: str = "no") -> Answer:
    """Return a REST catalog's answer with an error."""
    body = f'{{"error": {{"message": "{message}", "type": "{kind}", "code": {status}}}}}'
    return Answer(status=status, body=body, headers={"content-type": "application/json"})


def glue_answer(code: str) -> Answer:
    """Return Glue's answer with an error code."""
    body = f'{{"__type": "{code}", "Message": "said by Glue"}}'
    return Answer(status=400, body=body, headers={"content-type": "application/x-amz-json-1.1"})


@contextmanager
def answering(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve `answer` to everybody, and yield the address without its scheme."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            body = b"" if self.command == "HEAD" else answer.body.encode()
            self.send_response(answer.status)
            for name, value in {**answer.headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  # the library's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent() -> Iterator[str]:
    """Take connections and never say a word; yield the address."""
    with socket.create_server((HOST, 0), backlog=64) as listening:
        yield f"{HOST}:{listening.getsockname()[1]}"


def closed() -> str:
    """Return an address at which nobody listens."""
    with socket.create_server((HOST, 0)) as listening:
        return f"{HOST}:{listening.getsockname()[1]}"


def private_tls(folder: Path) -> ssl.SSLContext:
    """Return what serves TLS with a certificate that nobody trusts; it is put into `folder`/certificate.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    today = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / "certificate.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *private)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
