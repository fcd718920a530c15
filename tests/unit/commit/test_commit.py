"""The entrance of a commit: what is checked before anything is sent, and writes without rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_sound, unreferenced_files
from support.keys.messages import with_deletes
from support.tables.sink import IDENTIFIER, SCHEMA, Row, Sink, epoch, local, paths_of, rows

from iceberg_ds.commit.commit import commit_write
from iceberg_ds.errors import CommitMessageError, CommitStateUnknownError, DataFileError, IcebergSinkError
from iceberg_ds.messages import TaskCommit


def test_first_batch_creates_the_table_with_its_rows(sink: Sink) -> None:
    """A first write would fail, or leave an empty table if it dies."""
    result = sink.append(1, 2)

    table = sink.table()
    assert sink.ids() == [1, 2]
    assert [snapshot.snapshot_id for snapshot in table.metadata.snapshots] == [result.snapshot_id]
    assert not unreferenced_files(table)
    check_sound(table)


def test_files_of_all_tasks_are_one_snapshot(sink: Sink) -> None:
    """Readers would see half of a write."""
    sink.commit(sink.write(rows(1, 2), [], rows(3), rows(4)))

    assert sink.ids() == [1, 2, 3, 4]
    assert len(sink.table().metadata.snapshots) == 1


def test_later_writes_keep_the_rows_of_earlier_ones(sink: Sink) -> None:
    """A write would replace the table."""
    for number in range(5):
        sink.append(number)

    assert sink.ids() == list(range(5))
    check_sound(sink.table())
    assert not unreferenced_files(sink.table())


def test_sequence_numbers_count_up(sink: Sink) -> None:
    """Deletes of other engines would apply to the wrong rows."""
    for number in range(3):
        sink.append(number)

    metadata = sink.table().metadata
    assert [snapshot.sequence_number for snapshot in metadata.snapshots] == [1, 2, 3]
    assert metadata.last_sequence_number == 3
    entries = sink.table().inspect.entries().to_pylist()
    assert sorted(entry["sequence_number"] for entry in entries) == [1, 2, 3]


def test_version_1_table_takes_rows(sink: Sink) -> None:
    """Old tables could not be written."""
    inner = sink.catalog._catalog
    inner.create_namespace("db")
    inner.create_table(IDENTIFIER, sink.plan().schema, properties={"format-version": "1"})

    sink.append(1)
    sink.append(2)

    assert sink.table().metadata.format_version == 1
    assert sink.ids() == [1, 2]
    check_sound(sink.table())


@pytest.mark.parametrize("given", [[], [None], "missing one"])
def test_incomplete_messages_commit_nothing(sink: Sink, given: Any) -> None:
    """Rows would be lost, and the stream would go on."""
    written = sink.write(rows(1), rows(2))
    messages = [written[0], None] if given == "missing one" else given

    with pytest.raises(CommitMessageError, match="nothing was committed"):
        commit_write(sink.catalog, messages)

    assert sink.catalog.find_table(IDENTIFIER) is None


def test_batch_without_rows_creates_the_table(sink: Sink) -> None:
    """A job that reads the table next would fail on a day without rows."""
    result = sink.commit(sink.write([], []))

    assert result.snapshot_id is None
    assert sink.table().metadata.snapshots == []
    assert sink.rows() == []


def test_batch_without_rows_adds_no_snapshot_to_a_table(sink: Sink) -> None:
    """The history would fill with snapshots that change nothing."""
    sink.append(1)

    result = sink.commit(sink.write([]))

    assert result.snapshot_id is None
    assert len(sink.table().metadata.snapshots) == 1


def test_batch_without_rows_loses_a_race_to_create_the_table(sink: Sink) -> None:
    """One of two jobs that start at once would fail."""
    empty = sink.write([])
    sink.append(1)

    assert sink.commit(empty).snapshot_id is None
    assert sink.ids() == [1]


def test_batch_without_rows_finds_the_table_whose_creation_was_not_answered(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A job would fail although it did what it should."""
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    assert faulty_sink.commit(faulty_sink.write([])).snapshot_id is None
    assert faulty_sink.rows() == []


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [state_unknown, server_error, connection_lost, timed_out, throttled])
def test_batch_without_rows_tries_again_to_create_the_table(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Any, when: When
) -> None:
    """A job whose first batch is empty would fail because of one lost answer."""
    faulty_catalog.fail_next(1, error, when=when)

    faulty_sink.commit(faulty_sink.write([]))

    assert sink.ids() == []


