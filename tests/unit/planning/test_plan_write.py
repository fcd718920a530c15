"""What is decided, and refused, before any task runs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import IDENTIFIER, SCHEMA, Sink, embedded_options, local, rows

from iceberg_ds.errors import OptionError, SchemaMismatchError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.plan import StreamName, TxnId
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.table.specs import describes_order, parse_partition_by, parse_sort_by, spec_text

_DELETE_OLD_METADATA = "write.metadata.delete-after-commit.enabled"


def create(sink: Sink, properties: Mapping[str, str] | None = None, schema: Schema = ID_AND_NAME) -> None:
    """Create the table through PyIceberg."""
    catalog = sink.catalog._catalog
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(IDENTIFIER, schema, properties=dict(properties or {}))


def rewrite_metadata(sink: Sink, **changes: object) -> None:
    """Change the table's metadata file as another engine might have written it."""
    path = local(sink.table().metadata_location)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refusal(sink: Sink) -> str:
    """Return the text of the error that a write into the table raises."""
    with pytest.raises(UnsupportedTableError) as raised:
        sink.plan()
    text = str(raised.value)
    assert text.startswith("Cannot write to db.t: ")
    return text


def test_plan_of_an_existing_table_is_the_table_as_it_is(sink: Sink) -> None:
    """Files would be written with another schema, or into another place."""
    create(sink, {"write.data.path": "file:///elsewhere", "owner": "me"})
    metadata = sink.table().metadata

    plan = sink.plan()

    assert plan.write.table == "db.t"
    assert plan.write.table_uuid == str(metadata.table_uuid)
    assert plan.write.route.branch == "main"
    assert plan.schema == metadata.schema()
    assert plan.spec == metadata.spec()
    assert plan.location == metadata.location
    assert plan.properties["write.data.path"] == "file:///elsewhere"
    assert "owner" not in plan.properties
    assert plan.write.new_table is None


def test_plan_of_a_missing_table_carries_the_table_to_create(sink: Sink) -> None:
    """The table would be created with another schema than its files have."""
    plan = sink.plan()

    assert plan.write.new_table is not None
    planned = TableMetadataUtil.parse_raw(plan.write.new_table)
    assert str(planned.table_uuid) == plan.write.table_uuid
    assert planned.schema() == plan.schema
    assert planned.format_version == 2
    assert sink.catalog.find_table(IDENTIFIER) is None


# What `range` and `current_timestamp` give, and nested types as Spark makes them of such columns.
_PRESENT = spark.StructType([spark.StructField("x", spark.LongType(), nullable=False)])
_NEVER_NULL = spark.StructType(
    [
        spark.StructField("id", spark.LongType(), nullable=False, metadata={"comment": "of the range"}),
        spark.StructField("s", spark.StructType([spark.StructField("in", _PRESENT, nullable=False)]), nullable=False),
        spark.StructField("l", spark.ArrayType(_PRESENT, containsNull=False), nullable=False),
        spark.StructField("m", spark.MapType(_PRESENT, _PRESENT, valueContainsNull=False), nullable=False),
    ]
)


def test_columns_of_a_new_table_are_optional_at_any_depth(sink: Sink) -> None:
    """The table that a batch of `current_timestamp()` makes would refuse the nulls of all that is written later."""
    schema = sink.plan(_NEVER_NULL).schema

    names = schema.column_names
    assert [name for name in names if schema.find_field(name).required] == ["m.key"]  # which the spec has so
    assert {"id", "s.in.x", "l.element.x", "m.key.x", "m.value.x"} < set(names)
    assert schema.find_field("id").doc == "of the range"


def test_columns_of_a_new_table_are_as_spark_has_them_on_request(sink: Sink) -> None:
    """A user who wants required columns could not have them from the first write."""
    schema = sink.plan(_NEVER_NULL, use_nullable_query_schema=False).schema

    assert all(schema.find_field(name).required for name in schema.column_names)


def test_rows_with_nulls_follow_rows_that_spark_calls_not_null(sink: Sink) -> None:
    """The stream that comes after a first batch would fail at its first null."""
    first = spark.StructType([spark.StructField("id", spark.LongType(), nullable=False), SCHEMA["name"]])
    sink.commit(sink.write(rows(1), schema=first))

    sink.commit(sink.write([{"id": None, "name": None}], plan=sink.plan(SCHEMA, is_stream=True)))

    assert sorted(sink.table().scan().to_arrow()["id"].to_pylist(), key=str) == [1, None]


