"""Marks go where the rows go: to a branch that begins anew, and to the one that it is published to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from support.tables.metadata import START_MS, Past, identity, line, metadata_of
from support.tables.sink import epoch

from iceberg_ds.plan import Route, StreamName, TxnId, WriteIdentity
from iceberg_ds.snapshots.refs import branch_property
from iceberg_ds.snapshots.snapshot import new_snapshot
from iceberg_ds.snapshots.txn import TXNS, StreamRecord, TxnMarker, marker_property, stream_property
from iceberg_ds.snapshots.txn_properties import PropertyChange, published_markers, record_write

TWO_BRANCHES = [*line(1, 2), Past(snapshot_id=3, parent=1)]


def txn(branch: str, app_id: str, version: int) -> dict[str, str]:
    """Return the property that records a version."""
    return marker_property(TXNS, branch, app_id, TxnMarker(number=version, snapshot_id=1, timestamp_ms=START_MS))


def key(branch: str, app_id: str) -> str:
    """Return the name of that property."""
    return branch_property(TXNS.property_prefix, branch, app_id)


def with_properties(*parts: Mapping[str, str], branches: Mapping[str, int] | None = None) -> TableMetadata:
    """Return a table with these properties, and other ones."""
    properties = {"owner": "me", "icebergsink.other": "x"}
    for part in parts:
        properties |= part
    return metadata_of(TWO_BRANCHES, branches=branches or {"main": 2}, properties=properties)


def recorded(metadata: TableMetadata, write: WriteIdentity) -> PropertyChange:
    """Return what the commit of `write` changes in the properties."""
    return record_write(metadata, write, new_snapshot(metadata, write, Operation.APPEND, {}, "list"), None)


def test_batch_that_nobody_numbers_records_nothing() -> None:
    """Every batch would leave a property behind."""
    assert recorded(with_properties(txn("main", "a", 1)), identity()).updates == ()


def test_only_the_writers_own_mark_changes() -> None:
    """The marks of other applications would be lost, and their batches come twice."""
    write = replace(identity(), txn=TxnId(app_id="a", version=2))

    change = recorded(with_properties(txn("main", "a", 1), txn("main", "b", 9)), write)

    assert change.values.keys() == {key("main", "a")}
    assert change.removals == ()


def test_forked_branch_takes_over_all_marks_and_none_of_an_earlier_branch() -> None:
    """A batch would come twice to a branch after expiry; or be skipped on one that was dropped and made again."""
    metadata = with_properties(txn("main", "a", 1), txn("main", "b", 9), txn("audit", "b", 20), txn("audit", "gone", 3))
    write = replace(identity(), route=Route(branch="audit", fork_from="main"), txn=TxnId(app_id="a", version=2))

    change = recorded(metadata, write)

    assert change.values.keys() == {key("audit", "a"), key("audit", "b")}
    assert change.values[key("audit", "b")] == metadata.properties[key("main", "b")]
    assert '"version": 2' in change.values[key("audit", "a")]
    assert change.removals == (key("audit", "gone"),)


def test_branch_that_exists_keeps_its_own_marks() -> None:
    """A version would be skipped on a branch that does not have it."""
    metadata = with_properties(txn("main", "b", 9), branches={"main": 2, "audit": 3})
    write = replace(identity(), route=Route(branch="audit", fork_from="main"), txn=TxnId(app_id="a", version=2))

    assert recorded(metadata, write).values.keys() == {key("audit", "a")}


def test_staging_branch_begins_anew_with_the_marks_of_the_branch_that_it_is_published_to() -> None:
    """A version that was staged and thrown away would be published later, and then be skipped."""
    metadata = with_properties(
        txn("main", "a", 1), txn("staging", "a", 7), txn("staging", "b", 7), branches={"main": 2, "staging": 1}
    )
    write = replace(
        identity(), route=Route(branch="staging", fork_from="main", publish_to="main"), txn=TxnId(app_id="a", version=2)
    )

    change = recorded(metadata, write)

    assert '"version": 2' in change.values[key("staging", "a")]
    assert change.removals == (key("staging", "b"),)


def test_batch_without_a_number_forks_a_branch_with_its_marks() -> None:
    """The marks of others would not come along because the first write to the branch has none."""
    metadata = with_properties(txn("main", "a", 1))

    assert recorded(metadata, replace(identity(), route=Route(branch="audit", fork_from="main"))).values.keys() == {
        key("audit", "a")
    }


def test_published_branch_takes_the_newer_marks_along() -> None:
    """A version would be there twice once the snapshots of its branch have expired."""
    metadata = with_properties(
        txn("main", "a", 1),
        txn("main", "b", 5),
        txn("audit", "a", 2),
        txn("audit", "b", 4),
        txn("audit", "c", 1),
        branches={"main": 2, "audit": 3},
    )

    change = published_markers(metadata, "audit", "main")

    assert change.values.keys() == {key("main", "a"), key("main", "c")}
    assert change.values[key("main", "a")] == metadata.properties[key("audit", "a")]
    assert published_markers(metadata_of(line(1)), "audit", "main").updates == ()


def test_name_of_a_stream_is_recorded_when_it_changes_and_then_no_more() -> None:
    """Two queries could claim a name at once, or every epoch would write the record again."""
    stream = StreamName(name="orders")
    first = replace(identity(epoch=epoch(0)), stream=stream)
    record = stream_property("main", "orders", StreamRecord(query_id=epoch(0).query_id))

    assert recorded(with_properties(), first).values.keys() == {
        f"icebergsink.last-epoch.main.{epoch(0).query_id}",
        *record,
    }
    again = recorded(with_properties(record), replace(first, epoch=epoch(1)))
    assert again.values.keys() == {f"icebergsink.last-epoch.main.{epoch(0).query_id}"}
