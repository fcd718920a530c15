"""Messages to and from a REST catalog as classes of their own, for what PyIceberg's lack.

PyIceberg declares the parts of a commit by its own classes, and leaves out of the JSON what a subclass adds; Nessie
refuses such a request. A server's answer about a table holds its whole history, and is parsed without pauses for the
garbage collector. `pyiceberg_patches` puts these classes in place; for other callers they do what PyIceberg does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from pydantic import SerializeAsAny
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table, TableIdentifier
from pyiceberg.table.update import TableUpdate

from iceberg_ds.catalog.metadata_files import files_at_hand, no_garbage_collection
from iceberg_ds.catalog.unparsed import telling_unparsed
from iceberg_ds.table.encryption import noting_encryption
from iceberg_ds.table.requests import CommitRequest

_Answer = TypeVar("_Answer", TableResponse, CommitTableResponse)


def _parsing() -> AbstractContextManager[None]:
    """Return the context in which an answer is parsed: without garbage collection if the sink asked for it."""
    return nullcontext() if files_at_hand() is None else no_garbage_collection()


def _noting_encryption(answer: _Answer, text: str, *_: object) -> _Answer:
    """Return an answer about a table with a note of what PyIceberg leaves out of it, if the sink asked for it."""
    if files_at_hand() is None:
        return answer
    noted = noting_encryption(answer.metadata, text, "metadata")
    return answer if noted is answer.metadata else answer.model_copy(update={"metadata": noted})


class QuickTableResponse(TableResponse):
    """The answer to a load."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> TableResponse:  # type: ignore[override]  # noqa: ANN401  # as pydantic's
        """Return the parsed answer.

        Raises:
            UnparsedMetadataError: The sink has asked for it, and the metadata in it cannot be parsed.
        """
        telling = nullcontext() if files_at_hand() is None else telling_unparsed(of_answer=True)
        with _parsing(), telling:
            return _noting_encryption(TableResponse.model_validate_json(*args, **kwargs), *args)


class QuickCommitTableResponse(CommitTableResponse):
    """The answer to a commit."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> CommitTableResponse:  # type: ignore[override]  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with _parsing():
            return _noting_encryption(CommitTableResponse.model_validate_json(*args, **kwargs), *args)


class _WithOwnFields(CommitTableRequest):
    """A commit request that writes each update with all fields of its own class."""

    updates: tuple[SerializeAsAny[TableUpdate], ...] = ()


class WholeCommitTableRequest(CommitTableRequest):
    """A commit request; with all fields of each update's own class if the sink sends it."""

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401  # as PyIceberg's
        """Return the message."""
        if files_at_hand() is None:
            return super().model_dump_json(*args, **kwargs)
        own = _WithOwnFields(identifier=self.identifier, requirements=self.requirements, updates=self.updates)
        return own.model_dump_json(*args, **kwargs)


def text_of_changes(changes: Sequence[tuple[Table, CommitRequest]]) -> str:
    """Return the JSON of one request that changes several tables; PyIceberg has no class for it."""
    parts = (
        _WithOwnFields(
            identifier=TableIdentifier(namespace=table.name()[:-1], name=table.name()[-1]),
            requirements=request.requirements,
            updates=request.updates,
        ).model_dump_json()
        for table, request in changes
    )
    return f'{{"table-changes": [{", ".join(parts)}]}}'