def test_missing_table_is_refused_if_it_may_not_be_created(sink: Sink) -> None:
    """A misspelt name would create a table."""
    with pytest.raises(TableNotFoundError, match="option 'create-table' is false"):
        sink.plan(create_table=False)


@pytest.mark.parametrize("place", ["/lake/t", "s3://bucket/lake/t"])
def test_new_table_named_by_a_place_is_refused_and_an_existing_one_written(sink: Sink, place: str) -> None:
    """Rows for delta.`/lake/t`, as Spark names a folder, went into a new table in the warehouse."""
    with pytest.raises(OptionError, match="level is a place: tables belong to a catalog"):
        sink.plan(table=("delta", place))
    assert sink.catalog.find_table(("delta", place)) is None

    named = Sink(catalog=sink.catalog, options=replace(sink.options, table=("delta", place)))
    named.create(ID_AND_NAME)
    named.append(1)
    assert named.ids() == [1]


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
@pytest.mark.parametrize("exists", [False, True], ids=["new table", "optional columns"])
def test_rows_without_columns_are_refused(sink: Sink, exists: bool, mode: WriteMode, is_stream: bool) -> None:  # noqa: FBT001  # a parameter
    """Rows would be dropped in silence, into a table that no reader can read."""
    if exists:
        sink.append(1)

    with pytest.raises(SchemaMismatchError, match=r"Cannot write to db\.t: the DataFrame has no columns"):
        sink.plan(spark.StructType([]), mode, is_stream=is_stream)

    assert (sink.catalog.find_table(IDENTIFIER) is not None) is exists


def test_two_plans_share_nothing_that_must_be_unique(sink: Sink) -> None:
    """Two writes would overwrite each other's files, or be taken for each other."""
    first, second = sink.plan(), sink.plan()

    assert first.write.operation_id != second.write.operation_id
    assert first.write.snapshot_id != second.write.snapshot_id
    assert 0 < first.write.snapshot_id < 2**63


def test_plan_is_small_and_survives_pickling(sink: Sink) -> None:
    """Every task would have to load megabytes, or could not start."""
    plan = sink.plan()

    pickled = pickle.dumps(plan)

    assert len(pickled) < 10_000
    assert pickle.loads(pickled) == plan  # noqa: S301  # our own bytes


def test_column_that_does_not_fit_is_refused_by_name(sink: Sink) -> None:
    """A task would fail in the middle of the write."""
    create(sink)

    with pytest.raises(SchemaMismatchError, match="column 'extra'"):
        sink.plan(spark.StructType([*SCHEMA, spark.StructField("extra", spark.LongType())]))


def test_column_without_iceberg_type_is_refused_before_anything_is_created(sink: Sink) -> None:
    """A namespace and an empty table would be left behind."""
    with pytest.raises(SchemaMismatchError, match="column 'v' holds interval"):
        sink.plan(spark.StructType([spark.StructField("v", spark.CalendarIntervalType())]))

    assert sink.catalog.find_table(IDENTIFIER) is None


def test_what_version_3_has_and_is_not_written_is_named(sink: Sink) -> None:
    """A conversion would fail after all rows were written."""
    create(sink)
    table = sink.table()
    (schema,) = table.metadata.model_dump(mode="json")["schemas"]
    schema["fields"].append({"id": 99, "name": "at", "type": "timestamp_ns", "required": False})
    raised = {"format-version": 3, "next-row-id": 0, "last-column-id": 99}
    rewrite_metadata(sink, schemas=[schema], **raised)

    text = refusal(sink)

    assert (
        "column 'at' is of type timestamp_ns, which is not written: drop the column, or change the table with" in text
    )


