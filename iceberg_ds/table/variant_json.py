"""Pure: a variant as JSON text, in UTC.

Printed as Spark's JVM prints it, of any depth and any year, and with bytes that are no UTF-8 as they are; large and
small floats as `flat_json` has them. Spark prints neither times nor nanoseconds: here they are ISO's. PySpark's own
printer knows no year but those of Python's dates, and no more levels than Python's stack has. Sources: Parquet spec,
"Variant Binary Encoding"; Spark's `Variant.toJson`.
"""

from __future__ import annotations

import binascii
import decimal
import re
import struct
import uuid
from collections.abc import Callable

import pyarrow as pa

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.table.flat_json import ESCAPES, flat_json, iso_date, iso_time, iso_timestamp
from iceberg_ds.table.variant import ARRAY, OBJECT, SHORT_TEXT, names_in, parts_at, size_at

_MUST_BE_ESCAPED = re.compile(rb'["\\\x00-\x1f]')
# More than a decimal has; Python's own 28 round longer ones.
_DECIMALS = decimal.Context(prec=60)


def variant_json(value: bytes, metadata: bytes) -> bytes:
    """Return the text of a variant, in UTF-8 unless its own texts are not.

    Raises:
        UnsupportedTableError: The bytes are no variant, or of a type that came later.
    """
    try:
        return b"".join(_pieces(value, [_text(name) for name in names_in(metadata)]))
    except (IndexError, KeyError, struct.error, decimal.DecimalException) as error:
        raise UnsupportedTableError(
            f"Cannot write a variant as JSON: its bytes are damaged, or of a type that is not known here ({error!r}). "
            "Filter the row, or write the variant into a column of type variant, which keeps its bytes."
        ) from error


def _pieces(value: bytes, names: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    left: list[bytes | int] = [0]  # text, or where a value begins; the next one last
    while left:
        one = left.pop()
        if isinstance(one, bytes):
            found.append(one)
        elif value[one] & 3 in (OBJECT, ARRAY):
            left += reversed(_inside(value, one, names))
        else:
            found.append(_flat(value, one))
    return found


def _inside(value: bytes, at: int, names: list[bytes]) -> list[bytes | int]:
    """Return an object or array as text, and the places of the values between."""
    ids, places = parts_at(value, at)
    found: list[bytes | int] = []
    for number, place in enumerate(places):
        found.append(b"," if number else b"")
        found += [names[ids[number]], b":", place] if ids else [place]
    begin, end = (b"{", b"}") if value[at] & 3 == OBJECT else (b"[", b"]")
    return [begin, *found, end]


def _flat(value: bytes, at: int) -> bytes:
    end = at + size_at(value, at)
    if end > len(value):
        raise IndexError(end)
    if value[at] & 3 == SHORT_TEXT:
        return _text(value[at + 1 : end])
    info = value[at] >> 2
    return _SIZED[info](value[at + 5 : end]) if info in _SIZED else _FLAT[info](value[at + 1 : end]).encode()


def _text(raw: bytes) -> bytes:
    return b'"' + _MUST_BE_ESCAPED.sub(lambda found: ESCAPES[found[0].decode()].encode(), raw) + b'"'


def _base64(raw: bytes) -> bytes:
    return b'"' + binascii.b2a_base64(raw, newline=False) + b'"'


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little", signed=True)


def _integer(raw: bytes) -> str:
    return str(_number(raw))


def _decimal(raw: bytes) -> str:
    found = decimal.Decimal(_number(raw[1:])).scaleb(-raw[0], context=_DECIMALS)
    return format(found.normalize(_DECIMALS), "f")


def _double(raw: bytes) -> str:
    return _float(struct.unpack("<d", raw)[0], pa.float64())


def _single(raw: bytes) -> str:
    return _float(struct.unpack("<f", raw)[0], pa.float32())


def _float(found: float, kind: pa.DataType) -> str:
    return str(flat_json(pa.array([found], kind))[0].as_py())


def _date(raw: bytes) -> str:
    return f'"{iso_date(_number(raw))}"'


def _time(raw: bytes) -> str:
    return f'"{_short(iso_time(_number(raw) * 1000, 9))}"'


def _timestamp(zone: str, nanoseconds: int) -> Callable[[bytes], str]:
    """Return how a timestamp with such a suffix is shown, whose unit has so many nanoseconds."""

    def shown(raw: bytes) -> str:
        return f'"{_short(iso_timestamp(_number(raw) * nanoseconds, " ", 9))}{zone}"'

    return shown


def _short(time: str) -> str:
    return time.rstrip("0").rstrip(".")


# How flat values are shown, by their type.
_FLAT: dict[int, Callable[[bytes], str]] = {
    0: lambda _: "null",
    1: lambda _: "true",
    2: lambda _: "false",
    **dict.fromkeys(range(3, 7), _integer),
    7: _double,
    **dict.fromkeys(range(8, 11), _decimal),
    11: _date,
    12: _timestamp("+00:00", 1000),
    13: _timestamp("", 1000),
    14: _single,
    17: _time,
    18: _timestamp("+00:00", 1),
    19: _timestamp("", 1),
    20: lambda raw: f'"{uuid.UUID(bytes=raw)}"',
}
# Those that say how many bytes they have.
_SIZED: dict[int, Callable[[bytes], bytes]] = {15: _base64, 16: _text}
