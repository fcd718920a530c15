"""Writes by keys whose deletes leave rows: one row a key, marked or not, whatever task its events met in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, TimestamptzType
from support.checks.reader import listed, rows_of
from support.keys.messages import KEYED_SCHEMA, SENT, Event, keyed_tasks
from support.tables.sink import Sink, epoch

from iceberg_ds.cdc.dedup import decode_key_report, encode_key_report
from iceberg_ds.errors import CommitMessageError, RefusedRowsError
from iceberg_ds.plan import WritePlan

pytestmark = pytest.mark.usefixtures("waits")

FEED: dict[str, Any] = {
    "keys": ("id",),
    "operation_column": "op",
    "sequence_by": ("lsn",),
    "soft_delete_column": "gone",
    "schema_evolution": "add-columns",
}


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of an unpartitioned table with key `id`."""
    sink.create(KEYED_SCHEMA)
    return sink


def soft(sink: Sink, **options: Any) -> WritePlan:
    """Plan a write whose deletes leave rows."""
    return sink.plan(SENT, **{**FEED, **options})


def put(sink: Sink, number: int, *parts: Sequence[Event], **options: Any) -> None:
    """Write and commit events as an epoch, a task for each of `parts`."""
    plan = soft(sink, is_stream=True, **options).in_epoch(epoch(number))
    sink.commit(keyed_tasks(plan, *parts, of_epoch=epoch(number)))


def marks(sink: Sink) -> list[tuple[int, int | None, bool]]:
    """Return key, value and mark of every row."""
    return [(row["id"], row["amount"], row["gone"]) for row in rows_of(sink.table())]


def test_deleted_keys_keep_a_row_that_their_next_insert_replaces(keyed: Sink) -> None:
    """Deleted rows would be lost, or be there twice once their key comes again."""
    put(keyed, 0, [("c", 1, "EU", 10, 1), ("c", 2, "EU", 20, 1), ("c", 3, "EU", 30, 1)])
    put(keyed, 1, [("d", 1, "EU", 10, 2), ("d", 9, "EU", None, 2)], [("-U", 2, "EU", 20, 2), ("+U", 7, "EU", 20, 2)])
    first = marks(keyed)
    put(keyed, 2, [("c", 1, "EU", 11, 3), ("d", 3, "EU", 30, 3)])

    assert first == [(1, 10, True), (2, 20, True), (3, 30, False), (7, 20, False), (9, None, True)]
    assert marks(keyed) == [(1, 11, False), (2, 20, True), (3, 30, True), (7, 20, False), (9, None, True)]


def test_events_of_one_key_in_several_tasks_leave_one_row(keyed: Sink) -> None:
    """A key would be in the table with a mark and without one."""
    put(
        keyed,
        0,
        [("c", 1, "EU", 1, 1), ("d", 2, "EU", 2, 5), ("-U", 3, "EU", 3, 5), ("d", 4, "EU", 4, 4)],
        [("d", 1, "EU", 5, 2), ("c", 2, "EU", 6, 1), ("+U", 3, "EU", 7, 5), ("d", 4, "EU", 8, 4)],
    )

    found = marks(keyed)
    assert [(number, gone) for number, _, gone in found] == [(1, True), (2, True), (3, False), (4, True)]
    assert [amount for _, amount, _ in found][:3] == [5, 2, 7]
    assert found[3][1] in (4, 8)
    hiding = listed(keyed.table())[DataFileContent.POSITION_DELETES]
    assert sum(len(file.rows()) for file in hiding) == 4


def test_ties_are_those_of_deletes_that_take_rows_away(keyed: Sink) -> None:
    """The option would change which row wins."""
    with pytest.raises(RefusedRowsError, match="1 keys have several rows, and none comes last"):
        put(keyed, 0, [("d", 1, "EU", 1, 1)], [("c", 1, "EU", 2, 1)])
    put(keyed, 0, [("d", 1, "EU", 1, 1)], [("c", 1, "EU", 2, 1)], keys_not_enforced=True)

    assert marks(keyed) == [(1, 2, False)]


def test_replay_changes_nothing(keyed: Sink) -> None:
    """Marks that say when would move with every restart."""
    events: list[Event] = [("c", 1, "EU", 1, 1), ("d", 2, "EU", 2, 1)]
    put(keyed, 0, events, metadata_columns=("_extracted_at",))
    before = rows_of(keyed.table())
    put(keyed, 0, events, metadata_columns=("_extracted_at",))

    assert rows_of(keyed.table()) == before


def test_marks_say_when(sink: Sink) -> None:
    """A user who asked since when a row is gone would get something else."""
    sink.create(Schema(*KEYED_SCHEMA.fields, NestedField(4, "gone", TimestamptzType()), identifier_field_ids=[1]))
    plan = soft(sink)
    sink.commit(keyed_tasks(plan, [("d", 1, "EU", 1, 1), ("c", 2, "EU", 1, 1)]))

    assert plan.added is not None
    first, second = rows_of(sink.table())
    assert int(first["gone"].timestamp() * 1_000_000) // 1000 == plan.added.instant_us // 1000
    assert second["gone"] is None


def test_task_that_tells_of_other_rows_than_it_wrote_is_refused(keyed: Sink) -> None:
    """Position deletes would hide rows of other keys."""
    parts: list[list[Event]] = [[("d", 1, "EU", 1, 1), ("d", 2, "EU", 2, 1)], [("c", 1, "EU", 3, 2)]]
    first, second = keyed_tasks(soft(keyed), *parts)
    assert first.keys is not None
    key_report = decode_key_report(first.keys.key_report or b"")
    fewer = encode_key_report(key_report.slice(0, 1).to_batches(), key_report.schema)

    with pytest.raises(CommitMessageError, match="reports keys of other rows than the 2"):
        keyed.commit([replace(first, keys=replace(first.keys, key_report=fewer)), second])


def test_partitioned_table_has_the_row_of_a_key_that_moved_once(sink: Sink) -> None:
    """A deleted row would stay in its old partition, unmarked."""
    by_region = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    sink.create(KEYED_SCHEMA, by_region)
    put(sink, 0, [("c", 1, "EU", 1, 1), ("c", 2, "EU", 1, 1)])
    put(sink, 1, [("d", 1, "US", None, 2)], [("+U", 2, "US", 5, 2)])

    assert [(row["id"], row["region"], row["gone"]) for row in rows_of(sink.table())] == [
        (1, "US", True),
        (2, "US", False),
    ]
