"""S3 stores that stop reading what is sent to them: uploads, retries, ends of processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO

import pytest
from support.services.readiness import has_hung_up

from iceberg_ds.io.s3_io import S3FileIO

BODY = bytes(range(256)) * (7 * 4096)  # 7 MiB: more than the sockets' buffers hold
PATIENCE_S = 1
# A process that waits for the store's time-outs, 60 s each, would take minutes.
EXIT_TIMEOUT_S = 30
_RECEIVED_AT_ONCE = 128 * 1024
_BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"


@dataclass(slots=True)
class Request:
    """One request, of which the head was read.

    Attributes:
        connection: Where it comes from.
        head: Its first line and headers.
        body: What was read of its body.
    """

    connection: socket.socket
    head: str
    body: bytes

    def read_body(self) -> None:
        """Read the whole body."""
        lengths = [line.split(":")[1] for line in self.head.lower().splitlines() if line.startswith("content-length:")]
        while len(self.body) < int(lengths[0]):
            self.body += self.connection.recv(_RECEIVED_AT_ONCE)

    def answer(self, body: bytes = b"") -> None:
        """Say that it was carried out, and hang up."""
        length = f"Content-Length: {len(body)}\r\nConnection: close\r\n"
        self.connection.sendall(f'HTTP/1.1 200 OK\r\nETag: "e"\r\n{length}\r\n'.encode() + body)

    def stall(self) -> None:
        """Read no more, until the client hangs up."""
        has_hung_up(self.connection.fileno(), EXIT_TIMEOUT_S)


@dataclass(slots=True)
class Server:
    """A store.

    Attributes:
        handle: Deals with a request; its number counts from 1.
        port: Its port on loopback.
        requests: What it was asked.
    """

    handle: Callable[[Request, int], None]
    port: int = 0
    requests: list[Request] = field(default_factory=list)

    @property
    def properties(self) -> dict[str, str]:
        """Properties by which S3FileIO reaches it."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{self.port}",
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
            "s3.region": "us-east-1",
        }

    def serve(self, listening: socket.socket) -> None:
        """Take connections until the socket is closed."""
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(1024)
            head, _, body = data.partition(b"\r\n\r\n")
            request = Request(connection, head.decode(), body)
            self.requests.append(request)
            self.handle(request, len(self.requests))


@contextmanager
def serve(handle: Callable[[Request, int], None]) -> Iterator[Server]:
    """Serve a store on loopback."""
    server = Server(handle)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_AT_ONCE)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server.port = listening.getsockname()[1]
        threading.Thread(target=server.serve, args=(listening,), daemon=True).start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)


def write(server: Server) -> None:
    """Write a file with one request, which is retried once; raise TimeoutError if that does not end."""
    limits = {"s3.request-timeout": str(PATIENCE_S), "s3.retry.num-retries": "1"}
    store = S3FileIO({**server.properties, **limits})._store("s3://b/k")
    request = store.answer("put_object", Bucket="b", Key="k", Body=BytesIO(BODY))
    store.in_background(request).result(EXIT_TIMEOUT_S)


def test_file_that_the_store_stops_reading_is_sent_again() -> None:
    """A task would wait for ever for a store that another request would have reached."""

    def handle(request: Request, number: int) -> None:
        if number == 1:
            request.stall()
        request.read_body()
        request.answer()

    with serve(handle) as server:
        write(server)

        assert [request.body == BODY for request in server.requests] == [False, True]


def test_file_that_the_store_never_reads_fails_as_one_without_an_answer() -> None:
    """A task would wait for ever, and its error would not say that the store was the reason."""
    with serve(lambda request, _: request.stall()) as server:
        with pytest.raises(Exception, match=r"endpoint URL: .http://127\.0\.0\.1"):
            write(server)

        assert len(server.requests) == 2


PROGRAM = """
from iceberg_ds.io.s3_io import S3FileIO
stream = S3FileIO({properties}).new_output("s3://b/k").create(overwrite=True)
stream.write(bytes(9 << 20))
print("written", flush=True)
"""


@pytest.mark.parametrize("is_read", [False, True], ids=["stops reading", "does not answer"])
def test_interpreter_ends_soon_although_the_store_does_not_take_its_upload(*, is_read: bool) -> None:
    """A Python worker would hang at its end for all time-outs of a part and of its abort, 12 minutes by default."""

    def handle(request: Request, _: int) -> None:
        if request.head.startswith("POST"):
            request.answer(_BEGUN)
        if is_read and request.head.startswith("PUT"):
            request.read_body()
        request.stall()

    with serve(handle) as server:
        script = PROGRAM.format(properties=server.properties)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=EXIT_TIMEOUT_S, check=True
        )

        assert done.stdout == "written\n"
        assert "Left behind parts of s3://b/k, which no reader sees: TimeoutError" in done.stderr
        assert "DELETE" in [request.head.split()[0] for request in server.requests]
