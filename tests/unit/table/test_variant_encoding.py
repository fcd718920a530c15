"""Structs, lists and maps as variants; `tests/integration/test_nested_variants.py` holds them to Spark's own bytes."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table import variant_encoding
from iceberg_ds.table.bad_values import check_column, may_be_bad
from iceberg_ds.table.variant import SPARK_VARIANT, VARIANT, is_any_variant
from iceberg_ds.table.variant_encoding import to_variants

POINT = pa.struct([("y", pa.int64()), ("x", pa.int64())])


def made(values: list[Any], kind: pa.DataType) -> list[tuple[bytes, bytes] | None]:
    """Return value and metadata of each variant."""
    found = to_variants(pa.array(values, kind), "c")
    assert found.type.equals(VARIANT, check_metadata=True)
    assert not any(found.field(part).null_count for part in range(2))
    return [None if one is None else (one["value"], one["metadata"]) for one in found.to_pylist()]


def read(values: pa.Array) -> list[Any]:
    """Return what PySpark finds in the variants."""
    found = to_variants(values, "c").to_pylist()
    return [None if one is None else VariantVal(one["value"], one["metadata"]).toPython() for one in found]


def test_object_lists_its_fields_by_name_and_names_them_as_they_are_met() -> None:
    """Readers look for a field by halves, and would miss it."""
    (one,) = made([{"y": 1, "x": 300}], POINT)

    # Header, two fields, their numbers and offsets in the order of their names, the end; then an int8 and an int16.
    assert one == (
        b"\x02\x02" + b"\x01\x00" + b"\x02\x00\x05" + b"\x0c\x01" + b"\x10\x2c\x01",
        b"\x01\x02\x00\x01\x02yx",
    )


def test_nulls_inside_are_values_and_nulls_themselves_are_none() -> None:
    """A row without the column would have one, or a field be gone."""
    found = made([{"y": None, "x": 1}, None, {"y": 2, "x": None}], POINT)

    assert found[1] is None
    assert read(pa.array([{"y": None, "x": 1}, None], POINT)) == [{"x": 1, "y": None}, None]
    assert read(pa.array([[None], [], None], pa.list_(pa.null()))) == [[None], [], None]


def test_slices_and_hidden_entries_are_not_mixed_up() -> None:
    """A row would get the values of another one."""
    kind = pa.map_(pa.string(), pa.list_(POINT))
    values = [[("k", [{"y": 1, "x": 2}])], None, [("b", None), ("a", [None, {"y": 3, "x": 4}])], []]
    expected = [{"k": [{"x": 2, "y": 1}]}, None, {"a": [None, {"x": 4, "y": 3}], "b": None}, {}]
    whole = pa.array(values, kind)

    assert read(whole) == expected
    for start in range(4):
        assert read(whole.slice(start, 2)) == expected[start : start + 2]
    assert read(whole.slice(0, 0)) == []
    entries = pa.StructArray.from_arrays([pa.array(["a", "b"]), pa.array([1, 2])], names=["key", "value"])
    hiding = pa.MapArray.from_buffers(
        pa.map_(pa.string(), pa.int64()), 2, [pa.py_buffer(b"\x02"), pa.array([0, 1, 2], pa.int32()).buffers()[1]],
        children=[entries],
    )  # fmt: skip
    assert read(hiding) == [None, {"b": 2}]


def test_sizes_beyond_a_byte_are_told() -> None:
    """Large values would be cut, or read from a wrong place."""
    many = {f"key {number}": "x" * number for number in range(700)}
    rows = pa.array([list(many.items()), [("k", "v")]], pa.map_(pa.string(), pa.string()))
    assert read(rows) == [many, {"k": "v"}]

    lists = pa.array([["x" * 70_000] * 300, ["a"]], pa.list_(pa.string()))
    assert read(lists) == [["x" * 70_000] * 300, ["a"]]


def test_variants_inside_keep_their_values() -> None:
    """Their names would be those of another variant."""
    texts = ['{"b": [1, {"c": null}], "a": "x"}', '"text"', "[]"]
    found = [VariantVal.parseJson(text) for text in texts]
    kind = pa.struct([("a", pa.int64()), pa.field("v", SPARK_VARIANT)])
    rows = [{"a": 1, "v": {"value": one.value, "metadata": one.metadata}} for one in found]

    assert read(pa.array([*rows, {"a": 2, "v": None}, None], kind)) == [
        *({"a": 1, "v": one.toPython()} for one in found),
        {"a": 2, "v": None},
        None,
    ]


def test_text_that_is_no_utf8_gets_replacement_characters() -> None:
    """Readers would fail on it, each in its own way."""
    raw = pa.array([b"a\xff", b"\xe2\x82z"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())

    assert read(pa.StructArray.from_arrays([texts], names=["t"])) == [{"t": "a\ufffd"}, {"t": "\ufffdz"}]


def test_map_with_a_key_twice_is_refused() -> None:
    """Readers would find either of the values."""
    rows = pa.array([[("a", 1), ("b", 2), ("a", 3)]], pa.map_(pa.string(), pa.int64()))

    with pytest.raises(SchemaMismatchError, match="column 'c': a map has a key twice"):
        to_variants(rows, "c")
    assert read(pa.array([[("a", 1)], [("a", 2)]], rows.type)) == [{"a": 1}, {"a": 2}]


def test_variants_are_told_from_what_becomes_one() -> None:
    """Bytes of a variant would be encoded again, or a struct be taken for a variant."""
    like = pa.struct([("value", pa.int64()), ("metadata", pa.int64())])
    assert all(map(is_any_variant, (VARIANT, SPARK_VARIANT, pa.null())))
    assert not any(map(is_any_variant, (like, POINT, pa.list_(POINT))))


def test_no_value_inside_is_bad() -> None:
    """Rows would be kept from a table that takes them."""
    field = pa.field("v", VARIANT)
    for values in (pa.array([{"value": None, "metadata": 1}]), pa.array([[1], None])):
        assert not may_be_bad(values.type, field)
        assert check_column(values, field, case_sensitive=None).bad == []
    required = check_column(pa.array([[1], None]), field.with_nullable(nullable=False), case_sensitive=None)
    assert [one.mask.to_pylist() for one in required.bad] == [[False, True]]


def test_variant_that_no_reader_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One such row would fail every query of the column, after it was committed."""
    monkeypatch.setattr(variant_encoding, "_MOST_BYTES", 1 << 20)
    texts = pa.list_(pa.string())

    assert len(made([["x" * 1_000_000]], texts)) == 1
    with pytest.raises(SchemaMismatchError, match=r"column 'c': a variant would have more than 1 MiB"):
        made([["x" * 1_000_000, "y" * 100_000]], texts)
    with pytest.raises(SchemaMismatchError, match=r"column 'c': a variant would have more than 1 MiB"):
        made([{"k" * 1_100_000: 1}], pa.map_(pa.string(), pa.int32()))


