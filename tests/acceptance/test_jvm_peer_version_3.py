"""Tables of format version 3 in the hands of two: rows, row ids and deletion vectors, by the sink and the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer import PeerError, Row
from support.spark.session import shared_session
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME

import iceberg_ds
from iceberg_ds.errors import OptionError

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

SCHEMA = spark.StructType().add("id", "long").add("part", "integer").add("name", "string")
MERGE_ON_READ = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
COLUMNS = ["id", "_row_id", "_last_updated_sequence_number"]
Lineage = dict[int, tuple[int | None, int | None]]


def some(first: int, last: int, name: str = "new") -> list[Row]:
    """Return rows with these ids, in three partitions."""
    return [{"id": number, "part": number % 3, "name": name} for number in range(first, last)]


def lineage(shared: SharedCatalog) -> Lineage:
    """Return row id and last updated sequence number of each row, as the runtime and we read them, by the row's id."""
    found = by_runtime(shared)
    assert by_python(shared) == found
    return found


def by_runtime(shared: SharedCatalog, snapshot_id: int | None = None) -> Lineage:
    """Return what the runtime reads, of the head of `main` or of a snapshot."""
    of = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
    read = shared.jvm.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM {NAME}{of}")  # noqa: S608
    return {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in read}


def by_python(shared: SharedCatalog, snapshot_id: int | None = None) -> Lineage:
    """Return what Python tasks read; they need no Spark."""
    of = {} if snapshot_id is None else {"snapshot_id": snapshot_id}
    read = read_by_tasks(shared.sink(), columns=", ".join(COLUMNS), **of)
    return {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in read}


def by_spark(shared: SharedCatalog, snapshot_id: int | None = None) -> Lineage:
    """Return what Spark's Parquet reader reads."""
    read = iceberg_ds.read(
        shared_session("local[2]"),
        "db.t",
        options={"warehouse": str(shared.folder)},
        columns=COLUMNS,
        snapshot_id=snapshot_id,
        reader="spark",
    )
    return {number: (row_id, updated) for number, row_id, updated in read.collect()}


def check(shared: SharedCatalog, rows: Sequence[Row], before: Mapping[int, Any] | None = None) -> Lineage:
    """Assert that the runtime reads these rows, each with an id of its own, and that rows of `before` keep theirs."""
    read = shared.jvm.sql(f"SELECT * FROM {NAME} ORDER BY id")  # noqa: S608
    assert read == sorted(rows, key=lambda row: int(row["id"]))
    found = lineage(shared)
    ids = [row_id for row_id, _ in found.values()]
    assert None not in ids
    assert len(set(ids)) == len(ids) == len(rows)
    metadata = shared.table().metadata
    assert metadata.format_version == 3
    assert max((row_id for row_id in ids if row_id is not None), default=-1) < (metadata.next_row_id or 0)
    kept = {number: found[number] for number in before or {} if number in found}
    assert kept == {number: was for number, was in (before or {}).items() if number in kept}
    return found


@pytest.mark.parametrize("layout", few(1, ["part", ""]))
def test_rows_that_are_appended_get_ids_of_their_own(shared: SharedCatalog, layout: str) -> None:
    """Readers of changes would take one row for another, or the runtime could not go on from our snapshots."""
    options = {"format_version": "3", **({"partition_by": layout} if layout else {})}
    shared.append(some(0, 10), SCHEMA, **options)
    first = check(shared, some(0, 10))
    shared.append(some(10, 17), SCHEMA)
    second = check(shared, some(0, 17), first)
    shared.append_by_jvm(some(20, 25), SCHEMA)
    third = check(shared, [*some(0, 17), *some(20, 25)], second)
    shared.append(some(30, 33), SCHEMA)

    found = check(shared, [*some(0, 17), *some(20, 25), *some(30, 33)], third)

    assert {number for _, number in found.values()} == {1, 2, 3, 4}


