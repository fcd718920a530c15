"""What the sink's options do to a table is what Iceberg's own Spark runtime does, and it can go on from there."""

from __future__ import annotations

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog, exact
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer import Row
from support.tables.event_rows import EVENT, EVENT_COLUMNS, make_events, struct

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

NEW_TABLES = {
    "partition-by": {"partition_by": "day(ts), bucket(16, id), truncate(4, s), region"},
    "partition-by-hour": {"partition_by": "hour(naive), month(day)"},
    "sort-by": {"sort_by": "region desc nulls last, ts, bucket(4, id)"},
    "both": {"partition_by": "region", "sort_by": "s nulls last, id desc"},
    "version-1": {"format_version": "1", "partition_by": "year(ts)"},
    "properties": {"table_property.write.object-storage.enabled": "true", "partition_by": "region"},
}


@pytest.mark.parametrize("options", few(1, NEW_TABLES.values()), ids=NEW_TABLES.keys())
def test_new_table_of_the_sink(shared: SharedCatalog, options: dict[str, str]) -> None:
    """A table that the sink makes would not be one that other engines can fill."""
    ours, theirs = make_events(0), make_events(0)
    theirs = [{**row, "id": row["id"] + 1000} for row in theirs]

    shared.append(ours, EVENT, **options)
    shared.append_by_jvm(theirs, EVENT)
    shared.append(make_events(12), EVENT, **options)

    shared.check_rows([*ours, *theirs, *make_events(12)])
    shared.check_filters([*ours, *theirs, *make_events(12)], EVENT)


@EXHAUSTIVE
def test_columns_of_a_new_table_are_as_the_jvm_makes_them(shared: SharedCatalog) -> None:
    """A table that the sink makes would refuse nulls that one of `CREATE TABLE AS SELECT` takes."""
    query = "SELECT id, struct(id AS x) AS s, array(struct(id AS x)) AS l, map('k', struct(id AS x)) AS m FROM range(1)"
    shared.jvm.run("CREATE NAMESPACE db")
    shared.jvm.run(f"CREATE TABLE db.t USING iceberg AS {query}")
    theirs = shared.table().schema()
    shared.jvm.run("DROP TABLE db.t")
    inner = spark.StructType([spark.StructField("x", spark.LongType(), nullable=False)])
    types = {
        "id": spark.LongType(),
        "s": inner,
        "l": spark.ArrayType(inner, containsNull=False),
        "m": spark.MapType(spark.StringType(), inner, valueContainsNull=False),
    }
    never_null = spark.StructType([spark.StructField(name, kind, nullable=False) for name, kind in types.items()])

    shared.append([{"id": 0, "s": {"x": 0}, "l": [{"x": 0}], "m": [("k", {"x": 0})]}], never_null)

    ours = shared.table().schema()
    assert set(ours.column_names) == set(theirs.column_names)
    for name in ours.column_names:
        assert (name, ours.find_field(name).required) == (name, theirs.find_field(name).required)
    shared.jvm.run("INSERT INTO db.t VALUES (null, struct(null), array(null), map('k', null))")
    assert len(shared.jvm.sql("SELECT * FROM db.t")) == 2


def test_sort_order_of_the_sink_is_recorded(shared: SharedCatalog) -> None:
    """The peer would sort the rows again that it compacts, or sort them otherwise."""
    shared.append(make_events(0), EVENT, sort_by="region desc nulls last, bucket(4, id)")

    (ddl,) = shared.jvm.values("SHOW CREATE TABLE db.t")

    assert "sort-order' = 'region DESC NULLS LAST, bucket(4, id) ASC NULLS FIRST'" in ddl
    assert {file["sort_order_id"] for file in shared.metadata("files")} == {1}


def test_partition_by_makes_the_spec_that_the_jvm_makes(shared: SharedCatalog) -> None:
    """Names of partitions would differ between tables of one warehouse, and so their folders."""
    shared.append([], EVENT, partition_by="days(ts), bucket(16, id), truncate(4, s), region")
    ours = shared.table().spec()
    shared.jvm.run("DROP TABLE db.t")
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (days(ts), bucket(16, id), truncate(4, s), region)")

    theirs = shared.table().spec()

    assert [(field.name, str(field.transform)) for field in ours.fields] == [
        (field.name, str(field.transform)) for field in theirs.fields
    ]


