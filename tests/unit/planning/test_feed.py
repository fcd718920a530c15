"""From options and schemas to a feed, or to all that is wrong."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import ChangeFeed
from iceberg_ds.planning.keys import delete_spec, keyed_schema, make_feed, with_stored_sequence

NESTED = StructType(NestedField(21, "inner", LongType(), required=True))


def schema(identifiers: list[int] | None = None, **more: IcebergType) -> Schema:
    """Return a table's schema with key columns `id` and `region`."""
    columns: dict[str, IcebergType] = {"id": LongType(), "region": StringType(), "amount": LongType(), **more}
    fields = (
        NestedField(number, name, kind, required=name in ("id", "region"))
        for number, (name, kind) in enumerate(columns.items(), 1)
    )
    return Schema(*fields, identifier_field_ids=[1, 2] if identifiers is None else identifiers)


DATAFRAME = schema([], op=StringType(), lsn=LongType(), flag=BooleanType(), tags=ListType(9, LongType()))
OPTIONS = SinkOptions(table=("db", "t"), keys=("region", "id"), sequence_by=("lsn",), operation_column="op")


def refusal(options: SinkOptions = OPTIONS, table: Schema | None = None, **more: Any) -> str:
    """Return why the options are refused."""
    arguments = {"dataframe": DATAFRAME, "format_version": 2, **more}
    try:
        make_feed(options, table or schema(), **arguments)
    except ValueError as problem:
        return str(problem)
    return pytest.fail("nothing was refused")


def test_a_feed_has_ids_of_the_table_and_names_of_the_dataframe() -> None:
    """Tasks would look for other columns than were meant."""
    found = make_feed(replace(OPTIONS, sequence_by=("LSN",)), schema(), DATAFRAME, format_version=2)

    assert found.key_ids == (2, 1)
    assert [field.name for field in found.sequence] == ["lsn"]
    assert found.operation_column == "op"
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301  # our own


def test_all_problems_are_told_at_once() -> None:
    """A user would mend one after the other."""
    options = SinkOptions(table=("db", "t"), keys=("nope",), sequence_by=("tags", "none"), operation_column="flag")

    reason = refusal(options, format_version=1)

    for part in (
        "format version is 1",
        "key column 'nope' is not in the table",
        "sequence column 'tags' is list<long>",
        "sequence column 'none' is not in the DataFrame",
        "operation column 'flag' is boolean",
    ):
        assert part in reason


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(DoubleType(), "cannot be a key, because NaN"), (NESTED, "name columns of one value")],
    ids=str,
)
def test_keys_of_other_types_are_refused(kind: IcebergType, reason: str) -> None:
    """Rows would be in the table that no delete finds."""
    table = schema(extra=kind)

    assert reason in refusal(SinkOptions(table=("db", "t"), keys=("id", "extra")), table, dataframe=table)


def test_keys_within_structs_are_refused() -> None:
    """Their nulls would not be found."""
    table = schema(extra=NESTED)

    assert "lies within a struct" in refusal(
        SinkOptions(table=("db", "t"), keys=("extra.inner",)), table, dataframe=table
    )


def test_keys_that_the_dataframe_lacks_are_refused() -> None:
    """Tasks would fail one by one."""
    reason = refusal(dataframe=Schema(*DATAFRAME.fields[1:]))

    assert "key column 'id' is not in the DataFrame" in reason


def test_keys_named_twice_are_refused() -> None:
    """A delete file would have a column twice."""
    assert "names a column twice" in refusal(SinkOptions(table=("db", "t"), keys=("id", "ID", "region")))


def test_other_identifier_fields_are_refused_unless_asked() -> None:
    """Two writers would upsert one table by different keys."""
    options = replace(OPTIONS, keys=("id",))

    assert "identifier fields are id, region" in refusal(options)
    assert "identifier fields are none" in refusal(OPTIONS, schema([]))
    assert make_feed(replace(options, evolve_keys=True), schema(), DATAFRAME, format_version=2).key_ids == (1,)


def test_optional_keys_are_refused_beside_identifier_fields() -> None:
    """The table would get identifier fields that the format forbids."""
    reason = refusal(SinkOptions(table=("db", "t"), keys=("amount",), evolve_keys=True))

    assert "'amount' are optional in the table" in reason


