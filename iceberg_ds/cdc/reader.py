"""Pure: reads the batches of a change feed: for a write by keys as events of keys, for an append as rows to write.

Refused rows of a write by keys are counted and left out; the commit says what was wrong with them. Only columns that a
row needs are read: for a delete the key and the sequence, so that nulls in its other columns do no harm. Both readers
fill in the columns that a write adds to those of the DataFrame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from iceberg_ds.cdc.dedup import NUMBER, RANK, Rank, key_names, key_report_schema, sequence_names
from iceberg_ds.cdc.keys import DIGEST, digest_keys, plain, plain_type
from iceberg_ds.cdc.row_kind import (
    RowKind,
    are_lone_updates,
    count_words,
    describe_words,
    operation_names,
    read_operations,
    with_deletes,
)
from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.plan import (
    DIFF,
    EPOCH_ID,
    EXTRACTED_AT,
    MAX_EXAMPLES,
    OPERATION,
    AddedColumns,
    ChangeFeed,
    DeleteMark,
    KeyExamples,
)
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.names import find_sources
from iceberg_ds.table.nested_fields import all_optional

_INSTANT = pa.timestamp("us", tz="UTC")
_KIND_NAMES = {RowKind.INSERT: "insert", RowKind.UPSERT: "upsert"}

IS_KNOWN = "is_known"

# Most bytes of a key that is reported for every row; the commit reads longer keys from files where it needs them.
_REPORTED_KEY_BYTES = 16

DeleteTest: TypeAlias = Callable[[pa.RecordBatch], pa.Array]


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
        is_delete: Tells which rows satisfy `delete_when`; None if there is no `delete_when`.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A batch of a feed, as events and as rows.

    Attributes:
        events: What happens to which key: digest, key, sequence, rank, the row's number if it has one, and whether the
            table may have the key already.
        rows: The rows that may be written; after the table's columns come digest, key if it is reported for every
            row, sequence, and rank if deletes leave rows.
        keys: The key columns of `events`.
    """

    events: pa.RecordBatch
    rows: pa.RecordBatch
    keys: list[pa.Array]


