"""Rewrites of position delete files: few in place of many, the same rows hidden, whatever others do meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record
from support.catalogs.faulty_catalog import FaultyCatalog, connection_lost, refusal
from support.checks.invariants import check_clean, check_sound, stored_files, unreferenced_files
from support.checks.reader import listed, rows_of
from support.exhaustive import each_value
from support.keys.conversions import meanwhile, numbers
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.live_files import NO_PARTITIONS, PATH_ID, positions
from support.tables.regions import in_region, partitioned, run
from support.tables.rewrites import hidden_rows, options_of, rewrite_manifests, rewrite_position_deletes
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds import cli
from iceberg_ds.cli import main
from iceberg_ds.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    OptionError,
    RowCountError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.maintenance import position_delete_tasks as tasks
from iceberg_ds.maintenance import rewrite_position_deletes as rewriting
from iceberg_ds.maintenance.position_delete_tasks import Target, portions
from iceberg_ds.maintenance.rewrite_position_deletes import PositionDeleteRewrite, Selection, Sizes, select
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.snapshots.live_files import LiveFile
from iceberg_ds.snapshots.version_3 import in_version

pytestmark = pytest.mark.usefixtures("waits")

POSITIONS = DataFileContent.POSITION_DELETES
STEPS = (
    FaultPoint.PLANNED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.TASK_WRITTEN,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.MANIFESTS_WRITTEN,
)


@pytest.fixture
def filled(sink: Sink) -> Sink:
    """Return the sink of a table with two files of ten rows in each of two regions, and six deletes in each region."""
    sink = partitioned(sink)
    for first in (0, 100):
        run(
            sink,
            "append",
            [*in_region("EU", *range(first, first + 10)), *in_region("US", *range(first + 50, first + 60))],
        )
    for number in range(3):
        for path in paths(sink):
            delete_positions(sink, path, [number, number + 5])
    return sink


def paths(sink: Sink, content: DataFileContent = DataFileContent.DATA) -> list[str]:
    """Return the paths of the live files of `main`."""
    return sorted(entry.data_file.file_path for entry in entries(sink) if entry.data_file.content == content)


def check_same(sink: Sink, rows: Any, branch: str = "main") -> None:
    """Assert that the rows are the same, to every reader, and that the table is whole."""
    table = sink.table()
    assert rows_of(table, branch) == rows
    if branch == "main" and not listed(table)[DataFileContent.EQUALITY_DELETES]:
        assert sorted(sink.rows(), key=str) == sorted(rows, key=str)
    check_clean(table)
    result = iceberg_ds.verify(NAME, options=options_of(sink), deep=True)
    assert result.ok, str(result)


def test_many_files_become_one_in_each_partition(filled: Sink) -> None:
    """Readers would open each file of a few deletes, and get slower with each upsert."""
    rows, hidden = rows_of(filled.table()), hidden_rows(filled.table())

    result = rewrite_position_deletes(filled)

    table = filled.table()
    assert len(paths(filled, POSITIONS)) == 2
    assert (result.rewritten_delete_files_count, result.added_delete_files_count) == (12, 2)
    assert result.rewritten_bytes_count > result.added_bytes_count > 0
    assert hidden_rows(table) == hidden
    check_same(filled, rows)
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.snapshot_id == result.snapshot_id
    assert head.summary.operation is Operation.REPLACE
    assert head.summary["total-delete-files"] == "2"
    assert head.summary["total-position-deletes"] == str(sum(map(len, hidden.values())))
    assert json.loads(result.to_json())["added_delete_files_count"] == 2
    assert str(result).startswith("Rewrote 12 position delete files of branch 'main' of db.t")


def test_second_rewrite_finds_nothing_to_do(filled: Sink) -> None:
    """A job that runs each night would add a snapshot each night."""
    assert rewrite_position_deletes(filled).snapshot_id is not None

    again = rewrite_position_deletes(filled)

    assert again.snapshot_id is None
    assert str(again).startswith("Nothing to rewrite: branch 'main' of db.t")
    assert rewrite_position_deletes(filled, rewrite_all="true").rewritten_delete_files_count == 2


def test_new_files_have_the_highest_number_of_those_they_replace(filled: Sink) -> None:
    """They would not reach rows of the last commit before the deletes; or reach rows that came after them."""
    before = numbers(filled.table(), POSITIONS)

    rewrite_position_deletes(filled)

    assert max(numbers(filled.table(), POSITIONS)) == max(before)
    assert len({max(before) - number for number in numbers(filled.table(), POSITIONS)}) == 2


def test_positions_of_data_files_that_are_gone_are_dropped(filled: Sink) -> None:
    """A table that is compacted now and then would carry the deletes of all its past."""
    run(filled, "where region = 'EU'", in_region("EU", 900))
    rows = rows_of(filled.table())

    result = rewrite_position_deletes(filled, where="region = 'EU'")

    assert (result.rewritten_delete_files_count, result.added_delete_files_count) == (6, 0)
    check_same(filled, rows)


def test_only_partitions_of_the_predicate_are_rewritten(filled: Sink) -> None:
    """A job for yesterday's partition would go through the whole table."""
    rows = rows_of(filled.table())

    result = rewrite_position_deletes(filled, where="region = 'EU' and id > 3")

    assert (result.rewritten_delete_files_count, result.added_delete_files_count) == (6, 1)
    check_same(filled, rows)
    with pytest.raises(OptionError, match="where is no predicate of its columns"):
        rewrite_position_deletes(filled, where="nothing = 1")


