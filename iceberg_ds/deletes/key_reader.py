"""Reads the columns that identify rows from data files: the keys, and the sequence columns where a sequence decides.

Columns are read by field id, with any schema of the table that the file was written with (Iceberg spec, "Column
Projection"); the columns of files without field ids cannot be identified. Keys are converted to one canonical form in
which equal keys are the same bytes with every writer: older files have narrower types, other writers use other labels.
As in Iceberg's Java library, positive and negative zero differ, and NaN equals itself; the spec knows no floating-point
keys. A row of the table wins over an incoming row with its key if its sequence is higher, in the order of the events of
one write (`cdc.dedup`): the first column counts most, a null is lower than every value, NaN is higher than every other
number, and positive and negative zero are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
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
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_ds.cdc.dedup import key_names
from iceberg_ds.cdc.keys import DIGEST, digest_keys, digest_seed, numbers_from
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.io.parquet_files import open_parquet
from iceberg_ds.plan import WritePlan
from iceberg_ds.table.file_types import is_readable
from iceberg_ds.table.lineage import ROW_ID
from iceberg_ds.table.name_mapping import NAME_MAPPING, with_field_ids
from iceberg_ds.table.projection import NO_VALUES, absent, field_id
from iceberg_ds.table.sort_order import ordered_bits
from iceberg_ds.table.variant import is_stored_variant

_PRECISION = 38
_BATCH_ROWS = 131_072
_UUID_BYTES = 16


def canonical_type(field_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of canonical values.

    Raises:
        ValueError: Values of the type cannot be keys.
    """
    match field_type:
        case BooleanType():
            return pa.bool_()
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            return pa.int64()
        case FloatType() | DoubleType():
            return pa.int64()
        case DecimalType(scale=scale):
            return pa.decimal128(_PRECISION, scale)
        case StringType() | BinaryType() | FixedType() | UUIDType():
            return pa.binary()
    raise ValueError(f"a column of type {field_type} cannot be a key")


def canonical(values: pa.Array, field_type: IcebergType) -> pa.Array:
    """Return the values of a column whose type in the table is `field_type`, in canonical form.

    Raises:
        ValueError: The values are neither of that type, nor of a type that it may have been widened from.
    """
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), canonical_type(field_type))
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    match field_type:
        case DateType():
            return values.cast(pa.date32()).view(pa.int32()).cast(pa.int64())
        case TimeType():
            return values.cast(pa.time64("us")).view(pa.int64())
        case TimestampType() | TimestamptzType():
            return _microseconds(values).view(pa.int64())
        case FloatType() | DoubleType():
            wide = values.cast(pa.float64())
            return pc.if_else(pc.is_nan(wide), pa.scalar(math.nan, pa.float64()), wide).view(pa.int64())
    if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    if pa.types.is_large_string(values.type):
        values = values.cast(pa.large_binary())
    return values.cast(canonical_type(field_type))


def _microseconds(values: pa.Array) -> pa.Array:
    if pa.types.is_date(values.type):  # as which the column began
        return values.cast(pa.timestamp("us"))
    if values.type.unit == "ns":  # which a cast would cut towards 1970
        values = pc.floor_temporal(values, unit="microsecond")
    return values.cast(pa.timestamp("us", values.type.tz))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBatch:
    """Some rows of a file.

    Attributes:
        first: Position of the first of these rows in the file.
        columns: Canonical values of the requested columns, in the requested order.
    """

    first: int
    columns: list[pa.Array]


