"""Whatever step loses or doubles rows: the counts do not add up, nothing is committed, and no file is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from support.checks.invariants import check_clean, unreferenced_files
from support.keys.conversions import convert
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import upsert
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.sink import Sink, local, rows

from iceberg_ds.commit import cross_task, producer, write_files
from iceberg_ds.commit import overwrite as replacing
from iceberg_ds.commit import overwrite as rewriting
from iceberg_ds.errors import DataFileError, RowCountError
from iceberg_ds.messages import RowCounts, check_rows
from iceberg_ds.snapshots.manifests import draft_added, draft_filtered
from iceberg_ds.table.specs import parse_sort_by
from iceberg_ds.writers import position_deletes, reporting
from iceberg_ds.writers import rewriting as resolving_rewriting
from iceberg_ds.writers.rolling import RollingWriter

EVENTS: list[Event] = [
    ("I", 1, "EU", 1, 1),
    ("U", 1, "EU", 2, 2),
    ("-U", 1, "EU", 1, 2),
    ("I", 2, "EU", 3, 1),
    ("D", 2, "EU", None, 3),
    ("D", 3, "EU", None, 1),
    ("D", 3, "EU", None, 2),
    ("I", 4, "EU", 4, 1),
]


@pytest.fixture
def group_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a task drop the last row of each row group of a file of rows or of deletes."""
    write_group = RollingWriter._write_group

    def short(self: RollingWriter, batches: list[pa.RecordBatch], *, is_last: bool) -> None:
        *others, last = batches
        write_group(self, [*others, last.slice(0, last.num_rows - 1)], is_last=is_last)

    monkeypatch.setattr(RollingWriter, "_write_group", short)


