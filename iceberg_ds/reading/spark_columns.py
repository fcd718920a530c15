"""Pure: under which names and types Spark's Parquet reader reads a table's columns, and what it cannot read.

Spark finds columns by field id, but pushes filters down by the names that columns have in the file, with values of the
types that they have there. So a column is read under a name that no file has, and gets its own name afterwards, if its
name was ever that of another column, or may have been, or its type was ever another: a filter on it is then evaluated
row by row. The same holds for floating-point numbers, whose NaN and negative zero the statistics of Parquet leave out,
and for dates from before 1583 and times from before 1900, which Spark shifts in filters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql import types as spark

from iceberg_ds.io.local_paths import is_local
from iceberg_ds.table.defaults import has_initial_default
from iceberg_ds.table.names import free_name
from iceberg_ds.table.nested_fields import at_any_depth, children
from iceberg_ds.table.spark_types import PARQUET_FIELD_ID, spark_type, sql_constant

# Spark's own column beside those of files.
_HIDDEN_COLUMN = "_metadata"
# Where its Parquet reader looks for the value of a column that a file lacks.
_EXISTS_DEFAULT = "EXISTS_DEFAULT"


_BEYOND_64_BITS = 2**63
_PATTERN = frozenset("{}[]*?\\")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # of times with and without a zone


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumn:
    """A column as Spark reads it.

    Attributes:
        field: The column of the table; for a column that the table has dropped, as it last was.
        name: The name under which it is read.
        is_never_null: Whether no file can have a null in it: not what the table says now, but what it always said.
    """

    field: NestedField
    name: str
    is_never_null: bool = False

    @property
    def has_own_names(self) -> bool:
        """Whether it, and all inside it, are read by the names that they have in the table."""
        return self.name == self.field.name

    @property
    def is_uuid(self) -> bool:
        """Whether it is read as bytes and shown as text."""
        return isinstance(self.field.field_type, UUIDType)

    @property
    def is_void(self) -> bool:
        """Whether it is always shown as nulls without a type."""
        return isinstance(self.field.field_type, UnknownType)

    def struct_field(self) -> spark.StructField:
        """Return the column for the schema of the read; its id says where it is in the file."""
        kind, default = self.field.field_type, self.field.initial_default
        data_type = spark_type(kind if self.has_own_names else _with_free_names(kind), with_field_ids=True)
        metadata: dict[str, object] = {PARQUET_FIELD_ID: self.field.field_id}
        if default is not None:
            metadata[_EXISTS_DEFAULT] = sql_constant(default, data_type)
        return spark.StructField(self.name, data_type, nullable=True, metadata=metadata)


def read_columns(
    fields: Iterable[NestedField], schemas: Sequence[Schema], unfiltered: Collection[int] = ()
) -> list[ReadColumn]:
    """Return how columns are read.

    Args:
        fields: The columns.
        schemas: The schemas that the table has had, as far as it still knows them.
        unfiltered: Ids of further columns that no filter is to be pushed down on.
    """
    # Schemas and fields are numbered, schemas from 0 on: what an expiry has removed may have had other names.
    numbers = {schema.schema_id for schema in schemas}
    fields_known = set().union(*(schema.field_ids for schema in schemas))
    is_whole = numbers >= set(range(max(numbers))) and fields_known >= set(range(1, max(fields_known) + 1))
    owners: dict[str, set[int]] = defaultdict(set)
    types: dict[int, set[str]] = defaultdict(set)
    for schema in schemas:
        for number, name in _names(schema.fields, ()):
            owners[name].add(number)
        for number in schema.field_ids:
            kind = schema.find_type(number)
            if isinstance(kind, PrimitiveType):
                types[number].add(str(kind))
    never_null = set[int]()
    if is_whole:
        never_null = set.intersection(*({one.field_id for one in some.fields if one.required} for some in schemas))
    return [
        ReadColumn(
            field=field,
            is_never_null=field.field_id in never_null,
            name=field.name
            if is_whole and field.field_id not in unfiltered and _is_plain(field, owners, types)
            else free_name(f"__field_{field.field_id}", owners),
        )
        for field in fields
    ]


def _with_free_names(kind: IcebergType) -> IcebergType:
    """Return a type whose fields of structs have names that no file has: inside a column Spark also looks by name."""
    match kind:
        case StructType(fields=fields):
            return StructType(
                *(
                    NestedField(
                        one.field_id, f"__field_{one.field_id}", _with_free_names(one.field_type), required=False
                    )
                    for one in fields
                )
            )
        case ListType():
            return ListType(kind.element_id, _with_free_names(kind.element_type), kind.element_required)
        case MapType():
            key, value = _with_free_names(kind.key_type), _with_free_names(kind.value_type)
            return MapType(kind.key_id, key, kind.value_id, value, kind.value_required)
    return kind


def _is_plain(field: NestedField, owners: dict[str, set[int]], types: dict[int, set[str]]) -> bool:
    names = list(_names([field], ()))
    if field.name.lower() == _HIDDEN_COLUMN or field.name.startswith("__"):  # as columns of our own
        return False
    if any(isinstance(kind, FloatType | DoubleType) for kind in _types(field.field_type)):
        return False
    return all(len(owners[name] | {number}) == 1 and len(types[number]) <= 1 for number, name in names)


def _names(fields: Iterable[NestedField], above: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the id and the full name, in lower case, of each field at any depth, also as files may spell it."""
    for field in fields:
        for spelled in {field.name, make_compatible_name(field.name)}:
            path = (*above, spelled.lower())
            yield field.field_id, ".".join(path)
            yield from _names(children(field.field_type), path)


