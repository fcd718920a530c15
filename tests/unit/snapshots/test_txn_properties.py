"""The marks of numbered writes: what is written comes back, for that writer and that branch alone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.update import AssertRefSnapshotId
from support.tables.metadata import START_MS, after_expiry, identity, line, metadata_of
from support.tables.sink import epoch

from iceberg_ds.plan import EpochId, Route, TxnId
from iceberg_ds.snapshots import refs, txn
from iceberg_ds.snapshots.commit_status import CommitStatus, check_commit_status
from iceberg_ds.snapshots.refs import BranchHistory, branch_property
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    TXNS,
    TxnMarker,
    find_all_markers,
    find_last_marker,
    kind_of,
    marker_property,
    marker_summary,
    named_properties,
)
from iceberg_ds.snapshots.txn_properties import record_write

NUMBERS = [str(2**63 - 1), str(2**63), "9" * 19, "9" * 5000, "-1", "", "7.5"]
# Some writers count microseconds or nanoseconds where the table format has milliseconds.
TIMES = [START_MS, START_MS * 1_000, START_MS * 1_000_000, 2**63 - 1, 0, -1, -(2**63)]
NAMES = st.text(st.sampled_from("a.%2E/é "), min_size=1, max_size=6)
BRANCHES = st.text(st.sampled_from("ab."), min_size=1, max_size=5)
MARK = TxnMarker(number=2**63 - 1, snapshot_id=2**63 - 1, timestamp_ms=START_MS, record_count=0)


def test_version_is_marked_under_keys_of_its_own() -> None:
    """A version would be taken for an epoch of a stream, and the stream would skip that one."""
    assert marker_summary(TxnId(app_id="load", version=7)) == {
        "icebergsink.txn-app-id": "load",
        "icebergsink.txn-version": "7",
    }
    assert not marker_summary(TxnId(app_id="load", version=7)).keys() & marker_summary(epoch(7)).keys()


def test_kind_follows_from_the_write() -> None:
    """A version would be looked for among epochs."""
    assert kind_of(EpochId(query_id="q", epoch_id=1)) is EPOCHS
    assert kind_of(TxnId(app_id="a", version=1)) is TXNS


@pytest.mark.parametrize(("number", "timestamp_ms"), [*zip(NUMBERS, repeat(START_MS)), *zip(repeat("7"), TIMES)])
def test_mark_in_a_foreign_summary_can_be_recorded_and_told(number: str, timestamp_ms: int) -> None:
    """A commit would record a mark that the writer's next commit refuses, or an error would fail at its time."""
    metadata = metadata_of(line(1, s1={**marker_summary(TxnId(app_id="load", version=0)), TXNS.number_key: number}))
    metadata.snapshots[0] = metadata.snapshots[0].model_copy(update={"timestamp_ms": timestamp_ms})

    mark = find_last_marker(metadata, "main", TXNS, "load")

    assert (mark is None) == (number not in {"7", str(2**63 - 1)})
    if mark is not None:
        recorded = metadata_of(line(1), properties=marker_property(TXNS, "main", "load", mark))
        assert find_last_marker(recorded, "main", TXNS, "load") == mark
        assert datetime.fromtimestamp(mark.timestamp_ms / 1000, tz=timezone.utc).year <= 9999


@pytest.mark.parametrize("kind", [EPOCHS, TXNS])
def test_mark_comes_back_from_property_and_summary(kind: object) -> None:
    """A repeated write would not be recognised once its snapshot has expired, or its property is gone."""
    write = TxnId(app_id="load", version=7) if kind is TXNS else EpochId(query_id="load", epoch_id=7)
    used = kind_of(write)

    by_property = metadata_of(after_expiry(9), properties=marker_property(used, "main", "load", MARK))
    by_summary = metadata_of(line(1, s1=marker_summary(write)))

    assert find_last_marker(by_property, "main", used, "load") == MARK
    found = find_last_marker(by_summary, "main", used, "load")
    assert found is not None
    assert (found.number, found.snapshot_id) == (7, 1)


@given(branch=BRANCHES, name=NAMES, other_branch=BRANCHES, other_name=NAMES)
def test_property_belongs_to_one_branch_and_one_name(
    branch: str, name: str, other_branch: str, other_name: str
) -> None:
    """Two applications whose names have dots would skip each other's batches: rows would be lost."""
    key = branch_property(TXNS.property_prefix, branch, name)

    is_same = (branch, name) == (other_branch, other_name)
    assert (key == branch_property(TXNS.property_prefix, other_branch, other_name)) == is_same
    metadata = metadata_of(line(1), properties={key: "x"})
    assert list(named_properties(metadata, TXNS.property_prefix, branch)) == [(name, "x")]
    if other_branch != branch:
        assert list(named_properties(metadata, TXNS.property_prefix, other_branch)) == []


def test_number_of_properties_does_not_grow_with_versions() -> None:
    """Metadata would grow with every batch."""
    keys = {
        key
        for version in range(9)
        for key in marker_property(
            TXNS, "main", "load", TxnMarker(number=version, snapshot_id=version, timestamp_ms=version)
        )
    }

    assert len(keys) == 1


def test_history_is_read_once_to_find_a_write_and_once_to_record_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits to a table of many snapshots would take as many times as long as there are questions to its history."""
    read: list[str] = []
    history = refs.branch_history
    monkeypatch.setattr(refs, "branch_history", lambda table, branch: read.append(branch) or history(table, branch))
    version = TxnId(app_id="load", version=7)
    old = marker_property(TXNS, "main", "load", TxnMarker(number=6, snapshot_id=1, timestamp_ms=START_MS))
    metadata = metadata_of(line(1, 2, 3, s1=marker_summary(replace(version, version=6))), properties=old)
    write = replace(identity(), txn=version)

    finding = check_commit_status(metadata, write, [], bool)
    record_write(metadata, write, metadata.snapshots[-1], finding.marker)

    assert finding.status is CommitStatus.ABSENT
    assert finding.marker is not None
    assert read == ["main", "main"]


def test_fork_that_disproves_a_mark_of_main_is_refused_if_main_moves_on() -> None:
    """The marker of a write to main that lands at the same moment would be overwritten, and its rows come twice."""
    gone = marker_property(TXNS, "main", "load", TxnMarker(number=6, snapshot_id=9, timestamp_ms=START_MS))
    metadata = metadata_of(line(1, 2), properties=gone)
    write = replace(identity(branch="audit"), route=Route(branch="audit", fork_from="main"))

    change = record_write(metadata, write, metadata.snapshots[-1], None)

    assert json.loads(change.values[branch_property(TXNS.property_prefix, "main", "load")])["disproved"] is True
    assert AssertRefSnapshotId(ref="main", snapshot_id=2) in change.requirements


def test_history_is_read_once_for_each_branch_however_many_writers_main_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit to a branch that was forked from a busy table after expiry would take seconds."""
    read: list[int] = []
    told = txn.writer_in
    monkeypatch.setattr(txn, "writer_in", lambda one, kind: read.append(one.snapshot_id) or told(one, kind))
    past = after_expiry(*range(101, 111))
    values = [marker_property(TXNS, "main", f"load{number}", replace(MARK, snapshot_id=number)) for number in range(50)]
    properties = {key: text for value in values for key, text in value.items()}
    metadata = metadata_of(past, branches={"main": 110, "audit": 109}, properties=properties)

    marks = find_all_markers(BranchHistory(metadata, "audit"), TXNS)

    assert len(marks) == len(values)
    assert read == [*range(109, 100, -1), *range(110, 100, -1)]
