"""What an executor tries and tells, as text: who it is, what it runs, and whether it can use the storage."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from iceberg_ds.checks.storage_probe import Place, machine, probe_storage
from iceberg_ds.checks.versions import installed_versions

# Tasks that end at once would all be run by the executor that is first ready.
_LEAST_S = 1.5


def answer_of_executor(place: Mapping[str, object] | None, run: str) -> str:
    """Return what this executor found, as JSON; only one of its tasks tries the storage.

    Args:
        place: The fields of `Place`, None to leave the storage alone.
        run: Names this check.
    """
    started = time.monotonic()
    process = _executor_process()
    answer: dict[str, object] = {"executor": f"{machine()} (process {process})", "time": time.time()}
    with _Claim(f"iceberg-ds-check-{run}-{process}") as is_first:
        if is_first:
            answer["versions"] = installed_versions()
            answer["checks"] = _storage_checks(place, f"executor-{machine()}-{process}", str(answer["executor"]))
        time.sleep(max(0.0, _LEAST_S - (time.monotonic() - started)))
    return json.dumps(answer)


def _storage_checks(place: Mapping[str, object] | None, name: str, where: str) -> list[dict[str, object]]:
    if place is None:
        return []
    return [asdict(check) for check in probe_storage(Place(**place), name, where)]  # type: ignore[arg-type]  # its own fields


def _executor_process() -> int:
    """Return the id of the executor's Java process: Python workers are children of its daemon."""
    daemon = os.getppid()
    try:
        # The fields before are the daemon's id, its name in brackets and its state.
        return int(Path(f"/proc/{daemon}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return daemon


class _Claim:
    """Whether this task is the first of its executor; leaves nothing behind, however the task ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> bool:
        if sys.platform != "linux":
            return True  # without names that stand in no folder, every task tries
        try:
            self._socket.bind(f"\0{self._name}")
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._socket.close()