def test_new_files_are_of_the_wanted_size(filled: Sink) -> None:
    """One file of a large partition would grow without end."""
    rows = rows_of(filled.table())

    result = rewrite_position_deletes(
        filled, target_file_size_bytes=1500, min_file_size_bytes=1, max_file_size_bytes=1501
    )

    assert result.snapshot_id is None or result.added_delete_files_count >= 2
    result = rewrite_position_deletes(
        filled, target_file_size_bytes=1500, min_file_size_bytes=1, max_file_size_bytes=1501, rewrite_all="true"
    )
    assert result.added_delete_files_count == 4
    check_same(filled, rows)


def test_files_for_one_data_file_each_stay_so(filled: Sink) -> None:
    """Readers of one data file would read the deletes of all, although the table asks for granularity `file`."""
    with filled.table().transaction() as change:
        change.set_properties(**{"write.delete.granularity": "file"})
    rows = rows_of(filled.table())

    assert rewrite_position_deletes(filled).added_delete_files_count == 4
    assert rewrite_position_deletes(filled, min_input_files=2).snapshot_id is None
    check_same(filled, rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_input_files": "many"}, "option 'min-input-files' is 'many'"),
        ({"rewrite_all": "perhaps", "max_file_size_bytes": "-1"}, "(?s)'rewrite-all'.*'max-file-size-bytes'|'max-file"),
        ({"min_file_size_bytes": "100", "target_file_size_bytes": "50"}, "each must be below the next"),
        ({"branch": "nowhere"}, "it has no branch 'nowhere'"),
        ({"where": 5}, "where is 5, expected a text or None"),
    ],
)
def test_wrong_options_are_refused(filled: Sink, options: dict[str, Any], words: str) -> None:
    """A user would believe that a rewrite was done as told."""
    with pytest.raises(OptionError, match=words):
        rewrite_position_deletes(filled, **options)


def test_options_of_the_procedure_that_have_no_meaning_here_are_refused(filled: Sink) -> None:
    """A user would believe that the rewrite commits part by part."""
    options = {**options_of(filled), "partial-progress.enabled": "true"}

    with pytest.raises(OptionError, match=r"partial-progress\.enabled"):
        iceberg_ds.rewrite_position_delete_files(NAME, options=options)


