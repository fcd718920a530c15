"""Writes by keys: each row and each delete stands in the table once, as the spec has it, or nothing does."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.checks.invariants import check_clean, stored_files, unreferenced_files
from support.checks.reader import listed, rows_of
from support.keys.messages import (
    KEYED_SCHEMA,
    Event,
    events_feed,
    keyed_tasks,
    plan_by_keys,
)
from support.tables.sink import IDENTIFIER, NAME, QUERY, Sink, epoch, local, paths_of

import iceberg_ds
from iceberg_ds.cdc.dedup import decode_key_report, encode_key_report
from iceberg_ds.commit import cross_task
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.errors import CommitConflictError, CommitMessageError, IcebergSinkError, RefusedRowsError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId
from iceberg_ds.writers import position_deletes

pytestmark = pytest.mark.usefixtures("waits")

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
GLOBAL = PartitionSpec(spec_id=1)
POSITIONS, KEYS, ROWS = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES, DataFileContent.DATA

# Key 2 has a row in two tasks, key 3 a row in one and a later delete in another.
COLLIDING: tuple[list[Event], list[Event]] = (
    [("U", 1, "EU", 10, 5), ("U", 2, "EU", 20, 5), ("U", 3, "US", 30, 5)],
    [("U", 2, "US", 21, 6), ("D", 3, "US", None, 7), ("U", 4, "EU", 40, 1)],
)
COLLIDED = [(1, "EU", 10), (2, "US", 21), (4, "EU", 40)]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of an unpartitioned table with key `id`."""
    sink.create(KEYED_SCHEMA)
    return sink


def by_region(sink: Sink) -> Sink:
    """Return the sink of a table by region, which has an unpartitioned spec for deletes by `id`, too."""
    sink.create(KEYED_SCHEMA, BY_REGION)
    table = sink.table()
    sink.catalog.send(table, (), (AddPartitionSpecUpdate(spec=GLOBAL),))
    return sink


def put(sink: Sink, *parts: Sequence[Event], of_epoch: EpochId | None = None, **options: Any) -> CommitResult:
    """Write and commit events by key, a task for each of `parts`."""
    return sink.commit(keyed_tasks(plan_by_keys(sink, **options), *parts, of_epoch=of_epoch))


def values(sink: Sink, branch: str = "main") -> list[tuple[Any, ...]]:
    """Return the rows of the table without their names."""
    return [tuple(row.values()) for row in rows_of(sink.table(), branch)]


def summary(sink: Sink) -> dict[str, str]:
    """Return the summary of the newest snapshot."""
    snapshot = sink.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def check_verified(sink: Sink) -> None:
    """Assert that the table is whole in the eyes of `verify`, and nothing lies around."""
    check_clean(sink.table())
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, deep=True, older_than="0s")
    assert result.ok, str(result)
    assert result.orphans == ()


def test_rows_that_lose_to_other_tasks_are_hidden(keyed: Sink) -> None:
    """A key that comes in two tasks would have two rows, or one although it was deleted last."""
    put(keyed, [("I", 2, "EU", 2, 1), ("I", 3, "EU", 3, 1), ("I", 9, "EU", 9, 1)])

    put(keyed, *COLLIDING)

    assert values(keyed) == [*COLLIDED, (9, "EU", 9)]
    check_verified(keyed)


def test_position_deletes_are_as_the_spec_has_them(keyed: Sink) -> None:
    """Readers would not find the deletes, or take them for deletes of other rows."""
    messages = keyed_tasks(plan_by_keys(keyed), *COLLIDING)

    keyed.commit(messages)

    (deletes,) = listed(keyed.table())[POSITIONS]
    (data_file,) = messages[0].data_files
    found = deletes.entry.data_file
    assert deletes.rows() == [{"file_path": data_file.file_path, "pos": position} for position in (1, 2)]
    schema = pa.parquet.read_schema(local(deletes.path))
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in schema]
    assert (ids, [field.nullable for field in schema]) == ([2147483546, 2147483545], [False, False])
    assert (found.record_count, found.equality_ids, found.sort_order_id) == (2, None, None)
    path = data_file.file_path.encode()
    assert found.lower_bounds == {2147483546: path, 2147483545: (1).to_bytes(8, "little")}
    assert found.upper_bounds == {2147483546: path, 2147483545: (2).to_bytes(8, "little")}
    assert deletes.path.endswith("-deletes.parquet")
    assert messages[0].write.operation_id in deletes.path


