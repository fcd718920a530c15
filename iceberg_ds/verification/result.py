"""What `verify` found, as values: the checks as `check` has them, and the files that nothing refers to."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_ds.checks.result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file below the table's locations that no snapshot, log or ref refers to.

    Attributes:
        path: Where it is.
        size_bytes: Its size.
        modified_ms: When it was last written, milliseconds since the Unix epoch.
        deleted: Whether this run has deleted it.
    """

    path: str
    size_bytes: int
    modified_ms: int
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult(CheckResult):
    """What all checks of a table found; its text is a table.

    Attributes:
        table: Its identifier.
        orphans: Files that nothing refers to, the oldest first; they do not make a table unsound.
    """

    table: str
    orphans: tuple[Orphan, ...] = ()
