"""The snapshot that an append adds, and the request that adds it."""

from __future__ import annotations

import time

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, SnapshotLogEntry
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Record
from support.tables.metadata import OUR_SNAPSHOT, START_MS, TABLE_UUID, Past, identity, line, metadata_of
from support.tables.sink import QUERY, Sink, epoch, rows

from iceberg_ds.plan import NewTable, WriteIdentity
from iceberg_ds.snapshots.snapshot import (
    Change,
    change_summary,
    commit_request,
    creation_request,
    dropped_metadata_files,
    new_snapshot,
)
from iceberg_ds.snapshots.txn import find_last_epoch
from iceberg_ds.table.requests import CommitRequest

ADDED = {"added-data-files": "2", "added-records": "5", "added-files-size": "100"}
LIST = "file:///nowhere/t/metadata/snap-777-0.avro"


def request_for(metadata: TableMetadata, write: WriteIdentity, *, is_new: bool = False) -> CommitRequest:
    """Return what would be sent for `write`."""
    return commit_request(metadata, write, new_snapshot(metadata, write, Operation.APPEND, ADDED, LIST), is_new=is_new)


def applied(metadata: TableMetadata, request: CommitRequest) -> TableMetadata:
    """Return the table after the request, as a catalog would carry it out."""
    for requirement in request.requirements:
        requirement.validate(metadata)
    return update_table_metadata(metadata, request.updates)


def test_snapshot_follows_the_head_of_the_branch() -> None:
    """The table's history would be torn, and rows of others would be lost."""
    snapshot = new_snapshot(metadata_of(line(1, 2)), identity(), Operation.APPEND, ADDED, LIST)

    assert snapshot.snapshot_id == OUR_SNAPSHOT
    assert snapshot.parent_snapshot_id == 2
    assert snapshot.sequence_number == 3
    assert snapshot.manifest_list == LIST


def test_first_snapshot_has_no_parent() -> None:
    """The first commit into an empty table would fail."""
    snapshot = new_snapshot(metadata_of(), identity(), Operation.APPEND, ADDED, LIST)

    assert snapshot.parent_snapshot_id is None
    assert snapshot.sequence_number == 1


def test_summary_adds_up_with_the_one_before() -> None:
    """Engines that plan by the totals would plan badly, and people would be misled."""
    before = {"total-data-files": "10", "total-records": "50", "total-files-size": "1000", "total-delete-files": "3"}

    summary = new_snapshot(metadata_of(line(1, s1=before)), identity(), Operation.APPEND, ADDED, LIST).summary

    assert summary is not None
    assert summary.operation is Operation.APPEND
    totals = {
        key: summary[key] for key in ("total-data-files", "total-records", "total-files-size", "total-delete-files")
    }
    assert totals == {
        "total-data-files": "12",
        "total-records": "55",
        "total-files-size": "1100",
        "total-delete-files": "3",
    }
    assert summary["engine-name"] == "icebergsink"


@pytest.mark.parametrize("before", [None, {}, {"total-records": "x", "total-data-files": "", "total-files-size": "-1"}])
def test_totals_that_the_snapshot_before_does_not_tell_stay_unknown(before: dict[str, str] | None) -> None:
    """Totals would be counted from zero, and be wrong for all snapshots to come; or nothing could be committed."""
    metadata = metadata_of(line(1, s1=before or {}))
    if before is None:
        (first,) = metadata.snapshots
        metadata = metadata.model_copy(update={"snapshots": [first.model_copy(update={"summary": None})]})

    summary = new_snapshot(metadata, identity(), Operation.APPEND, ADDED, LIST).summary

    assert summary is not None
    assert [key for key in summary.additional_properties if key.startswith("total-")] == []
    assert summary["added-records"] == "5"


def test_time_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other engines would refuse the table because a machine's clock was set back."""
    monkeypatch.setattr(time, "time", lambda: 0.0)

    assert new_snapshot(metadata_of(line(1)), identity(), Operation.APPEND, ADDED, LIST).timestamp_ms == START_MS + 1