def test_each_data_file_has_position_deletes_of_its_own(keyed: Sink) -> None:
    """A compaction of other files would be refused whenever an epoch lands beside it, and never end beside a stream."""
    plan = plan_by_keys(keyed, target_file_size_bytes=1)

    messages = keyed_tasks(plan, *COLLIDING)
    keyed.commit(messages)

    hidden = [data_file.file_path.encode() for data_file in messages[0].data_files[1:]]
    deletes = [found.entry.data_file for found in listed(keyed.table())[POSITIONS]]
    assert [(found.lower_bounds or {})[2147483546] for found in deletes] == hidden
    assert [(found.upper_bounds or {})[2147483546] for found in deletes] == hidden
    assert len(hidden) == 2
    assert values(keyed) == COLLIDED
    check_verified(keyed)


def test_manifests_of_deletes_stand_apart_and_inherit_their_numbers(keyed: Sink) -> None:
    """Readers take a delete in a manifest of rows for a row; deletes of a wrong number reach wrong rows."""
    put(keyed, [("I", 1, "EU", 1, 1)])

    result = put(keyed, *COLLIDING)

    table = keyed.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    kinds = [manifest.content for manifest in manifests]
    data, deletes = ManifestContent.DATA, ManifestContent.DELETES
    assert kinds == [data, data, deletes, deletes]
    ours = [manifest for manifest in manifests if manifest.added_snapshot_id == result.snapshot_id]
    assert [(found.content, found.sequence_number, found.min_sequence_number) for found in ours] == [
        (data, 2, 2),
        (deletes, 2, 2),
    ]
    assert [(found.added_files_count, found.added_rows_count) for found in ours] == [(2, 5), (3, 8)]
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io):
            assert (entry.data_file.content == ROWS) == (manifest.content == data)
            assert entry.sequence_number == entry.file_sequence_number == manifest.sequence_number
    keys = [found for found in listed(table)[KEYS] if found.number == 2]
    assert [found.entry.data_file.equality_ids for found in keys] == [[1], [1]]


def test_summary_counts_rows_and_deletes(keyed: Sink) -> None:
    """Users would read wrong totals, and every later total be wrong."""
    put(keyed, [("I", 1, "EU", 1, 1)])
    put(keyed, *COLLIDING)

    expected = {
        "operation": "overwrite",
        "added-data-files": "2",
        "added-records": "5",
        "added-delete-files": "3",
        "added-equality-delete-files": "2",
        "added-equality-deletes": "6",
        "added-position-delete-files": "1",
        "added-position-deletes": "2",
        "total-data-files": "3",
        "total-records": "6",
        "total-delete-files": "4",
        "total-equality-deletes": "7",
        "total-position-deletes": "2",
    }
    assert {name: summary(keyed)[name] for name in expected} == expected


def test_epoch_of_deletes_alone_is_a_snapshot(keyed: Sink) -> None:
    """Deleted rows would stay, and the epoch would not be known as done."""
    put(keyed, [("I", 1, "EU", 1, 1), ("I", 2, "EU", 2, 1)], of_epoch=epoch(0))

    result = put(keyed, [("D", 1, "EU", None, 2)], [], of_epoch=epoch(1))

    assert result.snapshot_id is not None
    assert values(keyed) == [(2, "EU", 2)]
    assert summary(keyed)["operation"] == "delete"
    mark = json.loads(keyed.table().properties[f"icebergsink.last-epoch.main.{QUERY}"])
    assert (mark["epoch-id"], mark["record-count"]) == (1, 0)
    check_verified(keyed)


def test_epoch_of_new_keys_alone_is_an_append(keyed: Sink) -> None:
    """Readers that follow appends would not see the rows."""
    feed = events_feed(trusts_inserts=True)

    put(keyed, [("I", 1, "EU", 1, 1)], [("I", 2, "EU", 2, 1)], feed=feed)

    assert summary(keyed)["operation"] == "append"
    assert listed(keyed.table()).keys() == {ROWS}


def test_epoch_without_rows_adds_nothing(keyed: Sink) -> None:
    """Idle streams would fill the history with snapshots that change nothing."""
    result = put(keyed, [], [], of_epoch=epoch(0))

    assert result.snapshot_id is None
    assert keyed.table().metadata.snapshots == []


