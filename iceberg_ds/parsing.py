"""Pure: texts of options and of tables' properties, read as values.

A parser of an option returns the value, or raises ValueError with what it expects. A table property that cannot be
parsed counts as not set, and fails no commit, unless it decides what is deleted. Whole numbers are in digits of ASCII,
without anything between or around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TypeVar
from urllib.parse import quote

from iceberg_ds.errors import UnsupportedTableError

_Word = TypeVar("_Word", bound=str)

# In the template of a table's name: where the value goes that names the table.
VALUE = "{value}"
_HIGHEST_LONG = 2**63 - 1
_LONGEST_WRITER_NAME = 160
_SCHEME = re.compile("[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FRACTION = re.compile(r"\.(\d+)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DELETE_ENCODINGS = ("auto", "equality", "position", "deletion-vector", "copy-on-write")


def boolean(text: str) -> bool:
    """Return true or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def positive_integer(text: str) -> int:
    """Return a whole number above 0."""
    if (number := _whole(text)) is None or number == 0:
        raise ValueError("expected a whole number above 0")
    return number


def count(text: str) -> int:
    """Return a whole number, 0 or more."""
    if (number := _whole(text)) is None:
        raise ValueError("expected a whole number, 0 or more")
    return number


def count_or_share(text: str) -> int | Decimal:
    """Return a whole number, 0 or more, as an `int`, or a share such as `1%` as a `Decimal` from 0 to 1, exactly."""
    expected = "expected a whole number, 0 or more, or a share from 0% to 100%, such as 1%"
    try:
        if not text.endswith("%"):
            return count(text)
        share = Decimal(text.removesuffix("%")) / 100
        is_share = 0 <= share <= 1
    except (ValueError, ArithmeticError):  # NaN is in no order
        is_share = False
    if not is_share:
        raise ValueError(expected)
    return share


def integer(text: str) -> int:
    """Return a whole number, which may be negative."""
    if (number := _whole(text.removeprefix("-"))) is None:
        raise ValueError("expected a whole number")
    return -number if text.startswith("-") else number


def version(text: str) -> int:
    """Return a whole number, 0 or more, that fits into a signed 64-bit integer."""
    if (number := _whole(text)) is None:
        raise ValueError(f"expected a whole number from 0 to {_HIGHEST_LONG}")
    return number


def one_of(*allowed: _Word) -> Callable[[str], _Word]:
    """Return the parser that takes one of these words, in any case."""

    def parse(text: str) -> _Word:
        if (found := next((word for word in allowed if word == text.lower()), None)) is None:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return found

    return parse


def name(text: str) -> str:
    """Return a name that is not blank."""
    if not text.strip():
        raise ValueError("expected a name")
    return text


def writer_name(text: str) -> str:
    """Return a name that becomes part of a table property's name, which Hive's Metastore limits to 256 characters."""
    if len(quote(name(text), safe="").replace(".", "%2E")) > _LONGEST_WRITER_NAME:
        raise ValueError(
            f"expected a name of at most {_LONGEST_WRITER_NAME} characters, where one that is no letter or digit of "
            "ASCII counts 3 for each of its bytes"
        )
    return text


def template(text: str) -> str:
    """Return a text that holds `{value}`.

    Raises:
        ValueError: It does not.
    """
    if VALUE not in text:
        raise ValueError(f"expected {VALUE} where the value goes, such as raw_{VALUE}")
    return text


def location(text: str) -> str:
    """Return a location without a slash at its end; refuse one that depends on a working directory."""
    if not text.strip("/ ") or not (_SCHEME.match(text) or text.startswith(("/", "file:/"))):
        raise ValueError("expected a location, such as s3://bucket/events")
    return text.rstrip("/")


def always_checked(text: str) -> bool:
    """Return true; nothing else is allowed."""
    if not boolean(text):
        raise ValueError("a null in a required column would break the table for readers, so rows are always checked")
    return True


def names_among(*known: str) -> Callable[[str], tuple[str, ...]]:
    """Return the parser that takes some of these names, in any case, with commas between them."""

    def parse(text: str) -> tuple[str, ...]:
        given = tuple(word.strip().lower() for word in text.split(","))
        if unknown := [word for word in given if word not in known]:
            raise ValueError(f"{', '.join(map(repr, unknown))} not known: expected some of {', '.join(known)}")
        if len(set(given)) < len(given):
            raise ValueError("expected each name once")
        return given

    return parse


def names(text: str) -> tuple[str, ...]:
    """Return names, with commas between them."""
    given = tuple(word.strip() for word in text.split(","))
    if not all(given) or len(set(given)) < len(given):
        raise ValueError("expected names with commas between them, each once")
    return given


def delete_encoding(text: str) -> str:
    """Return how old rows are taken away."""
    word = text.lower()
    if word not in _DELETE_ENCODINGS:
        raise ValueError(f"expected one of {', '.join(_DELETE_ENCODINGS)}")
    return word


def whole_number(properties: Mapping[str, str], name: str, otherwise: int, *, most: int = _HIGHEST_LONG) -> int:
    """Return the whole number, 0 or more, that a table's property holds, or `otherwise` if it holds none up to `most`.

    Iceberg's properties are integers of 32 or of 64 bits.
    """
    number = _whole(properties.get(name, ""))
    return otherwise if number is None or number > most else number


def deciding_number(properties: Mapping[str, str], name: str, otherwise: int) -> int:
    """Return the whole number of a table's property that decides what is deleted, or `otherwise` if it is not set.

    Raises:
        UnsupportedTableError: It is no whole number from 0 to 2^63 - 1: what the table is to keep is not known.
    """
    number = _whole(properties.get(name, str(otherwise)).strip())
    if number is None:
        raise UnsupportedTableError(
            f"table property {name} is {properties[name]!r}, which is no whole number from 0 to {_HIGHEST_LONG}: set "
            "it to one, or remove it"
        )
    return number


def _whole(text: str) -> int | None:
    """Return a whole number, 0 or more, that fits into a signed 64-bit integer, or None."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    # Python refuses to read thousands of digits.
    return None if len(digits) > len(str(_HIGHEST_LONG)) or int(digits) > _HIGHEST_LONG else int(digits)


def moment(text: str) -> datetime | None:
    """Return a time such as `2026-11-21T12:00:00Z` (ISO 8601), or None if it is none, or has no time zone."""
    # Python 3.10 knows no `Z`, and fractions of a second of 3 or of 6 digits alone.
    zoned = re.sub("[Zz]$", "+00:00", text.strip())
    with suppress(ValueError):
        found = datetime.fromisoformat(_FRACTION.sub(lambda digits: f".{digits[1][:6]:0<6}", zoned))
        return None if found.tzinfo is None else found
    return None


def milliseconds(moment: datetime) -> int:
    """Return a time with a time zone in whole milliseconds since the Unix epoch."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
