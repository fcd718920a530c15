"""What is sent to a REST catalog and what it answers, as the sink needs it; for other callers as PyIceberg has it.

PyIceberg declares what a commit consists of by its own classes, and what a subclass adds falls out when it is written
as JSON; Nessie refuses the rest. What a server answers about a table is its whole history, and is parsed without pauses
for the garbage collector. Contract tests hold what this rests on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pydantic import SerializeAsAny
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse
from pyiceberg.table.update import TableUpdate

from iceberg_ds.catalog.metadata_files import files_at_hand
from iceberg_ds.catalog.metadata_json import no_garbage_collection


def _parsing() -> AbstractContextManager[None]:
    """Return what surrounds the parsing of an answer: no garbage collection if the sink asked for it."""
    return nullcontext() if files_at_hand() is None else no_garbage_collection()


class QuickTableResponse(TableResponse):
    """The answer to a load."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> TableResponse:  # type: ignore[override]  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with _parsing():
            return TableResponse.model_validate_json(*args, **kwargs)


class QuickCommitTableResponse(CommitTableResponse):
    """The answer to a commit."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> CommitTableResponse:  # type: ignore[override]  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with _parsing():
            return CommitTableResponse.model_validate_json(*args, **kwargs)


class WholeCommitTableRequest(CommitTableRequest):
    """A commit request whose updates are written as what they are."""

    updates: tuple[SerializeAsAny[TableUpdate], ...] = ()


def commit_table_request(**fields: Any) -> CommitTableRequest:  # noqa: ANN401  # as the class
    """Return a commit request, whole if the sink makes it."""
    kind = CommitTableRequest if files_at_hand() is None else WholeCommitTableRequest
    return kind(**fields)
