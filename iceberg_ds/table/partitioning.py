"""Pure: the partition values of rows, and the split of a batch by them.

A batch is never filtered once per partition: its rows get one integer code per partition, are ordered
by it and taken range by range, so the cost does not grow with the number of partitions times the
number of rows. Source: Iceberg spec, "Partitioning" and "Partition Transforms".
"""

from __future__ import annotations

import decimal
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.transforms import (
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, FixedType, IcebergType, IntegerType, LongType, StringType, StructType

from iceberg_ds.errors import SchemaMismatchError

_DECIMAL_BYTES = 16
_WIDE = decimal.Context(prec=40)
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
_DAY_US = 24 * 3600 * 10**6
# Hours are 32-bit integers.
_HOUR_LIMIT_US = 2**31 * 3600 * 10**6


class PartitionKey:
    """The partition tuple of a file in one form, from a task or from a manifest; empty if unpartitioned.

    Equal keys of one spec are one partition. As in Iceberg's Java library, NaN is equal to itself, and -0 and 0 are
    two values.

    Args:
        values: The values that a task or a manifest has.

    Attributes:
        values: The physical values that manifests hold, UUIDs as bytes.
        text: The values as text, by which keys are compared.
    """

    __slots__ = ("text", "values")

    def __init__(self, values: Iterable[object]) -> None:
        self.values = tuple(map(_physical, values))
        self.text = repr(self.values)

    def __eq__(self, other: object) -> bool:
        """Return whether both are one partition, if they are of one spec."""
        return isinstance(other, PartitionKey) and self.text == other.text

    def __hash__(self) -> int:
        """Return a hash that is the same for equal keys."""
        return hash(self.text)

    def __repr__(self) -> str:
        """Return the values."""
        return f"PartitionKey({self.text})"

    @classmethod
    def of(cls, partition: Record) -> PartitionKey:
        """Return the key of the tuple that a manifest or a task has."""
        return cls(partition[position] for position in range(len(partition)))

    def record(self) -> Record:
        """Return the tuple as PyIceberg's manifest writer and its expressions take it."""
        return Record(*self.values)


def place_of(data_file: DataFile) -> tuple[int, str]:
    """Return the partition of a file as a sortable key: spec id and text."""
    return data_file.spec_id, PartitionKey.of(data_file.partition).text


def identity_values(data_file: DataFile, spec: PartitionSpec) -> dict[int, object]:
    """Return the physical values of a file's identity partition fields, by the ids of their columns.

    All rows of the file have these values, so the file need not hold the columns (spec, "Column Projection").
    """
    if spec.is_unpartitioned():
        return {}
    values = PartitionKey.of(data_file.partition).values
    return {
        part.source_id: value
        for part, value in zip(spec.fields, values, strict=True)
        if isinstance(part.transform, IdentityTransform)
    }


def partition_path(partition: Record, spec: PartitionSpec, schema: Schema) -> str:
    """Return the path of a partition, such as `day=2026-11-21/region=EU`."""
    try:
        return spec.partition_to_path(partition, schema)
    except OverflowError:  # Python's dates end with the year 9999, Spark's do not
        parts = ((field.name, str(partition[position])) for position, field in enumerate(spec.fields))
        return "/".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in parts)


@dataclass(frozen=True)
class PartitionPath:
    """The folder of a partition, in the form that PyIceberg's location providers expect."""

    partition: Record
    spec: PartitionSpec
    schema: Schema

    def to_path(self) -> str:
        """Return the folder."""
        return partition_path(self.partition, self.spec, self.schema)


def has_sources(spec: PartitionSpec, schema: Schema) -> bool:
    """Return whether the table still has the source columns of a spec, which name its folders."""
    known = schema.field_ids
    return all(part.source_id in known or isinstance(part.transform, VoidTransform) for part in spec.fields)


def why_not_readable(spec: PartitionSpec, schema: Schema) -> list[str]:
    """Return why readers could not read manifests of `spec`, one sentence per reason; empty if they can."""
    live = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    reasons = [
        f"partition field '{field.name}' is a {schema.find_type(field.source_id)} as it is, which Iceberg's Java and "
        "Python readers take for different values: use bucket"
        for field in live
        if isinstance(field.transform, IdentityTransform) and isinstance(schema.find_type(field.source_id), FixedType)
    ]
    names: dict[str, list[str]] = defaultdict(list)
    for field in spec.fields:
        names[make_compatible_name(field.name)].append(field.name)
    reasons += [
        f"partition fields {', '.join(map(repr, alike))} have the same name in manifests: rename one"
        for alike in names.values()
        if len(alike) > 1
    ]
    return reasons


