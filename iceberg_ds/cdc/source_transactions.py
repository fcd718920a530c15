"""Which changes of a feed may be passed on, if a transaction of the source is to be passed on as a whole.

A feed says of each change which transaction of the source it is of, and where it stands in the feed. Some feeds also
have a row where a transaction ends, with or without the number of its changes, as Debezium's do [1]. What comes at a
time, such as the rows of a micro-batch, may end anywhere; the rows of transactions that may not be whole are held.

Rows travel and are kept as Arrow's stream format, so that no value of any type changes on the way.

[1] https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-transaction-metadata
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.errors import RefusedRowsError, SchemaMismatchError
from iceberg_ds.table.arrow_schema import is_text

# What is read of each row, in columns behind its own: text, int64, boolean, int64.
FACTS = TRANSACTION, POSITION, IS_END, COUNT = tuple(
    f"icebergsink.{name}" for name in ("transaction", "position", "is_end", "count")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What may be passed on now, and what is held.

    Attributes:
        whole: Rows of transactions that are whole, and rows without a transaction, without the columns `FACTS`; no rows
            that say where a transaction ends.
        held: All other rows.
    """

    whole: pa.Table
    held: pa.Table


def split_transactions(feed: pa.Table, *, has_ends: bool, has_counts: bool) -> Split:
    """Divide all rows that are there into those that may be passed on and those that are held.

    With rows that say where transactions end, a transaction is whole if its end is there, and with it at least as many
    rows as its end says. It is passed on if all transactions that ended before it are whole, too. Without such rows a
    transaction is whole as soon as any row stands behind its last one. Rows without a transaction wait for transactions
    that ended before them.

    Args:
        feed: The rows, in any order, with the columns `FACTS`.
        has_ends: Whether the feed has rows that say where transactions end.
        has_counts: Whether these say how many rows the transaction has.

    Raises:
        RefusedRowsError: Rows have no position, or rows of ends do not say of which transaction, or of how many rows.
    """
    if unplaced := feed[POSITION].null_count:
        raise RefusedRowsError(
            f"Cannot keep transactions whole: {unplaced} of {len(feed)} rows have a null in the column of positions. "
            "Give every row, also where a transaction ends, its place in the feed."
        )
    _check_ends(feed, has_counts=has_counts)
    ended = _ended(feed, has_ends=has_ends)
    is_short = pc.less(ended["rows"], pc.fill_null(ended["expected"], 0))
    barrier = pc.min(ended["end"].filter(is_short))
    whole = ended["transaction"]
    is_free = pc.is_null(feed[TRANSACTION])
    if barrier.is_valid:
        whole = whole.filter(pc.less(ended["end"], barrier))
        is_free = pc.and_(is_free, pc.less(feed[POSITION], barrier))
    is_whole = pc.or_(is_free, pc.is_in(feed[TRANSACTION], value_set=whole.combine_chunks(), skip_nulls=True))
    is_row = pc.invert(pc.fill_null(feed[IS_END], fill_value=False))
    rows = feed.drop_columns([*FACTS])
    return Split(whole=rows.filter(pc.and_(is_whole, is_row)), held=feed.filter(pc.invert(is_whole)))


def _check_ends(feed: pa.Table, *, has_counts: bool) -> None:
    ends = feed.filter(pc.fill_null(feed[IS_END], fill_value=False))
    if unnamed := ends[TRANSACTION].null_count:
        raise RefusedRowsError(
            f"Cannot keep transactions whole: {unnamed} rows that say where a transaction ends have a null in the "
            "column of transactions. Let them say which one ends: its rows would be held for ever."
        )
    uncounted = pc.sum(pc.less(pc.fill_null(ends[COUNT], -1), 0)).as_py() if has_counts else 0
    if uncounted:
        raise RefusedRowsError(
            f"Cannot keep transactions whole: {uncounted} rows that say where a transaction ends have a null or a "
            "number below 0 in the column of counts. Let each say how many rows its transaction has, or leave count "
            "out if all rows stand before the end."
        )


