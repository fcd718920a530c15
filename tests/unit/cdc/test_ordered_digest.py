"""Digests of many rows in their order: equal for the same rows in whatever batches, different for all others."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.cdc.row_digest import OrderedDigest

_INSIDE = pa.struct([("inside", pa.int64())])
_OUTSIDE = pa.struct(
    [("names", pa.list_(pa.string())), ("flag", pa.bool_()), ("by_name", pa.map_(pa.string(), _INSIDE))]
)
_NUMBERS = st.none() | st.integers(0, 2)
_NAMES = st.none() | st.text("ab", max_size=2)
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": _NUMBERS,
            "name": _NAMES,
            "outside": st.none()
            | st.fixed_dictionaries(
                {
                    "names": st.none() | st.lists(_NAMES, max_size=2),
                    "flag": st.none() | st.booleans(),
                    "by_name": st.none()
                    | st.lists(
                        st.tuples(st.text("ab", max_size=2), st.none() | st.fixed_dictionaries({"inside": _NUMBERS})),
                        max_size=2,
                    ),
                }
            ),
            "amount": st.none() | st.decimals(-9, 9, places=2),
            "code": st.none() | st.binary(min_size=2, max_size=2),
            "nothing": st.none(),
        }
    ),
    max_size=6,
)
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("outside", _OUTSIDE),
        ("amount", pa.decimal128(9, 2)),
        ("code", pa.binary(2)),
        ("nothing", pa.null()),
    ]
)


def digest(*batches: pa.RecordBatch) -> OrderedDigest:
    """Return the digest of the rows of some batches."""
    found = OrderedDigest()
    for batch in batches:
        found = found.with_rows(batch)
    return found


def of_column(values: list[Any], data_type: pa.DataType) -> OrderedDigest:
    """Return the digest of rows with one column."""
    return digest(pa.RecordBatch.from_arrays([pa.array(values, data_type)], ["column"]))


@pytest.mark.parametrize(
    ("data_type", "some", "others"),
    [
        (pa.int64(), [1, 2], [2, 1]),
        (pa.int64(), [1, None], [None, 1]),
        (pa.int64(), [0], [None]),
        (pa.int64(), [], [None]),
        (pa.null(), [None], [None, None]),
        (pa.float64(), [-0.0], [0.0]),
        (pa.float64(), [math.nan], [None]),
        (pa.bool_(), [True, False], [False, True]),
        (pa.string(), [""], [None]),
        (pa.string(), ["ab", "c"], ["a", "bc"]),
        (pa.list_(pa.int64()), [[]], [None]),
        (pa.list_(pa.int64()), [[None]], [[]]),
        (pa.list_(pa.int64()), [[1, 2], [3]], [[1], [2, 3]]),
        (pa.map_(pa.string(), pa.int64()), [[]], [None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", None)]], [[]]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)]], [[("b", 2), ("a", 1)]]),
        (_INSIDE, [None], [{"inside": None}]),
        (pa.struct([("outside", _INSIDE)]), [{"outside": None}], [{"outside": {"inside": None}}]),
        (pa.list_(_INSIDE), [[None]], [[{"inside": None}]]),
    ],
)
def test_values_that_differ_have_other_digests(data_type: pa.DataType, some: list[Any], others: list[Any]) -> None:
    """A library that makes one of the other would change rows, and the old files expire."""
    assert of_column(some, data_type) != of_column(others, data_type)
    assert of_column(some, data_type) == of_column(some, data_type)


@given(rows=_ROWS, others=_ROWS, cuts=st.lists(st.integers(0, 6), max_size=3))
def test_digest_is_that_of_the_rows_alone(
    rows: list[dict[str, Any]], others: list[dict[str, Any]], cuts: list[int]
) -> None:
    """Old files and new ones are read in other batches."""
    whole = pa.RecordBatch.from_pylist([*others, *rows], _SCHEMA).slice(len(others))
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [whole.slice(first, last - first) for first, last in pairwise(places)]
    alone = digest(pa.RecordBatch.from_pylist(rows, _SCHEMA))

    assert digest(*parts) == alone
    assert (digest(pa.RecordBatch.from_pylist(others, _SCHEMA)) == alone) == (rows == others)


@pytest.mark.parametrize("shape", ["list", "struct", "map"])
def test_batch_without_a_value_of_an_extension_type_has_a_digest(shape: str) -> None:
    """A column that was added later could never be compacted."""
    empty = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([], pa.binary(16)))
    nulls = pa.array([True, True])
    column = {
        "list": pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), empty, mask=nulls),
        "struct": pa.StructArray.from_arrays(
            [pa.ExtensionArray.from_storage(pa.uuid(), pa.nulls(2, pa.binary(16)))], ["id"], mask=nulls
        ),
        "map": pa.MapArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array([], pa.string()), empty),
    }[shape]

    of_all = digest(pa.RecordBatch.from_arrays([column], ["column"]))
    assert of_all.count == 2
    assert of_all == digest(*(pa.RecordBatch.from_arrays([column.slice(at, 1)], ["column"]) for at in range(2)))


def test_values_behind_nulls_do_not_count() -> None:
    """What is there is left to chance: a library need not keep it."""
    is_null = pa.array([False, True, False])
    texts, numbers = pa.array(["a", "hidden", "b"]), pa.array([[1], [2, 3], [4]])
    structs = pa.StructArray.from_arrays([texts], ["text"], mask=is_null)
    lists = pa.ListArray.from_arrays(numbers.offsets, numbers.values, mask=is_null)

    hidden = digest(pa.RecordBatch.from_arrays([structs, lists], ["struct", "list"]))
    clean = [pa.array([{"text": "a"}, None, {"text": "b"}], structs.type), pa.array([[1], None, [4]], lists.type)]
    assert hidden == digest(pa.RecordBatch.from_arrays(clean, ["struct", "list"]))