@EXHAUSTIVE
def test_branch_that_the_sink_makes(shared: SharedCatalog) -> None:
    """Rows that were to be checked first would be read by everybody, or by nobody."""
    shared.append(make_events(0), EVENT)

    shared.append(make_events(12), EVENT, branch="audit", create_branch="true")
    shared.jvm.append("db.t.branch_audit", make_events(24), EVENT)
    shared.append(make_events(36), EVENT, staging_branch="staging")

    shared.check_rows([*make_events(0), *make_events(36)])
    shared.check_branch("audit", [*make_events(0), *make_events(12), *make_events(24)])
    shared.jvm.run("CALL system.fast_forward('db.t', 'staging', 'main')")


def test_branch_that_the_jvm_makes(shared: SharedCatalog) -> None:
    """A branch of another engine could not be written."""
    shared.append(make_events(0), EVENT)
    shared.alter("CREATE BRANCH audit")

    shared.append(make_events(12), EVENT, branch="audit")
    new = [{**row, "region": "EU"} for row in make_events(24)]
    shared.overwrite(new, EVENT, branch="audit", replace_where="region = 'EU'")

    old = [row for row in [*make_events(0), *make_events(12)] if row["region"] != "EU"]
    shared.check_rows(make_events(0))
    shared.check_branch("audit", [*old, *new])


@EXHAUSTIVE
def test_columns_that_the_sink_adds(shared: SharedCatalog) -> None:
    """Other engines would not see new columns, or lose the old ones."""
    shared.create_by_jvm("id BIGINT, number INT, place STRUCT<x: INT>", "PARTITIONED BY (bucket(4, number))")
    old_schema = struct(id=spark.LongType(), number=spark.IntegerType(), place=struct(x=spark.IntegerType()))
    new_schema = struct(
        id=spark.LongType(),
        number=spark.LongType(),
        place=struct(x=spark.LongType(), y=spark.StringType()),
        extra=spark.ArrayType(struct(z=spark.DoubleType())),
    )
    old: list[Row] = [{"id": 0, "number": 7, "place": {"x": 1}}, {"id": 1, "number": None, "place": None}]
    new: list[Row] = [{"id": 2, "number": 2**40, "place": {"x": 2**40, "y": "new"}, "extra": [{"z": -0.0}]}]
    shared.append_by_jvm(old, old_schema)

    shared.append(new, new_schema, schema_evolution="full")
    shared.append_by_jvm([{**row, "id": 3} for row in new], new_schema)

    filled = [{**row, "place": row["place"] and {**row["place"], "y": None}, "extra": None} for row in old]
    expected = [*filled, *new, *({**row, "id": 3} for row in new)]
    assert exact(shared.rows_of_jvm()) == exact(expected)
    shared.check_filters(expected, new_schema)


@pytest.mark.exhaustive
def test_partitioning_that_the_sink_changes(shared: SharedCatalog) -> None:
    """Other engines would look for rows in partitions where they are not."""
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (region)")
    rows = [*make_events(0), *make_events(12)]
    shared.append_by_jvm(make_events(0), EVENT)
    shared.append(make_events(12), EVENT)

    shared.append(make_events(24), EVENT, partition_by="days(ts), bucket(4, id)", evolve_partitioning="true")
    shared.append_by_jvm(make_events(36), EVENT)

    shared.check_rows([*rows, *make_events(24), *make_events(36)])
    shared.check_filters([*rows, *make_events(24), *make_events(36)], EVENT)


