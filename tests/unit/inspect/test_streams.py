"""Which epochs a history has, told from summaries alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyiceberg.table.metadata import TableMetadata
from support.tables.metadata import Past, line, metadata_of
from support.tables.sink import QUERY

from iceberg_ds.inspect.streams import branch_writes, marker_problems, missing_epochs, order_problems
from iceberg_ds.snapshots.txn import EPOCHS, TXNS, StreamRecord, TxnMarker, marker_property, stream_property

OTHER = "11111111-2222-4333-8444-555566667777"
NEW_ENGINE = {"engine-name": "icebergsink"}


def of(number: int, query: str = QUERY) -> dict[str, str]:
    """Return the summary of an epoch."""
    return {EPOCHS.writer_key: query, EPOCHS.number_key: str(number)}


def stream(*numbers: int, query: str = QUERY) -> list[Past]:
    """Return a history whose snapshots are these epochs."""
    summaries = {f"s{place}": of(number, query) for place, number in enumerate(numbers, start=1)}
    return line(*range(1, len(numbers) + 1), **summaries)


def mark(epoch_id: int, snapshot_id: int, branch: str = "main") -> Mapping[str, str]:
    """Return the property that marks an epoch."""
    return marker_property(EPOCHS, branch, QUERY, TxnMarker(number=epoch_id, snapshot_id=snapshot_id, timestamp_ms=1))


def problems(metadata: TableMetadata) -> list[str]:
    """Return what is wrong with the epochs."""
    return order_problems(branch_writes(metadata))


def gaps(metadata: TableMetadata) -> list[str]:
    """Return which epochs have no snapshot."""
    return missing_epochs(branch_writes(metadata))


def mark_faults(metadata: TableMetadata) -> list[str]:
    """Return what is wrong with the marks."""
    return marker_problems(metadata, branch_writes(metadata))


def test_epochs_of_several_queries_are_told_apart() -> None:
    """Two streams into one table would be called one that repeats itself."""
    history = line(1, 2, 3, 4, s1=of(0), s2=of(0, OTHER), s3=of(1, OTHER), s4=of(1))

    assert problems(metadata_of(history)) == []


def test_fork_does_not_count_what_it_shares_twice() -> None:
    """A table with a branch would be called broken."""
    history = [
        *stream(0, 1),
        Past(snapshot_id=3, parent=2, summary=of(2)),
        Past(snapshot_id=4, parent=2, summary=of(2)),
    ]

    assert problems(metadata_of(history, branches={"main": 4, "audit": 3})) == []


def test_first_epoch_that_is_missing_is_found_in_a_whole_history() -> None:
    """The first rows of a stream would be lost unseen."""
    assert gaps(metadata_of(stream(1, 2))) == [f"epoch 0 of query {QUERY} has no snapshot on branch 'main'"]


def test_history_that_has_expired_may_begin_with_any_epoch() -> None:
    """Every table under maintenance would be called broken."""
    history = [Past(snapshot_id=2, parent=1, summary=of(7)), Past(snapshot_id=3, parent=2, summary=of(8))]

    assert problems(metadata_of(history)) == []
    assert gaps(metadata_of(history)) == []


def test_run_of_missing_epochs_is_one_problem() -> None:
    """The first few problems would hide all others."""
    assert gaps(metadata_of(stream(0, 5))) == [f"epochs 1 to 4 of query {QUERY} have no snapshot on branch 'main'"]


def test_snapshots_after_a_mark_may_be_of_the_other_sink() -> None:
    """A stream that went on with Iceberg's own sink, which leaves no property, would be called broken."""
    assert mark_faults(metadata_of(stream(0, 1, 2), properties=mark(1, 2))) == []


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (mark(2, 2), "which holds 1"),
        (mark(5, 99), "and the branch ends with 1"),
        (mark(3, 1), "which holds 0"),
    ],
)
def test_mark_that_names_another_epoch_is_found(properties: Mapping[str, str], said: str) -> None:
    """A stream would skip epochs that are not in the table."""
    (problem,) = mark_faults(metadata_of(stream(0, 1), properties=properties))

    assert said in problem


def test_mark_of_an_expired_snapshot_is_no_fault() -> None:
    """The very marks that outlive expiry would be called wrong."""
    assert mark_faults(metadata_of(line(9), properties=mark(5, 8))) == []


def test_mark_of_a_dropped_branch_is_no_fault() -> None:
    """A table whose branches come and go would be called broken."""
    assert mark_faults(metadata_of(line(9), properties=mark(5, 8, "gone"))) == []


def test_own_epoch_without_any_mark_is_found() -> None:
    """After the expiry of its snapshot the stream would write it again."""
    history = line(1, s1={**of(0), **NEW_ENGINE})

    assert [
        "no marker in the table's properties knows of it" in text for text in mark_faults(metadata_of(history))
    ] == [True]


def version(number: int) -> dict[str, str]:
    """Return the summary of a numbered batch."""
    return {TXNS.writer_key: "daily.load", TXNS.number_key: str(number)}


def test_versions_of_batches_may_leave_gaps() -> None:
    """An application that numbers its batches by date would be called broken."""
    assert problems(metadata_of(line(1, 2, s1=version(20260101), s2=version(20260103)))) == []


def test_version_that_landed_twice_is_found() -> None:
    """A batch that was repeated by a scheduler would be there twice."""
    (problem,) = problems(metadata_of(line(1, 2, s1=version(5), s2=version(5))))

    assert problem == "version 5 of application daily.load on branch 'main' is there twice: snapshots 1 and 2"


def test_mark_of_a_batch_that_disagrees_is_found() -> None:
    """A batch would be skipped that is not in the table."""
    properties = marker_property(TXNS, "main", "daily.load", TxnMarker(number=6, snapshot_id=1, timestamp_ms=1))
    (problem,) = mark_faults(metadata_of(line(1, s1=version(5)), properties=properties))

    assert "names snapshot 1, which holds 5" in problem


def test_name_of_a_stream_without_a_mark_is_found() -> None:
    """Under that name a stream would be refused, or let in, on the word of a query that never wrote."""
    named = stream_property("main", "clicks", StreamRecord(query_id=QUERY))

    assert mark_faults(metadata_of(stream(0), properties={**named, **mark(0, 1)})) == []
    (problem,) = mark_faults(metadata_of(stream(0), properties=named))
    assert "stream 'clicks' on branch 'main' is of query" in problem
