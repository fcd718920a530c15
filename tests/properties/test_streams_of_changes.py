"""Random histories, read by streams of changes that are limited, killed and started again: each change comes once."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.tables.follower import Follower
from support.tables.random_history import HAPPENINGS, RandomHistory
from support.tables.reading import as_text, differences_of, net_of, without_zeros
from support.tables.sink import Row

LIMITS = st.one_of(
    st.just({}),
    st.integers(1, 3).map(lambda most: {"streaming_max_files_per_micro_batch": str(most)}),
    st.integers(1, 5).map(lambda most: {"streaming_max_rows_per_micro_batch": str(most)}),
)


@settings(max_examples=examples(60))
@given(
    history=st.lists(HAPPENINGS, min_size=2, max_size=10),
    runs=st.lists(st.tuples(LIMITS, st.booleans()), min_size=1, max_size=8),
    tells_start=st.booleans(),
)
def test_stream_has_the_changes_of_each_snapshot_once(history: Any, runs: Any, *, tells_start: bool) -> None:
    """A copy of the table by its changes would lack rows, or have rows that are deleted, or rows twice."""
    folder = Path(tempfile.mkdtemp())
    try:
        table = RandomHistory(folder)
        for happening in history:
            table.take(*happening)
        sink = table.sink
        query = Follower(sink=sink, options={"on_change": "changes"}, tells_start=tells_start)

        found: list[Row] = []
        for limit, dies in runs:
            query.options = {"on_change": "changes", **limit}
            query.stop()
            batch = query.batch(dies=dies)
            found += [] if dies or batch is None else batch
        query.options = {"on_change": "changes"}
        while (batch := query.batch()) is not None:
            found += batch

        assert changes_of(found) == {number: +counted for number, counted in changes_by_kind(sink).items()}
        ordinals = {row["_commit_snapshot_id"]: row["_change_ordinal"] for row in found}
        in_time = [ordinals[one.snapshot_id] for one in sink.table().metadata.snapshots if one.snapshot_id in ordinals]
        assert in_time == sorted(set(in_time))
        assert {(row["_commit_snapshot_id"], row["_change_ordinal"]) for row in found} == set(ordinals.items())
        total = Counter[str]()
        for counted in net_of(found).values():
            total.update(counted)
        assert without_zeros(total) == Counter(map(as_text, rows_of(sink.table())))
    finally:
        shutil.rmtree(folder)


def changes_of(rows: list[Row]) -> dict[int, Counter[tuple[str, str]]]:
    """Return for each snapshot how often each row was inserted, and deleted."""
    found: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in rows:
        values = {name: value for name, value in row.items() if not name.startswith(("_change", "_commit"))}
        found[row["_commit_snapshot_id"]][row["_change_type"], as_text(values)] += 1
    return dict(found)


def changes_by_kind(sink: Any) -> dict[int, Counter[tuple[str, str]]]:
    """Return what `changes_of` has to be, by the rows that the spec says before and after each snapshot."""
    return {
        number: Counter({("INSERT" if count > 0 else "DELETE", row): abs(count) for row, count in counted.items()})
        for number, counted in differences_of(sink).items()
    }
