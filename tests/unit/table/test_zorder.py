"""The Z-order of rows: each column's words sort as its values do, and all columns count alike."""

from __future__ import annotations

import decimal
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from support.tables.ordered_values import VALUES, comparable, plain

from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.zorder import Range, ZOrder, ZRowOrder, ordered_words, z_order_columns
from iceberg_ds.writers import spill
from iceberg_ds.writers.spill import ExternalSort

KINDS = {**VALUES, "wide decimal": (ice.DecimalType(38, 2), st.integers(-(10**38) + 1, 10**38 - 1))}
MOST = 2**31 - 1
INTS = Schema(*(NestedField(number, name, ice.LongType()) for number, name in enumerate("abc", start=1)))


def arrow(name: str, values: list[Any]) -> pa.Array:
    """Return values of a type as a file's column has them."""
    kind, _ = KINDS[name]
    shape = file_shape(Schema(NestedField(1, "c", kind))).schema
    if name == "wide decimal":
        values = [
            None if value is None else decimal.Decimal(value).scaleb(-2, decimal.Context(prec=40)) for value in values
        ]
    return pa.RecordBatch.from_pylist([plain({"c": value}) for value in values], schema=shape).column(0)


def words_of(name: str, values: list[Any], length: int = 8) -> list[tuple[int, ...]]:
    """Return the words of each value."""
    columns = ordered_words(arrow(name, values), length)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def z_values(order: ZRowOrder, rows: pa.RecordBatch) -> list[tuple[int, ...]]:
    """Return the key of each row."""
    return list(zip(*(column.to_pylist() for column in order.keys(rows).columns), strict=True))


def order_of(*field_ids: int, length: int = 8, most: int = MOST) -> ZOrder:
    """Return the Z-order of these columns."""
    return ZOrder(field_ids=field_ids, var_length_contribution=length, max_output_size=most)


def numbers(**columns: list[int | None]) -> pa.RecordBatch:
    """Return rows of `INTS`."""
    return pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, pa.int64()) for name in columns]))


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_words_sort_as_values_do(name: str, data: st.DataObject) -> None:
    """Files would overlap by a column that readers skip files by."""
    values = data.draw(st.lists(KINDS[name][1], min_size=2, max_size=12))

    words = words_of(name, values)

    for (left, its), (right, others) in itertools.combinations(zip(values, words, strict=True), 2):
        low, high = comparable(left), comparable(right)
        if name in {"string", "binary"}:
            low, high = low[:8].ljust(8, b"\0"), high[:8].ljust(8, b"\0")
        if name in {"fixed", "uuid"}:
            low, high = plain({"v": left})["v"][:8], plain({"v": right})["v"][:8]
        assert ((low > high) - (low < high)) == ((its > others) - (its < others))


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_null_comes_before_all_values(name: str, data: st.DataObject) -> None:
    """Rows with nulls would be spread over all files."""
    value = data.draw(KINDS[name][1])

    null, its = words_of(name, [None, value])

    assert null <= its


@given(length=st.integers(1, 20), texts=st.lists(st.binary(max_size=24), min_size=2, max_size=8))
def test_as_many_bytes_count_as_asked(length: int, texts: list[bytes]) -> None:
    """Option var-length-contribution would have no effect, or break the order."""
    words = words_of("binary", texts, length)

    assert sorted(range(len(texts)), key=words.__getitem__) == sorted(
        range(len(texts)), key=lambda number: texts[number][:length].ljust(length, b"\0")
    )


def test_slice_of_decimals_has_its_own_words() -> None:
    """Rows would be sorted by the values of other rows."""
    values = pa.array([decimal.Decimal(number) for number in (5, 7, 9)], pa.decimal128(9, 0))

    assert ordered_words(values.slice(1), 8)[0].to_pylist() == [(1 << 63) + 7, (1 << 63) + 9]


def test_bits_of_columns_take_turns() -> None:
    """One column would decide, as in a sort."""
    rows = numbers(a=[0, 0, 1, 1, 2, 2, 3, 3], b=[0, 1, 0, 1, 2, 3, 2, 3])
    ranges = {1: Range(low=0, high=3), 2: Range(low=0, high=3)}

    keys = z_values(ZRowOrder(order_of(1, 2), INTS, None, ranges), rows)

    def interleaved(a: int, b: int) -> int:
        return (a >> 1) << 3 | (b >> 1) << 2 | (a & 1) << 1 | (b & 1)

    assert [key[0] >> 60 for key in keys] == [
        interleaved(*pair) for pair in zip(rows["a"].to_pylist(), rows["b"].to_pylist(), strict=True)
    ]


