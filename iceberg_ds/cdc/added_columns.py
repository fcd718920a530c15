"""Pure: fills in the columns that a write adds to those of the DataFrame.

For a keyed write (`reader`) and for an append, whose rows may be those of a change feed as well (`AppendedFeed`).
Knows only Arrow.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.cdc.row_kind import (
    RowKind,
    are_lone_updates,
    describe_words,
    operation_names,
    read_operations,
    with_deletes,
)
from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.plan import DIFF, EPOCH_ID, EXTRACTED_AT, OPERATION, AddedColumns, DeleteMark

_INSTANT = pa.timestamp("us", tz="UTC")
_KIND_NAMES = {RowKind.INSERT: "insert", RowKind.UPSERT: "upsert"}


class ColumnFiller:
    """Fills in the columns of one task.

    Args:
        added: Which columns, and with what.
    """

    def __init__(self, added: AddedColumns) -> None:
        self._added = added

    def fill(self, batch: pa.RecordBatch, kinds: pa.Array, operation_column: str | None) -> pa.RecordBatch:
        """Return the batch with the added columns at its end; a delete mark that the batch has stays in its place.

        Args:
            batch: As Spark sent it.
            kinds: What each row does, a `RowKind` as int8.
            operation_column: The batch's column of operations, None if all rows do the same.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in self._added.names:
            columns[name] = self._values(name, batch, kinds, operation_column)
        if (mark := self._added.mark) is not None:
            is_deleted = pc.less_equal(kinds, pa.scalar(RowKind.DELETE, pa.int8()))
            columns[mark.column] = self._marks(mark, columns.get(mark.column), is_deleted)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _values(self, name: str, batch: pa.RecordBatch, kinds: pa.Array, operation_column: str | None) -> pa.Array:
        match name:
            case _ if name == EXTRACTED_AT:
                return pa.repeat(pa.scalar(self._added.instant_us, _INSTANT), batch.num_rows)
            case _ if name == EPOCH_ID:
                return pa.repeat(pa.scalar(self._added.number, pa.int64()), batch.num_rows)
            case _ if name == DIFF:
                is_row = pc.greater_equal(kinds, pa.scalar(RowKind.UPSERT, pa.int8()))
                return pc.if_else(is_row, pa.scalar(1, pa.int32()), pa.scalar(-1, pa.int32()))
        assert name == OPERATION  # noqa: S101  # there are no others
        return _names(batch, kinds, operation_column)

    def _marks(self, mark: DeleteMark, own: pa.Array | None, is_deleted: pa.Array) -> pa.Array:
        if not mark.is_time:
            return is_deleted
        data_type = own.type if own is not None else pa.timestamp("us", tz="UTC" if mark.has_zone else None)
        instant = pa.scalar(self._added.instant_us, pa.timestamp("us", tz=data_type.tz)).cast(data_type)
        times = instant if own is None else pc.coalesce(own, instant)
        return pc.if_else(is_deleted, times, pa.scalar(None, data_type))


class AppendedFeed:
    """Reads the batches of one task of a write without keys, in which every event becomes a row.

    Args:
        added: Which columns to fill in.
        is_delete: Tells which rows satisfy `delete_when`; None without `delete_when`.
    """

    def __init__(self, added: AddedColumns, is_delete: Callable[[pa.RecordBatch], pa.Array] | None = None) -> None:
        self._added = added
        self._filler = ColumnFiller(added)
        self._is_delete = is_delete

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch as Spark sent it with the added columns.

        Raises:
            SchemaMismatchError: An operation is unknown, or is an update without its before image although the
                difference column is asked for.
        """
        kinds = pa.repeat(pa.scalar(RowKind.INSERT, pa.int8()), batch.num_rows)
        if self._added.operation_column is not None:
            operations = read_operations(batch.column(self._added.operation_column))
            if operations.unknown:
                words = ", ".join(f"{word} ({count} rows)" for word, count in operations.unknown.most_common())
                raise SchemaMismatchError(
                    f"Cannot write these rows: operation column '{self._added.operation_column}' has {words}, and "
                    f"known words are {describe_words()}: filter or translate them."
                )
            kinds = operations.kinds
        if self._is_delete is not None:
            kinds = with_deletes(kinds, self._is_delete(batch))
        if DIFF in self._added.names and self._added.operation_column is not None:
            _refuse_lone_updates(batch.column(self._added.operation_column), kinds)
        return self._filler.fill(batch, kinds, self._added.operation_column)


def _names(batch: pa.RecordBatch, kinds: pa.Array, operation_column: str | None) -> pa.Array:
    if operation_column is None:
        names = pa.array([_KIND_NAMES.get(RowKind(kind)) for kind in range(len(RowKind))], pa.string()).take(kinds)
    else:
        names = operation_names(batch.column(operation_column))
    is_delete = pc.equal(kinds, pa.scalar(RowKind.DELETE, pa.int8()))
    return pc.if_else(is_delete, pa.scalar("delete"), names)


def _refuse_lone_updates(words: pa.Array, kinds: pa.Array) -> None:
    is_lone = pc.and_(are_lone_updates(words), pc.equal(kinds, pa.scalar(RowKind.UPSERT, pa.int8())))
    if is_lone.true_count:
        raise SchemaMismatchError(
            f"Cannot write these rows: {is_lone.true_count} of {len(words)} rows here are updates without the row "
            f"that they replace (such as {words.filter(is_lone)[0].as_py()!r}), so that '{DIFF}' would not add up. "
            "Take both images out of the change, as -U and +U, or drop the column from metadata-columns."
        )
