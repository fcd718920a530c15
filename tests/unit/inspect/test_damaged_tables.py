"""Each check of `verify` finds the one damage that it is there for, and the others pass."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from pyspark.sql.types import DoubleType, StringType, StructField, StructType
from pyspark.sql.types import LongType as SparkLong
from support.tables.damage import (
    Json,
    Listing,
    changed,
    edit_entries,
    edit_list,
    edit_metadata,
    edit_summary,
    leave_out_last_manifest,
)
from support.tables.delete_files import delete_positions, entries
from support.tables.sink import NAME, QUERY, Sink, epoch, local, rows

import iceberg_ds
from iceberg_ds.inspect import verify as verifying
from iceberg_ds.inspect.verify import VerifyResult
from iceberg_ds.snapshots.txn import EPOCHS

NUMBERS = StructType(
    [StructField("id", SparkLong()), StructField("name", StringType()), StructField("x", DoubleType())]
)


def verified(sink: Sink, **arguments: Any) -> VerifyResult:
    """Verify the table through its catalog, as a user does."""
    return iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, **arguments)


def failures(sink: Sink, **arguments: Any) -> dict[str, str]:
    """Return what fails, and why."""
    return {check.name: check.detail for check in verified(sink, **arguments).failures}


def write_epochs(sink: Sink, count: int = 3) -> None:
    """Write so many epochs of one query."""
    for number in range(count):
        sink.append(number, of_epoch=epoch(number))


def test_table_of_branches_overwrites_and_evolution_is_whole(sink: Sink) -> None:
    """A user could not tell a sound table from a broken one, and would not look any more."""
    write_epochs(sink)
    sink.commit(sink.write(rows(7), plan=sink.plan(branch="audit", create_branch=True), of_epoch=epoch(3)))
    sink.overwrite(rows(1, 2), rows(3))
    sink.commit(
        sink.write(
            [{"id": 9, "name": None, "x": math.nan}],
            plan=sink.plan(NUMBERS, schema_evolution="add-columns"),
            schema=NUMBERS,
        )
    )
    path = entries(sink)[0].data_file.file_path
    delete_positions(sink, path, [0])

    result = verified(sink, deep=True, all_snapshots=True, older_than="0s")

    assert result.ok, str(result)
    assert result.orphans == ()
    assert {check.name for check in result.checks if check.outcome == "skipped"} == {"statistics files"}


def test_missing_table_is_said_to_be_missing(sink: Sink) -> None:
    """A misspelled name would look like a sound table."""
    assert list(failures(sink)) == ["table"]
    assert "does not exist" in failures(sink)["table"]


def lost_ref(document: Json) -> None:
    """Let a branch point at a snapshot that never was."""
    document["refs"]["audit"] = {"type": "branch", "snapshot-id": 5}


def log_of_another(document: Json) -> None:
    """Let the log end before the current snapshot."""
    document["snapshot-log"].pop()


def backward_log(document: Json) -> None:
    """Let the log go back in time."""
    document["snapshot-log"][0]["timestamp-ms"] += 10**9


def backward_metadata_log(document: Json) -> None:
    """Let the log of metadata files go back in time."""
    document["metadata-log"][0]["timestamp-ms"] += 10**9


def backward_update(document: Json) -> None:
    """Let the last update be before the last snapshot."""
    document["last-updated-ms"] -= 10**9


def number_above_last(document: Json) -> None:
    """Let snapshots have numbers above the table's last."""
    document["last-sequence-number"] = 1


def circle(document: Json) -> None:
    """Let the first snapshot follow the last."""
    first, *_, last = document["snapshots"]
    first["parent-snapshot-id"] = last["snapshot-id"]


def unknown_schema(document: Json) -> None:
    """Let a snapshot have a schema that is not there."""
    document["snapshots"][0]["schema-id"] = 17