class PartitionSplitter:
    """Splits batches of one schema by one partition spec.

    Args:
        spec: The partition spec.
        schema: The table's schema, whose columns the batches have in this order.

    Raises:
        ValueError: A transform is unknown, so its values cannot be computed.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        unknown = [field.name for field in spec.fields if isinstance(field.transform, UnknownTransform)]
        if unknown:
            raise ValueError(f"partition fields {unknown} have unknown transforms")
        self._schema = schema
        self._columns = [(field, _position_path(schema, field)) for field in spec.fields]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
        """Yield each partition in `batch` with its rows, copied, in their order in the batch.

        Raises:
            SchemaMismatchError: A value has no partition value, because it would overflow or is text that is not UTF-8.
        """
        columns = [self._partition_values(batch, field, path) for field, path in self._columns]
        encoded = [_encoded(column) for column in columns]
        codes = _combine([part.indices for part in encoded])
        order = pc.sort_indices(codes)
        runs = pc.run_end_encode(codes.take(order))
        start = 0
        for end in runs.run_ends.to_pylist():
            first = order[start].as_py()
            values = tuple(part.dictionary[part.indices[first].as_py()].as_py() for part in encoded)
            yield PartitionKey(values), batch.take(order.slice(start, end - start))
            start = end

    def _partition_values(self, batch: pa.RecordBatch, field: PartitionField, path: tuple[int, ...]) -> pa.Array:
        if isinstance(field.transform, VoidTransform):
            return pa.nulls(batch.num_rows, pa.int32())
        source = batch.column(path[0])
        for position in path[1:]:
            source = pc.struct_field(source, position)
        source_type = self._schema.find_type(field.source_id)
        _check_text(source, self._schema.find_column_name(field.source_id))
        values = apply_transform(field.transform, source_type, source)
        if not _is_exact(values, source, source_type, field.transform):
            raise SchemaMismatchError(
                f"Cannot write a row whose value of column '{self._schema.find_column_name(field.source_id)}' is out "
                f"of range for partition field '{field.name}', {field.transform} of {source_type}: no reader would "
                "find the row. Filter or change such values, or partition by another transform."
            )
        return _as_physical(values)


def may_be_unfindable(source_type: IcebergType, transform: Transform[Any, Any]) -> bool:
    """Return whether some value of a column has no partition value, so that no reader would find its row."""
    match transform, source_type:
        case VoidTransform(), _:
            return False
        case _, StringType():
            return True
        case TruncateTransform(), IntegerType() | LongType() | DecimalType():
            return True
        case HourTransform(), _:
            return True
    return False


def unfindable(values: pa.Array, source_type: IcebergType, transform: Transform[Any, Any]) -> pa.Array | None:
    """Return which values of a column have no partition value, or None if all have one.

    These are the values that `PartitionSplitter.split` refuses: those whose value would overflow, and text that is not
    UTF-8.
    """
    mask: pa.Array | None = None
    match transform, source_type:
        case _, StringType():
            mask = _is_no_text(values)
        case TruncateTransform(width=width), IntegerType() | LongType():
            mask = pc.less(values, pa.scalar(-(-source_type.min // width) * width, values.type))
        case TruncateTransform(width=width), DecimalType(precision=precision, scale=scale):
            lowest = -((10**precision - 1) // width) * width
            mask = pc.less(values, pa.scalar(decimal.Decimal(lowest).scaleb(-scale, _WIDE), values.type))
        case HourTransform(), _:
            microseconds = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
            mask = pc.or_(pc.less(microseconds, -_HOUR_LIMIT_US), pc.greater_equal(microseconds, _HOUR_LIMIT_US))
    return None if mask is None or not mask.true_count else pc.fill_null(mask, False)  # noqa: FBT003  # Arrow's signature


def _is_no_text(values: pa.Array) -> pa.Array | None:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([raw is not None and not _is_utf8(raw) for raw in values.cast(pa.binary()).to_pylist()])
    return None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_text(values: pa.Array, column: str | None) -> None:
    """Refuse text that is not UTF-8, which Spark can hold and a partition value cannot."""
    if not pa.types.is_string(values.type):
        return
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise SchemaMismatchError(
            f"Cannot write a row whose value of column '{column}' is no UTF-8, because the table is partitioned by it: "
            f"{problem}. Filter or change such values, or write them as binary."
        ) from problem


def apply_transform(transform: Transform[Any, Any], source_type: IcebergType, values: pa.Array) -> pa.Array:
    """Return the transformed values of an array, at any address in memory.

    PyIceberg's native code aborts on decimals that do not start at a multiple of 16 bytes in memory, and Spark's
    decimals do not; such arrays are copied.
    """
    if pa.types.is_decimal(values.type):
        data = values.buffers()[1]
        if data is not None and data.address % _DECIMAL_BYTES:
            values = pa.concat_arrays([values, values.slice(0, 0)])
    transformed = transform.pyarrow_transform(source_type)(values)
    # PyIceberg's native code makes values of years beyond 262,143 null; Spark and the spec know such years.
    if isinstance(transform, YearTransform | MonthTransform) and transformed.null_count > values.null_count:
        months = _months(values)
        transformed = _floor_divide(months, 12) if isinstance(transform, YearTransform) else months
        return transformed.cast(pa.int32())
    return transformed


def _months(values: pa.Array) -> pa.Array:
    """Return the months from 1970-01 to dates or timestamps of any year (proleptic Gregorian)."""
    if pa.types.is_date32(values.type):
        days = values.view(pa.int32()).cast(pa.int64())
    else:
        days = _floor_divide(values.cast(_microseconds(values.type)).view(pa.int64()), _DAY_US)
    # Years begin in March here, so that the leap day is the last; 146,097 days are 400 years.
    days = pc.add(days, 719_468)
    era = _floor_divide(days, 146_097)
    day_of_era = pc.subtract(days, pc.multiply(era, 146_097))
    leap_days = pc.subtract(
        pc.add(pc.divide(day_of_era, 1_460), pc.divide(day_of_era, 146_096)), pc.divide(day_of_era, 36_524)
    )
    year_of_era = pc.divide(pc.subtract(day_of_era, leap_days), 365)
    before = pc.add(pc.multiply(year_of_era, 365), pc.subtract(pc.divide(year_of_era, 4), pc.divide(year_of_era, 100)))
    month_of_year = pc.divide(pc.add(pc.multiply(pc.subtract(day_of_era, before), 5), 2), 153)
    months = pc.add(pc.multiply(pc.add(year_of_era, pc.multiply(era, 400)), 12), month_of_year)
    return pc.add(months, 2 - 12 * 1970)


def _floor_divide(values: pa.Array, by: int) -> pa.Array:
    quotients = pc.divide(values, by)  # towards zero
    return pc.subtract(quotients, pc.greater(pc.multiply(quotients, by), values).cast(pa.int64()))


def _position_path(schema: Schema, partition_field: PartitionField) -> tuple[int, ...]:
    """Return the positions that lead from a batch to the field's (possibly nested) source."""
    if isinstance(partition_field.transform, VoidTransform):
        return ()  # the source may have been dropped

    def search(parent: StructType) -> tuple[int, ...] | None:
        for position, field in enumerate(parent.fields):
            if field.field_id == partition_field.source_id:
                return (position,)
            if isinstance(field.field_type, StructType) and (rest := search(field.field_type)) is not None:
                return (position, *rest)
        return None

    path = search(schema.as_struct())
    if path is None:
        raise ValueError(f"partition field '{partition_field.name}' has a source that is dropped, or in a list or map")
    return path


