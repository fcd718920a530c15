"""What is decided, and refused, of a write by keys before any task runs."""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.tables.sink import IDENTIFIER, SCHEMA, Sink, local

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.create_table import create_without_rows
from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.expressions.row_filter import RowFilter
from iceberg_ds.plan import NO_SPEC, WritePlan
from iceberg_ds.planning import keys as key_planning
from iceberg_ds.planning.plan_write import WriteMode, foresee, foresee_creation
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.specs import parse_partition_by

KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    identifier_field_ids=[1],
)
REQUIRED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    identifier_field_ids=[],
)
BY_NAME = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"))
BY_ID = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=BucketTransform(4), name="id_bucket"))
FEED = spark.StructType(
    [
        *SCHEMA,
        spark.StructField("op", spark.StringType()),
        spark.StructField("lsn", spark.LongType()),
    ]
)


def planned(plan: WritePlan) -> TableMetadata:
    """Return the table that the plan is to create."""
    assert plan.write.new_table is not None
    return TableMetadataUtil.parse_raw(plan.write.new_table)


def refusal(sink: Sink, schema: spark.StructType = SCHEMA, **options: Any) -> str:
    """Return the text of the error that a write by key `id` raises, and prove that it has changed nothing."""
    before = sink.catalog.find_table(IDENTIFIER)
    with pytest.raises(OptionError) as raised:
        sink.plan(schema, **{"keys": ("id",), **options})
    after = sink.catalog.find_table(IDENTIFIER)
    assert (before and before.metadata_location) == (after and after.metadata_location)
    text = str(raised.value)
    assert text.startswith("Cannot write to db.t: ")
    return text


def make_first_version(sink: Sink) -> None:
    """Give the table format version 1."""
    path = local(sink.table().metadata_location)
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps({**metadata, "format-version": 1, "schema": metadata["schemas"][0]}))


def test_new_table_has_its_keys_as_required_identifier_fields(sink: Sink) -> None:
    """Readers would not know what a row is identified by, and a null could be a key."""
    plan = sink.plan(keys=("ID", "name"))

    schema = planned(plan).schema()
    assert schema.identifier_field_ids == [1, 2]
    assert [field.required for field in schema.fields] == [True, True]
    assert plan.schema == schema
    assert plan.write.changes is not None
    assert plan.write.changes.key_ids == (1, 2)
    assert plan.delete_spec == plan.spec
    assert plan.write.delete_spec_id == plan.spec.spec_id
    assert sink.catalog.find_table(IDENTIFIER) is None


def test_upsert_brings_no_deletes_by_key_into_the_table(sink: Sink) -> None:
    """The commit would take the keys to look for for deletes of the table."""
    plan = sink.plan(mode=WriteMode.UPSERT, keys=("id",), partition_by=parse_partition_by("name"))

    assert plan.delete_spec == NO_SPEC
    assert plan.write.delete_spec_id is None


@pytest.mark.parametrize(("asked", "required"), [(True, [True, False]), (False, [True, True])])
def test_only_keys_of_a_new_table_are_required(sink: Sink, asked: bool, required: list[bool]) -> None:  # noqa: FBT001
    """Rows that delete, which have no values but their keys', and rows with nulls could not follow the first ones."""
    columns = spark.StructType([spark.StructField(field.name, field.dataType, nullable=False) for field in SCHEMA])

    schema = planned(sink.plan(columns, keys=("id",), use_nullable_query_schema=asked)).schema()

    assert [field.required for field in schema.fields] == required


def test_plan_without_keys_knows_none(sink: Sink) -> None:
    """An append would delete rows."""
    plan = sink.plan()

    assert (plan.write.changes, plan.delete_spec, plan.frame) == (None, None, None)
    assert plan.manifests is not None


