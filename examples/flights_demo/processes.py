"""The Spark drivers as processes: started, given their turn, and killed to the last worker.

Needs the standard library alone. Every driver leads a session of its own: its Python, its JVM and
Spark's Python workers are found by it, whoever their parents are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_SCRIPT = Path(__file__).with_name("driver.py")
_WORKERS_LINGER_S = 3
_WORKERS_STUCK_AFTER_S = 15
_LAST_LINES = 15
# Settings of the user's own Spark and PyIceberg, which this demo must neither use nor depend on.
_FOREIGN_SETTINGS = ("SPARK_", "PYSPARK_", "PYICEBERG_")


class DemoError(Exception):
    """The demo cannot go on; its text is for the user."""


class Driver:
    """One Spark driver."""

    def __init__(self, number: int, folder: Path, source: Path, loads: Sequence[str]) -> None:
        self.number = number
        self._log = folder / "logs" / f"driver-{number}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_SCRIPT), str(folder), str(source), "--load", *loads],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,
            )

    def give_turn(self, table: str) -> None:
        """Let it stream into a table as soon as it is ready."""
        if self._process.stdin is not None:
            with (
                suppress(BrokenPipeError),
                self._process.stdin as turn,
            ):  # broken: it has failed, as its exit code tells
                turn.write(f"{table}\n".encode())

    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill it without warning, and wait until the last of its workers is gone.

        Raises:
            DemoError: A process does not die.
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        started = time.monotonic()
        # Spark's Python workers have process groups of their own, and end when they miss their JVM.
        while workers := _list_session(self._process.pid):
            waited_s = time.monotonic() - started
            if waited_s > _WORKERS_STUCK_AFTER_S:
                raise DemoError(f"Processes {workers} of driver {self.number} do not die. Kill them by hand.")
            if waited_s > _WORKERS_LINGER_S:
                _kill_all(workers)
            time.sleep(0.01)

    def explain(self, what: str) -> DemoError:
        """Return the error that says what happened to it, with the end of its log."""
        lines = self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return DemoError("\n".join([f"Driver {self.number} {what}. The end of its log {self._log}:", *lines]))


def _environment(folder: Path) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN_SETTINGS)}
    paths = [str(folder / "no-pandas"), *filter(None, [own.get("PYTHONPATH")])]
    return {
        **own,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYICEBERG_HOME": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder / "tmp"),
    }


def _kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _list_session(session_id: int) -> list[int]:
    """Return the running processes of a session; zombies are dead, though a container may keep them."""
    members = []
    for pid, state in _list_processes():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session_id and not state.startswith("Z"):
                members.append(pid)
    return members


def _list_processes() -> Iterator[tuple[int, str]]:
    """Yield the id and the state of each process, from /proc where there is one, else from `ps`."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True)
        yield from ((int(pid), state) for pid, state in map(str.split, listing.stdout.splitlines()))
        return
    for process in Path("/proc").iterdir():
        with suppress(ValueError, OSError):  # not a process, or gone
            yield int(process.name), (process / "stat").read_text().rpartition(")")[2].strip()


class Relay:
    """Drivers that take turns: while one streams, the next one starts Spark and loads small tables.

    Args:
        folder: The demo's folder.
        source: The folder of the source.
        loads: For each planned turn, the small tables that its driver loads before it.
    """

    def __init__(self, folder: Path, source: Path, loads: Sequence[Sequence[str]]) -> None:
        self._folder, self._source = folder, source
        self._loads = deque(loads)
        self._drivers: list[Driver] = []
        self._waiting: deque[Driver] = deque()

    def start_ahead(self) -> None:
        """Start the driver of the next planned turn, if there is one."""
        if self._loads:
            self._start(self._loads.popleft())

    def take_turn(self, table: str) -> Driver:
        """Return the driver whose turn it is, which streams into a table as soon as it can; start the one after it."""
        if not self._waiting:
            self._start(self._loads.popleft() if self._loads else ())
        driver = self._waiting.popleft()
        driver.give_turn(table)
        self.start_ahead()
        return driver

    def stop(self) -> None:
        """Kill what still runs."""
        for driver in self._drivers:
            driver.kill()

    def _start(self, loads: Sequence[str]) -> None:
        driver = Driver(len(self._drivers) + 1, self._folder, self._source, loads)
        self._drivers.append(driver)
        self._waiting.append(driver)
