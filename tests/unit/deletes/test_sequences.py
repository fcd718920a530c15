"""Sequences of the table's rows and of incoming ones: their order, and the digests by which tasks know their keys."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_ds.cdc.dedup import NUMBER, RANK, event_order, sequence_names, sort_events
from iceberg_ds.cdc.keys import DIGEST, digest_keys, plain, plain_type
from iceberg_ds.deletes.key_reader import Incoming, SequenceRule, ascending, canonical, is_higher
from iceberg_ds.table.arrow_schema import file_shape

SEED = bytes(range(8))
NAN, INF = math.nan, math.inf
# Values of each type that can be a sequence, lowest first.
ORDERED: list[tuple[IcebergType, list[Any]]] = [
    (BooleanType(), [None, False, True]),
    (IntegerType(), [None, -(2**31), -1, 0, 2**31 - 1]),
    (LongType(), [None, -(2**63), -1, 0, 2**63 - 1]),
    (FloatType(), [None, -INF, -1.5, 0.0, 1.5, INF, NAN]),
    (DoubleType(), [None, -INF, -1e300, -5e-324, 0.0, 5e-324, 1e300, INF, NAN]),
    (DecimalType(10, 2), [None, Decimal("-99.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("10.00")]),
    (DecimalType(38, 0), [None, Decimal(-(10**37)), Decimal(9), Decimal(10), Decimal(10**37)]),
    (StringType(), [None, "", "Z", "a", "a\x00", "aa", "z", "é", "\U0001f600"]),
    (BinaryType(), [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"]),
    (FixedType(2), [None, b"\x00\x00", b"\x7f\xff", b"\x80\x00"]),
    (UUIDType(), [None, uuid.UUID(int=0).bytes, uuid.UUID(int=2**127 - 1).bytes, uuid.UUID(int=2**127).bytes]),
    (DateType(), [None, date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29)]),
    (TimeType(), [None, time(0), time(23, 59, 59, 999_999)]),
    (TimestampType(), [None, -(10**16), -1, 0, 1, 10**15]),
    (TimestamptzType(), [None, *(datetime(1969, 12, 31, hour, tzinfo=UTC) for hour in (0, 1, 23))]),
]
KINDS = [str(kind) for kind, _ in ORDERED]
OF_KEYS = [(kind, values) for kind, values in ORDERED if not isinstance(kind, FloatType | DoubleType)]


def rule(*types: IcebergType) -> SequenceRule:
    """Return a rule for sequences of these types, and keys of the same."""
    by_id = dict(enumerate(types, 1))
    return SequenceRule(types=by_id, key_types=by_id, seed=SEED)


def written(kind: IcebergType, values: Sequence[Any]) -> pa.Array:
    """Return values in the type that files have."""
    data_type = file_shape(Schema(NestedField(1, "c", kind, required=False))).schema.field(0).type
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, pa.array(values, data_type.storage_type))
    return pa.array(values, data_type)


def comparable(kind: IcebergType, values: Sequence[Any]) -> pa.Array:
    """Return values as a rule compares them."""
    (found,) = rule(kind).comparable([canonical(written(kind, values), kind)])
    return found


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=KINDS)
def test_values_of_every_type_are_held_against_each_other(kind: IcebergType, values: list[Any]) -> None:
    """Late rows would win, or new ones lose, by a column of this type."""
    pairs = [(one, other) for one in range(len(values)) for other in range(len(values))]
    mine = comparable(kind, [values[one] for one, _ in pairs])
    others = comparable(kind, [values[other] for _, other in pairs])

    assert is_higher([mine], [others]).to_pylist() == [one > other for one, other in pairs]


def test_zeros_are_equal_and_nan_is_one_value() -> None:
    """A row would be late by a sign that no user sees."""
    zeros = comparable(DoubleType(), [0.0, -0.0])
    negative_nan = pa.array([2**64 - 1], pa.uint64()).view(pa.float64())
    nans = rule(DoubleType()).comparable([canonical(negative_nan, DoubleType())])

    assert is_higher([zeros], [zeros.take([1, 0])]).to_pylist() == [False, False]
    assert is_higher(nans, [comparable(DoubleType(), [NAN])]).to_pylist() == [False]
    assert is_higher(nans, [comparable(DoubleType(), [INF])]).to_pylist() == [True]


def test_older_files_with_narrower_types_are_compared_alike() -> None:
    """After a column was widened, rows from before would not be found late, or the search would fail."""
    kinds: list[tuple[IcebergType, pa.Array, Any, Any]] = [
        (LongType(), pa.array([7], pa.int32()), 6, 8),
        (DoubleType(), pa.array([0.5], pa.float32()), 0.25, 0.75),
        (DecimalType(20, 2), pa.array([Decimal("7.00")], pa.decimal128(5, 2)), Decimal("6.99"), Decimal("7.01")),
    ]
    for kind, stored, lower, higher in kinds:
        held = rule(kind).comparable([canonical(stored, kind)])
        assert is_higher(held, [comparable(kind, [lower])]).to_pylist() == [True]
        assert is_higher(held, [comparable(kind, [higher])]).to_pylist() == [False]


pairs = st.tuples(
    st.one_of(st.none(), st.integers(-1, 1)), st.one_of(st.none(), st.sampled_from([-INF, -0.0, 0.0, 1.5, NAN]))
)


@given(rows=st.lists(st.tuples(pairs, pairs), min_size=1))
def test_several_columns_are_ordered_as_the_rows_of_one_write(rows: Any) -> None:
    """What wins within a batch would lose between two of them."""
    kinds = (LongType(), DoubleType())
    sides = [
        [comparable(kind, [row[side][part] for row in rows]) for part, kind in enumerate(kinds)] for side in (0, 1)
    ]

    assert is_higher(sides[0], sides[1]).to_pylist() == [_wins(one, other) for one, other in rows]


def _wins(one: Any, other: Any) -> bool:
    """Return whether the first one comes after the other by the order of the events of a write."""
    sequence = (NestedField(1, "a", LongType()), NestedField(2, "b", DoubleType()))
    # The number breaks ties: the other one is higher, so that it comes last unless it is really lower.
    floats = [None if row[1] is None else row[1] + 0.0 for row in (one, other)]
    first, second = sequence_names(sequence)
    events = pa.RecordBatch.from_pydict(
        {
            DIGEST: pa.array([1, 1], pa.uint64()),
            first: pa.array([one[0], other[0]], pa.int64()),
            second: pa.array(floats, pa.float64()),
            RANK: pa.array([2, 2], pa.int32()),
            NUMBER: pa.array([0, 1], pa.int64()),
        }
    )
    return bool(sort_events(events, event_order([], sequence)).column(NUMBER)[1].as_py() == 0)


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=KINDS)
def test_incoming_rows_are_in_the_order_of_their_sequences(kind: IcebergType, values: list[Any]) -> None:
    """Of several incoming rows of a key an older one would be held against the table's."""
    shuffled = [*reversed(values), *values]

    order = ascending([comparable(kind, shuffled)])

    places = list(range(len(values)))
    ranks = [*reversed(places), *places]
    assert [ranks[place] for place in order.to_pylist()] == [place for place in places for _ in range(2)]


