"""Requests to a REST catalog and its answers, as the sink needs them; for other callers as PyIceberg has them.

PyIceberg declares the parts of a commit by its own classes, and leaves out of the JSON what a subclass adds; Nessie
refuses such a request. A server's answer about a table holds its whole history, and is parsed without pauses for the
garbage collector. Contract tests hold what this rests on.
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
    """Return the context in which an answer is parsed: without garbage collection if the sink asked for it."""
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
    """A commit request that writes each update with all fields of its own class."""

    updates: tuple[SerializeAsAny[TableUpdate], ...] = ()


def commit_table_request(**fields: Any) -> CommitTableRequest:  # noqa: ANN401  # as the class
    """Return a commit request, whole if the sink makes it."""
    kind = CommitTableRequest if files_at_hand() is None else WholeCommitTableRequest
    return kind(**fields)
