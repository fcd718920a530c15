"""A hook that notes in a file how a commit ended: a continuous query shows no exception, and a test would not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from support.hooks.hook import Call


class CommitNote:
    """Notes "committed", or the error, in the file that option `note` names."""

    option: ClassVar[str] = "note"

    def __init__(self, text: str) -> None:
        self._note = Path(text)

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Note how a commit ended."""
        if call.role != "commit":
            yield
            return
        try:
            yield
        except Exception as error:
            self._write(f"{type(error).__name__}: {error}")
            raise
        self._write("committed")

    def _write(self, text: str) -> None:
        unfinished = self._note.with_suffix(".unfinished")
        unfinished.write_text(text)
        unfinished.rename(self._note)
