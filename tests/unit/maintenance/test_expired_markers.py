"""What writers, publications, cuts and requeues find after the most aggressive expiry: all that they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from support.checks.invariants import check_clean, check_sound
from support.keys.messages import KEYED_SCHEMA, Event
from support.keys.publications import STAGING, applied, put, tasks, values
from support.spark.requeued_frame import requeued
from support.tables.bad_rows import quarantining, sent, write
from support.tables.changes_by_others import (
    cherry_pick,
    drop_branch,
    head_of,
    plain_catalog,
    plain_table,
    set_branch,
)
from support.tables.expiry import expired
from support.tables.routed import RoutedSink, customer, order
from support.tables.sink import QUERY, Sink, epoch, rows

import iceberg_ds
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.deletes.convert import Conversion
from iceberg_ds.errors import CommitConflictError, DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.snapshots.origins import REPLACED_KEY
from iceberg_ds.snapshots.refs import Place, published

pytestmark = pytest.mark.usefixtures("waits")

FIRST: list[Event] = [("I", key, "EU", key, 0) for key in range(5)]
SECOND: list[Event] = [("U", 1, "US", 10, 1), ("D", 2, "EU", None, 1)]
THIRD: list[Event] = [("I", 7, "DE", 70, 2)]


def append(sink: Sink, version: int, *ids: int, **options: Any) -> CommitResult:
    """Append a numbered batch of an application."""
    return sink.commit(sink.write(rows(*ids), plan=sink.plan(txn_app_id="load", txn_version=version, **options)))


def ids_of(sink: Sink, branch: str) -> list[int]:
    """Return the ids of a branch."""
    return [row["id"] for row in sink.rows_of(branch)]


def forget_properties(sink: Sink) -> None:
    """Take away the sink's properties, as of writes by Iceberg's Spark runtime, which leaves none."""
    table = plain_table(sink)
    with table.transaction() as change:
        change.remove_properties(*[key for key in table.properties if key.startswith("icebergsink.")])


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_epoch_and_version_are_skipped_after_expiry(sink: Sink, is_forgotten: bool) -> None:  # noqa: FBT001
    """The rows of a repeated epoch or batch would be there twice."""
    sink.append(1, of_epoch=epoch(0))
    append(sink, 3, 2)
    sink.append(9)
    if is_forgotten:
        forget_properties(sink)

    result = expired(sink)

    assert len(result.snapshot_ids) == 2
    assert result.kept == ()
    assert sink.append(1, of_epoch=epoch(0)).was_replayed
    assert append(sink, 3, 2).was_replayed
    assert sink.ids() == [1, 2, 9]
    sink.append(4, of_epoch=epoch(1))
    append(sink, 4, 5)
    assert sink.ids() == [1, 2, 4, 5, 9]
    check_sound(sink.table())


def test_marks_are_recorded_for_every_branch(sink: Sink) -> None:
    """A branch that SQL has forked, or fast-forwarded, would get the rows again."""
    append(sink, 1, 1)
    set_branch(sink, "forked", head_of(sink))
    sink.append(2)
    sink.commit(sink.write(rows(3), plan=sink.plan(branch="audit", create_branch=True, txn_app_id="b", txn_version=7)))
    set_branch(sink, "main", head_of(sink, "audit"))
    of_others = sink.table().scan().to_arrow().slice(0, 1)
    for branch in ("main", "forked"):
        plain_table(sink).append(of_others, branch=branch)

    result = expired(sink)

    assert result.kept == ()
    assert append(sink, 1, 1, branch="forked").was_replayed
    again = sink.write(rows(3), plan=sink.plan(txn_app_id="b", txn_version=7))
    assert sink.commit(again).was_replayed
    assert (len(sink.ids()), len(ids_of(sink, "forked"))) == (4, 2)


def test_rows_that_were_taken_out_are_still_known_to_be_missing(sink: Sink) -> None:
    """The batch would be skipped as if its rows were there, and they would be lost."""
    sink.append(1)
    before = head_of(sink)
    append(sink, 1, 2)
    set_branch(sink, "main", before)
    plain_table(sink).append(sink.table().scan().to_arrow())

    result = expired(sink)

    assert result.kept == ()
    with pytest.raises(CommitConflictError, match="UNSET TBLPROPERTIES"):
        append(sink, 1, 2)


def test_newer_mark_that_proves_nothing_does_not_hide_an_older_one(sink: Sink) -> None:
    """The property has room for one of them: the other would be lost with its snapshot."""
    append(sink, 1, 1)
    forget_properties(sink)
    before = head_of(sink)
    append(sink, 5, 5)
    set_branch(sink, "main", before)
    sink.append(2)
    sink.append(3)

    result = expired(sink)

    with pytest.raises(CommitConflictError):
        append(sink, 4, 4)
    assert append(sink, 1, 1).was_replayed
    assert {one.reason for one in result.kept} == {"only the history of branch 'main' has a marker of a writer"}
    append(sink, 6, 6)
    assert expired(sink).kept == ()
    assert sink.ids() == [1, 2, 3, 6]


def test_picked_write_is_skipped(sink: Sink) -> None:
    """Only the picked snapshot has the marker: the write would land again."""
    sink.append(1)
    append(sink, 4, 2, branch="audit", create_branch=True)
    picked = head_of(sink, "audit")
    sink.append(3)
    cherry_pick(sink, picked)
    drop_branch(sink, "audit")
    sink.append(5)

    result = expired(sink)

    assert picked in {one.snapshot_id for one in result.kept}
    assert "cherry-picked to branch 'main'" in str(result)
    with pytest.raises(OptionError, match=f"snapshot {picked} stays: only the snapshot that was cherry-picked"):
        expired(sink, snapshot_ids=[picked])
    assert append(sink, 4, 2).was_replayed
    append(sink, 5, 6)
    assert expired(sink).kept == ()
    assert sink.ids() == [1, 2, 3, 5, 6]
    check_sound(sink.table())


def test_published_branch_is_still_known_as_published(sink: Sink) -> None:
    """Staging on it would be refused: history has expired."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="audit", create_branch=True)))
    set_branch(sink, "main", head_of(sink, "audit"))  # as `fast_forward` of Iceberg's Spark runtime
    sink.append(3)
    sink.append(4)

    expired(sink)

    assert published(sink.table().metadata, "audit", "main") is Place.WITHIN
    publish_branch(sink.catalog, sink.options.table, "audit", "main")
    assert sink.ids() == [1, 2, 3, 4]


