"""Iceberg's own Spark runtime on manifests that tasks of the sink wrote, and on those that the sink has merged.

Both come to be in other ways than an appended file's usual manifest: one is written before the commit knows what it
commits to, the other copies entries of snapshots that are long over.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer import Row
from support.tables.event_rows import EVENT, EVENT_COLUMNS, make_events, struct
from support.tables.sink import epoch, local

from iceberg_ds.snapshots import manifest_merge
from iceberg_ds.writers import reporting

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

MANY = "PARTITIONED BY (region, bucket(16, id))"
MERGED = "'commit.manifest-merge.enabled' = 'true', 'commit.manifest.min-count-to-merge' = '4'"
BY_REGION = f"PARTITIONED BY (region) TBLPROPERTIES ({MERGED})"
# What does not depend on who wrote the manifest, nor on how its Avro file came out.
OF_MANIFESTS = (
    "content, partition_spec_id, partition_summaries, added_data_files_count, existing_data_files_count, "
    "deleted_data_files_count, added_delete_files_count, existing_delete_files_count, deleted_delete_files_count"
)
OF_ENTRIES = "status, sequence_number, file_sequence_number, data_file.partition, data_file.record_count"
OF_FILES = (
    "content, file_format, spec_id, partition, record_count, value_counts, null_value_counts, nan_value_counts, "
    "lower_bounds, upper_bounds, sort_order_id"
)
NUMBERS = "data_file.file_path, snapshot_id, sequence_number, file_sequence_number"
EXISTING, ADDED = 0, 1


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """Let each test begin as a process does that has committed nothing."""
    manifest_merge._process = manifest_merge._Process()
    yield
    settle()


def settle() -> None:
    """Wait until everything that was begun beside commits is done."""
    concurrent.futures.wait([prepared.future for prepared in manifest_merge._process.prepared.values()])


def append_many(shared: SharedCatalog, *parts: Sequence[Row], table: str = "db.t") -> list[str]:
    """Append rows, each part in a task of so many partitions that it writes a manifest; return the manifests."""
    sink = shared.sink(table=table)
    messages = sink.write(*parts, schema=EVENT)
    sink.commit(messages)
    return [manifest.path for message in messages for manifest in message.manifests]


def stream(shared: SharedCatalog, rows: Sequence[Row], first: int) -> None:
    """Commit rows as micro-batches of four, and wait after each for the merge that goes on beside it."""
    sink = shared.sink()
    for number in range(0, len(rows), 4):
        sink.commit(sink.write(rows[number : number + 4], schema=EVENT, of_epoch=epoch(first + number // 4)))
        settle()


def of_table(shared: SharedCatalog, table: str, part: str, columns: str, order: str) -> list[Row]:
    """Return rows of a metadata table of the peer."""
    return shared.jvm.sql(f"SELECT {columns} FROM {table}.{part} ORDER BY {order}")  # noqa: S608  # no outside input


def merged_paths(shared: SharedCatalog) -> list[str]:
    """Return the merged manifests that the newest snapshot lists."""
    return [row["path"] for row in shared.metadata("manifests", "path") if "-merged-" in row["path"]]


def numbers(shared: SharedCatalog) -> dict[str, Row]:
    """Return the snapshot and the sequence numbers of each live file, as the peer reads them."""
    return {
        row.pop("file_path"): row for row in shared.metadata("entries", f"status, {NUMBERS}") if row.pop("status") < 2
    }


def ids_since(shared: SharedCatalog, start: int, end: int) -> list[int]:
    """Return the ids that the peer's incremental read finds from one snapshot, exclusive, to another."""
    options = f"`start-snapshot-id` = '{start}', `end-snapshot-id` = '{end}'"
    found: list[int] = shared.jvm.values(f"SELECT id FROM db.t WITH ({options}) ORDER BY id")  # noqa: S608
    return found