def test_optional_keys_are_those_of_the_write_alone() -> None:
    """A table whose columns are all optional could not be written by key."""
    feed = make_feed(SinkOptions(table=("db", "t"), keys=("amount",)), schema([]), DATAFRAME, format_version=2)

    assert [schema([]).find_column_name(key_id) for key_id in feed.key_ids] == ["amount"]


def test_names_that_could_be_either_are_refused() -> None:
    """The wrong column would order events."""
    dataframe = Schema(*DATAFRAME.fields, NestedField(30, "LSN", LongType()))

    assert "'Lsn' could be any of" in refusal(replace(OPTIONS, sequence_by=("Lsn",)), dataframe=dataframe)


def test_the_operation_column_is_no_key() -> None:
    """Each operation would have rows of its own."""
    table = Schema(*schema().fields, NestedField(5, "op", StringType(), required=True), identifier_field_ids=[1, 2, 5])
    options = SinkOptions(table=("db", "t"), keys=("id", "region", "op"), operation_column="op")

    assert "is a key, too" in refusal(options, table)


def test_a_stored_sequence_has_ids_and_types_of_the_table_and_names_of_the_dataframe() -> None:
    """Rows of the table would be held against another column, or against values that it does not have."""
    options = replace(OPTIONS, sequence_by=("LSN", "amount"))
    feed = make_feed(options, schema(), DATAFRAME, format_version=2)

    found = with_stored_sequence(feed, schema(extra=LongType(), Lsn=DoubleType()), case_sensitive=None)

    assert [(field.field_id, field.name) for field in found.sequence] == [(5, "lsn"), (3, "amount")]
    assert isinstance(found.sequence[0].field_type, DoubleType)
    assert found.counts_stored
    with pytest.raises(ValueError, match="sequence column 'lsn' is not in the table"):
        with_stored_sequence(feed, schema(), case_sensitive=None)


def test_a_new_table_gets_required_identifier_fields() -> None:
    """Other engines would not know the keys."""
    found = keyed_schema(schema([]), SinkOptions(table=("db", "t"), keys=("amount", "id")))

    assert sorted(found.identifier_field_ids) == [1, 3]
    assert [field.required for field in found.fields] == [True, True, True]


def test_a_new_table_with_wrong_keys_is_refused() -> None:
    """A table would be made that cannot be written."""
    with pytest.raises(ValueError, match="'nope' is not in the table"):
        keyed_schema(schema([]), SinkOptions(table=("db", "t"), keys=("nope",)))


BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=1)
BY_AMOUNT = PartitionSpec(
    PartitionField(2, 1000, BucketTransform(4), "bucket"), PartitionField(3, 1001, IdentityTransform(), "a"), spec_id=2
)
VOID = PartitionSpec(PartitionField(3, 1000, VoidTransform(), "gone"), spec_id=3)
FEED = ChangeFeed(key_ids=(1, 2))


@pytest.mark.parametrize(
    ("specs", "default", "expected"),
    [
        ([UNPARTITIONED_PARTITION_SPEC], UNPARTITIONED_PARTITION_SPEC, UNPARTITIONED_PARTITION_SPEC),
        ([BY_REGION], BY_REGION, BY_REGION),
        ([VOID], VOID, VOID),
        ([BY_AMOUNT], BY_AMOUNT, None),
        ([UNPARTITIONED_PARTITION_SPEC, BY_AMOUNT], BY_AMOUNT, UNPARTITIONED_PARTITION_SPEC),
        ([UNPARTITIONED_PARTITION_SPEC, BY_REGION], BY_REGION, UNPARTITIONED_PARTITION_SPEC),
        ([BY_AMOUNT, BY_REGION], BY_REGION, None),
    ],
)
def test_deletes_reach_every_file_that_may_have_the_key(
    specs: list[PartitionSpec], default: PartitionSpec, expected: PartitionSpec | None
) -> None:
    """A row that moved to another partition, or lies in files of an older spec, would stay."""
    found = delete_spec({spec.spec_id: spec for spec in specs}, default, FEED)

    assert found == expected
