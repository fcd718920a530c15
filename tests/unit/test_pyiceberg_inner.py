"""What is asked of PyIceberg's private parts: a new version that answers otherwise is found here."""

from __future__ import annotations

from support.delete_files import delete_positions, entries
from support.tables import Sink

from iceberg_ds.pyiceberg_inner import deleted_positions


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
