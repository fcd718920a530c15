"""Pure: whether the files of a write still fit the table as it is at the moment of the commit.

Between plan and commit a table may be dropped and created again, evolve its schema or spec, or be created
by another writer first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.errors import CommitConflictError, CommitMessageError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.plan import ChangeFeed, OverwriteByFilter, WriteIdentity, is_digest_of
from iceberg_ds.snapshots.origins import REQUEUED_SINCE_KEY, why_not_since
from iceberg_ds.snapshots.refs import MAIN_BRANCH, BranchHistory, base_branch, why_not_writable
from iceberg_ds.snapshots.version_3 import VERSION_3, deletion_vector
from iceberg_ds.table.compatibility import can_still_read, taken_names
from iceberg_ds.table.encryption import evidence_of_encryption

WRITABLE_FORMAT_VERSIONS = (1, 2, 3)
_AGAIN = "Run the write again."


def check_version(metadata: TableMetadata, write: WriteIdentity, delete_files: Iterable[DataFile]) -> None:
    """Check that a table may get these delete files; it may have been upgraded meanwhile.

    Args:
        metadata: The table.
        write: The write.
        delete_files: Delete files that it adds.

    Raises:
        CommitConflictError: A position delete file is to go into a table of version 3 (spec, "Deletion Vectors").
    """
    by_position = (found for found in delete_files if found.content == DataFileContent.POSITION_DELETES)
    if metadata.format_version >= VERSION_3 and any(deletion_vector(found) is None for found in by_position):
        raise CommitConflictError(
            f"Cannot commit to {write.table}, nothing was committed: its format version became 3 while the rows were "
            f"written, and deletes by position were written for version 2. {_AGAIN}"
        )


def check_target(
    metadata: TableMetadata, write: WriteIdentity, spec_ids: AbstractSet[int], *, is_placed: bool = False
) -> None:
    """Check that files of these partition specs can be added to the table as `metadata` shows it.

    Args:
        metadata: The table.
        write: The write.
        spec_ids: The partition specs of its files.
        is_placed: Whether a new table's location follows from its name, so that a later table may get it, too.

    Raises:
        CommitMessageError: It is another table under the same name, or lacks a partition spec of the files.
        SchemaMismatchError: Its schema has changed so that the files cannot be read with it.
        UnsupportedTableError: It has been upgraded to a format version that cannot be written, or encrypted.
        CommitConflictError: Another writer created it first, with other columns or partitions, or changed what deletes
            by keys rest on; or a name that was written, or says what is replaced, now means another column. Or the rows
            are requeued, and the table may have got them since.
    """
    _check_lacking(metadata, write)
    if metadata.format_version not in WRITABLE_FORMAT_VERSIONS:
        raise UnsupportedTableError(
            f"Cannot commit to {write.table}, nothing was committed: its format version became "
            f"{metadata.format_version} while the rows were written, and versions 1 to 3 can be written."
        )
    if (evidence := evidence_of_encryption(metadata)) is not None:
        raise UnsupportedTableError(
            f"Cannot commit to {write.table}, nothing was committed: it is encrypted ({evidence}) since the rows were "
            "written, and this sink writes plain files. Write to another table."
        )
    is_same_table = str(metadata.table_uuid) == write.table_uuid
    written = (
        _written_schema(metadata, write) if is_same_table else _check_adoptable(metadata, write, is_placed=is_placed)
    )
    reason = why_not_writable(metadata, write.route) or _why_not_begun(metadata, write)
    if reason is not None:
        raise CommitConflictError(
            f"Cannot commit to {write.table}: {reason}. It was otherwise when the write began. {_AGAIN}"
        )
    missing = spec_ids - metadata.specs().keys()
    if missing:
        raise CommitMessageError(f"Cannot commit to {write.table}: it has no partition spec {sorted(missing)}.")
    later = _later_schemas(metadata, write)
    current = metadata.schema()
    problems = [text for schema in (written, *later) if schema != current for text in can_still_read(schema, current)]
    if problems:
        cause = (
            "its schema changed while the rows were written"
            if is_same_table
            else "another writer created it at the same moment, with other columns"
        )
        listed = "; ".join(dict.fromkeys(problems))
        raise SchemaMismatchError(f"Cannot commit to {write.table}: {cause}: {listed}. {_AGAIN}")
    change = (
        (_change_under_partitions(metadata, write, spec_ids) if is_same_table else None)
        or _change_under_names(metadata, write, (written, *later))
        or _change_under_keys(metadata, write, written)
    )
    if change is not None:
        raise CommitConflictError(f"Cannot commit to {write.table}, nothing was committed: {change}. {_AGAIN}")


def _check_lacking(metadata: TableMetadata, write: WriteIdentity) -> None:
    """Refuse rows that `requeue` writes, if the table went another way since it was seen to lack them."""
    state = write.snapshot_properties.get(REQUEUED_SINCE_KEY)
    if state is None:
        return
    why = why_not_since(BranchHistory(metadata, base_branch(metadata, write.route)), state)
    if why is not None:
        raise CommitConflictError(
            f"Cannot commit to {write.table}, nothing was committed: since its rows were looked for, {why}, so that it "
            "may have the rows that are requeued. Call requeue again, which says how to go on."
        )


def _written_schema(metadata: TableMetadata, write: WriteIdentity) -> Schema:
    """Return the schema of the table that the write was planned for, before the write's own schema change."""
    change = write.schema_change
    if change is not None:
        if change.base_schema_id == metadata.current_schema_id and _is_known(metadata.schema(), write):
            return metadata.schema()
        raise CommitConflictError(
            f"Cannot commit to {write.table}, nothing was committed: its schema changed while rows of a new schema "
            f"were written. {_AGAIN}"
        )
    written = metadata.schema_by_id(write.schema_id)
    if written is None or not _is_known(written, write):
        raise _removed(write, write.schema_id)
    return written


