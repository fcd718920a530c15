"""SIGKILL at every named step of an upsert, which is then run again: nothing twice, nothing back, orphans alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from support.checks.invariants import live_entries, unreferenced_files
from support.checks.version_3 import check_version_3
from support.exhaustive import few
from support.keys.streams import FEED, Epoch, rows_after, rows_in
from support.programs.upserter import TABLE, Upsert, die_in_upsert
from support.spark.tables import Warehouse
from support.tables.sink import local

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint

START: Epoch = [event for epoch in FEED[:2] for part in epoch for event in part], []
OURS = FEED[2]  # deletes rows, and brings back one that was deleted
# Somebody else's, of a file that has old rows, and of a key that comes in both.
THEIRS: Epoch = [("u", 4, "DE", -4, 1), ("u", 2, "DE", -2, 1)], []

# Which of the steps of one name it is, from 1.
ONCE = [
    (FaultPoint.PLANNED, 1),
    (FaultPoint.FILE_CLOSED, 1),  # a file of keys
    (FaultPoint.TASK_WRITTEN, 1),
    (FaultPoint.TASK_WRITTEN, 2),  # nothing is searched yet
    (FaultPoint.FILE_CLOSED, 4),  # of marks, or a file that was written again
    (FaultPoint.TASK_WRITTEN, 3),
    (FaultPoint.COMMIT_BEGUN, 1),
    (FaultPoint.TABLE_LOADED, 1),
    (FaultPoint.MANIFESTS_WRITTEN, 1),
    (FaultPoint.REQUEST_ANSWERED, 1),
    (FaultPoint.COMMITTED, 1),
    (FaultPoint.CLEANING_UP, 1),  # the files of keys
]
SEARCHED_AGAIN = [
    (FaultPoint.TABLE_LOADED, 1),  # the search is out of date
    (FaultPoint.TASK_WRITTEN, 4),
    (FaultPoint.COMMIT_BEGUN, 2),
    (FaultPoint.MANIFESTS_WRITTEN, 1),
    (FaultPoint.REQUEST_ANSWERED, 1),
]
CREATING = [(FaultPoint.TASK_WRITTEN, 2), (FaultPoint.MANIFESTS_WRITTEN, 1), (FaultPoint.REQUEST_ANSWERED, 1)]
LANDED_BY_THEN = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED, FaultPoint.CLEANING_UP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A table, and what was upserted into it."""

    house: Warehouse
    encoding: str
    done: list[Epoch] = field(default_factory=list)

    def upsert(self, number: int, epoch: Epoch, meanwhile: Epoch | None = None) -> Upsert:
        """Return an upsert into it."""
        version = "3" if self.encoding == BY_VECTORS else "2"
        options = {**self.house.options, "delete-encoding": self.encoding, "format-version": version}
        return Upsert(options=options, epoch_id=number, epoch=epoch, meanwhile=meanwhile or ())

    def check(self, *epochs: Epoch) -> None:
        """Assert that the table has the rows that it must have after these, and no snapshot a delete by keys."""
        table = self.house.table()
        assert rows_in(self.house) == rows_after(epochs)
        assert [tuple(row.values()) for row in self.house.rows().to_pylist()] == rows_in(self.house)
        allowed = {DataFileContent.DATA} | (
            {DataFileContent.POSITION_DELETES} if self.encoding != "copy-on-write" else set()
        )
        manifests = [manifest for snapshot in table.metadata.snapshots for manifest in snapshot.manifests(table.io)]
        assert {entry.data_file.content for manifest in manifests for entry in live_entries(table, manifest)} <= allowed
        assert len(table.metadata.snapshots) == len(epochs)
        if self.encoding == BY_VECTORS:
            check_version_3(table)

    def check_orphans(self, *, has_landed: bool) -> None:
        """Assert that verify finds what lies around, and nothing else; after it has landed it is files of keys."""
        left = unreferenced_files(self.house.table())
        result = iceberg_ds.verify(TABLE, options=self.house.options, older_than="0s", delete_orphans=True, force=True)

        assert result.ok, str(result)
        assert {local(orphan.path) for orphan in result.orphans} == left
        assert not has_landed or all(path.name.endswith("-deletes.parquet") for path in left)
        assert unreferenced_files(self.house.table()) == set()


