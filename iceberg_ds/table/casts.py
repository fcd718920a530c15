"""Pure: casts Arrow batches as Spark sends them into the exact schema of the table's files.

Spark labels timestamps with the session's time zone, keeps 8- and 16-bit integers, carries its own nullability and may
order columns differently. Values are not copied unless their type differs in the table. A column is widened,
relabelled, or parsed from text or bytes into the table's type; a value that cannot be parsed is refused with the
column's name and an example, never changed. Columns that a batch does not have are null. Knows only Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.arrow_schema import FileShape
from iceberg_ds.table.names import find_sources
from iceberg_ds.table.nested_arrow import split_lists, split_maps, to_json

_UUID_BYTES = 16
_UUID = pa.uuid()
# With all dashes in their places or with no dashes, in upper or lower case.
_UUID_TEXT = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$|^[0-9a-fA-F]{32}$"
_TIME_TEXT = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_EXAMPLE_LENGTH = 60


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
        as_bytes = _parse_uuids if _is_text(values.type) else _with_length
        return pa.ExtensionArray.from_storage(target, as_bytes(values, target.storage_type, path))
    if pa.types.is_fixed_size_binary(target):
        return _with_length(values, target, path)
    if pa.types.is_time64(target) and _is_text(values.type):
        return _parse_times(values, target, path)
    return values.cast(target)


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _with_length(values: pa.Array, target: pa.FixedSizeBinaryType, path: str) -> pa.Array:
    length = target.byte_width
    _refuse(pc.not_equal(pc.binary_length(values), length), values, path, f"not {length} bytes long")
    return values.cast(target)


def _parse_uuids(texts: pa.Array, target: pa.FixedSizeBinaryType, path: str) -> pa.Array:
    _refuse(pc.invert(pc.match_substring_regex(texts, _UUID_TEXT)), texts, path, "no UUID")
    digits = pc.replace_substring(texts.drop_null(), "-", "")
    parsed = bytes.fromhex("".join(digits.to_pylist()))
    known = pa.Array.from_buffers(target, len(digits), [None, pa.py_buffer(parsed)])
    return pc.replace_with_mask(pa.nulls(len(texts), target), texts.is_valid(), known) if texts.null_count else known


def _parse_times(texts: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    _refuse(pc.invert(pc.match_substring_regex(texts, _TIME_TEXT)), texts, path, "no time of a day (HH:MM:SS.ffffff)")
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
    """Return `batch` with the columns, order and types of the file.

    A struct, list or map that goes into a string column becomes JSON.

    Raises:
        SchemaMismatchError: A required column, or a required field inside one, holds a null; or some text or
            bytes are no value of the table's type. Names the column.
        AmbiguousNameError: A column of the batch could be any of several in the table.
    """
    sources = find_sources(batch.schema.names, shape.named.names, case_sensitive=shape.case_sensitive)
    columns = []
    for source, field, named in zip(sources, shape.schema, shape.named, strict=True):
        column = pa.nulls(batch.num_rows) if source is None else batch.column(source)
        place = _Place(path=named.name, field=field, named=named, case_sensitive=shape.case_sensitive)
        columns.append(_conform_values(column, place))
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A column of the file, or a field, element, key or value inside one.

    Attributes:
        path: Its name, after the names of the fields around it.
        field: As it is in the file.
        named: As it is in the table: with the table's own names and required fields.
        case_sensitive: How names of fields are matched.
    """

    path: str
    field: pa.Field
    named: pa.Field
    case_sensitive: bool | None

    @property
    def type(self) -> pa.DataType:
        """Return the type in the file."""
        return self.field.type

    def inside(self, name: str, field: pa.Field, named: pa.Field) -> _Place:
        """Return a place inside this one."""
        return replace(self, path=f"{self.path}.{name}", field=field, named=named)


def _conform_values(values: pa.Array, place: _Place, null_parents: int = 0) -> pa.Array:
    """Return `values` in the type of the file.

    Args:
        values: As Spark sends them, null wherever the struct around them is null.
        place: The place in the file that the values go to.
        null_parents: How many of the structs around them are null.
    """
    _check_required(values, null_parents, place)
    if pa.types.is_null(values.type) or not len(values):
        return pa.nulls(len(values), place.type)
    if pa.types.is_nested(values.type) and pa.types.is_string(place.type):
        return to_json(values)
    if pa.types.is_struct(place.type):
        return _conform_structs(values, place)
    if pa.types.is_list(place.type):
        return _conform_lists(values, place)
    if pa.types.is_map(place.type):
        return _conform_maps(values, place)
    return values if values.type == place.type else cast_values(values, place.type, place.path)


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
    sources = find_sources([field.name for field in values.type], names, case_sensitive=place.case_sensitive)
    children = []
    for source, name, field, own in zip(sources, names, place.type, named, strict=True):
        # Unlike StructArray.field, struct_field makes the child null where the struct is null.
        child = pa.nulls(len(values)) if source is None else pc.struct_field(values, source)
        children.append(_conform_values(child, place.inside(name, field, own), values.null_count))
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