def file(path: str, size: int, of: str | None = None) -> LiveFile:
    """Return a position delete file of so many bytes, for one data file or for several."""
    bounds = {PATH_ID: (of.encode(), of.encode())} if of else {}
    found = positions(path, 1, bounds=bounds)
    sized = DataFile.from_args(
        content=POSITIONS,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
        lower_bounds=found.data_file.lower_bounds,
        upper_bounds=found.data_file.upper_bounds,
    )
    sized.spec_id = NO_PARTITIONS
    return LiveFile(data_file=sized, sequence_number=1)


SIZES = Sizes(target_bytes=100, min_bytes=75, max_bytes=180)


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([10] * 4, 0),
        ([10] * 5, 5),
        ([60, 60], 2),
        ([50, 50], 0),
        ([74], 0),
        ([181], 1),
        ([75, 180, 100, 80, 90, 100], 0),
        ([10, 10, 10, 10, 100, 10], 5),
        ([], 0),
    ],
)
def test_files_are_chosen_as_sparks_procedure_does(sizes: Sequence[int], chosen: int) -> None:
    """Files of the right size would be written again each time; or small ones pile up."""
    files = [file(str(number), size) for number, size in enumerate(sizes)]

    found = select(files, SIZES, Selection(), is_by_file=False)

    assert sum(map(len, found)) == chosen
    assert sum(map(len, select(files, SIZES, Selection(rewrites_all=True), is_by_file=True))) == len(files)


def test_files_that_cannot_become_fewer_are_left_alone() -> None:
    """With granularity `file` each run would write the same files again."""
    apart = [file(str(number), 10, of=str(number)) for number in range(6)]

    assert select(apart, SIZES, Selection(), is_by_file=True) == []
    assert len(select(apart, SIZES, Selection(), is_by_file=False)[0]) == 6
    assert len(select([*apart, file("6", 10, of="0")], SIZES, Selection(), is_by_file=True)[0]) == 7


@pytest.mark.parametrize("step", STEPS)
def test_deletes_that_come_meanwhile_stay(filled: Sink, step: FaultPoint) -> None:
    """Rows that were deleted while the rewrite ran would come back."""
    after: list[Any] = []

    def act() -> None:
        delete_positions(filled, paths(filled)[0], [9])
        run(filled, "append", in_region("EU", 500))
        after.extend(rows_of(filled.table()))

    with meanwhile(step, act) as done:
        rewrite_position_deletes(filled)

    assert done
    assert len(paths(filled, POSITIONS)) == 3
    check_same(filled, after)


@pytest.mark.parametrize(
    ("step", "other"), each_value(STEPS, ["rewrite", "overwrite", "replace all", "manifests", "older deletes"])
)
def test_what_others_change_meanwhile_is_seen(filled: Sink, step: FaultPoint, other: str) -> None:
    """Rows would come back, or the positions of files that are gone stay, whoever was faster."""
    after: list[Any] = []

    def act() -> None:
        if other == "rewrite":
            rewrite_position_deletes(filled, rewrite_all="true")
        elif other == "overwrite":
            run(filled, "where region = 'EU'", in_region("EU", 77))
        elif other == "replace all":
            run(filled, "static", in_region("EU", 78))
        elif other == "manifests":
            rewrite_manifests(filled)
        else:
            delete_ids(filled, 1)
        after.extend(rows_of(filled.table()))

    with meanwhile(step, act) as done:
        rewrite_position_deletes(filled)

    assert done
    check_same(filled, after)


@pytest.mark.parametrize("step", STEPS[:-1])  # later the request is under way, and its outcome unknown for good
def test_data_file_that_comes_back_meanwhile_keeps_its_deletes(filled: Sink, step: FaultPoint) -> None:
    """Positions of a file that was gone when they were sorted out would be lost, and its deleted rows come back."""
    rewrite_position_deletes(filled)  # now each delete file is of both data files of its region
    gone, stays = (path for path in paths(filled) if "region=EU" in path)
    for position in (8, 9):
        delete_positions(filled, stays, [position])
    table, rows = filled.table(), rows_of(filled.table())
    before = table.current_snapshot()
    assert before is not None
    with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(
            next(entry.data_file for entry in entries(filled) if entry.data_file.file_path == gone)
        )

    with meanwhile(step, lambda: set_back(filled, before.snapshot_id)) as done:
        rewrite_position_deletes(filled, min_input_files=2)

    assert done
    assert gone in paths(filled)
    assert rows_of(filled.table()) == rows
    check_sound(filled.table())


