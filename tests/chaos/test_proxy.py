"""The proxy of chaos runs: being away must be felt by clients, and coming back, too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from chaos.proxy import HOST, Away, Proxy, serve_proxy

_TIMEOUT_S = 20


@pytest.fixture
def served() -> Iterator[list[bytes]]:
    """Run a server on a port that answers each message with itself; return what it gets, the port first."""
    heard: list[bytes] = []
    with socket.create_server((HOST, 0)) as listening:
        heard.append(str(listening.getsockname()[1]).encode())
        threading.Thread(target=_echo, args=(listening, heard), daemon=True).start()
        yield heard


def _echo(listening: socket.socket, heard: list[bytes]) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(client, heard), daemon=True).start()


def _answer(client: socket.socket, heard: list[bytes]) -> None:
    with client:
        while data := client.recv(100):
            heard.append(data)
            client.sendall(data)


@pytest.fixture
def proxy(served: list[bytes]) -> Iterator[Proxy]:
    """Return a proxy before the server."""
    with serve_proxy(int(served[0])) as proxy:
        yield proxy


def _client(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=_TIMEOUT_S)


def _ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(100)


def _is_lost(client: socket.socket) -> bool:
    """Return whether the connection is reset or at its end."""
    try:
        return _ask(client, b"two") == b""
    except ConnectionError:
        return True


def test_passes_on_what_comes(proxy: Proxy) -> None:
    """Nothing would work with the proxy in between."""
    with _client(proxy) as client:
        assert (_ask(client, b"one"), _ask(client, b"two")) == (b"one", b"two")


def test_resets_every_connection(proxy: Proxy) -> None:
    """An outage would not be felt by who is connected already."""
    with _client(proxy) as client:
        assert _ask(client, b"one") == b"one"

        proxy.go_away(Away.RESET)

        assert _is_lost(client)


@pytest.mark.parametrize(("away", "arrives"), [(Away.HANG, False), (Away.MUTE, True)])
def test_drops_replies_and_for_hang_requests(served: list[bytes], proxy: Proxy, away: Away, arrives: bool) -> None:  # noqa: FBT001  # pytest's way
    """A lost reply would never be tried, or always together with a lost request."""
    with _client(proxy) as client:
        assert _ask(client, b"one") == b"one"
        proxy.go_away(away)
        client.sendall(b"two")
        client.settimeout(0.5)

        with pytest.raises(TimeoutError):
            client.recv(100)
        assert (b"two" in served) is arrives


def test_serves_again_afterwards(proxy: Proxy) -> None:
    """An outage would last for ever."""
    proxy.go_away(Away.RESET)
    proxy.come_back()

    with _client(proxy) as client:
        assert _ask(client, b"one") == b"one"
