"""`plan_write`: every decision and every refusal, on the driver, before any task runs.

What an option does not say, the table's property says, else the default: also which branch a write goes to, where that
is forked from, and where its rows are published to. The result is a frozen value that tasks get.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from enum import Enum

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.nessie import check_branch
from iceberg_ds.commit.alter import Propose, alter_table
from iceberg_ds.commit.create_table import create_without_rows, with_first_snapshot
from iceberg_ds.commit.requests import check_replaceable
from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.io.files import file_io
from iceberg_ds.options.file_settings import file_settings
from iceberg_ds.options.rules import Kind, check_kind
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.options.table_properties import new_table_properties
from iceberg_ds.parsing import write_properties
from iceberg_ds.plan import (
    EVERY_ROW,
    DynamicOverwrite,
    IsolationLevel,
    Overwrite,
    OverwriteByFilter,
    Route,
    SchemaChange,
    StreamName,
    TxnId,
    WritePlan,
    new_operation,
)
from iceberg_ds.planning.columns import WrittenColumns
from iceberg_ds.planning.keys import KeyedWrite, why_not_keyed
from iceberg_ds.planning.prepare import Foreseen, foreseen, order_of_rows, reordering, repartitioning, stage_table
from iceberg_ds.planning.supported import check_supported
from iceberg_ds.snapshots.manifest_file import layout_of
from iceberg_ds.snapshots.refs import MAIN_BRANCH, snapshots_since, why_not_writable, write_base
from iceberg_ds.spark.session_settings import is_audited
from iceberg_ds.table.locations import trusted_provider
from iceberg_ds.table.names import identifier_text, names_branch
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.schema_evolution import EvolutionPolicy, metadata_with, propose_request, propose_schema
from iceberg_ds.table.spark_types import iceberg_schema, json_schema

# What the name of a staging branch ends with if no option names it.
_UNCONVERTED = "__unconverted"


def plan_branches(options: SinkOptions, metadata: TableMetadata, *, is_new: bool) -> Route:
    """Return the branch to write, and where it is forked from and published to.

    Args:
        options: The options of the write.
        metadata: The table.
        is_new: Whether the commit of the write creates it.

    Raises:
        OptionError: A branch is missing, or is none, or cannot be forked or published to.
    """
    name, target, staging = identifier_text(options.table), options.branch or MAIN_BRANCH, staging_branch(options)
    if staging is not None and options.publish_converted:
        _check_branch(name, metadata, Route(branch=target))
        route = Route(branch=staging, fork_from=target, publish_to=target, converts=True)
        _check_branch(name, metadata, route)
        return route
    # PyIceberg's catalogs refuse the first snapshot of a table on any branch but main.
    if not (is_new or metadata.snapshots) and target == MAIN_BRANCH:
        return Route(branch=MAIN_BRANCH)  # readers see nothing before the commit, and all rows after it
    if not (is_new or metadata.snapshots) and options.create_branch:
        raise OptionError(
            f"Cannot write to {name}: branch '{target}' cannot be forked, because the table has no snapshot yet. Write "
            "to main first."
        )
    if staging is not None:
        _check_branch(name, metadata, Route(branch=target))
        route = Route(branch=staging, fork_from=target, publish_to=target)
    else:
        forks = options.create_branch and target != MAIN_BRANCH
        route = Route(branch=target, fork_from=MAIN_BRANCH if forks else None)
    _check_branch(name, metadata, route)
    return route


def staging_branch(options: SinkOptions) -> str | None:
    """Return the branch that rows are written to before they are published, None if they are written at once."""
    if options.publish_converted and options.staging_branch is None:
        return f"{options.branch or MAIN_BRANCH}{_UNCONVERTED}"
    return options.staging_branch


def forks_at_once(options: SinkOptions) -> bool:
    """Return whether the first commit of a table goes to a fork of `main`, which must have a snapshot before."""
    return options.publish_converted and options.branch in (None, MAIN_BRANCH)


def _check_branch(name: str, metadata: TableMetadata, route: Route) -> None:
    if (reason := why_not_writable(metadata, route)) is not None:
        known = ", ".join(sorted({MAIN_BRANCH, *metadata.refs}))
        hint = f" (known: {known}). Create it with create-branch=true, or name another"
        raise OptionError(f"Cannot write to {name}: {reason}{'' if route.branch in metadata.refs else hint}.")


class WriteMode(Enum):
    """What Spark asks for: `mode("append")` and `outputMode("append")`, or `"overwrite"` and `"complete"`.

    Or what `upsert` does: an append by key that looks for the old rows before it commits.
    """

    APPEND = Kind.APPEND | Kind.DATA_SOURCE
    OVERWRITE = Kind.OVERWRITE | Kind.DATA_SOURCE
    UPSERT = Kind.APPEND | Kind.UPSERT


def plan_write(
    catalog: CatalogClient,
    options: SinkOptions,
    dataframe: StructType,
    mode: WriteMode = WriteMode.APPEND,
    *,
    is_stream: bool = False,
) -> WritePlan:
    """Decide how `dataframe` is written, and refuse what cannot be.

    Changes the schema, the partition spec or the sort orders of an existing table first, if options ask for it: in one
    commit, and only once nothing is left that could be refused.

    Raises:
        OptionError: Options and table contradict each other.
        SchemaMismatchError: A column does not fit.
        TableNotFoundError: The table is missing and `create-table` is false.
        UnsupportedTableError: The table cannot be written without breaking it.
        CatalogError, CommitConflictError, CommitStateUnknownError: The catalog could not be reached, or a change of
            the table could not be committed.
    """
    check_kind(options, mode.value | (Kind.STREAM if is_stream else Kind.BATCH))
    _check_catalog(catalog, options)
    _check_columns(options, dataframe)
    if options.nested_as_json:
        dataframe = json_schema(dataframe)
    written = WrittenColumns.of(options, dataframe)
    keyed = KeyedWrite.of(options, dataframe, written, looks_for_rows=mode is WriteMode.UPSERT)
    table, metadata = _find_or_stage(catalog, options, written, keyed)
    planner = _Planner(
        catalog=catalog,
        options=options,
        mode=mode,
        written=written,
        keyed=keyed,
        policy=_evolution_policy(options, mode, is_stream=is_stream),
    )
    plan = planner.plan(metadata, None) if table is None else planner.plan_into(table)
    if table is None and forks_at_once(options):
        create_without_rows(catalog, options.table, metadata)
        plan = planner.plan_into(catalog.load_table(options.table))
    return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """One write, whose plan follows from the table: all that can be refused is, before the table is changed."""

    catalog: CatalogClient
    options: SinkOptions
    mode: WriteMode
    written: WrittenColumns
    keyed: KeyedWrite | None
    policy: EvolutionPolicy

    def plan_into(self, table: Table) -> WritePlan:
        """Return the plan of a write into an existing table, which is changed first if that needs to be."""
        ahead, plan = self._decide(table.metadata, table)
        if ahead.request is not None:
            table = alter_table(
                self.catalog,
                self.options.table,
                lambda metadata: self._decide(metadata, table)[0].request,
                loaded=table,
            )
            _, plan = self._decide(table.metadata, table)
        if forks_at_once(self.options) and not table.metadata.snapshots:
            table = with_first_snapshot(self.catalog, self.options, table)
            _, plan = self._decide(table.metadata, table)
        if self.keyed is not None:
            self.keyed.announce(table.metadata)
        return plan

    def _decide(self, metadata: TableMetadata, table: Table) -> tuple[Foreseen, WritePlan]:
        """Return what is to change in an existing table, and the plan for the table with these changes."""
        check_supported(metadata, self._name, self.options.table_properties)
        with naming_action(f"write to {self._name}"):
            ahead = foreseen(metadata, self._steps())
        return ahead, self.plan(ahead.metadata, table)

    def _steps(self) -> list[Propose]:
        """Return the changes of an existing table, each of which builds on those before."""
        keys = [] if self.keyed is None else [self.keyed.rekeying]
        # Columns that are replaced change with the rows.
        columns = [] if self.policy.replace_types else [self._changing_columns]
        deletes = [] if self.keyed is None else [self.keyed.adding_delete_spec]
        return [
            *keys,
            *columns,
            lambda metadata: repartitioning(self.options, metadata),
            *deletes,
            lambda metadata: reordering(self.options, metadata),
        ]

    def _changing_columns(self, metadata: TableMetadata) -> CommitRequest | None:
        columns = self.written.columns(metadata.schema())
        return propose_request(columns, metadata, self.policy, table_name=self._name)

    def plan(self, metadata: TableMetadata, table: Table | None) -> WritePlan:
        """Return the plan of the write; changes nothing.

        Args:
            metadata: The table as the write finds it.
            table: Opens its files; None if the commit of the write creates it.
        """
        options = self.options
        if table is None:
            check_supported(metadata, self._name, options.table_properties)
        io_properties = self.catalog.io_properties if table is None else self.catalog.plan_properties(table)
        file_io(io_properties, metadata.location)  # refuses wrong properties of the store before any task runs
        sort_order = order_of_rows(options, metadata, is_new=table is None)
        route = plan_branches(options, metadata, is_new=table is None)
        schema_change = None if table is None else self._replacing_columns(metadata, table, route)
        if schema_change is not None:
            metadata = metadata_with(metadata, schema_change.schema, table_name=self._name)
        operation_id, snapshot_id = new_operation()
        keys = None if self.keyed is None else self.keyed.plan(metadata)
        is_plain = self.mode is WriteMode.APPEND and keys is None
        return WritePlan(
            table=self._name,
            table_uuid=str(metadata.table_uuid),
            route=route,
            overwrite=_overwrite(options, metadata, route) if self.mode is WriteMode.OVERWRITE else None,
            schema=metadata.schema(),
            schema_change=schema_change,
            spec=metadata.spec(),
            sort_order=sort_order,
            case_sensitive=options.case_sensitive,
            location=metadata.location,
            properties=write_properties(metadata.properties),
            location_provider=trusted_provider(metadata.properties, options.table_properties),
            io_properties=io_properties,
            operation_id=operation_id,
            snapshot_id=snapshot_id,
            files=file_settings(options, metadata, self._name),
            snapshot_properties=options.snapshot_properties,
            new_table=metadata.model_dump_json() if table is None else None,
            txn=_txn(options),
            stream=_stream_name(options),
            # What replaces or deletes rows is held against single files.
            manifests=layout_of(metadata, metadata.default_spec_id) if is_plain else None,
            small_task_size_bytes=options.small_task_size_bytes,
            driver_host=platform.node(),
            changes=None if keys is None else keys.changes,
            delete_spec=None if keys is None else keys.delete_spec,
            time_zone=options.time_zone,
            frame=self.written.bound_columns(),
            added=self.written.plan(metadata.schema(), options.txn_version),
            is_audited=is_audited(metadata.properties),
        )

    def _replacing_columns(self, metadata: TableMetadata, table: Table, route: Route) -> SchemaChange | None:
        """Return the change of columns that lands together with the rows, for a write that replaces all rows.

        So nobody sees the old rows without their columns.
        """
        if not self.policy.replace_types:
            return None
        columns = self.written.columns(metadata.schema())
        schema = propose_schema(columns, metadata, self.policy, table_name=self._name)
        if schema is None:
            return None
        change = SchemaChange(schema=schema, base_schema_id=metadata.current_schema_id)
        check_replaceable(metadata, table.io, change, route, table_name=self._name)
        return change

    @property
    def _name(self) -> str:
        return identifier_text(self.options.table)


def foresee(options: SinkOptions, metadata: TableMetadata, dataframe: StructType | None) -> str:
    """Return, in words, what an append would change in an existing table; changes nothing.

    Args:
        options: The options of the write.
        metadata: The table as it is.
        dataframe: The columns of the write, None if they are not known.

    Raises:
        OptionError, SchemaMismatchError, UnsupportedTableError: As `plan_write`.
    """
    name = identifier_text(options.table)
    check_supported(metadata, name, options.table_properties)
    plan_branches(options, metadata, is_new=False)
    if dataframe is None:
        if (reason := why_not_keyed(options, metadata)) is not None:
            raise OptionError(f"Cannot write to {name}: {reason}.")
        return "columns not compared"
    _check_columns(options, dataframe)
    columns = json_schema(dataframe) if options.nested_as_json else dataframe
    written = WrittenColumns.of(options, columns)
    keyed = KeyedWrite.of(options, columns, written)
    policy = _evolution_policy(options, WriteMode.APPEND, is_stream=False)
    changed = propose_schema(written.columns(metadata.schema()), metadata, policy, table_name=name)
    fit = "the columns fit" if changed is None else "the write changes the table's columns, and then they fit"
    return fit if keyed is None else f"{fit}; {keyed.foresee(metadata)}"


def foresee_creation(options: SinkOptions, dataframe: StructType) -> str:
    """Return, in words, what columns a write gives to the table that it creates.

    Raises:
        OptionError, SchemaMismatchError: As `plan_write`.
    """
    _check_columns(options, dataframe)
    written = WrittenColumns.of(options, dataframe)
    keyed = KeyedWrite.of(options, dataframe, written)
    schema = _new_schema(options, written, keyed)
    with naming_action(f"create {identifier_text(options.table)}"):
        new_table_properties(options.table_properties, schema)
    return f"{len(schema.fields)} columns can be written{'' if keyed is None else f', {keyed.foresee_new()}'}"


def _check_catalog(catalog: CatalogClient, options: SinkOptions) -> None:
    """Refuse what the catalog cannot hold, or does not show."""
    name = identifier_text(options.table)
    if not catalog.holds_branches:
        for branch in (options.branch or MAIN_BRANCH, staging_branch(options) or MAIN_BRANCH):
            check_branch(branch, table_name=name)
    if options.publish_converted and not catalog.shows_history:
        raise OptionError(
            f"Cannot write to {name}: option 'publish-converted' must see all snapshots of the table, and "
            "catalog.snapshot-loading-mode is refs. Drop that property."
        )


def _check_columns(options: SinkOptions, dataframe: StructType) -> None:
    """Refuse rows without any column: files of them cannot be read, whatever columns the table has."""
    if not dataframe.fields:
        raise SchemaMismatchError(
            f"Cannot write to {identifier_text(options.table)}: the DataFrame has no columns, so that nothing of "
            'its rows could be written. Select the columns to write, e.g. df.select("id").'
        )


def _find_or_stage(
    catalog: CatalogClient, options: SinkOptions, written: WrittenColumns, keyed: KeyedWrite | None
) -> tuple[Table | None, TableMetadata]:
    """Return the table, None if there is none, and its metadata, or that of the table to create."""
    table = catalog.find_table(options.table)
    if table is None:
        _check_name(catalog, options.table)
        schema = _new_schema(options, written, keyed)
        if (staged := stage_table(catalog, options, schema)) is not None:
            return None, staged if keyed is None else keyed.staged(staged)
        table = catalog.load_table(options.table)
    return table, table.metadata


def _check_name(catalog: CatalogClient, identifier: tuple[str, ...]) -> None:
    """Refuse to create a table whose name means a part of another one to Iceberg's Spark runtime."""
    *levels, last = identifier
    branch = names_branch(last)
    if branch is None or len(levels) < 2 or catalog.find_table(levels) is None:  # noqa: PLR2004, namespace and table
        return
    name = identifier_text(levels)
    cause = f"Cannot write to {identifier_text(identifier)}: there is no such table, but there is {name}"
    if branch:
        raise OptionError(f"{cause}. To write to its branch '{branch}', name {name} and give option branch={branch}.")
    raise OptionError(f"{cause}, whose tags and snapshots cannot be written to. Name {name}, or another table.")