class FeedReader:
    """Reads the batches of one task.

    Args:
        feed: How rows are read.
        schema: The table's schema.
        case_sensitive: How the DataFrame's columns are found, see `find_position`.
        seed: Seed of the digests: 8 bytes, the same in all tasks of the write.
        is_delete: Tells which rows satisfy the feed's `delete_when`; None if there is no `delete_when`.
        added: Columns to fill in, or None.
    """

    def __init__(  # noqa: PLR0913  # most are given by name
        self,
        feed: ChangeFeed,
        schema: Schema,
        *,
        case_sensitive: bool | None,
        seed: bytes,
        is_delete: DeleteTest | None = None,
        added: AddedColumns | None = None,
    ) -> None:
        self.feed = feed
        self.unknown_operations: Counter[str] = Counter()
        self.null_keys = KeyExamples()
        self.sent_key_types: list[pa.DataType] = []
        self._seed = seed
        self._is_delete = is_delete
        self._filler = None if added is None else ColumnFiller(added)
        self._shape = file_shape(schema, case_sensitive=case_sensitive)
        positions = {field.field_id: position for position, field in enumerate(schema.fields)}
        self._key_positions = [positions[field_id] for field_id in feed.key_ids]
        self.key_fields = [schema.fields[position] for position in self._key_positions]
        self._key_shape = file_shape(all_optional(self.key_fields))
        self._sequence_shape = file_shape(all_optional(feed.sequence))
        self.key_schema = pa.schema([field.with_nullable(nullable=False) for field in self._key_shape.schema])
        stored = [schema.find_field(field.field_id) for field in feed.sequence] if feed.counts_stored else []
        self.delete_schema = pa.schema([*self.key_schema, *file_shape(all_optional(stored)).schema])
        # Renamed, because a key column of the table may have the name of another event column.
        keys = _renamed(key_names(self.key_fields), self.key_schema)
        sequence = _renamed(sequence_names(feed.sequence), self._sequence_shape.schema)
        self._reports_keys = _are_short(self.key_schema.types)
        digest = pa.field(DIGEST, pa.uint64())
        ranks = [pa.field(RANK, pa.int32())] if feed.keeps_deleted else []
        reported = keys if self._reports_keys else []
        self.row_schema = pa.schema([*self._shape.schema, digest, *reported, *sequence, *ranks])
        self.key_report_schema = key_report_schema(keys, sequence)
        outcome = [pa.field(RANK, pa.int32()), pa.field(NUMBER, pa.int64()), pa.field(IS_KNOWN, pa.bool_())]
        self._event_schema = pa.schema([digest, *keys, *sequence, *outcome])

    def read(self, batch: pa.RecordBatch, first_number: int) -> Changes:
        """Return the changes of a batch without its refused rows, which are counted.

        Args:
            batch: As Spark sent it.
            first_number: The number of the first row that may be written.

        Raises:
            SchemaMismatchError: A required column holds a null in a row that is to be written, or a value does not fit.
        """
        kinds = self._kinds(batch)
        sources = find_sources(batch.schema.names, self._shape.named.names, case_sensitive=self._shape.case_sensitive)
        chosen = [sources[position] for position in self._key_positions]
        self.sent_key_types = [batch.schema.field(source).type for source in chosen]
        keys = conform(batch.select(chosen).rename_columns(self._key_shape.named.names), self._key_shape)
        is_good = self._good(kinds, keys)
        if is_good is not None:
            batch, kinds, keys = batch.filter(is_good), kinds.filter(is_good), keys.filter(is_good)
        return self._changes(batch, kinds, keys, first_number)

    def keys_of(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the keys of events."""
        return pa.RecordBatch.from_arrays(self._key_columns(events), schema=self.key_schema)

    def deletes_of(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the keys of events as delete files hold them, with the sequence if that of the table's rows counts."""
        # Sequences follow keys in both schemas.
        columns = events.columns[1 : 1 + len(self.delete_schema)]
        return pa.RecordBatch.from_arrays(columns, schema=self.delete_schema)

    def report_of_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the key report of events without a row."""
        sequence = events.columns[1 + len(self.key_fields) : 1 + len(self.key_fields) + len(self.feed.sequence)]
        ranks = events.column(RANK).cast(pa.int8())
        never = pa.repeat(pa.scalar(value=False), events.num_rows)
        return self._key_report(events.column(DIGEST), self._key_columns(events), [*sequence, ranks, never])

    def report_of_rows(self, written: pa.RecordBatch) -> pa.RecordBatch:
        """Return the key report of rows, from their columns after the table's; the last of these is `IS_TIED`."""
        digests, *columns, is_tied = written.columns
        count = len(self.key_fields) if self._reports_keys else 0
        keys, columns = columns[:count], columns[count:]
        if self.feed.keeps_deleted:
            ranks = columns.pop().cast(pa.int8())
        else:
            ranks = pa.repeat(pa.scalar(Rank.ROW, pa.int8()), written.num_rows)
        return self._key_report(digests, keys, [*columns, ranks, is_tied])

    def _key_columns(self, events: pa.RecordBatch) -> list[pa.Array]:
        return list(events.columns[1 : 1 + len(self.key_fields)])

    def _key_report(self, digests: pa.Array, keys: Sequence[pa.Array], others: Sequence[pa.Array]) -> pa.RecordBatch:
        said = [plain(column) for column in keys]
        unsaid = [] if keys else [pa.nulls(len(digests), plain_type(of)) for of in self.key_schema.types]
        return pa.RecordBatch.from_arrays([digests, *said, *unsaid, *others], schema=self.key_report_schema)

    def _kinds(self, batch: pa.RecordBatch) -> pa.Array:
        if self.feed.operation_column is None:
            kinds = pa.repeat(pa.scalar(RowKind.UPSERT, pa.int8()), batch.num_rows)
        else:
            operations = read_operations(batch.column(self.feed.operation_column))
            count_words(self.unknown_operations, operations.unknown)
            kinds = operations.kinds
        return kinds if self._is_delete is None else with_deletes(kinds, self._is_delete(batch))

    def _good(self, kinds: pa.Array, keys: pa.RecordBatch) -> pa.Array | None:
        """Return which rows are not refused, or None if all are good; count the rows without a key."""
        if not kinds.null_count and not any(column.null_count for column in keys.columns):
            return None
        is_known, has_key = kinds.is_valid(), kinds.is_valid()
        for column in keys.columns:
            has_key = pc.and_(has_key, column.is_valid())
        without = keys.filter(pc.and_not(is_known, has_key))
        wanted = MAX_EXAMPLES - len(self.null_keys.examples)
        self.null_keys = KeyExamples(
            count=self.null_keys.count + without.num_rows,
            examples=(*self.null_keys.examples, *key_texts(without.slice(0, wanted))),
        )
        return has_key

    def _changes(self, batch: pa.RecordBatch, kinds: pa.Array, keys: pa.RecordBatch, first_number: int) -> Changes:
        named = [field.name for field in self.feed.sequence]
        found = conform(batch.select(named).rename_columns(self._sequence_shape.named.names), self._sequence_shape)
        sequence = [_without_signs_of_zeros(column) for column in found.columns]
        digests = digest_keys(keys.columns, self._seed)
        is_row = pc.greater_equal(kinds, pa.scalar(RowKind.UPSERT, pa.int8()))
        ranks = pc.if_else(is_row, pa.scalar(Rank.ROW, pa.int8()), kinds).cast(pa.int32())
        described = [digests, *(keys.columns if self._reports_keys else []), *sequence]
        filled = batch if self._filler is None else self._filler.fill(batch, kinds, self.feed.operation_column)
        if self.feed.keeps_deleted:
            self._check_deleted(filled, is_row)
            is_written, of_rows = pa.repeat(pa.scalar(value=True), batch.num_rows), [*described, ranks]
        else:
            is_written, of_rows = is_row, described
        events = [
            digests,
            *keys.columns,
            *sequence,
            ranks,
            _numbered(is_written, first_number),
            self._may_be_known(kinds),
        ]
        return Changes(
            events=pa.RecordBatch.from_arrays(events, schema=self._event_schema),
            rows=self._rows(filled, of_rows, is_written),
            keys=keys.columns,
        )

    def _check_deleted(self, batch: pa.RecordBatch, is_row: pa.Array) -> None:
        """Refuse deletes that cannot be kept as rows, because they have a null in a required column."""
        named, is_delete = self._shape.named, pc.invert(is_row)
        sources = find_sources(batch.schema.names, named.names, case_sensitive=self._shape.case_sensitive)
        for field, source in zip(named, sources, strict=True):
            if field.nullable or source is None:
                continue
            lacking = pc.and_(is_delete, batch.column(source).is_null()).true_count
            if lacking:
                raise SchemaMismatchError(
                    f"Cannot keep deleted rows: column '{field.name}' is required in the table, and {lacking} deletes "
                    f"of {batch.num_rows} rows here have a null in it. Make it optional, fill it in the DataFrame, or "
                    "drop soft-delete-column, so that deletes take rows away."
                )

    def _rows(self, batch: pa.RecordBatch, described: Sequence[pa.Array], is_written: pa.Array) -> pa.RecordBatch:
        if is_written.true_count < batch.num_rows:
            batch, described = batch.filter(is_written), [column.filter(is_written) for column in described]
        return pa.RecordBatch.from_arrays([*conform(batch, self._shape).columns, *described], schema=self.row_schema)

    def _may_be_known(self, kinds: pa.Array) -> pa.Array:
        if not self.feed.trusts_inserts:
            return pa.repeat(pa.scalar(value=True), len(kinds))
        return pc.not_equal(kinds, pa.scalar(RowKind.INSERT, pa.int8()))


def key_texts(keys: pa.RecordBatch) -> list[str]:
    """Return keys as readable text."""
    try:
        return [str(key) for key in keys.to_pylist()]
    except (ValueError, OverflowError):  # Spark has text that is not UTF-8, and dates that Python lacks
        readable = [_readable(column) for column in keys.columns]
        return [str(key) for key in pa.RecordBatch.from_arrays(readable, names=keys.schema.names).to_pylist()]


def _readable(values: pa.Array) -> pa.Array:
    if pa.types.is_string(values.type):
        return values.cast(pa.binary())
    is_time = pa.types.is_date32(values.type) or pa.types.is_timestamp(values.type)
    return values.cast(pa.string()) if is_time else values


def _renamed(names: Sequence[str], fields: Iterable[pa.Field]) -> list[pa.Field]:
    return [pa.field(name, field.type) for name, field in zip(names, fields, strict=True)]


def _are_short(types: Iterable[pa.DataType]) -> bool:
    """Return whether keys of these types have at most `_REPORTED_KEY_BYTES` bytes for all values."""
    stored = [of.storage_type if isinstance(of, pa.BaseExtensionType) else of for of in types]
    if any(pa.types.is_string(of) or pa.types.is_binary(of) for of in stored):
        return False
    return bool(sum(of.bit_width for of in stored) <= 8 * _REPORTED_KEY_BYTES)


def _numbered(is_row: pa.Array, first: int) -> pa.Array:
    """Return ascending numbers from `first` on where `is_row` is true, null elsewhere."""
    numbers = pc.cumulative_sum(is_row.cast(pa.int64()), start=first - 1)
    return pc.if_else(is_row, numbers, pa.scalar(None, pa.int64()))


def _without_signs_of_zeros(values: pa.Array) -> pa.Array:
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