@EXHAUSTIVE
def test_table_that_was_upgraded_goes_on(shared: SharedCatalog) -> None:
    """Rows from before the upgrade would have no ids, or two of them one, and deletes of version 2 would be lost."""
    shared.create_by_jvm("id BIGINT, part INT, name STRING", f"TBLPROPERTIES ('format-version' = '2', {MERGE_ON_READ})")
    shared.append_by_jvm(some(0, 10), SCHEMA)
    shared.append(some(10, 20), SCHEMA)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 3")  # noqa: S608
    shared.alter("SET TBLPROPERTIES ('format-version' = '3')")
    shared.append(some(20, 25), SCHEMA)
    rows = [row for row in some(0, 25) if row["id"] != 3]
    found = check(shared, rows)

    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 12")  # noqa: S608
    shared.append(some(30, 32), SCHEMA)

    check(shared, [*(row for row in rows if row["id"] != 12), *some(30, 32)], found)


@EXHAUSTIVE
def test_rows_without_ids_are_read_as_such(shared: SharedCatalog) -> None:
    """Rows from before the upgrade would have ids that they do not keep, or that are those of other rows."""
    shared.create_by_jvm("id BIGINT, part INT, name STRING", "TBLPROPERTIES ('format-version' = '2')")
    shared.append(some(0, 6), SCHEMA)
    shared.append(some(6, 10), SCHEMA)
    snapshot = shared.table().metadata.current_snapshot_id
    none: Lineage = dict.fromkeys(range(10), (None, None))
    with pytest.raises(PeerError, match="name `_row_id` cannot be resolved"):
        by_runtime(shared)
    with pytest.raises(OptionError, match="no column '_row_id': it is of format version 2"):
        by_python(shared)
    shared.alter("SET TBLPROPERTIES ('format-version' = '3')")
    assert lineage(shared) == by_spark(shared) == none

    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    found = check(shared, some(0, 10))
    assert by_spark(shared) == found
    shared.append(some(10, 12), SCHEMA)

    found = check(shared, some(0, 12), found)
    assert by_spark(shared) == found
    assert by_python(shared, snapshot) == by_spark(shared, snapshot) == by_runtime(shared, snapshot) == none


@pytest.mark.exhaustive
def test_overwrites_take_deletion_vectors_with_their_files(shared: SharedCatalog) -> None:
    """A vector without its file would be left for ever, or rows that the runtime had deleted would come back."""
    rest = f"PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})"
    shared.create_by_jvm("id BIGINT, part INT, name STRING", rest)
    shared.append(some(0, 12), SCHEMA)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id IN (1, 2)")  # noqa: S608
    before = check(shared, [row for row in some(0, 12) if row["id"] not in {1, 2}])
    again = [row for row in some(12, 18, "again") if row["part"] == 1]
    shared.overwrite(again, SCHEMA, overwrite_mode="dynamic")

    rows = [row for row in some(0, 12) if row["part"] != 1 and row["id"] != 2] + again
    check(shared, rows, before)
    vectors = shared.jvm.sql(f"SELECT referenced_data_file FROM {NAME}.delete_files")  # noqa: S608
    data_files = {row["file_path"] for row in shared.metadata("data_files", "file_path")}
    assert [row["referenced_data_file"] in data_files for row in vectors] == [True]

    shared.overwrite(some(50, 53), SCHEMA)
    check(shared, some(50, 53))
    assert not shared.metadata("delete_files", "file_path")


@EXHAUSTIVE
def test_rows_that_an_overwrite_writes_again_stay_the_same_rows(shared: SharedCatalog) -> None:
    """Readers of changes would take each row beside the replaced ones for a new one."""
    shared.append(some(0, 10), SCHEMA, format_version="3")
    shared.append(some(10, 20), SCHEMA)
    before = check(shared, some(0, 20))
    new = [{"id": 5, "part": 7, "name": "five"}]
    shared.overwrite(new, SCHEMA, replace_where="id = 5")
    after = check(
        shared,
        [*(row for row in some(0, 20) if row["id"] != 5), *new],
        {number: was for number, was in before.items() if number != 5},
    )
    assert after[5] not in before.values()

    # Once more: the rows have their ids in columns by now.
    shared.overwrite([{**new[0], "id": 6}], SCHEMA, replace_where="id = 6")
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    rows = [*(row for row in some(0, 20) if row["id"] not in {5, 6}), *new, {**new[0], "id": 6}]
    found = check(shared, rows, {number: was for number, was in after.items() if number != 6})
    shared.append(some(30, 33), SCHEMA)
    check(shared, [*rows, *some(30, 33)], found)