def _new_schema(options: SinkOptions, written: WrittenColumns, keyed: KeyedWrite | None) -> Schema:
    if keyed is not None:
        return keyed.new_schema()
    return iceberg_schema(written.columns(None), case_sensitive=options.case_sensitive)


def _txn(options: SinkOptions) -> TxnId | None:
    if options.txn_app_id is None or options.txn_version is None:
        return None
    return TxnId(app_id=options.txn_app_id, version=options.txn_version)


def _stream_name(options: SinkOptions) -> StreamName | None:
    if options.stream_name is None:
        return None
    return StreamName(name=options.stream_name, accepts_new_checkpoint=options.accept_new_checkpoint)


def _evolution_policy(options: SinkOptions, mode: WriteMode, *, is_stream: bool) -> EvolutionPolicy:
    is_replacing_all = (
        mode is WriteMode.OVERWRITE and options.overwrite_mode != "dynamic" and options.replace_where is None
    )
    return EvolutionPolicy(
        mode=options.schema_evolution,
        drop_missing_columns=options.drop_missing_columns,
        replace_types=is_replacing_all and options.schema_evolution == "full",
        case_sensitive=options.case_sensitive,
        check_ordering=options.check_ordering,
        # In a change feed a row that deletes has nulls in all columns but its keys.
        is_nullability_known=not is_stream and options.keys is None,
        use_nullable_query_schema=options.use_nullable_query_schema,
    )


