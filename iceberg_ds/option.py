"""What an option is, for the table of options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its key, its default as the README shows it, its parser and one sentence of doc."""

    name: str
    default: str
    parse: Callable[[str], object]
    doc: str
