"""Pure: the type `variant` of format version 3, how its values lie in Arrow, and how their parts lie in the bytes.

In Arrow a variant is two columns of bytes. Spark sends and takes `value` before `metadata`, files have them the other
way round; the bytes are the same. Neither part has a field id. Files of other writers may be shredded: parts of the
values lie in columns of their types beside `value`, and nothing here puts them together again. PyIceberg 0.12 has no
such type (apache/iceberg-python#1819); this one goes once it has. Sources: Iceberg spec, "Semi-structured Types";
Parquet spec, "Variant Binary Encoding".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IcebergType, NestedField, PrimitiveType

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.table.nested_fields import FIELD_ID_KEY, at_any_depth, children

# The first version that reads files with the mark of a variant.
_LEAST_PYARROW = 22
_METADATA, _VALUE, _TYPED_VALUE = "metadata", "value", "typed_value"
# In a file.
VARIANT = pa.struct([pa.field(_METADATA, pa.binary(), nullable=False), pa.field(_VALUE, pa.binary(), nullable=False)])
# Where Spark looks whether a struct is a variant.
_OF_SPARK = {b"variant": b"true"}
SPARK_VARIANT = pa.struct(
    [
        pa.field(_VALUE, pa.binary(), nullable=False),
        pa.field(_METADATA, pa.binary(), nullable=False, metadata=_OF_SPARK),
    ]
)

# The two low bits of a value's first byte; the other six bits of a flat value are its type.
SHORT_TEXT, OBJECT, ARRAY = 1, 2, 3
NULL = b"\x00"
# Bytes of a flat value, its first byte included, by type; values of other types say how many they have.
_SIZES = {0: 1, 1: 1, 2: 1, 3: 2, 4: 3, 5: 5, 6: 9, 7: 9, 8: 6, 9: 10, 10: 18, 11: 5, 12: 9, 13: 9, 14: 5,
          17: 9, 18: 9, 19: 9, 20: 17}  # fmt: skip
_LONG = 4  # bytes of the size of a large object or array; a small one's has a byte


class VariantType(PrimitiveType):
    """Values whose types are not the same in each row. A leaf of the schema, and yet not primitive: it has no order."""

    root: Literal["variant"] = Field(default="variant")

    @property
    def is_primitive(self) -> bool:
        """Return False: it can be no key, no source of a partition or an order, and has no bounds."""
        return False

    def minimum_format_version(self) -> TableVersion:
        """Return the first format version that has it."""
        return 3


_are_known: ContextVar[bool] = ContextVar("_are_known", default=False)


@contextmanager
def knowing_variants() -> Iterator[None]:
    """Let PyIceberg parse the type `variant` in the block, in this thread, once `know_variants` was called."""
    token = _are_known.set(True)
    try:
        yield
    finally:
        _are_known.reset(token)


def are_variants_known() -> bool:
    """Return whether PyIceberg parses the type `variant` at this moment, in this thread."""
    return _are_known.get()


def holds_variant(kind: IcebergType) -> bool:
    """Return whether values of a type are variants, or have some inside."""
    return isinstance(kind, VariantType) or any(_variants(children(kind)))


def why_not_opened() -> str | None:
    """Return why the installed PyArrow opens no file that is marked to have variants, or None if it does."""
    major = int(pa.__version__.partition(".")[0])
    return (
        None
        if major >= _LEAST_PYARROW
        else f"PyArrow {pa.__version__} opens no file with variants: install 22 or newer"
    )


def variant_ids(schema: Schema) -> frozenset[int]:
    """Return the ids of the variants among the fields of a schema, at any depth."""
    return frozenset(field.field_id for field in _variants(schema.fields))


def _variants(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    return (field for field in at_any_depth(fields) if isinstance(field.field_type, VariantType))


def is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is `VARIANT`: a struct of the table, with any names, has ids in its fields."""
    return bool(pa.types.is_struct(kind) and kind.equals(VARIANT, check_metadata=True))