BY_VECTORS = "deletion-vector"
ENCODINGS = ("position", "copy-on-write", BY_VECTORS)


def in_each_encoding(number: int, of_vectors: int, steps: Sequence[tuple[FaultPoint, int]]) -> list[Any]:
    """Return all steps with each encoding; so many of each, and of deletion vectors, are without a mark."""
    return [
        cell
        for encoding in ENCODINGS
        for cell in few(
            of_vectors if encoding == BY_VECTORS else number, [(encoding, *step) for step in steps_of(encoding, steps)]
        )
    ]


def steps_of(encoding: str, steps: Sequence[tuple[FaultPoint, int]]) -> list[tuple[FaultPoint, int]]:
    """Return the steps; with deletion vectors, files that were written again for their ids are cleaned up first."""
    cleaning = (FaultPoint.CLEANING_UP, 2 if encoding == BY_VECTORS else 1)
    return [cleaning if step is FaultPoint.CLEANING_UP else (step, number) for step, number in steps]


@pytest.fixture(params=ENCODINGS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return the place of a table that is not there yet."""
    return Place(house=Warehouse(folder=tmp_path / "warehouse"), encoding=request.param)


@pytest.mark.parametrize(("place", "step", "number"), in_each_encoding(6, 2, ONCE), indirect=["place"])
def test_upsert_that_is_killed_lands_once(place: Place, step: FaultPoint, number: int) -> None:
    """Rows would be there twice, deleted ones come back, or files lie around that nobody finds."""
    place.upsert(0, START).run()
    ours, has_landed = place.upsert(1, OURS), step in LANDED_BY_THEN

    die_in_upsert(ours, step, number)

    place.check(START, *([OURS] if has_landed else []))
    ours.run()
    place.check(START, OURS)
    place.check_orphans(has_landed=has_landed)


@pytest.mark.parametrize(("place", "step", "number"), in_each_encoding(2, 1, SEARCHED_AGAIN), indirect=["place"])
def test_upsert_that_is_killed_beside_another_lands_once(place: Place, step: FaultPoint, number: int) -> None:
    """What the other one has written meanwhile would stand beside the rows of the same keys, or be gone."""
    place.upsert(0, START).run()
    has_landed = step in LANDED_BY_THEN

    die_in_upsert(place.upsert(1, OURS, THEIRS), step, number)

    place.check(START, THEIRS, *([OURS] if has_landed else []))
    place.upsert(1, OURS).run()
    place.check(START, THEIRS, OURS)
    place.check_orphans(has_landed=has_landed)


@pytest.mark.parametrize(
    ("place", "step", "number"),
    [*(("position", *step) for step in CREATING), *few(0, [(BY_VECTORS, *step) for step in CREATING])],
    indirect=["place"],
)  # nothing is searched
def test_upsert_that_is_killed_as_it_makes_its_table_lands_once(place: Place, step: FaultPoint, number: int) -> None:
    """The first micro-batch would be lost, or there twice."""
    ours = place.upsert(0, START)

    die_in_upsert(ours, step, number)

    assert place.house.has_table() == (step in LANDED_BY_THEN)
    ours.run()
    place.check(START)
    place.check_orphans(has_landed=step in LANDED_BY_THEN)


def test_every_step_of_an_upsert_has_its_kill(place: Place) -> None:
    """A step that was added would never be seen to fail."""
    place.upsert(0, START).run()
    reached: list[FaultPoint] = []

    place.upsert(1, OURS).run(reached.append)

    assert {*reached} - {FaultPoint.FILE_OPENED} == {step for step, _ in ONCE}
    counted = {step: reached.count(step) for step, _ in ONCE}
    steps = steps_of(place.encoding, ONCE)
    assert counted == {step: max(number for named, number in steps if named is step) for step, _ in steps}
