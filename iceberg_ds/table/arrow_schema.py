"""Pure: Arrow types of a table's columns, the Arrow schema of its files, and casts of Spark's Arrow batches into it.

Spark labels timestamps with the session's time zone, keeps 8- and 16-bit integers, carries its own nullability and may
order columns differently. Values are not copied unless their type differs in the table. A column is widened,
relabelled, or parsed from text or bytes into the table's type; a value that cannot be parsed is refused with the
column's name and an example, never changed. Columns that a batch does not have get their write defaults, or are null.

PyIceberg knows the types, too, but its module loads Arrow's datasets, and with them pandas where it is installed: in
every task and every commit. A test holds that both are alike, but for PyIceberg's 64-bit offsets: Spark sends them only
if `spark.sql.execution.arrow.useLargeVarTypes` is true, and then `with_short_offsets` makes 32-bit offsets of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.defaults import physical
from iceberg_ds.table.names import find_sources, safe_names
from iceberg_ds.table.nested_arrow import split_lists, split_maps, to_json
from iceberg_ds.table.nested_fields import FIELD_ID_KEY, at_any_depth
from iceberg_ds.table.variant import VARIANT, VariantType, as_variants, is_any_variant, is_variant
from iceberg_ds.table.variant_encoding import to_variants

_UUID_BYTES = 16
_UUID = pa.uuid()
# With all dashes in their places or with no dashes, in upper or lower case.
_UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$|^[0-9a-fA-F]{32}$"
_TIME_TEXT = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_EXAMPLE_LENGTH = 60

_DOC_KEY = b"doc"
_PRIMITIVES: dict[type[IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", tz="UTC"),
    ice.TimestampNanoType: pa.timestamp("ns"),
    ice.TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    ice.StringType: pa.string(),
    ice.BinaryType: pa.binary(),
    ice.UUIDType: _UUID,
    ice.UnknownType: pa.null(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """The schema of a file's rows, twice: the same fields in the same order.

    Attributes:
        schema: Schema of the Parquet file, field ids in its metadata, names made safe. Fields below an
            optional struct are optional, because Arrow's writer takes a null struct for nulls in its fields.
        named: The table's own names and required fields, by which the columns of a batch are found and checked.
        case_sensitive: How columns are found: True exactly, False ignoring case, None exactly, else ignoring case.
        defaults: The fields at any depth with a write default, by field id: other fields that a batch lacks are null.
    """

    schema: pa.Schema
    named: pa.Schema
    defaults: Mapping[int, NestedField]
    case_sensitive: bool | None = None


def file_shape(schema: Schema, *, case_sensitive: bool | None = None) -> FileShape:
    """Return the Arrow schema of the table's Parquet files, with and without names made safe for Avro.

    Columns that a batch lacks get their write defaults. The file's names are made safe as Iceberg's own writers do it;
    readers go by field id.

    Args:
        schema: The table's schema.
        case_sensitive: How the columns of a batch are matched with the table's.
    """
    named = [_arrow_field(field) for field in schema.fields]
    return FileShape(
        schema=pa.schema([_optional_below(field) for field in _with_safe_names(named)]),
        named=pa.schema(named),
        case_sensitive=case_sensitive,
        defaults={one.field_id: one for one in at_any_depth(schema.fields) if one.write_default is not None},
    )


def repeated(value: object, kind: IcebergType, count: int) -> pa.Array:
    """Return a physical value of a type of the table so many times; a UUID as bytes, None as nulls of no type."""
    if value is None:
        return pa.nulls(count)
    data_type = _UUID.storage_type if isinstance(kind, ice.UUIDType) else arrow_type(kind)
    return pa.repeat(pa.scalar(value, data_type), count)


def arrow_type(kind: IcebergType) -> pa.DataType:  # noqa: PLR0911  # one a kind
    """Return the Arrow type of a column, with the 32-bit offsets that Spark sends.

    Raises:
        TypeError: The type has no such Arrow type, as `geometry` and `geography` have none.
    """
    match kind:
        case StructType():
            return pa.struct([_arrow_field(field) for field in kind.fields])
        case ListType():
            return pa.list_(_arrow_field(kind.element_field))
        case MapType():
            return pa.map_(_arrow_field(kind.key_field), _arrow_field(kind.value_field))
        case ice.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ice.FixedType():
            return pa.binary(len(kind))
        case VariantType():
            return VARIANT
    if (data_type := _PRIMITIVES.get(type(kind))) is None:
        raise TypeError(f"Iceberg's type {kind} has no Arrow type here.")
    return data_type


def _arrow_field(field: NestedField) -> pa.Field:
    metadata = {_DOC_KEY: field.doc} if field.doc else {}
    metadata[FIELD_ID_KEY] = str(field.field_id)
    return pa.field(field.name, arrow_type(field.field_type), nullable=field.optional, metadata=metadata)


def _with_safe_names(fields: Iterable[pa.Field]) -> list[pa.Field]:
    fields = list(fields)
    names = safe_names([field.name for field in fields])
    return [_with_safe_names_below(field.with_name(name)) for field, name in zip(fields, names, strict=True)]


def _with_safe_names_below(field: pa.Field) -> pa.Field:
    if _has_fields(field.type):
        return field.with_type(pa.struct(_with_safe_names(field.type)))
    return _with_nested(field, _with_safe_names_below)


def _has_fields(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) and not is_variant(data_type)


def _optional_below(field: pa.Field) -> pa.Field:
    """Return the field with every nested field optional that can be missing because a struct around it is null."""
    if _has_fields(field.type):
        children = [child.with_nullable(child.nullable or field.nullable) for child in field.type]
        field = field.with_type(pa.struct(children))
    return _with_nested(field, _optional_below)


def _with_nested(field: pa.Field, change: Callable[[pa.Field], pa.Field]) -> pa.Field:
    """Return the field with what `change` makes of each field directly below it."""
    data_type = field.type
    if _has_fields(data_type):
        return field.with_type(pa.struct([change(child) for child in data_type]))
    if pa.types.is_list(data_type):
        return field.with_type(pa.list_(change(data_type.value_field)))
    if pa.types.is_map(data_type):
        key, item = change(data_type.key_field), change(data_type.item_field)
        return field.with_type(pa.map_(key, item))
    return field


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of batches, at least one row, as one batch.

    Raises:
        ValueError: A column has more than 2 GiB of text or bytes, for which one batch has no room.
    """
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def with_short_offsets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task with the 32-bit offsets of text and bytes that everything else here expects.

    Values are not copied, unless a batch has more than 2 GiB in one column: it is divided.

    Args:
        batches: As Spark sends them: all have the same columns.
    """
    batches = iter(batches)
    for first in batches:
        schema = pa.schema([_with_short_offsets(field) for field in first.schema])
        if schema.equals(first.schema):
            yield first
            yield from batches
            return
        for batch in itertools.chain([first], batches):
            yield from _shortened(batch, schema)


def _with_short_offsets(field: pa.Field) -> pa.Field:
    data_type = field.type
    if pa.types.is_large_string(data_type):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(data_type):
        return field.with_type(pa.binary())
    return _with_nested(field, _with_short_offsets)


def _shortened(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    except pa.ArrowInvalid:  # an offset beyond 32 bits
        if batch.num_rows == 1:
            raise
        middle = batch.num_rows // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            # A copy, because the offsets of a slice are those of the whole.
            yield from _shortened(pa.ipc.read_record_batch(half.serialize(), half.schema), schema)
    else:
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_values(values: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return flat `values` as type `target`.

    Args:
        values: Values of a type that can be written into `target`; see `spark_types.is_writable`.
        target: The type in the file.
        path: Name of the column, for errors.

    Raises:
        SchemaMismatchError: Some text is no UUID or time, or some bytes have the wrong length.
    """
    if target == _UUID:
        as_bytes = _parse_uuids if is_text(values.type) else _with_length
        return pa.ExtensionArray.from_storage(target, as_bytes(values, target.storage_type, path))
    if pa.types.is_fixed_size_binary(target):
        return _with_length(values, target, path)
    if pa.types.is_time64(target) and is_text(values.type):
        return _parse_times(values, target, path)
    return values.cast(target)