def unknown_source(document: Json) -> None:
    """Add a spec of a column that is not there, by which rows are to be written."""
    document["default-spec-id"] = 9
    document["partition-specs"].append(
        {"spec-id": 9, "fields": [{"source-id": 99, "field-id": 1000, "transform": "identity", "name": "gone"}]}
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lost_ref, "branch 'audit' points at snapshot 5, which is not there"),
        (log_of_another, "the snapshot log ends with snapshot"),
        (backward_log, "the snapshot log goes back in time"),
        (backward_metadata_log, "the metadata log goes back in time"),
        (backward_update, "before the last entry of a log"),
        (number_above_last, "above the table's last, 1"),
        (circle, "among its own ancestors"),
        (unknown_schema, "has schema 17, which is not there"),
        (unknown_source, "is made of column 99, which no schema has"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_history_that_does_not_fit_is_found(sink: Sink, damage: Callable[[Json], None], said: str) -> None:
    """Time travel or the next commit would fail, long after what broke the table."""
    write_epochs(sink)
    edit_metadata(sink, damage)

    found = failures(sink)

    assert list(found) == ["history"]
    assert said in found["history"]


def of_epoch(number: str | None) -> dict[str, str | None]:
    """Return what to change in a summary so that it says another epoch."""
    return (
        {EPOCHS.number_key: number}
        if number is not None
        else {EPOCHS.number_key: None, "spark.sql.streaming.queryId": None}
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("0", "is there twice: snapshots"),
        ("x", "its number is 'x'"),
    ],
)
def test_epoch_that_is_twice_is_found(sink: Sink, number: str, said: str) -> None:
    """Rows of a stream would be there twice, and nobody would know."""
    write_epochs(sink)
    edit_summary(sink, 1, **of_epoch(number))

    found = failures(sink)

    assert list(found) == ["epochs"]
    assert said in found["epochs"]


def test_epoch_that_is_missing_is_pointed_out(sink: Sink) -> None:
    """Rows of a stream would be lost, and nobody would know; or a stream with an empty epoch be called broken."""
    write_epochs(sink)
    edit_summary(sink, 1, **of_epoch(None))

    (warned,) = [check for check in verified(sink).checks if check.outcome == "warning"]

    assert warned.name == "gaps between epochs"
    assert "epoch 1 of query" in warned.detail


def test_epoch_without_rows_is_no_failure(sink: Sink) -> None:
    """A stream whose filter lets nothing through would be called broken."""
    for number, ids in enumerate([(1,), (), (2,)]):
        sink.append(*ids, of_epoch=epoch(number))

    assert failures(sink) == {}


def test_epochs_out_of_order_are_found(sink: Sink) -> None:
    """A second driver with an old checkpoint would have written beside the first one."""
    write_epochs(sink, 4)
    edit_summary(sink, 1, **of_epoch("2"))
    edit_summary(sink, 2, **of_epoch("1"))

    found = failures(sink)

    assert list(found) == ["epochs"]
    assert "came after 2" in found["epochs"]


def set_mark(epoch_id: int) -> Callable[[Json], None]:
    """Return what lets the mark say another epoch."""

    def damage(document: Json) -> None:
        key = f"icebergsink.last-epoch.main.{QUERY}"
        mark = json.loads(document["properties"][key])
        document["properties"][key] = json.dumps({**mark, "epoch-id": epoch_id})

    return damage


def drop_mark(document: Json) -> None:
    """Take the mark out."""
    del document["properties"][f"icebergsink.last-epoch.main.{QUERY}"]


def spoil_mark(document: Json) -> None:
    """Let the mark say nothing."""
    document["properties"][f"icebergsink.last-epoch.main.{QUERY}"] = "{}"


@pytest.mark.parametrize("damage", [set_mark(1), set_mark(7), drop_mark, spoil_mark])
def test_mark_that_disagrees_with_the_summaries_is_found(sink: Sink, damage: Callable[[Json], None]) -> None:
    """After the expiry of snapshots a stream would skip epochs, or write them twice."""
    write_epochs(sink)
    edit_metadata(sink, damage)

    assert list(failures(sink)) == ["epoch markers"]