def test_variant_inside_of_hundreds_of_levels_is_refused_by_name() -> None:
    """The write would fail with an error of Python's own, which names no column."""
    deep = b"\x00"
    for _ in range(2_000):
        deep = b"\x0f\x01" + (0).to_bytes(4, "little") + len(deep).to_bytes(4, "little") + deep
    inside = pa.array([{"value": deep, "metadata": b"\x01\x00\x00"}], SPARK_VARIANT)

    with pytest.raises(SchemaMismatchError, match=r"column 'c': a variant inside has hundreds of levels"):
        to_variants(pa.ListArray.from_arrays([0, 1], inside), "c")


def test_variant_inside_that_is_damaged_is_refused_by_name() -> None:
    """The task would end with an error of Python's own, which names no column, or half a text would land."""
    kind = pa.struct([("x", pa.int16()), ("text", pa.string()), ("in", pa.list_(POINT))])
    ((value, metadata),) = made([{"x": 300, "text": "ten words", "in": [{"y": 1, "x": 2}]}], kind)

    def written(value: bytes, metadata: bytes) -> pa.Array:
        inside = pa.array([{"value": value, "metadata": metadata}], SPARK_VARIANT)
        return to_variants(pa.ListArray.from_arrays([0, 1], inside), "c")

    assert len(written(value, metadata)) == 1
    cut = [(value[:end], metadata) for end in range(1, len(value))]
    cut += [(value, metadata[:end]) for end in range(len(metadata))]
    for damaged in [*cut, (value, metadata[:-1] + b"\xff")]:
        with pytest.raises(SchemaMismatchError, match=r"column 'c': a variant inside is damaged"):
            written(*damaged)
    for place, other in itertools.product(range(len(value)), (0, 1, 2, 3, 15, 64, 127, 128, 255)):
        with contextlib.suppress(SchemaMismatchError):
            written(value[:place] + bytes([other]) + value[place + 1 :], metadata)


def test_half_of_a_pair_of_utf_16_is_one_replacement_character() -> None:
    """The bytes would be others than those of Spark."""
    raw = pa.array([b"a\xed\xa0\x80b\xff"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 1, raw.buffers())

    assert read(pa.ListArray.from_arrays([0, 1], text)) == [["a\ufffdb\ufffd"]]
