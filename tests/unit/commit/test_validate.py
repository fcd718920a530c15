"""Whether files still belong into the table as it is at the moment of the commit."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from support.tables.metadata import ID_AND_NAME, identity, metadata_of

from iceberg_ds.commit.validate import check_target
from iceberg_ds.errors import CommitConflictError, CommitMessageError, SchemaMismatchError
from iceberg_ds.plan import ChangeFeed, WriteIdentity

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


KEYED = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), schema_id=0)
IDENTIFIED = KEYED.model_copy(update={"identifier_field_ids": [1]})
BUCKETS = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"), spec_id=0)


def by_key(new_table: str | None = None) -> WriteIdentity:
    """Return a write by key `id`, whose deletes have spec 0."""
    write = replace(identity(new_table=new_table), changes=ChangeFeed(key_ids=(1,)), delete_spec_id=0)
    return write if new_table is None else replace(write, table_uuid=str(STAGED_UUID))


def test_deletes_by_key_fit_a_table_with_these_keys() -> None:
    """No stream by keys could be committed."""
    check_target(metadata_of(schemas=[IDENTIFIED], specs=[BUCKETS]), by_key(), {0})
    check_target(metadata_of(schemas=[IDENTIFIED], specs=[PartitionSpec(spec_id=0), BY_ID]), by_key(), {0, 1})


def test_key_column_that_was_dropped_meanwhile_is_a_conflict() -> None:
    """Readers would not find the column by which rows are deleted."""
    without = Schema(NestedField(2, "name", StringType()), schema_id=1)

    with pytest.raises(CommitConflictError, match="a key column was dropped while rows were written by keys"):
        check_target(metadata_of(schemas=[IDENTIFIED, without]), by_key(), {0})


@pytest.mark.parametrize(("ids", "words"), [([], "none"), ([1, 2], "id, name")])
def test_keys_that_changed_meanwhile_are_a_conflict(ids: list[int], words: str) -> None:
    """Two writers would replace rows of one table by different keys."""
    required = Schema(*(NestedField(f.field_id, f.name, f.field_type, required=True) for f in KEYED.fields))
    other = required.model_copy(update={"schema_id": 1, "identifier_field_ids": ids})
    metadata = metadata_of(schemas=[required.model_copy(update={"identifier_field_ids": [1]}), other])

    with pytest.raises(CommitConflictError, match=f"its identifier fields became {words} while"):
        check_target(metadata, by_key(), {0})


def test_partitioning_that_changed_under_deletes_of_partitions_is_a_conflict() -> None:
    """Deletes would not reach rows that a compaction has moved into the new partitions."""
    metadata = metadata_of(schemas=[IDENTIFIED], specs=[BUCKETS, BY_ID])

    with pytest.raises(CommitConflictError, match="its partitioning changed while rows were written by keys"):
        check_target(metadata, by_key(), {0})


def test_spec_of_deletes_that_is_gone_is_a_conflict() -> None:
    """Deletes would stand in partitions that no reader understands."""
    with pytest.raises(CommitConflictError, match="the partition spec of its deletes was removed"):
        check_target(metadata_of(schemas=[IDENTIFIED], specs=[BY_ID]), by_key(), {1})


def test_table_that_another_writer_created_without_the_spec_of_deletes_is_a_conflict() -> None:
    """Deletes of the whole table would be written as those of a partition."""
    new_table = metadata_of(schemas=[IDENTIFIED], specs=[PartitionSpec(spec_id=0), BY_ID]).model_dump_json()
    write = by_key(new_table)

    with pytest.raises(CommitConflictError, match="with other columns or partitions"):
        check_target(metadata_of(schemas=[IDENTIFIED], specs=[BY_ID]), write, {1})
    check_target(metadata_of(schemas=[IDENTIFIED], specs=[PartitionSpec(spec_id=0), BY_ID]), write, {1})
