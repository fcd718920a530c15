"""Named streams: the table says how far they have read, and expiry waits for them."""

from __future__ import annotations

import json
from time import sleep
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.changes_by_others import expire as expire_as_java
from support.tables.changes_by_others import head_of, plain_table, set_branch
from support.tables.expiry import expired
from support.tables.follower import Follower
from support.tables.sink import Sink, rows

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import OptionError, StreamHistoryError, UnsupportedTableError
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


@pytest.mark.parametrize("text", ["365d", "31_536_000_000", "9" * 19])
def test_age_that_is_no_number_ends_no_wait(sink: Sink, text: str) -> None:
    """Files of a stream that the table is to wait for would go after the default of thirty days."""
    query = Follower(sink=sink, options=NAMED)
    sink.append(1)
    query.batches()
    sink.append(2)
    sink.append(3)
    with plain_table(sink).transaction() as change:
        change.set_properties({MAX_AGE: text})

    with pytest.raises(UnsupportedTableError, match=f"table property {MAX_AGE} is '{text}', which is no whole number"):
        expire(sink)

    assert query.ids() == [2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[]",
        "[[" * 100_000,
        '{"branch": "main", "snapshot": 5}',
        '{"branch": "main", "snapshot": 5, "stream": "x"}',
        '{"branch": [], "snapshot": 5, "stream": "x"}',
        '{"branch": "main", "snapshot": NaN, "stream": "x"}',
        '{"branch": "main", "snapshot": 5, "stream": "x", "is_done": 1}',
    ],
)
def test_what_others_wrote_under_a_name_holds_nothing(sink: Sink, text: str) -> None:
    """A property that was edited by hand would break maintenance, or the stream."""
    sink.append(1)
    sink.append(2)
    with plain_table(sink).transaction() as change:
        change.set_properties({KEY: text})

    assert len(expire(sink).snapshot_ids) == 1
    assert Follower(sink=sink, options=NAMED).ids() == [1, 2]
    assert f'"snapshot": {head_of(sink)}' in sink.table().properties[KEY]


@pytest.mark.parametrize("dies", [True, False])
def test_expiry_waits_from_the_first_micro_batch_on(sink: Sink, *, dies: bool) -> None:
    """A stream that reads once a day would lose what was appended after its first day."""
    sink.append(1)
    sink.append(2)
    query = Follower(sink=sink, options=NAMED)
    query.batch(dies=dies)
    query.stop()
    sink.append(3)
    sink.append(4)
    expire(sink)

    assert query.ids() == ([1, 2, 3, 4] if dies else [3, 4])


def test_expiry_waits_for_a_stream_that_waits_itself(sink: Sink) -> None:
    """A stream that begins after the last snapshot would find that what followed has expired."""
    sink.append(1)
    query = Follower(sink=sink, options={**NAMED, "starting_snapshot_id": str(head_of(sink))})
    reader = query.start()
    query.planned = [json.dumps(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))]
    assert query.batch() == []  # Spark runs a first micro-batch, even if there is nothing to read
    query.stop()
    sink.append(2)
    sink.append(3)
    expire(sink)

    assert query.ids() == [2, 3]


def test_start_notes_how_far_the_last_run_came(sink: Sink) -> None:
    """Runs that end with their only micro-batch would hold history for good."""
    sink.append(1)
    query = Follower(sink=sink, options=NAMED)
    for number in (2, 3, 4):
        query.batch()
        query.stop()
        assert len(expire(sink).kept) <= 1
        sink.append(number)

    assert query.ids() == [4]


def test_name_of_another_stream_is_refused(sink: Sink) -> None:
    """Two streams of one name would overwrite each other's record, and expiry would not wait for the slower one."""
    slow, quick = (Follower(sink=sink, options=NAMED) for _ in range(2))
    sink.append(1)
    slow.batches()
    sink.append(2)
    sink.append(3)

    with pytest.raises(OptionError, match=rf"name of another stream.*remove table property {KEY} if"):
        quick.batches()
    expire(sink)
    assert slow.ids() == [2, 3]

    with plain_table(sink).transaction() as change:
        change.remove_properties(KEY)
    quick.stop()
    assert quick.ids() == [1, 2, 3]
    sink.append(4)
    with pytest.raises(OptionError, match="name of another stream"):
        slow.batches()
    slow.stop()
    with plain_table(sink).transaction() as change:
        change.set_properties({MAX_AGE: "0"})
    sink.append(5)
    assert slow.ids() == [4, 5]  # nothing waits for the other one any more


def test_removed_record_comes_back(sink: Sink) -> None:
    """Another writer that sets all properties anew would end the wait, while the stream has nothing to read."""
    sink.append(1)
    query = Follower(sink=sink, options=NAMED)
    query.batches()
    query.batches()
    with plain_table(sink).transaction() as change:
        change.remove_properties(KEY)
    query.batches()

    assert f'"snapshot": {head_of(sink)}' in sink.table().properties[KEY]


