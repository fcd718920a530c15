"""Credentials that are asked for again: when, where, once, and what happens if the catalog does not answer."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from iceberg_ds.io.vended_credentials import CurrentProperties, renewing

LOCATION = "s3://bucket/table"
TOKEN = "marked-token"  # noqa: S105  # none


class Endpoint:
    """A credentials endpoint on loopback.

    Attributes:
        lifetime_ms: How long each answer's credentials last.
        statuses: What it answers, one after the other; 200 when none is left.
        asked: The headers of each request.
    """

    def __init__(self) -> None:
        self.lifetime_ms = 3_600_000
        self.statuses: list[int] = []
        self.asked: list[dict[str, str]] = []
        self.prefix = "s3://bucket"
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.asked.append(dict(self.headers.items()))
                status = endpoint.statuses.pop(0) if endpoint.statuses else 200
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()
                self.wfile.write(json.dumps(endpoint.answer()).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def answer(self) -> object:
        """Return credentials that tell how often they were asked for."""
        config = {
            "s3.access-key-id": f"key-{len(self.asked)}",
            "s3.session-token-expires-at-ms": str(now_ms() + self.lifetime_ms),
        }
        return {"storage-credentials": [{"prefix": self.prefix, "config": config}]}

    def properties(self, ends_in_ms: int) -> dict[str, str]:
        """Return what a driver ships, with credentials that end in some time."""
        return {
            "s3.access-key-id": "key-0",
            "s3.session-token-expires-at-ms": str(now_ms() + ends_in_ms),
            "client.refresh-credentials-enabled": "true",
            "client.refresh-credentials-endpoint": f"http://127.0.0.1:{self.server.server_port}/credentials",
            "client.refresh-credentials-token": TOKEN,
            "client.refresh-credentials-header.X-Team": "data",
        }

    def renewing(self, ends_in_ms: int) -> CurrentProperties:
        """Return what a task asks for properties."""
        current = renewing(self.properties(ends_in_ms), LOCATION)
        assert current is not None
        return current


def now_ms() -> int:
    """Return the time."""
    return int(time.time() * 1000)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Return a running endpoint."""
    found = Endpoint()
    thread = Thread(target=found.server.serve_forever, args=[0.01])
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def test_credentials_that_last_are_not_asked_for(endpoint: Endpoint) -> None:
    """Every file of every task would cost the catalog a request."""
    current = endpoint.renewing(ends_in_ms=3_600_000)

    assert current()["s3.access-key-id"] == "key-0"
    assert endpoint.asked == []


def test_credentials_that_end_soon_are_asked_for_once(endpoint: Endpoint) -> None:
    """A task that outlives its credentials would fail."""
    current = endpoint.renewing(ends_in_ms=1000)

    assert [current()["s3.access-key-id"] for _ in range(3)] == ["key-1"] * 3
    assert len(endpoint.asked) == 1


def test_request_has_the_token_and_the_headers_of_the_catalog(endpoint: Endpoint) -> None:
    """The catalog would not know who asks."""
    endpoint.renewing(ends_in_ms=1000)()

    assert endpoint.asked[0]["Authorization"] == f"Bearer {TOKEN}"
    assert endpoint.asked[0]["X-Team"] == "data"


def test_short_lived_credentials_are_not_asked_for_at_each_file(endpoint: Endpoint) -> None:
    """Credentials for a minute would be asked for without end."""
    endpoint.lifetime_ms = 60_000
    current = endpoint.renewing(ends_in_ms=1000)

    assert [current()["s3.access-key-id"] for _ in range(3)] == ["key-1"] * 3


def test_threads_ask_once_together(endpoint: Endpoint) -> None:
    """Each part of an upload would ask the catalog by itself."""
    current = endpoint.renewing(ends_in_ms=1000)
    with ThreadPoolExecutor(8) as threads:
        keys = {future.result()["s3.access-key-id"] for future in [threads.submit(current) for _ in range(16)]}

    assert keys == {"key-1"}
    assert len(endpoint.asked) == 1


def test_catalog_that_is_down_for_a_moment_is_asked_again(endpoint: Endpoint) -> None:
    """A task would fail for a catalog that restarts."""
    endpoint.statuses = [503, 429]

    assert endpoint.renewing(ends_in_ms=-1000)()["s3.access-key-id"] == "key-3"


def test_valid_credentials_are_used_while_the_catalog_refuses(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """A task with valid credentials would fail."""
    endpoint.statuses = [403]
    with caplog.at_level(logging.WARNING):
        properties = endpoint.renewing(ends_in_ms=60_000)()

    assert properties["s3.access-key-id"] == "key-0"
    assert "answered 403" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("status", [401, 403, 302])
def test_ended_credentials_and_a_refusal_are_an_error_that_says_so(endpoint: Endpoint, status: int) -> None:
    """A user would see a store's refusal, and not that the catalog's token has ended."""
    endpoint.statuses = [status]
    with pytest.raises(PermissionError, match=rf"which have ended: .* answered {status}") as raised:
        endpoint.renewing(ends_in_ms=-1000)()

    assert TOKEN not in str(raised.value)


def test_credentials_for_another_place_are_no_answer(endpoint: Endpoint) -> None:
    """Files would be written with credentials of another table."""
    endpoint.prefix = "s3://other"
    with pytest.raises(PermissionError, match="no credentials for s3://bucket/table"):
        endpoint.renewing(ends_in_ms=-1000)()


@pytest.mark.parametrize(
    "name",
    [
        "client.refresh-credentials-enabled",
        "client.refresh-credentials-endpoint",
        "s3.session-token-expires-at-ms",
    ],
)
def test_nothing_is_asked_without_leave_place_or_need(endpoint: Endpoint, name: str) -> None:
    """A task would send a token that its user did not want to leave the driver."""
    properties = endpoint.properties(ends_in_ms=1000)
    del properties[name]

    assert renewing(properties, LOCATION) is None
