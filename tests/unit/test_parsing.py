"""Texts as values: whole numbers in digits alone, times with a zone, properties that decide what is deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds import parsing
from iceberg_ds.errors import UnsupportedTableError

_HIGHEST_LONG = 2**63 - 1
ODD = ["", " 5", "5 ", "+5", "1_000", "\u0663", "\uff11\uff12", "5.0", "--5", "9" * 5000, str(2**63)]
NUMBERS: list[Callable[[str], int]] = [parsing.integer, parsing.count, parsing.positive_integer, parsing.version]


@pytest.mark.parametrize("parse", NUMBERS)
@pytest.mark.parametrize("text", ODD)
def test_whole_number_is_in_digits_alone(parse: Callable[[str], int], text: str) -> None:
    """One option would take what another one refuses, or Python's own limit be told."""
    with pytest.raises(ValueError, match=r"^expected a whole number"):
        parse(text)


@pytest.mark.parametrize("parse", NUMBERS)
@given(number=st.integers(1, _HIGHEST_LONG))
def test_whole_numbers_are_read(parse: Callable[[str], int], number: int) -> None:
    """A number that is right would be refused."""
    assert parse(str(number)) == number
    assert parse(f"00{number}") == number


def test_signs_and_zero_are_for_those_that_take_them() -> None:
    """A snapshot's id, or a level of compression, may be negative; a number of files may not."""
    assert parsing.integer("-5") == -5
    assert parsing.count("0") == parsing.version("0") == parsing.integer("-0") == 0
    for parse in (parsing.count, parsing.positive_integer, parsing.version):
        with pytest.raises(ValueError, match="expected"):
            parse("-5")
    with pytest.raises(ValueError, match="above 0"):
        parsing.positive_integer("0")


@pytest.mark.parametrize("text", ["", "5d", "+5", "1_000", "-1", "9" * 30])
def test_property_that_decides_what_is_deleted_is_never_guessed(text: str) -> None:
    """History would be deleted by the default, though the table says that it is to be kept."""
    with pytest.raises(UnsupportedTableError, match=r"table property p is '.*', which is no whole number from 0 to"):
        parsing.deciding_number({"p": text}, "p", 7)


def test_property_that_decides_may_have_spaces_around_it_or_be_missing() -> None:
    """Iceberg's runtime writes what it is given, and takes it so."""
    assert parsing.deciding_number({"p": " 5 "}, "p", 7) == 5
    assert parsing.deciding_number({}, "p", 7) == 7


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2026-11-21T12:00:00Z", 0),
        ("2026-11-21T12:00:00z", 0),
        ("2026-11-21 12:00:00+00:00", 0),
        ("2026-11-21T13:30:00+01:30", 0),
        ("2026-11-21T12:00:00.5+00:00", 500),
        ("2026-11-21T12:00:00.123456789Z", 123),
        (" 2026-11-21T12:00:00.25Z ", 250),
    ],
)
def test_time_is_read_alike_by_every_python(text: str, milliseconds: int) -> None:
    """The time that an error names as an example would be refused by Python 3.10."""
    found = parsing.moment(text)

    assert found is not None
    assert parsing.milliseconds(found) == 1_795_262_400_000 + milliseconds


@pytest.mark.parametrize("text", ["", "soon", "2026-11-21", "2026-11-21T12:00:00", "2026-13-21T12:00:00Z", "12"])
def test_time_without_a_zone_is_none(text: str) -> None:
    """Another snapshot would be read where another clock is set."""
    assert parsing.moment(text) is None


@given(at=st.datetimes(timezones=st.just(timezone.utc)))
def test_milliseconds_are_those_before_a_time(at: datetime) -> None:
    """A snapshot of the same millisecond would be passed over, or one of the next be read."""
    found = timedelta(milliseconds=parsing.milliseconds(at))

    assert timedelta(0) <= at - datetime(1970, 1, 1, tzinfo=timezone.utc) - found < timedelta(milliseconds=1)
