"""Changes that Iceberg's own Spark runtime makes and shows in its changelog view, read as it shows them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.spark.session import shared_session
from support.tables.sink import NAME

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

COLUMNS = "_change_type", "_change_ordinal", "_commit_snapshot_id"


@pytest.fixture
def spark() -> SparkSession:
    """Return this process's own Spark, which knows nothing of the runtime."""
    return shared_session("local[2]")


@EXHAUSTIVE
def test_changes_are_those_of_the_jvm(shared: SharedCatalog, spark: SparkSession) -> None:
    """A job that moves over from the runtime would get other changes."""
    shared.create_by_jvm("id BIGINT, name STRING, ratio DOUBLE", "PARTITIONED BY (truncate(2, name))")
    run = shared.jvm.run
    run(f"INSERT INTO {NAME} SELECT /*+ COALESCE(1) */ id, concat('n ', id % 3), id / 2 FROM range(12)")  # noqa: S608
    start = shared.table().metadata.current_snapshot_id
    run(f"UPDATE {NAME} SET ratio = -1.0D WHERE id = 5")  # noqa: S608
    run(f"DELETE FROM {NAME} WHERE id IN (1, 2)")  # noqa: S608
    run(f"CALL system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true'))")
    run(f"INSERT INTO {NAME} VALUES (1, 'n 9', double('NaN'))")  # noqa: S608
    run(f"UPDATE {NAME} SET ratio = 7.0D WHERE id = 5")  # noqa: S608
    theirs = f"options => map('start-snapshot-id', '{start}'), changelog_view => 'changes'"
    options = {"warehouse": str(shared.folder)}
    for more, arguments in (
        ("", {}),
        (", identifier_columns => array('id')", {"keys": ["id"]}),
        (", net_changes => true", {"net": True}),
    ):
        shared.call("create_changelog_view", theirs + more)
        wanted = shared.jvm.sql(f"SELECT id, name, ratio, {', '.join(COLUMNS)} FROM changes")  # noqa: S608

        frame = iceberg_ds.read_changes(spark, NAME, start=start, options=options, **arguments)  # type: ignore[arg-type]
        found = [row.asDict() for row in frame.drop("_commit_timestamp").collect()]

        assert sorted(map(str, found)) == sorted(map(str, wanted)), more
        shared.jvm.run("DROP VIEW changes")


@EXHAUSTIVE
@pytest.mark.parametrize("version", ["2", "3"])
def test_changes_of_merge_on_read(shared: SharedCatalog, spark: SparkSession, version: str) -> None:
    """Changes by position deletes and deletion vectors, which the runtime does not show, would be missing."""
    modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
    shared.create_by_jvm("id BIGINT, name STRING", f"TBLPROPERTIES ('format-version' = '{version}', {modes})")
    run = shared.jvm.run
    run(f"INSERT INTO {NAME} SELECT /*+ COALESCE(1) */ id, concat('n ', id) FROM range(10)")  # noqa: S608
    start = shared.table().metadata.current_snapshot_id
    run(f"DELETE FROM {NAME} WHERE id = 3")  # noqa: S608
    run(f"UPDATE {NAME} SET name = 'changed' WHERE id = 5")  # noqa: S608
    run(f"DELETE FROM {NAME} WHERE id IN (5, 6)")  # noqa: S608
    for reader in ("spark", "python"):
        frame = iceberg_ds.read_changes(
            spark,
            NAME,
            start=start,
            keys=["id"],
            options={"warehouse": str(shared.folder)},
            reader=reader,  # type: ignore[arg-type]
        )

        found = sorted((row["_change_ordinal"], row["id"], row["_change_type"], row["name"]) for row in frame.collect())
        assert found == [
            (0, 3, "DELETE", "n 3"),
            (1, 5, "UPDATE_AFTER", "changed"),
            (1, 5, "UPDATE_BEFORE", "n 5"),
            (2, 5, "DELETE", "changed"),
            (2, 6, "DELETE", "n 6"),
        ]