def why_not_by_spark(fields: Iterable[NestedField]) -> str | None:
    """Return why Spark's Parquet reader cannot read some of these columns, or None if it can read all."""
    for field in fields:
        if has_initial_default(field.field_type):  # Spark fills whole columns alone
            return f"column '{field.name}' has a field inside that has an initial default"
        if field.initial_default is not None and isinstance(field.field_type, BinaryType | FixedType | UUIDType):
            return f"column '{field.name}' has bytes as its initial default"
        if isinstance(field.field_type, DecimalType) and _is_long(field.initial_default, field.field_type.scale):
            return f"column '{field.name}' has a decimal of more than 64 bits as its initial default"
        if isinstance(field.field_type, UUIDType):
            continue
        for kind in _types(field.field_type):
            if isinstance(kind, TimeType | UUIDType) or (
                isinstance(kind, UnknownType) and kind is not field.field_type
            ):
                return f"column '{field.name}' has values of type {kind}"
    return None


def _is_long(value: Decimal | None, scale: int) -> bool:
    """Return whether the unscaled number of a decimal takes more than 64 bits."""
    if value is None:
        return False
    _, digits, exponent = value.as_tuple()
    unscaled: int = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return unscaled >= _BEYOND_64_BITS


def is_misread(path: str) -> bool:
    """Return whether Spark passes over a file because of its name, takes its path for a pattern, or fails with it."""
    name = path.rpartition("/")[2]
    if "//" in path.partition("://")[2] and not is_local(path):  # Hadoop takes two slashes for one, stores do not
        return True
    # Hadoop looks for checksums beside local files, and takes what is before a colon for a scheme.
    return name.startswith(("_", ".")) or (":" in name and is_local(path)) or not _PATTERN.isdisjoint(path)


def _types(kind: IcebergType) -> Iterator[IcebergType]:
    yield kind
    yield from (field.field_type for field in at_any_depth(children(kind)))


def as_text(value: object, kind: IcebergType) -> str | None:
    """Return the physical value of a partition as a text that Spark casts to the type, bytes in hexadecimal digits."""
    if value is None:
        return None
    match kind:
        case DateType():
            return (_EPOCH + timedelta(days=int(str(value)))).date().isoformat()
        case TimestampType() | TimestamptzType():
            moment = (_EPOCH + timedelta(microseconds=int(str(value)))).isoformat(" ")
            return f"{moment}+00:00" if isinstance(kind, TimestamptzType) else moment
    return value.hex() if isinstance(value, bytes) else str(value)