def test_time_never_goes_back_behind_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine's commit, of a machine whose clock is right, would let ours go back behind one that was ahead."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    table = metadata_of(line(1))
    ahead = table.model_copy(update={"snapshot_log": [SnapshotLogEntry(snapshot_id=1, timestamp_ms=START_MS + 90)]})

    assert new_snapshot(ahead, identity(), Operation.APPEND, ADDED, LIST).timestamp_ms == START_MS + 90


def test_request_is_refused_if_the_branch_has_moved_or_the_table_is_another() -> None:
    """Rows of others would be overwritten."""
    request = request_for(metadata_of(line(1, 2)), identity())

    assert set(request.requirements) == {
        AssertTableUUID(uuid=TABLE_UUID),
        AssertRefSnapshotId(ref="main", snapshot_id=2),
    }


def test_request_for_an_empty_table_is_refused_if_it_is_empty_no_more() -> None:
    """Rows of others would be overwritten."""
    request = request_for(metadata_of(), identity())

    assert AssertRefSnapshotId(ref="main", snapshot_id=None) in request.requirements


def test_request_for_a_new_table_is_refused_if_it_exists() -> None:
    """Rows of others would be overwritten."""
    assert request_for(metadata_of(), identity(), is_new=True).requirements == (AssertCreate(),)


def test_batch_adds_rows_and_no_property() -> None:
    """Every batch would leave a property behind."""
    request = request_for(metadata_of(line(1)), identity())

    assert [type(update) for update in request.updates] == [AddSnapshotUpdate, SetSnapshotRefUpdate]


def test_epoch_is_recorded_in_the_same_request_as_its_rows() -> None:
    """A driver that dies in between would commit the epoch twice."""
    metadata = metadata_of(line(1, 2))

    after = applied(metadata, request_for(metadata, identity(epoch=epoch(7))))

    mark = find_last_epoch(after, "main", QUERY)
    assert mark is not None
    assert (mark.number, mark.snapshot_id) == (7, OUR_SNAPSHOT)
    assert after.refs["main"].snapshot_id == OUR_SNAPSHOT
    without_property = after.model_copy(update={"properties": {}})
    assert find_last_epoch(without_property, "main", QUERY) == mark


def test_only_the_branch_of_the_write_moves() -> None:
    """Unaudited rows would appear on `main`."""
    metadata = metadata_of([*line(1, 2), Past(snapshot_id=3, parent=1)], branches={"main": 2, "audit": 3})

    after = applied(metadata, request_for(metadata, identity(branch="audit")))

    assert {name: ref.snapshot_id for name, ref in after.refs.items()} == {"main": 2, "audit": OUR_SNAPSHOT}


def test_retention_of_the_branch_stays_as_it_is() -> None:
    """Snapshots that a user wants kept would expire."""
    metadata = metadata_of(line(1))
    kept = SnapshotRef(
        snapshot_id=1,
        snapshot_ref_type=SnapshotRefType.BRANCH,
        max_ref_age_ms=11,
        max_snapshot_age_ms=12,
        min_snapshots_to_keep=13,
    )
    metadata = metadata.model_copy(update={"refs": {"main": kept}})

    after = applied(metadata, request_for(metadata, identity()))

    assert after.refs["main"] == kept.model_copy(update={"snapshot_id": OUR_SNAPSHOT})


def test_added_files_are_counted(sink: Sink) -> None:
    """Engines that plan by the totals would plan badly, and people would be misled."""
    messages = sink.write(rows(1, 2), rows(3))
    files = [data_file for message in messages for data_file in message.data_files]
    sink.commit(messages)

    summary = change_summary(sink.table().metadata, Change(added=files))

    assert summary["added-data-files"] == "2"
    assert summary["added-records"] == "3"
    assert summary["added-files-size"] == str(sum(file.file_size_in_bytes for file in files))


@pytest.mark.parametrize("text", ["many", "-1", "²"])
def test_limit_of_partitions_that_is_no_number_counts_as_not_set(text: str) -> None:
    """A typo in a table property would fail every commit."""
    limited = metadata_of(properties={"write.summary.partition-limit": text})

    assert change_summary(limited, Change(added=())) == change_summary(metadata_of(), Change(added=()))