def test_plan_carries_the_feed(sink: Sink) -> None:
    """Tasks would take other rows for the winners than the options say."""
    sink.create(KEYED)

    plan = sink.plan(
        FEED,
        keys=("id",),
        sequence_by=("LSN",),
        operation_column="OP",
        delete_when="op = 'x' OR lsn < 0",
        keys_not_enforced=True,
        inserts_are_new=True,
        schema_evolution="add-columns",
    )

    assert plan.write.changes is not None
    assert [field.name for field in plan.write.changes.sequence] == ["lsn"]
    assert plan.write.changes.operation_column == "op"
    assert plan.write.changes.delete_when == "op = 'x' OR lsn < 0"
    assert not plan.write.changes.is_enforced
    assert plan.write.changes.trusts_inserts
    assert plan.manifests is None
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301  # our own bytes


@pytest.mark.parametrize("schema_evolution", ["add-columns", "full"])
def test_operation_column_is_not_written(sink: Sink, schema_evolution: str) -> None:
    """Each table would get a column with the words of its feed, or the write would be refused for it."""
    sink.create(KEYED)

    plan = sink.plan(FEED, keys=("id",), operation_column="op", schema_evolution=schema_evolution)

    assert plan.schema.column_names == ["id", "name", "lsn"]


def test_operation_column_is_not_in_a_new_table(sink: Sink) -> None:
    """Each table would get a column with the words of its feed."""
    assert sink.plan(FEED, keys=("id",), operation_column="Op").schema.column_names == ["id", "name", "lsn"]


def test_operation_column_is_written_if_the_table_has_it(sink: Sink) -> None:
    """A table that keeps the words would get nulls from now on."""
    sink.create(Schema(*KEYED.fields, NestedField(3, "OP", StringType()), identifier_field_ids=[1]))
    columns = spark.StructType(FEED.fields[:3])

    assert sink.plan(columns, keys=("id",), operation_column="op").schema.column_names == ["id", "name", "OP"]


def test_nullable_columns_of_a_batch_are_keys(sink: Sink) -> None:
    """Most DataFrames would be refused, or the key would become optional; rows with nulls are found by the tasks."""
    sink.create(REQUIRED)

    for schema_evolution in ("strict", "add-columns", "full"):
        plan = sink.plan(keys=("id",), evolve_keys=True, schema_evolution=schema_evolution)
        assert [field.required for field in plan.schema.fields] == [True, True]


def test_identifier_fields_of_the_table_must_be_the_keys(sink: Sink) -> None:
    """Other engines would take other rows for the same than this stream does."""
    sink.create(REQUIRED)

    text = refusal(sink)

    assert "option 'keys' is id, and the table's identifier fields are none: give evolve-keys=true" in text


def test_identifier_fields_become_the_keys_if_asked_to(sink: Sink) -> None:
    """A table that was made without keys could never be written by key."""
    sink.create(REQUIRED)

    first = sink.plan(keys=("name", "id"), evolve_keys=True)
    location = sink.table().metadata_location
    second = sink.plan(keys=("id", "name"), evolve_keys=True)

    assert first.write.changes is not None
    assert first.write.changes.key_ids == (2, 1)
    assert sorted(sink.table().schema().identifier_field_ids) == [1, 2]
    assert first.schema == second.schema == sink.table().schema()
    assert sink.table().metadata_location == location
    assert sink.plan(keys=("id",), evolve_keys=True).schema.identifier_field_ids == [1]


def test_keys_stay_as_they_are_if_the_columns_do_not_fit(sink: Sink) -> None:
    """A write that is refused would have changed the keys of a table."""
    sink.create(REQUIRED)
    before = sink.table().metadata_location

    with pytest.raises(SchemaMismatchError, match="column 'lsn' bigint is not in the table"):
        sink.plan(FEED, keys=("id",), evolve_keys=True, operation_column="op")

    assert sink.table().metadata_location == before


def test_table_of_the_first_version_is_refused_with_the_way_to_upgrade(sink: Sink) -> None:
    """Deletes would be written that the table's version does not have."""
    sink.create(REQUIRED)
    make_first_version(sink)

    text = refusal(sink, evolve_keys=True)

    assert "the table's format version is 1, and deletes need version 2: upgrade it" in text
    assert "'format-version'='2'" in text


