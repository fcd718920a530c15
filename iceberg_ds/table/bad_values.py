"""Pure: which rows of a column cannot be written into the table's column as they are, and why.

Everything that `arrow_schema.conform` refuses row by row is found here before, at any depth; a column of another type
than the table's is cast value by value (`casts`). Nothing is found by trying: where no value of a column can be bad,
the column is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.plan import Reason
from iceberg_ds.table.arrow_schema import no_time, no_uuid, wrong_length
from iceberg_ds.table.casts import cast_rows, is_castable
from iceberg_ds.table.names import find_sources
from iceberg_ds.table.nested_arrow import split_lists, split_maps, to_json
from iceberg_ds.table.variant import is_variant

_UUID = pa.uuid()
_NAMES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BadValues:
    """Rows of a column that cannot be written as they are, for one reason.

    Attributes:
        reason: The reason.
        detail: What is wrong, in words, without a value.
        mask: True for each such row, never null.
    """

    reason: Reason
    detail: str
    mask: pa.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A column after its check.

    Attributes:
        values: The column; cast into the table's type if its type was another one.
        bad: What is wrong with it; empty if all rows can be written.
    """

    values: pa.Array
    bad: list[BadValues]


def may_be_bad(source: pa.DataType, named: pa.Field) -> bool:
    """Return whether some value of type `source` cannot be written into the table's column `named`."""
    target = named.type
    if not named.nullable:
        return True
    if pa.types.is_nested(target):
        return _is_strict(target)
    return is_checked(source, target) or needs_cast(source, target)


def _is_strict(data_type: pa.DataType) -> bool:
    """Return whether something nested in a type is required, or of a type whose values are checked."""
    if is_variant(data_type):
        return False
    if pa.types.is_struct(data_type):
        fields = list(data_type)
    elif pa.types.is_map(data_type):
        fields = [data_type.key_field.with_nullable(nullable=True), data_type.item_field]  # Arrow has no null keys
    elif pa.types.is_list(data_type):
        fields = [data_type.value_field]
    else:
        return _has_form(data_type)
    return any(not field.nullable or _is_strict(field.type) for field in fields)


def _has_form(data_type: pa.DataType) -> bool:
    return bool(data_type == _UUID or pa.types.is_fixed_size_binary(data_type) or pa.types.is_time64(data_type))


def is_checked(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `arrow_schema.cast_values` checks each value: text and bytes as uuid, fixed or time."""
    return bool(source != target and _has_form(target) and (pa.types.is_string(source) or pa.types.is_binary(source)))


def needs_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values must be cast one by one, because the table's type does not hold all values of `source`."""
    if pa.types.is_nested(source):  # goes into text, or is cast from its JSON
        return not pa.types.is_nested(target) and not pa.types.is_string(target) and is_castable(pa.string(), target)
    return is_castable(source, target) and not _is_promotion(source, target)


def _is_promotion(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `target` holds every value of `source`, by Iceberg's promotions."""
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        return bool(source.bit_width <= target.bit_width)
    if pa.types.is_floating(source) and pa.types.is_floating(target):
        return bool(source.bit_width <= target.bit_width)
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        return bool(source.scale == target.scale and source.precision <= target.precision)
    return bool(pa.types.is_timestamp(source) and pa.types.is_timestamp(target))


def check_column(values: pa.Array, named: pa.Field, *, case_sensitive: bool | None) -> Checked:
    """Return a column of the DataFrame, cast if it must be, and what is wrong with it.

    Args:
        values: The column as Spark sends it.
        named: The table's column, with the table's own names and required fields.
        case_sensitive: How names of fields are matched, see `names.find_position`.
    """
    bad: list[BadValues] = []
    if not named.nullable and values.null_count:
        bad.append(BadValues(reason=Reason.REQUIRED, detail="a null in a required column", mask=values.is_null()))
    if needs_cast(values.type, named.type):
        texts = to_json(values) if pa.types.is_nested(values.type) else values
        cast = cast_rows(texts, named.type)
        if cast.is_bad is not None:
            detail = f"no value of type {_type_name(named.type)}"
            bad.append(BadValues(reason=Reason.CAST, detail=detail, mask=cast.is_bad))
        return Checked(values=cast.values, bad=bad)
    bad += _inside(values, named, case_sensitive)
    return Checked(values=values, bad=bad)


def _type_name(data_type: pa.DataType) -> str:
    """Return Iceberg's name of a type that values are cast to."""
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision}, {data_type.scale})"
    return _NAMES[data_type]