def test_branch_that_was_rolled_back_behind_its_mark_is_found(sink: Sink) -> None:
    """The stream would go on behind rows that are in the table no more."""
    write_epochs(sink)
    first = sink.table().metadata.snapshots[0].snapshot_id
    sink.table().manage_snapshots().rollback_to_snapshot(first).commit()

    found = failures(sink)

    assert list(found) == ["epoch markers"]
    assert "it was rolled back" in found["epoch markers"]


def first_manifest(sink: Sink) -> Path:
    """Return the first manifest of the newest snapshot."""
    return local(Listing.of(sink).manifests[0].manifest_path)


def lose(path: Path) -> None:
    """Delete a file."""
    path.unlink()


def cut(path: Path) -> None:
    """Take the end off a file."""
    path.write_bytes(path.read_bytes()[:-20])


def lengthen(path: Path) -> None:
    """Add a byte to a file."""
    path.write_bytes(path.read_bytes() + b"x")


def list_of(sink: Sink) -> Path:
    """Return the manifest list of the newest snapshot."""
    return local(Listing.of(sink).snapshot.manifest_list)


@pytest.mark.parametrize("place", [first_manifest, list_of])
@pytest.mark.parametrize("damage", [lose, cut])
def test_manifest_or_list_that_cannot_be_read_is_found(
    sink: Sink, place: Callable[[Sink], Path], damage: Callable[[Path], None]
) -> None:
    """No reader could read the table, and nobody would know which file to restore."""
    write_epochs(sink)
    path = place(sink)
    damage(path)

    found = failures(sink)

    assert list(found) == ["manifests"]
    assert str(path) in found["manifests"]


def test_manifest_that_is_not_as_long_as_recorded_is_found(sink: Sink) -> None:
    """A manifest that was exchanged for another one would not be noticed."""
    write_epochs(sink)

    def longer(manifests: list[ManifestFile]) -> list[ManifestFile]:
        manifests[0][1] += 1
        return manifests

    edit_list(sink, longer)

    found = failures(sink)

    assert list(found) == ["manifests"]
    assert "its recorded size is" in found["manifests"]


def test_manifest_whose_counts_are_wrong_is_found(sink: Sink) -> None:
    """Readers would leave a manifest out that says it has no files."""
    write_epochs(sink)

    def fewer(manifests: list[ManifestFile]) -> list[ManifestFile]:
        manifests[0][7] = 0
        return manifests

    edit_list(sink, fewer)

    assert list(failures(sink)) == ["manifests"]


def test_delete_file_among_data_files_is_found(sink: Sink) -> None:
    """Readers would return deleted keys as rows."""
    write_epochs(sink)

    def as_delete(found: list[ManifestEntry]) -> list[ManifestEntry]:
        found[0].data_file[0] = DataFileContent.EQUALITY_DELETES
        return found

    edit_entries(sink, as_delete)

    found = failures(sink)

    assert list(found) == ["manifests"]
    assert "is one of data files, and lists" in found["manifests"]


