"""Which rows lose to what other tasks say of their keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from support.keys.change_feeds import (
    ADDED,
    KEYS,
    MARKED,
    SCHEMA,
    SEED,
    SEQUENCE,
    Row,
    TaskOutput,
    feed,
    key_reader,
    run_task,
    sent,
)

from iceberg_ds.cdc import cross_task
from iceberg_ds.cdc.cross_task import CrossTaskDuplicates, file_positions, why_refused
from iceberg_ds.cdc.dedup import key_names
from iceberg_ds.cdc.keys import DIGEST, digest_keys, plain
from iceberg_ds.plan import KeyExamples, TaskKeys
from iceberg_ds.table.arrow_schema import file_shape

NOTHING = TaskKeys(count=0, modulus=0)


def event(op: str, number: int, lsn: int | None = None) -> Row:
    """Return an event of the key (number, "EU")."""
    return {"op": op, "id": number, "region": "EU", "amount": 1, "lsn": lsn}


def outputs(*tasks: list[Row]) -> list[TaskOutput]:
    """Return what tasks make of their events."""
    return [run_task(feed(), [sent(rows)], partition_id=number) for number, rows in enumerate(tasks)]


def reports(*tasks: list[Row]) -> list[TaskKeys]:
    """Return what tasks report of their events."""
    return [output.report for output in outputs(*tasks)]


def kept_outputs(*tasks: list[Row]) -> list[TaskOutput]:
    """Return what tasks make of their events if deletes leave rows."""
    kept = feed(keeps_deleted=True)
    return [
        run_task(kept, [sent(rows)], partition_id=number, schema=MARKED, added=ADDED)
        for number, rows in enumerate(tasks)
    ]


def settled(written: Sequence[TaskOutput], **asked: Any) -> CrossTaskDuplicates:
    """Return what tasks' reports come to, if they have written this and ties are errors."""
    return find_duplicates([output.report for output in written], read_keys=key_reader(written), **asked)


def find_duplicates(tasks: Sequence[TaskKeys], **asked: Any) -> CrossTaskDuplicates:
    """Return what reports come to whose rows are not there to be read."""
    return cross_task.find_duplicates(tasks, SEQUENCE, **{"is_enforced": True, "read_keys": key_reader([]), **asked})


def test_the_row_with_the_lower_sequence_loses() -> None:
    """A key in two tasks would be in the table twice."""
    found = settled(outputs([event("c", 9), event("u", 1, 5)], [event("u", 1, 7), event("u", 2, 1)]))

    assert found.losers == {0: [1]}
    assert found.tied_count == 0


def test_a_later_delete_in_another_task_hides_a_row() -> None:
    """A row that was inserted and deleted in one epoch would stay."""
    found = settled(outputs([event("c", 1, 1)], [event("d", 1, 2)]))

    assert found.losers == {0: [0]}


def test_an_earlier_delete_in_another_task_hides_nothing() -> None:
    """A row that was deleted and inserted again in one epoch would be lost."""
    found = settled(outputs([event("d", 1, 1)], [event("c", 1, 2)]))

    assert found.losers == {}


def test_rows_of_two_tasks_without_order_are_a_tie() -> None:
    """One of two rows would be chosen by chance."""
    found = settled(outputs([event("u", 1, 3)], [event("u", 2), event("u", 1, 3)]))

    assert found.tied_count == 1
    assert found.tied_rows == ((1, 1),)


def test_of_tied_rows_exactly_one_stays() -> None:
    """With keys-not-enforced a key would be in the table twice."""
    found = settled(outputs([event("u", 1, 3)], [event("u", 1, 3)], [event("d", 1, 3)]), is_enforced=False)

    assert found.losers == {0: [0]}
    assert found.tied_count == 0


def test_a_tie_of_one_task_that_another_one_overtakes_does_no_harm() -> None:
    """A feed would be refused, or not, depending on where Spark put its rows."""
    tie = [event("u", 1, 3), event("u", 1, 3)]

    overtaken = settled(outputs(tie, [event("u", 1, 4)]))
    alone = settled(outputs(tie, [event("u", 2, 4)]))

    assert (overtaken.tied_count, overtaken.losers) == (0, {0: [0]})
    assert (alone.tied_count, alone.tied_keys) == (1, ("{'id': 1, 'region': 'EU'}",))


@pytest.mark.parametrize("count", [5, 3000])
def test_ties_that_another_task_overtakes_do_no_harm_however_many(count: int) -> None:
    """A stream would stop for good at an epoch with many doubled rows that do not count."""
    ties = [event("u", number, 3) for number in range(count)] * 2
    later = [event("u", number, 4) for number in range(count)]

    overtaken = settled(outputs(ties, later))
    left = settled(outputs(ties, later[:-1]))

    assert (overtaken.tied_count, overtaken.losers) == (0, {0: list(range(count))})
    assert (left.tied_count, left.tied_rows) == (1, ((0, count - 1),))


def late_keys(*ids: int) -> pa.Table:
    """Return the keys of events that lose to rows of the table."""
    types = file_shape(SCHEMA).schema
    rows = [event("u", number) for number in ids]
    keys = [pa.array([row[name] for row in rows], types.field(name).type) for name in KEYS]
    names = [DIGEST, *key_names(keys)]
    return pa.Table.from_arrays([digest_keys(keys, SEED), *map(plain, keys)], names=names)


