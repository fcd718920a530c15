"""`whole_transactions`: holds the changes of a stream back until the transaction of the source that made them is whole.

Spark decides which offsets an epoch has before any row is read, so an epoch may end within a transaction. Rows of
transactions that may not be whole are kept in the state of the query, which Spark's checkpoint has together with the
offsets: a repeated epoch passes on the same rows. Rows travel to the state and from it in Arrow's stream format
(`cdc.source_transactions`): Spark hands them to Python through pandas there, which changes values of some types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import AtomicType, BooleanType, DataType, IntegralType, TimestampType

from iceberg_ds.cdc.source_transactions import (
    COUNT,
    FACTS,
    IS_END,
    POSITION,
    TRANSACTION,
    from_bytes,
    held_and_new,
    split_transactions,
    to_bytes,
)
from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError
from iceberg_ds.spark.pandas_warning import without_pandas_warning
from iceberg_ds.table.names import AmbiguousNameError, find_position, quoted

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

_MEBIBYTE = 1024 * 1024
# One group has all rows, and Spark needs a column to group by.
_GROUP, _ROWS = "group", "rows"
_KINDS: dict[type[DataType], str] = {
    AtomicType: "one value, and none whose text the time zone of the session decides",
    IntegralType: "a whole number, such as BIGINT",
    BooleanType: "BOOLEAN",
}
# Rows of a value that Spark gets at a time.
_ROWS_AT_A_TIME = 10_000


def whole_transactions(  # noqa: PLR0913  # most are given by name
    changes: DataFrame,
    transaction: str,
    *,
    position: str,
    end: str | None = None,
    count: str | None = None,
    max_held_bytes: int = 256 * _MEBIBYTE,
) -> DataFrame:
    """Return the changes of a stream, those of one transaction of the source together, in the order of their ends.

    A change is passed on in the epoch in which its transaction is whole, together with all other changes of the
    transaction, and after those of transactions that ended before. Until then it is held in the state of the query. It
    needs pandas (`pip install 'iceberg-ds[upserts]'`), and one task of Spark has all rows: docs/source-transactions.md
    says what that costs.

    Args:
        changes: A streaming DataFrame with the rows of the feed in any order: all of them, because a row that is left
            out is waited for if `count` counts it.
        transaction: Name of the column that says which transaction a row is of. Rows in which it is null, such as those
            of a first snapshot, are of none: they wait for transactions that ended before them, and for nothing else.
        position: Name of the column of whole numbers that says where in the feed a row stands, such as the offset of
            its Kafka message.
        end: Name of the boolean column that is true in rows that say nothing but that their transaction has ended. They
            are not passed on. None if the feed has no such rows: then a transaction ends where any row stands behind
            its last one, which is right only if the rows of each transaction stand side by side, in one partition of
            the source; and the last transaction of the feed is held until another row comes.
        count: Name of the column of whole numbers that says in the rows of `end` how many rows the transaction has. A
            transaction with fewer rows is not whole. None if they do not say it: then each row must stand before the
            end of its transaction, in one partition of the source.
        max_held_bytes: The most bytes of rows that are held, at most 1 GiB. More fail the query.

    Returns:
        A streaming DataFrame with the columns of `changes`. It is written in output mode `append`.

    Raises:
        OptionError: `changes` is no stream, a column has another type, `count` is given without `end`, or
            `max_held_bytes` is out of range. An executor raises `RefusedRowsError` if more is held, a row has no
            position, or a row of `end` has no transaction, or no count where `count` is given.
        SchemaMismatchError: A column is missing, or several have one name, or a name that this function needs itself.
            An executor raises it if held rows do not fit the columns of a query that was started again.
    """
    if not changes.isStreaming:
        raise OptionError(
            "Cannot keep transactions whole: this is no stream. A batch is written as a whole: write it as it is."
        )
    names = [*changes.columns, *FACTS]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise SchemaMismatchError(f"Cannot keep transactions whole: several columns are named {', '.join(doubled)}.")
    if count is not None and end is None:
        raise OptionError("Cannot keep transactions whole: count needs end, which names the rows that have it.")
    if not 0 < max_held_bytes <= 1024 * _MEBIBYTE:
        raise OptionError(
            f"Cannot keep transactions whole: max_held_bytes is {max_held_bytes}: give 1 to 1073741824, because Spark "
            "keeps what is held as one value."
        )
    facts = {
        TRANSACTION: _fact(changes, "transaction", transaction, AtomicType).cast("string"),
        POSITION: _fact(changes, "position", position, IntegralType).cast("bigint"),
        IS_END: F.lit(False) if end is None else _fact(changes, "end", end, BooleanType),  # noqa: FBT003  # Spark's
        COUNT: (F.lit(None) if count is None else _fact(changes, "count", count, IntegralType)).cast("bigint"),
    }
    placed = changes.select("*", *(column.alias(name) for name, column in facts.items()))
    # Spark's `mapInArrow` takes a dot in the name of a column for that of a field.
    numbered = placed.toDF(*map(str, range(len(placed.columns))))
    pack = partial(_pack, names=placed.columns)
    split = partial(_split, has_ends=end is not None, has_counts=count is not None, max_held_bytes=max_held_bytes)
    with without_pandas_warning():
        packed = numbered.mapInArrow(pack, f"{_ROWS} BINARY").withColumn(_GROUP, F.lit(0))
        released = packed.groupBy(_GROUP).applyInPandasWithState(
            split, f"{_ROWS} BINARY", f"{_ROWS} BINARY", "append", "NoTimeout"
        )
        return released.mapInArrow(_unpack, changes.schema)


def _fact(changes: DataFrame, argument: str, name: str, wanted: type[DataType]) -> Column:
    try:
        found = find_position(name, changes.columns)
    except AmbiguousNameError as ambiguous:
        raise SchemaMismatchError(f"Cannot keep transactions whole: {argument}: column {ambiguous}.") from ambiguous
    if found is None:
        raise SchemaMismatchError(
            f"Cannot keep transactions whole: {argument} names '{name}', and the DataFrame has "
            f"{', '.join(changes.columns)}."
        )
    field = changes.schema[found]
    if not isinstance(field.dataType, wanted) or isinstance(field.dataType, TimestampType):
        raise OptionError(
            f"Cannot keep transactions whole: {argument} names '{field.name}', which is "
            f"{field.dataType.simpleString()}. It must be {_KINDS[wanted]}."
        )
    return F.col(quoted(field.name))


def _pack(batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield each batch, with columns of these names, as one row of bytes."""
    for batch in batches:
        rows = pa.Table.from_batches([batch]).rename_columns(names)
        yield pa.record_batch({_ROWS: pa.array([to_bytes(rows)], pa.binary())})


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for written in batch[_ROWS]:
            yield from from_bytes(written.as_py()).to_batches()


