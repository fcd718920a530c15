"""Sends every field of an update to a REST catalog, those of our own update classes too.

PyIceberg declares what a commit consists of by its own classes, and what a subclass adds falls out when it
is written as JSON. Nessie refuses the rest. Contract tests hold what this rests on.
"""

from __future__ import annotations

from pydantic import SerializeAsAny
from pyiceberg.catalog import rest
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.update import TableUpdate


class WholeCommitTableRequest(CommitTableRequest):
    """A commit request whose updates are written as what they are."""

    updates: tuple[SerializeAsAny[TableUpdate], ...] = ()


def send_updates_whole() -> None:
    """Let the REST catalogs of this process send updates whole; what PyIceberg itself makes stays the same."""
    rest.CommitTableRequest = WholeCommitTableRequest  # type: ignore[attr-defined]  # not exported
