"""Pure: which columns a write writes: the DataFrame's without the operation column, and the columns filled in.

Decided on the driver, for appends and writes by keys alike. Columns that are filled in take part in everything that
columns of the DataFrame take part in: new tables get them, and existing ones by the rules of schema evolution.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UnknownType,
)
from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructField, StructType

from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import DIFF, EPOCH_ID, ERRORS, EXTRACTED_AT, OPERATION, AddedColumns, DeleteMark
from iceberg_ds.table.names import (
    AmbiguousNameError,
    find_position,
    find_positions,
    identifier_text,
    repeated_names,
)
from iceberg_ds.table.spark_types import (
    UnsupportedTypeError,
    bullets,
    cast_type,
    convert_type,
    is_nested,
    retyped,
    variant_schema,
    why_no_variant,
    with_nullable_fields,
)
from iceberg_ds.table.variant import VariantType

_KEYED_VERSION = 2
_METADATA_TYPES: dict[str, DataType] = {
    EXTRACTED_AT: spark.TimestampType(),
    EPOCH_ID: spark.LongType(),
    OPERATION: spark.StringType(),
    DIFF: spark.IntegerType(),
}
_ERRORS_TYPE = spark.ArrayType(
    StructType([StructField(name, spark.StringType()) for name in ("column", "change", "reason")])
)
_MARK_TYPES: dict[type[IcebergType], DataType] = {
    BooleanType: spark.BooleanType(),
    TimestampType: spark.TimestampNTZType(),
    TimestamptzType: spark.TimestampType(),
}


def find_operation(
    options: SinkOptions, dataframe: Schema, keys: Iterable[NestedField], problems: list[str]
) -> NestedField | None:
    """Return the DataFrame's operation column, or None if it has none; add what is wrong to `problems`."""
    if options.operation_column is None:
        return None
    field = find_column(
        options.operation_column, dataframe, "operation column", problems, case_sensitive=options.case_sensitive
    )
    if field is None:
        return None
    if not isinstance(field.field_type, StringType | IntegerType | LongType):
        problems.append(f"operation column '{field.name}' is {field.field_type}: expected words, or 1 and -1")
    if field.name in {key.name for key in keys}:
        problems.append(f"operation column '{field.name}' is a key, too")
    return field


def find_column(  # noqa: PLR0913  # each is another thing
    name: str,
    schema: Schema,
    role: str,
    problems: list[str],
    *,
    case_sensitive: bool | None,
    place: str = "DataFrame",
) -> NestedField | None:
    """Return the column of a schema that `name` means; if there is none, return None and add the reason to `problems`.

    Args:
        name: The column, as an option names it.
        schema: The schema to search.
        role: What the column is to be, for the reason.
        problems: Takes the reason.
        case_sensitive: How names are matched, see `find_position`.
        place: Whose schema that is, for the reason.
    """
    names = [field.name for field in schema.fields]
    try:
        position = find_position(name, names, case_sensitive=case_sensitive)
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


def _framed(columns: StructType) -> Schema:
    ids = itertools.count(1)
    return Schema(*(NestedField(next(ids), c.name, _type(c.dataType, ids), required=False) for c in columns))


def filled_twice(options: SinkOptions, names: Sequence[str]) -> list[str]:
    """Return what is wrong with columns of a DataFrame that the sink is to fill in, a text for each."""
    filled = dict.fromkeys(options.metadata_columns, "metadata-columns")
    if options.on_bad_row == "null":
        filled[ERRORS] = "on-bad-row"
    return [
        f"column '{names[position]}' is in the DataFrame, and option '{option}' fills it in: rename it, or drop one of "
        "them"
        for name, option in filled.items()
        if (position := _position(options, name, names)) is not None
    ]


def columns_named(options: SinkOptions, dataframe: StructType) -> set[str]:
    """Return the columns of a DataFrame that options name, so that a write reads them, with values in them or not."""
    sources = [
        *(term.source for term in options.partition_by or ()),
        *(term.source for term in options.sort_by or ()),
    ]
    named = {
        *(options.keys or ()),
        *options.sequence_by,
        *(name for name in (options.operation_column, options.soft_delete_column) if name),
        *(source.partition(".")[0] for source in sources),
    }
    predicates = [text for text in (options.delete_when, options.replace_where) if text is not None]
    if predicates:
        # Most writes need no predicates.
        from iceberg_ds.expressions.parser import names_in, parse_predicate  # noqa: PLC0415

        named |= {parts[0] for text in predicates for parts in names_in(parse_predicate(text))}
    folded = {name.lower() for name in named}
    return {column.name for column in dataframe if column.name.lower() in folded}