def test_all_that_is_wrong_with_a_feed_is_told_at_once(sink: Sink) -> None:
    """A user would mend one option a run, and the table would be changed by those that were right."""
    sink.create(REQUIRED)

    for is_new in (False, True):
        if is_new:
            sink.catalog.raw.drop_table(IDENTIFIER)
        text = refusal(
            sink,
            keys=("id", "gone"),
            evolve_keys=not is_new,
            sequence_by=("lost",),
            operation_column="id",
            delete_when="wrong = 1",
        )
        for part in (
            "key column 'gone' is not in the table",
            "sequence column 'lost' is not in the DataFrame",
            "operation column 'id' is a key, too",
            "option 'delete-when': there is no column 'wrong' (columns: id, name)",
        ):
            assert part in text


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (spark.StructField("k", spark.DoubleType()), "column 'k' is double and cannot be a key"),
        (spark.StructField("k", spark.ArrayType(spark.LongType())), "column 'k' is list<long> and cannot be a key"),
        (spark.StructField("k", spark.StructType(SCHEMA.fields)), "cannot be a key: name columns of one value"),
    ],
    ids=["double", "array", "struct"],
)
def test_types_that_cannot_be_keys_are_refused_before_a_table_is_made(
    sink: Sink, column: spark.StructField, reason: str
) -> None:
    """Rows would be in the table that no delete finds."""
    assert reason in refusal(sink, spark.StructType([*SCHEMA, column]), keys=("id", "k"))


def test_keys_and_overwrite_are_refused(sink: Sink) -> None:
    """A user would lose all rows of other keys."""
    with pytest.raises(OptionError, match="option 'keys' is for appending"):
        sink.plan(SCHEMA, WriteMode.OVERWRITE, keys=("id",))


def test_spec_of_deletes_is_added_once_and_not_as_the_default(sink: Sink) -> None:
    """A row that moves to another partition would stay in the old one, or new files would no longer be partitioned."""
    sink.create(KEYED, BY_NAME)

    plan = sink.plan(keys=("id",))
    location = sink.table().metadata_location
    again = sink.plan(keys=("id",))

    assert plan.delete_spec is not None
    assert plan.delete_spec.is_unpartitioned()
    assert plan.spec == again.spec == sink.table().spec() == BY_NAME
    assert again.delete_spec == plan.delete_spec
    assert sink.table().specs()[plan.delete_spec.spec_id] == plan.delete_spec
    assert sink.table().metadata_location == location


@pytest.mark.parametrize(("spec", "keys"), [(BY_ID, ("id",)), (PartitionSpec(), ("id",))], ids=["bucket", "none"])
def test_deletes_by_partition_need_no_other_spec(sink: Sink, spec: PartitionSpec, keys: tuple[str, ...]) -> None:
    """Each delete would be held against the files of all partitions."""
    sink.create(KEYED, spec)
    before = sink.table().metadata_location

    assert sink.plan(keys=keys).delete_spec == spec
    assert sink.table().metadata_location == before


def test_deletes_are_global_once_partitioning_has_changed(sink: Sink) -> None:
    """Rows in files of the older partitioning would never be deleted."""
    sink.create(KEYED)

    terms = parse_partition_by("bucket(4, id)")
    plan = sink.plan(keys=("id",), partition_by=terms, evolve_partitioning=True)

    assert plan.spec.spec_id == 1
    assert plan.delete_spec == PartitionSpec(spec_id=0)


