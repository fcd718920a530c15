"""Pure: which columns a write writes: the DataFrame's, without the one that says what rows do, and those filled in.

With them the `ChangeFeed` of a write by keys, or all that is wrong with its options and columns at once. Decided on the
driver, for appends and writes by keys alike. Columns that are filled in take part in everything that columns of the
DataFrame take part in: new tables get them, and existing ones by the rules of schema evolution.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UnknownType,
)
from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructField, StructType

from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import DIFF, EPOCH_ID, EXTRACTED_AT, OPERATION, AddedColumns, ChangeFeed, DeleteMark
from iceberg_ds.table.names import AmbiguousNameError, find_position, identifier_text, repeated_names
from iceberg_ds.table.spark_types import UnsupportedTypeError, bullets, convert_type, with_nullable_fields

_KEYED_VERSION = 2
_METADATA_TYPES: dict[str, DataType] = {
    EXTRACTED_AT: spark.TimestampType(),
    EPOCH_ID: spark.LongType(),
    OPERATION: spark.StringType(),
    DIFF: spark.IntegerType(),
}
_MARK_TYPES: dict[type[IcebergType], DataType] = {
    BooleanType: spark.BooleanType(),
    TimestampType: spark.TimestampNTZType(),
    TimestamptzType: spark.TimestampType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The options of a write by keys, as the user gave them.

    Attributes:
        keys: Names of the key columns.
        sequence_by: Names of the sequence columns.
        operation_column: Name of the column that says what a row does, None for none.
        delete_when: Predicate that marks deletes, None for none.
        keys_not_enforced: Whether any one of tied rows may win.
        trusts_inserts: Whether inserts tell of keys that the table does not have.
        evolve_keys: Whether the table's identifier fields may become the keys.
        keeps_deleted: Whether deletes leave rows, which are marked.
        case_sensitive: How names are matched, see `find_position`.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    operation_column: str | None = None
    delete_when: str | None = None
    keys_not_enforced: bool = False
    trusts_inserts: bool = False
    evolve_keys: bool = False
    keeps_deleted: bool = False
    case_sensitive: bool | None = None


def make_feed(options: FeedOptions, table: Schema, dataframe: Schema, *, format_version: int) -> ChangeFeed:
    """Return how rows of a DataFrame change a table.

    Args:
        options: What the user asks for.
        table: The table's schema, that of a new table with its keys as identifier fields already (`keyed_schema`).
        dataframe: The DataFrame's columns as Iceberg types, the operation column and all.
        format_version: The table's.

    Raises:
        ValueError: The options do not fit each other, the table or the DataFrame; says all reasons.
    """
    problems: list[str] = []
    if format_version < _KEYED_VERSION:
        problems.append(
            f"the table's format version is {format_version}, and deletes need version 2: upgrade it, in Spark with "
            "ALTER TABLE ... SET TBLPROPERTIES ('format-version'='2')"
        )
    keys = _find_keys(options, table, problems)
    _check_identifiers(options, table, keys, problems)
    for key in keys:
        _find(key.name, dataframe, "key column", options, problems)
    sequence = _find_sequence(options, dataframe, problems)
    operation = find_operation(options, dataframe, keys, problems)
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return ChangeFeed(
        key_ids=tuple(key.field_id for key in keys),
        sequence=tuple(sequence),
        operation_column=operation.name if operation is not None else None,
        delete_when=options.delete_when,
        is_enforced=not options.keys_not_enforced,
        trusts_inserts=options.trusts_inserts,
        keeps_deleted=options.keeps_deleted,
        are_identifiers=all(key.required for key in keys),
    )


def with_stored_sequence(feed: ChangeFeed, table: Schema, *, case_sensitive: bool | None) -> ChangeFeed:
    """Return a feed whose events lose to rows of a higher sequence that the table has.

    Raises:
        ValueError: The table lacks a sequence column.
    """
    options = FeedOptions(keys=(), case_sensitive=case_sensitive)
    problems: list[str] = []
    found = [_find(field.name, table, "sequence column", options, problems, place="table") for field in feed.sequence]
    if problems:
        raise ValueError("; ".join(problems))
    sequence = tuple(
        NestedField(stored.field_id, field.name, stored.field_type, required=False)
        for field, stored in zip(feed.sequence, found, strict=True)
        if stored is not None
    )
    return replace(feed, sequence=sequence, counts_stored=True)


def keyed_schema(schema: Schema, options: FeedOptions) -> Schema:
    """Return the schema of a new table with the keys as identifier fields, which are required.

    Raises:
        ValueError: A key is missing, or cannot be one; says all reasons.
    """
    problems: list[str] = []
    keys = [key.field_id for key in _find_keys(options, schema, problems)]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    fields = (
        field.model_copy(update={"required": True}) if field.field_id in keys else field for field in schema.fields
    )
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=keys)


def delete_spec(specs: Mapping[int, PartitionSpec], default: PartitionSpec, feed: ChangeFeed) -> PartitionSpec | None:
    """Return the partition spec to write equality deletes with, None if an unpartitioned one must be added.

    Deletes of one partition reach files of the same spec only. So they are written by partition where its values
    follow from the key and no file can be of another spec; else for the whole table.

    Args:
        specs: All specs of the table, by id.
        default: The one that new files are written with.
        feed: How rows are read.
    """
    unpartitioned = (spec for spec in specs.values() if spec.is_unpartitioned())
    sources = {field.source_id for field in default.fields if not isinstance(field.transform, VoidTransform)}
    if len(specs) == 1 and sources <= set(feed.key_ids):
        return default
    return next(unpartitioned, None)


def _find_keys(options: FeedOptions, table: Schema, problems: list[str]) -> list[NestedField]:
    found = [_find(name, table, "key column", options, problems, place="table") for name in options.keys]
    keys = [field for field in found if field is not None]
    if len({field.field_id for field in keys}) < len(keys):
        problems.append(f"option 'keys' names a column twice ({', '.join(options.keys)})")
    for field in keys:
        if isinstance(field.field_type, FloatType | DoubleType):
            problems.append(
                f"column '{field.name}' is {field.field_type} and cannot be a key, because NaN and -0 differ"
            )
        elif not isinstance(field.field_type, PrimitiveType) or isinstance(field.field_type, UnknownType):
            problems.append(
                f"column '{field.name}' is {field.field_type} and cannot be a key: name columns of one value"
            )
    return keys


def _check_identifiers(options: FeedOptions, table: Schema, keys: Iterable[NestedField], problems: list[str]) -> None:
    keys = list(keys)
    wanted, own = {key.field_id for key in keys}, set(table.identifier_field_ids)
    optional = [key.name for key in keys if not key.required]
    if optional and not own:
        return  # the keys of this write alone: nothing of the table changes
    if wanted != own and not options.evolve_keys and len(keys) == len(options.keys):
        names = ", ".join(sorted(str(table.find_column_name(field_id)) for field_id in own)) or "none"
        problems.append(
            f"option 'keys' is {', '.join(options.keys)}, and the table's identifier fields are {names}: give "
            "evolve-keys=true to change them, or the same keys"
        )
    if optional:
        problems.append(
            f"key columns {', '.join(map(repr, optional))} are optional in the table, and identifier fields, which the "
            "table has, must be required: make them required if they hold no null"
        )


def _find_sequence(options: FeedOptions, dataframe: Schema, problems: list[str]) -> list[NestedField]:
    found = [_find(name, dataframe, "sequence column", options, problems) for name in options.sequence_by]
    fields = [field for field in found if field is not None]
    problems += [
        f"sequence column '{field.name}' is {field.field_type}, whose values have no order"
        for field in fields
        if not isinstance(field.field_type, PrimitiveType) or isinstance(field.field_type, UnknownType)
    ]
    if len({field.field_id for field in fields}) < len(fields):
        problems.append(f"option 'sequence-by' names a column twice ({', '.join(options.sequence_by)})")
    return fields


def find_operation(
    options: FeedOptions, dataframe: Schema, keys: Iterable[NestedField], problems: list[str]
) -> NestedField | None:
    """Return the DataFrame's column that says what rows do, None if it has none; add what is wrong to `problems`."""
    if options.operation_column is None:
        return None
    field = _find(options.operation_column, dataframe, "operation column", options, problems)
    if field is None:
        return None
    if not isinstance(field.field_type, StringType | IntegerType | LongType):
        problems.append(f"operation column '{field.name}' is {field.field_type}: expected words, or 1 and -1")
    if field.name in {key.name for key in keys}:
        problems.append(f"operation column '{field.name}' is a key, too")
    return field


