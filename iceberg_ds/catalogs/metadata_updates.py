"""Table metadata after a commit's updates, made by PyIceberg's own functions without a deep copy of all history.

PyIceberg copies whatever it has made at the end, each snapshot and each entry of the logs, so that the result shares
nothing with the table that it was made from. Within calls that have metadata files at hand it may share: nobody
changes what was loaded there. Contract tests hold the private names.
"""

from __future__ import annotations

from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
    update_table_metadata,
)
from pyiceberg.utils.datetime import datetime_to_millis

from iceberg_ds.catalogs.metadata_files import files_at_hand


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
    if enforce_validation or files_at_hand() is None:
        return update_table_metadata(base_metadata, updates, enforce_validation, metadata_location)
    context = _TableMetadataUpdateContext()
    metadata = base_metadata
    for update in updates:
        metadata = _apply_table_update(update, metadata, context)
    if context.has_changes():
        if metadata_location:
            metadata = _update_table_metadata_log(metadata, metadata_location, base_metadata.last_updated_ms)
        if metadata.last_updated_ms == base_metadata.last_updated_ms:
            now_ms = datetime_to_millis(datetime.now().astimezone())
            metadata = metadata.model_copy(update={"last_updated_ms": now_ms})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _is_carried_out(update: TableUpdate, metadata: TableMetadata) -> bool:
    """Return whether an update adds a spec that the table has, which PyIceberg would add once more.

    Java reads no table with two specs of one id. No requirement refuses the second of two writers that add the same
    spec without making it the default.
    """
    return isinstance(update, AddPartitionSpecUpdate) and update.spec in metadata.partition_specs