def _later_schemas(metadata: TableMetadata, write: WriteIdentity) -> list[Schema]:
    """Return the further schemas that files were written with, once rows of the write had added columns."""
    later = []
    for number, digest in write.later_schemas.items():
        schema = metadata.schema_by_id(number)
        if schema is None or not is_digest_of(digest, schema):
            raise _removed(write, number)
        later.append(schema)
    return later


def _removed(write: WriteIdentity, schema_id: int) -> CommitConflictError:
    return CommitConflictError(
        f"Cannot commit to {write.table}, nothing was committed: schema {schema_id}, by which its rows were "
        f"written, was removed from the table. {_AGAIN}"
    )


def _why_not_begun(metadata: TableMetadata, write: WriteIdentity) -> str | None:
    """Return why the write's branch cannot have the first snapshot of a table that exists, or None if it can."""
    creates = write.new_table is not None and str(metadata.table_uuid) == write.table_uuid
    if metadata.snapshots or write.branch == MAIN_BRANCH or creates:
        return None
    return "it has no snapshot, and catalogs take the first one of an existing table on main alone"


def _is_known(schema: Schema, write: WriteIdentity) -> bool:
    """Return whether the schema is the one that the write was planned for, and not another one by its id."""
    return write.fingerprint is None or write.fingerprint.is_of_schema(schema)


def _change_under_partitions(metadata: TableMetadata, write: WriteIdentity, spec_ids: AbstractSet[int]) -> str | None:
    """Return which partition spec of the files was removed, so that another one has its id now; or None."""
    specs, known = metadata.specs(), write.fingerprint
    other = next((number for number in sorted(spec_ids) if known and not known.is_of_spec(specs[number])), None)
    return None if other is None else f"partition spec {other}, by which its rows were written, was removed"


