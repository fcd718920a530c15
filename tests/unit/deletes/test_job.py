"""How a search is divided into tasks, and what becomes of tasks that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from support.keys.writes import keyed_plan

from iceberg_ds.deletes import job
from iceberg_ds.deletes.job import grouped, resolve
from iceberg_ds.deletes.work import FileAnswer, FileWork, GroupAnswer, KeyFile, SearchPlan

MB = 1024 * 1024


def work(path: str, size: int, place: object = "EU", *, rows: int = 1, by_key: bool = True) -> FileWork:
    """Return a data file to search: for keys, or for rows whose positions are known."""
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(place),
        record_count=rows,
        file_size_in_bytes=size,
    )
    data_file.spec_id = 0
    keys = (KeyFile(path="keys", field_ids=(1,), sequence_number=None),) if by_key else ()
    return FileWork(data_file=data_file, sequence_number=1, keys=keys, read_bytes=size)


def sizes(groups: list[list[FileWork]]) -> list[int]:
    """Return how many megabytes each group reads."""
    return [sum(item.read_bytes for item in group) // MB for group in groups]


def test_tasks_read_about_the_same() -> None:
    """All would wait for one task."""
    groups = grouped([work(f"{number:03}", 100 * MB) for number in range(40)], 4)

    assert len(groups) == 8
    assert set(sizes(groups)) == {500}


def test_few_bytes_are_read_by_few_tasks() -> None:
    """Spark would start a hundred tasks for a hundred small files, and each write a file of deletes."""
    assert len(grouped([work(f"{number:03}", 1000) for number in range(100)], 16)) == 1


@pytest.mark.parametrize(("by_key", "count"), [(True, 8), (False, 1)])
def test_keys_of_many_rows_are_looked_up_by_many_tasks(*, by_key: bool, count: int) -> None:
    """One core would search a hundred million rows whose keys follow each other, and so take next to no bytes."""
    files = [work(f"{number:03}", 1000, rows=1_000_000, by_key=by_key) for number in range(100)]

    assert len(grouped(files, 4)) == count


def test_no_round_of_tasks_is_begun_that_is_not_filled() -> None:
    """Three tasks take two cores twice the time of one, and each reads all keys anew."""
    assert len(grouped([work(f"{number:03}", MB) for number in range(80)], 2)) == 2
    assert len(grouped([work(f"{number:03}", MB) for number in range(160)], 2)) == 4


def test_much_is_read_in_more_rounds_of_tasks() -> None:
    """A task that fails after an hour would be repeated as a whole."""
    groups = grouped([work(f"{number:03}", 100 * MB) for number in range(200)], 2)

    assert len(groups) == 40
    assert max(sizes(groups)) <= 600


def test_every_file_is_in_one_group_beside_those_of_its_partition() -> None:
    """Rows would be hidden twice or never, or each task write a file for each partition."""
    files = [work(f"{number:03}", 40 * MB, ("EU", "US", "DE")[number % 3]) for number in range(30)]

    groups = grouped(files, 3)

    assert sorted(item.path for group in groups for item in group) == sorted(item.path for item in files)
    assert len(groups) == 6
    places = [[item.place for item in group] for group in groups]
    assert [found for of in places for found in of] == sorted(found for of in places for found in of)


def test_one_large_file_does_not_leave_a_task_without_any() -> None:
    """Spark would run tasks that have nothing to do."""
    groups = grouped([work("000", 1000 * MB), *(work(f"{number:03}", MB) for number in range(1, 9))], 8)

    assert all(groups)
    assert sum(map(len, groups)) == 9


def test_nothing_is_no_task() -> None:
    """Spark would run a job for nothing."""
    assert grouped([], 4) == []


@pytest.fixture
def plan(tmp_path: Path) -> SearchPlan:
    """Return the plan of a search."""
    return SearchPlan(writing=keyed_plan(tmp_path), specs={}, key_types={})


def test_failed_tasks_are_tried_again_alone(plan: SearchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lost connection would throw away the work of all tasks."""
    runs: list[list[str]] = []

    def answer(_: SearchPlan, __: int, group: list[FileWork]) -> GroupAnswer:
        path = group[0].path
        runs.append([item.path for item in group])
        if path == "001" and len(runs) <= 4:
            return GroupAnswer(problem="lost")
        return GroupAnswer(files=(FileAnswer(path=path, sequence_number=1, rows=1),))

    monkeypatch.setattr(job, "answer_group", answer)
    monkeypatch.setattr(job, "grouped", lambda work, _: [[item] for item in work])

    answers = resolve(None, plan, [work(f"{number:03}", 1) for number in range(3)])

    assert runs == [["000"], ["001"], ["002"], ["001"], ["001"]]
    assert sorted(file.path for found in answers for file in found.files) == ["000", "001", "002"]
    assert all(found.problem is None for found in answers)


def test_task_that_fails_each_time_says_why(plan: SearchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion would go on without some files."""
    monkeypatch.setattr(job, "answer_group", lambda *_: GroupAnswer(problem="lost"))

    answers = resolve(None, plan, [work("000", 1)])

    assert [found.problem for found in answers] == ["lost"]
