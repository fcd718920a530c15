"""Who may write under a stream's name, as a sequence of runs."""

from __future__ import annotations

import pytest
from support.tables.metadata import line, metadata_of

from iceberg_ds.plan import StreamName
from iceberg_ds.snapshots.txn import StreamRecord, find_stream, named_queries, next_record, stream_property

# Each run: the query, whether `accept-new-checkpoint` is set, and whether its epoch may land.
RUNS = {
    "one query": [("a", False, True), ("a", False, True)],
    "a wiped checkpoint": [("a", False, True), ("b", False, False), ("a", False, True)],
    "accepted once": [("a", False, True), ("b", True, True), ("b", True, True), ("b", False, True)],
    "left on, the next one is refused": [("a", False, True), ("b", True, True), ("c", True, False), ("b", True, True)],
    "left on, the one before is refused": [("a", False, True), ("b", True, True), ("a", True, False)],
    "counts again after a run without it": [
        ("a", False, True),
        ("b", True, True),
        ("b", False, True),
        ("c", True, True),
        ("b", False, False),
    ],
    "a refused run without it changes nothing": [
        ("a", False, True),
        ("b", True, True),
        ("c", False, False),
        ("c", True, False),
    ],
    "set from the beginning it accepts one": [
        ("a", True, True),
        ("a", True, True),
        ("b", True, True),
        ("c", True, False),
    ],
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS.keys())
def test_name_belongs_to_one_query_at_a_time(runs: list[tuple[str, bool, bool]]) -> None:
    """A wiped checkpoint would double all rows, or a stream that was reset on purpose could not go on."""
    record: StreamRecord | None = None
    for query_id, accepts, may_land in runs:
        found = next_record(record, StreamName(name="s", accepts_new_checkpoint=accepts), query_id)
        assert (found is not None) == may_land, (query_id, accepts)
        record = found or record
        assert record is not None
        assert record.query_id == query_id or not may_land


def test_record_comes_back() -> None:
    """A stream would forget its identity."""
    record = StreamRecord(query_id="q", was_accepted=True)
    metadata = metadata_of(line(1), properties=stream_property("main", "or.ders", record))

    assert find_stream(metadata, "main", "or.ders") == record
    assert find_stream(metadata, "main", "ders") is None
    assert find_stream(metadata, "main.or", "ders") is None
    assert named_queries(metadata, "main") == {"q"}
    assert named_queries(metadata, "audit") == set()
