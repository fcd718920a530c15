"""Columns whose types are replaced by a write of all rows: only where no row stays, in any branch or tag.

Such a column is dropped and added again under a new id. The schema is that of the whole table, so every row that
stays, on whatever branch, would read null there. Which rows stay is looked at when the write is planned, so that no
task runs in vain, and in each attempt of the commit, whose request says where all branches and tags stood then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId

from iceberg_ds.commits.manifests import live_manifests
from iceberg_ds.errors import CommitConflictError, SchemaMismatchError
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.plan import Route, SchemaChange
from iceberg_ds.schemas.fit import taken_names

if TYPE_CHECKING:  # planners need no manifests of rows to replace
    from iceberg_ds.commits.replacing import Replacement

_ADVICE = (
    "Schemas are of the whole table: cast the column to the table's type, write it under another name or into another "
    "table, or drop those branches and tags first."
)


def check_replaceable(
    metadata: TableMetadata, io: FileIO, change: SchemaChange, route: Route, *, table_name: str
) -> None:
    """Refuse to plan a write that replaces types under rows that it does not replace.

    Raises:
        SchemaMismatchError: Another branch, or a tag, has rows.
    """
    if (reason := _reason(metadata, io, change, route.branch)) is not None:
        raise SchemaMismatchError(f"Cannot write to {table_name}: {reason}. {_ADVICE}")


def check_no_row_stays(table: Table, write: WriteIdentity, replacement: Replacement) -> None:
    """Refuse to commit a write that replaces types if any row stays.

    Args:
        table: The table, freshly loaded.
        write: The write.
        replacement: What it replaces in its branch.

    Raises:
        CommitConflictError: A row that came meanwhile stays on the branch, or another branch or a tag has rows.
    """
    change = write.schema_change
    if change is None or not (names := replaced_columns(table.metadata, change)):
        return
    reason = _reason(table.metadata, table.io, change, write.branch)
    if _keeps_rows(replacement):
        reason = _would_stay(names, write.branch)
    if reason is not None:
        raise CommitConflictError(
            f"Cannot commit {write}, nothing was committed: {reason}. They came after this write began. Run the write "
            "again."
        )


def standing_refs(metadata: TableMetadata, write: WriteIdentity) -> tuple[AssertRefSnapshotId, ...]:
    """Return what a request requires of other branches and tags: that those known stand where they were looked at."""
    if write.schema_change is None or not replaced_columns(metadata, write.schema_change):
        return ()
    return tuple(
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id)
        for name, ref in sorted(metadata.refs.items())
        if name != write.branch
    )


def replaced_columns(metadata: TableMetadata, change: SchemaChange) -> list[str]:
    """Return the columns, and fields of structs, whose types are replaced."""
    base = metadata.schema_by_id(change.base_schema_id)
    return [] if base is None else taken_names(base, change.schema)


def _reason(metadata: TableMetadata, io: FileIO, change: SchemaChange, branch: str) -> str | None:
    names = replaced_columns(metadata, change)
    other = next(_others_with_rows(metadata, io, branch), None) if names else None
    return None if other is None else _would_stay(names, other)


def _would_stay(names: list[str], ref: str) -> str:
    return (
        f"the type of column '{names[0]}' is replaced, under a new id, and '{ref}' has rows that would stay and read "
        "nulls there"
    )


def _others_with_rows(metadata: TableMetadata, io: FileIO, branch: str) -> Iterator[str]:
    for name, ref in sorted(metadata.refs.items()):
        manifests = live_manifests(io, metadata.snapshot_by_id(ref.snapshot_id))
        if name != branch and any(manifest.content == ManifestContent.DATA for manifest in manifests):
            yield name


def _keeps_rows(replacement: Replacement) -> bool:
    if any(manifest.content == ManifestContent.DATA for manifest in replacement.untouched):
        return True
    return any(change.kept for change in replacement.replaced if change.manifest.content == ManifestContent.DATA)
