"""Plans a write whose rows name their tables: the write of every table that is there and may be written.

Which tables the rows name is not known before they are written. So each table is planned that the route allows. A
table without rows is not written, and one that cannot be written is refused only if rows name it; one with more
snapshots or small files than options allow is refused at once. Tables that are not there yet have no plan: their rows
go to the driver, which creates the table with the columns in which they have values. So do those of tables that cannot
be planned for before rows have added a column to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.table import Table
from pyspark.sql.types import StringType, StructField, StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.multi_table.cut_table import refuse_other_use, refuse_unfit_cut
from iceberg_ds.options.routes import RouteOptions
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import NewTables, RoutedPlan, TablePlan
from iceberg_ds.planning.columns import columns_named, columns_there, filled_twice
from iceberg_ds.planning.decide import check_load, plan_branches, unrouted_rows
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.table.names import AmbiguousNameError, find_position, find_positions, identifier_text, parse_identifier
from iceberg_ds.table.routes import ANY, Routes, has_place


def plan_routed(
    catalog: CatalogClient,
    options: RouteOptions,
    dataframe: StructType,
    mode: WriteMode = WriteMode.APPEND,
    *,
    is_stream: bool = False,
) -> RoutedPlan:
    """Decide how the rows of a DataFrame go into the tables that they name.

    Raises:
        OptionError: The DataFrame has no such column of text, or an option does not fit a table.
        IcebergSinkError: As `plan_write`, for any of the tables.
    """
    column = _route_column(options, dataframe)
    cut = options.of_all.consistent_cut
    if cut is not None:
        refuse_unfit_cut(catalog, options.of_all, is_numbered=is_stream or options.of_all.txn_app_id is not None)
        is_quarantine = Routes(options.rule).keeps_name(cut[-1])
        refuse_other_use(cut, [*options.quarantines, cut if is_quarantine else None])
    policy = unrouted_rows(options)
    tables: dict[str, TablePlan] = {}
    refused: dict[str, str] = {}
    waiting: dict[str, tuple[str, ...]] = {}
    picked = {table: _Columns(options, table, dataframe, column).named() for table in options.columns}
    for identifier in _tables_there(catalog, options):
        name = identifier_text(identifier)
        table = catalog.find_table(identifier)
        if table is None:  # it is yet to be made
            continue
        try:
            fits = _Columns(options, name, dataframe, column)
            if fits.waits_for_rows(table):
                route = plan_branches(fits.options, table.metadata, is_new=False)
                check_load(fits.options, table.metadata, route)  # its rows are planned once they are there
                waiting[name] = fits.sent(table)
            else:
                tables[name] = _plan_table(catalog, fits, table, mode, is_stream=is_stream)
        except (OptionError, SchemaMismatchError, UnsupportedTableError) as problem:
            if name in options.rule.patterns:
                raise
            refused[name] = str(problem)
    return RoutedPlan(
        column=column,
        rule=options.rule,
        tables=tables,
        frame=dataframe.json(),
        refused=refused,
        waiting=waiting,
        picked=picked,
        bad_rows=policy,
        new_tables=None if policy is None else _new_tables(options),
        is_overwrite=mode is WriteMode.OVERWRITE,
    )


def _new_tables(options: RouteOptions) -> NewTables:
    """Return which tables that are not there rows may name."""
    named = {name: _may_be_made(options, name) for name in options.tables}
    return NewTables(is_allowed=options.of_all.create_table, named=named)


def _may_be_made(options: RouteOptions, name: str) -> bool:
    try:
        own = options.of(name)
    except OptionError:  # which refuses its rows, if there are any
        return True
    return own.create_table and (own.location is not None or has_place(own.table))


def _plan_table(catalog: CatalogClient, fits: _Columns, table: Table, mode: WriteMode, *, is_stream: bool) -> TablePlan:
    columns = fits.of(table)
    if not columns.fields:
        columns = fits.all  # refused, with their names
    own = fitting(fits.options, columns)
    return TablePlan(
        plan=plan_write(catalog, own, columns, mode, is_stream=is_stream, table=table),
        columns=tuple(columns.names),
        absent=fits.absent_of(columns),
        may_gain=fits.options.schema_evolution != "strict",
    )


def fitting(options: SinkOptions, columns: StructType) -> SinkOptions:
    """Return the options of a table, without the column of event times if the table does not get that column."""
    asked = options.event_time_column
    if asked is None or find_position(asked, columns.names, case_sensitive=options.case_sensitive) is not None:
        return options
    return replace(options, event_time_column=None)


def _route_column(options: RouteOptions, dataframe: StructType) -> str:
    """Return the DataFrame's name of the column that names the table of each row; check what tables share."""
    if doubled := sorted({name for name in dataframe.names if dataframe.names.count(name) > 1}):
        raise SchemaMismatchError(f"Cannot write to several tables: several columns are named {', '.join(doubled)}.")
    if problems := filled_twice(options.of_all, dataframe.names):
        raise OptionError(f"Cannot write to several tables: {'; '.join(problems)}.")
    if (timed := options.of_all.event_time_column) is not None:
        _find(options, dataframe, "event-time-column", timed)
    column = _find(options, dataframe, "route-by", options.column)
    if not isinstance(column.dataType, StringType):
        raise OptionError(
            f"Cannot write to several tables: option 'route-by' names '{options.column}': it is "
            f"{column.dataType.simpleString()}, and text is needed, which names a table."
        )
    return column.name


