"""PyIceberg's catalogs as the sink needs them: a table's properties name no code, host or client; updates copy nothing.

PyIceberg opens a table's files with the catalog's properties and, over these, the table's own. Whoever may set a
table's properties could choose the class that opens files, which gets the catalog's password, or the host that gets the
credentials of storage. Here only the catalog's properties count, which are the user's. PyIceberg also imports the class
that a table names for the locations of its files; here the metadata files of a commit go where Iceberg puts them. What
a REST server sends with a table is another matter: `rest` keeps it apart from what the table says.

PyIceberg copies the result of a commit's updates, each snapshot and each entry of the logs, so that the result shares
nothing with the table that it was made from. Within calls that have metadata files at hand it may share: no code
changes what was loaded there. Contract tests hold the private names.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
    update_table_metadata,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.datetime import datetime_to_millis

from iceberg_ds.catalog.answers import RolledBackError
from iceberg_ds.catalog.metadata_files import files_at_hand
from iceberg_ds.catalog.pyiceberg_patches import know_upgrades
from iceberg_ds.catalog.staged_metadata import note_staged, see_table
from iceberg_ds.snapshots.refs import last_sequence_number
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.encryption import evidence_of_encryption
from iceberg_ds.table.locations import metadata_locations
from iceberg_ds.table.names import identifier_text

_SQL = "pyiceberg.catalog.sql"


def updated_metadata(
    base_metadata: TableMetadata,
    updates: tuple[TableUpdate, ...],
    enforce_validation: bool = False,  # noqa: FBT001, FBT002  # PyIceberg's signature
    metadata_location: str | None = None,
) -> TableMetadata:
    """Return the table after the updates, as PyIceberg's `update_table_metadata` does.

    Args:
        base_metadata: The table before.
        updates: What changes, in this order.
        enforce_validation: Whether to check the result as if it were read.
        metadata_location: The file that the table stands at, None if it is not in the catalog yet.

    Raises:
        ValueError: An update does not fit the table.
    """
    updates = tuple(update for update in updates if not _is_carried_out(update, base_metadata))
    expired = {
        number for update in updates if isinstance(update, RemoveSnapshotsUpdate) for number in update.snapshot_ids
    }
    if enforce_validation or files_at_hand() is None:
        updated = update_table_metadata(base_metadata, updates, enforce_validation, metadata_location)
        return _with_history(updated, base_metadata, expired)
    context = _TableMetadataUpdateContext()
    metadata = base_metadata
    for update in updates:
        _check_number(update, metadata)
        metadata = _apply_table_update(update, metadata, context)
    if context.has_changes():
        if metadata_location:
            metadata = _update_table_metadata_log(metadata, metadata_location, base_metadata.last_updated_ms)
        if metadata.last_updated_ms == base_metadata.last_updated_ms:
            now_ms = datetime_to_millis(datetime.now().astimezone())
            metadata = metadata.model_copy(update={"last_updated_ms": now_ms})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return _with_history(metadata, base_metadata, expired)


def _check_number(update: TableUpdate, metadata: TableMetadata) -> None:
    """Refuse a snapshot whose sequence number another one has, as PyIceberg does in version 2 alone."""
    if not isinstance(update, AddSnapshotUpdate) or metadata.format_version != VERSION_3:
        return
    number, last = update.snapshot.sequence_number or 0, last_sequence_number(metadata)
    if number <= last:
        raise ValueError(f"Cannot add snapshot with sequence number {number} older than last sequence number {last}")


def _with_history(metadata: TableMetadata, base: TableMetadata, expired: Collection[int]) -> TableMetadata:
    """Return a table whose snapshots have expired with its history as Java leaves it.

    PyIceberg takes the ids of expired parents out of the snapshots that stay. Then they look like the first ones of a
    table, and nothing tells any more that there was more behind them. It also leaves earlier entries in the snapshot
    log (table spec, `snapshot-log`: all entries before an expired snapshot go).
    """
    if not expired:
        return metadata
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in base.snapshots}
    snapshots = [
        snapshot.model_copy(update={"parent_snapshot_id": parents.get(snapshot.snapshot_id)})
        if parents.get(snapshot.snapshot_id) in expired
        else snapshot
        for snapshot in metadata.snapshots
    ]
    gone = [at for at, entry in enumerate(base.snapshot_log) if entry.snapshot_id in expired]
    earlier = gone[-1] + 1 - len(gone) if gone else 0
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": metadata.snapshot_log[earlier:]})


def _is_carried_out(update: TableUpdate, metadata: TableMetadata) -> bool:
    """Return whether an update adds a spec that the table has, which PyIceberg would add once more.

    Java reads no table with two specs of one id. No requirement refuses the second of two writers that add the same
    spec without making it the default.
    """
    return isinstance(update, AddPartitionSpecUpdate) and update.spec in metadata.partition_specs


class _OwnStorage(Catalog):
    """A catalog that opens storage with its own properties."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002  # PyIceberg's signature; they are the table's
        return load_file_io(self.properties, location)


class _OwnStaging(_OwnStorage, MetastoreCatalog):
    """A catalog that writes tables' metadata files itself, in the folder of the table's metadata."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        base, stands_at = None, None
        if current_table is not None:
            base, stands_at = current_table.metadata, current_table.metadata_location
            see_table(current_table.name(), base, stands_at)
            if (evidence := evidence_of_encryption(base)) is not None:  # by now: it was not when the request was made
                raise RolledBackError(f"{identifier_text(table_identifier)} is encrypted ({evidence})")
        for requirement in requirements:
            requirement.validate(base)
        metadata = updated_metadata(
            base_metadata=self._empty_table_metadata() if base is None else base,
            updates=updates,
            enforce_validation=base is None,
            metadata_location=stands_at,
        )
        version = 0 if stands_at is None else self._parse_metadata_version(stands_at) + 1
        places = metadata_locations(metadata.location, metadata.properties)
        location = places.new_table_metadata_file_location(version)
        return note_staged(
            StagedTable(
                identifier=table_identifier,
                metadata=metadata,
                metadata_location=location,
                io=self._load_file_io(location=location),
                catalog=self,
            ),
            follows=stands_at,
        )


def with_own_storage(catalog: Catalog) -> Catalog:
    """Return the catalog, changed so that it takes nothing from tables that opens storage or names code.

    A SQL catalog can then change several tables in one transaction, too (`sql`). A user's own class that opens storage
    in its own way is left alone.
    """
    know_upgrades()
    kind = type(catalog)
    opens = next(parent for parent in kind.__mro__ if "_load_file_io" in vars(parent))
    if opens is Catalog:
        own: tuple[type, ...] = (_OwnStaging if isinstance(catalog, MetastoreCatalog) else _OwnStorage,)
        if any(parent.__module__ == _SQL for parent in kind.__mro__):
            from iceberg_ds.catalog.sql import ManyTablesSql  # noqa: PLC0415  # it loads the SQL catalog's libraries

            own = (*own, ManyTablesSql)
        catalog.__class__ = type(kind.__name__, (*own, kind), {"__module__": kind.__module__})
    return catalog
