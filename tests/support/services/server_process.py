"""Servers as processes of their own on loopback: a free port, a deadline for the start, a log that a failure shows.

A server ends with the process that started it, however that ends (`server_guard.py`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

START_TIMEOUT_S = 180
HOST = "127.0.0.1"
_STOP_TIMEOUT_S = 15
_LOOK_EVERY_S = 0.05
_LAST_CHARACTERS = 6000
_GUARD = Path(__file__).with_name("server_guard.py")


class ServerError(RuntimeError):
    """A server did not start; the end of its log is in the text."""


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Return whether somebody accepts connections at the port of loopback."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server and how it is started.

    Attributes:
        name: What errors call it.
        command: The command.
        log: Where its output goes.
        is_ready: Whether it serves; asked again and again until it does.
        environment: Variables beside this process's.
        user: The user that runs it, this process's if empty.
        stop_signal: Name of the signal that ends it.
    """

    name: str
    command: Sequence[str | Path]
    log: Path
    is_ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str = ""
    stop_signal: str = "SIGTERM"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, wait until it serves, and stop it in the end.

        Raises:
            ServerError: It ended, or was not ready in time.
        """
        process = self._start()
        try:
            self._wait(process)
            yield
        finally:
            _stop(process)

    def _start(self) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-IS", str(_GUARD), self.stop_signal, self.user, *map(str, self.command)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                env={**os.environ, **self.environment},
            )

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.is_ready():
            if process.poll() is not None:
                raise ServerError(f"{self.name} ended with {process.returncode}. {self._last_words()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} was not ready in {START_TIMEOUT_S} s. {self._last_words()}")
            time.sleep(_LOOK_EVERY_S)

    def _last_words(self) -> str:
        return f"Its log ends with:\n{self.log.read_text(errors='replace')[-_LAST_CHARACTERS:]}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let a server's guard end it, by force if that takes too long."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