def _find(options: RouteOptions, dataframe: StructType, option: str, name: str) -> StructField:
    names = dataframe.names
    try:
        position = find_position(name, names, case_sensitive=options.of_all.case_sensitive)
    except AmbiguousNameError as problem:
        raise OptionError(f"Cannot write to several tables: option '{option}': {problem}.") from problem
    if position is None:
        raise OptionError(
            f"Cannot write to several tables: option '{option}' names '{name}': the DataFrame has no such column: it "
            f"has {', '.join(names)}."
        )
    return dataframe[position]


def _tables_there(catalog: CatalogClient, options: RouteOptions) -> Iterator[tuple[str, ...]]:
    """Yield the identifiers of the tables that may be written and may be there."""
    routes = Routes(options.rule)
    named = set(filter(routes.allows, (parse_identifier(text) for text in options.rule.patterns if ANY not in text)))
    spaces: set[tuple[str, ...]] = set()
    for text in options.rule.patterns:
        *levels, _ = parse_identifier(text)
        if ANY not in text:
            continue
        if any(ANY in level for level in levels):
            spaces |= set(catalog.namespaces(len(levels)))
        else:
            spaces.add(tuple(levels))
    for namespace in sorted(spaces):
        named |= {table for table in catalog.tables_in(namespace) if routes.allows(table)}
    yield from sorted(named)


class _Columns:
    """Which columns of the DataFrame a table gets.

    Args:
        options: The options of the write.
        name: Identifier of the table.
        dataframe: All columns of the DataFrame.
        column: The column that names the table of each row.
    """

    def __init__(self, options: RouteOptions, name: str, dataframe: StructType, column: str) -> None:
        self.options: SinkOptions = options.of(name)
        self._name = name
        self._dataframe = dataframe
        self._column = column
        self._picked = options.columns.get(name.lower())
        self._read = columns_named(self.options, dataframe)  # with values in them or not

    @property
    def all(self) -> StructType:
        """All columns but the one that names tables."""
        return StructType([column for column in self._dataframe if column.name != self._column])

    def of(self, table: Table) -> StructType:
        """Return the columns that the table has, and those that the write reads; or those of `route-columns`."""
        wanted = self._there(table) | self._read if self._picked is None else self.named()
        return StructType([column for column in self._dataframe if column.name in wanted])

    def waits_for_rows(self, table: Table) -> bool:
        """Return whether rows must first add a column that the write reads, or any column at all.

        A plan would add it now, also to a table that no row names.
        """
        if self._picked is not None or self.options.schema_evolution == "strict" or not self.all.fields:
            return False
        there = self._there(table)
        operation = (self.options.operation_column or "").lower()
        return any(name.lower() != operation for name in self._read - there) or not there | self._read

    def sent(self, table: Table) -> tuple[str, ...]:
        """Return the columns that the driver gets of rows of a table that has no plan."""
        wanted = {*self.all.names, *self.of(table).names}
        return tuple(name for name in self._dataframe.names if name in wanted)

    def _there(self, table: Table) -> set[str]:
        """Return the columns of the DataFrame that the table has."""
        return columns_there(self.options, self._dataframe, table.schema())

    def absent_of(self, columns: StructType) -> tuple[str, ...]:
        """Return the other columns of the DataFrame, where the table's rows may have no values."""
        if self._picked is not None:
            return ()
        known = {*columns.names, self._column}
        return tuple(name for name in self._dataframe.names if name not in known)

    def named(self) -> tuple[str, ...]:
        """Return the columns that options name, as the DataFrame writes them.

        Raises:
            OptionError: The DataFrame lacks one.
        """
        assert self._picked is not None  # noqa: S101  # checked by the caller
        try:
            positions = find_positions(self._picked, self._dataframe.names, case_sensitive=self.options.case_sensitive)
        except AmbiguousNameError as problem:
            raise OptionError(f"Cannot write to {self._name}: option 'route-columns' {problem}.") from problem
        if missing := [name for name, found in zip(self._picked, positions, strict=True) if found is None]:
            raise OptionError(
                f"Cannot write to {self._name}: option 'route-columns.{self._name}' names {', '.join(missing)}, and "
                f"the DataFrame has {', '.join(self._dataframe.names)}."
            )
        return tuple(self._dataframe.names[position] for position in positions if position is not None)
