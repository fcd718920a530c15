"""Values that are read as what the table holds, or refused with the column's name and an example."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.arrow_schema import cast_values

ID = uuid.UUID("0b9f2c1e-1111-4222-8333-4444AABBccdd")
TEXTS = [str(ID), str(ID).upper(), ID.hex, ID.hex.upper()]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string()], ids=str)
def test_text_becomes_a_uuid(text: str, data_type: pa.DataType) -> None:
    """A uuid column could not be written from Spark, which has no such type."""
    result = cast_values(pa.array([None, text, None, str(uuid.UUID(int=0))], data_type), pa.uuid(), "u")

    result.validate(full=True)
    assert result.type == pa.uuid()
    assert result.to_pylist() == [None, ID, None, uuid.UUID(int=0)]


@pytest.mark.parametrize("texts", [[], [None], [None, None]])
def test_column_without_any_uuid_is_taken(texts: list[str | None]) -> None:
    """A task would fail on a batch of nulls."""
    assert cast_values(pa.array(texts, pa.string()), pa.uuid(), "u").to_pylist() == texts


@pytest.mark.parametrize("rows", [slice(0, 2), slice(1, 3), slice(2, 5), slice(5, 5)])
def test_slice_of_texts_becomes_its_own_uuids(rows: slice) -> None:
    """Rows would get the uuids of other rows."""
    known = [uuid.UUID(int=number) if number % 3 else None for number in range(5)]
    texts = pa.array([None if value is None else str(value) for value in known])

    assert cast_values(texts[rows.start : rows.stop], pa.uuid(), "u").to_pylist() == known[rows]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        f" {ID}",
        f"{ID}\n",
        str(ID)[:-1],
        f"{ID.hex[:31]}g",
        f"-{ID.hex}",
        "é" * 16,
    ],
)
def test_text_that_is_no_uuid_is_refused_with_an_example(text: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    texts = pa.array([str(ID), text, None, text])

    with pytest.raises(
        SchemaMismatchError, match=r"into column 's\.u': 2 of 4 values are no UUID, for example "
    ) as raised:
        cast_values(texts, pa.uuid(), "s.u")

    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:00", dt.time()),
        ("23:59", dt.time(23, 59)),
        ("12:34:56", dt.time(12, 34, 56)),
        ("12:34:56.5", dt.time(12, 34, 56, 500_000)),
        ("12:34:56.000001", dt.time(12, 34, 56, 1)),
        ("23:59:59.999999", dt.time(23, 59, 59, 999_999)),
    ],
)
@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string()], ids=str)
def test_text_becomes_a_time(text: str, expected: dt.time, data_type: pa.DataType) -> None:
    """A time column could not be written from a Spark without such a type."""
    result = cast_values(pa.array([text, None], data_type), pa.time64("us"), "t")

    assert result.type == pa.time64("us")
    assert result.to_pylist() == [expected, None]


@pytest.mark.parametrize(
    "text", ["", "24:00", "12:60", "12:00:60", "1:00", "12:00:00.1234567", "12:00:00.", "12:00Z", "T12:00", "12:00 "]
)
def test_text_that_is_no_time_is_refused_with_an_example(text: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    with pytest.raises(SchemaMismatchError, match=r"into column 't': 1 of 2 values are no time") as raised:
        cast_values(pa.array([text, "12:00"]), pa.time64("us"), "t")

    assert repr(text) in str(raised.value)


def test_nanoseconds_of_sparks_times_become_microseconds() -> None:
    """Times would be a thousand times what they are."""
    values = pa.array([0, 86_399_999_999_000, None], pa.int64()).view(pa.time64("ns"))

    result = cast_values(values, pa.time64("us"), "t")

    assert result.to_pylist() == [dt.time(), dt.time(23, 59, 59, 999_999), None]


@pytest.mark.parametrize("data_type", [pa.binary(), pa.large_binary()], ids=str)
def test_bytes_of_the_right_length_become_uuid_and_fixed(data_type: pa.DataType) -> None:
    """A uuid or fixed column could not be written from Spark, which has no such type."""
    values = pa.array([ID.bytes, None], data_type)

    assert cast_values(values, pa.uuid(), "c").to_pylist() == [ID, None]
    assert cast_values(values, pa.binary(16), "c").to_pylist() == [ID.bytes, None]


@pytest.mark.parametrize("target", [pa.uuid(), pa.binary(16)], ids=str)
@pytest.mark.parametrize("length", [0, 15, 17, 1000])
def test_bytes_of_another_length_are_refused_with_an_example(target: pa.DataType, length: int) -> None:
    """Values would be cut or filled silently, or the task would fail with a riddle."""
    values = pa.array([ID.bytes, b"\x07" * length, None])

    with pytest.raises(
        SchemaMismatchError, match=r"column 'c': 1 of 3 values are not 16 bytes long, for example b'"
    ) as raised:
        cast_values(values, target, "c")

    assert len(str(raised.value)) < 300


def test_text_that_is_no_utf8_is_refused_as_any_other() -> None:
    """The error about a value would itself fail."""
    broken = pa.array([b"\xff\xfe"]).view(pa.string())

    with pytest.raises(SchemaMismatchError, match="1 of 1 values are no UUID"):
        cast_values(broken, pa.uuid(), "u")
