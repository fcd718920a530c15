"""Pure: the terms of options `partition-by` and `sort-by`, their texts and the columns they name.

A term names its source as text: `a.b` is field `b` of struct `a`, and backticks keep a dot inside a name. A term of
`partition-by` may name its partition field, too: `bucket(16, id) as shard`. `specs` says what the terms mean for a
table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import NestedField, StructType

from iceberg_ds.table.names import AmbiguousNameError, find_position, identifier_text

_WITHOUT_NUMBER: dict[str, Callable[[], Transform[Any, Any]]] = {
    "identity": IdentityTransform,
    **dict.fromkeys(("year", "years"), YearTransform),
    **dict.fromkeys(("month", "months"), MonthTransform),
    **dict.fromkeys(("day", "days"), DayTransform),
    **dict.fromkeys(("hour", "hours"), HourTransform),
}
_WITH_NUMBER: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}
_LARGEST_NUMBER = 2**31 - 1
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\s`,().]+)|(?P<mark>[,().])|(?P<end>\Z)|(?P<bad>.))")
_NUMBER = re.compile(r"[0-9]+")
_EXPECTED = "expected columns or transforms of them, such as day(ts), bucket(16, id), truncate(4, s), region"

_Term = TypeVar("_Term")


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One term of `partition-by`.

    Attributes:
        transform: The transform of the column's values.
        source: The column's name as the option spells it.
        name: Name of the partition field, None for the name that Iceberg gives it.
    """

    transform: Transform[Any, Any]
    source: str
    name: str | None = None

    def __str__(self) -> str:
        return self.key if self.name is None else f"{self.key} as {identifier_text((self.name,))}"

    @property
    def key(self) -> str:
        """The text without the name of the field."""
        match self.transform:
            case IdentityTransform():
                return self.source
            case BucketTransform(num_buckets=number):
                return f"bucket({number}, {self.source})"
            case TruncateTransform(width=number):
                return f"truncate({number}, {self.source})"
        return f"{self.transform}({self.source})"


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One term of `sort-by`; `source` is the column's name as the option spells it."""

    source: str
    transform: Transform[Any, Any]
    direction: SortDirection
    null_order: NullOrder

    def __str__(self) -> str:
        key = PartitionTerm(self.transform, self.source)
        return f"{key} {self.direction.value} {self.null_order.value.replace('-', ' ')}"


def parse_partition_by(text: str) -> tuple[PartitionTerm, ...]:
    """Parse the text of option `partition-by`, such as `day(ts), bucket(16, id) as shard, truncate(4, s), region`.

    A blank text describes no partitioning.

    Raises:
        ValueError: Says what is wrong, where, and what is expected.
    """
    if not text.strip():
        return ()
    terms = _separated(_Tokens(text), _named_term)
    _refuse_repeated([term.key for term in terms])
    names = [term.name for term in terms if term.name is not None]
    in_any_case = [name.lower() for name in names]
    if repeated := sorted({name for name in names if in_any_case.count(name.lower()) > 1}):
        raise ValueError(f"the name {', '.join(repeated)} is given to several partition fields, expected each once")
    return terms


def parse_sort_by(text: str) -> tuple[SortTerm, ...]:
    """Parse the text of option `sort-by`, such as `ts desc nulls last, bucket(16, id), region`.

    The default is ascending; nulls come first in ascending order, last in descending order.

    Raises:
        ValueError: Says what is wrong, where, and what is expected.
    """
    terms = _separated(_Tokens(text), _sort_term)
    _refuse_repeated([str(PartitionTerm(term.transform, term.source)) for term in terms])
    return terms


def names_z_order(text: str) -> bool:
    """Return whether a text is of the form `zorder(a, b)`, with anything in the parentheses."""
    return _begins_z_order(_Tokens(text))


def parse_z_order(text: str) -> tuple[str, ...]:
    """Parse the columns of a Z-order, such as `zorder(a, b)` or `a, b`; return their names as the text spells them.

    Raises:
        ValueError: Says what is wrong, and what is expected.
    """
    tokens = _Tokens(text if names_z_order(text) else f"zorder({text})")
    _begins_z_order(tokens)
    names = [identifier_text(_name(tokens))]
    while tokens.take_if(","):
        names.append(identifier_text(_name(tokens)))
    if not tokens.take_if(")") or tokens.peek():
        raise ValueError("a Z-order takes names of columns and stands alone, expected zorder(a, b)")
    _refuse_repeated(names)
    return tuple(names)