def test_each_partition_has_position_deletes_of_its_own(sink: Sink) -> None:
    """Readers apply position deletes to files of their own partition only, so losers would come back."""
    by_region(sink)
    put(sink, [("I", 3, "EU", 3, 1)], delete_spec=GLOBAL)

    put(sink, *COLLIDING, delete_spec=GLOBAL)

    assert values(sink) == COLLIDED
    found = listed(sink.table())
    places = {
        (one.spec_id, one.entry.data_file.partition[0], one.entry.data_file.record_count): one.path
        for one in found[POSITIONS]
    }
    assert places.keys() == {(0, "EU", 1), (0, "US", 1)}
    assert all(f"/region={region}/" in path for (_, region, _), path in places.items())
    assert {one.spec_id for one in found[KEYS]} == {1}
    manifests = [one for one in sink.table().current_snapshot().manifests(sink.table().io) if one.content == 1]
    assert sorted((one.partition_spec_id, len(one.partitions)) for one in manifests) == [(0, 1), (1, 0), (1, 0)]
    check_verified(sink)


def test_deletes_of_a_partition_reach_its_rows(sink: Sink) -> None:
    """Rows of tables that are partitioned by their keys would stay beside their successors."""
    sink.create(KEYED_SCHEMA, BY_ID)
    put(sink, [("I", number, "EU", number, 1) for number in range(8)])

    put(sink, [("U", number, "US", number, 2) for number in range(4)], [("D", 1, "US", None, 3), ("D", 6, "", None, 1)])

    assert values(sink) == [(0, "US", 0), (2, "US", 2), (3, "US", 3), (4, "EU", 4), (5, "EU", 5), (7, "EU", 7)]
    assert {one.spec_id for one in listed(sink.table())[KEYS]} == {0}
    check_verified(sink)


