"""Step two of `plan_write`: brings the table into the shape that a write asks for, before any row is written.

A new table is only staged; it comes into being in the commit of its first rows. All changes of an existing table go
into one request: all of them are made, or none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.commit.create_table import create_without_rows, with_first_snapshot
from iceberg_ds.errors import OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.io.listing import metadata_file_in
from iceberg_ds.io.local_paths import is_local
from iceberg_ds.io.places import MOST_BYTES_OF_NAME, longest_name, misplaced, why_not_a_place
from iceberg_ds.io.stores import StoredFile
from iceberg_ds.options.readers import without_vectors
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.options.table_properties import new_table_properties
from iceberg_ds.plan import NewTable
from iceberg_ds.planning.decide import Decision, Target, forks_at_once
from iceberg_ds.planning.version_3 import why_not_in_version
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.specs import new_sort_order, new_spec
from iceberg_ds.table.variant import variant_ids

logger = logging.getLogger(__name__)

# Hexadecimal digits that tell a location from the taken one beside it.
_SUFFIX_LENGTH = 8
# How old metadata may be of a table that is being created, and how long its creation is waited for: 5 seconds.
_YOUNG_MS = 60_000
_WAITS_S = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0)

# Settings that keep the metadata of a busy stream small. The number of old metadata files stays at Iceberg's default of
# 100: maintenance jobs that run for minutes read the one that they began with.
NEW_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}


def prepare(
    catalog: CatalogClient, options: SinkOptions, target: Target, decide: Callable[[Target], Decision]
) -> tuple[Target, Decision]:
    """Change the table until nothing is left to change; return it with the decision for its final state.

    If another writer changes the table meanwhile, the decision is made anew; a refusal then changes nothing.

    Raises:
        IcebergSinkError: What `decide` raises.
        CatalogError, CommitConflictError, CommitStateUnknownError: A change could not be committed.
    """
    decision = decide(target)
    _check_variants(catalog, options, decision.metadata.schema())
    if target.table is None:
        if not forks_at_once(options):
            return target, decision
        create_without_rows(catalog, options.table, target.metadata)
        target = Target.of(catalog, catalog.load_table(options.table))
        decision = decide(target)

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        nonlocal decision
        if metadata is not decision.found:
            decision = decide(replace(target, metadata=metadata))
        return decision.change

    if decision.change is not None:
        before = target.metadata.format_version
        target = Target.of(catalog, alter_table(catalog, options.table, propose, loaded=target.table))
        if before < VERSION_3 <= target.metadata.format_version:
            logger.warning(
                "Upgraded %s to format version 3. Not known to read its deletion vectors: %s",
                identifier_text(options.table),
                ", ".join(without_vectors()),
            )
    if target.table is not None and forks_at_once(options) and not target.metadata.snapshots:
        target = Target.of(catalog, with_first_snapshot(catalog, options, target.table))
        decision = decide(target)
    return target, decision


def _check_variants(catalog: CatalogClient, options: SinkOptions, schema: Schema) -> None:
    """Refuse variants in a catalog that stores no table with them.

    Raises:
        UnsupportedTableError: It does not.
    """
    if not catalog.holds_variants and (found := sorted(variant_ids(schema))):
        raise UnsupportedTableError(
            f"Cannot write to {identifier_text(options.table)}: column '{schema.find_column_name(found[0])}' is of "
            "type variant, and Hive's metastore takes no table with one, from no writer: write it as text, for example "
            "to_json(column), or keep the table in another catalog."
        )


def stage_table(catalog: CatalogClient, options: SinkOptions, schema: Schema) -> TableMetadata | None:
    """Return the metadata of the table that the first commit of the write creates, or None if the table exists by now.

    It does if the catalog cannot stage a table, or if another writer has just created it.

    A table is created in a folder without another table's metadata: at the default location, else beside it.

    Raises:
        OptionError: `partition-by`, `sort-by` or a property do not fit the columns, or Iceberg does not take it; or
            readers do not agree on where files go, or option `location` names the place of another table.
        UnsupportedTableError: The format version does not have the type of a column.
        TableNotFoundError: `create-table` is false.
        CatalogError: The catalog could not be reached or refused.
    """
    name = identifier_text(options.table)
    if not options.create_table:
        raise TableNotFoundError(
            f"Table {name} does not exist in {catalog!r}, and option 'create-table' is false: "
            "create it, or allow its creation with create-table=true."
        )
    _check_creatable(catalog, options, schema)
    with naming_action(f"create {name}"):
        new_table = NewTable(
            schema=schema,
            spec=new_spec(options.partition_by or (), schema),
            sort_order=new_sort_order(options.sort_by, schema, 1) if options.sort_by else UNSORTED_SORT_ORDER,
            location=options.location,
            format_version=options.format_version,
            properties={**NEW_TABLE_PROPERTIES, **new_table_properties(options.table_properties, schema)},
        )
    if problems := misplaced(options.location or "", options.table_properties):
        raise OptionError(f"Cannot create {name}: {'; '.join(problems)}.")
    if options.location is not None and (held := _held_by(catalog, options.location)) is not None:
        raise OptionError(
            f"Cannot create {name}: option 'location' is {options.location}, which holds the metadata of another table "
            f"({held.path}). Choose another place, or remove what is left there of a table that no catalog has."
        )
    staged = catalog.stage_table(options.table, new_table)
    if staged is not None:
        _check_length(name, staged.location)
    if staged is None or options.location is not None:
        return staged
    if (held := _held_by(catalog, staged.location)) is None:
        return staged
    if _is_being_created(catalog, options.table, held):
        return None
    place = _place_beside(catalog, staged.location, held)
    return catalog.stage_table(options.table, replace(new_table, location=place))


def _check_creatable(catalog: CatalogClient, options: SinkOptions, schema: Schema) -> None:
    """Refuse a table that the catalog, the format version or its own name does not allow; raises as `stage_table`."""
    name = identifier_text(options.table)
    # Catalogs make locations of names.
    if options.location is None and (reason := why_not_a_place("/".join(options.table))) is not None:
        raise OptionError(
            f"Cannot create {name}: readers would not agree on a place of that name: {reason}. Choose another name, or "
            "say where the table goes with option 'location'."
        )
    if options.format_version == "3" and not catalog.holds_branches:
        raise OptionError(
            f"Cannot create {name}: option 'format-version' is 3, which Nessie does not know: give 2, or leave it out."
        )
    if problems := why_not_in_version(schema, options.new_version):
        raise UnsupportedTableError(f"Cannot create {name}: {'; '.join(problems)}.")


def _check_length(name: str, location: str) -> None:
    """Refuse a place on a disk that has a longer name in it than disks take."""
    longest = longest_name(location.split("/"))
    if is_local(location) and longest > MOST_BYTES_OF_NAME:
        raise OptionError(
            f"Cannot create {name}: its place would have a name of {longest} bytes in it, which is too long: disks "
            f"take {MOST_BYTES_OF_NAME}. Choose a shorter name, or say where the table goes with option 'location'."
        )


def _is_being_created(catalog: CatalogClient, identifier: tuple[str, ...], held: StoredFile) -> bool:
    """Return whether another writer creates the table just now: catalogs write its metadata before they know of it.

    Then the table shows in a moment. Else a writer has died before that, or another table has the folder.
    """
    if abs(time.time() * 1000 - held.modified_ms) > _YOUNG_MS:
        return False
    for wait_s in (0, *_WAITS_S):
        time.sleep(wait_s)
        if catalog.find_table(identifier) is not None:
            return True
    return False


def _place_beside(catalog: CatalogClient, location: str, held: StoredFile) -> str:
    """Return a place beside `location`, which another table, such as a renamed one, has.

    The name of that place follows from what lies there, so that writers that create the table at once agree on it.
    """
    there: StoredFile | None = held
    while there is not None:
        place = f"{location}-{uuid5(NAMESPACE_URL, there.path).hex[:_SUFFIX_LENGTH]}"
        there = _held_by(catalog, place)
    return place


def _held_by(catalog: CatalogClient, location: str) -> StoredFile | None:
    """Return a metadata file of a table at `location`; None if it has none, or its files cannot be listed."""
    try:
        return metadata_file_in(catalog.io_properties, location)
    except Exception as error:  # writing does not need the right to list
        logger.debug("Cannot tell whether another table is at %s: %s", location, catalog.describe(error))
        return None