def without_last(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose batches lack the last row of each."""

    def short(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in call(*arguments, **options):
            yield batch.slice(0, batch.num_rows - 1)

    return short


def check_refused(sink: Sink, before: list[Any], snapshots: int) -> None:
    """Assert that the table is as it was, and that no file is left that it does not have."""
    assert sink.rows() == before
    assert len(sink.table().metadata.snapshots) == snapshots
    check_clean(sink.table())
    assert not unreferenced_files(sink.table())


def test_equal_sums_are_no_error() -> None:
    """Every write would fail."""
    check_rows("write to db.t", "task 3 got", 7, {"in 2 files": 4, "left out": 3})
    check_rows("write to db.t", "task 3 got", 0, {})


@pytest.mark.parametrize(("found", "told"), [(2_548, "13 would be lost"), (2_562, "1 are too many")])
def test_error_says_what_was_counted_where(found: int, told: str) -> None:
    """Nobody could tell where rows were lost."""
    with pytest.raises(RowCountError) as refused:
        check_rows("write to db.t", "task 3 got", 2_561, {"in 4 files": found, "left out": 0})

    text = str(refused.value)
    assert "Cannot write to db.t, nothing was committed: task 3 got 2,561 rows" in text
    assert f"({found:,} in 4 files, 0 left out), so that {told}" in text
    assert "report it" in text


@pytest.mark.usefixtures("group_is_short")
@pytest.mark.parametrize("sort_by", ["", "id"])
def test_task_that_drops_a_row_fails_and_leaves_no_file(sink: Sink, sort_by: str) -> None:
    """A row would be gone in silence, as long as the table lives."""
    plan = sink.plan(sort_by=parse_sort_by(sort_by) if sort_by else None)

    with pytest.raises(RowCountError, match=r"task 0 got 3 rows, and 2 are accounted for"):
        sink.write(rows(1, 2, 3), plan=plan)

    assert not list(local(plan.location).rglob("*.parquet"))


@pytest.mark.usefixtures("group_is_short")
def test_task_that_drops_a_key_to_delete_fails(sink: Sink) -> None:
    """An old row would stay beside the new one of its key."""
    sink.create(KEYED_SCHEMA)
    plan = plan_by_keys(sink)

    with pytest.raises(RowCountError, match=r"has to delete the keys of 4 rows, and 3 are"):
        keyed_tasks(plan, EVENTS)

    assert not list(local(plan.location).rglob("*.parquet"))


def test_every_event_of_a_change_feed_is_accounted_for(sink: Sink) -> None:
    """A write by keys would be refused that loses nothing, or go through although it does."""
    sink.create(KEYED_SCHEMA)
    plan = plan_by_keys(sink)

    (message,) = keyed_tasks(plan, EVENTS)

    assert message.counts == RowCounts(received=8, left_out=6)
    assert [file.record_count for file in message.data_files] == [2]
    assert [file.record_count for file in message.delete_files] == [4]


def test_rows_without_key_or_operation_count_as_left_out(sink: Sink) -> None:
    """Their own error, which says what is wrong with them, would never be seen."""
    sink.create(KEYED_SCHEMA)

    (message,) = keyed_tasks(plan_by_keys(sink), [("?", 1, "EU", 1, 1), ("I", 2, "EU", 1, 1)])

    assert message.counts == RowCounts(received=2, left_out=1)


@pytest.mark.parametrize("way", ["files", "manifest", "handed over"])
@pytest.mark.parametrize("received", [2, 4])
def test_message_that_does_not_add_up_is_refused_and_its_files_go(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, way: str, received: int
) -> None:
    """What is lost between a task's rows and its message would never be missed."""
    monkeypatch.setattr(reporting, "MANY_FILES", 1 if way == "manifest" else 64)
    sink.append(9)
    before = sink.rows()
    write = sink.hand_over if way == "handed over" else sink.write
    (message,) = write(rows(1, 2, 3))
    wrong = replace(message, counts=RowCounts(received=received))

    with pytest.raises(RowCountError, match=rf"task 0 got {received} rows, and 3 are accounted for"):
        sink.commit([wrong])

    check_refused(sink, before, 1)


def test_gathered_rows_that_are_not_all_written_are_refused(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of small tasks would be lost in the committer."""
    sink.append(9)
    before = sink.rows()
    messages = sink.hand_over(rows(1, 2), rows(3))
    write_once = write_files.InlineRows.write_once
    monkeypatch.setattr(
        write_files.InlineRows, "write_once", lambda self, table, is_new: write_once(self, table, is_new=is_new)[1:]
    )

    with pytest.raises(RowCountError, match=r"its tasks tell of 3 rows, and 0 are"):
        sink.commit(messages)

    assert sink.rows() == before
    assert len(sink.table().metadata.snapshots) == 1


def test_file_that_no_manifest_lists_is_missed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a whole task would be gone."""
    sink.append(9)
    before = sink.rows()
    messages = sink.write(rows(1), rows(2, 3))
    monkeypatch.setattr(
        producer, "draft_added", lambda metadata, files, *rest, **more: draft_added(metadata, files[1:], *rest, **more)
    )

    with pytest.raises(RowCountError, match=r"its files of rows have 3 rows, and 2 are"):
        sink.commit(messages)

    check_refused(sink, before, 1)


def test_file_that_stays_and_is_not_listed_again_is_missed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced range would take the rows beside it along."""
    sink.commit(sink.write(rows(1, 2), rows(3, 4, 5)))
    before = sink.rows()
    monkeypatch.setattr(
        producer, "draft_filtered", lambda path, manifest, kept, *rest: draft_filtered(path, manifest, kept[1:], *rest)
    )

    with pytest.raises(
        RowCountError, match=r"files that stay in the manifests that it replaces have 3 rows, and 0 are"
    ):
        sink.overwrite([], replace_where="id < 3")

    check_refused(sink, before, 1)


def test_entry_that_a_manifest_is_read_without_is_missed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would fall out of the table when the manifest that lists them is written again."""
    sink.commit(sink.write(rows(1, 2), rows(3, 4, 5)))
    before = sink.rows()
    live_entries = replacing.live_entries
    monkeypatch.setattr(replacing, "live_entries", lambda io, manifest: live_entries(io, manifest)[:1])

    with pytest.raises(RowCountError, match=r"have 5 rows, and 2 are accounted for"):
        sink.overwrite([], replace_where="id < 3")

    check_refused(sink, before, 1)


@pytest.mark.parametrize("deleted", [(), (0,), (0, 2, 2)], ids=["whole", "one deleted", "deleted twice"])
def test_rows_that_stay_of_a_replaced_file_are_counted(sink: Sink, deleted: tuple[int, ...]) -> None:
    """Replacing a part of a file would be refused although nothing is lost."""
    sink.append(1, 2, 3, 4, 5)
    (entry,) = entries(sink)
    for position in deleted:
        delete_positions(sink, entry.data_file.file_path, [position])

    sink.overwrite([], replace_where="id = 2")

    assert sink.ids() == [number for number in (1, 3, 4, 5) if number - 1 not in deleted]


def test_row_that_is_not_written_again_is_missed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A committed row outside the replaced range would be gone."""
    sink.append(1, 2, 3)
    before = sink.rows()
    monkeypatch.setattr(rewriting, "remaining_rows", without_last(rewriting.remaining_rows))

    with pytest.raises(
        RowCountError, match=r"has 3 rows, and 2 are accounted for \(0 deleted before, 1 replaced, 1 in"
    ):
        sink.overwrite([], replace_where="id = 2")

    check_refused(sink, before, 1)


def test_conversion_by_rewriting_misses_a_row(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that nobody deleted would be gone after a conversion."""
    sink.append(1, 2, 3)
    delete_ids(sink, 2)
    rewriter = resolving_rewriting
    monkeypatch.setattr(rewriter, "remaining_rows", without_last(rewriter.remaining_rows))

    with pytest.raises(DataFileError, match=r"has 3 rows, and 2 are accounted for"):
        convert(sink, "copy-on-write")

    assert len(sink.table().metadata.snapshots) == 2
    assert not unreferenced_files(sink.table())


def test_position_that_is_not_written_is_missed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old row would stay beside the new one of its key."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", [("I", 1, "EU", 1, 1), ("I", 2, "EU", 1, 1)])
    before = sink.rows()
    monkeypatch.setattr(position_deletes, "_groups", without_last(position_deletes._groups))

    with pytest.raises((RowCountError, DataFileError), match=r"it is to hide 2 rows, and 1 are"):
        upsert(sink, "position", [("U", 1, "EU", 2, 2), ("U", 2, "EU", 2, 2)])

    assert sink.rows() == before
    assert not unreferenced_files(sink.table())


def test_row_that_loses_and_is_not_found_is_missed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of one key would be in the table."""
    sink.create(KEYED_SCHEMA)
    messages = keyed_tasks(plan_by_keys(sink), [("I", 1, "EU", 1, 1)], [("U", 1, "US", 2, 2)])
    monkeypatch.setattr(cross_task, "file_positions", lambda *_: {})

    with pytest.raises(RowCountError, match=r"what tasks tell of keys hides 1 rows, and 0 are"):
        sink.commit(messages)

    assert sink.rows() == []
    assert not unreferenced_files(sink.table())