def test_writers_that_add_the_spec_at_once_leave_one(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java reads no table with two specs of one id: the table would be lost to most readers."""
    sink.create(KEYED, BY_NAME)
    send = CatalogClient.send
    others = iter([True])

    def send_after_another(client: CatalogClient, *arguments: Any) -> TableMetadata:
        if next(others, False):
            sink.plan(keys=("id",))  # sees the table as the first writer did, and is faster
        return send(client, *arguments)

    monkeypatch.setattr(CatalogClient, "send", send_after_another)
    plan = sink.plan(keys=("id",))

    stored = json.loads(local(sink.table().metadata_location).read_text())
    assert [spec["spec-id"] for spec in stored["partition-specs"]] == [0, 1]
    assert plan.delete_spec == PartitionSpec(spec_id=1)


def test_new_partitioned_table_is_born_with_the_spec_of_its_deletes(sink: Sink) -> None:
    """The first rows could not be deleted again, or the table would be there before them."""
    terms = parse_partition_by("name")
    plan = sink.plan(keys=("id",), partition_by=terms)
    assert plan.write.new_table is not None
    create_without_rows(sink.catalog, sink.options.table, TableMetadataUtil.parse_raw(plan.write.new_table))

    table = sink.table()
    assert plan.delete_spec == PartitionSpec(spec_id=1)
    assert table.specs()[1] == plan.delete_spec
    assert table.spec() == plan.spec
    assert [field.name for field in table.spec().fields] == ["name"]
    assert table.schema() == plan.schema
    assert table.schema().identifier_field_ids == [1]


def test_predicate_for_deletes_is_bound_to_columns_that_need_not_be_in_the_table(sink: Sink) -> None:
    """Rows would be taken for deletes by another column, or those that delete would be kept."""
    sink.create(KEYED)
    columns = spark.StructType([spark.StructField("gone", spark.BooleanType()), *SCHEMA])
    sent = pa.RecordBatch.from_pylist([{"gone": gone, "id": 1, "name": "a"} for gone in (True, None, False)])

    with pytest.raises(SchemaMismatchError, match="column 'gone'"):
        sink.plan(columns, keys=("id",), delete_when="GONE = true")
    plan = sink.plan(columns, keys=("id",), delete_when="GONE = true", schema_evolution="add-columns")

    assert plan.frame is not None
    assert plan.write.changes is not None
    assert plan.frame.column_names == ["gone"]
    asked = str(plan.write.changes.delete_when)
    mask = RowFilter(asked, plan.frame, case_sensitive=False).mask(conform(sent, file_shape(plan.frame)))
    assert mask.to_pylist() == [True, False, False]


def test_predicate_for_deletes_that_looks_at_no_column_has_one(sink: Sink) -> None:
    """A batch without columns has no rows: none would be deleted."""
    plan = sink.plan(keys=("id",), delete_when="true")

    assert plan.frame is not None
    assert plan.frame.column_names == ["id"]


def test_void_column_that_no_table_could_have_is_no_reason_to_refuse(sink: Sink) -> None:
    """A DataFrame with `lit(None)` could be appended, but not written by key."""
    sink.create(KEYED)
    columns = spark.StructType([SCHEMA["id"], spark.StructField("name", spark.NullType())])

    assert sink.plan(columns, keys=("id",)).write.changes is not None


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("id", "id"), "columns 'id' and 'id' have the same name"),
        (("id", "op", "OP"), "columns 'op' and 'OP' have the same name"),
        (("id", "a.b", "a"), "multiple fields for name a.b"),
    ],
)
def test_columns_of_one_name_are_refused(sink: Sink, names: tuple[str, ...], reason: str) -> None:
    """Tasks would find two columns where one is needed, and fail one by one."""
    sink.create(KEYED)
    nested = spark.StructType([spark.StructField("b", spark.LongType())])
    types = {"id": spark.LongType(), "a": nested}
    columns = spark.StructType([spark.StructField(name, types.get(name, spark.StringType())) for name in names])

    with pytest.raises(SchemaMismatchError, match=reason):
        sink.plan(columns, keys=("id",), operation_column="op", schema_evolution="add-columns")


def test_predicate_for_deletes_may_look_at_a_column_without_a_type(sink: Sink) -> None:
    """A feed that has no deletes today, with `lit(None)` in their column, would be refused."""
    sink.create(KEYED)
    columns = spark.StructType([SCHEMA["id"], spark.StructField("name", spark.NullType())])

    plan = sink.plan(columns, keys=("id",), delete_when="name IS NULL")
    assert plan.frame is not None
    sent = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.nulls(2)], names=["id", "name"])
    asked = RowFilter("name IS NULL", plan.frame, case_sensitive=False)

    assert asked.mask(conform(sent, file_shape(plan.frame))).to_pylist() == [True, True]


def test_stage_of_a_table_that_another_writer_makes_is_planned_for_that_one(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys would have the ids of a table that never came to be."""

    def lose(client: CatalogClient, *_: Any) -> None:
        del client
        sink.create(Schema(NestedField(7, "name", StringType()), *KEYED.fields[:1], identifier_field_ids=[1]))

    monkeypatch.setattr(CatalogClient, "stage_table", lose)
    plan = sink.plan(keys=("id",))

    assert plan.write.new_table is None
    assert plan.write.changes is not None
    assert plan.write.changes.key_ids == tuple(sink.table().schema().identifier_field_ids)


def test_what_a_write_by_keys_changes_is_foreseen_and_not_done(sink: Sink) -> None:
    """A check would pass where the write fails, or would change the table."""
    sink.create(REQUIRED, BY_NAME)
    metadata, location = sink.table().metadata, sink.table().metadata_location
    keyed = replace(sink.options, keys=("id",), evolve_keys=True)

    said = foresee(keyed, metadata, SCHEMA)

    assert said == (
        "the columns fit; rows are written by key (id), and they become the table's identifier fields, and it gets an "
        "unpartitioned spec for deletes"
    )
    assert sink.table().metadata_location == location
    with pytest.raises(OptionError, match="the table's identifier fields are none"):
        foresee(replace(keyed, evolve_keys=False), metadata, SCHEMA)
    with pytest.raises(OptionError, match="the table's identifier fields are none"):
        foresee(replace(keyed, evolve_keys=False), metadata, None)
    with pytest.raises(OptionError, match="sequence column 'lsn' is not in the DataFrame"):
        foresee(replace(keyed, sequence_by=("lsn",)), metadata, SCHEMA)


def test_new_table_by_keys_is_foreseen(sink: Sink) -> None:
    """A check would pass where the write fails."""
    keyed = replace(sink.options, keys=("id",), operation_column="op")

    assert foresee_creation(sink.options, SCHEMA) == "2 columns can be written"
    assert foresee_creation(keyed, FEED) == "3 columns can be written, by key (id)"
    with pytest.raises(OptionError, match="operation column 'op' is not in the DataFrame"):
        foresee_creation(keyed, SCHEMA)


def test_columns_that_become_json_are_looked_at_as_such(sink: Sink) -> None:
    """A check would refuse a new table that the write makes."""
    nothing = spark.StructType([spark.StructField("nothing", spark.NullType())])
    columns = spark.StructType([*SCHEMA, spark.StructField("document", nothing)])

    said = foresee_creation(replace(sink.options, nested_as_json=True), columns)

    assert said == "3 columns can be written"
    assert sink.plan(columns, nested_as_json=True).schema.column_names == ["id", "name", "document"]


def test_table_that_keys_fit_is_not_changed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch of a stream would make a commit of its own before its rows."""
    sink.create(KEYED, BY_ID)

    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(key_planning, "schema_request", refuse)
    monkeypatch.setattr(CatalogClient, "send", refuse)

    assert sink.plan(keys=("id",), is_stream=True).write.changes is not None


def test_deletes_that_all_named_readers_can_read_are_written(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A user would not learn what his readers will meet, or would be refused without need."""
    sink.create(KEYED, BY_ID)
    said = "delete-encoding=equality: equality deletes by partition, which spark, clickhouse can read"
    readers = ("spark", "clickhouse")

    with caplog.at_level(logging.INFO, logger=key_planning.__name__):
        assert sink.plan(keys=("id",), readers=readers).write.changes is not None
        assert sink.plan(keys=("id",)).write.changes is not None

    assert [record.message for record in caplog.records] == [f"Writing to db.t: {said}"]
    assert foresee(replace(sink.options, keys=("id",), readers=readers), sink.table().metadata, SCHEMA).endswith(said)


def test_deletes_that_a_named_reader_cannot_read_are_refused_with_the_way_out(sink: Sink) -> None:
    """A reader would return rows that were deleted, and nobody had said so."""
    sink.create(KEYED, BY_NAME)

    text = refusal(sink, readers=("clickhouse", "spark"))
    nowhere = refusal(sink, readers=("duckdb", "clickhouse", "spark"))

    assert "option 'readers' is clickhouse, spark, and equality deletes of the whole table cannot be read by" in text
    assert "by clickhouse: let all partition columns be keys, or give publish-converted=true, or write with" in text
    assert "iceberg_ds.upsert(df, table, ...)" in text
    with pytest.raises(OptionError, match="cannot be read by clickhouse"):
        foresee(replace(sink.options, keys=("id",), readers=("clickhouse",)), sink.table().metadata, None)
    assert "by duckdb, clickhouse: give publish-converted=true, or write with iceberg_ds.upsert(" in nowhere
    assert sink.plan(keys=("id",), readers=("spark",)).delete_spec == PartitionSpec(spec_id=1)


def test_readers_meet_position_deletes_where_these_are_published(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A write would be refused for the sake of readers that can read what they meet, or be told what is not so."""
    sink.create(KEYED, BY_NAME)
    options = {"keys": ("id",), "readers": ("duckdb", "clickhouse"), "publish_converted": True}

    with caplog.at_level(logging.INFO, logger=key_planning.__name__):
        plan = sink.plan(**options)

    assert plan.delete_spec == PartitionSpec(spec_id=1)
    (record,) = [found for found in caplog.records if found.name == key_planning.__name__]
    assert "delete-encoding=position" in record.message
    said = foresee(replace(sink.options, **options), sink.table().metadata, SCHEMA)  # type: ignore[arg-type]
    assert "readers get them with their deletes converted; delete-encoding=position" in said
    assert "readers get them" in foresee_creation(replace(sink.options, **options), SCHEMA)  # type: ignore[arg-type]
    assert "give publish-converted=true" in refusal(sink, readers=("duckdb",))


def test_publishing_is_refused_where_it_means_nothing(sink: Sink) -> None:
    """A user would believe that upserts need it."""
    with pytest.raises(OptionError, match="an upsert makes none: its readers meet none without it"):
        sink.plan(mode=WriteMode.UPSERT, keys=("id",), publish_converted=True)
    with pytest.raises(OptionError, match="'keys' is for appending"):
        sink.plan(mode=WriteMode.OVERWRITE, keys=("id",), publish_converted=True)
    with pytest.raises(OptionError, match="'staging-branch' is for batches, and for streams with 'publish-converted'"):
        sink.plan(keys=("id",), staging_branch="staging", is_stream=True)
    assert sink.plan(keys=("id",), staging_branch="s", publish_converted=True, is_stream=True).write.route.branch == "s"


def test_readers_of_a_new_table_are_looked_at_before_it_is_made(sink: Sink) -> None:
    """A table would be there that its readers cannot read once it has deletes."""
    terms = parse_partition_by("bucket(4, name)")
    options = replace(sink.options, keys=("id",), readers=("clickhouse",))

    assert "cannot be read by clickhouse" in refusal(sink, readers=("clickhouse",), partition_by=terms)
    with pytest.raises(OptionError, match="cannot be read by clickhouse"):
        foresee_creation(replace(options, partition_by=terms), SCHEMA)
    assert foresee_creation(options, SCHEMA) == (
        "2 columns can be written, by key (id); delete-encoding=equality: equality deletes by partition, which "
        "clickhouse can read"
    )
    assert sink.plan(keys=("id", "name"), readers=("clickhouse",), partition_by=terms).write.changes is not None


def test_deletes_are_of_the_whole_table_once_partitioning_has_changed_to_readers(sink: Sink) -> None:
    """A table that was partitioned once would be read with old rows."""
    sink.create(KEYED, BY_NAME)
    with sink.table().update_spec() as update:
        update.remove_field("name")

    assert "equality deletes of the whole table cannot be read by clickhouse" in refusal(sink, readers=("clickhouse",))


def test_partitioning_is_not_changed_for_readers_that_are_refused_then(sink: Sink) -> None:
    """A write that is refused would have changed how the table is partitioned."""
    sink.create(KEYED)
    terms = parse_partition_by("bucket(4, id)")

    text = refusal(sink, readers=("clickhouse",), partition_by=terms, evolve_partitioning=True)

    assert "equality deletes of the whole table cannot be read by clickhouse" in text