def _inside(values: pa.Array, named: pa.Field, case_sensitive: bool | None) -> Iterator[BadValues]:  # noqa: FBT001
    """Yield what is wrong with the values themselves, nulls apart, and with what is nested in them."""
    target = named.type
    if pa.types.is_null(values.type) or not len(values) or pa.types.is_string(target) or is_variant(target):
        return
    if pa.types.is_struct(target):
        yield from _in_structs(values, target, case_sensitive)
    elif pa.types.is_list(target):
        offsets, elements = split_lists(values)
        for found in _below(elements, target.value_field, None, "element", case_sensitive):
            yield _lifted(found, offsets, len(values))
    elif pa.types.is_map(target):
        offsets, keys, items = split_maps(values)
        for part, field, name in ((keys, target.key_field, "key"), (items, target.item_field, "value")):
            for found in _below(part, field, None, name, case_sensitive):
                yield _lifted(found, offsets, len(values))
    elif is_checked(values.type, target):
        yield from _malformed(values, target)


def _in_structs(values: pa.Array, target: pa.StructType, case_sensitive: bool | None) -> Iterator[BadValues]:  # noqa: FBT001
    fields = list(target)
    sources = find_sources(
        [field.name for field in values.type], [field.name for field in fields], case_sensitive=case_sensitive
    )
    absent = values.is_null() if values.null_count else None
    for source, field in zip(sources, fields, strict=True):
        if source is not None:  # a field that is missing has its write default, or may be null
            yield from _below(pc.struct_field(values, source), field, absent, field.name, case_sensitive)


def _below(
    values: pa.Array,
    named: pa.Field,
    absent: pa.Array | None,
    name: str,
    case_sensitive: bool | None,  # noqa: FBT001
) -> Iterator[BadValues]:
    """Yield what is wrong with values nested in others; those that are `absent` count as written."""
    if not named.nullable and values.null_count:
        is_null = values.is_null() if absent is None else pc.and_not(values.is_null(), absent)
        if is_null.true_count:
            yield BadValues(reason=Reason.REQUIRED, detail=f"a null in required field '{name}'", mask=is_null)
    for found in _inside(values, named, case_sensitive):
        yield BadValues(reason=found.reason, detail=f"{found.detail} in '{name}'", mask=found.mask)


def _lifted(found: BadValues, offsets: pa.Array, count: int) -> BadValues:
    """Return what is wrong with elements as what is wrong with the lists that have them."""
    elements = pa.array(range(len(found.mask)), pa.int32())
    parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, elements)).filter(found.mask)
    rows = pa.array(range(count), parents.type)
    return BadValues(reason=found.reason, detail=found.detail, mask=pc.is_in(rows, value_set=parents))


def _malformed(values: pa.Array, target: pa.DataType) -> Iterator[BadValues]:
    if pa.types.is_time64(target):
        mask, detail = no_time(values), "no time of a day (HH:MM:SS.ffffff)"
    elif pa.types.is_string(values.type):
        mask, detail = no_uuid(values), "no UUID"
    else:
        length = target.storage_type.byte_width if target == _UUID else target.byte_width
        mask, detail = wrong_length(values, length), f"not {length} bytes long"
    if mask.true_count:
        yield BadValues(reason=Reason.MALFORMED, detail=detail, mask=pc.fill_null(mask, False))  # noqa: FBT003
