"""What a quarantine table tells of an earlier try of a numbered write: the same rows, others, or nothing any more."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables.changes_by_others import cherry_pick, expire, head_of, plain_table, set_branch
from support.tables.sink import QUERY, Sink, epoch

from iceberg_ds.plan import EpochId, TxnId
from iceberg_ds.snapshots.quarantined import QUARANTINED_ROWS_KEY, EarlierTry, RowsDigest, find_earlier_try

A, B = RowsDigest.of([("1", "db.a"), ("2", "db.a")]), RowsDigest.of([("1", "db.b")])
BOTH, NO_ROWS = RowsDigest.over([A, B]), RowsDigest()
ROWS = st.lists(st.tuples(st.text(max_size=3), st.sampled_from(["db.a", "db.b"])), max_size=6)


@given(rows=ROWS, draw=st.randoms(use_true_random=False), cut=st.integers(0, 6))
def test_digest_depends_on_the_rows_and_not_on_their_order_or_tasks(
    rows: list[tuple[str, str]], draw: Random, cut: int
) -> None:
    """Spark gives the rows of a repeated epoch to other tasks: the repetition would be refused."""
    shuffled = list(rows)
    draw.shuffle(shuffled)

    assert RowsDigest.over([RowsDigest.of(shuffled[:cut]), RowsDigest.of(shuffled[cut:])]) == RowsDigest.of(rows)


@given(rows=ROWS, others=ROWS)
def test_other_rows_have_another_digest(rows: list[tuple[str, str]], others: list[tuple[str, str]]) -> None:
    """A bad row would be taken for one that the quarantine has, and be lost; a row that comes twice, too."""
    assert (RowsDigest.of(rows) == RowsDigest.of(others)) == (sorted(rows) == sorted(others))


def quarantine(sink: Sink, *told: tuple[int, RowsDigest | None], of_txn: bool = False) -> Sink:
    """Return a table with snapshots of these numbers, each with a digest unless it is None."""
    for number, digest in told:
        properties = {} if digest is None else {QUARANTINED_ROWS_KEY: str(digest)}
        numbered = {"txn_app_id": QUERY, "txn_version": number} if of_txn else {}
        plan = sink.plan(is_stream=not of_txn, snapshot_properties=properties, **numbered)
        sink.commit(sink.write([{"id": number}], plan=plan, of_epoch=None if of_txn else epoch(number)))
    return sink


@pytest.mark.parametrize("of_txn", [False, True], ids=["epochs", "versions"])
@pytest.mark.parametrize(
    ("number", "rows", "found"),
    [
        (1, (BOTH, A), EarlierTry.SAME_ROWS),
        (1, (RowsDigest.over([BOTH, A]), BOTH), EarlierTry.SAME_ROWS),
        (1, (A, A), EarlierTry.OTHER_ROWS),
        (1, (NO_ROWS, NO_ROWS), EarlierTry.OTHER_ROWS),
        (2, (BOTH, BOTH), EarlierTry.UNTOLD),
        (3, (BOTH, BOTH), EarlierTry.UNTOLD),
        (3, (NO_ROWS, NO_ROWS), EarlierTry.NONE),
        (4, (B, B), EarlierTry.SAME_ROWS),
        (5, (BOTH, BOTH), EarlierTry.NONE),
        (5, (NO_ROWS, NO_ROWS), EarlierTry.NONE),
    ],
    ids=[
        *("all", "missing", "fewer", "none-now", "no-digest"),
        *("passed-over", "passed-over-none", "last", "new", "new-none"),
    ],
)
def test_earlier_try_is_told_by_the_digest_of_its_snapshot(
    sink: Sink, number: int, rows: tuple[RowsDigest, RowsDigest], found: EarlierTry, *, of_txn: bool
) -> None:
    """Rows would be lost because the number alone is believed, or an epoch would be refused that is the same."""
    table = quarantine(sink, (1, BOTH), (2, None), (4, B), of_txn=of_txn)
    numbered = TxnId(app_id=QUERY, version=number) if of_txn else EpochId(query_id=QUERY, epoch_id=number, run_id="r2")

    earlier = find_earlier_try(table.table().metadata, [numbered], lambda _: (rows[0], rows[1]))

    assert earlier.found is found


def test_expired_snapshot_does_not_tell_and_other_writers_do_not_count(sink: Sink) -> None:
    """A guess would lose rows, or another query's epoch would be taken for this one's."""
    metadata = quarantine(sink, (1, BOTH), (2, A)).table().metadata
    other = EpochId(query_id="another", epoch_id=1)
    assert find_earlier_try(metadata, [other], lambda _: (BOTH, BOTH)).found is EarlierTry.NONE
    own = EpochId(query_id=QUERY, epoch_id=1)
    assert find_earlier_try(metadata, [own], lambda _: (BOTH, BOTH)).found is EarlierTry.SAME_ROWS

    plain_table(sink).append(plain_table(sink).scan().to_arrow())
    expire(sink)

    metadata = sink.table().metadata
    assert find_earlier_try(metadata, [own], lambda _: (BOTH, BOTH)).found is EarlierTry.UNTOLD
    last = EpochId(query_id=QUERY, epoch_id=2)
    assert find_earlier_try(metadata, [last], lambda _: (NO_ROWS, NO_ROWS)).found is EarlierTry.UNTOLD


@pytest.mark.parametrize("of_txn", [False, True], ids=["epochs", "versions"])
@pytest.mark.parametrize(
    ("number", "rows", "found"),
    [(2, A, EarlierTry.SAME_ROWS), (2, B, EarlierTry.OTHER_ROWS), (3, A, EarlierTry.NONE)],
    ids=["same", "other", "new"],
)
@pytest.mark.parametrize("is_later", [False, True], ids=["last", "passed-over"])
def test_snapshot_that_was_picked_tells_its_rows(  # noqa: PLR0913  # the fixture, and what varies
    sink: Sink, number: int, rows: RowsDigest, found: EarlierTry, *, of_txn: bool, is_later: bool
) -> None:
    """Its rows would be added again, or the epoch be refused for reasons that are not true."""
    table = quarantine(sink, (1, BOTH), of_txn=of_txn)
    before = head_of(table)
    quarantine(sink, (2, A), of_txn=of_txn)
    picked = head_of(table)
    set_branch(table, "main", before)
    cherry_pick(table, picked)
    if is_later:
        quarantine(sink, (4, B), of_txn=of_txn)
        found = EarlierTry.UNTOLD if number == 3 else found
    numbered = TxnId(app_id=QUERY, version=number) if of_txn else EpochId(query_id=QUERY, epoch_id=number, run_id="r2")

    earlier = find_earlier_try(table.table().metadata, [numbered], lambda _: (rows, rows))

    assert earlier.found is found
