"""Pure: reads texts as values of a type and as time zones, the way Spark's ANSI mode reads them.

A text that Spark would cut to fit, such as a date with an hour, is refused: a bound that is a little off would replace
the wrong rows. Source: Spark's SQL reference, "Datetime literals" and "Cast".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, date, datetime, time, timedelta, timezone, tzinfo
from functools import cached_property
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.expressions.types import DATE, INSTANT, LOCAL, TIME, type_name
from iceberg_ds.expressions.types import UUID as UUID_TYPE

NO_ZONE = (
    "a time without a zone is in the session's time zone, which Spark does not tell data sources: write the zone, such "
    "as '2026-11-01 12:30:00+01:00', or give option 'time-zone' as spark.conf.get(\"spark.sql.session.timeZone\")"
)

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)
_MOMENT = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?P<clock>[ T].*)?)?)?",
    re.DOTALL | re.ASCII,
)
_CLOCK = re.compile(
    r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,6}))?)?\s*(?P<zone>[A-Za-z+-].*)?", re.DOTALL | re.ASCII
)
_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}
_FLOATS = {
    "nan": math.nan,
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # compared with times without a zone
_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)
_MOST_HOURS = 18
# The characters that Spark trims. It knows only the spaces and digits of ASCII.
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
# Names of the zone without an offset in the time zone database, Java and Spark.
_UTC_NAMES = {
    *("Z", "UT", "UTC", "GMT", "UCT", "ZULU", "UNIVERSAL", "GREENWICH", "GMT0"),
    *("ETC/UTC", "ETC/GMT", "ETC/UCT", "ETC/ZULU", "ETC/UNIVERSAL", "ETC/GREENWICH", "ETC/GMT0"),
}


@dataclass(frozen=True)
class Zone:
    """A time zone.

    Attributes:
        name: As Spark writes it, such as `Europe/Paris`, `UTC` or `+02:00`.

    Raises:
        ValueError: No time zone has this name.
    """

    name: str

    def __post_init__(self) -> None:
        pc.assume_timezone(pa.array([], LOCAL), self.arrow)

    @property
    def is_fixed(self) -> bool:
        """Whether its clocks never change."""
        return not isinstance(self.rules, ZoneInfo)

    def changes_near(self, moment: datetime) -> bool:
        """Return whether clocks are changed so near to an instant that they skip times there, or show them twice."""
        if self.is_fixed or not MINYEAR < moment.year < MAXYEAR:
            return False
        before, after = (self._offset_at(moment + days) for days in (-_DAY, _DAY))
        by = abs(after - before)
        return self._offset_at(moment - by) != self._offset_at(moment + by)

    def _offset_at(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.rules).utcoffset() or timedelta(0)

    @property
    def arrow(self) -> str:
        """The name that Arrow knows."""
        if not self.is_fixed:
            return self.name
        minutes = int(self._offset.total_seconds()) // 60
        return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"

    @property
    def _offset(self) -> timedelta:
        return self.rules.utcoffset(None) or timedelta(0)

    @cached_property
    def rules(self) -> tzinfo:
        """The rules of the zone's offset from UTC."""
        if self.name.upper() in _UTC_NAMES:
            return timezone.utc
        if (match := _OFFSET.fullmatch(self.name)) is not None:
            hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
            if hours <= _MOST_HOURS and minutes < 60 and seconds == 0:  # noqa: PLR2004  # of an hour
                offset = timedelta(hours=hours, minutes=minutes)
                return timezone(-offset if match[1] == "-" else offset)
        try:
            return ZoneInfo(self.name)
        except (LookupError, ValueError, OSError) as problem:
            raise ValueError(f"there is no time zone {self.name!r}") from problem


def time_zone(text: str) -> str:
    """Return the name of a time zone, checked.

    Raises:
        ValueError: No time zone has this name.
    """
    return Zone(text.strip()).name


def is_same_zone(one: str, other: str) -> bool:
    """Return whether two names mean one time zone: the same name, or the same offset; UTC has many names."""
    try:
        return one == other or Zone(one).rules == Zone(other).rules
    except ValueError:
        return False


def parsed(text: str, to: pa.DataType, zone: Zone | None) -> pa.Scalar:
    """Return a text as a value of a type.

    Args:
        text: The text.
        to: The type.
        zone: Time zone of times without a zone, or None if unknown.

    Raises:
        ValueError: The text is no such value, says more than the type holds, or needs a zone.
    """
    trimmed = text.strip(_TRIMMED)
    try:
        return pa.scalar(_value(text, trimmed, to, zone), to)
    except (ArithmeticError, TypeError, pa.ArrowInvalid) as problem:
        raise ValueError(f"{text!r} is no {type_name(to)}") from problem


def _value(text: str, trimmed: str, to: pa.DataType, zone: Zone | None) -> Any:  # noqa: ANN401  # by type
    if to in (LOCAL, INSTANT):
        return _moment(trimmed, to, zone)
    if pa.types.is_binary(to):
        return text.encode()
    return _READERS[to](trimmed)


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise TypeError
    return int(text)


def _number(text: str) -> float:
    plain = text.lower()
    if (special := _FLOATS.get(plain)) is not None:
        return special
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[df]?", plain, re.ASCII):
        raise TypeError
    return float(plain.rstrip("df"))


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise TypeError
    return text.lower() in _TRUE


def _uuid(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError as problem:
        raise TypeError from problem


def _match(text: str) -> re.Match[str]:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise TypeError
    return match


def _day(match: re.Match[str]) -> date:
    try:
        return date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError as problem:
        raise TypeError from problem


def _date(text: str) -> date:
    match = _match(text)
    if match["clock"]:
        raise ValueError(f"{text!r} has a time, which a date has not: write the date alone, or TIMESTAMP {text!r}")
    return _day(match)


def _time(text: str) -> time:
    clock, zone = _clock(text)
    if zone:
        raise ValueError(f"{text!r} has a zone, which a time has not")
    return clock


def _clock(text: str) -> tuple[time, str]:
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise TypeError
    hour, minute, second, fraction = match.groups()[:4]
    try:
        found = time(int(hour), int(minute), int(second or 0), int((fraction or "").ljust(6, "0")))
    except ValueError as problem:
        raise TypeError from problem
    return found, (match["zone"] or "").strip()


def _moment(text: str, to: pa.DataType, zone: Zone | None) -> int:
    """Return the microseconds since the epoch of a time with or without zone."""
    match = _match(text)
    clock, own_zone = _clock(match["clock"][1:]) if match["clock"] else (time(0), "")
    found = datetime.combine(_day(match), clock)
    if to == LOCAL:
        if own_zone:
            raise ValueError(f"{text!r} has a zone, and a timestamp without zone is compared with it: leave it out")
        return (found - _EPOCH) // _MICROSECOND
    there = Zone(own_zone) if own_zone else zone
    if there is None:
        raise ValueError(NO_ZONE)
    offset = found.replace(tzinfo=there.rules).utcoffset() or timedelta(0)
    return (found - offset - _EPOCH) // _MICROSECOND


_READERS: dict[pa.DataType, Callable[[str], Any]] = {
    pa.string(): str,
    pa.int32(): _whole,
    pa.int64(): _whole,
    pa.float32(): _number,
    pa.float64(): _number,
    pa.bool_(): _truth,
    DATE: _date,
    TIME: _time,
    UUID_TYPE: _uuid,
}