def test_version_1_is_planned(sink: Sink) -> None:
    """Old tables could not be written."""
    create(sink, {"format-version": "1"})

    assert sink.table().metadata.format_version == 1
    assert sink.plan().write.new_table is None


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"encryption.key-id": "k"}, "it is encrypted"),
        ({"write.format.default": "orc"}, "asks for orc, and only parquet can be written"),
        ({"write.format.default": "AVRO"}, "asks for AVRO"),
        ({"write.location-provider.impl": "com.example.Mine"}, "the Java class com.example.Mine"),
        ({"write.metadata.metrics.default": "some"}, "metrics mode 'some'"),
        ({"write.metadata.metrics.column.id": "truncate(x)"}, "metrics mode 'truncate(x)'"),
        ({"write.target-file-size-bytes": "512MB"}, "write.target-file-size-bytes is '512MB'"),
        ({"write.target-file-size-bytes": "0"}, "write.target-file-size-bytes is '0'"),
        ({"write.target-file-size-bytes": "²"}, "write.target-file-size-bytes is '²'"),
        ({"write.parquet.compression-codec": "lzo"}, "write.parquet.compression-codec is 'lzo'"),
        ({"write.parquet.compression-level": "fast"}, "write.parquet.compression-level is 'fast'"),
    ],
)
def test_table_that_cannot_be_written_safely_is_refused_with_the_reason(
    sink: Sink, properties: dict[str, str], reason: str
) -> None:
    """The table would be damaged, or the user left with a riddle."""
    create(sink, properties)

    assert reason in refusal(sink)


def test_all_reasons_are_given_at_once(sink: Sink) -> None:
    """A user would fix one property per run."""
    create(sink, {"encryption.key-id": "k", "write.format.default": "orc"})

    text = refusal(sink)

    assert "encrypted" in text
    assert "orc" in text


def test_unknown_transform_is_refused(sink: Sink) -> None:
    """Rows would get a wrong partition value, and queries would miss them."""
    create(sink)
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "transform": "zorder[3]", "name": "z"}]}
    rewrite_metadata(sink, **{"partition-specs": [spec], "last-partition-id": 1000})

    assert "'z'" in refusal(sink)


def test_parquet_in_any_case_is_accepted(sink: Sink) -> None:
    """A table that says PARQUET would be refused."""
    create(sink, {"write.format.default": "PARQUET"})

    assert sink.plan().write.new_table is None


def test_defaults_are_icebergs_own(sink: Sink) -> None:
    """Files would differ from what a user of Iceberg expects."""
    create(sink)

    files = sink.plan().write.files

    assert files.target_file_size_bytes == 536_870_912
    assert files.compression_codec == "zstd"
    assert files.compression_level is None


def test_table_properties_win_over_defaults(sink: Sink) -> None:
    """A table's own settings would be ignored."""
    create(
        sink,
        {
            "write.target-file-size-bytes": "1000",
            "write.parquet.compression-codec": "gzip",
            "write.parquet.compression-level": "9",
            "write.metadata.metrics.default": "full",
            "write.metadata.metrics.column.id": "none",
        },
    )

    files = sink.plan().write.files

    assert (files.target_file_size_bytes, files.compression_codec, files.compression_level) == (1000, "gzip", 9)
    assert dict(files.metrics_properties) == {
        "write.metadata.metrics.default": "full",
        "write.metadata.metrics.column.id": "none",
    }


def test_options_win_over_table_properties(sink: Sink) -> None:
    """A user's options would be ignored."""
    create(
        sink,
        {
            "write.target-file-size-bytes": "1000",
            "write.parquet.compression-codec": "gzip",
            "write.parquet.compression-level": "9",
        },
    )

    files = sink.plan(target_file_size_bytes=2000, compression_codec="zstd", compression_level=3).write.files

    assert (files.target_file_size_bytes, files.compression_codec, files.compression_level) == (2000, "zstd", 3)


def test_level_of_the_table_is_not_used_for_another_codec(sink: Sink) -> None:
    """A write would be refused, or be slow, for a level that was meant for another codec."""
    create(sink, {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "19"})

    assert sink.plan(compression_codec="gzip").write.files.compression_level is None


def test_level_of_the_table_is_passed_over_by_a_codec_without_levels(sink: Sink) -> None:
    """A table that says snappy and a level would be refused, though Iceberg's runtime writes it."""
    create(sink, {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "3"})

    assert sink.plan().write.files.compression_level is None


