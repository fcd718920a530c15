"""Which files are read for the changes of a snapshot, and which of their rows."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.typedef import Record
from support.tables.changes_by_others import expire, head_of
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_equal, delete_positions, entries, take_deletes_back, with_ids
from support.tables.metadata import line, metadata_of
from support.tables.reading import changes_by_tasks, planned
from support.tables.sink import Row, Sink, rows

from iceberg_ds.deletes.work import FileWork, KeyFile
from iceberg_ds.errors import OptionError, StreamHistoryError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.reading import change_scan
from iceberg_ds.reading.change_history import ChangeStep
from iceberg_ds.reading.change_scan import changed_tasks
from iceberg_ds.reading.lives import Life
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.snapshots.live_files import DeletionVector, HiddenBy, LiveFile

STEP = ChangeStep(snapshot=metadata_of(line(5)).snapshots[0], parent=None, ordinal=3)


def changes(sink: Sink, after: int) -> list[tuple[str, int, int]]:
    """Return kind, ordinal and id of the changes after a snapshot."""
    found: list[Row] = changes_by_tasks(sink, changes_after_snapshot_id=after, snapshot_id=head_of(sink))
    return sorted((row["_change_type"], row["_change_ordinal"], row["id"]) for row in found)


def files_read(sink: Sink, after: int) -> int:
    """Return of how many files rows are read."""
    return len(planned(sink, changes_after_snapshot_id=after, snapshot_id=head_of(sink)).plan.tasks)


def test_deleted_rows_alone_are_read_of_a_file_that_stays(sink: Sink) -> None:
    """Each delete of a row would look like a change of all rows of its file."""
    sink.append(*range(10))
    start = head_of(sink)
    (file,) = [entry.data_file for entry in entries(sink)]
    delete_positions(sink, file.file_path, [2, 3])
    delete_equal(sink, with_ids(pa.table({"id": [3, 5, 77]}), id=1), [1], of=file)
    delete_positions(sink, file.file_path, [5, 6])

    assert changes(sink, start) == [("DELETE", 0, 2), ("DELETE", 0, 3), ("DELETE", 1, 5), ("DELETE", 2, 6)]


def test_rows_of_removed_files_are_deletes_unless_they_were_deleted_before(sink: Sink) -> None:
    """A copy would be told to delete rows that it does not have."""
    sink.append(1, 2, 3)
    delete_positions(sink, entries(sink)[0].data_file.file_path, [1])
    start = head_of(sink)
    sink.overwrite(rows(7))

    assert changes(sink, start) == [("DELETE", 0, 1), ("DELETE", 0, 3), ("INSERT", 0, 7)]


def test_rows_written_with_a_delete_of_their_own_snapshot_are_read_as_visible(sink: Sink) -> None:
    """An epoch that writes a row and takes it back would insert it for good."""
    sink.append(1)
    start = head_of(sink)
    plan = sink.plan(keys=("id",), sequence_by=("name",))
    sink.commit(sink.write([{"id": 5, "name": "a"}], [{"id": 5, "name": "b"}], plan=plan))

    found = changes_by_tasks(sink, changes_after_snapshot_id=start, snapshot_id=head_of(sink))

    assert [(row["_change_type"], row["id"], row["name"]) for row in found] == [("INSERT", 5, "b")]


def test_files_of_both_snapshots_are_not_read_without_new_deletes(sink: Sink) -> None:
    """Each commit would read the whole table."""
    for number in range(5):
        sink.append(number)
    start = head_of(sink)
    sink.append(7)
    delete_positions(sink, entries(sink)[0].data_file.file_path, [0])

    assert files_read(sink, start) == 2


def test_deletes_of_one_snapshot_are_looked_for_together(sink: Sink) -> None:
    """A row would be deleted by a snapshot before the one that deleted it, and again by that one."""
    sink.append(0, 1)
    sink.append(2)
    start = head_of(sink)
    first, second = (entry.data_file for entry in entries(sink))
    for number in (2, 0, 1):
        delete_equal(sink, with_ids(pa.table({"id": [number]}), id=1), [1], of=first)

    assert second.spec_id == first.spec_id
    assert changes(sink, start) == [("DELETE", 0, 2), ("DELETE", 1, 0), ("DELETE", 2, 1)]


def test_rows_that_are_visible_again_are_inserts(sink: Sink) -> None:
    """A copy would lack rows whose delete was taken back."""
    sink.append(*range(4))
    (file,) = [entry.data_file for entry in entries(sink)]
    delete_positions(sink, file.file_path, [1])
    delete_equal(sink, with_ids(pa.table({"id": [1, 3]}), id=1), [1], of=file)
    start = head_of(sink)
    take_deletes_back(sink)

    assert changes(sink, start) == [("INSERT", 0, 1), ("INSERT", 0, 3)]


@pytest.mark.parametrize(("were_hidden", "is_read"), [([1, 2], False), ([1, 3], True)])
def test_file_is_not_read_for_deletes_that_were_merged(
    monkeypatch: pytest.MonkeyPatch, were_hidden: list[int], *, is_read: bool
) -> None:
    """Each delete of a row in a file that had some before would read, and compare, all changes of its snapshot."""
    before, after = task("a", ("p",)), task("a", ("q",))
    found = list(changed_tasks([before], [after], STEP))
    hidden = {("p",): were_hidden, ("q",): [1, 2, 4]}
    monkeypatch.setattr(
        change_scan,
        "deleted_positions",
        lambda _, some: {one.work.path: hidden[one.work.hidden_by.positions] for one in some},
    )
    deletes = {name: DataFile.from_args(record_count=3) for name in ("p", "q")}

    left = change_scan._without_undone(LocalFileIO(), found, deletes)

    assert [one.state[1] for one in left] == ["DELETE", "INSERT"] if is_read else ["DELETE"]


def test_manifests_are_read_side_by_side_and_those_that_stay_are_not(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes of a minute in a large table would read all its manifests, snapshot by snapshot."""
    for number in range(6):
        sink.append(number)
    snapshots = [snapshot.snapshot_id for snapshot in sink.table().metadata.snapshots]
    read: list[str] = []
    inner, together = change_scan.live_files, Barrier(3, timeout=30)

    def live_files(io: FileIO, manifest: ManifestFile) -> list[LiveFile]:
        read.append(manifest.manifest_path)
        together.wait()  # each snapshot would wait for the store anew
        return inner(io, manifest)

    monkeypatch.setattr(change_scan, "live_files", live_files)

    plan = planned(sink, changes_after_snapshot_id=snapshots[2], snapshot_id=snapshots[-1]).plan

    assert [task.state[0] for task in plan.tasks] == [0, 1, 2]
    assert len(read) == len(set(read)) == 3


