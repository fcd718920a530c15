"""Rewrites of manifests and position deletes beside Iceberg's own Spark runtime: the same rows, the same figures."""

from __future__ import annotations

from typing import Any

import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.peer.jvm_peer import CATALOG
from support.tables.rewrites import manifests_of, rewrite_manifests, rewrite_position_deletes
from support.tables.sink import NAME

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

COPY = "db.u"
PROPERTIES = ", ".join(
    (
        *(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge")),
        "'format-version' = '2'",
        "'write.delete.granularity' = 'partition'",
        "'commit.manifest-merge.enabled' = 'false'",
    )
)


def make(shared: SharedCatalog, table: str) -> None:
    """Create a table of two parts that the runtime writes and deletes rows of, in many commits."""
    shared.jvm.run("CREATE NAMESPACE IF NOT EXISTS db")
    shared.jvm.run(
        f"CREATE TABLE {table} (id BIGINT, name STRING, part STRING) USING iceberg PARTITIONED BY (part) "
        f"TBLPROPERTIES ({PROPERTIES})"
    )
    for first in (0, 100, 200):
        rows = ", ".join(f"({first + key}, 'n{key}', 'p{key % 2}')" for key in range(20))
        shared.jvm.run(f"INSERT INTO {table} VALUES {rows}")  # noqa: S608  # no outside input
    for key in range(6):
        shared.jvm.run(f"DELETE FROM {table} WHERE id % 100 = {key} OR id % 100 = {key + 7}")  # noqa: S608


def rows(shared: SharedCatalog, table: str = NAME) -> list[list[Any]]:
    """Return the rows as the runtime reads them."""
    return shared.jvm.run(f"SELECT * FROM {table} ORDER BY id").rows  # noqa: S608


def call(shared: SharedCatalog, procedure: str, arguments: str = "") -> dict[str, Any]:
    """Call a procedure of the runtime for the copy, and return its figures."""
    answer = shared.jvm.run(f"CALL {CATALOG}.system.{procedure}(table => '{COPY}'{arguments})")
    return dict(zip(answer.columns, answer.rows[0], strict=True))


def check(shared: SharedCatalog, before: list[list[Any]]) -> None:
    """Assert that the runtime, PyIceberg and the sink find the same rows in a whole table."""
    assert rows(shared) == before
    found = shared.sink().table().scan().to_arrow().to_pylist()
    assert sorted(row["id"] for row in found) == [row[0] for row in before]
    result = iceberg_ds.verify(NAME, options={"warehouse": str(shared.folder)}, deep=True)
    assert result.ok, str(result)


@EXHAUSTIVE
def test_figures_and_rows_are_those_of_the_runtime(shared: SharedCatalog) -> None:
    """A user who comes from the runtime would read other figures, or other rows."""
    make(shared, NAME)
    make(shared, COPY)
    before = rows(shared)

    manifests = rewrite_manifests(shared.sink())
    theirs = call(shared, "rewrite_manifests", ", use_caching => false")

    assert manifests.rewritten_manifests_count == theirs["rewritten_manifests_count"]
    assert manifests.added_manifests_count == theirs["added_manifests_count"]
    assert len(manifests_of(shared.sink().table())) == 2
    check(shared, before)

    deletes = rewrite_position_deletes(shared.sink())
    theirs = call(shared, "rewrite_position_delete_files")

    assert deletes.rewritten_delete_files_count == theirs["rewritten_delete_files_count"] > 5
    assert deletes.added_delete_files_count == theirs["added_delete_files_count"] == 2
    assert abs(deletes.rewritten_bytes_count - theirs["rewritten_bytes_count"]) < 0.1 * theirs["rewritten_bytes_count"]
    check(shared, before)


@EXHAUSTIVE
def test_runtime_goes_on_after_rewrites(shared: SharedCatalog) -> None:
    """The runtime would refuse to compact or delete, or bring rows back, after a rewrite of ours."""
    make(shared, NAME)
    rewrite_position_deletes(shared.sink())
    rewrite_manifests(shared.sink())

    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 219")  # noqa: S608
    before = rows(shared)
    rewrite_position_deletes(shared.sink(), rewrite_all="true")
    check(shared, before)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    dangling = rewrite_position_deletes(shared.sink())
    check(shared, before)
    shared.call("rewrite_manifests")

    assert dangling.added_delete_files_count == 0
    check(shared, before)