def _change_under_names(metadata: TableMetadata, write: WriteIdentity, written: Sequence[Schema]) -> str | None:
    """Return how a name that was written, or that says what to replace, now means something else; or None."""
    if taken := [name for schema in written for name in taken_names(schema, metadata.schema())]:
        return f"column '{taken[0]}' is another one than when its rows were written, under the same name"
    overwrite = write.overwrite
    if not isinstance(overwrite, OverwriteByFilter):
        return None
    from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415  # appends need no predicates

    try:
        is_same = RowFilter.of(overwrite, metadata.schema()).columns == overwrite.columns
    except ValueError as problem:
        return f"its columns changed, and rows cannot be told by {overwrite.predicate} any more: {problem}"
    return None if is_same else f"its columns changed, and {overwrite.predicate} means other rows by now"


def _change_under_keys(metadata: TableMetadata, write: WriteIdentity, written: Schema) -> str | None:
    """Return what has changed in the table so that deletes by keys may miss the rows they are meant for, or None."""
    if write.changes is None:
        return None
    reason = _change_of_keys(metadata.schema(), write.changes, written)
    if reason is None and write.delete_spec_id is not None:
        reason = _change_of_specs(metadata, write.delete_spec_id)
    return None if reason is None else f"{reason} while rows were written by keys"


def _change_of_keys(schema: Schema, feed: ChangeFeed, written: Schema) -> str | None:
    key_ids = set(feed.key_ids)
    compared = {field.field_id for field in feed.sequence} if feed.counts_stored else set()
    if not key_ids <= schema.field_ids:
        return "a key column was dropped"
    if not compared <= schema.field_ids:
        return "a sequence column was dropped"
    # The table's rows are looked up and compared by values of the type that was planned for.
    if any(schema.find_type(number) != written.find_type(number) for number in key_ids | compared):
        return "the type of a key or of a sequence column changed"
    if set(schema.identifier_field_ids) != (key_ids if feed.are_identifiers else set()):
        names = ", ".join(sorted(str(schema.find_column_name(number)) for number in schema.identifier_field_ids))
        return f"its identifier fields became {names or 'none'}"
    return None


def _change_of_specs(metadata: TableMetadata, delete_spec_id: int) -> str | None:
    spec = metadata.specs().get(delete_spec_id)
    if spec is None:
        return "the partition spec of its deletes was removed"
    if not spec.is_unpartitioned() and len(metadata.specs()) > 1:
        # Deletes in a partition apply to files of the same spec only.
        return "its partitioning changed"
    return None


def _check_adoptable(metadata: TableMetadata, write: WriteIdentity, *, is_placed: bool) -> Schema:
    """Return the schema of the files if they fit into a table that another writer created first."""
    if write.new_table is None:
        raise CommitMessageError(
            f"Cannot commit to {write.table}: it is not the table that the rows were written for "
            f"(UUID {metadata.table_uuid}, planned for {write.table_uuid}). It was dropped and made again: "
            "run the write again."
        )
    planned = planned_metadata(write.new_table)
    if is_placed and planned.location.rstrip("/") != metadata.location.rstrip("/"):
        # The next table that is created at the location of the files would take them for orphan files.
        raise CommitConflictError(
            f"Cannot commit to {write.table}: another writer created it at the same moment at {metadata.location}, and "
            f"the rows were written to {planned.location}. Run the write again: it will be planned for that table."
        )
    specs = [_specs(known, write) for known in (planned, metadata)]
    if _columns(planned.schema()) != _columns(metadata.schema()) or specs[0] != specs[1]:
        raise CommitConflictError(
            f"Cannot commit to {write.table}: another writer created it at the same moment with other columns or "
            "partitions. Run the write again: it will be planned for that table."
        )
    return planned.schema()


def _specs(metadata: TableMetadata, write: WriteIdentity) -> list[PartitionSpec | None]:
    """Return the specs that matter to the write."""
    deletes = [] if write.delete_spec_id is None else [metadata.specs().get(write.delete_spec_id)]
    return [metadata.spec(), *deletes]


def _columns(schema: Schema) -> dict[str, tuple[int, str]]:
    """Return id and type of every field, nested ones included, by full name."""
    return {
        name: (field_id, str(schema.find_type(field_id)))
        for field_id in schema.field_ids
        if (name := schema.find_column_name(field_id)) is not None
    }