def test_changes_without_history_are_refused(sink: Sink) -> None:
    """A task that plans anew after an expiry would number the snapshots differently."""
    sink.append(1)
    start = head_of(sink)
    sink.append(2)
    sink.append(3)
    expire(sink)

    for option in ("changes_after_snapshot_id", "changes_from_snapshot_id"):
        with pytest.raises(StreamHistoryError, match=f"snapshot {start} has expired"):
            planned(sink, snapshot_id=head_of(sink), **{option: start})
    with pytest.raises(OptionError, match="exclude each other"):
        planned(sink, changes_after_snapshot_id=1, changes_from_snapshot_id=1)
    with pytest.raises(OptionError, match="option 'changes-after-snapshot-id' is 'x'"):
        planned(sink, changes_after_snapshot_id="x")


def task(path: str, positions: tuple[str, ...] = (), keys: tuple[str, ...] = (), vector: int = 0) -> ScanTask:
    """Return a file with its deletes."""
    file = DataFile.from_args(file_path=path, record_count=9, file_size_in_bytes=1, partition=Record())
    listed = tuple(KeyFile(path=key, field_ids=(1,), sequence_number=5) for key in keys)
    place = DeletionVector(path="v", offset=vector, length=4, cardinality=1) if vector else None
    hidden_by = HiddenBy(positions=positions, vector=place)
    return ScanTask(work=FileWork(data_file=file, sequence_number=1, keys=listed, hidden_by=hidden_by), absent={})


def compared(before: list[ScanTask], after: list[ScanTask]) -> list[tuple[str, str, Any]]:
    """Return kind and path of the changes between two lists of files, and the deletes that have to hide their rows."""
    found = []
    for one in changed_tasks(before, after, STEP):
        assert one.change is not None
        told = None
        if one.hidden_by is not None:
            work = one.hidden_by.work
            told = (work.hidden_by.positions, [key.path for key in work.keys], work.hidden_by.vector is not None)
        found.append((one.change.kind, one.work.path, told))
    return found


def test_snapshots_are_compared_file_by_file() -> None:
    """Rows that a snapshot hides, or shows again, would be missing among its changes."""
    again = replace(task("a"), work=replace(task("a").work, sequence_number=9))
    assert compared([task("a")], [again]) == [("DELETE", "a", None), ("INSERT", "a", None)]
    assert compared([task("a")], [task("a")]) == []
    assert compared([task("a")], [task("b")]) == [("DELETE", "a", None), ("INSERT", "b", None)]
    assert compared([task("a", ("p",))], [task("a", ("p", "q"))]) == [("DELETE", "a", (("q",), [], False))]
    assert compared([task("a", (), ("k",))], [task("a", (), ("k", "l"))]) == [("DELETE", "a", ((), ["l"], False))]
    assert compared([task("a")], [task("a", vector=1)]) == [("DELETE", "a", ((), [], True))]
    both = compared([task("a", vector=1)], [task("a", vector=2)])
    assert both == [("DELETE", "a", ((), [], True)), ("INSERT", "a", ((), [], True))]
    assert compared([task("a", ("p",))], [task("a")]) == [("INSERT", "a", (("p",), [], False))]


def test_lives_of_files_are_those_of_the_snapshots(sink: Sink) -> None:
    """Rows of a file that a compaction removed would be deleted by what comes later, and again in their new file."""
    sink.append(0, 1)
    start = head_of(sink)
    (old,) = [entry.data_file for entry in entries(sink)]
    sink.append(2)  # snapshot 0
    rewrite(sink, rewrite_all="true")
    (new,) = [entry.data_file for entry in entries(sink)]
    delete_equal(sink, with_ids(pa.table({"id": [0]}), id=1), [1], of=new)  # snapshot 1
    sink.overwrite(rows(7))  # snapshot 2

    plan = planned(sink, changes_after_snapshot_id=start, snapshot_id=head_of(sink)).plan
    (key,) = plan.key_files
    lives = {path: found for (path, _), found in plan.lives.items()}

    assert old.file_path not in lives  # none of its rows changed
    assert lives[new.file_path] == (Life(2, 5),)
    assert lives[key] == (Life(3, 5),)
    assert sorted(lives.values()) == [(Life(1, 2),), (Life(2, 5),), (Life(3, 5),), (Life(5),)]
