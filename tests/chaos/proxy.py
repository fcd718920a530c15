"""A proxy on loopback before a catalog or a store, that can be away: it resets, hangs, or drops the replies."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

HOST = "127.0.0.1"
_CHUNK = 1 << 16
_CONNECT_TIMEOUT_S = 5
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Away(Enum):
    """How a server is away."""

    RESET = "every connection is reset"
    HANG = "nothing comes through, and in the end every connection is reset"
    MUTE = "requests come through, their replies do not, and in the end every connection is reset"


class Proxy:
    """Passes bytes on to a server, unless it is away.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._away: Away | None = None
        self._is_back = threading.Event()
        self._is_back.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server((HOST, 0), backlog=128)
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    def go_away(self, away: Away) -> None:
        """Be away from now on."""
        self._is_back.clear()
        self._away = away
        if away is Away.RESET:
            self._reset_all()

    def come_back(self) -> None:
        """Serve again; what was open until now is reset."""
        if self._away is not None:
            self._reset_all()
            self._away = None
            self._is_back.set()

    def close(self) -> None:
        """Stop."""
        self.come_back()
        self._listening.close()
        self._reset_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            if self._away is Away.RESET:
                _reset(client)
                continue
            try:
                server = socket.create_connection((HOST, self._server), timeout=_CONNECT_TIMEOUT_S)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
            for source, target, is_reply in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, target, is_reply), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:  # noqa: FBT001  # of threads
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if self._away is Away.HANG or (is_reply and self._away is not None):
                    self._is_back.wait()
                    break
                target.sendall(data)
        with self._lock:
            self._open -= {source, target}
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _reset_all(self) -> None:
        with self._lock:
            every, self._open = self._open, set()
        for end in every:
            _reset(end)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def serve_proxy(port: int) -> Iterator[Proxy]:
    """Run a proxy before the server at a port of loopback."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