@contextmanager
def failing_conversions() -> Iterator[None]:
    """Let conversions fail, so that epochs wait on their staging branch."""

    def fail(*_: object) -> None:
        raise DataFileError("Cannot convert deletes of db.t, nothing was committed: no route to host.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Conversion, "run", fail)
        yield


@pytest.fixture
def staged(sink: Sink) -> Sink:
    """Return a table with an epoch on main, and another one that waits on its staging branch."""
    sink.create(KEYED_SCHEMA)
    put(sink, 0, FIRST)
    messages = tasks(sink, 1, SECOND)
    with failing_conversions(), pytest.raises(DataFileError):
        sink.commit(messages)
    return sink


def test_staged_epoch_is_published_after_expiry(staged: Sink) -> None:
    """The stream would be stuck, or its rows be there twice."""
    expired(staged)

    put(staged, 1, SECOND)
    put(staged, 2, THIRD)
    assert values(staged) == applied([], FIRST, SECOND, THIRD)


def test_staged_epoch_whose_target_moved_on_is_written_anew_after_expiry(staged: Sink) -> None:
    """History would not tell that the staging branch can be begun anew: the stream would be stuck."""
    for _ in range(3):
        table = plain_table(staged)
        table.append(table.schema().as_arrow().empty_table())

    result = expired(staged)

    assert all("staging branch 'main__unconverted' and 'main'" in one.reason for one in result.kept)
    assert result.kept
    put(staged, 1, SECOND)
    assert values(staged) == applied([], FIRST, SECOND)
    assert STAGING not in staged.table().metadata.refs
    assert expired(staged).kept == ()


def test_staging_branch_that_waits_is_never_too_old(staged: Sink) -> None:
    """Rows of a batch without a number, whose user was told where they wait, would be lost."""
    with plain_table(staged).transaction() as change:
        change.set_properties({"history.expire.max-ref-age-ms": "0"})

    result = expired(staged)

    assert result.refs == ()
    assert STAGING in staged.table().metadata.refs
    assert "staging branch 'main__unconverted' waits to be published to 'main'" in str(result)
    put(staged, 1, SECOND)
    assert values(staged) == applied([], FIRST, SECOND)


def quarantined(sink: Sink) -> Sink:
    """Return how the quarantine table of the sink is reached."""
    return replace(sink, options=replace(sink.options, table=("db", "t__quarantine")))


def plain_quarantine(sink: Sink) -> Any:
    """Load the quarantine table."""
    return plain_catalog(sink).load_table("db.t__quarantine")


def test_requeue_finds_its_rows_after_expiry(sink: Sink) -> None:
    """Rows that nobody has requeued yet could not be any more."""
    made = quarantining(sink)
    for number, name in enumerate("abc"):
        write(made, sent((name, "1", None)), of_epoch=epoch(number))

    result = expired(quarantined(sink))
    expired(sink)

    assert (result.snapshot_ids, len(result.kept)) == ((), 2)
    assert "rows of this quarantine table since then may be requeued" in str(result)
    with pytest.raises(OptionError, match="may be requeued"):
        expired(quarantined(sink), snapshot_ids=[result.kept[-1].snapshot_id])
    assert requeued(sink).rows == 3


def test_history_of_rows_that_were_deleted_from_a_quarantine_expires(sink: Sink) -> None:
    """Rows that had to go would stay in the store for ever."""
    made = quarantining(sink)
    for number, name in enumerate("abc"):
        write(made, sent((name, "1", None)), of_epoch=epoch(number))
    plain_quarantine(sink).delete(EqualTo("epoch", 0))
    plain_quarantine(sink).delete(EqualTo("epoch", 1))

    result = expired(quarantined(sink))

    assert len(result.snapshot_ids) == 2
    assert len(result.kept) == 2  # of the third epoch, and a deletion
    plain_quarantine(sink).delete(EqualTo("epoch", 2))
    result = expired(quarantined(sink))
    assert result.kept == ()
    assert result.deleted_data_files_count == 3
    check_clean(plain_quarantine(sink))


def test_repetition_of_an_epoch_with_bad_rows_finds_them_after_expiry(sink: Sink) -> None:
    """A row would be lost or be in both tables; or the stream would be stuck."""
    made = quarantining(sink)
    write_half(made, 0, "a")
    plain_quarantine(sink).append(plain_quarantine(sink).scan(limit=0).to_arrow())

    result = expired(quarantined(sink))

    assert result.kept
    write(made, sent(("a", "1", None), ("7", "1", None)), of_epoch=epoch(0))
    assert plain_quarantine(sink).scan().to_arrow().num_rows == 1
    assert sink.table().scan().to_arrow()["id"].to_pylist() == [7]


def write_half(sink: Sink, number: int, name: str) -> None:
    """Let a driver die between the quarantine table and the table."""

    def die(step: FaultPoint) -> None:
        if step is FaultPoint.QUARANTINED:
            raise KeyboardInterrupt

    listen(die)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("iceberg_ds.catalog.client.CatalogClient.is_atomic_over_tables", False)
            patch.setattr("iceberg_ds.catalog.client.CatalogClient.takes_many_tables", False)
            with pytest.raises(KeyboardInterrupt):
                write(sink, sent((name, "1", None), ("7", "1", None)), of_epoch=epoch(number))
    finally:
        listen(None)


@pytest.mark.parametrize("how", ["overwritten", "set back", "begun anew"])
def test_requeue_knows_after_expiry_that_rows_came_again(sink: Sink, how: str) -> None:
    """The source has sent the rows again, mended: they would be there twice."""
    made = quarantining(sink)
    write(made, sent(("1", "1", None)), of_epoch=epoch(0))
    first = head_of(sink)
    write(made, sent(("2", "1", None), ("a", "1", None)), of_epoch=epoch(1))
    if how == "overwritten":
        write(made, sent(("1", "1", None), ("2", "1", None)), mode=WriteMode.OVERWRITE)
    else:
        if how == "set back":
            set_branch(sink, "main", first)
        else:
            drop_branch(sink, "main")
        plain_table(sink).append(plain_table(sink).schema().as_arrow().empty_table())
    for _ in range(2):
        plain_table(sink).append(plain_table(sink).schema().as_arrow().empty_table())

    expired(sink)

    assert int(sink.table().metadata.properties[REPLACED_KEY]) >= 2
    with pytest.raises(UnsupportedTableError, match=r"began anew or was set back, or its rows replaced"):
        requeued(sink)


def test_cut_is_read_and_goes_on_after_expiry(tmp_path: Path) -> None:
    """A reader would find no rows of the last cut, or the stream would be stuck."""
    sink = RoutedSink.of(tmp_path, consistent_cut="meta.cuts")
    options = {"warehouse": str(tmp_path), "consistent-cut": "meta.cuts", "route-by": "kind", "route-namespace": "db"}
    sink.append(order(1), customer(7), epoch_id=0)
    sink.append(order(2), epoch_id=1)
    cut = iceberg_ds.last_complete(options=options)
    assert cut is not None

    for name in (("db", "orders"), ("db", "customers"), ("meta", "cuts")):
        of_all = replace(sink.options.of_all, table=name)
        expired(Sink(catalog=sink.catalog, options=of_all))

    assert iceberg_ds.last_complete(options=options) == cut
    orders = sink.catalog.load_table(("db", "orders"))
    found = orders.scan(snapshot_id=cut.snapshots["db.orders"]).to_arrow()
    assert found.num_rows == 2
    sink.append(order(3), customer(8), epoch_id=2)
    later = iceberg_ds.last_complete(options=options)
    assert later is not None
    assert later.epoch == 2
    assert sink.catalog.load_table(("db", "orders")).scan().to_arrow().num_rows == 3


def test_driver_that_took_over_is_still_known(sink: Sink) -> None:
    """Two drivers alive at once would divide the source's rows differently."""
    for number, run in enumerate(["one", "two"]):
        sink.append(number, of_epoch=replace(epoch(number), run_id=run))
    sink.append(9)

    expired(sink)

    with pytest.raises(CommitConflictError):
        sink.append(1, of_epoch=replace(epoch(1), run_id="one"))
    assert f"icebergsink.last-epoch.main.{QUERY}" in sink.table().metadata.properties
