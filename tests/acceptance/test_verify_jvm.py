"""Tables that Iceberg's own Spark runtime writes are verified as its readers see them."""

from __future__ import annotations

import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.tables.damage import Listing
from support.tables.sink import NAME, local

import iceberg_ds
from iceberg_ds.inspect.verify import VerifyResult

MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"


def verified(shared: SharedCatalog) -> VerifyResult:
    """Verify the table with all that can be checked."""
    options = {"warehouse": str(shared.folder)}
    return iceberg_ds.verify(NAME, options=options, deep=True, all_snapshots=True, older_than="0s")


def change(shared: SharedCatalog, version: int) -> None:
    """Let the runtime write, delete, update, evolve, branch, compact and tag a table."""
    columns = (
        "id BIGINT, name STRING, x DOUBLE, d DECIMAL(20, 3), day DATE, ts TIMESTAMP, nested STRUCT<a: INT, b: STRING>"
    )
    shared.create_by_jvm(
        columns,
        f"PARTITIONED BY (bucket(2, id)) TBLPROPERTIES ('format-version'='{version}', {MERGE_ON_READ})",
    )
    for first in (0, 100):
        shared.jvm.run(
            f"INSERT INTO {NAME} SELECT id, concat('a name that is too long for a bound ', id), "  # noqa: S608  # no outside input
            "if(id % 7 = 0, double('NaN'), id / 3), id / 3, date_add(date'1969-12-01', cast(id AS INT)), "
            "timestamp_micros(id * 1000003), if(id % 5 = 0, null, named_struct('a', cast(id AS INT), 'b', null)) "
            f"FROM range({first}, {first + 100})"
        )
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id % 10 = 3")  # noqa: S608
    shared.jvm.run(f"ALTER TABLE {NAME} ADD PARTITION FIELD truncate(5, name)")
    shared.jvm.run(f"ALTER TABLE {NAME} ADD COLUMN more INT")
    shared.jvm.run(f"UPDATE {NAME} SET more = 1 WHERE id < 20")  # noqa: S608
    shared.jvm.run(f"ALTER TABLE {NAME} CREATE BRANCH audit")
    shared.jvm.run(f"DELETE FROM {NAME}.branch_audit WHERE id % 10 = 4")  # noqa: S608
    shared.jvm.run(f"ALTER TABLE {NAME} CREATE TAG kept")


@pytest.mark.parametrize("version", few(1, [2, 3]))
def test_table_of_the_jvm_runtime_with_row_level_deletes_is_whole(shared: SharedCatalog, version: int) -> None:
    """A sound table would be called broken, and the command be of no use beside other writers."""
    change(shared, version)

    result = verified(shared)

    assert result.ok, str(result)
    assert result.orphans == ()


@EXHAUSTIVE
def test_table_that_the_jvm_runtime_has_compacted_and_expired_is_whole(shared: SharedCatalog) -> None:
    """Maintenance would make a table look broken."""
    change(shared, 2)
    shared.jvm.run(f"CALL default.system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true'))")
    shared.jvm.run(f"CALL default.system.rewrite_manifests('{NAME}')")
    shared.jvm.run(
        f"CALL default.system.expire_snapshots(table => '{NAME}', older_than => current_timestamp(), retain_last => 1)"
    )

    result = verified(shared)

    assert result.ok, str(result)


@EXHAUSTIVE
def test_table_of_version_3_that_both_have_changed_is_whole(shared: SharedCatalog) -> None:
    """Vectors and row ids of a sound table would be called broken."""
    change(shared, 2)
    shared.alter("SET TBLPROPERTIES ('format-version' = '3')")
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id % 10 = 5")  # noqa: S608  # no outside input
    shared.jvm.run(f"DELETE FROM {NAME}.branch_audit WHERE id % 10 = 6")  # noqa: S608
    shared.jvm.run(f"UPDATE {NAME} SET more = 2 WHERE id < 30")  # noqa: S608
    assert verified(shared).ok, str(verified(shared))
    options = {"warehouse": str(shared.folder)}
    iceberg_ds.rewrite_manifests(NAME, options=options)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 41")  # noqa: S608
    shared.jvm.run(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    shared.jvm.run(f"UPDATE {NAME} SET more = 3 WHERE id = 50")  # noqa: S608
    assert verified(shared).ok, str(verified(shared))
    shared.jvm.run(
        f"CALL default.system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true', "
        "'remove-dangling-deletes', 'true'))"
    )
    shared.jvm.run(f"CALL default.system.rewrite_manifests('{NAME}')")
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 61")  # noqa: S608

    result = verified(shared)

    assert result.ok, str(result)
    checks = {check.name: check.outcome for check in result.checks}
    assert [checks[name] for name in ("deletion vectors", "dangling deletion vectors", "row ids")] == ["ok"] * 3
    assert checks["rows of deletion vectors"] == "ok"


@EXHAUSTIVE
def test_delete_file_of_the_jvm_runtime_that_is_missing_is_found(shared: SharedCatalog) -> None:
    """Deleted rows would come back unseen."""
    change(shared, 3)
    listing = Listing.of(shared.sink())
    deletes = next(used for used in listing.manifests if used.content.name == "DELETES")
    (path, *_) = (entry.data_file.file_path for entry in deletes.fetch_manifest_entry(listing.table.io))
    local(path.replace("file:/", "file:///") if not path.startswith("file:///") else path).unlink()

    result = verified(shared)

    assert [check.name for check in result.failures] == ["data files"]
    assert f"delete file {path} is missing" in result.failures[0].detail