def test_creation_request_carries_the_whole_table(sink: Sink) -> None:
    """A new table would lose its schema, its place or its properties."""
    staged = sink.catalog.stage_table(("db", "t"), NewTable(schema=metadata_of().schema()))

    request = creation_request(staged)
    assert request.requirements == (AssertCreate(),)
    sink.catalog.send(sink.catalog.staged_table(("db", "t"), staged), request.requirements, request.updates)

    created = sink.table().metadata
    assert created.table_uuid == staged.table_uuid
    assert created.schema() == staged.schema()
    assert created.spec() == staged.spec()
    assert created.location == staged.location
    assert created.format_version == staged.format_version
    assert created.properties == staged.properties


def logged(*names: str, delete: str | None = "true") -> TableMetadata:
    """Return a table whose log lists these metadata files."""
    properties = {} if delete is None else {"write.metadata.delete-after-commit.enabled": delete}
    log = [MetadataLogEntry(metadata_file=name, timestamp_ms=START_MS) for name in names]
    return metadata_of(properties=properties).model_copy(update={"metadata_log": log})


def test_metadata_files_that_fell_out_of_the_log_are_named() -> None:
    """Metadata files would pile up although the table asks for their deletion."""
    assert dropped_metadata_files(logged("a", "b", "c"), logged("b", "c", "d")) == ["a"]


@pytest.mark.parametrize("delete", [None, "false"])
def test_metadata_files_stay_unless_the_table_asks_for_their_deletion(delete: str | None) -> None:
    """Metadata files that a user wants kept would be deleted."""
    assert dropped_metadata_files(logged("a", "b"), logged("b", "c", delete=delete)) == []


def test_property_is_set_only_for_epochs() -> None:
    """The record of one stream would be overwritten by a batch."""
    updates = request_for(metadata_of(), identity(epoch=epoch(0))).updates

    assert sum(isinstance(update, SetPropertiesUpdate) for update in updates) == 1


def test_properties_of_the_user_stand_beside_what_the_commit_records(sink: Sink) -> None:
    """A user could not tell which job wrote a snapshot."""
    plan = sink.plan(snapshot_properties={"team": "billing", "job": "nightly"})

    sink.commit(sink.write(rows(1), plan=plan, of_epoch=epoch(0)))

    summary = sink.table().current_snapshot().summary  # type: ignore[union-attr]
    assert (summary["team"], summary["job"]) == ("billing", "nightly")  # type: ignore[index]
    assert (summary["added-records"], summary["engine-name"]) == ("1", "icebergsink")  # type: ignore[index]
    assert summary["spark.sql.streaming.epochId"] == "0"  # type: ignore[index]


def file_of(content: DataFileContent) -> DataFile:
    """Return the entry of a file of rows or of deletes."""
    return DataFile.from_args(
        content=content,
        file_path=f"{content.name}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )


ROWS, KEYS, POSITIONS = (
    file_of(content)
    for content in (DataFileContent.DATA, DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES)
)


@pytest.mark.parametrize(
    ("added", "removed", "operation"),
    [
        ([], [], Operation.APPEND),
        ([ROWS], [], Operation.APPEND),
        ([KEYS], [], Operation.DELETE),
        ([POSITIONS, KEYS], [], Operation.DELETE),
        ([ROWS, KEYS], [], Operation.OVERWRITE),
        ([ROWS, POSITIONS], [], Operation.OVERWRITE),
        ([ROWS], [ROWS], Operation.OVERWRITE),
        ([], [ROWS, KEYS], Operation.DELETE),
    ],
)
def test_operation_is_the_one_that_java_writes(
    added: list[DataFile], removed: list[DataFile], operation: Operation
) -> None:
    """Readers that follow appends would miss rows, or take rows that were deleted."""
    assert Change(added=added, removed=removed).operation is operation


@pytest.mark.parametrize(
    ("added", "removed", "operation"),
    [
        ([ROWS], [ROWS, KEYS], Operation.REPLACE),
        ([], [KEYS], Operation.REPLACE),
        ([POSITIONS], [KEYS], Operation.OVERWRITE),
    ],
)
def test_deletes_that_take_the_place_of_others_are_seen_by_compactions(
    added: list[DataFile], removed: list[DataFile], operation: Operation
) -> None:
    """A compaction by another engine would land over deletes that it does not look for, and bring rows back."""
    assert Change(added=added, removed=removed, keeps_rows=True).operation is operation