def is_text(data_type: pa.DataType) -> bool:
    """Return whether values are text, of either kind of offsets."""
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def no_uuid(texts: pa.Array) -> pa.Array:
    """Return for each text whether it is no UUID, null for a null."""
    return pc.invert(pc.match_substring_regex(texts, _UUID_TEXT))


def no_time(texts: pa.Array) -> pa.Array:
    """Return for each text whether it is no time of a day, null for a null."""
    return pc.invert(pc.match_substring_regex(texts, _TIME_TEXT))


def wrong_length(values: pa.Array, length: int) -> pa.Array:
    """Return for each value whether it has another number of bytes, null for a null."""
    return pc.not_equal(pc.binary_length(values), length)


def _with_length(values: pa.Array, target: pa.FixedSizeBinaryType, path: str) -> pa.Array:
    length = target.byte_width
    _refuse(wrong_length(values, length), values, path, f"not {length} bytes long")
    return values.cast(target)


def _parse_uuids(texts: pa.Array, target: pa.FixedSizeBinaryType, path: str) -> pa.Array:
    _refuse(no_uuid(texts), texts, path, "no UUID")
    digits = pc.replace_substring(texts.drop_null(), "-", "")
    parsed = bytes.fromhex("".join(digits.to_pylist()))
    known = pa.Array.from_buffers(target, len(digits), [None, pa.py_buffer(parsed)])
    return pc.replace_with_mask(pa.nulls(len(texts), target), texts.is_valid(), known) if texts.null_count else known


