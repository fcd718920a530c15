"""Rows that the sink replaces are replaced for Iceberg's own Spark runtime, too, and no others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog, exact
from support.exhaustive import EXHAUSTIVE, each_value, few
from support.peer.jvm_peer import Row
from support.tables.event_rows import EVENT, EVENT_COLUMNS, make_events, struct

from iceberg_ds.errors import CommitConflictError
from iceberg_ds.planning.plan_write import WriteMode, plan_write

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

TABLES = {
    "unpartitioned": "",
    "region": "PARTITIONED BY (region)",
    "four-fields": "PARTITIONED BY (days(ts), bucket(16, id), truncate(4, s), region)",
    "version-1": "PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '1')",
}
NEW_ROWS = [{**row, "region": "EU", "s": "new"} for row in make_events(100, 5)]


def fill_in_turn(shared: SharedCatalog) -> list[Row]:
    """Fill the table with files of both, among them one manifest and file for all rows of the peer."""
    first, second = make_events(0), make_events(12)
    shared.append_by_jvm(first, EVENT)
    shared.append(second, EVENT)
    return [*first, *second]


@pytest.mark.parametrize("rest", few(1, TABLES.values()), ids=TABLES.keys())
def test_overwrite_of_all_rows(shared: SharedCatalog, rest: str) -> None:
    """Rows that were replaced would still be there for other engines."""
    shared.create_by_jvm(EVENT_COLUMNS, rest)
    fill_in_turn(shared)

    shared.overwrite(NEW_ROWS, EVENT)
    shared.append_by_jvm(make_events(200), EVENT)

    shared.check_rows([*NEW_ROWS, *make_events(200)])


PREDICATES: dict[str, Callable[[Row], bool]] = {
    "region = 'EU'": lambda row: row["region"] == "EU",
    "region = 'EU' AND id >= 5": lambda row: row["region"] == "EU" and row["id"] >= 5,
    "s = 'new' OR region = 'EU'": lambda row: row["s"] == "new" or row["region"] == "EU",
    "id >= 100 OR ts < '1970-01-01T00:00:00+00:00'": lambda row: (
        row["id"] >= 100 or (row["ts"] is not None and row["ts"].year < 1970)
    ),
}


@pytest.mark.parametrize(("rest", "predicate"), few(1, product(TABLES.values(), PREDICATES)))
def test_overwrite_of_a_range(shared: SharedCatalog, rest: str, predicate: str) -> None:
    """Rows outside of the range would be lost or changed, or rows inside of it be left."""
    shared.create_by_jvm(EVENT_COLUMNS, rest)
    rows = fill_in_turn(shared)

    shared.overwrite(NEW_ROWS, EVENT, replace_where=predicate)
    shared.append_by_jvm(make_events(200), EVENT)

    kept = [row for row in rows if not PREDICATES[predicate](row)]
    shared.check_rows([*kept, *NEW_ROWS, *make_events(200)])


@pytest.mark.parametrize("spec", few(1, ["region", "bucket(4, id)", "days(ts), truncate(2, s)", "years(day), region"]))
def test_dynamic_overwrite_does_what_the_jvm_does(shared: SharedCatalog, spec: str) -> None:
    """The same job would replace other partitions than with Iceberg's own runtime."""
    new = make_events(6, 9)
    shared.create_by_jvm(EVENT_COLUMNS, f"PARTITIONED BY ({spec})")
    fill_in_turn(shared)
    shared.jvm.run("SET spark.sql.sources.partitionOverwriteMode = dynamic")
    shared.jvm.view("new", new, EVENT)
    shared.jvm.run("INSERT OVERWRITE db.t SELECT * FROM new")
    expected = exact(shared.rows_of_jvm())
    shared.jvm.run("DROP TABLE db.t")
    shared.create_by_jvm(EVENT_COLUMNS, f"PARTITIONED BY ({spec})")
    fill_in_turn(shared)

    shared.overwrite(new, EVENT, overwrite_mode="dynamic")

    assert exact(shared.rows_of_jvm()) == expected
    assert exact(shared.rows()) == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("predicate", few(1, PREDICATES))
def test_overwrite_of_a_range_beside_deletes(shared: SharedCatalog, predicate: str) -> None:
    """Rows that the peer has deleted would return when their file is written again."""
    shared.create_by_jvm(
        EVENT_COLUMNS,
        "PARTITIONED BY (region) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', "
        "'write.delete.granularity' = 'partition')",
    )
    rows = fill_in_turn(shared)
    shared.jvm.run("DELETE FROM db.t WHERE id % 3 = 1")

    shared.overwrite(NEW_ROWS, EVENT, replace_where=predicate)

    kept = [row for row in rows if not PREDICATES[predicate](row) and row["id"] % 3 != 1]
    shared.check_rows([*kept, *NEW_ROWS])


@EXHAUSTIVE
def test_overwrite_after_the_partitioning_has_changed(shared: SharedCatalog) -> None:
    """Files of a former partitioning would be left, or be lost with rows that are to stay."""
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (region)")
    rows = fill_in_turn(shared)
    shared.alter("DROP PARTITION FIELD region", "ADD PARTITION FIELD days(ts)")
    shared.append(make_events(24), EVENT)
    shared.append_by_jvm(make_events(36), EVENT)
    rows += [*make_events(24), *make_events(36)]

    shared.overwrite(NEW_ROWS, EVENT, replace_where="region = 'EU'")

    shared.check_rows([*(row for row in rows if row["region"] != "EU"), *NEW_ROWS])


