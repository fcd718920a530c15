"""When deletes hide rows by position, over several snapshots."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record
from support.tables.metadata import line, metadata_of

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.reading import spark_changes
from iceberg_ds.reading.change_history import ChangeStep
from iceberg_ds.reading.change_scan import changed_tasks
from iceberg_ds.reading.lives import END
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_changes import hidden_positions, sources_by_moment
from iceberg_ds.snapshots.live_files import DeletionVector, HiddenBy, Source

SNAPSHOT = metadata_of(line(5)).snapshots[0]
NAMES = ("p", "q", "r")


@dataclass(frozen=True)
class State:
    """What deletes rows of a file: delete files by name, and the number of a deletion vector, 0 for none."""

    files: frozenset[str] = frozenset()
    vector: int = 0

    def task(self) -> ScanTask:
        """Return the file as it is read then."""
        file = DataFile.from_args(file_path="a", record_count=9, file_size_in_bytes=1, partition=Record())
        place = DeletionVector(path="v", offset=self.vector, length=4, cardinality=1) if self.vector else None
        hidden_by = HiddenBy(positions=(*sorted(self.files),), vector=place)
        return ScanTask(work=FileWork(data_file=file, sequence_number=1, keys=(), hidden_by=hidden_by), absent={})

    def sources(self) -> frozenset[Source]:
        """Return what names positions."""
        return self.task().work.hidden_by.sources


STATES = st.builds(State, st.frozensets(st.sampled_from(NAMES)), st.integers(0, 2))
POSITIONS = st.dictionaries(
    st.sampled_from([*NAMES, 1, 2]), st.frozensets(st.integers(0, 3)), min_size=len(NAMES) + 2, max_size=len(NAMES) + 2
)


def tasks_of(states: list[State]) -> Iterator[ScanTask]:
    """Yield what is read of the file for the changes of snapshots between these states."""
    for number, (before, after) in enumerate(itertools.pairwise(states)):
        step = ChangeStep(snapshot=SNAPSHOT, parent=None, ordinal=number)
        yield from changed_tasks([before.task()], [after.task()], step)


@given(st.lists(STATES, min_size=2, max_size=6), POSITIONS)
def test_rows_are_hidden_when_a_delete_of_the_snapshot_names_them(
    states: list[State], positions: Mapping[object, frozenset[int]]
) -> None:
    """A row would be deleted by another snapshot than the one that did it, by two, or by none."""

    def named(source: Source) -> frozenset[int]:
        return positions[source.offset if isinstance(source, DeletionVector) else source]

    tasks = list(tasks_of(states))
    with pytest.MonkeyPatch.context() as patch:
        told = {
            ("a", source): pa.chunked_array([[*named(source)]], pa.int64())
            for state in states
            for source in state.sources()
        }
        patch.setattr(spark_changes, "positions_by_source", lambda *_: told)
        found = hidden_positions(LocalFileIO(), tasks).get("a")
    lives = [] if found is None else list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    looked_at = {moment for of_file in sources_by_moment(tasks).values() for moment in of_file}
    for number, (before, after) in enumerate(itertools.pairwise(states)):
        for moment, state in ((2 * number, before), (2 * number + 1, after)):
            hidden = {position for position, since, until in lives if since <= moment < until}
            if moment in looked_at:
                assert hidden == {position for source in state.sources() for position in named(source)}
    assert all(until == END or until in looked_at for _, _, until in lives)


def test_what_a_snapshot_hides_is_known_from_the_one_before() -> None:
    """Rows that are deleted would be inserted by the next snapshot."""
    found = sources_by_moment(tasks_of([State(), State(frozenset("p")), State(frozenset("pq"))]))

    assert found == {"a": {0: frozenset(), 1: {"p"}, 2: {"p"}, 3: {"p", "q"}}}
