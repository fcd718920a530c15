"""Metadata of tables that PyIceberg cannot parse: what is wrong with it, in a line, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_UNKNOWN = (
    "The table has something that the installed versions of iceberg-ds and PyIceberg do not know, or its metadata is "
    "wrong: use an engine that knows it, such as Iceberg's Spark runtime, or let one remove it from the table"
)
_DAMAGED = (
    "The file is damaged: restore it from a backup of the store, or register the table by an earlier metadata file"
)
_NO_JSON = "json_invalid"
_NO_VERSION = "union_tag_invalid"  # the format version is none of those that are known
_METADATA = "metadata"
# What stands before the metadata's own names where pydantic says a place: its field in an answer, and its version.
_AROUND = frozenset({_METADATA, "1", "2", "3"})
_LONGEST_VALUE = 160
_VALUE_ERROR = "Value error, "


class UnparsedMetadataError(Exception):
    """The metadata of a table cannot be parsed.

    Attributes:
        next_step: What to do.
    """

    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(f"the table's metadata cannot be parsed: {reason}")
        self.next_step = f"{next_step}."


@contextmanager
def telling_unparsed(*, of_answer: bool = False) -> Iterator[None]:
    """Let what fails in the block, which parses metadata and does nothing else, say that this is it.

    Args:
        of_answer: Whether an answer of a server is parsed that has the metadata as a part; what is wrong with other
            parts, or is no such answer, stays as it is.

    Raises:
        UnparsedMetadataError: The metadata cannot be parsed.
    """
    try:
        yield
    except Exception as error:  # of PyIceberg's parsers, each of which raises its own
        problems = _problems(error)
        if of_answer and problems and not _is_of_metadata(problems[0]):
            raise
        is_damaged = bool(problems) and problems[0]["type"] == _NO_JSON
        reason = _reason(problems) if problems else f"{type(error).__name__}: {error}"
        raise UnparsedMetadataError(reason, _DAMAGED if is_damaged else _UNKNOWN) from error


def _problems(error: BaseException) -> Sequence[ErrorDetails]:
    """Return what pydantic says of each place; nothing if it was not pydantic that found the problem."""
    found = error if isinstance(error, ValidationError) else error.__cause__
    return found.errors(include_url=False, include_context=False) if isinstance(found, ValidationError) else ()


def _is_of_metadata(problem: ErrorDetails) -> bool:
    """Return whether a problem with an answer is one of the metadata in it, rather than that there is none."""
    place = problem["loc"]
    return place[:1] == (_METADATA,) and (len(place) > 1 or problem["type"] == _NO_VERSION)


def _reason(problems: Sequence[ErrorDetails]) -> str:
    first = problems[0]
    place = ".".join(dropwhile(_AROUND.__contains__, map(str, first["loc"])))
    value = repr(first["input"])
    shown = f"; it is {value}" if len(value) <= _LONGEST_VALUE else ""
    more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{place + ': ' if place else ''}{first['msg'].removeprefix(_VALUE_ERROR)}{shown}{more}"