@pytest.mark.parametrize("codec", ["zstd", "gzip", "brotli"])
@pytest.mark.parametrize("level", [-1_000_000, 1000])
def test_level_out_of_range_is_refused_with_the_range(sink: Sink, codec: str, level: int) -> None:
    """A task would fail in the middle of the write."""
    with pytest.raises(OptionError, match=rf"is {level}, and codec {codec} takes -?\d+ to \d+"):
        sink.plan(compression_codec=codec, compression_level=level)


@pytest.mark.parametrize("codec", ["snappy", "lz4", "uncompressed"])
def test_level_for_a_codec_without_levels_is_refused(sink: Sink, codec: str) -> None:
    """A user would believe that the level counts."""
    with pytest.raises(OptionError, match=f"codec {codec} has no levels"):
        sink.plan(compression_codec=codec, compression_level=3)


@pytest.mark.parametrize("spelling", ["ZSTD", "Gzip", "SNAPPY"])
def test_codec_of_the_table_may_be_spelt_in_any_case(sink: Sink, spelling: str) -> None:
    """A table that Iceberg's runtime writes would be refused."""
    create(sink, {"write.parquet.compression-codec": spelling})

    assert sink.plan().write.files.compression_codec == spelling.lower()


def test_spec_of_the_table_is_the_one_that_is_written(sink: Sink) -> None:
    """Files would stand in the wrong partitions."""
    sink.catalog._catalog.create_namespace_if_not_exists("db")
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))
    sink.catalog._catalog.create_table(IDENTIFIER, ID_AND_NAME, partition_spec=spec)

    assert sink.plan().spec.fields[0].transform == BucketTransform(4)


def test_required_table_column_may_be_fed_by_a_nullable_one(sink: Sink) -> None:
    """Spark makes nearly every column nullable: no table with a required column could be written."""
    create(sink, schema=Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))

    assert sink.plan().schema.find_field("id").required


def test_existing_column_of_a_type_that_spark_lacks_is_named(sink: Sink) -> None:
    """A user would not learn which column stands in the way."""
    create(sink, schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "name", BinaryType())))

    with pytest.raises(SchemaMismatchError, match="column 'name' is string in the DataFrame and binary in the table"):
        sink.plan()


# What options ask of the table itself.


def create_as(sink: Sink, **options: object) -> Table:
    """Create the table with these options, by a first write, and return it."""
    sink.commit(sink.write(rows(1), plan=sink.plan(**options)))
    return sink.table()


def test_new_table_has_the_layout_and_properties_that_are_asked_for(sink: Sink, tmp_path: Path) -> None:
    """A table would have to be made by another engine first."""
    location = f"file://{tmp_path}/elsewhere"

    table = create_as(
        sink,
        partition_by=parse_partition_by("bucket(4, id)"),
        sort_by=parse_sort_by("name desc"),
        location=location,
        format_version="1",
        table_properties={"owner": "me"},
    )

    assert spec_text(table.spec(), table.schema()) == "bucket(4, id)"
    assert describes_order(parse_sort_by("name desc nulls last"), table.sort_order(), table.schema())
    assert (table.location(), table.format_version, table.properties["owner"]) == (location, 1, "me")


@pytest.mark.parametrize(("asked", "enabled"), [({}, "true"), ({_DELETE_OLD_METADATA: "false"}, "false")])
def test_new_table_has_its_old_metadata_files_deleted_unless_the_user_says_otherwise(
    sink: Sink, asked: dict[str, str], enabled: str
) -> None:
    """The folder of a busy stream would fill with a metadata file for each commit; or a user could not keep them."""
    table = create_as(sink, table_properties=asked)

    assert table.properties == {_DELETE_OLD_METADATA: enabled, "commit.manifest-merge.enabled": "true"}


def test_layout_that_the_columns_do_not_allow_is_refused_before_a_table_is_made(sink: Sink) -> None:
    """A table would be made that has to be dropped again."""
    with pytest.raises(OptionError, match=r"Cannot create db\.t: .*missing"):
        sink.plan(partition_by=parse_partition_by("day(missing)"))

    assert sink.catalog.find_table(IDENTIFIER) is None


