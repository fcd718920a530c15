"""Random histories: what is read as changes is the difference between each snapshot and the one before."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.tables.random_history import HAPPENINGS, RandomHistory
from support.tables.reading import as_text, changes_by_tasks, differences_of, net_of, without_zeros


@settings(max_examples=examples(60))
@given(history=st.lists(HAPPENINGS, min_size=2, max_size=10), cut=st.integers(0, 99))
def test_changes_are_the_differences_between_snapshots(history: Any, cut: int) -> None:
    """A copy of the table by its changes would lack rows, or have rows that are deleted."""
    folder = Path(tempfile.mkdtemp())
    try:
        table = RandomHistory(folder)
        for happening in history:
            table.take(*happening)
        sink = table.sink
        snapshots = [snapshot.snapshot_id for snapshot in sink.table().metadata.snapshots]
        middle = snapshots[cut % len(snapshots)]
        wanted = differences_of(sink)

        all_changes = changes_by_tasks(sink, changes_from_snapshot_id=snapshots[0], snapshot_id=snapshots[-1])
        later = changes_by_tasks(sink, changes_after_snapshot_id=middle, snapshot_id=snapshots[-1])
        ordinals = {row["_commit_snapshot_id"]: row["_change_ordinal"] for row in all_changes}

        assert net_of(all_changes) == wanted
        since = snapshots[snapshots.index(middle) + 1 :]
        assert net_of(later) == {number: wanted[number] for number in since if number in wanted}
        assert [number for number in snapshots if number in ordinals] == sorted(ordinals, key=ordinals.__getitem__)
        total = Counter[str]()
        for counted in net_of(all_changes).values():
            total.update(counted)
        assert without_zeros(total) == Counter(map(as_text, rows_of(sink.table())))
    finally:
        shutil.rmtree(folder)