def columns_there(options: SinkOptions, dataframe: StructType, table: Schema) -> set[str]:
    """Return the columns of a DataFrame that a table has.

    Raises:
        OptionError: Case is ignored, and it is not certain which column of the table one is.
    """
    there = [field.name for field in table.fields]
    try:
        found = find_positions(dataframe.names, there, case_sensitive=options.case_sensitive)
    except AmbiguousNameError as problem:
        raise OptionError(f"Cannot write to {identifier_text(options.table)}: column {problem}.") from problem
    return {name for name, position in zip(dataframe.names, found, strict=True) if position is not None}


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
            OptionError: The operation column or `delete-when` does not fit; gives both reasons. Or the column of event
                times does not.
        """
        written = cls(options, dataframe).checked()
        written.event_time()
        return written

    def checked(self) -> WrittenColumns:
        """Return these columns; raise as `of` does."""
        if self._options.keys is not None:  # a write by keys checks the whole feed
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
        """All columns of the DataFrame, optional, with ids from 1; a column of a type that no table has is unknown.

        Raises:
            SchemaMismatchError: Two columns have one name.
        """
        # Tasks look for columns among all of these, written or not.
        names = self._dataframe.names
        if repeated := repeated_names(names, case_sensitive=self._options.case_sensitive):
            raise SchemaMismatchError(f"Cannot write to {self._name}:\n" + bullets(repeated))
        try:
            return _framed(self._dataframe)
        except ValueError as problem:  # such as a column 'a.b' beside a struct 'a' with a field 'b'
            with suppress(ValueError):
                if self._options.nested_as_variant:
                    return _framed(variant_schema(self._dataframe))
            raise SchemaMismatchError(f"Cannot write to {self._name}: {problem}: rename one.") from problem

    def event_time(self) -> str | None:
        """Return the DataFrame's name of the column with the event time of rows, or None if it has none.

        Without option `event-time-column` it is the column of the stream's watermark, if its times have a zone.

        Raises:
            OptionError: The option names no column, or one that holds no time.
        """
        asked = self._options.event_time_column
        if asked is None:
            marked = (column for column in self._dataframe if _WATERMARK in column.metadata)
            return next((column.name for column in marked if isinstance(column.dataType, _TIME)), None)
        position = _position(self._options, asked, self._dataframe.names)
        if position is None:
            reason = f"the DataFrame has no such column: it has {', '.join(self._dataframe.names)}"
        elif not isinstance((column := self._dataframe[position]).dataType, _TIME):
            reason = f"it is {column.dataType.simpleString()}, and a timestamp is needed: cast it to timestamp"
        else:
            return column.name
        raise OptionError(f"Cannot write to {self._name}: option 'event-time-column' names '{asked}': {reason}.")

    def bound_columns(self) -> Schema | None:
        """Return the columns that `delete-when` reads, at least one, or None if the option is not given.

        Raises:
            ValueError: The predicate cannot be read with these columns.
        """
        if self._options.delete_when is None:
            return None
        # Most writes need no predicates.
        from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415

        found = RowFilter(
            self._options.delete_when,
            self.frame,
            case_sensitive=bool(self._options.case_sensitive),
            time_zone=self._options.time_zone,
        )
        return Schema(*(self.frame.fields[position] for position in found.positions or (0,)))

    def columns(self, table: Schema | None) -> StructType:
        """Return the columns to write; the operation column is written if the table has it.

        The columns of a new table are all nullable, unless `use-nullable-query-schema` is false.

        Args:
            table: The table's columns, or None if the table is yet to be created.

        Raises:
            OptionError: The DataFrame has a column that is to be filled in, or the column of delete marks cannot take
                them; lists all reasons.
            SchemaMismatchError: A column cannot be written as variants; names each.
        """
        mark = self._mark(table)
        added = [StructField(name, _METADATA_TYPES[name]) for name in self._options.metadata_columns]
        if self._options.on_bad_row == "null":
            added.append(StructField(ERRORS, _ERRORS_TYPE))
        if mark is not None and _position(self._options, mark.column, self._dataframe.names) is None:
            added.append(StructField(mark.column, _mark_type(mark)))
        sent = self._cast(self._with_variants(self._sent(table), table), table)
        columns = StructType([*sent, *added]) if added else sent
        is_relaxed = table is None and self._options.use_nullable_query_schema
        return with_nullable_fields(columns) if is_relaxed else columns

    def plan(self, table: Schema, number: int | None) -> AddedColumns | None:
        """Return the columns that tasks fill in, or None if there are no such columns.

        Args:
            table: The table's columns.
            number: Number of a batch, or None for a batch without a number, and in a stream.

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
        if self._options.operation_column is None:
            return None
        problems: list[str] = []
        found = find_operation(self._options, self.frame, (), problems)
        if problems:
            raise ValueError("; ".join(problems))
        return None if found is None else found.name

    def _sent(self, table: Schema | None) -> StructType:
        """Return the columns of the DataFrame that are written."""
        names = self._dataframe.names
        position = _position(self._options, self._options.operation_column, names)
        if position is None or (table is not None and self._find(names[position], table) is not None):
            return self._dataframe
        return StructType([column for number, column in enumerate(self._dataframe) if number != position])

    def _with_variants(self, sent: StructType, table: Schema | None) -> StructType:
        """Return the columns as tasks leave them: with `nested-as-variant` nested ones that fit are variants."""
        if not self._options.nested_as_variant:
            return sent
        columns, problems = [], []
        for column in sent:
            own = None if table is None else self._find(column.name, table)
            fits = own is None or isinstance(own.field_type, VariantType)
            if not (fits and is_nested(column.dataType)):
                columns.append(column)
            elif (reason := why_no_variant(column.dataType)) is not None:
                problems.append(f"column '{column.name}' holds {reason}")
            else:
                columns.append(retyped(column, spark.VariantType()))
        if problems:
            raise SchemaMismatchError(f"Cannot write to {self._name} as variants:\n" + bullets(problems))
        return StructType(columns)

    def _cast(self, sent: StructType, table: Schema | None) -> StructType:
        """Return the columns as tasks leave them: those whose values they cast one by one have the table's types.

        Columns that say what a row does, or what is newest, are read as the DataFrame has them. With `full` evolution
        the table's types follow those of the DataFrame.
        """
        options = self._options
        if table is None or options.on_bad_row == "fail" or options.schema_evolution == "full":
            return sent
        bound = self.bound_columns() if options.delete_when is not None else None
        read = {options.operation_column, *options.sequence_by, *(one.name for one in (bound.fields if bound else ()))}
        kept = {name.lower() for name in read if name is not None}
        return StructType([column if column.name.lower() in kept else self._cast_one(column, table) for column in sent])

    def _cast_one(self, column: StructField, table: Schema) -> StructField:
        own = self._find(column.name, table)
        target = None if own is None else cast_type(column.dataType, own.field_type)
        if target is None:
            return column
        return retyped(column, target)

    def _mark(self, table: Schema | None) -> DeleteMark | None:
        """Return the column that marks deleted rows; refuse columns that cannot be filled in."""
        problems = filled_twice(self._options, self._dataframe.names)
        mark = self._mark_in(table, problems)
        if problems:
            raise OptionError(f"Cannot write to {self._name}: {'; '.join(problems)}.")
        return mark

    def _mark_in(self, table: Schema | None, problems: list[str]) -> DeleteMark | None:
        name = self._options.soft_delete_column
        if name is None:
            return None
        position = _position(self._options, name, self._dataframe.names)
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
        position = _position(self._options, name, [field.name for field in table.fields])
        return None if position is None else table.fields[position]


def _position(options: SinkOptions, name: str | None, names: Sequence[str]) -> int | None:
    try:
        return None if name is None else find_position(name, names, case_sensitive=options.case_sensitive)
    except AmbiguousNameError:  # refused where the columns are compared
        return None


# Spark marks the column of a watermark by this key of its metadata.
_WATERMARK = "spark.watermarkDelayMs"
_TIME = spark.TimestampType  # a time without a zone may be any moment of some 26 hours
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
