"""Every pair of types that is cast: what lands is exactly what was sent, and nothing that fits is refused."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.table.casts import cast_rows, is_castable

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
FLOATS = [pa.float32(), pa.float64()]
WHOLE_ABOVE = {pa.float32(): 2**24, pa.float64(): 2**53}
BITS: dict[pa.DataType, tuple[str, str, Literal[32, 64]]] = {
    pa.float32(): ("<I", "<f", 32),
    pa.float64(): ("<Q", "<d", 64),
}
IS_DECIMAL = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
IS_FLOAT = re.compile(rf"{IS_DECIMAL.pattern}|-?(?i:nan|inf|infinity)")
IS_INTEGER = re.compile(r"-?[0-9]+")


@st.composite
def decimal_types(draw: st.DrawFn) -> pa.DataType:
    """Return a decimal type of any precision and scale, more often one of the longest."""
    precision = draw(st.one_of(st.just(38), st.integers(1, 38)))
    return pa.decimal128(precision, draw(st.one_of(st.just(precision), st.just(0), st.integers(0, precision))))


NUMBERS = st.one_of(st.sampled_from([*INTEGERS, *FLOATS]), decimal_types())
TARGETS = st.one_of(st.sampled_from([pa.int32(), pa.int64(), *FLOATS]), decimal_types())


def units_near(precision: int) -> st.SearchStrategy[int]:
    """Return whole numbers of up to so many digits, many of them near powers of two and of ten."""
    most = 10**precision - 1
    near = [2**power + by for power in range(128) for by in (-1, 0, 1)]
    near += [10**power + by for power in range(precision + 1) for by in (-1, 0, 1)]
    signs = st.sampled_from([-1, 1])
    some = st.sampled_from([number for number in near if 0 <= number <= most])
    # Short numbers with zeros behind fit where long ones do not.
    short = st.builds(lambda digits, zeros: min(digits * 10**zeros, most), st.integers(0, 9999), st.integers(0, 37))
    return st.builds(lambda sign, number: sign * number, signs, st.one_of(some, short, st.integers(0, most)))


def floats_of(data_type: pa.DataType) -> st.SearchStrategy[float]:
    """Return floats of a type: of any bits, whole ones, and short decimal fractions."""
    of_number, of_float, width = BITS[data_type]
    any_bits = st.integers(0, 2**width - 1).map(lambda bits: struct.unpack(of_float, struct.pack(of_number, bits))[0])
    near = st.builds(
        lambda power, by, sign: sign * as_float(data_type, 2.0**power + by),
        st.integers(-30, 100),
        st.sampled_from([-1, -0.5, 0, 0.5, 1]),
        st.sampled_from([-1, 1]),
    )
    short = st.builds(
        lambda units, scale: as_float(data_type, float(Decimal(units).scaleb(-scale))),
        st.integers(-(10**7), 10**7),
        st.integers(0, 10),
    )
    return st.one_of(any_bits, near, short, st.floats(width=width))


def as_float(data_type: pa.DataType, number: float) -> float:
    """Return the nearest float of a type."""
    return float(pa.array([number], pa.float64()).cast(data_type)[0].as_py())


def values_of(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Return values of a type of numbers, many of them near its limits."""
    if pa.types.is_integer(data_type):
        half = 2 ** (data_type.bit_width - 1)
        return units_near(19).filter(lambda number: -half <= number < half) | st.integers(-half, half - 1)
    if pa.types.is_floating(data_type):
        return floats_of(data_type)
    return units_near(data_type.precision).map(lambda units: exactly(units, data_type.scale))


def exactly(units: int, scale: int) -> Decimal:
    """Return units of a scale as a decimal."""
    return Decimal(f"{units}e-{scale}")


def nearest(number: Fraction, data_type: pa.DataType) -> float | None:
    """Return the float nearest to a number, computed from its definition; None beyond the largest."""
    if data_type == pa.float64():
        try:
            return number.numerator / number.denominator  # Python divides correctly rounded
        except OverflowError:
            return None
    if not number:
        return 0.0
    exponent = number.numerator.bit_length() - number.denominator.bit_length() - 23
    for unit in (exponent - 1, exponent, exponent + 1):  # the bits say it to one
        rounded = round(number / Fraction(2) ** max(unit, -149))  # half to even
        if abs(rounded) <= 2**24:
            found = rounded * Fraction(2) ** max(unit, -149)
            return float(found) if abs(found) < 2**128 else None
    raise AssertionError(number)


def decimal_of(value: float, source: pa.DataType, target: pa.DataType) -> Decimal | None:
    """Return the decimal that a float is: its exact value if it is large, and so whole, else its shortest text."""
    if not math.isfinite(value):
        return None
    text = str(int(value)) if abs(value) >= WHOLE_ABOVE[source] else shortest(value, source)
    return fitting(Fraction(text), target)


def shortest(value: float, source: pa.DataType) -> str:
    """Return the text with the fewest digits that names a float."""
    if source == pa.float64():
        return repr(value)
    return next(text for digits in range(1, 10) if as_float(source, float(text := f"{value:.{digits}g}")) == value)


def fitting(number: Fraction, target: pa.DataType) -> Decimal | None:
    """Return a number as a decimal of a type, or None if it has none that is equal."""
    units = number * 10**target.scale
    fits = units.denominator == 1 and abs(units) < 10**target.precision
    return exactly(int(units), target.scale) if fits else None


