"""Parses what a REST catalog answers about a table, its whole history, without pauses for the garbage collector.

PyIceberg parses by its own classes, which are replaced by these; contract tests hold what this rests on.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import rest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import CommitTableResponse
from typing_extensions import Self

from iceberg_ds.catalogs.metadata_files import no_garbage_collection


class QuickTableResponse(TableResponse):
    """The answer to a load."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with no_garbage_collection():
            return super().model_validate_json(*args, **kwargs)


class QuickCommitTableResponse(CommitTableResponse):
    """The answer to a commit."""

    @classmethod
    def model_validate_json(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401  # as pydantic's
        """Return the parsed answer."""
        with no_garbage_collection():
            return super().model_validate_json(*args, **kwargs)


def parse_answers_quickly() -> None:
    """Let the REST catalogs of this process parse what servers answer about tables by these classes."""
    rest.TableResponse = QuickTableResponse  # type: ignore[misc]
    rest.CommitTableResponse = QuickCommitTableResponse  # type: ignore[attr-defined]  # not exported