def test_partitioning_that_the_table_has_is_no_change(sink: Sink) -> None:
    """A job could not be run a second time."""
    before = create_as(sink, partition_by=parse_partition_by("bucket(4, id)")).metadata

    sink.plan(partition_by=parse_partition_by("bucket(4, id)"), evolve_partitioning=True)

    assert sink.table().metadata == before


def test_other_partitioning_is_refused_with_what_the_table_has(sink: Sink) -> None:
    """A table would be partitioned otherwise than its owner thinks."""
    create_as(sink, partition_by=parse_partition_by("bucket(4, id)"))

    with pytest.raises(OptionError, match=r"partitioned by bucket\(4, id\).*evolve-partitioning=true"):
        sink.plan(partition_by=parse_partition_by("name"))


def test_partitioning_is_removed_if_that_is_asked_for_and_refused_else(sink: Sink) -> None:
    """A table would lose its partitions by a variable that is empty, or keep them for ever."""
    create_as(sink, partition_by=parse_partition_by("bucket(4, id)"))

    with pytest.raises(OptionError, match=r"'partition-by' is empty, and the table is partitioned by bucket\(4, id\)"):
        sink.plan(partition_by=parse_partition_by(""))
    plan = sink.plan(partition_by=parse_partition_by(""), evolve_partitioning=True)
    sink.commit(sink.write(rows(7, 8), plan=plan))

    assert plan.spec.is_unpartitioned()
    assert sink.table().spec() == plan.spec
    assert sink.ids()[-2:] == [7, 8]


def test_other_name_of_a_partition_field_is_refused_with_the_one_it_has(sink: Sink) -> None:
    """Tables of partitions would have other columns than the ones that queries ask for."""
    create_as(sink, partition_by=parse_partition_by("bucket(4, id) as shard"))

    with pytest.raises(OptionError, match=r"partitioned by bucket\(4, id\) as shard\. .*evolve-partitioning=true"):
        sink.plan(partition_by=parse_partition_by("bucket(4, id) as other"))


def test_partitioning_evolves_if_that_is_asked_for(sink: Sink) -> None:
    """Old files would be lost to queries, or new rows be put into partitions of the old spec."""
    create_as(sink, partition_by=parse_partition_by("bucket(4, id)"))
    plan = sink.plan(partition_by=parse_partition_by("name"), evolve_partitioning=True)

    sink.commit(sink.write(rows(2), plan=plan))

    table = sink.table()
    assert spec_text(table.spec(), table.schema()) == "name"
    assert sink.ids() == [1, 2]
    assert {file["spec_id"] for file in table.inspect.files().to_pylist()} == {0, 1}


def test_order_that_a_write_asks_for_is_recorded_and_the_table_keeps_its_own(sink: Sink) -> None:
    """Readers would trust an order that the files do not have, or other writers would sort otherwise from then on."""
    create_as(sink, sort_by=parse_sort_by("id"))
    plans = [sink.plan(sort_by=parse_sort_by("name desc")) for _ in range(2)]

    table = sink.table()
    orders = {order.order_id: order for order in table.metadata.sort_orders}
    assert orders.keys() == {1, 2}
    assert describes_order(parse_sort_by("id asc nulls first"), orders[1], table.schema())
    assert describes_order(parse_sort_by("name desc nulls last"), orders[2], table.schema())
    assert table.metadata.default_sort_order_id == 1
    assert [plan.sort_order.order_id for plan in plans if plan.sort_order] == [2, 2]


def test_missing_branch_is_refused_with_what_there_is(sink: Sink) -> None:
    """Rows would land on a branch that nobody reads because of a typing error."""
    sink.append(1)

    with pytest.raises(OptionError, match=r"no branch 'audit' \(known: main\).*create-branch=true"):
        sink.plan(branch="audit")


@pytest.mark.parametrize("options", [{"staging_branch": "staging"}, {"keys": ("id",), "publish_converted": True}])
def test_missing_branch_to_publish_to_is_not_told_to_be_created_by_the_write(
    sink: Sink, options: dict[str, Any]
) -> None:
    """A user would be told to set the option that is set, again and again."""
    sink.append(1)

    with pytest.raises(OptionError, match=r"no branch 'audit' \(known: main\)\. Create it first") as refused:
        sink.plan(branch="audit", create_branch=True, **options)

    assert "create-branch=true" not in str(refused.value)