@pytest.mark.usefixtures("waits")
def test_batch_without_rows_does_not_say_that_nothing_was_created_while_it_may_be(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would be told that there is no table, and find one."""
    faulty_catalog.fail_next(999, timed_out)

    with pytest.raises(CommitStateUnknownError, match=r"Whether table db\.t was created is unknown"):
        faulty_sink.commit(faulty_sink.write([]))


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("error", [connection_lost, forbidden, refusal])
def test_batch_without_rows_says_that_the_table_could_not_be_created(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Any
) -> None:
    """A job would report success without its table."""
    faulty_catalog.fail_next(999, error)

    with pytest.raises(IcebergSinkError, match=r"db\.t"):
        faulty_sink.commit(faulty_sink.write([]))

    assert faulty_sink.catalog.find_table(IDENTIFIER) is None


def test_epoch_without_rows_neither_creates_nor_adds(sink: Sink) -> None:
    """Idle streams would fill the history with snapshots that change nothing."""
    result = sink.commit(sink.write([], of_epoch=epoch(0)))

    assert result.snapshot_id is None
    assert sink.catalog.find_table(IDENTIFIER) is None


def missing(message: TaskCommit) -> None:
    """Remove the file of the task, as if it lay on another machine."""
    paths_of([message])[0].unlink()


def cut(message: TaskCommit) -> None:
    """Leave half of the file of the task."""
    path = paths_of([message])[0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(("damage", "seen"), [(missing, "None"), (cut, r"\d+")])
def test_local_file_that_the_driver_does_not_see_is_refused(sink: Sink, damage: Any, seen: str) -> None:
    """A table would refer to files that lie on some executor's disk."""
    messages = sink.write(rows(1), rows(2))
    damage(messages[1])

    with pytest.raises(DataFileError, match=rf"with \d+ bytes, and the driver sees {seen}\. On a cluster"):
        sink.commit(messages)

    assert sink.catalog.find_table(IDENTIFIER) is None
    assert not any(path.exists() for path in paths_of(messages))


def test_deletes_that_the_driver_does_not_see_are_refused(sink: Sink) -> None:
    """A cluster without a shared file system would get a table that nobody can read."""
    messages = [with_deletes(message) for message in sink.write(rows(1), rows(2))]
    (delete_file,) = messages[1].delete_files
    local(delete_file.file_path).unlink()

    with pytest.raises(DataFileError, match=r"-deletes\.parquet with 7 bytes, and the driver sees None"):
        sink.commit(messages)

    assert sink.catalog.find_table(IDENTIFIER) is None
    assert not any(path.exists() for path in paths_of(messages))


def test_local_files_are_seen_however_their_location_is_written(sink: Sink) -> None:
    """A table whose location begins with `file:/`, as Hadoop writes it, could not be written."""
    location = sink.plan().location.replace("file:///", "file:/")
    sink.catalog._catalog.create_namespace_if_not_exists("db")
    sink.catalog._catalog.create_table(IDENTIFIER, sink.plan().schema, location=location)

    sink.append(1)

    assert sink.ids() == [1]


def test_renamed_and_widened_columns_take_the_files_of_an_older_plan(sink: Sink) -> None:
    """A long write would be thrown away because of a harmless change."""
    sink.append(1)
    messages = sink.write(rows(2))
    with sink.table().update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("more", sink.plan().schema.find_type("id"))

    sink.commit(messages)

    assert sink.rows() == [
        {"id": 1, "title": "row 1", "more": None},
        {"id": 2, "title": "row 2", "more": None},
    ]


def test_files_of_an_older_spec_are_found_by_queries_on_the_new_one(sink: Sink) -> None:
    """Point look-ups would miss rows after the table's partitioning evolved during a write."""
    sink.append(1)
    with sink.table().update_spec() as update:
        update.add_identity("name")
    messages = sink.write(rows(*range(2, 8)))
    with sink.table().update_spec() as update:
        update.remove_field("name")
        update.add_identity("id")

    sink.commit(messages)

    for number in range(1, 8):
        assert sink.table().scan(row_filter=f"id = {number}").to_arrow().to_pylist() == rows(number)
        assert sink.table().scan(row_filter=f"name = 'row {number}'").to_arrow().to_pylist() == rows(number)
    check_sound(sink.table())


def test_parts_of_one_write_may_have_files_of_any_number(sink: Sink) -> None:
    """A task with several files, or none, would break the commit."""
    plan = sink.plan(target_file_size_bytes=1)

    sink.commit(sink.write(rows(1, 2, 3), [], rows(4), plan=plan))

    assert sink.ids() == [1, 2, 3, 4]
    assert sink.table().metadata.snapshots[0].summary is not None
    assert sink.table().metadata.snapshots[0].summary["added-data-files"] == "4"


def test_nothing_but_the_reported_files_is_committed(sink: Sink) -> None:
    """Rows of a speculative attempt would be there twice."""
    plan = sink.plan()
    losing = sink.write(rows(1), plan=plan)
    winning = sink.write(rows(1), plan=plan)

    sink.commit(winning)

    assert sink.ids() == [1]
    assert unreferenced_files(sink.table()) == set(paths_of(losing))


def test_message_of_another_table_is_refused(sink: Sink) -> None:
    """Rows would go into a table that they were not written for."""
    sink.append(1)
    (message,) = sink.write(rows(2))
    stray = replace(message, write=replace(message.write, table_uuid="00000000-0000-0000-0000-00000000dead"))

    with pytest.raises(CommitMessageError, match="dropped and made again"):
        sink.commit([stray])

    assert sink.ids() == [1]


def test_wide_rows_of_schema_order_survive(sink: Sink) -> None:
    """Columns would change places between write and read."""
    data: list[Row] = [{"id": None, "name": "ü" * 100}, {"id": -1, "name": None}]

    sink.commit(sink.write(data, schema=SCHEMA))

    assert sorted(sink.rows(), key=str) == sorted(data, key=str)
