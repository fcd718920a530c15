"""What tests hook around the calls that Spark makes of the sink, in whatever process makes them (`hooked_sink`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of the sink.

    Attributes:
        role: What is called for.
        writer: The sink's own writer; None until it is planned.
        messages: What tasks reported, of a commit and an abort; else None.
        epoch_id: The epoch of a stream's commit or abort, else None.
    """

    role: Literal["plan", "task", "commit", "abort"]
    writer: Any = None
    messages: Sequence[Any] | None = None
    epoch_id: int | None = None


class Hook(Protocol):
    """Something around each call. It is made by the text of its option, and goes to tasks with the writer."""

    option: ClassVar[str]

    def __init__(self, text: str) -> None:
        """Take the value of the option."""

    def around(self, call: Call) -> AbstractContextManager[None]:
        """Return what the call is made within."""
