"""What others do to a table between two commits of the sink: to its branches, history, columns and catalog entry.

Done as Iceberg's Java library does it, through PyIceberg's catalog or by a metadata file of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import NestedField
from support.tables.sink import Sink, embedded_options, local

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.requests import LAST_ADDED, AddSchema


def plain_catalog(sink: Sink) -> Catalog:
    """Return PyIceberg's own catalog of the sink's table."""
    settings = catalog_settings(sink.options)
    return load_catalog(settings.name, **dict(settings.properties))


def plain_table(sink: Sink) -> Table:
    """Load the table through PyIceberg."""
    return plain_catalog(sink).load_table(sink.options.table)


def head_of(sink: Sink, branch: str = "main") -> int:
    """Return the snapshot that a branch stands at."""
    return sink.table().metadata.refs[branch].snapshot_id


def set_branch(sink: Sink, branch: str, snapshot_id: int) -> None:
    """Create a branch, roll it back or fast-forward it: SQL's CREATE BRANCH, REPLACE BRANCH, `rollback_to_snapshot`."""
    move = SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
    _commit(sink, move)


def set_tag(sink: Sink, tag: str, snapshot_id: int) -> None:
    """SQL's CREATE TAG or REPLACE TAG."""
    _commit(sink, SetSnapshotRefUpdate(ref_name=tag, type=SnapshotRefType.TAG, snapshot_id=snapshot_id))


def drop_branch(sink: Sink, branch: str) -> None:
    """SQL's DROP BRANCH; for `main` what CREATE OR REPLACE TABLE does: uuid, properties and snapshots stay."""
    _commit(sink, RemoveSnapshotRefUpdate(ref_name=branch))


def cherry_pick(sink: Sink, snapshot_id: int, branch: str = "main") -> None:
    """Add the files that a snapshot added to a branch, as `cherrypick_snapshot` does."""
    table = plain_table(sink)
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    picked = [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.snapshot_id == snapshot_id
    ]
    source = {"source-snapshot-id": str(snapshot_id)}
    with table.transaction() as change, change.update_snapshot(source, branch=branch).fast_append() as append:
        for data_file in picked:
            append.append_data_file(data_file)


def set_columns(sink: Sink, *fields: NestedField) -> None:
    """Give the table these columns, as SQL's ALTER TABLE does one by one; keys that are among them stay keys."""
    metadata, kept = plain_table(sink).metadata, {field.field_id for field in fields}
    schema = Schema(
        *fields,
        schema_id=1 + max(schema.schema_id for schema in metadata.schemas),
        identifier_field_ids=[key for key in metadata.schema().identifier_field_ids if key in kept],
    )
    last_column_id = max(metadata.last_column_id, schema.highest_field_id)
    added = AddSchema(schema_=schema, last_column_id=last_column_id)
    _commit(sink, added, SetCurrentSchemaUpdate(schema_id=LAST_ADDED))


def expire(sink: Sink, *, cuts_parents: bool = False) -> None:
    """Expire all snapshots but those that branches and tags stand at.

    Args:
        sink: Whose table it is.
        cuts_parents: Whether those that stay lose their parents' ids, as with PyIceberg; Java keeps them.
    """
    table = plain_table(sink)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
    if cuts_parents:
        table.maintenance.expire_snapshots().by_ids(old).commit()
        return

    def without_old(document: dict[str, Any]) -> None:
        document["snapshots"] = [kept for kept in document["snapshots"] if kept["snapshot-id"] in heads]
        log = document.get("snapshot-log", [])
        newest_old = max((at for at, entry in enumerate(log) if entry["snapshot-id"] in old), default=-1)
        document["snapshot-log"] = log[newest_old + 1 :]

    register_edited(sink, without_old)


def register_edited(sink: Sink, edit: Any) -> None:
    """Let the catalog name a new metadata file, which holds what `edit` makes of the present one's JSON."""
    catalog, table = plain_catalog(sink), plain_table(sink)
    document = json.loads(local(table.metadata_location).read_text())
    edit(document)
    path = local(table.metadata_location)
    number = int(path.name.partition("-")[0]) + 1
    edited = path.with_name(f"{number:05d}-{uuid4()}.metadata.json")
    edited.write_text(json.dumps(document))
    catalog.drop_table(sink.options.table)
    catalog.register_table(sink.options.table, edited.as_uri())


def add_column_of_version_3(sink: Sink, kind: object, **more: object) -> None:
    """ALTER TABLE ADD COLUMN `other` by an engine that knows the type; the table is of version 3 afterwards.

    Args:
        sink: Whose table it is.
        kind: The type as it stands in the metadata.
        more: Further entries of the column, with underscores in their names.
    """

    def edit(document: dict[str, Any]) -> None:
        newest = document["schemas"][-1]
        added = {key.replace("_", "-"): value for key, value in more.items()}
        fields = [*newest["fields"], {"id": 50, "name": "other", "required": False, "type": kind, **added}]
        number = newest["schema-id"] + 1
        document["schemas"].append({**newest, "schema-id": number, "fields": fields})
        document.update({"current-schema-id": number, "last-column-id": 60, "format-version": 3})
        document.setdefault("next-row-id", 0)

    register_edited(sink, edit)


def rename(sink: Sink, name: str) -> Sink:
    """SQL's ALTER TABLE RENAME TO: the table keeps its location; return it under its new name."""
    plain_catalog(sink).rename_table(sink.options.table, name)
    return replace(sink, options=replace(sink.options, table=tuple(name.split("."))))


def register_elsewhere(sink: Sink, warehouse: Path) -> Sink:
    """Let another catalog have the table as it stands, too (`register_table`); return it as that catalog has it."""
    other_options = embedded_options(warehouse)
    other = Sink(catalog=connect(catalog_settings(other_options)), options=other_options)
    catalog = plain_catalog(other)
    catalog.create_namespace_if_not_exists(other.options.table[:-1])
    catalog.register_table(other.options.table, sink.table().metadata_location)
    return other


def _commit(sink: Sink, *updates: TableUpdate) -> None:
    if sink.table().metadata.format_version == VERSION_3:  # which PyIceberg alone does not write
        sink.catalog.send(sink.table(), (), updates)
        return
    catalog = plain_catalog(sink)
    catalog.commit_table(catalog.load_table(sink.options.table), (), updates)
