"""What is asked of PyIceberg's private parts: a new version that answers otherwise is found here."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot
from support.delete_files import delete_positions, entries
from support.metadata import line, metadata_of
from support.tables import Sink

from iceberg_ds.pyiceberg_inner import deleted_positions, summary_entries


def test_deleted_positions_are_those_of_all_delete_files_of_a_file(sink: Sink) -> None:
    """Rows that another engine deleted would come back when their file is written again."""
    sink.append(1, 2, 3, 4)
    sink.append(5, 6)
    first, second = (entry.data_file.file_path for entry in reversed(entries(sink)))
    delete_positions(sink, first, [0, 3])
    delete_positions(sink, first, [1])
    table = sink.table()
    tasks = {task.file.file_path: task for task in table.scan().plan_files()}

    assert sorted(deleted_positions(table.io, tasks[first]).to_pylist()) == [0, 1, 3]
    assert deleted_positions(table.io, tasks[second]).to_pylist() == []


def test_summary_says_the_same_by_its_private_name() -> None:
    """Marks of all writers would be overlooked, and each write repeated would land twice."""
    marked, bare = metadata_of(line(1, 2, s1={"app": "7"})).snapshots
    loaded = Snapshot.model_validate_json(marked.model_dump_json())
    none = marked.model_copy(update={"summary": None})

    assert marked.summary is not None
    assert summary_entries(marked) is marked.summary.additional_properties
    assert "_additional_properties" in (marked.summary.__pydantic_private__ or {})  # else the long way is taken
    assert [dict(summary_entries(snapshot)) for snapshot in (marked, loaded, bare, none)] == [{"app": "7"}] * 2 + [
        {}
    ] * 2
