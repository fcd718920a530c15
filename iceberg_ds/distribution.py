"""`distribute`: brings rows to tasks and into an order by which few, large and sorted files come out.

A sink cannot ask Spark for a distribution, so this is done to the DataFrame before it is written. Reads the
table's partition spec, sort order and properties from the catalog; changes nothing there. Runs on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform
from pyiceberg.types import NestedField
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import DataType, StructType

from iceberg_ds.catalog import catalog_settings, connect
from iceberg_ds.errors import IcebergSinkError, OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.layout import describes, evolved_spec, new_sort_order, new_spec, spec_text
from iceberg_ds.names import AmbiguousNameError, find_position
from iceberg_ds.options import SinkOptions, parse_options
from iceberg_ds.spark_transforms import transformed
from iceberg_ds.spark_types import iceberg_schema, is_writable
from iceberg_ds.terms import quoted

Mode = Literal["none", "hash", "range"]
_MODES: tuple[Mode, ...] = get_args(Mode)
_MODE_PROPERTY = "write.distribution-mode"
_TEMPORARY = "__iceberg_ds_key_"


def distribute(
    df: DataFrame,
    table: str,
    *,
    mode: Mode | None = None,
    num_partitions: int | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of `df` repartitioned, and in batches sorted, by the layout of the table they go to.

    Rows are sorted within each task by table partition, then by the table's sort order. Spark sorts no
    streams; there the sink alone sorts, within each file.

    Args:
        df: A batch or streaming DataFrame with the columns of the table.
        table: The table's identifier, as in `save("db.t")`.
        mode: `hash` brings each table partition to one task. `range` cuts the order of partitions and sort
            order into ranges of about the same number of rows, so a large partition may go to several tasks; it
            runs the query once more to find the cuts. `none` moves no rows. None for the table property
            `write.distribution-mode`; without it `hash` for a partitioned table, `range` for a table that only
            has a sort order, else `none`.
        num_partitions: Number of tasks that write. None for Spark's default parallelism, about one task for
            each core, or `spark.sql.shuffle.partitions` if that is less.
        options: The options that the write gets: where the table is, and `partition-by`, `sort-by` and table
            properties of a table that does not exist yet.

    Raises:
        OptionError: An argument or option is wrong, or `partition-by` is not the table's partitioning.
        SchemaMismatchError: The DataFrame lacks a column to distribute by, or it has another type.
        UnsupportedTableError: The table has an unknown transform or distribution mode.
        CatalogError: The catalog could not be reached or refused.
    """
    _check_arguments(mode, num_partitions)
    parsed = parse_options({**{key.lower(): str(value) for key, value in (options or {}).items()}, "path": table})
    layout = _find_layout(df, parsed)
    keys = _Keys(df, layout, parsed)
    chosen = _applicable(mode or layout.mode or _default_mode(layout), layout)
    rows = df.withColumns(keys.temporary) if keys.temporary else df
    if chosen == "hash":
        rows = rows.repartition(num_partitions or _default_partitions(df), *keys.partition_columns)
    elif chosen == "range":
        rows = rows.repartitionByRange(num_partitions or _default_partitions(df), *keys.ordering)
    if keys.ordering and not df.isStreaming:
        rows = rows.sortWithinPartitions(*keys.ordering)
    return rows.drop(*keys.temporary)


def _check_arguments(mode: str | None, num_partitions: int | None) -> None:
    if mode is not None and mode not in _MODES:
        raise OptionError(f"Cannot distribute: mode is {mode!r}, expected one of {', '.join(_MODES)}.")
    if num_partitions is not None and num_partitions < 1:
        raise OptionError(f"Cannot distribute: num_partitions is {num_partitions}, expected a number above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What the table, or the one to be created, says of where rows belong.

    Attributes:
        name: The table's name, for errors.
        schema: Its columns.
        spec: The partition spec that rows are written with.
        order: The order of rows in a file.
        mode: The table's own distribution mode, None if it names none.
    """

    name: str
    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    mode: Mode | None


def _find_layout(df: DataFrame, options: SinkOptions) -> _Layout:
    name = ".".join(options.table)
    table = connect(catalog_settings(options)).find_table(options.table)
    with _naming(name):
        if table is None:
            return _new_layout(df, name, options)
        metadata = table.metadata
        schema = metadata.schema()
        present = metadata.sort_order_by_id(metadata.default_sort_order_id) or UNSORTED_SORT_ORDER
        return _Layout(
            name=name,
            schema=schema,
            spec=_spec(options, metadata, name),
            order=new_sort_order(options.sort_by, schema, 1) if options.sort_by else present,
            mode=_table_mode(metadata.properties, name),
        )


def _new_layout(df: DataFrame, name: str, options: SinkOptions) -> _Layout:
    schema = iceberg_schema(df.schema)
    return _Layout(
        name=name,
        schema=schema,
        spec=new_spec(options.partition_by or (), schema),
        order=new_sort_order(options.sort_by or (), schema, 1),
        mode=_table_mode(options.table_properties, name),
    )


def _spec(options: SinkOptions, metadata: TableMetadata, name: str) -> PartitionSpec:
    terms, schema = options.partition_by, metadata.schema()
    if terms is None:
        return metadata.spec()
    if describes(terms, metadata.spec(), schema) or options.evolve_partitioning:
        return evolved_spec(terms, metadata)
    raise OptionError(
        f"Cannot distribute for {name}: option 'partition-by' is {', '.join(map(str, terms))}, and the table is "
        f"partitioned by {spec_text(metadata.spec(), schema) or 'nothing'}. Drop the option, or give "
        "evolve-partitioning=true here and to the write."
    )


@contextmanager
def _naming(table: str) -> Iterator[None]:
    """Turn what is wrong with the terms of the options into an error of the options."""
    try:
        yield
    except IcebergSinkError:
        raise
    except ValueError as problem:
        raise OptionError(f"Cannot distribute for {table}: {problem}.") from problem


def _table_mode(properties: Mapping[str, str], name: str) -> Mode | None:
    text = properties.get(_MODE_PROPERTY)
    if text is None:
        return None
    for mode in _MODES:
        if text.lower() == mode:
            return mode
    raise UnsupportedTableError(
        f"Cannot distribute for {name}: property {_MODE_PROPERTY} is {text!r}, expected one of {', '.join(_MODES)}. "
        "Argument 'mode' overrides it."
    )


def _default_mode(layout: _Layout) -> Mode:
    return "hash" if layout.spec.fields else "range"


def _applicable(mode: Mode, layout: _Layout) -> Mode:
    """Return the mode, `none` if there is nothing to distribute by, as in Iceberg's own writers."""
    is_partitioned = any(not isinstance(field.transform, VoidTransform) for field in layout.spec.fields)
    if is_partitioned or (mode == "range" and not layout.order.is_unsorted):
        return mode
    return "none"


def _default_partitions(df: DataFrame) -> int:
    ...
