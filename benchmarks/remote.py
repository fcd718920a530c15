"""A measuring process in an environment of its own, that is told what to do line by line. Knows no benchmark.

`Remote` starts it and asks; `serve` is what it runs. One JSON object a line in, one out. What the process and its
Java print goes to a log, whose end stands in the error when it dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
_STOP_TIMEOUT_S = 60
_LAST_CHARACTERS = 6000
_FOREIGN = ("PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV")


class RemoteError(RuntimeError):
    """A measuring process refused what it was asked, or has died; what it said is in the text."""


class Remote(AbstractContextManager["Remote"]):
    """A running measuring process.

    Args:
        python: Its interpreter.
        script: A script of this folder, which calls `serve`.
        folder: For its log; created if missing.
        arguments: What the script is started with.
    """

    def __init__(self, python: Path, script: str, folder: Path, arguments: Mapping[str, object]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"{script}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(python), str(HERE / script), json.dumps(dict(arguments))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**inherited, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"},
                text=True,
            )

    def ask(self, do: str, **arguments: object) -> Any:  # noqa: ANN401  # as JSON has it
        """Have it do something and return its answer.

        Raises:
            RemoteError: It failed.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise RemoteError("The measuring process has no pipes.")
        with suppress(BrokenPipeError):  # reading tells why
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            log = self._log.read_text(errors="replace")
            raise RemoteError(f"The measuring process has died at '{do}'. Its log ends:\n{log[-_LAST_CHARACTERS:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RemoteError(f"'{do}' failed: {answer['error']}")
        return answer["answer"]

    def close(self) -> None:
        """Stop it: by the end of its input, and by force if that takes too long."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(server: object) -> None:
    """Call the methods of `server` that standard input names, until it ends, and print what they return."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            content = {"answer": getattr(server, request.pop("do"))(**request)}
        except Exception as error:
            traceback.print_exc()
            content = {"error": f"{type(error).__name__}: {str(error)[:_LAST_CHARACTERS]}"}
        _answers.write(json.dumps(content) + "\n")
        _answers.flush()


def arguments() -> dict[str, Any]:
    """Return what the process was started with, and send what it prints from now on to its log."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


_answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