def test_first_column_counts_most() -> None:
    """A late row would win by a column that counts less."""
    order = ascending([pa.array([1, None, 1, 2]), pa.array([5, 9, None, 0])])

    assert order.to_pylist() == [1, 2, 0, 3]


def test_equal_sequences_do_not_make_a_row_late() -> None:
    """A batch that is written again with corrections would change nothing."""
    incoming = Incoming(sequence=[pa.array([1, 2])], keys=rule(LongType()).told_keys({1: pa.array([1, 2])}))

    assert incoming.lose(pa.array([0, 1, 1]), [pa.array([2, 2, 3])]).to_pylist() == [True, False, True]


@pytest.mark.parametrize(("kind", "values"), OF_KEYS, ids=[str(kind) for kind, _ in OF_KEYS])
def test_keys_have_the_digests_and_the_form_that_tasks_report(kind: IcebergType, values: list[Any]) -> None:
    """Late rows of such keys would not be found among those that were written, and stay."""
    keys = written(kind, [value for value in values if value is not None])
    longs = pa.array(range(len(keys)), pa.int64())

    alone = rule(kind).told_keys({1: canonical(keys, kind)})
    both = rule(kind, LongType()).told_keys({1: canonical(keys, kind), 2: longs})

    assert alone.column(DIGEST).combine_chunks() == digest_keys([keys], SEED)
    assert both.column(DIGEST).combine_chunks() == digest_keys([keys, longs], SEED)
    assert [column.combine_chunks() for column in both.columns[1:]] == [plain(keys), longs]
    assert plain_type(keys.type) == plain(keys).type