def set_back(sink: Sink, snapshot_id: int) -> None:
    """Set main back to a snapshot, and go on from there, as a user does."""
    sink.table().manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def test_gives_up_with_nothing_changed_if_others_never_rest(filled: Sink) -> None:
    """A job would run for ever, or leave files behind that nobody needs."""
    with (
        meanwhile(
            FaultPoint.COMMIT_BEGUN, lambda: rewrite_position_deletes(filled, rewrite_all="true"), times=99
        ) as done,
        pytest.raises(CommitConflictError, match="in 5 tries, nothing was committed"),
    ):
        rewrite_position_deletes(filled, rewrite_all="true")

    assert len(done) == 5
    assert unreferenced_files(filled.table()) == set()


@pytest.mark.parametrize("error", [connection_lost, refusal])
def test_catalog_that_never_answers_leaves_files_exactly_if_they_may_be_needed(
    filled: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Any
) -> None:
    """A table would lose files that it may yet refer to; or those of refused rewrites pile up."""
    rows, stored = rows_of(filled.table()), stored_files(filled.table().location())
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError if error is connection_lost else CommitConflictError):
        PositionDeleteRewrite(faulty_sink.catalog, faulty_sink.options, None, Selection()).run(CommitMeter())

    left = stored_files(filled.table().location()) - stored
    assert bool(left) == (error is connection_lost)
    assert rows_of(filled.table()) == rows
    check_sound(filled.table())