@EXHAUSTIVE
@pytest.mark.parametrize("predicate", few(1, ["region = 'EU'", "region = 'EU' AND id >= 5"]))
def test_overwrite_after_the_format_version_was_raised(shared: SharedCatalog, predicate: str) -> None:
    """A table that was made years ago would be broken, or keep the rows that were to be replaced."""
    shared.create_by_jvm(EVENT_COLUMNS, TABLES["version-1"])
    rows = fill_in_turn(shared)
    shared.alter("SET TBLPROPERTIES ('format-version' = '2')")

    shared.overwrite(NEW_ROWS, EVENT, replace_where=predicate)
    check_manifest_headers(shared)
    shared.append_by_jvm(make_events(200), EVENT)
    shared.jvm.run("DELETE FROM db.t WHERE id = 1")

    kept = [row for row in rows if not PREDICATES[predicate](row) and row["id"] != 1]
    shared.check_rows([*kept, *NEW_ROWS, *make_events(200)])
    shared.check_filters([*kept, *NEW_ROWS, *make_events(200)], EVENT)


def check_manifest_headers(shared: SharedCatalog) -> None:
    """Assert that every manifest says itself what the manifest list says that it lists."""
    table = shared.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        with AvroFile[ManifestEntry](table.io.new_input(manifest.manifest_path)) as file:
            said = file.header.meta.get("content", "data")
        assert said == ManifestContent(manifest.content).name.lower(), manifest.manifest_path


@EXHAUSTIVE
@pytest.mark.parametrize(("version", "isolation"), each_value([1, 2], ["serializable", "snapshot"]))
def test_overwrite_of_a_range_that_the_jvm_changes_meanwhile(
    shared: SharedCatalog, isolation: str, version: int
) -> None:
    """A row that was to be replaced would live on where the peer has moved it."""
    shared.create_by_jvm(EVENT_COLUMNS, f"PARTITIONED BY (region) TBLPROPERTIES ('format-version' = '{version}')")
    fill_in_turn(shared)
    sink = shared.sink(replace_where="region = 'EU'", isolation_level=isolation)
    plan = plan_write(sink.catalog, sink.options, EVENT, WriteMode.OVERWRITE)
    messages = sink.write(NEW_ROWS, schema=EVENT, plan=plan)
    shared.jvm.run("UPDATE db.t SET region = 'US' WHERE region = 'EU'")
    changed = shared.rows_of_jvm()

    with pytest.raises(CommitConflictError, match="nothing was committed"):
        sink.commit(messages)

    shared.check_rows(changed)


@pytest.mark.parametrize("predicate", few(1, ["true", *PREDICATES]))
def test_overwrite_is_seen_by_those_who_follow_changes(shared: SharedCatalog, predicate: str) -> None:
    """Jobs that read what has changed between two snapshots would miss rows that were replaced."""
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (region)")
    rows = fill_in_turn(shared)
    before = shared.table().metadata.current_snapshot_id

    shared.overwrite(NEW_ROWS, EVENT, replace_where=predicate)

    shared.call(
        "create_changelog_view", f"options => map('start-snapshot-id', '{before}'), changelog_view => 'changes'"
    )
    changes = {(row["_change_type"], row["id"]) for row in shared.jvm.sql("SELECT _change_type, id FROM changes")}
    replaced = [row for row in rows if predicate == "true" or PREDICATES[predicate](row)]
    assert changes == {("DELETE", row["id"]) for row in replaced} | {("INSERT", row["id"]) for row in NEW_ROWS}


NESTED = struct(
    id=spark.LongType(),
    many=spark.ArrayType(struct(x=spark.IntegerType())),
    named=spark.MapType(spark.StringType(), struct(x=spark.IntegerType())),
    numbers=spark.ArrayType(spark.IntegerType()),
    place=struct(x=spark.IntegerType(), y=struct(z=spark.StringType())),
)


def test_overwrite_of_a_range_keeps_nested_values(shared: SharedCatalog) -> None:
    """Rows that are only written again, because they share a file with replaced ones, would change."""
    rows: list[Row] = [
        {"id": 0, "many": None, "named": None, "numbers": None, "place": None},
        {"id": 1, "many": [], "named": [], "numbers": [], "place": {"x": None, "y": None}},
        {"id": 2, "many": [None], "named": [("k", None)], "numbers": [None], "place": {"x": 1, "y": {"z": None}}},
        {"id": 3, "many": [{"x": None}], "named": [("k", {"x": 1})], "numbers": [1], "place": {"x": 1, "y": None}},
        {"id": 4, "many": None, "named": None, "numbers": None, "place": None},
    ]
    columns = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in NESTED)
    shared.create_by_jvm(columns)
    shared.append_by_jvm(rows, NESTED)

    shared.overwrite(rows[-1:], NESTED, replace_where="id = 4")

    assert exact(shared.rows_of_jvm()) == exact(rows)