def test_rows_of_late_keys_lose_in_every_task() -> None:
    """A row that the table has a newer one of would stay, or one that is not late would go."""
    tasks = outputs(
        [event("c", 9), event("u", 1, 5), event("d", 2, 5)], [event("u", 1, 7), event("u", 2, 1), event("c", 8)]
    )

    assert settled(tasks, late=late_keys(9, 1)).losers == {0: [0, 1], 1: [0, 1]}


def test_late_deletes_have_a_row_to_hide_only_if_it_is_kept() -> None:
    """A mark of a late delete would stay, or another row would go in its place."""
    events = [event("d", 1, 5), event("u", 2, 5)]

    marked = settled(kept_outputs(events), keeps_deleted=True, late=late_keys(1))
    gone = settled(outputs(events), late=late_keys(1))

    assert (marked.losers, gone.losers) == ({0: [0]}, {})


def test_ties_of_late_keys_are_none() -> None:
    """A batch would be refused for rows that nobody would see."""
    tasks = outputs([event("u", 1, 3), event("u", 1, 3), event("u", 2, 3)], [event("u", 2, 3), event("u", 3, 3)])

    late = settled(tasks, late=late_keys(1, 2))
    other = settled(tasks, late=late_keys(3))

    assert (late.tied_count, late.tied_keys, late.tied_rows) == (0, (), ())
    assert other.tied_count == 2
    assert other.losers[1] == [1]


def test_all_tasks_with_keys_are_asked_if_some_are_late() -> None:
    """Late rows of large tasks would win."""
    (report,) = reports([event("c", 1)])
    one = dataclasses.replace(report, modulus=4)
    silent = TaskKeys(count=10**7, modulus=4)

    found = find_duplicates([silent, one, NOTHING, silent], late=late_keys(1))

    assert (found.unreported, found.is_known, found.losers) == ((0, 3), False, {})
    assert find_duplicates([silent, NOTHING, NOTHING, silent]).is_known


def test_tasks_that_cannot_share_keys_need_no_key_report() -> None:
    """Large epochs that are distributed by key would be refused."""
    tasks = [TaskKeys(count=10**7, modulus=modulus) for modulus in (4, 8, 0, 12)]

    assert find_duplicates(tasks).unproven == ()


def test_tasks_that_may_share_keys_need_a_key_report() -> None:
    """A key would be in the table twice."""
    one, *others = reports([event("c", 1)], [event("c", 2)], [event("c", 3)])
    silent = dataclasses.replace(one, key_report=None, modulus=1, count=5)

    assert find_duplicates([silent, *others]).unproven == (0,)
    assert find_duplicates([silent, NOTHING]).unproven == ()


def test_two_frames_that_were_distributed_apart_are_not_taken_for_one() -> None:
    """A union of two DataFrames by key would have each key in two tasks, unnoticed."""
    tasks = [TaskKeys(count=10**6, modulus=4) for _ in range(8)]

    assert find_duplicates(tasks).unproven == tuple(range(8))


def test_positions_are_those_in_the_files() -> None:
    """Another row than the loser would be hidden."""
    assert file_positions([0, 2, 3, 7], [3, 0, 1, 4]) == {0: [0, 2], 2: [0], 3: [3]}


def test_reasons_name_counts_examples_and_the_next_step() -> None:
    """A user would not know which rows are wrong, or what to do."""
    tie = reports([event("u", 1, 3), event("u", 1, 3)])[0]
    nulls = KeyExamples(count=2, examples=("{'id': None}",))
    bad = dataclasses.replace(tie, null_keys=nulls, unknown_operations={"'t'": 3})
    more = TaskKeys(count=0, modulus=0, unknown_operations={"'t'": 1, "null": 2})
    large = TaskKeys(count=10**7, modulus=1)

    reasons = why_refused([bad, more], find_duplicates([bad, more]), ["id", "region"])
    unproven = why_refused([bad, large], find_duplicates([tie, large]), ["id", "region"])

    assert len(reasons) == 3
    assert "2 rows have a null in a key column ({'id': None})" in reasons[0]
    assert "'t' (4 rows), null (2 rows)" in reasons[1]
    assert "1 keys have several rows" in reasons[2]
    assert "{'id': 1, 'region': 'EU'}" in reasons[2]
    assert "distribute(df, keys=['id', 'region'])" in unproven[-1]


@pytest.mark.parametrize("is_enforced", [True, False])
def test_good_reports_have_no_reasons(is_enforced: bool) -> None:  # noqa: FBT001  # by pytest
    """A good write would be refused."""
    tasks = outputs([event("u", 1, 3)], [event("d", 1, 4)], [])

    duplicates = settled(tasks, is_enforced=is_enforced)

    assert why_refused([task.report for task in tasks], duplicates, ["id"]) == []


def test_rows_of_deletes_that_lose_are_hidden() -> None:
    """A key would be in the table with a mark and without one."""
    tasks = kept_outputs([event("c", 9), event("d", 1, 1)], [event("c", 1, 2)], [event("-U", 1, 2)])

    found = settled(tasks, keeps_deleted=True)

    assert found.losers == {0: [1], 2: [0]}
    assert found.tied_count == 0


def test_one_of_two_kept_deletes_stays() -> None:
    """A deleted key would have two rows, or none, and two deletes of one moment would be an error."""
    tasks = kept_outputs([event("d", 1, 1)], [event("d", 1, 1)])

    found = settled(tasks, keeps_deleted=True)

    assert sum(map(len, found.losers.values())) == 1
    assert found.tied_count == 0