def _begins_z_order(tokens: _Tokens) -> bool:
    return bool(tokens.take_if("zorder") and tokens.take_if("("))


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse names of columns, such as `region, id`; backticks enclose names of more than letters and digits.

    Raises:
        ValueError: Says what is expected.
    """
    try:
        names = tuple(".".join(name) for name in _separated(_Tokens(text), _name))
    except ValueError:
        raise ValueError(
            "expected names of columns with commas between them, in backticks if there is more in them than letters "
            "and digits"
        ) from None
    if len(set(names)) < len(names):
        raise ValueError("expected each column once")
    return names


def parse_column(text: str) -> str:
    """Parse the name of one column, as `parse_columns` does.

    Raises:
        ValueError: Says what is expected.
    """
    names = parse_columns(text)
    if len(names) > 1:
        raise ValueError("expected the name of one column")
    return names[0]


def find_source(source: str, schema: Schema) -> NestedField:
    """Return the field that a term's source names, at each level by its exact name, else by the only one ignoring case.

    Raises:
        ValueError: There is no such field, or it is inside a list or map.
    """
    *above, name = _name(_Tokens(source))
    fields: Sequence[NestedField] = schema.fields
    for struct in above:
        fields = _fields_below(_child(struct, fields))
    return _child(name, fields)


def _child(name: str, fields: Sequence[NestedField]) -> NestedField:
    known = [field.name for field in fields]
    try:
        position = find_position(name, known)
    except AmbiguousNameError as ambiguous:
        raise ValueError(str(ambiguous)) from ambiguous
    if position is None:
        raise ValueError(
            f"there is no column {identifier_text((name,))} among {', '.join(identifier_text((own,)) for own in known)}"
        )
    return fields[position]


def _fields_below(field: NestedField) -> Sequence[NestedField]:
    match field.field_type:
        case StructType(fields=fields):
            return fields
    raise ValueError(
        f"column {identifier_text((field.name,))} is {field.field_type}, and only structs have fields of their own"
    )


class _Tokens:
    """The tokens of an option's text, to be taken from left to right; quoted names keep their backticks."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_TOKEN.finditer(text))
        self._position = 0

    def peek(self) -> str:
        """Return the next token, empty at the end."""
        return self._tokens[self._position].group().strip()

    def take(self) -> str:
        """Return the next token and step over it."""
        token = self.peek()
        self._position += bool(token)
        return token

    def take_if(self, *expected: str) -> str:
        """Return the next token in lower case and step over it if it is among `expected`, else return nothing."""
        return self.take().lower() if self.peek().lower() in expected else ""


def _separated(tokens: _Tokens, parse: Callable[[_Tokens], _Term]) -> tuple[_Term, ...]:
    """Return the terms of the whole text, which commas separate."""
    terms = [parse(tokens)]
    while tokens.take_if(","):
        terms.append(parse(tokens))
    if rest := tokens.peek():
        raise ValueError(f"{rest!r} after {terms[-1]} is not understood, {_EXPECTED}")
    return tuple(terms)


def _sort_term(tokens: _Tokens) -> SortTerm:
    key = _partition_term(tokens)
    direction = SortDirection(tokens.take_if("asc", "desc") or "asc")
    if not tokens.take_if("nulls"):
        is_ascending = direction is SortDirection.ASC
        return SortTerm(
            key.source, key.transform, direction, NullOrder.NULLS_FIRST if is_ascending else NullOrder.NULLS_LAST
        )
    place = tokens.take_if("first", "last")
    if not place:
        raise ValueError(f"'nulls' after {key} needs first or last behind it")
    return SortTerm(key.source, key.transform, direction, NullOrder(f"nulls-{place}"))


def _named_term(tokens: _Tokens) -> PartitionTerm:
    term = _partition_term(tokens)
    return replace(term, name=_name_part(tokens)) if tokens.take_if("as") else term


def _partition_term(tokens: _Tokens) -> PartitionTerm:
    name = _name(tokens)
    if not tokens.take_if("("):
        return PartitionTerm(IdentityTransform(), identifier_text(name))
    arguments = [_argument(tokens)]
    while tokens.take_if(","):
        arguments.append(_argument(tokens))
    if not tokens.take_if(")"):
        raise ValueError(f"the parenthesis after {identifier_text(name)} is not closed, {_EXPECTED}")
    return _transform_of(identifier_text(name), arguments)


def _transform_of(function: str, arguments: list[str | int]) -> PartitionTerm:
    sources = [argument for argument in arguments if isinstance(argument, str)]
    numbers = [argument for argument in arguments if isinstance(argument, int)]
    with_number, without_number = _WITH_NUMBER.get(function.lower()), _WITHOUT_NUMBER.get(function.lower())
    if with_number is None and without_number is None:
        raise ValueError(f"{function} is not a transform: use {', '.join([*_WITHOUT_NUMBER, *_WITH_NUMBER])}")
    if without_number is not None and len(sources) == 1 and not numbers:
        return PartitionTerm(without_number(), sources[0])
    if with_number is not None and len(sources) == 1 and len(numbers) == 1:
        if not 0 < numbers[0] <= _LARGEST_NUMBER:
            raise ValueError(f"the number of {function} is {numbers[0]}, expected 1 to {_LARGEST_NUMBER}")
        return PartitionTerm(with_number(numbers[0]), sources[0])
    raise ValueError(f"{function} takes one column{' and one number' if with_number else ''}, {_EXPECTED}")


def _argument(tokens: _Tokens) -> str | int:
    if _NUMBER.fullmatch(tokens.peek()):
        return int(tokens.take())
    return identifier_text(_name(tokens))


def _name(tokens: _Tokens) -> tuple[str, ...]:
    parts = [_name_part(tokens)]
    while tokens.take_if("."):
        parts.append(_name_part(tokens))
    return tuple(parts)


def _name_part(tokens: _Tokens) -> str:
    token = tokens.take()
    if token[:1] == "`" and len(token) > len("``"):
        return token[1:-1].replace("``", "`")
    if token in ("", "`", *",()."):
        raise ValueError(f"{repr(token) if token else 'the end'} stands where a column is needed, {_EXPECTED}")
    if _NUMBER.fullmatch(token):
        raise ValueError(f"{token} is a number where a column is needed: put a column's name in backticks")
    return token


def _refuse_repeated(texts: Sequence[str]) -> None:
    repeated = sorted({text for text in texts if texts.count(text) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} is given more than once, expected each term once")
