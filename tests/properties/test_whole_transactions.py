"""Feeds of any transactions, divided anywhere: each is passed on once, whole, and in the order of the ends."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.cdc.source_transactions import (
    COUNT,
    IS_END,
    POSITION,
    TRANSACTION,
    from_bytes,
    held_and_new,
    split_transactions,
    to_bytes,
)
from iceberg_ds.errors import RefusedRowsError, SchemaMismatchError

FACTS = [(TRANSACTION, pa.string()), (POSITION, pa.int64()), (IS_END, pa.bool_()), (COUNT, pa.int64())]
SCHEMA = pa.schema([("id", pa.int64()), *FACTS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A feed as the source wrote it.

    Attributes:
        rows: All rows in their order; the id of a row is its position.
        transactions: The ids of the rows of each transaction, in the order of their ends.
        free: The ids of rows without a transaction.
    """

    rows: list[dict[str, object]]
    transactions: list[list[int]]
    free: list[int]


def feed_of(sizes: list[int], *, has_ends: bool) -> Feed:
    """Return a feed of transactions with so many rows, one after the other; each zero is a row without one."""
    rows: list[dict[str, object]] = []
    transactions, free = [], []

    def add(name: str | None, count: int | None = None) -> int:
        position = len(rows)
        is_end = count is not None
        rows.append({"id": position, TRANSACTION: name, POSITION: position, IS_END: is_end, COUNT: count})
        return position

    for number, size in enumerate(sizes):
        if not size:
            free.append(add(None))
            continue
        transactions.append([add(f"t{number}") for _ in range(size)])
        if has_ends:
            add(f"t{number}", size)
    return Feed(rows=rows, transactions=transactions, free=free)


def table(rows: list[dict[str, object]]) -> pa.Table:
    """Return rows as Spark would send them."""
    return pa.Table.from_pylist(rows, SCHEMA)


def run(parts: list[list[dict[str, object]]], *, has_ends: bool) -> tuple[list[list[int]], int]:
    """Return the ids that each part passes on, and how many rows are held at the end, ends of transactions included."""
    held, passed = None, []
    for part in parts:
        split = split_transactions(held_and_new(held, table(part)), has_ends=has_ends, has_counts=has_ends)
        held = from_bytes(to_bytes(split.held))
        passed.append(split.whole["id"].to_pylist())
    return passed, 0 if held is None else len(held)


SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=12)


@given(sizes=SIZES, cuts=st.lists(st.integers(1, 60), max_size=8), has_ends=st.booleans())
def test_one_partition_is_passed_on_transaction_by_transaction(
    sizes: list[int], cuts: list[int], *, has_ends: bool
) -> None:
    """Readers would see half a transaction, or its rows would be lost or come twice."""
    feed = feed_of(sizes, has_ends=has_ends)
    bounds = [0, *sorted({cut for cut in cuts if cut < len(feed.rows)}), len(feed.rows)]

    passed, held = run([feed.rows[a:b] for a, b in pairwise(bounds)], has_ends=has_ends)

    last = feed.transactions.pop() if sizes[-1] and not has_ends else []
    assert held == len(last)
    together = [found for part in passed for found in part]
    assert sorted(together) == sorted([*feed.free, *(row for rows in feed.transactions for row in rows)])
    epoch_of = {found: number for number, part in enumerate(passed) for found in part}
    assert all(len({epoch_of[row] for row in rows}) == 1 for rows in feed.transactions)
    seen = [epoch_of[row["id"]] for row in feed.rows if row["id"] in epoch_of]  # type: ignore[index]
    assert seen == sorted(seen), "a later transaction was passed on before an earlier one"
    for rows in feed.transactions:  # none is held longer than it must be
        end = rows[-1] + 1
        assert end < bounds[epoch_of[rows[0]] + 1], "it was passed on before its end came"
        assert end >= bounds[epoch_of[rows[0]]], "it was held although its end had come"


