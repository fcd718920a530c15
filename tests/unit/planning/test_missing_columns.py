"""DataFrames that lack optional columns of the table: each kind of write puts nulls there."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType
from pyspark.sql import types as spark
from support.tables.sink import Sink, epoch

from iceberg_ds.errors import RefusedRowsError, SchemaMismatchError
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.specs import parse_sort_by

TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "region", StringType()),
)
BY_REGION = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "region"), PartitionField(2, 1001, BucketTransform(4), "name_bucket")
)
IDS = spark.StructType([spark.StructField("id", spark.LongType(), nullable=False)])
FULL = spark.StructType(
    [*IDS, spark.StructField("name", spark.StringType()), spark.StructField("region", spark.StringType())]
)


def row(number: int, name: str | None = None, region: str | None = None) -> dict[str, Any]:
    """Return a row of the table."""
    return {"id": number, "name": name, "region": region}


def write_full(sink: Sink) -> None:
    """Put two rows with all columns into the table."""
    sink.commit(sink.write([row(1, "a", "EU"), row(2, "b", None)], schema=FULL))


@pytest.mark.parametrize("may_hand_over", [False, True])
@pytest.mark.parametrize("spec", [PartitionSpec(), BY_REGION], ids=["unpartitioned", "partitioned"])
def test_append_writes_nulls(sink: Sink, spec: PartitionSpec, may_hand_over: bool) -> None:  # noqa: FBT001
    """A job would stop as soon as somebody adds a column to its table."""
    sink.create(TABLE, spec)
    write_full(sink)

    sink.commit(sink.write([{"id": 3}], [{"id": 4}], schema=IDS, may_hand_over=may_hand_over))

    assert sink.rows() == [row(1, "a", "EU"), row(2, "b"), row(3), row(4)]


def test_epoch_of_a_stream_writes_nulls(sink: Sink) -> None:
    """A stream would stop as soon as somebody adds a column to its table."""
    sink.create(TABLE, BY_REGION)

    plan = sink.plan(IDS, is_stream=True)
    sink.commit(sink.write([{"id": 3}], schema=IDS, plan=plan, of_epoch=epoch(0)))

    assert sink.rows() == [row(3)]


def test_column_to_sort_by_may_be_missing(sink: Sink) -> None:
    """A table with a sort order would refuse what one without it takes."""
    sink.create(TABLE, BY_REGION)

    plan = sink.plan(IDS, sort_by=parse_sort_by("name desc, id desc"))
    sink.commit(sink.write([{"id": 3}, {"id": 5}, {"id": 4}], schema=IDS, plan=plan))

    assert sink.table().scan().to_arrow()["id"].to_pylist() == [5, 4, 3]


def test_overwrite_replaces_all_rows(sink: Sink) -> None:
    """Old rows would stay, or new ones be refused."""
    sink.create(TABLE, BY_REGION)
    write_full(sink)

    sink.overwrite([{"id": 3}], schema=IDS)

    assert sink.rows() == [row(3)]


def test_dynamic_overwrite_replaces_the_partition_of_nulls_alone(sink: Sink) -> None:
    """Rows of other partitions would be lost."""
    sink.create(TABLE, PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "region")))
    write_full(sink)

    sink.overwrite([{"id": 3}], schema=IDS, overwrite_mode="dynamic")

    assert sink.rows() == [row(1, "a", "EU"), row(3)]


def test_nulls_do_not_satisfy_the_predicate_of_replace_where(sink: Sink) -> None:
    """Rows would land outside of the range that they replace."""
    sink.create(TABLE, BY_REGION)
    write_full(sink)

    sink.overwrite([{"id": 3}], schema=IDS, replace_where="region IS NULL")
    with pytest.raises(RefusedRowsError):
        sink.overwrite([{"id": 4}], schema=IDS, replace_where="region = 'EU'")

    assert sink.rows() == [row(1, "a", "EU"), row(3)]


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.UPSERT])
def test_row_with_a_key_is_replaced_whole(sink: Sink, mode: WriteMode) -> None:
    """Values of the old row would show through in the new one, or the write be refused."""
    sink.create(Schema(*TABLE.fields, identifier_field_ids=[1]))

    plan = sink.plan(IDS, mode, keys=("id",))

    assert plan.schema.column_names == ["id", "name", "region"]


def test_keyed_row_gets_nulls_where_it_lacks_columns(sink: Sink) -> None:
    """Values of the old row would show through in the new one."""
    sink.create(Schema(*TABLE.fields, identifier_field_ids=[1]))
    write_full(sink)

    plan = sink.plan(IDS, keys=("id",))
    messages = sink.write([{"id": 1}], schema=IDS, plan=plan)

    assert len(messages[0].delete_files) == 1
    assert messages[0].data_files[0].record_count == 1
    assert messages[0].data_files[0].null_value_counts == {1: 0, 2: 1, 3: 1}


def test_nested_fields_may_be_missing(sink: Sink) -> None:
    """A field more in a struct of the table would stop a job."""
    place = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType()))
    point = StructType(NestedField(7, "x", LongType()), NestedField(8, "y", LongType()))
    points = ListType(6, point, element_required=False)
    sink.create(
        Schema(NestedField(1, "id", LongType()), NestedField(2, "place", place), NestedField(5, "points", points))
    )
    x = spark.StructType([spark.StructField("x", spark.LongType())])
    given = spark.StructType([*IDS, spark.StructField("place", x), spark.StructField("points", spark.ArrayType(x))])

    sink.commit(sink.write([{"id": 1, "place": {"x": 5}, "points": [{"x": 6}, None]}], schema=given))

    assert sink.rows() == [{"id": 1, "place": {"x": 5, "y": None}, "points": [{"x": 6, "y": None}, None]}]


def test_nested_columns_as_json_are_as_they_come(sink: Sink) -> None:
    """Text of JSON would get fields that nobody sent, or the column be refused."""
    sink.create(Schema(*TABLE.fields, NestedField(4, "other", StringType())))
    given = spark.StructType([*IDS, spark.StructField("name", spark.StructType([*IDS]))])

    plan = sink.plan(given, nested_as_json=True)
    sink.commit(sink.write([{"id": 1, "name": {"id": 2}}], schema=given, plan=plan))

    assert sink.rows() == [{**row(1, '{"id":2}'), "other": None}]


def test_all_that_does_not_fit_is_named_once_and_what_may_be_missing_is_not(sink: Sink) -> None:
    """A user would fix one column in each run, or look for columns that nobody needs."""
    sink.create(TABLE)
    given = spark.StructType([spark.StructField("nmae", spark.StringType())])

    with pytest.raises(SchemaMismatchError) as raised:
        sink.plan(given)

    text = str(raised.value)
    assert "column 'id' bigint is required in the table and missing in the DataFrame" in text
    assert "column 'nmae' string is not in the table" in text
    assert "RENAME COLUMN name TO nmae" in text
    assert "'region'" not in text