def _ended(feed: pa.Table, *, has_ends: bool) -> pa.Table:
    """Return the transactions whose end is there.

    Their columns are `transaction`, where its `end` is, how many `rows` it has, and how many are `expected`, null if
    unknown.
    """
    is_end = pc.fill_null(feed[IS_END], fill_value=False)
    of_each = pa.table(
        {
            "transaction": feed[TRANSACTION],
            "end": pc.if_else(is_end, feed[POSITION], None) if has_ends else feed[POSITION],
            "rows": pc.if_else(is_end, 0, 1),
            "expected": pc.if_else(is_end, feed[COUNT], None),
        }
    ).filter(pc.is_valid(feed[TRANSACTION]))
    # A transaction ends where its end stood first: one that comes again moves it behind none that ended meanwhile.
    end_of = "min" if has_ends else "max"
    found = of_each.group_by("transaction").aggregate([("end", end_of), ("rows", "sum"), ("expected", "max")])
    found = pa.table(
        {
            "transaction": found["transaction"],
            "end": found[f"end_{end_of}"],
            "rows": found["rows_sum"],
            "expected": found["expected_max"],
        }
    )
    if has_ends:
        return found.filter(pc.is_valid(found["end"]))
    return found.filter(pc.less(found["end"], pc.max(feed[POSITION])))


def held_and_new(held: pa.Table | None, new: pa.Table) -> pa.Table:
    """Return the rows that were held and those that came, with the columns of those that came.

    Columns that held rows lack, because the query had none of them then, are null in them.

    Raises:
        SchemaMismatchError: Held rows have a column that those that came have not, a type that is no narrower kind of
            theirs, or a null where they can have none.
    """
    if held is None or not len(held):
        return new
    if gone := [name for name in held.column_names if name not in new.column_names]:
        raise SchemaMismatchError(
            f"Cannot keep transactions whole: {len(held)} rows were held by an earlier run of this stream, and they "
            f"have columns that its rows have no longer: {', '.join(gone)}. Run it once more as it was, until their "
            "transactions have ended, and change the columns then."
        )
    columns = []
    for field in new.schema:
        if field.name not in held.column_names:
            values = pa.chunked_array([pa.nulls(len(held), field.type)])
        else:
            values = _as_type(held[field.name], field)
        if values.null_count and not field.nullable and field.name not in FACTS:
            raise SchemaMismatchError(
                f"Cannot keep transactions whole: column '{field.name}' of {len(held)} rows that an earlier run of "
                f"this stream held has {values.null_count} nulls, and it cannot be null now. Make it nullable."
            )
        columns.append(values)
    return pa.concat_tables([pa.table(columns, schema=new.schema), new])


def _as_type(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    problem: Exception | None = None
    if _is_wider(values.type, field.type):
        try:
            return values.cast(field.type)
        except pa.ArrowException as raised:
            problem = raised
    raise SchemaMismatchError(
        f"Cannot keep transactions whole: column '{field.name}' of {len(values)} rows that an earlier run of this "
        f"stream held is {values.type}, and is {field.type} now{f': {problem}' if problem else ''}. Run it once more "
        "as it was, until their transactions have ended, and change the column then."
    ) from problem


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a cast either keeps all values or fails: Arrow also rounds, cuts times and leaves out fields."""
    if old == new or pa.types.is_null(old):
        return True
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        places = [new.get_field_index(field.name) for field in old]
        return -1 not in places and all(
            _is_wider(field.type, new.field(at).type) for field, at in zip(old, places, strict=True)
        )
    if _is_list(old) and _is_list(new):
        return _holds(old.value_field, new.value_field)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return _is_wider(old.key_type, new.key_type) and _holds(old.item_field, new.item_field)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if any(is_one(old) and is_one(new) for is_one in numbers):
        return bool(old.bit_width <= new.bit_width)
    return any(is_one(old) and is_one(new) for is_one in (is_text, _is_bytes, _has_zone))


def _holds(old: pa.Field, new: pa.Field) -> bool:
    return (new.nullable or not old.nullable) and _is_wider(old.type, new.type)  # Arrow looks at nulls of structs alone


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _has_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def to_bytes(rows: pa.Table) -> bytes:
    """Return rows as Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue())


def from_bytes(written: bytes) -> pa.Table:
    """Return the rows that `to_bytes` wrote."""
    with pa.ipc.open_stream(written) as stream:
        return stream.read_all()