def _parse_times(texts: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    _refuse(no_time(texts), texts, path, "no time of a day (HH:MM:SS.ffffff)")
    moments = pc.binary_join_element_wise("1970-01-01 ", texts.cast(pa.string()), "").cast(pa.timestamp("us"))
    return moments.view(pa.int64()).view(target)


def _refuse(is_bad: pa.Array, values: pa.Array, path: str, what: str) -> None:
    bad = values.filter(is_bad)
    if len(bad):
        raise SchemaMismatchError(
            f"Cannot write into column '{path}': {len(bad)} of {len(values)} values are {what}, "
            f"for example {_example(bad[0])}: convert or filter them."
        )


def _example(value: pa.Scalar) -> str:
    # Spark's strings may hold bytes that are not UTF-8.
    raw = value.as_buffer().to_pybytes()
    return repr(raw if pa.types.is_binary(value.type) else raw.decode(errors="replace"))[:_EXAMPLE_LENGTH]


def conform(batch: pa.RecordBatch, shape: FileShape) -> pa.RecordBatch:
    """Return `batch` with the columns, order and types of the file; columns that it lacks get defaults, or nulls.

    A struct, list or map that goes into a string column becomes JSON, and a variant in a column of variants.

    Raises:
        SchemaMismatchError: A required column, or a required field inside one, holds a null; or some text or
            bytes are no value of the table's type. Names the column.
        AmbiguousNameError: A column of the batch could be any of several in the table.
    """
    sources = find_sources(batch.schema.names, shape.named.names, case_sensitive=shape.case_sensitive)
    columns = []
    for source, field, named in zip(sources, shape.schema, shape.named, strict=True):
        place = _Place(path=named.name, field=field, named=named, shape=shape)
        column = place.absent(batch.num_rows) if source is None else batch.column(source)
        columns.append(_conform_values(column, place))
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A column of the file, or a field, element, key or value inside one.

    Attributes:
        path: Its name, after the names of the fields around it.
        field: As it is in the file.
        named: As it is in the table: with the table's own names and required fields.
        shape: The whole file.
    """

    path: str
    field: pa.Field
    named: pa.Field
    shape: FileShape

    @property
    def type(self) -> pa.DataType:
        """Return the type in the file."""
        return self.field.type

    def absent(self, count: int) -> pa.Array:
        """Return the values of rows that do not have it."""
        found = self.shape.defaults.get(int(self.named.metadata[FIELD_ID_KEY]))
        return pa.nulls(count) if found is None else repeated(physical(found.write_default), found.field_type, count)

    def absent_below(self, parents: pa.Array) -> pa.Array:
        """Return the values of rows whose structs do not have it: null where the struct is null."""
        values = self.absent(len(parents))
        return pc.if_else(parents.is_valid(), values, pa.scalar(None, values.type)) if parents.null_count else values

    def inside(self, name: str, field: pa.Field, named: pa.Field) -> _Place:
        """Return a place inside this one."""
        return replace(self, path=f"{self.path}.{name}", field=field, named=named)


def _conform_values(values: pa.Array, place: _Place, null_parents: int = 0) -> pa.Array:  # noqa: PLR0911  # one a kind
    """Return `values` in the type of the file.

    Args:
        values: As Spark sends them, null wherever the struct around them is null.
        place: The place in the file that the values go to.
        null_parents: How many of the structs around them are null.
    """
    _check_required(values, null_parents, place)
    if is_variant(place.type):
        return as_variants(values) if is_any_variant(values.type) else to_variants(values, place.path)
    if pa.types.is_null(values.type) or not len(values):
        return _nulls(len(values), place.type)
    if pa.types.is_nested(values.type) and pa.types.is_string(place.type):
        return to_json(values)
    if pa.types.is_struct(place.type):
        return _conform_structs(values, place)
    if pa.types.is_list(place.type):
        return _conform_lists(values, place)
    if pa.types.is_map(place.type):
        return _conform_maps(values, place)
    return values if values.type == place.type else cast_values(values, place.type, place.path)


def _nulls(count: int, data_type: pa.DataType) -> pa.Array:
    """Return so many nulls of a type of the file; parts of variants below them are no nulls, which Parquet refuses."""
    if is_variant(data_type):
        return as_variants(pa.nulls(count))
    if not pa.types.is_struct(data_type):
        return pa.nulls(count, data_type)
    children = [_nulls(count, child.type) for child in data_type]
    return pa.StructArray.from_arrays(children, fields=list(data_type), mask=pa.repeat(True, count))  # noqa: FBT003


def _check_required(values: pa.Array, null_parents: int, place: _Place) -> None:
    nulls = values.null_count - null_parents
    if nulls and not place.named.nullable:
        raise SchemaMismatchError(
            f"Cannot write a null into column '{place.path}', which is required in the table "
            f"({nulls} of {len(values)} rows here): filter or fill the nulls."
        )


def _conform_structs(values: pa.Array, place: _Place) -> pa.Array:
    named = list(place.named.type)
    names = [field.name for field in named]
    sources = find_sources([field.name for field in values.type], names, case_sensitive=place.shape.case_sensitive)
    children = []
    for source, name, field, own in zip(sources, names, place.type, named, strict=True):
        # Unlike StructArray.field, struct_field makes the child null where the struct is null.
        inside = place.inside(name, field, own)
        child = inside.absent_below(values) if source is None else pc.struct_field(values, source)
        children.append(_conform_values(child, inside, values.null_count))
    return pa.StructArray.from_arrays(children, fields=list(place.type), mask=_null_mask(values))


def _conform_lists(values: pa.Array, place: _Place) -> pa.Array:
    offsets, elements = split_lists(values)
    inside = place.inside("element", place.type.value_field, place.named.type.value_field)
    return pa.ListArray.from_arrays(
        offsets, _conform_values(elements, inside), type=place.type, mask=_null_mask(values)
    )


def _conform_maps(values: pa.Array, place: _Place) -> pa.Array:
    offsets, keys, items = split_maps(values)
    for_keys = place.inside("key", place.type.key_field, place.named.type.key_field)
    for_items = place.inside("value", place.type.item_field, place.named.type.item_field)
    return pa.MapArray.from_arrays(
        offsets,
        _conform_values(keys, for_keys),
        _conform_values(items, for_items),
        type=place.type,
        mask=_null_mask(values),
    )


def _null_mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None