@EXHAUSTIVE
def test_rows_by_key_hide_each_other(shared: SharedCatalog) -> None:
    """A row that another task of the same write supersedes would be read, beside the one that wins."""
    first = [{"id": number % 7, "part": number, "name": f"n{number}"} for number in range(20)]
    shared.append(first, SCHEMA, format_version="3", keys="id", sequence_by="part")
    won = {row["id"]: row for row in first}
    check(shared, [*won.values()])
    second = [{"id": number % 9, "part": 100 + number, "name": f"m{number}"} for number in range(15)]
    shared.append(second, SCHEMA, keys="id", sequence_by="part")
    won |= {row["id"]: row for row in second}
    found = check(shared, [*won.values()])
    files = shared.metadata("delete_files", "content, file_format, file_path")
    assert {row["file_format"] for row in files if row["content"] == 1} == {"PUFFIN"}
    assert {row["content"] for row in files} == {1, 2}

    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 8")  # noqa: S608
    del won[8]
    found = check(shared, [*won.values()], found)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    check(shared, [*won.values()], found)


def test_branches_number_their_rows_apart(shared: SharedCatalog) -> None:
    """Two branches would give one id to two rows, which a fast-forward brings into one table."""
    shared.append(some(0, 5), SCHEMA, format_version="3")
    shared.append(some(5, 8), SCHEMA, branch="audit", create_branch="true")
    shared.append(some(8, 10), SCHEMA, branch="audit")
    before = check(shared, some(0, 5))
    shared.jvm.run(f"CALL system.fast_forward('{NAME}', 'main', 'audit')")

    after = check(shared, some(0, 10), before)
    shared.append(some(10, 12), SCHEMA, branch="audit")
    shared.append(some(12, 14), SCHEMA)

    check(shared, [*some(0, 10), *some(12, 14)], after)
    snapshots = shared.table().metadata.snapshots
    numbers = [snapshot.sequence_number for snapshot in snapshots]
    assert numbers == sorted(set(numbers), key=lambda number: number or 0)


@EXHAUSTIVE
def test_merged_manifests_keep_the_ids(shared: SharedCatalog) -> None:
    """Rows would get other ids when the manifests that list their files are merged or written again."""
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}
    told = ", ".join(f"'{name}' = '{value}'" for name, value in merging.items())
    shared.create_by_jvm("id BIGINT, part INT, name STRING", f"TBLPROPERTIES ('format-version' = '2', {told})")
    shared.append(some(0, 2), SCHEMA)
    shared.append(some(2, 4), SCHEMA)
    shared.alter("SET TBLPROPERTIES ('format-version' = '3')")
    found: Lineage = {}
    for number in range(2, 9):
        shared.append(some(2 * number, 2 * number + 2), SCHEMA)
        found = check(shared, some(0, 2 * number + 2), found)
    shared.call("rewrite_manifests")
    found = check(shared, some(0, 18), found)
    shared.append(some(18, 20), SCHEMA)

    check(shared, some(0, 20), found)