def _overwrite(options: SinkOptions, metadata: TableMetadata, route: Route) -> Overwrite:
    base = write_base(metadata, route)
    base_id = base.snapshot_id if base is not None else None
    name = identifier_text(options.table)
    if (asked := options.validate_from_snapshot_id) is not None:
        if snapshots_since(metadata, base, asked) is None:
            raise OptionError(
                f"Cannot write to {name}: option 'validate-from-snapshot-id' is {asked}, which does not lie behind "
                f"branch '{route.branch}', or has expired."
            )
        base_id = asked
    isolation_level: IsolationLevel = options.isolation_level or "serializable"
    if options.overwrite_mode == "dynamic":
        return DynamicOverwrite(isolation_level=isolation_level, base_snapshot_id=base_id)
    from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415  # appends need no predicates

    overwrite = OverwriteByFilter(
        predicate=options.replace_where or EVERY_ROW,
        case_sensitive=bool(options.case_sensitive),
        time_zone=options.time_zone,
        isolation_level=isolation_level,
        base_snapshot_id=base_id,
    )
    try:
        row_filter = RowFilter.of(overwrite, metadata.schema())
    except ValueError as problem:
        raise OptionError(f"Cannot write to {name}: option 'replace-where': {problem}.") from problem
    return replace(overwrite, columns=row_filter.columns)