def test_many_files_and_row_groups_are_hidden_row_by_row(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of large writes would be hidden at wrong positions."""
    monkeypatch.setattr(position_deletes, "_GROUP_ROWS", 7)
    events: list[Event] = [("U", number, "EU", number, 1) for number in range(40)]
    later: list[Event] = [("U", number, "US", -number, 2) for number in range(0, 40, 2)]
    plan = plan_by_keys(keyed, target_file_size_bytes=1)

    keyed.commit(keyed_tasks(plan, events, later))

    assert sorted(values(keyed)) == [
        (number, "EU" if number % 2 else "US", number if number % 2 else -number) for number in range(40)
    ]
    (deletes,) = listed(keyed.table())[POSITIONS]
    assert deletes.entry.data_file.record_count == 20
    assert deletes.rows() == sorted(deletes.rows(), key=lambda row: (row["file_path"], row["pos"]))
    assert pa.parquet.read_metadata(local(deletes.path)).num_row_groups == 3
    check_verified(keyed)


def test_messages_may_come_in_any_order(keyed: Sink) -> None:
    """Rows of the wrong task would be hidden."""
    keyed.commit(keyed_tasks(plan_by_keys(keyed), *COLLIDING)[::-1])

    assert values(keyed) == COLLIDED


def test_rows_that_win_by_chance_stay_once_if_keys_are_not_enforced(keyed: Sink) -> None:
    """A user who says that any row will do would get two."""
    tied: list[Event] = [("U", 1, "EU", 1, 1)]

    put(keyed, tied, tied, tied, feed=events_feed(is_enforced=False))

    assert values(keyed) == [(1, "EU", 1)]


NULL_KEY: Event = ("U", None, "EU", 1, 1)  # type: ignore[assignment]  # which is what is wrong with it
REFUSED: dict[str, tuple[Sequence[Sequence[Event]], list[str]]] = {
    "null": ([[("U", 1, "EU", 1, 1)], [NULL_KEY, NULL_KEY]], ["2 rows have a null in a key column", "'id': None"]),
    "word": ([[("U", 1, "EU", 1, 1), ("X", 2, "EU", 1, 1)]], ["'X' (1 rows)"]),
    "tie": ([[("U", 1, "EU", 1, 1), ("U", 1, "EU", 2, 1)], []], ["1 keys have several rows", "'id': 1"]),
    "tie of tasks": (
        [[("U", 1, "EU", 1, 1), ("U", 7, "EU", 2, 1)], [("U", 7, "EU", 3, 1)]],
        ["1 keys have several rows", "'id': 7", "sequence-by"],
    ),
    "nothing else": ([[NULL_KEY], []], ["1 rows have a null in a key column"]),
}


@pytest.mark.parametrize(("parts", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_rows_that_cannot_be_told_apart_are_refused(
    keyed: Sink, parts: Sequence[Sequence[Event]], words: Sequence[str]
) -> None:
    """Rows would vanish in silence, or any of two be in the table by chance."""
    put(keyed, [("I", 9, "EU", 9, 1)])
    messages = keyed_tasks(plan_by_keys(keyed), *parts)

    with pytest.raises(RefusedRowsError, match=rf"Cannot commit to {NAME}, nothing was committed: ") as raised:
        keyed.commit(messages)

    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert values(keyed) == [(9, "EU", 9)]
    assert not any(path.exists() for path in paths_of(messages))
    check_verified(keyed)


def test_key_that_cannot_be_read_for_the_error_is_told_by_its_place(
    keyed: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would get an error of the storage instead of what is wrong with the rows."""
    messages = keyed_tasks(plan_by_keys(keyed), [("U", 1, "EU", 1, 1)], [("U", 1, "EU", 2, 1)])

    def fail(*_: object) -> str:
        raise OSError("gone")

    monkeypatch.setattr(cross_task, "read_keys", fail)
    with pytest.raises(RefusedRowsError, match=r"1 keys have several rows.*row 0 of file://"):
        keyed.commit(messages)


def test_tasks_that_may_share_keys_they_do_not_report_are_refused(keyed: Sink) -> None:
    """A key could have two rows, and nobody would know."""
    messages = keyed_tasks(plan_by_keys(keyed), *COLLIDING)
    silent = [replace(message, keys=replace(message.keys, key_report=None, modulus=1)) for message in messages]

    with pytest.raises(RefusedRowsError, match=r"distribute\(df, keys=\['id'\]\)"):
        keyed.commit(silent)

    assert keyed.table().metadata.snapshots == []
    assert not any(path.exists() for path in paths_of(messages))


def test_task_that_tells_of_other_rows_than_it_wrote_is_refused(keyed: Sink) -> None:
    """Rows would be hidden that nothing is wrong with."""
    first, second = keyed_tasks(plan_by_keys(keyed), *COLLIDING)
    assert first.keys is not None
    assert first.keys.key_report is not None
    key_report = decode_key_report(first.keys.key_report)
    wrong = encode_key_report(key_report.slice(1).to_batches(), key_report.schema)

    with pytest.raises(CommitMessageError, match="task 0 reports keys of other rows than the 3"):
        keyed.commit([replace(first, keys=replace(first.keys, key_report=wrong)), second])

    assert keyed.table().metadata.snapshots == []
    assert not any(path.exists() for path in paths_of([first, second]))


def test_first_write_by_keys_creates_the_table(sink: Sink) -> None:
    """A table could not begin with a change feed."""
    plan = creating(sink)

    sink.commit(keyed_tasks(plan, *COLLIDING))

    assert values(sink) == COLLIDED
    assert sink.table().schema().identifier_field_ids == [1]
    check_verified(sink)


def test_refused_first_write_creates_no_table(sink: Sink) -> None:
    """A failed write would leave an empty table."""
    messages = keyed_tasks(creating(sink), [NULL_KEY, ("U", 1, "EU", 1, 1)])

    with pytest.raises(RefusedRowsError):
        sink.commit(messages)

    assert sink.catalog.find_table(IDENTIFIER) is None
    assert not any(path.exists() for path in paths_of(messages))


def test_table_that_another_writer_made_without_the_keys_meanwhile_is_a_conflict(sink: Sink) -> None:
    """Rows would be replaced by keys in a table whose readers know of none."""
    messages = keyed_tasks(creating(sink), *COLLIDING)
    sink.create(KEYED_SCHEMA.model_copy(update={"identifier_field_ids": []}))

    with pytest.raises(CommitConflictError, match="identifier fields became none"):
        sink.commit(messages)

    assert not any(path.exists() for path in paths_of(messages))


def creating(sink: Sink) -> Any:
    """Return the plan of a write by keys that creates the table."""
    plan = plan_by_keys(sink, use_nullable_query_schema=False)
    assert plan.write.new_table is not None
    staged = TableMetadataUtil.parse_raw(plan.write.new_table)
    schema = staged.schema().model_copy(update={"identifier_field_ids": [1]})
    return replace(
        plan, write=replace(plan.write, new_table=staged.model_copy(update={"schemas": [schema]}).model_dump_json())
    )


def test_replay_of_a_landed_epoch_changes_nothing(keyed: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A restart would change rows again, leave files behind, or look like a loss of rows."""
    put(keyed, *COLLIDING, of_epoch=epoch(0))
    put(keyed, [("U", 1, "EU", 11, 9)], of_epoch=epoch(1))
    replayed = keyed_tasks(plan_by_keys(keyed), [*COLLIDING[0], *COLLIDING[1]], of_epoch=epoch(1))
    (as_before,) = keyed_tasks(plan_by_keys(keyed), [("U", 1, "EU", 11, 9)], of_epoch=epoch(1))

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        assert keyed.commit([as_before]).was_replayed
        assert caplog.records == []
        assert keyed.commit(replayed).was_replayed
    assert "committed with 1 rows, and now has 3" in caplog.text
    assert values(keyed) == [(1, "EU", 11), *COLLIDED[1:]]
    check_verified(keyed)


def test_rows_that_are_divided_otherwise_in_a_replay_are_as_many(keyed: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Every restart after which tasks get other rows would look like a loss."""
    put(keyed, *COLLIDING, of_epoch=epoch(0))

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        put(keyed, [*COLLIDING[0], *COLLIDING[1]], of_epoch=epoch(0))

    assert json.loads(keyed.table().properties[f"icebergsink.last-epoch.main.{QUERY}"])["record-count"] == 3
    assert caplog.records == []


def test_replay_of_a_landed_epoch_is_skipped_even_if_its_rows_would_be_refused(keyed: Sink) -> None:
    """A stream could not go on after a restart with stricter options, although its rows are in the table."""
    tied: list[Event] = [("U", 1, "EU", 1, 1)]
    put(keyed, tied, tied, feed=events_feed(is_enforced=False), of_epoch=epoch(0))
    silent = [
        replace(message, keys=replace(message.keys, key_report=None, modulus=1))
        for message in keyed_tasks(plan_by_keys(keyed), tied, tied, of_epoch=epoch(0))
    ]

    assert put(keyed, tied, tied, of_epoch=epoch(0)).was_replayed
    assert put(keyed, [NULL_KEY], [NULL_KEY], of_epoch=epoch(0)).was_replayed
    assert keyed.commit(silent).was_replayed
    check_verified(keyed)


def test_branch_has_deletes_of_its_own(keyed: Sink) -> None:
    """Rows of `main` would vanish with a write to another branch."""
    put(keyed, [("I", 1, "EU", 1, 1), ("I", 2, "EU", 2, 1)])

    put(keyed, [("D", 1, "EU", None, 2)], [("U", 2, "EU", 22, 2)], branch="audit", create_branch=True)

    assert values(keyed) == [(1, "EU", 1), (2, "EU", 2)]
    assert values(keyed, "audit") == [(2, "EU", 22)]
    check_verified(keyed)


def test_staged_deletes_are_published(keyed: Sink) -> None:
    """Readers would meet rows of a write that was to be looked at first, or never its deletes."""
    put(keyed, [("I", 1, "EU", 1, 1), ("I", 2, "EU", 2, 1)])
    seen = []
    plan = plan_by_keys(keyed, staging_branch="stage")
    messages = keyed_tasks(plan, *COLLIDING)

    keyed.commit(messages)
    seen = values(keyed)

    assert seen == COLLIDED
    assert values(keyed, "stage") == COLLIDED
    check_verified(keyed)


def drop_key(sink: Sink) -> None:
    """Let the key be another column."""
    with sink.table().update_schema(allow_incompatible_changes=True) as change:
        change.set_identifier_fields("region")


def partition_otherwise(sink: Sink) -> None:
    """Let new rows be partitioned otherwise."""
    with sink.table().update_spec() as change:
        change.add_identity("region")


MEANWHILE = {
    "keys": (drop_key, "its identifier fields became region"),
    "partitions": (partition_otherwise, "its partitioning changed"),
}


@pytest.mark.parametrize(("change", "words"), MEANWHILE.values(), ids=MEANWHILE.keys())
def test_change_under_the_keys_meanwhile_is_a_conflict(sink: Sink, change: Any, words: str) -> None:
    """Deletes would not reach the rows that they are meant for, and keys have two rows."""
    sink.create(KEYED_SCHEMA, BY_ID)
    put(sink, [("I", 1, "EU", 1, 1)])
    messages = keyed_tasks(plan_by_keys(sink), *COLLIDING)
    change(sink)

    with pytest.raises(CommitConflictError, match=f"nothing was committed: {words} while rows were written by keys"):
        sink.commit(messages)

    assert len(sink.table().metadata.snapshots) == 1
    assert not unreferenced_files(sink.table())


def test_partitioning_may_change_while_rows_are_written_if_deletes_are_of_the_whole_table(keyed: Sink) -> None:
    """A stream would fail because of a change that does no harm."""
    put(keyed, [("I", 1, "EU", 1, 1), ("I", 2, "EU", 2, 1)])
    messages = keyed_tasks(plan_by_keys(keyed), *COLLIDING)
    partition_otherwise(keyed)

    keyed.commit(messages)

    assert values(keyed) == COLLIDED
    check_verified(keyed)


def test_renamed_and_widened_keys_are_no_obstacle(sink: Sink) -> None:
    """A long write would be thrown away because of a harmless change."""
    sink.create(KEYED_SCHEMA)
    put(sink, [("I", 2, "EU", 2, 1)])
    messages = keyed_tasks(plan_by_keys(sink), *COLLIDING)
    with sink.table().update_schema() as change:
        change.rename_column("id", "number")

    sink.commit(messages)

    assert len(sink.table().metadata.snapshots) == 2


def test_position_deletes_that_cannot_be_written_leave_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would pile up with each attempt, or a rest of them be committed."""
    by_region(sink)
    messages = keyed_tasks(plan_by_keys(sink, delete_spec=GLOBAL), *COLLIDING)
    before = stored_files(sink.table().location())
    write, calls = cross_task.write_position_deletes, []

    def fail_second(*arguments: Any) -> Any:
        calls.append(arguments[1])
        if len(calls) == 2:
            raise OSError("no space left")
        return write(*arguments)

    monkeypatch.setattr(cross_task, "write_position_deletes", fail_second)
    sink.commit(messages)

    assert len(set(calls)) == len(calls) == 4
    assert values(sink) == COLLIDED
    assert len(stored_files(sink.table().location()) - before) == 2 + 4  # position deletes; three manifests and a list
    check_verified(sink)


def test_position_deletes_that_are_whole_go_with_a_failure(sink: Sink) -> None:
    """A file that was finished just before the failure would be left behind by each attempt."""
    by_region(sink)
    messages = keyed_tasks(plan_by_keys(sink, delete_spec=GLOBAL), *COLLIDING)
    before = stored_files(sink.table().location())

    def fail(step: FaultPoint) -> None:
        if step is FaultPoint.FILE_CLOSED:
            raise KeyboardInterrupt

    listen(fail)
    try:
        with pytest.raises(KeyboardInterrupt):
            sink.commit(messages)
    finally:
        listen(None)

    assert stored_files(sink.table().location()) == before


def test_position_deletes_that_can_never_be_written_commit_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losing rows would be in the table."""
    sink.create(KEYED_SCHEMA)
    messages = keyed_tasks(plan_by_keys(sink), *COLLIDING)

    def fail(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cross_task, "write_position_deletes", fail)
    with pytest.raises(IcebergSinkError):
        sink.commit(messages)

    assert sink.table().metadata.snapshots == []
    assert stored_files(sink.table().location()) == set()


def test_commit_needs_no_look_at_rows_that_are_apart(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit would pay for what only collisions need."""

    def fail(*_: Any) -> Any:
        raise AssertionError("read")

    monkeypatch.setattr(cross_task, "decode_key_report", fail)
    messages: list[TaskCommit] = keyed_tasks(plan_by_keys(keyed), [("U", 1, "EU", 1, 1)], [("U", 2, "EU", 2, 1)])

    commit_write(keyed.catalog, messages)

    assert listed(keyed.table())[POSITIONS] == []