class ColumnReader:
    """The key columns of one Parquet file.

    Args:
        io: Opens the table's storage.
        path: The file.
        wanted: The types of the requested columns in the table, by field id.
        partition_values: The values of the file's identity partition fields, by source column id; any other column
            that the file lacks is null.
        mapping: Tells the columns of a file without field ids; None to refuse such a file.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        wanted: Mapping[int, IcebergType],
        partition_values: Mapping[int, object] = NO_VALUES,
        mapping: NameMapping | None = None,
    ) -> None:
        self.read_bytes = 0
        self._mapping = mapping
        self._io = io
        self._path = path
        self._wanted = wanted
        self._partition_values = partition_values

    def batches(self) -> Iterator[ColumnBatch]:
        """Yield all rows in order.

        Raises:
            UnsupportedTableError: The file does not identify its columns, or has values of other types.
        """
        with self._io.new_input(self._path).open() as stream:
            file = open_parquet(stream)
            steps = self._find(file.schema_arrow)
            names = [".".join(found) for found in steps.values()]
            self.read_bytes += _column_bytes(file.metadata, names)
            if not names:
                yield from self._without_any(file.metadata.num_rows)
                return
            first = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=names):
                yield ColumnBatch(first=first, columns=[self._values(batch, steps, number) for number in self._wanted])
                first += batch.num_rows

    def _find(self, schema: pa.Schema) -> dict[int, tuple[str, ...]]:
        """Return the path of names to each requested column that the file has, by field id."""
        known = dict(_leaves(list(schema), ()))
        is_nameless = None in known
        if is_nameless and self._mapping is not None:
            known = dict(_leaves(list(with_field_ids(schema, self._mapping)), ()))
        told = known.keys() | self._partition_values.keys() | {ROW_ID.field_id}  # a column of Iceberg's own
        missing = [number for number in self._wanted if number not in told]
        if missing and is_nameless:
            raise UnsupportedTableError(
                f"Cannot find rows by key in {self._path}: it does not say which column has field id {missing[0]}, as "
                "files do that were written without Iceberg and added to the table, and it has none by the names in "
                f"the table's property {NAME_MAPPING}. Add the column's name there, or write the file anew with "
                "iceberg_ds.rewrite_data_files first."
            )
        return {number: known[number] for number in self._wanted if number in known}

    def _values(self, batch: pa.RecordBatch, steps: Mapping[int, tuple[str, ...]], number: int) -> pa.Array:
        if number not in steps:
            return self._absent(number, batch.num_rows)
        top, *below = steps[number]
        values = batch.column(batch.schema.get_field_index(top))
        for name in below:
            # Unlike StructArray.field, struct_field makes the child null where the struct is null.
            values = pc.struct_field(values, [name])
        try:
            if not is_readable(values.type, self._wanted[number]):
                raise ValueError("these are other values")  # noqa: TRY301  # one error for all that cannot be read
            return canonical(values, self._wanted[number])
        except (pa.ArrowException, ValueError) as problem:
            raise UnsupportedTableError(
                f"Cannot find rows by key in {self._path}: its column {'.'.join(steps[number])} is {values.type}, "
                f"which cannot be read as the table's {self._wanted[number]}: {problem}."
            ) from problem

    def _without_any(self, rows: int) -> Iterator[ColumnBatch]:
        for first in range(0, rows, _BATCH_ROWS):
            count = min(_BATCH_ROWS, rows - first)
            yield ColumnBatch(first=first, columns=[self._absent(number, count) for number in self._wanted])

    def _absent(self, number: int, count: int) -> pa.Array:
        kind = self._wanted[number]
        return canonical(absent(number, kind, self._partition_values, count), kind)


def _leaves(fields: list[pa.Field], above: tuple[str, ...]) -> Iterator[tuple[int | None, tuple[str, ...]]]:
    """Yield field id and path of names of each column outside lists and maps; the id is None for a field without id."""
    for column in fields:
        path = (*above, column.name)
        number = field_id(column)
        is_struct = pa.types.is_struct(column.type) and not (number is not None and is_stored_variant(column.type))
        if number is None or not is_struct:
            yield number, path
        if is_struct:
            yield from _leaves(list(column.type), path)


def _column_bytes(footer: pq.FileMetaData, names: list[str]) -> int:
    numbers = [number for number in range(footer.num_columns) if footer.schema.column(number).path in names]
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    return sum(group.column(number).total_compressed_size for group in groups for number in numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRule:
    """How rows of the table are compared with incoming rows.

    Attributes:
        types: The types of the sequence columns by field id; the first column counts most.
        key_types: The types of the key columns by field id, in the order in which keys are digested.
        seed: Seed of the digests that the write's tasks report.
    """

    types: Mapping[int, IcebergType]
    key_types: Mapping[int, IcebergType]
    seed: bytes

    @classmethod
    def of(cls, plan: WritePlan) -> SequenceRule | None:
        """Return the rule of a write, or None if the rows that it finds are always replaced."""
        feed = plan.write.changes
        if feed is None or not feed.counts_stored:
            return None
        return cls(
            types={field.field_id: field.field_type for field in feed.sequence},
            key_types={number: plan.schema.find_type(number) for number in feed.key_ids},
            seed=digest_seed(plan.write.operation_id),
        )

    def comparable(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Convert canonical values of the sequence columns to values that Arrow orders as the rule does."""
        return [_comparable(values, of) for values, of in zip(columns, self.types.values(), strict=True)]

    def told_keys(self, columns: Mapping[int, pa.Array]) -> pa.Table:
        """Return keys with the digests that tasks report for them, from their canonical values by field id."""
        digests = digest_keys([_as_written(columns[number], of) for number, of in self.key_types.items()], self.seed)
        keys = [columns[number] for number in self.key_types]
        return pa.Table.from_arrays([digests, *keys], names=[DIGEST, *key_names(keys)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Incoming rows, in ascending order of their sequences.

    Attributes:
        sequence: Comparable values of the sequence columns.
        keys: Keys of the rows, with the digests that tasks report for them.
    """

    sequence: Sequence[pa.Array]
    keys: pa.Table

    def lose(self, rows: pa.Array, stored: Sequence[pa.Array]) -> pa.Array:
        """Return for each of these incoming rows whether it loses to a row of the table.

        Args:
            rows: Numbers of the incoming rows.
            stored: The comparable sequence of the table's row that each incoming row is compared with.
        """
        return is_higher(stored, [column.take(rows) for column in self.sequence])


def ascending(sequence: Sequence[pa.Array]) -> pa.Array:
    """Return the positions of rows in the order of their comparable sequences."""
    # Arrow puts nulls last.
    columns = [key for column in sequence for key in (column.is_valid(), column)]
    names = [str(number) for number in range(len(columns))]
    rows = pa.RecordBatch.from_arrays(columns, names=names)
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])


def is_higher(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> pa.Array:
    """Return for each row whether its comparable sequence in `one` is higher than that in `other`."""
    higher = pa.repeat(pa.scalar(value=False), len(one[0]))
    is_open = pa.repeat(pa.scalar(value=True), len(one[0]))
    for mine, others in zip(one, other, strict=True):
        is_above = pc.fill_null(pc.greater(mine, others), pc.and_(mine.is_valid(), others.is_null()))
        is_same = pc.fill_null(pc.equal(mine, others), pc.and_(mine.is_null(), others.is_null()))
        higher = pc.or_(higher, pc.and_(is_open, is_above))
        is_open = pc.and_(is_open, is_same)
    return higher


def _comparable(values: pa.Array, field_type: IcebergType) -> pa.Array:
    match field_type:
        case FloatType() | DoubleType():
            # Adding 0.0 removes the sign of zeros.
            return ordered_bits(pc.add(values.view(pa.float64()), pa.scalar(0.0)))
        case BooleanType():
            return values.cast(pa.int8())
    return values


def _as_written(values: pa.Array, field_type: IcebergType) -> pa.Array:
    """Return canonical values in the type that files have, where the type changes the digest."""
    match field_type:
        case FixedType():
            return values.cast(pa.binary(len(field_type)))
        case UUIDType():
            return values.cast(pa.binary(_UUID_BYTES))
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """Some rows of a file.

    Attributes:
        first: Position of the first of these rows in the file.
        keys: Canonical values of the key columns.
        sequence: Comparable values of the sequence columns; empty without a rule.
        row_ids: The row ids that the file has in a column, null where a row inherits its id; None if not asked for.
    """

    first: int
    keys: list[pa.Array]
    sequence: list[pa.Array]
    row_ids: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.keys[0])

    @property
    def positions(self) -> pa.Array:
        """Positions of these rows in the file, from 0."""
        return numbers_from(self.first, len(self))

    @property
    def nbytes(self) -> int:
        """Arrow bytes of all columns."""
        return sum(int(column.nbytes) for column in (*self.keys, *self.sequence))


class KeyedRowReader:
    """Reads the key columns of files, and the sequence columns if there is a rule.

    Args:
        io: Opens the table's storage.
        types: The types of the key columns, by field id, in the order of the result.
        rule: How rows are compared by sequence; None to compare no rows.
        with_ids: Whether row ids are read, too.
        mapping: As for `ColumnReader`.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(
        self,
        io: FileIO,
        types: Mapping[int, IcebergType],
        rule: SequenceRule | None = None,
        *,
        with_ids: bool = False,
        mapping: NameMapping | None = None,
    ) -> None:
        self.read_bytes = 0
        self._mapping = mapping
        self.types = types
        self.rule = rule
        self._io = io
        self._with_ids = with_ids
        ids = {ROW_ID.field_id: ROW_ID.field_type} if with_ids else {}
        self._wanted = {**types, **({} if rule is None else rule.types), **ids}

    def read(self, path: str, partition_values: Mapping[int, object] = NO_VALUES) -> Iterator[KeyedRows]:
        """Yield all rows of a file in order.

        Args:
            path: The file.
            partition_values: The values of its identity partition fields, by source column id.

        Raises:
            UnsupportedTableError: The file cannot be read.
        """
        reader = ColumnReader(self._io, path, self._wanted, partition_values, self._mapping)
        for batch in reader.batches():
            values = dict(zip(self._wanted, batch.columns, strict=True))
            keys = [values[number] for number in self.types]
            ordered = [] if self.rule is None else [values[number] for number in self.rule.types]
            sequence = [] if self.rule is None else self.rule.comparable(ordered)
            row_ids = values[ROW_ID.field_id] if self._with_ids else None
            yield KeyedRows(first=batch.first, keys=keys, sequence=sequence, row_ids=row_ids)
        self.read_bytes += reader.read_bytes
