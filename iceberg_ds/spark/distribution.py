"""`distribute`: moves rows to tasks and sorts them, so that few, large and sorted files are written.

A sink cannot ask Spark for a distribution, so this is done to the DataFrame before it is written. Reads the table's
partition spec, sort order and properties from the catalog; changes nothing there. Runs on the driver.

Rows of one key come to one task in a way that the tasks can prove. The proof is Spark's hash of the key and the number
of the task (`cdc.spark_hash`), so nothing may move rows after it, and the number of tasks is fixed: Spark's adaptive
execution would merge several tasks into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import NestedField
from pyiceberg.types import StructType as IcebergStruct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import DataType, NullType, StructType

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.spark.transforms import transformed
from iceberg_ds.table.names import AmbiguousNameError, find_position, free_name, identifier_text, quoted
from iceberg_ds.table.spark_types import iceberg_schema, is_writable, variant_schema
from iceberg_ds.table.spec_parser import parse_columns
from iceberg_ds.table.specs import describes, evolved_spec, new_sort_order, new_spec, spec_text

Mode: TypeAlias = Literal["none", "hash", "range"]
_MODES: tuple[Mode, ...] = get_args(Mode)
_MODE_PROPERTY = "write.distribution-mode"
_ADAPTIVE = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")


def distributed_by_key(df: DataFrame, keys: Sequence[str] | str, count: int | None) -> DataFrame:
    """Return the rows of `df` in `count` tasks, all rows of one key in one task.

    Args:
        df: A batch or streaming DataFrame.
        keys: Names of the key columns, or text with commas between them.
        count: Number of tasks, None if Spark tells no default.

    Raises:
        OptionError: No key is named, or there is no number of tasks.
        SchemaMismatchError: The DataFrame lacks a key column.
    """
    names = _names(keys)
    if count is None:
        raise OptionError("Cannot distribute: Spark tells no default number of tasks. Give num_partitions.")
    columns, problems = [], []
    for name in names:
        try:
            position = find_position(name, df.columns)
        except AmbiguousNameError as ambiguous:
            problems.append(f"key column {ambiguous}")
            continue
        if position is None:
            problems.append(f"the DataFrame has no key column '{name}' (columns: {', '.join(df.columns)})")
        else:
            columns.append(F.col(quoted(df.columns[position])))
    if problems:
        raise SchemaMismatchError(f"Cannot distribute by key: {'; '.join(problems)}.")
    return df.repartition(count, *columns)


def _names(keys: Sequence[str] | str) -> tuple[str, ...]:
    try:
        names = parse_columns(keys) if isinstance(keys, str) else tuple(keys)
    except ValueError as problem:
        raise OptionError(f"Cannot distribute: keys is {keys!r}: {problem}.") from problem
    if not names:
        raise OptionError("Cannot distribute: keys names no column. Name those of the write's option 'keys'.")
    return names


def distribute(  # noqa: PLR0913  # most are given by name
    df: DataFrame,
    table: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    keys: Sequence[str] | str | None = None,
    mode: Mode | None = None,
    num_partitions: int | None = None,
) -> DataFrame:
    """Return the rows of `df` repartitioned, and in batches sorted, by the layout of the table they go to, or by key.

    Rows are sorted within each task by table partition, then by the table's sort order. Spark sorts no
    streams; there the sink alone sorts, within each file.

    Args:
        df: A batch or streaming DataFrame with the columns of the table; optional ones that it lacks count as null.
        table: Identifier of the table, such as `db.events`; None with `keys`.
        options: The options that the write gets: where the table is, and `partition-by`, `sort-by` and table
            properties of a table that does not exist yet. None for no options, and with `keys`.
        keys: Names of the key columns in the order of option `keys`, or one text with commas between them: rows of one
            key come to one task, wherever the table puts them. None to distribute by the layout of the table.
        mode: `hash` brings each table partition to one task. `range` cuts the order of partitions and sort
            order into ranges of about the same number of rows, so a large partition may go to several tasks; it
            runs the query once more to find the cuts. `none` moves no rows. None for the table property
            `write.distribution-mode`; without it `hash` for a partitioned table, `range` for a table that only
            has a sort order, else `none`.
        num_partitions: Number of tasks that write. None leaves it to Spark's adaptive execution, which makes
            tasks of 64 MB of shuffled data, smaller ones if there are cores left, but of 1 MB at least. In streams,
            with `keys` and without adaptive execution it is Spark's default parallelism, one task for each core, or
            `spark.sql.shuffle.partitions` if that is less.

    Returns:
        A DataFrame with the same rows and columns.

    Raises:
        OptionError: An argument or option is wrong, the options name another table, or `partition-by` is not the
            table's partitioning.
        SchemaMismatchError: The DataFrame lacks a required column to distribute by, or it has another type.
        UnsupportedTableError: The table has an unknown transform or distribution mode.
        CatalogError: The catalog could not be reached or refused.
    """
    _check_arguments(mode, num_partitions)
    if keys is not None:
        if table is not None or mode is not None or options is not None:
            raise OptionError(
                "Cannot distribute: with 'keys', rows go where their key says. Drop the other arguments, or 'keys'."
            )
        return distributed_by_key(df, keys, num_partitions or _fixed_partitions(df))
    if table is None:
        raise OptionError("Cannot distribute: name the table, or with 'keys' the key columns of the write.")
    layout = _find_layout(df.schema, parse_options(options_of_call(table, options)), mode)
    by = _find_keys(df, layout)
    count = num_partitions or _default_partitions(df)
    rows = _moved(df.withColumns(dict(by.temporary)), by, layout.mode, () if count is None else (count,))
    if by.ordering and not df.isStreaming:
        rows = rows.sortWithinPartitions(*by.ordering)
    return rows.drop(*by.temporary)


def _moved(rows: DataFrame, keys: _Keys, mode: Mode, count: tuple[int] | tuple[()]) -> DataFrame:
    if mode == "hash" and keys.partition:
        return rows.repartition(*count, *keys.partition)
    if mode == "range" and keys.ordering:
        return rows.repartitionByRange(*count, *keys.ordering)
    return rows


def _check_arguments(mode: str | None, num_partitions: int | None) -> None:
    if mode is not None and mode not in _MODES:
        raise OptionError(f"Cannot distribute: mode is {mode!r}, expected one of {', '.join(_MODES)}.")
    if num_partitions is not None and (not isinstance(num_partitions, int) or num_partitions < 1):
        raise OptionError(f"Cannot distribute: num_partitions is {num_partitions!r}, expected a number above 0.")


def _default_partitions(df: DataFrame) -> int | None:
    """Return how many tasks are to write, or None to let Spark decide as it runs."""
    conf = df.sparkSession.conf
    is_adaptive = all(conf.get(key) == "true" for key in _ADAPTIVE)
    return None if is_adaptive and not df.isStreaming else _fixed_partitions(df)


def _fixed_partitions(df: DataFrame) -> int | None:
    """Return Spark's default number of tasks, or None if it tells none."""
    conf = df.sparkSession.conf
    text = str(conf.get("spark.sql.shuffle.partitions"))
    known = [int(text)] if text.isdigit() else []  # some platforms have words there
    with suppress(Exception):  # Spark Connect tells no parallelism
        known.append(df.sparkSession.sparkContext.defaultParallelism)
    return min(known, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where rows of a table belong.

    Attributes:
        name: The table's name, for errors.
        schema: Its columns.
        fields: Its partition fields that are not void.
        order: Its sort fields that are not void.
        mode: How rows are distributed.
        case_sensitive: How the DataFrame's columns are found, see `find_position`.
    """

    name: str
    schema: Schema
    fields: Sequence[PartitionField]
    order: Sequence[SortField]
    mode: Mode
    case_sensitive: bool | None


def _find_layout(dataframe: StructType, options: SinkOptions, mode: Mode | None) -> _Layout:
    name = identifier_text(options.table)
    table = connect(catalog_settings(options)).find_table(options.table)
    with naming_action(f"distribute for {name}"):
        if table is None:
            columns = variant_schema(dataframe) if options.nested_as_variant else dataframe
            schema = iceberg_schema(columns, format_version=options.new_version)
            properties = options.table_properties
            spec, order = new_spec(options.partition_by or (), schema), UNSORTED_SORT_ORDER
        else:
            schema, properties = table.schema(), table.properties
            spec, order = _spec(options, table.metadata, name), table.sort_order()
        if options.sort_by:
            order = new_sort_order(options.sort_by, schema, 1)
    fields = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    return _Layout(
        name=name,
        schema=schema,
        fields=fields,
        order=[field for field in order.fields if not isinstance(field.transform, VoidTransform)],
        mode=mode or _table_mode(properties, name) or ("hash" if fields else "range"),
        case_sensitive=options.case_sensitive,
    )


def _spec(options: SinkOptions, metadata: TableMetadata, name: str) -> PartitionSpec:
    terms, schema = options.partition_by, metadata.schema()
    if terms is None:
        return metadata.spec()
    if describes(terms, metadata.spec(), schema) or options.evolve_partitioning:
        return evolved_spec(terms, metadata)
    asked = ", ".join(map(str, terms)) or "empty"
    raise OptionError(
        f"Cannot distribute for {name}: option 'partition-by' is {asked}, and the table is "
        f"partitioned by {spec_text(metadata.spec(), schema) or 'nothing'}. Drop the option, or give "
        "evolve-partitioning=true here and to the write."
    )


def _table_mode(properties: Mapping[str, str], name: str) -> Mode | None:
    text = properties.get(_MODE_PROPERTY)
    for mode in _MODES:
        if text is not None and text.lower() == mode:
            return mode
    if text is None:
        return None
    raise UnsupportedTableError(
        f"Cannot distribute for {name}: property {_MODE_PROPERTY} is {text!r}, expected one of {', '.join(_MODES)}. "
        "Argument 'mode' overrides it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """What rows are distributed and sorted by.

    Attributes:
        temporary: Columns that are computed once, before the rows are moved, and dropped in the end.
        partition: The values of the partition fields.
        ordering: The same, followed by the sort fields, each with direction and place of nulls.
    """

    temporary: Mapping[str, Column]
    partition: Sequence[Column]
    ordering: Sequence[Column]


def _find_keys(df: DataFrame, layout: _Layout) -> _Keys:
    fields = _sort_fields(layout)
    temporary: dict[str, Column] = {}
    columns = []
    for field, (source, source_type) in zip(fields, _find_sources(df.schema, fields, layout), strict=True):
        values = transformed(source, source_type, layout.schema.find_type(field.source_id), field.transform)
        if values.is_python:
            name = free_name(f"__iceberg_ds_key_{len(temporary)}", df.columns)
            temporary[name] = values.column
        columns.append(F.col(name) if values.is_python else values.column)
    return _Keys(
        temporary=temporary,
        partition=columns[: len(layout.fields)],
        ordering=[_ordered(column, field) for column, field in zip(columns, fields, strict=True)],
    )


def _sort_fields(layout: _Layout) -> list[SortField]:
    """Return what rows are sorted by: the partition fields first, so that each table partition comes in one run."""
    clustering = [
        SortField(field.source_id, field.transform, SortDirection.ASC, NullOrder.NULLS_FIRST) for field in layout.fields
    ]
    seen = {(field.source_id, str(field.transform)) for field in clustering}
    return clustering + [field for field in layout.order if (field.source_id, str(field.transform)) not in seen]


def _ordered(column: Column, field: SortField) -> Column:
    nulls_first = field.null_order is NullOrder.NULLS_FIRST
    if field.direction is SortDirection.ASC:
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()


def _find_sources(dataframe: StructType, fields: Sequence[SortField], layout: _Layout) -> list[tuple[Column, DataType]]:
    """Return the DataFrame's column and its type for each field."""
    sources, problems = [], []
    for field in fields:
        if isinstance(field.transform, UnknownTransform):
            raise UnsupportedTableError(
                f"Cannot distribute for {layout.name}: it has an unknown transform, {field}. Distribute by keys, or "
                "write without distributing."
            )
        try:
            sources.append(_find_source(dataframe, field.source_id, layout))
        except LookupError as problem:
            problems.append(str(problem))
    if problems:
        raise SchemaMismatchError(f"Cannot distribute for {layout.name}: {'; '.join(dict.fromkeys(problems))}.")
    return sources


def _find_source(dataframe: StructType, source_id: int, layout: _Layout) -> tuple[Column, DataType]:
    path = _find_path(layout.schema.fields, source_id)
    if not path:
        raise LookupError(f"the table's layout uses column {source_id}, which is dropped, or in a list or map")
    wanted = identifier_text(field.name for field in path)
    found: DataType = dataframe
    names = []
    for field in path:
        known = found.names if isinstance(found, StructType) else []
        position = find_position(field.name, known, case_sensitive=layout.case_sensitive)
        if position is None and field.optional and isinstance(found, StructType):
            return F.lit(None), NullType()  # as the write puts nulls there
        if position is None or not isinstance(found, StructType):
            raise LookupError(f"the DataFrame has no column {wanted}")
        names.append(found.names[position])
        found = found.fields[position].dataType
    wanted_type = path[-1].field_type
    if not is_writable(found, wanted_type):
        raise LookupError(
            f"column {wanted} is {found.simpleString()} in the DataFrame and Iceberg's {wanted_type} in the table"
        )
    return F.col(".".join(map(quoted, names))), found


def _find_path(fields: Sequence[NestedField], source_id: int) -> tuple[NestedField, ...]:
    """Return the fields that lead to the source, outermost first; empty if it is dropped, or in a list or map."""
    for field in fields:
        if field.field_id == source_id:
            return (field,)
        if isinstance(field.field_type, IcebergStruct) and (rest := _find_path(field.field_type.fields, source_id)):
            return (field, *rest)
    return ()
