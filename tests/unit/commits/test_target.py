"""Whether files still belong into the table as it is at the moment of the commit."""

from __future__ import annotations

from uuid import UUID

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from support.metadata import ID_AND_NAME, identity, metadata_of

from iceberg_ds.commits.target import check_target
from iceberg_ds.errors import CommitConflictError, CommitMessageError, SchemaMismatchError

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=1)
STAGED_UUID = UUID(int=2)


def planned(schema: Schema = ID_AND_NAME, spec: PartitionSpec | None = None) -> str:
    """Return the metadata of a table that a write planned to create."""
    specs = {} if spec is None else {"specs": [spec]}
    return metadata_of(schemas=[schema], **specs).model_dump_json()  # type: ignore[arg-type]  # one key of its own type


def test_unchanged_table_takes_the_files() -> None:
    """No write could be committed."""
    check_target(metadata_of(), identity(), {0})


def test_files_of_an_older_spec_are_taken() -> None:
    """A long write would be thrown away because the table's partitioning evolved meanwhile."""
    metadata = metadata_of(specs=[PartitionSpec(spec_id=0), BY_ID])

    check_target(metadata, identity(), {0, 1})


def test_files_of_an_unknown_spec_are_refused() -> None:
    """Files would stand in partitions that no reader understands."""
    with pytest.raises(CommitMessageError, match=r"no partition spec \[7\]"):
        check_target(metadata_of(), identity(), {0, 7})


def test_another_table_of_the_same_name_is_refused() -> None:
    """Rows would go into a table that they were not written for."""
    with pytest.raises(CommitMessageError, match="dropped and made again"):
        check_target(metadata_of(), identity(table_uuid=STAGED_UUID), {0})


def evolved(*fields: NestedField) -> TableMetadata:
    """Return a table whose schema became these fields while the rows were written."""
    return metadata_of(schemas=[ID_AND_NAME, Schema(*fields, schema_id=1)])


def test_column_that_was_added_or_renamed_or_dropped_meanwhile_is_no_obstacle() -> None:
    """A long write would be thrown away because of a harmless change."""
    metadata = evolved(NestedField(1, "number", LongType()), NestedField(3, "new", StringType()))

    check_target(metadata, identity(), {0})


def test_column_that_became_required_meanwhile_is_refused() -> None:
    """The table could not be read any more after the commit."""
    metadata = evolved(
        NestedField(1, "id", LongType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "must", LongType(), required=True),
    )

    with pytest.raises(SchemaMismatchError, match="'must' has become required"):
        check_target(metadata, identity(), {0})


def test_column_whose_type_changed_meanwhile_is_refused() -> None:
    """The table could not be read any more after the commit."""
    metadata = evolved(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))

    with pytest.raises(SchemaMismatchError, match="column 'id' was long and is int"):
        check_target(metadata, identity(), {0})


def test_like_table_that_another_writer_created_first_is_adopted() -> None:
    """One of two writers that create a table at once would fail."""
    write = identity(table_uuid=STAGED_UUID, new_table=planned())

    check_target(metadata_of(), write, {0})


@pytest.mark.parametrize(
    "schema",
    [
        Schema(NestedField(1, "id", LongType())),
        Schema(NestedField(1, "id", LongType()), NestedField(2, "title", StringType())),
        Schema(NestedField(2, "id", LongType()), NestedField(1, "name", StringType())),
        Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType())),
    ],
    ids=["fewer columns", "other name", "other ids", "other type"],
)
def test_unlike_table_that_another_writer_created_first_is_refused(schema: Schema) -> None:
    """Values would appear in other columns, or nowhere."""
    write = identity(table_uuid=STAGED_UUID, new_table=planned(schema))

    with pytest.raises(CommitConflictError, match="another writer created it"):
        check_target(metadata_of(), write, {0})


def test_table_that_another_writer_created_first_with_other_partitions_is_refused() -> None:
    """Files would stand in partitions that they do not belong to."""
    write = identity(table_uuid=STAGED_UUID, new_table=planned(spec=BY_ID))

    with pytest.raises(CommitConflictError, match="partitions"):
        check_target(metadata_of(), write, {0})


def test_table_that_another_writer_created_first_with_a_required_column_is_refused() -> None:
    """Nulls would stand in a column that promises to have none."""
    strict = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    write = identity(table_uuid=STAGED_UUID, new_table=planned())

    with pytest.raises(SchemaMismatchError, match=r"another writer created it .* column 'id' has become required"):
        check_target(metadata_of(schemas=[strict]), write, {0})
