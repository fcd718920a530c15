"""Digests of many rows: equal for the same rows in any order, different for all others."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from iceberg_ds.cdc.row_digest import RowDigest

_INSIDE = pa.struct([("inside", pa.int64())])


def digest(values: list[Any], data_type: pa.DataType) -> RowDigest:
    """Return the digest of rows with one column."""
    return RowDigest().with_rows(pa.RecordBatch.from_arrays([pa.array(values, data_type)], ["column"]))


@pytest.mark.parametrize(
    ("data_type", "one", "other"),
    [
        (pa.int64(), None, 0x9011),
        (pa.int64(), None, 0),
        (pa.float64(), -0.0, 0.0),
        (pa.float64(), math.nan, None),
        (pa.string(), "", None),
        (pa.list_(pa.int64()), [], None),
        (pa.list_(pa.int64()), [None], []),
        (pa.list_(pa.int64()), [1, 2], [2, 1]),
        (pa.map_(pa.string(), pa.int64()), [], None),
        (pa.map_(pa.string(), pa.int64()), [("a", None)], []),
        (_INSIDE, None, {"inside": None}),
        (pa.struct([("outside", _INSIDE)]), {"outside": None}, {"outside": {"inside": None}}),
        (pa.list_(_INSIDE), [None], [{"inside": None}]),
    ],
)
def test_values_that_differ_have_other_digests(data_type: pa.DataType, one: Any, other: Any) -> None:
    """A library that makes one of the other would change rows, and the old files expire."""
    assert digest([one], data_type) != digest([other], data_type)
    assert digest([one, other, one], data_type) == digest([other, one, one], data_type)
    assert digest([one, other, one], data_type) != digest([other, other, one], data_type)
