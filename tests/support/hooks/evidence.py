"""A hook that keeps what tasks hold and what they report, and lets the sink log all that it can."""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from support.hooks.hook import Call


def log_everything() -> None:
    """Print all that the sink and PyIceberg log in this process."""
    for name in ("iceberg_ds", "pyiceberg"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.StreamHandler(sys.stderr))
            logger.setLevel(logging.DEBUG)


class Evidence:
    """Keeps it in the folder that option `evidence` names."""

    option: ClassVar[str] = "evidence"

    def __init__(self, text: str) -> None:
        log_everything()
        self._folder = Path(text)

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Keep what a task holds, and the messages of a commit."""
        log_everything()
        if call.role == "task":
            self._keep("task", call.writer.__dict__)
        elif call.role == "commit":
            self._keep("messages", call.messages)
        yield

    def _keep(self, kind: str, value: object) -> None:
        target = self._folder / kind
        target.mkdir(parents=True, exist_ok=True)
        number = len(list(target.iterdir()))
        (target / f"{os.getpid()}-{number}.pickle").write_bytes(pickle.dumps(value))
        (target / f"{os.getpid()}-{number}.repr").write_text(f"{value!r}\n{value}")
