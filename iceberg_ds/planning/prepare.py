"""Brings a table into the shape that a write asks for, before any row is written: made, or changed.

A new table is only staged here; it comes into being in the commit of its first rows. What is to change in an existing
one is foreseen step by step, each from the table as the one before leaves it, and asked for in one request: all of it
is made, or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import NAMESPACE_URL, uuid5

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    SetDefaultSpecUpdate,
    update_table_metadata,
)

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.alter import Propose
from iceberg_ds.errors import OptionError, TableNotFoundError
from iceberg_ds.io.listing import metadata_file_in
from iceberg_ds.io.places import misplaced, why_not_a_place
from iceberg_ds.options.sink_options import SinkOptions, naming_action
from iceberg_ds.options.table_properties import new_table_properties
from iceberg_ds.plan import NewTable
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import LAST_ADDED, CommitRequest, joined
from iceberg_ds.table.specs import (
    SortTerm,
    describes,
    describes_order,
    evolved_spec,
    new_sort_order,
    new_spec,
    spec_text,
)

logger = logging.getLogger(__name__)

# Hexadecimal digits that tell a place from the one beside which it is.
_SUFFIX_LENGTH = 8

# What keeps the metadata of a busy stream small. How many old metadata files stay is left to Iceberg's default of 100:
# maintenance jobs that run for minutes read the one that they began with.
NEW_TABLE_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}


def stage_table(catalog: CatalogClient, options: SinkOptions, schema: Schema) -> TableMetadata | None:
    """Return the metadata of the table that the first commit of the write creates, None if it had to be created now.

    A table is made in a folder that has no other's metadata: at the default location if there is none, else beside it.

    Raises:
        OptionError: `partition-by`, `sort-by` or a property do not fit the columns, or Iceberg does not take it; or
            readers do not agree on where files go, or option `location` names the place of another table.
        TableNotFoundError: `create-table` is false.
        CatalogError: The catalog could not be reached or refused.
    """
    name = identifier_text(options.table)
    if not options.create_table:
        raise TableNotFoundError(
            f"Table {name} does not exist in {catalog!r}, and option 'create-table' is false: "
            "create it, or allow its creation with create-table=true."
        )
    # Catalogs make locations of names.
    if options.location is None and (reason := why_not_a_place("/".join(options.table))) is not None:
        raise OptionError(
            f"Cannot create {name}: readers would not agree on a place of that name: {reason}. Choose another name, or "
            "say where the table goes with option 'location'."
        )
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
            f"({held}). Choose another place, or remove what is left there of a table that no catalog has any more."
        )
    staged = catalog.stage_table(options.table, new_table)
    if staged is None or options.location is not None:
        return staged
    if (place := _free_place(catalog, staged.location)) == staged.location:
        return staged
    return catalog.stage_table(options.table, replace(new_table, location=place))


def _free_place(catalog: CatalogClient, location: str) -> str:
    """Return `location`, or a place beside it if another table has it, as one has that was renamed.

    Its name follows from what lies there, so that writers that create the table at the same moment agree on it.
    """
    place = location
    while (held := _held_by(catalog, place)) is not None:
        place = f"{location}-{uuid5(NAMESPACE_URL, held).hex[:_SUFFIX_LENGTH]}"
    return place


def _held_by(catalog: CatalogClient, location: str) -> str | None:
    """Return a metadata file of a table at `location`; None if there is none, or nobody can tell."""
    try:
        return metadata_file_in(catalog.io_properties, location)
    except Exception as error:  # writing does not need the right to list
        logger.debug("Cannot tell whether another table is at %s: %s", location, catalog.describe(error))
        return None


def repartitioning(options: SinkOptions, metadata: TableMetadata) -> CommitRequest | None:
    """Return the request that partitions the table as `partition-by` asks, or None if it is so, or is not asked for.

    Raises:
        OptionError: The table's spec is another one and `evolve-partitioning` is false.
        ValueError: The columns do not fit.
    """
    terms = options.partition_by
    if terms is None or describes(terms, metadata.spec(), metadata.schema()):
        return None
    if not options.evolve_partitioning:
        asked = ", ".join(map(str, terms)) or "empty"
        present = spec_text(metadata.spec(), metadata.schema()) or "nothing"
        raise OptionError(
            f"Cannot write to {identifier_text(options.table)}: option 'partition-by' is {asked}, and the table is "
            f"partitioned by {present}. Drop the option, or change the table with evolve-partitioning=true."
        )
    return spec_request(metadata, evolved_spec(terms, metadata))


def spec_request(metadata: TableMetadata, spec: PartitionSpec, *, is_default: bool = True) -> CommitRequest:
    """Return the request that gives the table a partition spec, unless it has it, as its default or beside that."""
    is_known = spec.spec_id in metadata.specs()
    default = SetDefaultSpecUpdate(spec_id=spec.spec_id if is_known else LAST_ADDED)
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            AssertLastAssignedPartitionId(
                last_assigned_partition_id=metadata.last_partition_id or PARTITION_FIELD_ID_START - 1
            ),
        ),
        updates=(*(() if is_known else (AddPartitionSpecUpdate(spec=spec),)), *((default,) if is_default else ())),
    )


def order_of_rows(options: SinkOptions, metadata: TableMetadata, *, is_new: bool) -> SortOrder | None:
    """Return the order of rows within a file, or None for no order.

    Args:
        options: The options of the write.
        metadata: The table as it was staged, or as `reordering` leaves it.
        is_new: Whether the commit of the write creates it.
    """
    if not options.use_table_distribution_and_ordering:
        return None
    if is_new or options.sort_by is None:
        return _default_order(metadata)
    return _recorded_order(options.sort_by, metadata)


def _default_order(metadata: TableMetadata) -> SortOrder | None:
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    return None if order is None or order.is_unsorted else order


def _recorded_order(terms: Sequence[SortTerm], metadata: TableMetadata) -> SortOrder | None:
    schema = metadata.schema()
    return next((order for order in metadata.sort_orders if describes_order(terms, order, schema)), None)


def reordering(options: SinkOptions, metadata: TableMetadata) -> CommitRequest | None:
    """Return the request that records the order of `sort-by`, or None if it is recorded, or is not asked for.

    Raises:
        ValueError: The columns do not fit.
    """
    terms = options.sort_by if options.use_table_distribution_and_ordering else None
    if terms is None or _recorded_order(terms, metadata) is not None:
        return None
    highest = max((order.order_id for order in metadata.sort_orders), default=0)
    order = new_sort_order(terms, metadata.schema(), highest + 1)
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
        ),
        updates=(AddSortOrderUpdate(sort_order=order),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """A table as a write needs it.

    Attributes:
        metadata: The table with all changes that the write needs.
        request: Makes these changes, None if there are none.
    """

    metadata: TableMetadata
    request: CommitRequest | None


def foreseen(metadata: TableMetadata, steps: Sequence[Propose]) -> Foreseen:
    """Return the table after `steps`, each of which proposes its change of what the one before leaves; sends nothing.

    Raises:
        Exception: What a step raises: then none of them is to be made.
    """
    requests: list[CommitRequest] = []
    for propose in steps:
        if (request := propose(metadata)) is not None:
            metadata = update_table_metadata(metadata, request.updates)
            requests.append(request)
    return Foreseen(metadata=metadata, request=joined(requests))
