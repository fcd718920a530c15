"""Plans of reads: which files, which are passed over, and which tables are refused."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables.delete_files import add_again, delete_equal, delete_positions, entries, with_ids
from support.tables.reading import planned, read_by_tasks
from support.tables.regions import in_region, partitioned, run
from support.tables.sink import Sink, local

from iceberg_ds.errors import DataFileError, UnsupportedTableError


def test_files_of_other_partitions_are_passed_over(sink: Sink) -> None:
    """A read of one region would open the files of all regions."""
    run(partitioned(sink), "append", [*in_region("EU", 1, 2), *in_region("US", 3)])
    run(partitioned(sink), "append", in_region("US", 4, 9))

    plan = planned(sink, where="region = 'US' AND id > 5").plan

    assert [task.work.data_file.record_count for task in plan.tasks] == [2]
    assert plan.left_out == 2


def test_deletes_come_with_the_files_that_they_apply_to(sink: Sink) -> None:
    """Deletes would be looked for in every file, or in none."""
    run(partitioned(sink), "append", [*in_region("EU", 1, 2), *in_region("US", 3, 4)])
    first, second = (entry.data_file for entry in entries(sink))
    delete_positions(sink, first.file_path, [0])
    delete_equal(sink, with_ids(pa.table({"id": [second.record_count + 2, 2]}), id=1), [1], of=second)

    plan = planned(sink).plan

    found = {task.work.path: (len(task.work.hidden_by.positions), len(task.work.keys)) for task in plan.tasks}
    assert found[first.file_path][0] == 1
    assert found[second.file_path] == (0, 1)
    assert len(plan.deletes) == len(plan.key_files) == 1


def test_file_that_is_listed_twice_is_refused(sink: Sink) -> None:
    """Its rows would be there twice with one reader, and once with the other."""
    sink.append(1, 2)
    (entry,) = entries(sink)
    add_again(sink, entry.data_file)

    with pytest.raises(UnsupportedTableError, match=re.escape(f"it lists {entry.data_file.file_path} more than once")):
        planned(sink)


def test_manifest_that_is_missing_fails_the_read(sink: Sink) -> None:
    """The rows of its files would be missing."""
    sink.append(1, 2)
    table = sink.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        local(manifest.manifest_path).unlink()

    with pytest.raises(DataFileError, match=r"the manifests of snapshot \d+ cannot be read: FileNotFoundError"):
        planned(sink)


def test_files_without_field_ids_are_refused_without_a_name_mapping(sink: Sink) -> None:
    """Their columns would be null."""
    sink.append(1, 2)
    (entry,) = entries(sink)
    path = local(entry.data_file.file_path)
    pq.write_table(pq.read_table(path).cast(pa.schema([("id", pa.int64()), ("name", pa.string())])), path)

    with pytest.raises(UnsupportedTableError, match="cannot be matched with the table's columns"):
        read_by_tasks(sink)
