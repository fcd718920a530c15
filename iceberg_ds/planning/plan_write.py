"""`plan_write`: what Spark's tasks are told about a write, decided on the driver before any of them runs.

Three steps in a row: decide what the write does with its table, and refuse what is impossible (`decide`); change the
table first, if the options ask for it (`prepare`); assemble the plan, a frozen value that tasks get.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from enum import Enum
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.nessie import check_branch
from iceberg_ds.errors import OptionError
from iceberg_ds.options.rules import Kind, check_kind
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.options.table_properties import new_table_properties
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning.decide import (
    Decision,
    Target,
    Wish,
    check_supported,
    check_upgrade,
    decide,
    plan_branches,
    staging_branch,
)
from iceberg_ds.planning.keys import why_not_keyed
from iceberg_ds.planning.prepare import prepare, stage_table
from iceberg_ds.planning.s3_tables import warn_once
from iceberg_ds.secrets import mask_url
from iceberg_ds.snapshots.manifest_file import layout_of
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.spark.session_settings import is_audited
from iceberg_ds.table.names import identifier_text, is_place, names_branch
from iceberg_ds.table.schema_evolution import propose_schema


class WriteMode(Enum):
    """What Spark asks for: `mode("append")` and `outputMode("append")`, or `"overwrite"` and `"complete"`.

    Or what `upsert` does: an append by key that looks for the old rows before it commits. Or what `delete_from`,
    `update` and `merge` do: an append of rows that take the place of others, which are known by position.
    """

    APPEND = Kind.APPEND | Kind.DATA_SOURCE
    OVERWRITE = Kind.OVERWRITE | Kind.DATA_SOURCE
    UPSERT = Kind.APPEND | Kind.UPSERT
    ROW_LEVEL = Kind.APPEND | Kind.ROW_LEVEL


# The kind of write that `check` foresees; how rows will come is not known.
_CHECKED = WriteMode.APPEND.value | Kind.BATCH


def plan_write(  # noqa: PLR0913  # most are given by name
    catalog: CatalogClient,
    options: SinkOptions,
    dataframe: StructType,
    mode: WriteMode = WriteMode.APPEND,
    *,
    is_stream: bool = False,
    table: Table | None = None,
) -> WritePlan:
    """Decide how `dataframe` is written, and refuse what cannot be written.

    Changes the schema, the partition spec or the sort orders of an existing table first, if options ask for it: in one
    commit, and only once nothing is left that could be refused.

    Args:
        catalog: The catalog of the table.
        options: Options of the write.
        dataframe: The columns of the DataFrame.
        mode: What the write does.
        is_stream: Whether it is a micro-batch.
        table: The table, if it was loaded just now; None to load it.

    Raises:
        OptionError: Options and table contradict each other.
        SchemaMismatchError: A column does not fit.
        TableNotFoundError: The table is missing and `create-table` is false.
        UnsupportedTableError: The table cannot be written without breaking it.
        CatalogError, CommitConflictError, CommitStateUnknownError: The catalog could not be reached, or a change of
            the table could not be committed.
    """
    kind = mode.value | (Kind.STREAM if is_stream else Kind.BATCH)
    check_kind(options, kind)
    _check_catalog(catalog, options)
    wish = Wish.of(options, dataframe, kind)
    found = _find_or_stage(catalog, wish) if table is None else Target.of(catalog, table)
    target, decision = prepare(catalog, options, found, partial(decide, wish))
    if wish.keyed is not None and target.table is not None:
        wish.keyed.announce(target.metadata)
    if catalog.is_s3_tables:
        warn_once(decision.write, decision.metadata.schema())
    return _assemble(wish, target, decision)


def _assemble(wish: Wish, target: Target, decision: Decision) -> WritePlan:
    """Return the plan that states the decision."""
    options, metadata, write = wish.options, decision.metadata, decision.write
    # A commit that replaces or deletes rows checks single files.
    names_files = write.overwrite is not None or write.changes is not None
    return replace(
        WritePlan.into(metadata, write, target.io_properties),
        sort_order=decision.sort_order,
        case_sensitive=options.case_sensitive,
        manifests=None if names_files else layout_of(metadata, metadata.default_spec_id),
        small_task_size_bytes=options.small_task_size_bytes,
        driver_host=platform.node(),
        delete_spec=decision.delete_spec,
        time_zone=options.time_zone,
        frame=decision.frame,
        added=decision.added,
        is_audited=is_audited(metadata.properties),
        event_time=wish.written.event_time(),
    )


def _check_catalog(catalog: CatalogClient, options: SinkOptions) -> None:
    """Refuse what the catalog cannot hold."""
    if catalog.holds_branches:
        return
    for branch in (options.branch or MAIN_BRANCH, staging_branch(options) or MAIN_BRANCH):
        check_branch(branch, table_name=identifier_text(options.table))


def _find_or_stage(catalog: CatalogClient, wish: Wish) -> Target:
    """Return the table, or the one that the commit of the write creates."""
    options = wish.options
    table = catalog.find_table(options.table)
    if table is None:
        _check_name(catalog, options.table)
        staged = stage_table(catalog, options, wish.new_schema())
        if staged is not None:
            metadata = staged if wish.keyed is None else wish.keyed.staged(staged)
            return Target(metadata=metadata, io_properties=catalog.io_properties)
        table = catalog.load_table(options.table)
    return Target.of(catalog, table)


def _check_name(catalog: CatalogClient, identifier: tuple[str, ...]) -> None:
    """Refuse to create a table whose name means a folder, or that Iceberg's Spark runtime reads as another's part."""
    *levels, last = identifier
    if is_place(last):
        raise OptionError(
            f"Cannot write to {mask_url(identifier_text(identifier))}: there is no such table, and its last level is a "
            "place: tables belong to a catalog, and option 'location' says where a new one goes. Give the table a name."
        )
    branch = names_branch(last)
    if branch is None or len(levels) < 2 or catalog.find_table(levels) is None:  # noqa: PLR2004, namespace and table
        return
    name = identifier_text(levels)
    cause = f"Cannot write to {identifier_text(identifier)}: there is no such table, but there is {name}"
    if branch:
        raise OptionError(f"{cause}. To write to its branch '{branch}', name {name} and give option branch={branch}.")
    raise OptionError(f"{cause}, whose tags and snapshots cannot be written to. Name {name}, or another table.")


def foresee(options: SinkOptions, metadata: TableMetadata, dataframe: StructType | None) -> str:
    """Return, in words, what an append would change in an existing table; changes nothing.

    Args:
        options: The options of the write.
        metadata: The table as it is.
        dataframe: The columns of the write, or None if unknown.

    Raises:
        OptionError, SchemaMismatchError, UnsupportedTableError: As `plan_write`.
    """
    name = identifier_text(options.table)
    check_supported(metadata, name, options.table_properties)
    check_upgrade(options, metadata)
    plan_branches(options, metadata, is_new=False)
    if dataframe is None:
        if (reason := why_not_keyed(options, metadata)) is not None:
            raise OptionError(f"Cannot write to {name}: {reason}.")
        return "columns not compared"
    wish = Wish.of(options, dataframe, _CHECKED)
    changed = propose_schema(wish.written.columns(metadata.schema()), metadata, wish.policy, table_name=name)
    fit = "the columns fit" if changed is None else "the write changes the table's columns, and then they fit"
    return fit if wish.keyed is None else f"{fit}; {wish.keyed.foresee(metadata)}"


def foresee_creation(options: SinkOptions, dataframe: StructType) -> str:
    """Return, in words, what columns a write gives to the table that it creates.

    Raises:
        OptionError, SchemaMismatchError: As `plan_write`.
    """
    wish = Wish.of(options, dataframe, _CHECKED)
    schema = wish.new_schema()
    with naming_action(f"create {wish.name}"):
        new_table_properties(options.table_properties, schema)
    keys = "" if wish.keyed is None else f", {wish.keyed.foresee_new()}"
    return f"{len(schema.fields)} columns can be written{keys}"
