"""Messages to and from a REST catalog, with what PyIceberg's lack, if the sink sends them or gets them.

PyIceberg declares the parts of a commit by its own classes, and leaves out of the JSON what a subclass adds; Nessie
refuses such a request. A server's answer about a table holds its whole history, and is parsed without pauses for the
garbage collector. `pyiceberg_patches` puts these functions in the place of PyIceberg's; for other callers they call
those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import TypeVar

from pydantic import SerializeAsAny
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table, TableIdentifier
from pyiceberg.table.update import TableUpdate

from iceberg_ds.catalog.metadata_files import files_at_hand
from iceberg_ds.catalog.unparsed import telling_unparsed
from iceberg_ds.garbage_collection import no_garbage_collection
from iceberg_ds.table.encryption import noting_encryption
from iceberg_ds.table.requests import CommitRequest

_Answer = TypeVar("_Answer", TableResponse, CommitTableResponse)


def parsing_quickly(parse: Callable[..., _Answer], *, tells_unparsed: bool) -> Callable[..., _Answer]:
    """Return what parses an answer about a table, as a method of its class.

    Args:
        parse: PyIceberg's method.
        tells_unparsed: Whether metadata that cannot be parsed is told by an `UnparsedMetadataError`.
    """

    @wraps(parse)
    def parse_quickly(cls: type[_Answer], json_data: str, **options: object) -> _Answer:  # pydantic's names
        if files_at_hand() is None:
            return parse(cls, json_data, **options)
        with no_garbage_collection(), telling_unparsed(of_answer=True) if tells_unparsed else nullcontext():
            return _noting_encryption(parse(cls, json_data, **options), json_data)

    return parse_quickly


def _noting_encryption(answer: _Answer, text: str) -> _Answer:
    """Return an answer about a table with a note of what PyIceberg leaves out of it."""
    noted = noting_encryption(answer.metadata, text, "metadata")
    return answer if noted is answer.metadata else answer.model_copy(update={"metadata": noted})


class _WithOwnFields(CommitTableRequest):
    """A commit request that writes each update with all fields of its own class."""

    updates: tuple[SerializeAsAny[TableUpdate], ...] = ()


def dumping_whole(dump: Callable[..., str]) -> Callable[..., str]:
    """Return what writes a commit request, as a method of its class; `dump` is PyIceberg's."""

    @wraps(dump)
    def dump_whole(self: CommitTableRequest, *args: object, **kwargs: object) -> str:
        if files_at_hand() is None or isinstance(self, _WithOwnFields):
            return dump(self, *args, **kwargs)
        own = _WithOwnFields(identifier=self.identifier, requirements=self.requirements, updates=self.updates)
        return dump(own, *args, **kwargs)

    return dump_whole


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