def test_metadata_files_that_leave_the_log_meanwhile_are_no_fault(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that tidies its metadata would be called broken whenever somebody writes to it."""
    write_epochs(sink)
    tidy = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=tidy),))
    logged = [local(entry.metadata_file) for entry in sink.table().metadata.metadata_log]

    def commit(*arguments: Any, **named: Any) -> Any:
        sink.append(9)
        return read(*arguments, **named)

    read = verifying.read_contents
    monkeypatch.setattr(verifying, "read_contents", commit)

    assert failures(sink) == {}
    assert not any(path.exists() for path in logged)


def test_file_that_is_listed_twice_in_a_manifest_is_found(sink: Sink) -> None:
    """Its rows would be read twice."""
    write_epochs(sink)
    edit_entries(sink, lambda found: [*found, *found])

    found = failures(sink)

    assert list(found) == ["each file once"]
    assert "is 2 times in manifest" in found["each file once"]


@pytest.mark.parametrize("spelling", ["file:", ""], ids=["one slash", "no scheme"])
def test_file_that_is_listed_by_two_paths_is_found(sink: Sink, spelling: str) -> None:
    """Its rows would be read twice, and a compaction would take the file of one for the other's."""
    write_epochs(sink)

    def spelled_anew(entry: ManifestEntry) -> ManifestEntry:
        data_file = copy.copy(entry.data_file)
        data_file._data = [*entry.data_file._data]
        data_file[1] = entry.data_file.file_path.replace("file://", spelling)
        return changed(entry, data_file=data_file)

    edit_entries(sink, lambda found: [*found, *map(spelled_anew, found)])

    found = failures(sink)

    assert "which are one file: file:///" in found["each file once"]


def test_file_that_two_manifests_list_is_found(sink: Sink) -> None:
    """A commit that landed twice would double its rows."""
    write_epochs(sink)
    before = entries(sink)[-1]
    number = Listing.of(sink).snapshot.snapshot_id
    numbers = {"snapshot_id": number, "sequence_number": None, "file_sequence_number": None}
    edit_entries(sink, lambda _: [changed(before, status=ManifestEntryStatus.ADDED, **numbers)])

    found = failures(sink)

    assert list(found) == ["each file once"]
    assert "twice: in" in found["each file once"]
    assert "and again by snapshot" in found["each file once"]


def test_file_that_is_dropped_and_added_again_is_no_fault(sink: Sink) -> None:
    """A table would be called broken for a change that was taken back."""
    sink.append(1)
    (path,) = (entry.data_file.file_path for entry in entries(sink))
    table = sink.table()
    table.delete()
    table.add_files([path])

    assert failures(sink) == {}


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"sequence_number": 99, "file_sequence_number": 99}, "above that of its manifest"),
        ({"sequence_number": 0}, "below the lowest"),
    ],
)
def test_sequence_number_that_cannot_be_right_is_found(sink: Sink, numbers: dict[str, int], said: str) -> None:
    """Deletes would hit rows that came after them, or miss those before."""
    write_epochs(sink)
    edit_entries(sink, lambda found: [changed(entry, **numbers) for entry in found])

    found = failures(sink)

    assert list(found) == ["sequence numbers"]
    assert said in found["sequence numbers"]


def test_manifest_that_is_newer_than_its_snapshot_is_found(sink: Sink) -> None:
    """A snapshot would have rows that came after it."""
    write_epochs(sink)

    def later(manifests: list[ManifestFile]) -> list[ManifestFile]:
        manifests[0].sequence_number = 98
        return manifests

    edit_list(sink, later)

    found = failures(sink)

    assert list(found) == ["sequence numbers"]
    assert "above that of snapshot" in found["sequence numbers"]


@pytest.mark.parametrize("spec_id", [1, 42])
def test_partitions_that_are_not_of_their_spec_are_found(sink: Sink, spec_id: int) -> None:
    """Filters would leave out files that have the rows."""
    write_epochs(sink)

    def add_spec(document: Json) -> None:
        fields = [{"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id"}]
        document["partition-specs"].append({"spec-id": 1, "fields": fields})

    def other_spec(manifests: list[ManifestFile]) -> list[ManifestFile]:
        manifests[0][2] = spec_id
        return manifests

    edit_metadata(sink, add_spec)
    edit_list(sink, other_spec)

    assert list(failures(sink)) == ["partitions"]


def test_files_that_a_commit_has_left_out_are_found(sink: Sink) -> None:
    """Rows would be missing, although all that the table lists is whole and its totals agree."""
    write_epochs(sink)
    leave_out_last_manifest(sink)

    found = failures(sink)

    assert list(found) == ["rows carried over"]
    assert "and says that it drops 0" in found["rows carried over"]


