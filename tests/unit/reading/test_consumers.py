"""Named streams: the table says how far they have read, and expiry waits for them."""

from __future__ import annotations

import pytest
from support.tables.changes_by_others import head_of, plain_table
from support.tables.expiry import expired
from support.tables.follower import Follower
from support.tables.sink import Sink

import iceberg_ds
from iceberg_ds.errors import OptionError, StreamHistoryError
from iceberg_ds.reading import stream_read
from iceberg_ds.reading.consumers import CONSUMER_PREFIX, MAX_AGE

NAMED = {"consumer_id": "copy 1"}
KEY = CONSUMER_PREFIX + "copy%201"


def ids_of(sink: Sink) -> list[int]:
    """Return the ids of the snapshots that are there."""
    return [snapshot.snapshot_id for snapshot in sink.table().metadata.snapshots]


def expire(sink: Sink) -> iceberg_ds.ExpireResult:
    """Expire what may go, as soon as it may."""
    return expired(sink, retain_last=1)


def test_expiry_keeps_what_a_named_stream_has_not_read(sink: Sink) -> None:
    """A stream that rests for a while could not go on after maintenance."""
    query = Follower(sink=sink, options=NAMED)
    sink.append(1)
    query.batches()
    first = head_of(sink)
    for number in (2, 3, 4):
        sink.append(number)

    result = expire(sink)

    assert result.snapshot_ids == ()
    assert f"stream 'copy 1' has read up to snapshot {first} of branch 'main'" in result.kept[0].reason
    assert len(result.kept) == 3
    with pytest.raises(OptionError, match="stream 'copy 1' has read up to"):
        expired(sink, snapshot_ids=[first])
    assert query.ids() == [2, 3, 4]
    assert len(expire(sink).snapshot_ids) == 3
    sink.append(5)
    assert query.ids() == [5]


def test_stream_without_a_name_is_not_waited_for(sink: Sink) -> None:
    """Each stream would write into the table, and hold its history for good."""
    query = Follower(sink=sink)
    sink.append(1)
    query.batches()
    sink.append(2)
    sink.append(3)
    expire(sink)

    assert sink.table().properties.keys().isdisjoint({KEY})
    with pytest.raises(StreamHistoryError, match="has expired"):
        query.batches()


def test_removed_name_and_age_end_the_wait(sink: Sink) -> None:
    """A stream that never comes back would keep all files of the table."""
    query = Follower(sink=sink, options=NAMED)
    sink.append(1)
    query.batches()
    sink.append(2)
    sink.append(3)
    with plain_table(sink).transaction() as change:
        change.set_properties({MAX_AGE: "0"})
    assert len(expired(sink, dry_run=True).snapshot_ids) == 2
    with plain_table(sink).transaction() as change:
        change.remove_properties(MAX_AGE)
    assert expire(sink).snapshot_ids == ()
    with plain_table(sink).transaction() as change:
        change.remove_properties(KEY)

    assert len(expire(sink).snapshot_ids) == 2


def test_what_others_wrote_under_a_name_holds_nothing(sink: Sink) -> None:
    """A property that was edited by hand would break maintenance."""
    sink.append(1)
    sink.append(2)
    with plain_table(sink).transaction() as change:
        change.set_properties({KEY: "x", CONSUMER_PREFIX + "y": '{"branch": "main", "snapshot": 5}'})

    assert len(expire(sink).snapshot_ids) == 1


def test_table_that_cannot_be_changed_ends_no_stream(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without rights to write could not give its stream a name, or a busy table would end it."""

    def refused(*_: object, **__: object) -> None:
        raise iceberg_ds.CatalogError("no rights")

    monkeypatch.setattr(stream_read, "alter_table", refused)
    query = Follower(sink=sink, options=NAMED)
    sink.append(1)
    query.batches()
    sink.append(2)

    assert query.ids() == [2]