def expected_of(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """Return the same value in another type of numbers, or None if the type has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return value if pa.types.is_floating(target) else None
    if pa.types.is_floating(source) and pa.types.is_decimal(target):
        return decimal_of(value, source, target)
    exact = Fraction(value)
    if pa.types.is_decimal(target):
        return fitting(exact, target)
    if pa.types.is_integer(target):
        half = 2 ** (target.bit_width - 1)
        return int(exact) if exact.denominator == 1 and -half <= exact < half else None
    found = nearest(exact, target)
    if found is None or Fraction(found) == exact:
        return found
    is_text = pa.types.is_decimal(source) and decimal_of(found, target, source) == value
    return found if is_text else None


def check(values: list[Any], source: pa.DataType, target: pa.DataType, expected: Callable[[Any], Any]) -> None:
    """Cast values, and compare what lands, and what is told to be bad, with what is expected of each."""
    # Casts see parts of larger columns, with other values before and behind, and nulls.
    whole = pa.array([None, *values, None, *values[:1]], source)

    cast = cast_rows(whole.slice(1, len(values) + 1), target)

    want = [expected(value) for value in values]
    is_bad = [False] * (len(values) + 1) if cast.is_bad is None else cast.is_bad.to_pylist()
    assert cast.values.type == target
    for value, found, bad, right in zip([*values, None], cast.values.to_pylist(), is_bad, [*want, None], strict=True):
        assert bad == (value is not None and right is None), (value, found, right)
        assert found == right or (found != found and right != right), (value, found, right)  # noqa: PLR0124  # NaN


@given(st.data(), NUMBERS, TARGETS)
def test_number_lands_exactly_or_is_told(data: st.DataObject, source: pa.DataType, target: pa.DataType) -> None:
    """A wrong number would land without a word, or a row would be refused that can be written."""
    if not is_castable(source, target):
        return
    values = data.draw(st.lists(values_of(source), min_size=1, max_size=20))

    check(values, source, target, lambda value: expected_of(value, source, target))


@st.composite
def numeric_texts(draw: st.DrawFn) -> str:
    """Return text of a number, often with an exponent, a sign, or something that makes it none."""
    digits = draw(st.one_of(st.integers(0, 10**6), st.integers(0, 10**60), units_near(40).map(abs)).map(str))
    digits = "0" * draw(st.sampled_from([0, 0, 0, 1, 30])) + digits
    at = draw(st.one_of(st.none(), st.integers(0, len(digits))))
    text = digits if at is None else f"{digits[:at]}.{digits[at:]}"
    exponent = draw(st.one_of(st.none(), st.none(), st.integers(-60, 60), st.sampled_from([-(10**30), 400, 10**30])))
    if exponent is not None:
        text += draw(st.sampled_from(["e", "E"])) + draw(st.sampled_from(["", "0"] if exponent < 0 else ["", "+"]))
        text = text + str(exponent) if not text.endswith("0") or exponent >= 0 else f"{text[:-1]}{exponent}"
    text = draw(st.sampled_from(["", "", "", "-", "+", " "])) + text
    return text + draw(st.sampled_from(["", "", "", "", "", " ", "_0", "f", "\n"]))


TEXTS = st.one_of(
    numeric_texts(),
    st.sampled_from(["", "-", ".", "e5", "1e", "nan", "-NaN", "inf", "-Infinity", "0x1F", "1_000", "٣", "1,5", "--1"]),
)


def expected_of_text(text: str, target: pa.DataType) -> Any:
    """Return the number of type `target` that a text is, or None if it is none."""
    if pa.types.is_integer(target):
        return expected_of(int(text), pa.int64(), target) if IS_INTEGER.fullmatch(text) else None
    if not (IS_DECIMAL if pa.types.is_decimal(target) else IS_FLOAT).fullmatch(text):
        return None
    if not IS_DECIMAL.fullmatch(text):
        return float(text)
    number, _, exponent = text.lower().partition("e")
    if not int(number.replace(".", "").replace("-", "")):
        return Decimal(0) if pa.types.is_decimal(target) else 0.0
    if abs(int(exponent or 0)) > 10**6:
        return None
    exact = Fraction(number.removesuffix(".")) * Fraction(10) ** int(exponent or 0)
    found = fitting(exact, target) if pa.types.is_decimal(target) else nearest(exact, target)
    is_same = not IS_INTEGER.fullmatch(text) or (found is not None and Fraction(found) == exact)
    return (found or None) if is_same else None


@given(st.lists(TEXTS, min_size=1, max_size=20), TARGETS)
def test_text_lands_as_the_number_that_it_is(texts: list[str], target: pa.DataType) -> None:
    """The digits of a number would land wrapped around, or a number that fits would be refused."""
    check(texts, pa.string(), target, lambda text: expected_of_text(text, target))


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_days_land_as_midnights(days: list[int]) -> None:
    """A day far away would land as one near."""
    dates, local = pa.array(days, pa.int32()).cast(pa.date32()), pa.timestamp("us")

    cast = cast_rows(dates, local)

    fits = [-(2**63) <= day * 86_400_000_000 < 2**63 for day in days]
    want = [day * 86_400_000_000 if fit else None for day, fit in zip(days, fits, strict=True)]
    assert cast.values.cast(pa.int64()).to_pylist() == want
    assert all(fits) if cast.is_bad is None else [not bad for bad in cast.is_bad.to_pylist()] == fits


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**7), 10**7).map(lambda day: day * 86_400_000_000)))
def test_times_land_as_days_if_they_are_midnights(times: list[int]) -> None:
    """A time of a day would be lost."""
    cast = cast_rows(pa.array(times, pa.int64()).cast(pa.timestamp("us")), pa.date32())

    want = [time // 86_400_000_000 if time % 86_400_000_000 == 0 else None for time in times]
    assert cast.values.cast(pa.int32()).to_pylist() == want
    assert None not in want if cast.is_bad is None else cast.is_bad.to_pylist() == [one is None for one in want]