@given(sizes=SIZES, lag=st.integers(0, 30), parts=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_counts_keep_transactions_whole_over_partitions_that_lag(
    sizes: list[int], lag: int, parts: int, seed: int
) -> None:
    """Rows of a partition that is read late would come in another epoch than the rest of their transaction."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    feed = feed_of(sizes, has_ends=True)
    late = {row["id"]: chance.randint(0, lag) for row in feed.rows if not row[IS_END]}
    coming = sorted(feed.rows, key=lambda row: row["id"] + late.get(row["id"], 0))  # type: ignore[operator]
    bounds = sorted({0, len(coming), *(chance.randint(0, len(coming)) for _ in range(parts))})

    passed, held = run([coming[a:b] for a, b in pairwise(bounds)], has_ends=True)

    assert held == 0
    together = [found for part in passed for found in part]
    assert sorted(together) == sorted([*feed.free, *(row for rows in feed.transactions for row in rows)])
    epoch_of = {found: number for number, part in enumerate(passed) for found in part}
    assert all(len({epoch_of[row] for row in rows}) == 1 for rows in feed.transactions)
    ends = [epoch_of[rows[0]] for rows in feed.transactions]
    assert ends == sorted(ends), "a later transaction was passed on before an earlier one"


def test_transaction_that_comes_again_is_passed_on_with_all_its_rows() -> None:
    """A source that died and sends a transaction again would have its first rows lost, or stop the stream."""
    feed = feed_of([3, 2], has_ends=True)
    again = [*feed.rows[:2], *feed.rows]

    passed, held = run([again[:3], again[3:]], has_ends=True)

    assert (passed, held) == ([[], [0, 1, 0, 1, 2, 4, 5]], 0)


def test_row_without_a_position_is_refused() -> None:
    """It would wait, or be passed on, at no place that anybody chose."""
    with pytest.raises(RefusedRowsError, match="1 of 1 rows have a null in the column of positions"):
        split_transactions(table([{"id": 1, TRANSACTION: "t", IS_END: False}]), has_ends=True, has_counts=True)


@pytest.mark.parametrize(
    ("of_end", "reason"),
    [
        ({TRANSACTION: "t"}, "1 rows .* in the column of counts"),
        ({TRANSACTION: "t", COUNT: -2}, "1 rows .* in the column of counts"),
        ({COUNT: 2}, "1 rows .* in the column of transactions"),
    ],
)
def test_end_that_does_not_say_what_has_ended_is_refused(of_end: dict[str, object], reason: str) -> None:
    """Half of a transaction would be passed on, or a whole one be held for ever."""
    rows = [{"id": 1, TRANSACTION: "t", POSITION: 1, IS_END: False}, {POSITION: 2, IS_END: True, **of_end}]

    with pytest.raises(RefusedRowsError, match=reason):
        split_transactions(table(rows), has_ends=True, has_counts=True)


def test_held_rows_get_columns_that_the_query_gained_and_keep_their_own() -> None:
    """A query that is started again with one more column would lose the rows that it holds."""
    held = table([{"id": 1, TRANSACTION: "t", POSITION: 1, IS_END: False}])
    gained = pa.schema([("id", pa.int64()), ("name", pa.string()), *FACTS])
    new = pa.Table.from_pylist(
        [
            {"id": 2, "name": "b", TRANSACTION: "t", POSITION: 2, IS_END: False},
            {TRANSACTION: "t", POSITION: 3, IS_END: True, COUNT: 2},
        ],
        gained,
    )

    split = split_transactions(held_and_new(held, new), has_ends=True, has_counts=True)

    assert split.whole.to_pylist() == [{"id": 1, "name": None}, {"id": 2, "name": "b"}]
    with pytest.raises(SchemaMismatchError, match=r"1 rows were held .* have no longer: name"):
        held_and_new(new.slice(0, 1), held)


def test_held_value_that_a_new_type_cannot_have_is_refused() -> None:
    """It would be changed on the way from one run of the query to the next."""
    held = table([{"id": 2**40, TRANSACTION: "t", POSITION: 1, IS_END: False}])
    new = pa.Table.from_pylist([], pa.schema([("id", pa.int32()), *FACTS]))

    with pytest.raises(SchemaMismatchError, match=r"column 'id' of 1 rows .* is int64, and is int32 now"):
        held_and_new(held, new)


def held_with(values: pa.Array) -> pa.Table:
    """Return held rows of one transaction that have these values in column `value`."""
    count = len(values)
    facts = pa.Table.from_pylist([{TRANSACTION: "t", POSITION: 1, IS_END: False}] * count, pa.schema(FACTS))
    return facts.add_column(0, "value", values)


def come(value: pa.Field) -> pa.Table:
    """Return no rows, with a column of this type."""
    return pa.schema([value, *FACTS]).empty_table()


AB = pa.struct([("a", pa.int64()), ("b", pa.int64())])
A = pa.struct([("a", pa.int64())])
NEVER_NULL = pa.field("b", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("values", "new"),
    [
        (pa.array([{"a": 1, "b": 2}], AB), A),
        (pa.array([[{"a": 1, "b": 2}]], pa.list_(AB)), pa.list_(A)),
        (pa.array([[("k", {"a": 1, "b": 2})]], pa.map_(pa.string(), AB)), pa.map_(pa.string(), A)),
        (pa.array([{"a": 1}], A), pa.struct([*A, NEVER_NULL])),
        (pa.array([{"b": None}], pa.struct([("b", pa.int64())])), pa.struct([NEVER_NULL])),
        (pa.array([[None]], pa.list_(pa.int64())), pa.list_(NEVER_NULL)),
        (pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), NEVER_NULL)),
        (pa.array([1e300]), pa.float32()),
        (pa.array([5]), pa.bool_()),
        (pa.array([0.126]), pa.decimal128(10, 2)),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), pa.decimal128(5, 1)),
        (pa.array([datetime(2026, 1, 1, 5, 6)], pa.timestamp("us")), pa.date32()),  # noqa: DTZ001  # without a zone
        (pa.array([datetime(2026, 1, 1, 5, 6)], pa.timestamp("us")), pa.timestamp("us", "Asia/Tokyo")),  # noqa: DTZ001
    ],
)
def test_held_value_is_never_changed_to_fit_a_new_type(values: pa.Array, new: pa.DataType) -> None:
    """A field would be lost, or a number rounded, or a time moved, without a word."""
    with pytest.raises(SchemaMismatchError, match=r"column 'value' of 1 rows"):
        held_and_new(held_with(values), come(pa.field("value", new)))


@pytest.mark.parametrize(
    ("values", "new", "wanted"),
    [
        (pa.array([1], pa.int32()), pa.int64(), 1),
        (pa.array([0.5], pa.float32()), pa.float64(), 0.5),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), pa.decimal128(9, 3), Decimal("1.250")),
        (pa.array(["é"]), pa.large_string(), "é"),
        (pa.array([b"\xff"]), pa.large_binary(), b"\xff"),
        (pa.nulls(1), pa.int64(), None),
        (pa.array([{"a": 1}], A), AB, {"a": 1, "b": None}),
        (pa.array([[{"a": 1}]], pa.list_(A)), pa.large_list(AB), [{"a": 1, "b": None}]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.int64()), [("k", 1)]),
        (
            pa.array([0], pa.timestamp("us", "UTC")),
            pa.timestamp("us", "Asia/Tokyo"),
            datetime(1970, 1, 1, tzinfo=timezone.utc),
        ),
    ],
)
def test_held_value_fits_a_wider_type(values: pa.Array, new: pa.DataType, wanted: object) -> None:
    """A query could not be started again with another time zone, or with a wider column."""
    rows = held_and_new(held_with(values), come(pa.field("value", new)))

    assert rows["value"].to_pylist() == [wanted]


@pytest.mark.parametrize("held", [held_with(pa.nulls(1, pa.int64())), held_with(pa.array([1])).drop_columns("value")])
def test_held_null_in_a_column_that_cannot_be_null_is_refused(held: pa.Table) -> None:
    """Spark would read it as it likes, or fail without saying where it came from."""
    with pytest.raises(SchemaMismatchError, match=r"column 'value' of 1 rows .* cannot be null now"):
        held_and_new(held, come(pa.field("value", pa.int64(), nullable=False)))


def test_columns_change_freely_while_nothing_is_held() -> None:
    """A column could never be removed, whatever the query is told to run before."""
    held = held_with(pa.array([], pa.string()))
    for new in (held_with(pa.array([{"a": 1}], A)), held_with(pa.array([1])).rename_columns(["other", *dict(FACTS)])):
        assert held_and_new(held, new) == new


def test_end_that_comes_again_lets_no_transaction_overtake() -> None:
    """The orders of a later transaction would be seen before the customers of one that it rests on."""
    ends = {"a": [(3, 3), (8, 3)], "b": [(6, 1)]}  # where they stand, and how many rows they count
    rows = [{"id": at, TRANSACTION: name, POSITION: at, IS_END: False} for name, at in (("a", 1), ("a", 2), ("b", 5))]
    rows += [
        {"id": at, TRANSACTION: name, POSITION: at, IS_END: True, COUNT: count}
        for name, found in ends.items()
        for at, count in found
    ]

    split = split_transactions(pa.Table.from_pylist(rows, schema=SCHEMA), has_ends=True, has_counts=True)

    assert (len(split.whole), len(split.held)) == (0, len(rows))