@pytest.mark.parametrize(
    "key",
    [
        "total-records",
        "total-data-files",
        "total-delete-files",
        "total-files-size",
        "added-records",
        "added-data-files",
        "added-files-size",
    ],
)
def test_summary_that_does_not_add_up_is_found(sink: Sink, key: str) -> None:
    """Counts that users and planners take from the summary would be wrong from then on."""
    write_epochs(sink)
    edit_summary(sink, -1, **{key: "4711"})

    found = failures(sink)

    assert list(found) == ["summaries"]
    assert f"says {key}=4711" in found["summaries"]


def test_summary_without_totals_is_no_fault(sink: Sink) -> None:
    """Tables of writers that keep no totals would be called broken."""
    write_epochs(sink)
    edit_summary(sink, -1, total_records=None, added_records=None)

    assert failures(sink) == {}


def newest_data_file(sink: Sink) -> Path:
    """Return a data file of the newest snapshot."""
    return local(entries(sink)[0].data_file.file_path)


@pytest.mark.parametrize("damage", [lose, cut, lengthen])
def test_data_file_that_is_missing_or_of_another_size_is_found(sink: Sink, damage: Callable[[Path], None]) -> None:
    """Rows would be lost, and a query fail only when it comes to them."""
    write_epochs(sink)
    path = newest_data_file(sink)
    damage(path)

    found = failures(sink, deep=True)

    assert list(found) == ["data files"]
    assert str(path) in found["data files"]


def test_delete_file_that_is_missing_is_found(sink: Sink) -> None:
    """Deleted rows would come back, or no row could be read."""
    sink.append(1, 2)
    delete_positions(sink, entries(sink)[0].data_file.file_path, [0])
    (path,) = local(sink.table().metadata.location).rglob("data/deletes-*.parquet")
    path.unlink()

    found = failures(sink)

    assert list(found) == ["data files"]
    assert f"delete file file://{path} is missing" in found["data files"]


def test_old_files_are_looked_at_if_all_snapshots_are_asked_for(sink: Sink) -> None:
    """Time travel would fail on a table that was said to be whole."""
    sink.append(1)
    path = newest_data_file(sink)
    sink.overwrite(rows(2))
    path.unlink()

    assert failures(sink) == {}
    assert list(failures(sink, all_snapshots=True)) == ["data files"]


def test_file_with_another_number_of_rows_is_found(sink: Sink) -> None:
    """Counts answered from metadata would be wrong."""
    write_epochs(sink)

    def count_more(found: list[ManifestEntry]) -> list[ManifestEntry]:
        found[0].data_file[4] = 11
        return found

    edit_entries(sink, count_more)

    found = failures(sink)

    assert list(found) == ["row counts"]
    assert "holds 1 rows, its recorded count is 11" in found["row counts"]


def test_footer_that_cannot_be_read_is_found(sink: Sink) -> None:
    """A file of the right length that holds something else would pass."""
    write_epochs(sink)
    path = newest_data_file(sink)
    path.write_bytes(b"\0" * path.stat().st_size)

    found = failures(sink, deep=True)

    assert list(found) == ["row counts"]
    assert "the footer of data file" in found["row counts"]