@EXHAUSTIVE
def test_columns_and_fields_that_a_dataframe_lacks(shared: SharedCatalog) -> None:
    """A job that wrote to a table with more columns than it has would have to name them all."""
    shared.create_by_jvm("id BIGINT, name STRING, place STRUCT<x: INT, y: STRING>", "PARTITIONED BY (name)")
    shared.append_by_jvm([{"id": 20}], struct(id=spark.LongType()))
    shared.alter("SET TBLPROPERTIES ('write.spark.accept-any-schema'='true')")
    lacking = struct(id=spark.LongType(), name=spark.StringType(), place=struct(x=spark.IntegerType()))
    rows: list[Row] = [{"id": 1, "name": None, "place": {"x": 1}}, {"id": 2, "name": None, "place": None}]
    shared.jvm.view("lacking", rows, lacking)
    shared.jvm.run("INSERT INTO db.t SELECT * FROM lacking")

    shared.append([{**row, "id": row["id"] + 10} for row in rows], lacking)
    shared.append([{"id": 21}], struct(id=spark.LongType()))

    nested = [
        {**row, "id": row["id"] + more, "place": row["place"] and {**row["place"], "y": None}}
        for row in rows
        for more in (0, 10)
    ]
    shared.check_rows([*nested, *({"id": number, "name": None, "place": None} for number in (20, 21))])
    assert len({str(file["partition"]) for file in shared.metadata("files")}) == 1


@pytest.mark.exhaustive
def test_names_of_partition_fields_are_those_that_the_jvm_gives(shared: SharedCatalog) -> None:
    """Queries of metadata tables that name partition fields would differ between engines."""
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (region)")
    shared.alter(
        "ADD PARTITION FIELD bucket(4, id) AS shard",
        "REPLACE PARTITION FIELD region WITH region AS land",
        "ADD PARTITION FIELD truncate(4, s)",
    )
    theirs = shared.table().spec()
    shared.jvm.run("DROP TABLE db.t")
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (region)")
    shared.append_by_jvm(make_events(0), EVENT)

    named = "region as land, bucket(4, id) as shard, truncate(4, s)"
    shared.append(make_events(12), EVENT, partition_by=named, evolve_partitioning="true")
    shared.append_by_jvm(make_events(24), EVENT)

    assert shared.table().spec().fields == theirs.fields
    shared.check_rows([*make_events(0), *make_events(12), *make_events(24)])
    shared.check_filters([*make_events(0), *make_events(12), *make_events(24)], EVENT)
    assert len(shared.jvm.values("SELECT DISTINCT partition.shard FROM db.t.files")) > 1


@EXHAUSTIVE
@pytest.mark.parametrize("version", few(1, ["1", "2"]))
def test_partitioning_that_the_sink_removes(shared: SharedCatalog, version: str) -> None:
    """Other engines would look for new rows in partitions where they are not."""
    shared.append(make_events(0), EVENT, partition_by="region, day(ts) as moment", format_version=version)
    shared.append_by_jvm(make_events(12), EVENT)

    shared.append(make_events(24), EVENT, partition_by="", evolve_partitioning="true")
    shared.append_by_jvm(make_events(36), EVENT)

    rows = [row for first in (0, 12, 24, 36) for row in make_events(first)]
    shared.check_rows(rows)
    shared.check_filters(rows, EVENT)
    shared.overwrite([], EVENT, replace_where="region = 'EU'")
    shared.check_rows([row for row in rows if row["region"] != "EU"])


def test_name_in_backticks_is_the_same_table_for_both(shared: SharedCatalog) -> None:
    """Each would write into a table of its own, in a namespace that nobody asked for."""
    name = "`db`.`my.``table`"
    shared.jvm.run("CREATE NAMESPACE IF NOT EXISTS db")
    shared.jvm.run(f"CREATE TABLE {name} (id BIGINT) USING iceberg")

    shared.append([{"id": 1}], struct(id=spark.LongType()), table=name)
    shared.jvm.append(name, [{"id": 2}], struct(id=spark.LongType()))
    shared.append([{"id": 3}], struct(id=spark.LongType()), table=name)

    assert sorted(shared.jvm.values(f"SELECT id FROM {name}")) == [1, 2, 3]  # noqa: S608  # no outside input
    assert shared.jvm.values("SHOW NAMESPACES") == ["db"]