def _is_exact(values: pa.Array, source: pa.Array, source_type: IcebergType, transform: Transform[Any, Any]) -> bool:
    """Return whether no partition value has overflowed, which would wrap it around or make it null."""
    if values.null_count != source.null_count:
        return False
    match transform, source_type:
        case TruncateTransform(width=width), IntegerType() | LongType():
            lowest = pc.min(source).as_py()
            return lowest is None or lowest - lowest % width >= source_type.min
        case TruncateTransform(), DecimalType(precision=precision, scale=scale):
            lowest = pc.min(values).as_py()
            return lowest is None or lowest >= decimal.Decimal((1, (9,) * precision, -scale))
        case HourTransform(), _:
            span = pc.min_max(source.cast(pa.timestamp("us", source.type.tz)).view(pa.int64())).as_py()
            return span["min"] is None or -_HOUR_LIMIT_US <= span["min"] <= span["max"] < _HOUR_LIMIT_US
    return True


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    """Return the values with a code for each distinct value, null included; floats differ if their bits do."""
    if not pa.types.is_floating(values.type):
        return values.dictionary_encode(null_encoding="encode")
    bits = values.view(_BITS[values.type]).dictionary_encode(null_encoding="encode")
    return pa.DictionaryArray.from_arrays(bits.indices, bits.dictionary.view(values.type))


def _combine(codes: list[pa.Array]) -> pa.Array:
    """Return one integer per row, different for rows that differ in any of `codes`."""
    combined = codes[0].cast(pa.int64())
    for column in codes[1:]:
        width = pc.max(column).as_py() + 1
        mixed = pc.add(pc.multiply(combined, pa.scalar(width, pa.int64())), column.cast(pa.int64()))
        combined = mixed.dictionary_encode().indices.cast(pa.int64())  # small again, so the next never overflows
    return combined


def _as_physical(values: pa.Array) -> pa.Array:
    """Return dates as days, times as microseconds and UUIDs as bytes, as manifests hold them."""
    if isinstance(values.type, pa.BaseExtensionType):
        return values.storage
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    if pa.types.is_floating(values.type):  # all NaN are one value, with any bits
        return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        return values.cast(_microseconds(values.type)).view(pa.int64())
    return values


def _physical(value: object) -> object:
    """Return the value as manifests hold it: PyIceberg reads UUIDs as `UUID`, and compares them as bytes."""
    return value.bytes if isinstance(value, UUID) else value


def _microseconds(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_time64(data_type):
        return pa.time64("us")
    return pa.timestamp("us", data_type.tz)