def _find(  # noqa: PLR0913  # each is another thing
    name: str,
    schema: Schema,
    role: str,
    options: FeedOptions,
    problems: list[str],
    *,
    place: str = "DataFrame",
) -> NestedField | None:
    names = [field.name for field in schema.fields]
    try:
        position = find_position(name, names, case_sensitive=options.case_sensitive)
    except AmbiguousNameError as problem:
        problems.append(f"{role} {problem}")
        return None
    if position is not None:
        return schema.fields[position]
    nested = {other.lower() for other in schema.column_names} - {other.lower() for other in names}
    if name.lower() in nested:
        problems.append(f"{role} '{name}' lies within a struct, and only whole columns are supported: copy it out")
    else:
        problems.append(f"{role} '{name}' is not in the {place} (columns: {', '.join(names)})")
    return None


class WrittenColumns:
    """The columns of one write.

    Args:
        options: The options of the write.
        dataframe: All columns of the DataFrame.
    """

    def __init__(self, options: SinkOptions, dataframe: StructType) -> None:
        self._options = options
        self._dataframe = dataframe
        self._name = identifier_text(options.table)

    @classmethod
    def of(cls, options: SinkOptions, dataframe: StructType) -> WrittenColumns:
        """Return the columns of a write whose change feed, if it has one and no keys, fits the DataFrame.

        Raises:
            OptionError: The operation column or `delete-when` does not fit; says both reasons.
        """
        return cls(options, dataframe).checked()

    def checked(self) -> WrittenColumns:
        """Return this; raise as `of`."""
        if self._options.keys is not None:  # these look at the whole feed
            return self
        problems: list[str] = []
        for look in (self._operation, self.bound_columns):
            try:
                look()
            except ValueError as problem:
                problems.append(str(problem))
        if problems:
            raise OptionError(f"Cannot write to {self._name}: {'; '.join(problems)}.")
        return self

    @cached_property
    def frame(self) -> Schema:
        """All columns of the DataFrame, optional, with ids from 1; those of types that no table has are unknown.

        Raises:
            SchemaMismatchError: Two columns have one name.
        """
        # Tasks look for columns among all of these, written or not.
        names = self._dataframe.names
        if repeated := repeated_names(names, case_sensitive=self._options.case_sensitive):
            raise SchemaMismatchError(f"Cannot write to {self._name}:\n" + bullets(repeated))
        ids = itertools.count(1)
        try:
            return Schema(
                *(NestedField(next(ids), c.name, _type(c.dataType, ids), required=False) for c in self._dataframe)
            )
        except ValueError as problem:  # such as a column 'a.b' beside a struct 'a' with a field 'b'
            raise SchemaMismatchError(f"Cannot write to {self._name}: {problem}: rename one.") from problem

    def bound_columns(self) -> Schema | None:
        """Return the columns that `delete-when` looks at, one at least, None without it.

        Raises:
            ValueError: The predicate cannot be read with these columns.
        """
        if self._options.delete_when is None:
            return None
        # Most writes need no predicates.
        from iceberg_ds.expressions.parser import parse_predicate  # noqa: PLC0415
        from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415

        predicate = parse_predicate(self._options.delete_when)
        found = RowFilter(
            predicate,
            self.frame,
            case_sensitive=bool(self._options.case_sensitive),
            time_zone=self._options.time_zone,
        )
        return Schema(*(self.frame.fields[position] for position in found.positions or (0,)))

    def columns(self, table: Schema | None) -> StructType:
        """Return the columns to write; the operation column is written if the table has it.

        Those of a new table are all nullable, unless `use-nullable-query-schema` is false.

        Args:
            table: The table's columns, None if it is yet to be created.

        Raises:
            OptionError: The DataFrame has a column that is to be filled in, or the column of marks cannot take them;
                says all reasons.
        """
        mark = self._mark(table)
        added = [StructField(name, _METADATA_TYPES[name]) for name in self._options.metadata_columns]
        if mark is not None and self._position(mark.column, self._dataframe.names) is None:
            added.append(StructField(mark.column, _mark_type(mark)))
        sent = self._sent(table)
        columns = StructType([*sent, *added]) if added else sent
        is_relaxed = table is None and self._options.use_nullable_query_schema
        return with_nullable_fields(columns) if is_relaxed else columns

    def plan(self, table: Schema, number: int | None) -> AddedColumns | None:
        """Return what tasks are told of the columns to fill in, None if there are none.

        Args:
            table: The table's columns.
            number: The number of a batch, None if nobody numbers it, and in a stream.

        Raises:
            OptionError: As `columns`, or the operation column or `delete-when` does not fit the DataFrame.
        """
        mark = self._mark(table)
        if mark is None and not self._options.metadata_columns:
            return None
        is_feed = self._options.keys is None
        return AddedColumns(
            names=self._options.metadata_columns,
            instant_us=time.time_ns() // 1000,
            number=number,
            mark=mark,
            operation_column=self._operation() if is_feed else None,
            delete_when=self._options.delete_when if is_feed else None,
        )

    def _operation(self) -> str | None:
        """Return the DataFrame's name of the operation column; raise ValueError if it does not fit."""
        options = self._options
        asked = FeedOptions(keys=(), operation_column=options.operation_column, case_sensitive=options.case_sensitive)
        problems: list[str] = []
        found = None if options.operation_column is None else find_operation(asked, self.frame, (), problems)
        if problems:
            raise ValueError("; ".join(problems))
        return None if found is None else found.name

    def _sent(self, table: Schema | None) -> StructType:
        """Return the columns of the DataFrame that are written."""
        names = self._dataframe.names
        position = self._position(self._options.operation_column, names)
        if position is None or (table is not None and self._find(names[position], table) is not None):
            return self._dataframe
        return StructType([column for number, column in enumerate(self._dataframe) if number != position])

    def _mark(self, table: Schema | None) -> DeleteMark | None:
        """Return the column that marks deleted rows; refuse what cannot be filled in."""
        problems = [
            f"column '{self._dataframe.names[position]}' is in the DataFrame, and option 'metadata-columns' fills it "
            "in: rename it, or drop one of them"
            for name in self._options.metadata_columns
            if (position := self._position(name, self._dataframe.names)) is not None
        ]
        mark = self._mark_in(table, problems)
        if problems:
            raise OptionError(f"Cannot write to {self._name}: {'; '.join(problems)}.")
        return mark

    def _mark_in(self, table: Schema | None, problems: list[str]) -> DeleteMark | None:
        name = self._options.soft_delete_column
        if name is None:
            return None
        position = self._position(name, self._dataframe.names)
        sent = None if position is None else self._dataframe[position]
        if sent is not None and not isinstance(sent.dataType, tuple(map(type, _MARK_TYPES.values()))):
            problems.append(f"column '{sent.name}' is {sent.dataType.simpleString()} in the DataFrame: {_EXPECTED}")
            return None
        stored = None if table is None else self._find(name if sent is None else sent.name, table)
        if stored is not None and not isinstance(stored.field_type, tuple(_MARK_TYPES)):
            problems.append(f"column '{stored.name}' is {stored.field_type} in the table: {_EXPECTED}")
            return None
        if stored is not None and stored.required and not isinstance(stored.field_type, BooleanType):
            problems.append(
                f"column '{stored.name}' is required in the table, and rows that are not deleted have no time in it: "
                "make it optional"
            )
        data_type = sent.dataType if sent is not None else _MARK_TYPES[type(stored.field_type)] if stored else None
        return DeleteMark(
            column=sent.name if sent is not None else stored.name if stored is not None else name,
            is_time=isinstance(data_type, spark.TimestampType | spark.TimestampNTZType),
            has_zone=isinstance(data_type, spark.TimestampType),
        )

    def _find(self, name: str, table: Schema) -> NestedField | None:
        position = self._position(name, [field.name for field in table.fields])
        return None if position is None else table.fields[position]

    def _position(self, name: str | None, names: list[str]) -> int | None:
        try:
            return None if name is None else find_position(name, names, case_sensitive=self._options.case_sensitive)
        except AmbiguousNameError:  # refused where the columns are compared
            return None


_EXPECTED = "option 'soft-delete-column' needs a boolean or a timestamp"


def _mark_type(mark: DeleteMark) -> DataType:
    if not mark.is_time:
        return spark.BooleanType()
    return spark.TimestampType() if mark.has_zone else spark.TimestampNTZType()


def _type(data_type: DataType, ids: Iterator[int]) -> IcebergType:
    try:
        return convert_type(data_type, ids)
    except UnsupportedTypeError:  # such as void, which can be written into any column
        return UnknownType()