@pytest.mark.parametrize("mode", few(1, ["merge-on-read", "copy-on-write"]))
def test_rows_are_changed_in_turn(shared: SharedCatalog, mode: Any) -> None:
    """The runtime could not read what we changed, or go on from it, or a row that stays would get another id."""
    told = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
    shared.create_by_jvm("id BIGINT, part INT, name STRING", f"TBLPROPERTIES ('format-version' = '3', {told})")
    shared.append(some(0, 12), SCHEMA)
    shared.append_by_jvm(some(12, 24), SCHEMA)
    rows = {row["id"]: row for row in some(0, 24)}
    found = check(shared, [*rows.values()])
    how: dict[str, Any] = {"options": {"warehouse": str(shared.folder)}, "mode": mode}

    def changed(*ids: int) -> None:
        nonlocal found
        found = check(shared, [*rows.values()], {number: was for number, was in found.items() if number not in ids})
        formats = {row["file_format"] for row in shared.metadata("delete_files", "file_format", "file_path")}
        assert formats <= {"PUFFIN"}

    spark_session = shared_session("local[2]")
    iceberg_ds.delete_from("db.t", "id IN (1, 13)", spark_session, **how)
    del rows[1], rows[13]
    changed()
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id IN (2, 14)")  # noqa: S608
    del rows[2], rows[14]
    changed()
    iceberg_ds.update("db.t", {"name": "'ours'"}, "id IN (3, 15)", spark_session, **how)
    rows |= {number: {**rows[number], "name": "ours"} for number in (3, 15)}
    changed(3, 15)
    source = spark_session.createDataFrame(
        [(number, 9, "merged") for number in (4, 30)], "id long, part int, name string"
    )
    iceberg_ds.merge(
        spark_session,
        source,
        "db.t",
        on=["id"],
        when_matched=[iceberg_ds.Update()],
        when_not_matched=[iceberg_ds.Insert()],
        **how,
    )
    rows |= {number: {"id": number, "part": 9, "name": "merged"} for number in (4, 30)}
    changed(4)
    iceberg_ds.upsert(
        spark_session.createDataFrame([(5, 9, "up"), (31, 9, "up")], "id long, part int, name string"),
        "db.t",
        keys="id",
        options={
            **how["options"],
            "delete-encoding": "auto" if mode == "merge-on-read" else "copy-on-write",
        },
    )
    rows |= {number: {"id": number, "part": 9, "name": "up"} for number in (5, 31)}
    changed(5)
    shared.jvm.run(f"UPDATE {NAME} SET name = 'theirs' WHERE id IN (5, 6)")  # noqa: S608
    rows |= {number: {**rows[number], "name": "theirs"} for number in (5, 6)}
    changed(5, 6)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    changed()
    assert by_spark(shared) == found
    iceberg_ds.delete_from("db.t", "id = 6", spark_session, **how)
    del rows[6]
    changed()
    assert by_spark(shared) == found


@pytest.mark.exhaustive
@pytest.mark.parametrize(("sorted_by", "layout"), few(1, [("name, id DESC", "PARTITIONED BY (part)"), (None, "")]))
def test_compaction_keeps_rows_and_their_ids(shared: SharedCatalog, sorted_by: str | None, layout: str) -> None:
    """Rows would become other rows, deleted ones come back, or vectors stay of files that are gone."""
    rest = f"{layout} TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})"
    shared.create_by_jvm("id BIGINT, part INT, name STRING", rest)
    for number in range(4):
        shared.append(some(10 * number, 10 * number + 10, f"n{number}"), SCHEMA)
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id IN (5, 17)")  # noqa: S608
    shared.jvm.run(f"UPDATE {NAME} SET name = 'new' WHERE id = 25")  # noqa: S608
    rows = [row for number in range(4) for row in some(10 * number, 10 * number + 10, f"n{number}")]
    rows = [{**row, "name": "new"} if row["id"] == 25 else row for row in rows if row["id"] not in {5, 17}]
    before = check(shared, rows)
    how: dict[str, Any] = {"strategy": "sort", "sort_order": sorted_by} if sorted_by else {}
    options = {"warehouse": str(shared.folder), "rewrite-all": "true"}

    result = iceberg_ds.rewrite_data_files("db.t", spark=shared_session("local[2]"), options=options, **how)

    assert result.rewritten_data_files_count >= 4
    check(shared, rows, before)
    assert not shared.metadata("delete_files", "file_path")
    iceberg_ds.rewrite_manifests("db.t", options={"warehouse": str(shared.folder)})
    found = check(shared, rows, before)
    assert by_spark(shared) == found
    shared.append(some(50, 53), SCHEMA)
    found = check(shared, [*rows, *some(50, 53)], found)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    check(shared, [*rows, *some(50, 53)], found)