@given(st.lists(st.integers(-20, 20) | st.none(), min_size=1, max_size=12), st.integers(-20, 20), st.integers(0, 20))
def test_range_keeps_the_order_of_values_even_outside(values: list[int | None], low: int, span: int) -> None:
    """A file whose metrics are wrong would spoil the order of all others."""
    high = low + span
    keys = z_values(ZRowOrder(order_of(1), INTS, None, {1: Range(low=low, high=high)}), numbers(a=values))
    clamped = [low if value is None else min(max(value, low), high) for value in values]

    assert sorted(range(len(values)), key=keys.__getitem__) == sorted(range(len(values)), key=clamped.__getitem__)


def test_texts_with_a_common_beginning_differ_after_it() -> None:
    """A column of names such as `sensor-00042` would have no part in the order."""
    texts = [f"sensor-{number:05d}" for number in range(100)]
    schema = Schema(NestedField(1, "s", ice.StringType()))
    rows = pa.RecordBatch.from_pydict({"s": texts})

    keys = z_values(
        ZRowOrder(order_of(1), schema, None, {1: Range(low=texts[0].encode(), high=texts[-1].encode())}), rows
    )

    assert sorted(set(keys)) == keys
    assert len(set(keys)) == 100


def test_no_more_bytes_are_made_than_asked() -> None:
    """Option max-output-size would have no effect."""
    rows = numbers(a=[1, 2**40], b=[5, 5])

    keys = z_values(ZRowOrder(order_of(1, 2, most=1), INTS, None), rows)

    assert [len(key) for key in keys] == [1, 1]
    assert keys[0] == keys[1]


def test_partitions_come_first() -> None:
    """A sorted group of another partition spec would make a file for each run of rows."""
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "c"))
    order = ZRowOrder(order_of(1, 2), INTS, spec)
    rows = numbers(a=[1, 2, 3, 4], b=[1, 2, 3, 4], c=[2, 1, 2, 1])

    assert order.positions(order.keys(rows)).to_pylist() == [1, 3, 0, 2]


def test_many_rows_and_none_have_keys() -> None:
    """An empty task would fail, and rows after the first portion be lost."""
    order = ZRowOrder(order_of(1, 2), INTS, None)
    many = numbers(a=list(range(70_000)), b=[0] * 70_000)

    assert order.positions(order.keys(many)).to_pylist() == list(range(70_000))
    assert order.keys(many.slice(0, 0)).num_rows == 0


def test_rows_that_do_not_fit_in_memory_are_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite of a large group would take as much memory as the group, or not be in Z-order."""
    monkeypatch.setattr(spill, "RUN_BYTES", 8_000)
    monkeypatch.setattr(spill, "CHUNK_BYTES", 500)
    ranges = {1: Range(low=0, high=99), 2: Range(low=0, high=10**6)}
    order = ZRowOrder(order_of(1, 2), INTS, None, ranges)
    count = 5_000
    pairs = [(number * 37 % 100, number * 7919 % 10**6) for number in range(count)]
    rows = numbers(a=[a for a, _ in pairs], b=[b for _, b in pairs])

    sorting = ExternalSort(order)
    for first in range(0, count, 100):
        sorting.add(rows.slice(first, 100))
    found = pa.Table.from_batches(sorting.sorted_batches())
    spilled = sorting._spill
    sorting.close()

    assert spilled is not None
    assert found.equals(pa.Table.from_batches([rows.take(order.positions(order.keys(rows)))]))


def test_columns_of_structs_are_found() -> None:
    """Rows could not be ordered by a column of a struct."""
    kind = ice.StructType(NestedField(2, "x", ice.LongType(), required=False))
    schema = Schema(NestedField(1, "s", kind, required=False))
    rows = pa.RecordBatch.from_pylist([{"s": {"x": 3}}, {"s": None}, {"s": {"x": 1}}], schema=file_shape(schema).schema)
    order = ZRowOrder(order_of(2), schema, None)

    assert order.positions(order.keys(rows)).to_pylist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a", "tags"], "column tags is list<string>, which has no order"),
        (["s"], "column s is struct<3: x: optional long>, which has no order"),
        (["a", "A"], "column A is given more than once"),
        (["b"], "there is no column b among a, tags, s"),
        (["tags.element"], "only structs have fields of their own"),
    ],
)
def test_column_without_an_order_is_named(names: list[str], problem: str) -> None:
    """A rewrite would fail in its tasks."""
    schema = Schema(
        NestedField(1, "a", ice.LongType()),
        NestedField(2, "tags", ice.ListType(4, ice.StringType())),
        NestedField(5, "s", ice.StructType(NestedField(3, "x", ice.LongType(), required=False))),
    )

    with pytest.raises(ValueError, match=problem):
        z_order_columns(names, schema)