def test_expiry_waits_for_a_stream_whose_snapshot_others_expired(sink: Sink) -> None:
    """The stream could go on, since the next snapshot names the one that has gone, until our own expiry."""
    sink.append(1)
    query = Follower(sink=sink, options=NAMED)
    query.batches()
    query.batches()
    sink.append(2)
    expire_as_java(sink)
    sink.append(3)
    sink.append(4)
    expire(sink)

    assert query.ids() == [2, 3, 4]


def test_expiry_keeps_a_branch_that_has_rows_to_read(sink: Sink) -> None:
    """The snapshots would stay, but not the branch that leads to them."""
    sink.append(1)
    set_branch(sink, "b", head_of(sink))
    query = Follower(sink=sink, options={**NAMED, "branch": "b"})
    query.batches()
    query.batches()
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="b")))
    with plain_table(sink).transaction() as change:
        change.set_properties({"history.expire.max-ref-age-ms": "0"})
    sleep(0.002)

    result = expire(sink)

    assert "stream 'copy 1' has read up to" in result.kept[0].reason
    assert query.ids() == [2]
    query.batches()
    sleep(0.002)
    expire(sink)
    assert set(sink.table().metadata.refs) == {"main"}


@pytest.mark.parametrize("is_first", [False, True], ids=["its head", "all of it"])
def test_expiry_keeps_a_branch_of_which_a_part_is_read(sink: Sink, *, is_first: bool) -> None:
    """The rest of a snapshot that is read in several micro-batches would be deleted."""
    sink.append(1)
    set_branch(sink, "b", head_of(sink))
    query = Follower(sink=sink, options={**NAMED, "branch": "b", "streaming_max_files_per_micro_batch": "1"})
    if not is_first:
        assert query.ids() == [1]
    sink.commit(sink.write(*(rows(number) for number in (2, 3, 4)), plan=sink.plan(branch="b")))
    if is_first:
        expire_as_java(sink)  # the branch shows its head alone
    taken = [row["id"] for row in query.batch() or []]
    query.stop()
    query.batch(dies=True)
    with plain_table(sink).transaction() as change:
        change.set_properties({"history.expire.max-ref-age-ms": "0"})
    for _ in range(2):
        sleep(0.002)
        expire(sink)

    assert sorted(taken + query.ids()) == ([1, 2, 3, 4] if is_first else [2, 3, 4])


@pytest.mark.parametrize("options", [{}, {"stream_from_timestamp": "0"}], ids=["all", "from a time"])
def test_expiry_waits_for_a_stream_that_began_on_an_empty_table(sink: Sink, options: dict[str, str]) -> None:
    """What came first would never be read, if it came and expired between two micro-batches."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    query = Follower(sink=sink, options={**NAMED, **options, "on_change": "added-files"})
    assert query.batches() == []
    sink.append(1)
    sink.overwrite(rows(2))
    sink.append(3)

    assert "stream 'copy 1' has read nothing of branch 'main'" in expire(sink).kept[0].reason
    assert query.ids() == [1, 2, 3]
    query.batches()
    assert len(expire(sink).snapshot_ids) == 2


def test_expiry_looks_again_if_a_stream_takes_a_name_meanwhile(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots would go that the stream needs, between its record and its first rows."""
    for number in (1, 2, 3):
        sink.append(number)
    query = Follower(sink=sink, options={**NAMED, "streaming_max_files_per_micro_batch": "1"})
    send, read = CatalogClient.send, list[int]()

    def sending(catalog: CatalogClient, table: Any, requirements: Any, updates: Any, **more: Any) -> Any:
        if not read and any(isinstance(update, RemoveSnapshotsUpdate) for update in updates):
            read.extend(row["id"] for row in query.batch(dies=True) or [])
        return send(catalog, table, requirements, updates, **more)

    monkeypatch.setattr(CatalogClient, "send", sending)

    assert expire(sink).snapshot_ids == ()
    assert (read, query.ids()) == ([1], [1, 2, 3])


def test_table_that_cannot_be_changed_ends_no_stream(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without rights to write could not give its stream a name, or a busy table would end it."""
    asked = 0

    def refused(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        raise iceberg_ds.CatalogError("no rights")

    monkeypatch.setattr(stream_read, "alter_table", refused)
    query = Follower(sink=sink, options=NAMED)
    sink.append(1)
    query.batches()
    sink.append(2)

    assert query.ids() == [2]
    before = asked
    assert query.batches() == []
    assert query.batches() == []
    assert asked == before  # once for each micro-batch
