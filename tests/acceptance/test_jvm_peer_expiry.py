"""An expiry beside that of Iceberg's own Spark runtime: the same snapshots go, and the same number of files."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import few
from support.peer.jvm_peer import CATALOG

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

OURS, THEIRS = "db.t", "db.u"
MODES = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
PROPERTIES = f"('format-version' = '2', {MODES})"
HISTORY = [
    "CREATE TABLE {} (id BIGINT, name STRING) USING iceberg PARTITIONED BY (name) TBLPROPERTIES " + PROPERTIES,
    "INSERT INTO {} VALUES (1, 'a'), (2, 'a'), (3, 'b')",
    "INSERT INTO {} VALUES (4, 'b'), (5, 'c')",
    "DELETE FROM {} WHERE id = 2",
    "INSERT OVERWRITE {} VALUES (1, 'a'), (2, 'a'), (3, 'b'), (5, 'c')",
    "DELETE FROM {} WHERE id = 1",
    "ALTER TABLE {} CREATE TAG first",
    "UPDATE {} SET id = 50 WHERE id = 5",
    "ALTER TABLE {} CREATE BRANCH own RETAIN 1 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS",
    "INSERT INTO {}.branch_own VALUES (70, 'z')",
    "INSERT INTO {}.branch_own VALUES (71, 'z')",
    "INSERT OVERWRITE {} VALUES (9, 'a')",
    "INSERT INTO {} VALUES (10, 'd')",
    "INSERT INTO {} VALUES (11, 'e')",
]


def numbers(shared: SharedCatalog, name: str) -> set[int]:
    """Return the sequence numbers of the snapshots that a table has."""
    snapshots = shared.sink().catalog.load_table(tuple(name.split("."))).metadata.snapshots
    return {snapshot.sequence_number or 0 for snapshot in snapshots}


def rows(shared: SharedCatalog, name: str, version: str = "main") -> list[Any]:
    """Return the rows of a branch or tag as the runtime reads them."""
    return shared.jvm.run(f"SELECT * FROM {name} VERSION AS OF '{version}' ORDER BY id").rows  # noqa: S608  # ours


@pytest.mark.parametrize("retain_last", few(1, [3, 1]))
def test_the_same_goes_as_with_the_procedure(shared: SharedCatalog, retain_last: int) -> None:
    """A table would lose what its properties keep in other engines, or keep files that these delete."""
    for name in (OURS, THEIRS):
        for statement in HISTORY:
            shared.jvm.run(statement.format(name))
    read = {version: rows(shared, THEIRS, version) for version in ("main", "own", "first")}
    now = datetime.now(timezone.utc)
    time = now.strftime("%Y-%m-%d %H:%M:%S.%f")

    (theirs,) = shared.jvm.run(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{THEIRS}', older_than => TIMESTAMP '{time}', "
        f"retain_last => {retain_last})"
    ).rows
    options = {"warehouse": str(shared.folder)}
    ours = iceberg_ds.expire_snapshots(OURS, now, retain_last, options=options)

    assert numbers(shared, OURS) == numbers(shared, THEIRS)
    assert ours.kept == ()
    assert [
        ours.deleted_data_files_count,
        ours.deleted_position_delete_files_count,
        ours.deleted_equality_delete_files_count,
        ours.deleted_manifest_files_count,
        ours.deleted_manifest_lists_count,
        ours.deleted_statistics_files_count,
    ] == list(theirs)
    assert ours.deleted_position_delete_files_count + ours.deleted_data_files_count > 0
    for version, expected in read.items():
        assert rows(shared, OURS, version) == expected
    shared.jvm.run(f"INSERT INTO {OURS} VALUES (12, 'f')")  # noqa: S608  # ours
    assert len(rows(shared, OURS)) == 4
    assert iceberg_ds.verify(OURS, options=options, older_than="0s").ok
