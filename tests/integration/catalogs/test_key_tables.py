"""Tables of writes by keys on real catalogs: identifier fields, and a spec for deletes, as the plan says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.table.metadata import TableMetadataUtil
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.catalogs.catalog_table import CatalogTable
from support.exhaustive import EXHAUSTIVE
from support.services.fixtures import WITH_ONE
from support.tables.sink import Sink, epoch

from iceberg_ds.commit.create_table import create_without_rows
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.plan import WritePlan
from iceberg_ds.table.specs import parse_partition_by

COLUMNS = StructType(
    [StructField("name", StringType()), StructField("region", StringType()), StructField("id", LongType())]
)


def planned(sink: Sink, *keys: str) -> WritePlan:
    """Plan a write by key into a table that is partitioned by `region`, and create the table if the commit would."""
    options = {"keys": keys, "partition_by": parse_partition_by("region")}
    sink = replace(sink, options=replace(sink.options, **options))  # type: ignore[arg-type]  # each has its type
    plan = sink.plan(COLUMNS)
    if plan.write.new_table is not None:
        create_without_rows(sink.catalog, sink.options.table, TableMetadataUtil.parse_raw(plan.write.new_table))
    return plan


@WITH_ONE
@EXHAUSTIVE
def test_table_is_created_with_its_keys_and_a_spec_for_deletes(table: CatalogTable) -> None:
    """Deletes would miss rows that move to another partition, and engines would not know the keys of the table."""
    plan = planned(table.sink(0), "id")
    again = planned(table.sink(1), "id")
    metadata = table.table().metadata

    assert metadata.schema().find_field("id").required
    assert metadata.schema().identifier_field_ids == [metadata.schema().find_field("id").field_id]
    assert plan.schema == again.schema == metadata.schema()
    assert plan.spec == again.spec == metadata.spec()
    assert [field.name for field in metadata.spec().fields] == ["region"]
    assert plan.delete_spec == again.delete_spec
    assert plan.delete_spec is not None
    assert [spec for spec in metadata.partition_specs if spec.is_unpartitioned()] == [plan.delete_spec]
    assert again.write.changes == plan.write.changes
    assert len(metadata.partition_specs) == 2


@pytest.mark.exhaustive
def test_keys_of_a_table_that_another_engine_made_become_those_of_the_write(table: CatalogTable) -> None:
    """A table that was made in SQL, which has no words for keys that all catalogs keep, could not be written by key."""
    namespace = table.name.partition(".")[0]
    table.peer.run(f"CREATE NAMESPACE {namespace}")
    columns = "name STRING, region STRING NOT NULL, id BIGINT NOT NULL"
    table.peer.run(f"CREATE TABLE {table.name} ({columns}) USING iceberg PARTITIONED BY (region)")
    table.peer.run(f"INSERT INTO {table.name} VALUES ('theirs', 'EU', 1)")  # noqa: S608  # no outside input
    sink = table.sink(0)
    sink = replace(sink, options=replace(sink.options, evolve_keys=True))
    plan, again = planned(sink, "id"), planned(sink, "id")
    table.peer.run(f"INSERT INTO {table.name} VALUES ('theirs', 'US', 2)")  # noqa: S608  # no outside input
    metadata = table.table().metadata

    assert metadata.schema().identifier_field_names() == {"id"}
    assert plan.delete_spec == again.delete_spec == metadata.specs()[1]
    assert [field.name for field in metadata.spec().fields] == ["region"]
    assert [(row["name"], row["region"], row["id"]) for row in table.rows()] == [
        ("theirs", "EU", 1),
        ("theirs", "US", 2),
    ]


@EXHAUSTIVE
@WITH_ONE
def test_epochs_are_published_converted(table: CatalogTable) -> None:
    """A catalog that cannot drop a branch with the request that publishes it would stop every stream."""
    sink = table.sink(0)
    sink = replace(sink, options=replace(sink.options, keys=("id",), publish_converted=True))
    if not sink.catalog.holds_branches:
        with pytest.raises(UnsupportedTableError, match="Nessie holds no branches"):
            sink.plan(COLUMNS)
        return

    for number, ids in enumerate([(1, 2, 3), (2, 4), (2, 4)]):
        rows = [{"id": key, "name": f"epoch {min(number, 1)}", "region": "EU"} for key in ids]
        written = sink.write(rows, schema=COLUMNS, plan=sink.plan(COLUMNS), of_epoch=epoch(min(number, 1)))
        assert sink.commit(written).was_replayed == (number == 2)

    assert [(row["id"], row["name"]) for row in table.rows()] == [
        (1, "epoch 0"),
        (2, "epoch 1"),
        (3, "epoch 0"),
        (4, "epoch 1"),
    ]
    assert table.rows_of_peer() == table.rows()
    assert set(table.table().metadata.refs) == {"main"}
    assert not [key for key in table.table().metadata.properties if "__unconverted" in key]