def test_tag_is_no_branch(sink: Sink) -> None:
    """A tag would move, and what it marks would be lost."""
    snapshot_id = sink.append(1).snapshot_id
    sink.table().manage_snapshots().create_tag(snapshot_id, "release").commit()  # type: ignore[arg-type]

    with pytest.raises(OptionError, match="'release' is a tag"):
        sink.plan(branch="release", create_branch=True)


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [("missing = 1", "missing"), ("id = 'x'", "x"), ("id > 'x' OR name = 'y'", "x")],
)
def test_predicate_that_does_not_fit_the_columns_is_refused(sink: Sink, predicate: str, reason: str) -> None:
    """A write would run for hours and then fail, or replace other rows than those meant."""
    sink.append(1)

    with pytest.raises(OptionError, match=f"'replace-where': .*{reason}"):
        plan_write(sink.catalog, replace(sink.options, replace_where=predicate), SCHEMA, WriteMode.OVERWRITE)


def test_snapshot_to_validate_from_must_lie_behind_the_branch(sink: Sink) -> None:
    """A conflict would go unnoticed because of a number that means nothing."""
    sink.append(1)
    options = replace(sink.options, validate_from_snapshot_id=42)

    with pytest.raises(OptionError, match="'validate-from-snapshot-id' is 42"):
        plan_write(sink.catalog, options, SCHEMA, WriteMode.OVERWRITE)


def test_version_is_refused_in_a_stream(sink: Sink) -> None:
    """All epochs of a stream but the first would be skipped."""
    with pytest.raises(OptionError, match=r"are for batches.*foreachBatch"):
        sink.plan(is_stream=True, txn_app_id="load", txn_version=1)


def test_stream_name_is_refused_in_a_batch(sink: Sink) -> None:
    """A user of foreachBatch would believe that a wiped checkpoint is refused."""
    with pytest.raises(OptionError, match=r"for writeStream.*'txn-app-id' and 'txn-version' take its place"):
        sink.plan(stream_name="orders")


def test_plan_carries_who_numbers_the_write(sink: Sink) -> None:
    """A repeated batch would not be recognised, or a stream have no name."""
    batch = sink.plan(txn_app_id="load", txn_version=7).write
    stream = sink.plan(is_stream=True, stream_name="orders", accept_new_checkpoint=True).write

    assert (batch.txn, batch.stream) == (TxnId(app_id="load", version=7), None)
    assert (stream.txn, stream.stream) == (None, StreamName(name="orders", accepts_new_checkpoint=True))
    assert sink.plan().write.txn is None
    assert sink.plan(is_stream=True).write.stream is None


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        (WriteMode.APPEND, {"partition_by": "more"}),
        (WriteMode.APPEND, {"sort_by": "nope"}),
        (WriteMode.OVERWRITE, {"replace_where": "nope = 1"}),
        (WriteMode.OVERWRITE, {"partition_by": "more", "replace_where": "id = 1"}),
    ],
)
def test_write_that_is_refused_leaves_no_column_behind(sink: Sink, mode: WriteMode, options: Mapping[str, str]) -> None:
    """A table would change with each attempt that comes to nothing."""
    create(sink)
    wider = spark.StructType([*SCHEMA, spark.StructField("more", spark.LongType())])
    asked = embedded_options(Path(sink.options.warehouse or ""), schema_evolution="add-columns", **options)

    with pytest.raises(OptionError, match=r"Cannot write to db\.t"):
        plan_write(sink.catalog, asked, wider, mode)

    assert list(sink.table().schema().column_names) == ["id", "name"]


def test_overwrite_that_is_refused_leaves_the_partitioning(sink: Sink) -> None:
    """The layout of a table would change with an attempt that comes to nothing."""
    create(sink)
    other = spark.StructType([*SCHEMA, spark.StructField("ID", spark.LongType())])
    options = embedded_options(
        Path(sink.options.warehouse or ""), partition_by="name", evolve_partitioning="true", overwriteschema="true"
    )

    with pytest.raises(SchemaMismatchError, match="ID"):
        plan_write(sink.catalog, options, other, WriteMode.OVERWRITE)

    assert sink.table().spec().is_unpartitioned()