def is_sent_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of a variant from Spark, by its mark."""
    return pa.types.is_struct(kind) and any((part.metadata or {}).items() >= _OF_SPARK.items() for part in kind)


def is_any_variant(kind: pa.DataType) -> bool:
    """Return whether values are variants already, as files or Spark have them, or nulls of no type."""
    return is_sent_variant(kind) or is_variant(kind) or bool(pa.types.is_null(kind))


def is_stored_variant(kind: pa.StructType) -> bool:
    """Return whether a struct in a file of any writer is a variant, shredded or not: its parts have no field ids."""
    names = {part.name for part in kind}
    have_ids = any(FIELD_ID_KEY in (part.metadata or {}) for part in kind)
    return not have_ids and _METADATA in names and bool(names & {_VALUE, _TYPED_VALUE})


def as_variants(values: pa.Array, kind: pa.StructType = VARIANT) -> pa.Array:
    """Return variants as files have them, or as Spark takes them.

    A variant without its part `value`, which no writer should leave, is the null of variants (Parquet spec, "Variant
    Shredding"), and one without either part is null.

    Args:
        values: Variants of either kind, or of a file of another writer.
        kind: `VARIANT` or `SPARK_VARIANT`.

    Raises:
        UnsupportedTableError: They are shredded, or have no metadata.
    """
    if pa.types.is_null(values.type):
        values = pa.nulls(len(values), VARIANT)
    if values.type.get_field_index(_TYPED_VALUE) >= 0:
        raise UnsupportedTableError(
            "Cannot read a column of type variant: a file has it shredded, its values are partly in columns of their "
            "own types. Spark's Parquet reader reads such files (reader=spark), where nothing else is in its way; to "
            "have them written anew, set the table property write.parquet.shred-variants to false and rewrite the data "
            "files with the engine that wrote them."
        )
    metadata, value = values.field(_METADATA), values.field(_VALUE)
    is_null = pc.or_(values.is_null(), pc.and_(metadata.is_null(), value.is_null()))
    if pc.any(pc.and_not(metadata.is_null(), is_null)).as_py():
        raise UnsupportedTableError(
            "Cannot read a column of type variant: a file has a value without metadata, which would say what it means. "
            "Restore the file from a backup, delete the row, or leave the column out."
        )
    if value.null_count:
        value = pc.if_else(pc.and_not(value.is_null(), metadata.is_null()), pa.scalar(NULL, value.type), value)
    found = {_METADATA: metadata, _VALUE: value}
    # Where a variant is null its parts may be null, and Parquet has them required.
    parts = [pc.fill_null(found[part.name], b"") for part in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=is_null if is_null.true_count else None)


def _unsigned_at(text: bytes, at: int, width: int) -> int:
    """Return the number without a sign that so many bytes are.

    Raises:
        IndexError: The bytes end before.
    """
    if at + width > len(text):
        raise IndexError(at + width)
    return int.from_bytes(text[at : at + width], "little")


def names_in(metadata: bytes) -> list[bytes]:
    """Return the names of the fields, by their ids.

    Raises:
        IndexError: The bytes end before.
    """
    width = (metadata[0] >> 6) + 1
    count = _unsigned_at(metadata, 1, width)
    ends = [_unsigned_at(metadata, 1 + width * (1 + place), width) for place in range(count + 1)]
    begin = 1 + width * (count + 2)
    if begin + max(ends) > len(metadata):
        raise IndexError(begin + max(ends))
    return [metadata[begin + one : begin + other] for one, other in itertools.pairwise(ends)]


def size_at(value: bytes, at: int) -> int:
    """Return how many bytes a value that is neither an object nor an array has, its first byte included.

    Raises:
        IndexError: The bytes end before it says so.
    """
    info = value[at] >> 2
    if value[at] & 3 == SHORT_TEXT:
        return 1 + info
    return _SIZES.get(info) or 5 + _unsigned_at(value, at + 1, 4)


def parts_at(value: bytes, at: int) -> tuple[list[int], list[int]]:
    """Return the ids of the names of an object's fields, none of an array's elements, and where the values begin.

    Raises:
        IndexError: The bytes end before.
    """
    kind, info = value[at] & 3, value[at] >> 2
    is_large, offset_width = info >> (4 if kind == OBJECT else 2) & 1, (info & 3) + 1
    id_width = (info >> 2 & 3) + 1 if kind == OBJECT else 0
    count_width = _LONG if is_large else 1
    ids_at = at + 1 + count_width
    count = _unsigned_at(value, at + 1, count_width)
    offsets_at = ids_at + count * id_width
    begin = offsets_at + (count + 1) * offset_width
    ids = [_unsigned_at(value, ids_at + place * id_width, id_width) for place in range(count if id_width else 0)]
    offsets = [_unsigned_at(value, offsets_at + place * offset_width, offset_width) for place in range(count)]
    return ids, [begin + offset for offset in offsets]