def test_lost_position_is_noticed_before_the_commit(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was deleted would come back, and nobody know why."""
    rows = rows_of(filled.table())
    real = tasks.write_position_deletes

    def lossy(io: Any, path: str, hidden: Sequence[Any], settings: Any) -> DataFile:
        return real(io, path, [*hidden[1:], replace(hidden[0], positions=hidden[0].positions[1:])], settings)

    monkeypatch.setattr(tasks, "write_position_deletes", lossy)
    with pytest.raises(RowCountError, match=r"nothing was committed: the new files hide other rows of"):
        rewrite_position_deletes(filled)

    check_same(filled, rows)


def test_delete_file_with_another_count_of_rows_is_refused(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes that a reader misses would be gone for good."""
    rows = rows_of(filled.table())
    real = tasks._batches

    monkeypatch.setattr(tasks, "_batches", lambda io, path: (batch[:1] for batch in real(io, path)))
    with pytest.raises(DataFileError, match="a task failed: Cannot rewrite"):
        rewrite_position_deletes(filled)

    check_same(filled, rows)


def test_task_that_fails_leaves_nothing(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of failed tasks would pile up."""
    rows, calls = rows_of(filled.table()), iter(range(99))
    real = tasks.write_position_deletes

    def failing(*arguments: Any) -> DataFile:
        if next(calls) % 2:
            raise OSError("disk full")
        return real(*arguments)

    monkeypatch.setattr(tasks, "write_position_deletes", failing)
    with pytest.raises(DataFileError, match="nothing was committed: a task failed: OSError: disk full"):
        rewrite_position_deletes(
            filled, target_file_size_bytes=1500, min_file_size_bytes=1, max_file_size_bytes=1501, rewrite_all="true"
        )

    check_same(filled, rows)


def test_data_file_that_is_listed_twice_is_refused(filled: Sink) -> None:
    """Deletes of the older entry would hide rows of the younger one."""
    table = filled.table()
    path = paths(filled)[0]
    again = next(entry.data_file for entry in entries(filled) if entry.data_file.file_path == path)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(again)

    with pytest.raises(UnsupportedTableError, match=r"nothing was committed: the table lists .* 2 times"):
        rewrite_position_deletes(filled)


def test_files_that_are_not_parquet_are_refused(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite would fail in a task, with an error that names no way out."""
    real = rewriting.select

    def as_avro(*arguments: Any, **more: Any) -> Any:
        chosen = real(*arguments, **more)
        chosen[0][0].data_file[2] = FileFormat.AVRO
        return chosen

    monkeypatch.setattr(rewriting, "select", as_avro)
    with pytest.raises(UnsupportedTableError, match="is a file of AVRO, and only Parquet is read"):
        rewrite_position_deletes(filled)


def test_version_3_is_refused(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Position deletes would be written where the format wants deletion vectors."""
    table = filled.table()
    table.metadata = in_version(table.metadata, 3)
    monkeypatch.setattr(type(filled.catalog), "load_table", lambda *_: table)

    with pytest.raises(
        UnsupportedTableError, match="its format version is 3, in which a data file has one deletion vector"
    ):
        PositionDeleteRewrite(filled.catalog, filled.options, None, Selection()).run(CommitMeter())


def test_equality_deletes_stay(filled: Sink) -> None:
    """Rows that were deleted by key would come back."""
    delete_ids(filled, 2, 3, 52)
    rows = rows_of(filled.table())

    rewrite_position_deletes(filled)

    assert len(paths(filled, DataFileContent.EQUALITY_DELETES)) == 1
    check_same(filled, rows)


def test_branch_is_rewritten_and_main_stays(filled: Sink) -> None:
    """Readers of main would get what was not published."""
    table = filled.table()
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    rows = rows_of(filled.table(), "audit")

    result = rewrite_position_deletes(filled, branch="audit")

    table = filled.table()
    assert table.metadata.refs["audit"].snapshot_id == result.snapshot_id
    assert table.current_snapshot() == head
    check_same(filled, rows, "audit")


def test_many_positions_are_written_portion_by_portion(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large partition would not fit into the memory of a task."""
    monkeypatch.setattr(tasks, "PORTION_ROWS", 10)
    rows, hidden = rows_of(filled.table()), hidden_rows(filled.table())

    assert rewrite_position_deletes(filled).added_delete_files_count == 4
    assert hidden_rows(filled.table()) == hidden
    check_same(filled, rows)
    sizes = [
        Target(path=str(number), sequence_number=1, record_count=count) for number, count in enumerate((4, 4, 4, 30))
    ]
    assert [[target.path for target in portion] for portion in portions(sizes)] == [["0", "1"], ["2"], ["3"]]


def test_command_rewrites_and_prints(filled: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user could not run it from a shell, or a script not read what it did."""
    monkeypatch.setattr(cli, "_session", lambda *_: nullcontext())
    arguments = ["rewrite-position-delete-files", NAME, "--option", f"warehouse={filled.options.warehouse}"]

    told = CliRunner().invoke(main, [*arguments, "--json", "--where", "region = 'EU'", "--option", "min-input-files=2"])
    again = CliRunner().invoke(main, [*arguments, "--where", "region = 'EU'"])

    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["rewritten_delete_files_count"] == 6
    assert again.output.startswith("Nothing to rewrite")


def test_arrow_reads_paths_of_every_kind(tmp_path: Any) -> None:
    """Delete files of engines that encode paths in another way could not be rewritten."""
    rows = pa.table(
        {"file_path": pa.array(["a", "b", "a"]).dictionary_encode(), "pos": pa.array([1, 2, 3], pa.int32())}
    )
    pq.write_table(rows, tmp_path / "deletes.parquet")

    (batch,) = tasks._batches(LocalFileIO(), str(tmp_path / "deletes.parquet"))

    assert batch.to_pydict() == {"file_path": ["a", "b", "a"], "pos": [1, 2, 3]}
