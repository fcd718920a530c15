"""Parses what a REST catalog answers about a table, its whole history, without pauses for the garbage collector.

PyIceberg parses by its own classes, which are replaced by these; contract tests hold what this rests on.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import rest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableResponse
from pyiceberg.typedef import IcebergBaseModel
from typing_extensions import Self

from iceberg_ds.catalogs.garbage_collection import no_garbage_collection


class _ParsedQuickly(IcebergBaseModel):
    """An answer, of whose class this one is the first base."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with no_garbage_collection():
            return super().model_validate_json(*args, **kwargs)


class QuickTableResponse(_ParsedQuickly, TableResponse):
    """The answer to a load."""


class QuickCommitTableResponse(_ParsedQuickly, CommitTableResponse):
    """The answer to a commit."""


def parse_answers_quickly() -> None:
    """Let the REST catalogs of this process parse what servers answer about tables by these classes."""
    rest.TableResponse = QuickTableResponse  # type: ignore[misc]
    rest.CommitTableResponse = QuickCommitTableResponse  # type: ignore[attr-defined]  # not exported