@EXHAUSTIVE
@pytest.mark.parametrize("version", few(1, [1, 2]))
def test_manifest_of_a_task_is_that_of_a_plain_append(
    shared: SharedCatalog, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines would skip files that they must read, or count others than there are, once a task wrote many files."""
    rows = make_events(0, 200)
    made = f"({EVENT_COLUMNS}) USING iceberg {MANY} TBLPROPERTIES ('format-version' = '{version}')"
    shared.jvm.run("CREATE NAMESPACE IF NOT EXISTS db")
    for table in ("db.t", "db.plain", "db.theirs"):
        shared.jvm.run(f"CREATE TABLE {table} {made}")

    assert len(append_many(shared, rows)) == 1
    monkeypatch.setattr(reporting, "MANY_FILES", 10_000)
    assert append_many(shared, rows, table="db.plain") == []
    shared.jvm.append("db.theirs", rows, EVENT)

    shared.check_rows(rows)
    assert len(shared.metadata("files")) >= 64
    (ours,), (plain,), (theirs,) = (
        of_table(shared, table, "manifests", OF_MANIFESTS, "path") for table in ("db.t", "db.plain", "db.theirs")
    )
    assert ours == plain == theirs
    by_partition = "data_file.partition"
    entries, plainly, by_them = (
        of_table(shared, table, "entries", OF_ENTRIES, by_partition) for table in ("db.t", "db.plain", "db.theirs")
    )
    assert entries == plainly == by_them
    assert of_table(shared, "db.t", "files", OF_FILES, "partition") == of_table(
        shared, "db.plain", "files", OF_FILES, "partition"
    )
    (snapshot,) = shared.metadata("snapshots", "snapshot_id")
    assert {row["snapshot_id"] for row in shared.metadata("entries", "snapshot_id")} == {snapshot["snapshot_id"]}


@EXHAUSTIVE
def test_peer_skips_manifests_of_tasks_by_their_partitions(shared: SharedCatalog, tmp_path: Path) -> None:
    """Every query on a partition would open the manifest of every task, or miss rows of it."""
    shared.create_by_jvm(EVENT_COLUMNS, "PARTITIONED BY (region, truncate(1, id))")
    regions = ("EU", "FR"), ("US", "ZA")
    parts = [
        [{**row, "region": pair[row["id"] % 2]} for row in make_events(80 * number, 80)]
        for number, pair in enumerate(regions)
    ]
    manifests = append_many(shared, *parts)
    shared.check_rows([*parts[0], *parts[1]])
    shared.check_filters([*parts[0], *parts[1]], struct(id=spark.LongType(), region=spark.StringType()))

    for pair, rows, gone in zip(regions, parts, reversed(manifests), strict=True):
        hidden = local(gone).rename(tmp_path / "hidden.avro")
        for place, region in enumerate(pair):
            found = shared.jvm.values(f"SELECT id FROM db.t WHERE region = '{region}' ORDER BY id")  # noqa: S608
            assert found == [row["id"] for row in rows if row["id"] % 2 == place], region
        hidden.rename(local(gone))


@pytest.mark.exhaustive
def test_peer_reads_merged_manifests_as_it_reads_those_they_stand_for(shared: SharedCatalog) -> None:
    """After a merge, deletes would apply to other rows, incremental readers see rows again, or queries miss some."""
    shared.create_by_jvm(EVENT_COLUMNS, BY_REGION)
    rows = make_events(0, 20)
    stream(shared, rows[:16], 0)
    assert merged_paths(shared) == []
    before = numbers(shared)

    stream(shared, rows[16:], 4)

    (merged,) = merged_paths(shared)
    after = numbers(shared)
    assert {path: after[path] for path in before} == before
    snapshots = shared.metadata("snapshots", "snapshot_id, operation", order="committed_at")
    assert [snapshot["operation"] for snapshot in snapshots] == ["append"] * 5
    newest = [found for path, found in after.items() if path not in before]
    assert {(found["snapshot_id"], found["sequence_number"]) for found in newest} == {(snapshots[4]["snapshot_id"], 5)}
    statuses = {row["file_path"]: row["status"] for row in shared.metadata("entries", "status, data_file.file_path")}
    assert statuses == {path: EXISTING if path in before else ADDED for path in after}
    counted = {row["path"]: row for row in shared.metadata("manifests", f"path, added_snapshot_id, {OF_MANIFESTS}")}
    assert len(counted) == 2
    assert counted[merged]["existing_data_files_count"] == len(before)
    assert counted[merged]["added_data_files_count"] == counted[merged]["deleted_data_files_count"] == 0
    assert counted[merged]["added_snapshot_id"] == snapshots[4]["snapshot_id"]
    shared.check_rows(rows)
    shared.check_filters(rows, struct(id=spark.LongType(), region=spark.StringType()))

    (told,) = counted[merged]["partition_summaries"]
    regions = [row["region"] for row in rows[:16]]
    assert told["contains_null"] is (None in regions)
    assert (told["lower_bound"], told["upper_bound"]) == (
        min(region for region in regions if region is not None),
        max(region for region in regions if region is not None),
    )


@EXHAUSTIVE
def test_peer_reads_incrementally_across_a_merge(shared: SharedCatalog) -> None:
    """Rows of an old snapshot would come a second time for whoever reads a table's changes, or be left out."""
    shared.create_by_jvm(EVENT_COLUMNS, BY_REGION)
    rows = make_events(0, 24)
    stream(shared, rows, 0)
    assert merged_paths(shared)
    snapshots = [row["snapshot_id"] for row in shared.metadata("snapshots", "snapshot_id", order="committed_at")]

    for start in range(5):
        for end in range(start + 1, 6):
            found = ids_since(shared, snapshots[start], snapshots[end])
            assert found == list(range(4 * (start + 1), 4 * (end + 1))), (start, end)


@pytest.mark.exhaustive
def test_both_append_and_merge_in_turn(shared: SharedCatalog) -> None:
    """A table that both of them merge would lose rows, or the order of its changes."""
    shared.create_by_jvm(EVENT_COLUMNS, BY_REGION)
    rows = make_events(0, 48)
    stream(shared, rows[:20], 0)
    assert merged_paths(shared)
    known = numbers(shared)
    shared.append_by_jvm(rows[20:24], EVENT)
    known |= numbers(shared)
    stream(shared, rows[24:32], 5)
    known |= numbers(shared)

    shared.call("rewrite_manifests")  # the runtime's merge
    assert merged_paths(shared) == []
    assert numbers(shared) == known
    stream(shared, rows[32:48], 7)
    shared.check_rows(rows)

    found = numbers(shared)
    assert {path: found[path] for path in known} == known
    sequence = [row["sequence_number"] for row in found.values()]
    assert max(sequence) == shared.table().metadata.last_sequence_number


@pytest.mark.exhaustive
def test_merge_keeps_the_deletes_of_the_peer(shared: SharedCatalog) -> None:
    """Deleted rows would come back with a merge, or rows that were added later be deleted."""
    modes = ", ".join(f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge"))
    shared.create_by_jvm(EVENT_COLUMNS, f"PARTITIONED BY (region) TBLPROPERTIES ({MERGED}, {modes})")
    rows = make_events(0, 36)
    stream(shared, rows[:12], 0)
    shared.jvm.run("DELETE FROM db.t WHERE id IN (1, 2, 9)")
    left = [row for row in rows if row["id"] not in (1, 2, 9)]

    stream(shared, rows[12:36], 3)

    assert merged_paths(shared)
    shared.check_rows(left)


COMPACTIONS = {
    "data-files": [("rewrite_data_files", "options => map('rewrite-all', 'true')")],
    "manifests": [("rewrite_manifests", "")],
    "all": [
        ("rewrite_data_files", "options => map('rewrite-all', 'true')"),
        ("rewrite_manifests", ""),
        ("expire_snapshots", "older_than => now(), retain_last => 1"),
        ("remove_orphan_files", ""),
    ],
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("procedures", COMPACTIONS.values(), ids=COMPACTIONS.keys())
def test_peer_compacts_what_tasks_and_merges_wrote(shared: SharedCatalog, procedures: list[tuple[str, str]]) -> None:
    """Maintenance would fail for good, or delete rows, once a manifest is not one that a commit wrote."""
    shared.create_by_jvm(EVENT_COLUMNS, f"{MANY} TBLPROPERTIES ({MERGED})")
    rows = make_events(0, 524)
    for first in (0, 250):
        assert len(append_many(shared, rows[first : first + 125], rows[first + 125 : first + 250])) == 2
    stream(shared, rows[500:520], 0)
    assert len(merged_paths(shared)) == 2  # of the tasks' manifests, and of those of the stream

    for procedure, arguments in procedures:
        shared.call(procedure, arguments)
    shared.check_rows(rows[:520])
    stream(shared, rows[520:], 5)

    shared.check_rows(rows)
