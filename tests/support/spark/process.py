"""Spark drivers as processes of their own: started, given jobs, killed, each with its log.

Needs the standard library alone. Every driver leads a session of its own, so that its Python, its
Java and Spark's Python workers are found by it, whoever their parents are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from support.services.readiness import is_readable

START_TIMEOUT_S = 300
JOB_TIMEOUT_S = 300
_DIE_TIMEOUT_S = 60
_LOOK_EVERY_S = 0.02
_LAST_CHARACTERS = 6000


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = JOB_TIMEOUT_S) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It does not; `what` is in the text.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {timeout_s} s in vain until {what}.")
        time.sleep(_LOOK_EVERY_S)


class SparkProcess:
    """A Python process that starts Spark and then runs the jobs that it is sent, one after the other.

    Args:
        folder: For its log and temporary files; created if missing.
        master: Spark's master.
        cwd: Its working directory, `folder` unless given.
        environment: Environment variables beside this process's; PYSPARK_PYTHON is the driver's interpreter, too.
        conf: Settings of Spark, `_` for a dot.
        program: The module that starts Spark and answers.
        finds_pandas: Whether its Python workers find pandas, which takes each a second to load.
    """

    def __init__(  # noqa: PLR0913  # one for each thing that a test may need
        self,
        folder: Path,
        *,
        master: str = "local[2]",
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        program: str = "support.spark.driver",
        finds_pandas: bool = False,
    ) -> None:
        from support.spark.session import prepare_environment  # noqa: PLC0415  # a caller may do without Spark

        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "driver.log"
        self._answers, write_end = os.pipe()
        inherited = {**os.environ, **(environment or {})}
        prepare_environment(inherited, folder, finds_pandas=finds_pandas)
        python = inherited["PYSPARK_PYTHON"] = (environment or {}).get("PYSPARK_PYTHON", sys.executable)
        arguments = [str(folder), master, str(write_end), json.dumps(dict(conf or {}))]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", program, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=cwd or folder,
                env=inherited,
                pass_fds=[write_end],
                start_new_session=True,
            )
        os.close(write_end)
        self._unread = b""
        self._is_ready = False

    def __enter__(self) -> SparkProcess:  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id, and the id of its session and process group."""
        return self._process.pid

    def log(self) -> str:
        """Return what it and all its workers have printed."""
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Wait until Spark has started.

        Raises:
            TimeoutError: It has not.
            RuntimeError: The process has died.
        """
        if not self._is_ready:
            self._read_answer(START_TIMEOUT_S)
            self._is_ready = True

    def send(self, job: str) -> None:
        """Give it a job, as `spark_jobs.dump` writes it, and do not wait."""
        self.wait_ready()
        if self._process.stdin is None:
            raise RuntimeError("The process has no standard input.")
        self._process.stdin.write(f"{job}\n".encode())
        self._process.stdin.flush()

    def wait_answer(self, timeout_s: float = JOB_TIMEOUT_S) -> str | None:
        """Return the error of the job that was sent first, None if it went well.

        Raises:
            TimeoutError: It does not end.
            RuntimeError: The process has died.
        """
        error = self._read_answer(timeout_s)["error"]
        return None if error is None else str(error)

    def has_answered(self) -> bool:
        """Return whether the job that was sent first has ended, or the process has died."""
        return b"\n" in self._unread or is_readable(self._answers, 0)

    def run(self, job: str, timeout_s: float = JOB_TIMEOUT_S) -> str | None:
        """Run a job; return and raise as `wait_answer` does."""
        self.send(job)
        return self.wait_answer(timeout_s)

    def _read_answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            readable = is_readable(self._answers, deadline - time.monotonic())
            if not readable:
                raise TimeoutError(f"No answer of the Spark process in {timeout_s} s. {self._last_words()}")
            chunk = os.read(self._answers, 65536)
            if not chunk:
                raise RuntimeError(f"The Spark process has died. {self._last_words()}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        return f"Its log ends with:\n{self.log()[-_LAST_CHARACTERS:]}"

    def wait_java_dead(self) -> None:
        """Wait until its Java process is gone, as after a fault that kills it."""
        wait_until(lambda: not find_members(self.pid, "java"), "Spark's Java process is dead", _DIE_TIMEOUT_S)

    def kill_group(self) -> None:
        """Kill its process group without warning: its Python and its Java; workers end by themselves, in time."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def kill(self) -> None:
        """Kill it without warning, and wait until the last of its workers is gone."""
        self.kill_group()
        kill_members(self.pid)

    def close(self) -> None:
        """Kill it, and let go of what is held of it."""
        self.kill()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


def kill_members(session_id: int) -> None:
    """Kill all processes of a session without warning, and wait until the last of them is gone."""
    deadline = time.monotonic() + _DIE_TIMEOUT_S
    while members := find_members(session_id):
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"Processes {members} do not die.")
        time.sleep(_LOOK_EVERY_S)


def find_members(session_id: int, name: str | None = None) -> list[int]:
    """Return the running processes of a session, only those called `name` if it is given."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # gone meanwhile
            comm, _, fields = (process / "stat").read_text().partition("(")[2].rpartition(")")
            state, _, _, session, *_ = fields.split()
            if int(session) == session_id and state not in "ZX" and name in (None, comm):
                found.append(int(process.name))
    return found
