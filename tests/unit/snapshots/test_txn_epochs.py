"""Which epoch of a query landed last, from the property and from the summaries."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata
from support.tables.metadata import START_MS, Past, after_expiry, line, metadata_of
from support.tables.sink import QUERY, epoch

from iceberg_ds.plan import EpochId
from iceberg_ds.snapshots.refs import branch_head, branch_history
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    TxnMarker,
    find_last_epoch,
    has_committed,
    marker_property,
    marker_summary,
    run_before,
)

OTHER = "another-query"


def summary(number: int, query_id: str = QUERY, run_id: str | None = None) -> dict[str, str]:
    """Return the summary entries of that epoch."""
    return marker_summary(EpochId(query_id=query_id, epoch_id=number, run_id=run_id))


def recorded(number: int, snapshot_id: int, branch: str = "main", query_id: str = QUERY) -> dict[str, str]:
    """Return the property that records that epoch."""
    return marker_property(
        EPOCHS, branch, query_id, TxnMarker(number=number, snapshot_id=snapshot_id, timestamp_ms=START_MS)
    )


def last(metadata: TableMetadata, branch: str = "main") -> tuple[int, int] | None:
    """Return epoch and snapshot of the query's last mark."""
    mark = find_last_epoch(metadata, branch, QUERY)
    return None if mark is None else (mark.number, mark.snapshot_id)


def test_summary_has_the_keys_of_icebergs_spark_runtime() -> None:
    """A stream could not move between the two sinks without losing or doubling an epoch."""
    assert summary(7) == {"spark.sql.streaming.queryId": QUERY, "spark.sql.streaming.epochId": "7"}


def test_mark_comes_back_from_the_property_whole() -> None:
    """An error could not say which run committed what, and when."""
    mark = TxnMarker(number=7, snapshot_id=2**63 - 1, timestamp_ms=START_MS, run_id="r", previous_run_id="q")

    metadata = metadata_of(after_expiry(9), properties=marker_property(EPOCHS, "main", QUERY, mark))

    assert find_last_epoch(metadata, "main", QUERY) == mark


def test_mark_comes_back_from_the_summary_whole() -> None:
    """An error could not say which run committed what, and when."""
    metadata = metadata_of(line(1, 2, s2=summary(7, run_id="r")))

    expected = TxnMarker(number=7, snapshot_id=2, timestamp_ms=START_MS + 2, run_id="r", sequence_number=2)
    assert find_last_epoch(metadata, "main", QUERY) == expected


@pytest.mark.parametrize(
    ("history", "properties", "expected"),
    [
        pytest.param([], {}, None, id="a new table"),
        pytest.param(line(1, 2), {}, None, id="a table of others"),
        pytest.param(line(1, s1=summary(5, OTHER)), recorded(5, 1, query_id=OTHER), None, id="another query"),
        pytest.param(line(1, 2, s1=summary(4), s2=summary(5)), recorded(5, 2), (5, 2), id="both marks agree"),
        pytest.param(line(1, 2, s1=summary(4), s2=summary(5)), {}, (5, 2), id="summaries alone"),
        pytest.param(after_expiry(9), recorded(5, 2), (5, 2), id="our snapshots have expired"),
        pytest.param([Past(snapshot_id=9, sequence_number=9)], recorded(5, 2), (5, 2), id="expired without a trace"),
        pytest.param(line(9), recorded(5, 2), None, id="the table was replaced"),
        pytest.param([], recorded(5, 2), None, id="the table was replaced, and has no rows yet"),
        pytest.param(line(1, 2, 3, s1=summary(4), s2=summary(5)), recorded(4, 1), (5, 2), id="the JVM sink went on"),
        pytest.param(line(8, 9, s9=summary(6)), recorded(4, 1), (6, 9), id="the JVM sink went on, ours expired"),
        pytest.param(line(1, 2, 3, s1=summary(5)), recorded(5, 1), (5, 1), id="others committed since"),
        pytest.param(line(1, s1=summary(0)), recorded(0, 1), (0, 1), id="epoch 0"),
    ],
)
def test_newest_mark_counts(history: list[Past], properties: dict[str, str], expected: tuple[int, int] | None) -> None:
    """An epoch would be committed twice, or not at all."""
    assert last(metadata_of(history, properties=properties)) == expected


def test_marks_of_another_branch_do_not_count() -> None:
    """An epoch would be skipped on a branch that does not have it."""
    history = [*line(1, 2), Past(snapshot_id=3, parent=1, summary=summary(9))]
    metadata = metadata_of(history, branches={"main": 2, "audit": 3}, properties=recorded(9, 3, "audit"))

    assert last(metadata) is None
    assert last(metadata, "audit") == (9, 3)


def test_each_query_and_branch_has_one_property() -> None:
    """Metadata would grow with every epoch, or queries would overwrite each other's record."""
    keys = {f"icebergsink.last-epoch.{branch}.{query}" for branch in ("main", "audit") for query in (QUERY, OTHER)}

    assert len(keys) == 4
    assert recorded(1, 1).keys() == recorded(2, 2).keys() == {f"icebergsink.last-epoch.main.{QUERY}"}


def test_history_follows_the_branch_back() -> None:
    """Snapshots of other branches, or rolled back ones, would count."""
    history = [*line(1, 2, 3), Past(snapshot_id=4, parent=2), Past(snapshot_id=5, parent=4)]
    metadata = metadata_of(history, branches={"main": 5, "old": 3})

    assert [snapshot.snapshot_id for snapshot in branch_history(metadata, "main")] == [5, 4, 2, 1]
    assert [snapshot.snapshot_id for snapshot in branch_history(metadata, "old")] == [3, 2, 1]
    assert list(branch_history(metadata, "missing")) == []


def test_history_ends_where_snapshots_have_expired() -> None:
    """A commit would fail on a table whose snapshots expire."""
    metadata = metadata_of([Past(snapshot_id=7, parent=6), Past(snapshot_id=8, parent=7)])

    assert [snapshot.snapshot_id for snapshot in branch_history(metadata, "main")] == [8, 7]


def test_branch_without_a_snapshot_has_no_head() -> None:
    """The first commit into an empty table would fail."""
    assert branch_head(metadata_of(), "main") is None
    head: Any = branch_head(metadata_of(line(1, 2)), "main")
    assert head.snapshot_id == 2


def test_run_is_known_by_its_summaries() -> None:
    """A second live driver could not be told from a restart."""
    metadata = metadata_of(line(1, 2, s1=summary(1, run_id="first"), s2=summary(2, run_id="second")))

    assert has_committed(metadata, "main", "first")
    assert has_committed(metadata, "main", "second")
    assert not has_committed(metadata, "main", "third")
    assert not has_committed(metadata_of(), "main", "first")


@pytest.mark.parametrize(
    ("last_run", "before_it", "run", "expected"),
    [
        ("a", None, "a", None),
        ("a", None, "b", "a"),
        ("b", "a", "b", "a"),
        ("b", "a", "a", "b"),
        ("b", "a", "c", "b"),
        (None, None, "a", None),
    ],
)
def test_mark_remembers_the_other_run(
    last_run: str | None, before_it: str | None, run: str, expected: str | None
) -> None:
    """A second live driver could not be told from a restart where snapshots have expired."""
    last = TxnMarker(number=1, snapshot_id=1, timestamp_ms=1, run_id=last_run, previous_run_id=before_it)

    assert run_before(last, run) == expected
    assert run_before(None, run) is None


def test_epoch_names_query_and_number() -> None:
    """A user could not tell from an error which micro-batch was meant."""
    assert str(epoch(12)) == f"query {QUERY}, epoch 12"