def _split(
    _group: tuple[int],
    frames: Iterator[pd.DataFrame],
    state: GroupState,
    *,
    has_ends: bool,
    has_counts: bool,
    max_held_bytes: int,
) -> Iterator[pd.DataFrame]:
    """Yield the rows that may be passed on, of those that were held and those that came, and hold the rest."""
    import pandas as pd  # noqa: PLC0415  # on executors alone, which Spark has asked it of

    new = pa.concat_tables([from_bytes(written) for frame in frames for written in frame[_ROWS]])
    held = from_bytes(state.get[0]) if state.exists else None
    split = split_transactions(held_and_new(held, new), has_ends=has_ends, has_counts=has_counts)
    kept = to_bytes(split.held)
    if len(split.held) and len(kept) > max_held_bytes:
        raise RefusedRowsError(_too_many(split.held, len(kept), max_held_bytes))
    state.update((kept,))
    for first in range(0, len(split.whole), _ROWS_AT_A_TIME):
        yield pd.DataFrame({_ROWS: [to_bytes(split.whole.slice(first, _ROWS_AT_A_TIME))]})


def _too_many(held: pa.Table, size: int, most: int) -> str:
    transactions = held[TRANSACTION].unique().drop_null()  # others wait for one of them
    return (
        f"Cannot keep transactions whole: {len(held)} rows of {len(transactions)} transactions are held, with "
        f"{size} bytes, and max_held_bytes is {most}. Transaction '{transactions[0]}' is one of them. If its end has "
        "yet to come, raise max_held_bytes. If it came, its rows are fewer than its end says: see that all rows of the "
        "feed come here."
    )