@pytest.mark.parametrize(
    ("position", "value", "said"),
    [
        (7, {1: 5}, "value_counts says 5, the data 3"),
        (8, {2: 2}, "null_value_counts says 2, the data 1"),
        (9, {3: 0}, "nan_value_counts says 0, the data 1"),
        (10, {1: (2).to_bytes(8, "little")}, "its lower bound 2 is above the value 1"),
        (11, {1: (2).to_bytes(8, "little")}, "its upper bound 2 is below the value 3"),
        (10, {2: b"row 9"}, "is above the value"),
        (11, {2: b"r"}, "is below the value"),
    ],
)
def test_metrics_that_are_not_true_of_the_rows_are_found(
    sink: Sink, position: int, value: dict[int, Any], said: str
) -> None:
    """Readers would skip a file that has the rows."""
    data = [
        {"id": 1, "name": "row 1", "x": 1.5},
        {"id": 2, "name": None, "x": math.nan},
        {"id": 3, "name": "row 3", "x": None},
    ]
    sink.commit(sink.write(data, schema=NUMBERS))
    assert failures(sink, deep=True) == {}

    def spoil(found: list[ManifestEntry]) -> list[ManifestEntry]:
        found[0].data_file[position] = {**found[0].data_file[position], **value}
        return found

    edit_entries(sink, spoil)

    assert failures(sink) == {}
    found = failures(sink, deep=True)
    assert list(found) == ["metrics"]
    assert said in found["metrics"]


def test_statistics_file_that_is_missing_is_found(sink: Sink) -> None:
    """Planners that trust it would fail."""
    write_epochs(sink)
    snapshot = sink.table().metadata.snapshots[-1].snapshot_id
    path = f"{sink.table().metadata.location}/metadata/stats.puffin"

    def add(document: Json) -> None:
        document["statistics"] = [
            {
                "snapshot-id": snapshot,
                "statistics-path": path,
                "file-size-in-bytes": 100,
                "file-footer-size-in-bytes": 10,
                "blob-metadata": [],
            }
        ]

    edit_metadata(sink, add)

    assert list(failures(sink)) == ["statistics files"]
    local(path).write_bytes(b"x" * 99)
    assert "has 99 bytes, its recorded size is 100" in failures(sink)["statistics files"]
    local(path).write_bytes(b"x" * 100)
    assert failures(sink) == {}


def test_metadata_file_of_the_log_that_is_missing_is_found(sink: Sink) -> None:
    """The table could not be registered again as it was."""
    write_epochs(sink)
    local(sink.table().metadata.metadata_log[0].metadata_file).unlink()

    assert list(failures(sink)) == ["metadata files"]


def test_expired_history_is_no_fault(sink: Sink) -> None:
    """A table that is looked after would be called broken."""
    write_epochs(sink, 4)
    kept = {sink.table().metadata.snapshots[-1].snapshot_id}
    old = [found.snapshot_id for found in sink.table().metadata.snapshots if found.snapshot_id not in kept]
    sink.table().maintenance.expire_snapshots().by_ids(old).commit()

    result = verified(sink)

    assert result.ok, str(result)
    assert len(sink.table().metadata.snapshots) == 1
    assert "1 epoch of 1 query" in next(check.detail for check in result.checks if check.name == "epochs")


def test_files_of_version_one_tables_are_verified(sink: Sink) -> None:
    """Old tables could not be verified."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    sink.create(Schema(NestedField(1, "id", LongType())), spec, format_version="1")
    frame = StructType([StructField("id", SparkLong())])
    sink.commit(sink.write([{"id": 1}, {"id": 2}, {"id": None}], schema=frame))

    assert failures(sink, deep=True) == {}


def test_snapshots_that_expire_meanwhile_let_the_table_be_read_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table under maintenance would be called broken, because its files went while they were looked for."""
    write_epochs(sink)
    old = sink.table().metadata.snapshots[0]
    looks: list[bool] = []

    def expire(*arguments: Any, **named: Any) -> Any:
        if not looks:
            sink.table().maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
            local(old.manifest_list).unlink()
        looks.append(True)
        return read(*arguments, **named)

    read = verifying.read_contents
    monkeypatch.setattr(verifying, "read_contents", expire)

    assert failures(sink) == {}
    assert len(looks) == 2


def test_copying_an_entry_changes_nothing(sink: Sink) -> None:
    """The tests above would find damages that they do not say."""
    write_epochs(sink)
    edit_entries(sink, copy.copy)

    assert failures(sink, deep=True) == {}
