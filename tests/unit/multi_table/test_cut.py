"""A cut of all tables: which snapshots belong together, whatever happens between the first table and the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import LongType, StringType
from support.spark.local_frame import without_moving_rows
from support.tables import routed
from support.tables.changes_by_others import expire
from support.tables.damage import cut_off
from support.tables.routed import RoutedSink, customer, order
from support.tables.shop import ORDERS, TABLES, Shop, frame
from support.tables.sink import QUERY, Sink, embedded_options

import iceberg_ds
from iceberg_ds.catalog.answers import CommitRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    DataFileError,
    OptionError,
    RefusedRowsError,
    TableNotFoundError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.multi_table.cut_table import CutWriter, WriterKind
from iceberg_ds.multi_table.record_cut import KEPT_TAGS, tag_prefix
from iceberg_ds.snapshots import manifests
from iceberg_ds.snapshots.manifests import ManifestLists, live_manifests
from iceberg_ds.table.names import parse_identifier

pytestmark = pytest.mark.usefixtures("waits")

CUTS = "meta.cuts"
BY_QUERY = CutWriter(app_id=QUERY, kind=WriterKind.QUERY)
BOTH = ("db.customers", "db.orders")
WAYS = pytest.mark.parametrize("way", [None, "one_by_one"])


@pytest.fixture
def sink(tmp_path: Path) -> RoutedSink:
    """Return a write into `db.orders` and `db.customers` that records cuts."""
    return RoutedSink.of(tmp_path, consistent_cut=CUTS)


@pytest.fixture
def last(tmp_path: Path) -> Callable[..., iceberg_ds.Cut | None]:
    """Return what asks for the last complete cut."""

    def ask(*tables: str, app_id: str | None = None, place: str = CUTS) -> iceberg_ds.Cut | None:
        options = {"warehouse": str(tmp_path), "consistent-cut": place, "Route-By": "kind", "route-namespace": "db"}
        return iceberg_ds.last_complete(tables or None, options=options, app_id=app_id)

    return ask


Ask = Callable[..., iceberg_ds.Cut | None]


@pytest.fixture
def _heard() -> Iterator[None]:
    yield
    listen(None)


def ids_at(sink: RoutedSink, cut: iceberg_ds.Cut | None) -> Mapping[str, list[int]]:
    """Return the ids of the rows that each table has in a cut."""
    assert cut is not None
    found = {}
    for name, snapshot_id in cut.snapshots.items():
        table = sink.catalog.load_table(parse_identifier(name))
        rows = None if snapshot_id is None else table.scan(snapshot_id=snapshot_id).to_arrow()
        found[name] = [] if rows is None else sorted(rows.column("id").to_pylist())
    return found


def last_snapshot(sink: RoutedSink, table: str) -> int:
    """Return the snapshot of branch `main`."""
    snapshot = sink.catalog.load_table(parse_identifier(table)).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def dying_at(point: FaultPoint, time: int = 1) -> None:
    """Let the driver die when it comes to a point for the nth time."""
    left = time

    def act(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is point
        if reached is point and left == 0:
            raise KeyboardInterrupt

    listen(act)


@pytest.mark.parametrize("which", ["manifest", "list"])
def test_cut_that_was_cut_off_is_not_taken_for_none(
    sink: RoutedSink, last: Ask, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A reader would see no tables, and the next cut name fewer."""
    sink.append(order(1), customer(2), epoch_id=0)
    cuts = sink.catalog.load_table(parse_identifier(CUTS))
    head = cuts.current_snapshot()
    assert head is not None
    cut_off(live_manifests(cuts.io, head)[0].manifest_path if which == "manifest" else head.manifest_list)
    monkeypatch.setattr(manifests, "KNOWN_LISTS", ManifestLists())  # as in a new process

    with pytest.raises(DataFileError, match=r"Cannot read the cuts in meta.cuts: .* was cut off"):
        last()


@WAYS
def test_cut_names_the_snapshots_of_the_last_epoch(
    sink: RoutedSink, last: Ask, way: str | None, request: pytest.FixtureRequest
) -> None:
    """A reader could not tell which snapshots belong together."""
    if way is not None:
        request.getfixturevalue(way)
    assert last() is None

    sink.append(order(1), customer(7), epoch_id=0)
    sink.append(order(2), customer(8), epoch_id=1)

    cut = last()
    assert cut is not None
    assert (cut.app_id, cut.epoch) == (QUERY, 1)
    assert ids_at(sink, cut) == {"db.customers": [7, 8], "db.orders": [1, 2]}


def test_table_without_rows_keeps_its_snapshot(sink: RoutedSink, last: Ask) -> None:
    """The tables of a cut would be those of its last epoch alone, and joins would lose rows."""
    sink.append(order(1), customer(7), epoch_id=0)
    before = last()
    sink.append(order(2), epoch_id=1)

    after = last()
    assert before is not None
    assert after is not None
    assert after.snapshots["db.customers"] == before.snapshots["db.customers"]
    assert ids_at(sink, after) == {"db.customers": [7], "db.orders": [1, 2]}


def test_epochs_without_the_option_are_in_the_next_cut(sink: RoutedSink, last: Ask, tmp_path: Path) -> None:
    """A cut would have the rows of an epoch in one table, and not in the other."""
    sink.append(order(0), customer(0), epoch_id=0)
    RoutedSink.of(tmp_path).append(order(1), customer(1), epoch_id=1)
    first = last_snapshot(sink, "db.customers")
    RoutedSink.of(tmp_path).append(customer(99))
    sink.append(order(2), epoch_id=2)

    cut = last()
    assert ids_at(sink, cut) == {"db.customers": [0, 1], "db.orders": [0, 1, 2]}
    refs = sink.catalog.load_table(("db", "customers")).refs()
    assert refs[f"{tag_prefix(BY_QUERY)}2"].snapshot_id == first
    sink.catalog.raw.drop_table("db.customers")
    sink.append(order(4), epoch_id=4)
    assert ids_at(sink, last("db.orders")) == {"db.orders": [0, 1, 2, 4]}


def test_later_version_of_another_table_is_not_in_the_cut(tmp_path: Path, last: Ask) -> None:
    """A cut would have the number of one version, and the rows of a later one in a table."""

    def sink(version: int, **options: str) -> RoutedSink:
        return RoutedSink.of(tmp_path, txn_app_id="app", txn_version=str(version), **options)

    sink(1, consistent_cut=CUTS).append(order(1), customer(1))
    sink(2).append(customer(2))
    sink(4).append(customer(4))
    sink(3, consistent_cut=CUTS).append(order(3))

    assert ids_at(sink(3), last()) == {"db.customers": [1, 2], "db.orders": [1, 3]}


@pytest.mark.usefixtures("_heard")
def test_last_epoch_of_the_old_checkpoint_is_in_the_cut_of_the_new_one(
    tmp_path: Path, last: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch whose cut nobody records any more would be in the tables that the new checkpoint writes, alone."""
    named = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales")
    for number in range(2):
        named.append(order(number), customer(number), epoch_id=number)
    dying_at(FaultPoint.CUT_BEGUN)
    with pytest.raises(KeyboardInterrupt):
        named.append(order(2), customer(2), epoch_id=2)
    listen(None)

    monkeypatch.setattr(routed, "QUERY", "0b9f2c1e-9999-4222-8333-444455556666")
    RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales", accept_new_checkpoint="true").append(
        order(9), epoch_id=0
    )

    assert ids_at(named, last()) == {"db.customers": [0, 1, 2], "db.orders": [0, 1, 2, 9]}


def test_table_under_a_new_name_has_one_row(sink: RoutedSink, last: Ask, tmp_path: Path) -> None:
    """The cut would name a table that is not there, and no reader could ask for all tables."""
    sink.append(order(0), customer(0), epoch_id=0)
    sink.catalog.raw.rename_table("db.orders", "db.sales")
    assert ids_at(sink, last("db.sales")) == {"db.sales": [0]}
    RoutedSink.of(tmp_path, consistent_cut=CUTS).append({"kind": "sales", "id": 1, "total": 1.0}, epoch_id=1)

    assert ids_at(sink, last()) == {"db.customers": [0], "db.sales": [0, 1]}


@pytest.mark.usefixtures("_heard")
def test_rows_of_other_writers_are_not_in_the_cut(sink: RoutedSink, last: Ask, tmp_path: Path) -> None:
    """A snapshot would be that of another writer."""
    dying_at(FaultPoint.CUT_BEGUN)
    with pytest.raises(KeyboardInterrupt):
        sink.append(order(1), epoch_id=0)
    listen(None)
    RoutedSink.of(tmp_path).append(order(99))
    sink.append(order(1), epoch_id=0)

    assert ids_at(sink, last()) == {"db.orders": [1]}


@WAYS
@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize(
    ("point", "time"),
    [
        (FaultPoint.COMMITTED, 1),
        (FaultPoint.COMMITTED, 2),
        (FaultPoint.CUT_BEGUN, 1),
        (FaultPoint.CUT_TAGGED, 1),
        (FaultPoint.CUT_TAGGED, 2),
        (FaultPoint.COMMITTED, 3),
    ],
)
def test_death_before_the_record_leaves_the_cut_before(  # noqa: PLR0913, PLR0917  # each is a part of the case
    sink: RoutedSink, last: Ask, way: str | None, request: pytest.FixtureRequest, point: FaultPoint, time: int
) -> None:
    """A reader would get the epoch in some tables, and no cut, or the wrong one, after a restart."""
    if way is not None:
        request.getfixturevalue(way)
    sink.append(order(1), customer(7), epoch_id=0)
    before = last()

    dying_at(point, time)
    with pytest.raises(KeyboardInterrupt):
        sink.append(order(2), customer(8), epoch_id=1)
    listen(None)

    between = last()
    if (point, time) == (FaultPoint.COMMITTED, 3):  # that of the record
        assert between is not None
        assert between.epoch == 1
    else:
        assert between == before
    sink.append(order(2), customer(8), epoch_id=1)
    after = last()
    assert after is not None
    assert after.epoch == 1
    assert ids_at(sink, after) == {"db.customers": [7, 8], "db.orders": [1, 2]}


@pytest.mark.usefixtures("_heard")
def test_table_that_was_rolled_back_before_its_tag_makes_no_cut(sink: RoutedSink, last: Ask) -> None:
    """A reader would get an epoch in one table, and not in the other."""
    sink.append(order(0), customer(0), epoch_id=0)
    table, before, after = sink.catalog.load_table(("db", "customers")), last(), 0

    def act(reached: FaultPoint) -> None:
        nonlocal after
        if reached is FaultPoint.CUT_BEGUN:
            listen(None)
            after = last_snapshot(sink, "db.customers")
            table.refresh().manage_snapshots().set_current_snapshot(table.snapshots()[0].snapshot_id).commit()

    listen(act)
    with pytest.raises(
        CommitConflictError, match=r"their cut was not .* db\.customers does not have the rows of query"
    ):
        sink.append(order(1), customer(1), epoch_id=1)
    assert last() == before

    table.refresh().manage_snapshots().set_current_snapshot(after).commit()
    sink.append(order(1), customer(1), epoch_id=1)
    assert ids_at(sink, last()) == {"db.customers": [0, 1], "db.orders": [0, 1]}


def test_epoch_whose_cut_fails_is_told_to_have_landed(
    sink: RoutedSink, last: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user would read that nothing was committed, and write the rows again under another number."""
    sink.append(order(0), customer(0), epoch_id=0)
    send = CatalogClient.send

    def refusing(self: CatalogClient, table: Table, *request: Any) -> object:
        if table.name() == ("meta", "cuts"):
            raise CommitRefusedError("no right to write", is_lasting=True)
        return send(self, table, *request)

    with monkeypatch.context() as patch:
        patch.setattr(CatalogClient, "send", refusing)
        with pytest.raises(
            CatalogError, match=r"^The rows of query .*, epoch 1 have landed in all tables, but"
        ) as told:
            sink.append(order(1), customer(1), epoch_id=1)

    assert "no right to write" in str(told.value)
    assert sink.ids("db.orders") == [0, 1]
    sink.append(order(1), customer(1), epoch_id=1)
    assert ids_at(sink, last()) == {"db.customers": [0, 1], "db.orders": [0, 1]}


def test_replayed_epoch_changes_nothing(sink: RoutedSink, last: Ask) -> None:
    """A replay of the last epoch would make another cut."""
    sink.append(order(1), customer(7), epoch_id=0)
    before = last()
    snapshots = len(sink.catalog.load_table(("meta", "cuts")).metadata.snapshots)

    sink.append(order(1), customer(7), epoch_id=0)

    assert last() == before
    assert len(sink.catalog.load_table(("meta", "cuts")).metadata.snapshots) == snapshots


def test_last_tags_are_kept(sink: RoutedSink) -> None:
    """Tags would become as many as epochs, or the snapshots of the last cut would expire."""
    for number in range(KEPT_TAGS + 2):
        sink.append(order(number), *([customer(number)] if number == 0 else []), epoch_id=number)

    prefix = tag_prefix(BY_QUERY)
    orders, customers = (set(sink.catalog.load_table(("db", name)).refs()) for name in ("orders", "customers"))
    assert orders == {"main", *(f"{prefix}{number}" for number in range(2, KEPT_TAGS + 2))}
    assert customers == {"main", f"{prefix}0"}


def test_snapshots_of_the_cut_do_not_expire(sink: RoutedSink, last: Ask) -> None:
    """A reader would get a cut that it cannot read."""
    sink.append(order(1), customer(7), epoch_id=0)
    cut = last()
    table = sink.catalog.load_table(("db", "orders"))
    with table.transaction() as change:
        change.set_properties({"history.expire.max-ref-age-ms": "1"})
    RoutedSink.of(Path(sink.options.of_all.warehouse or "")).append(order(9))

    table = sink.catalog.load_table(("db", "orders"))
    protected = {ref.snapshot_id for ref in table.refs().values() if ref.max_ref_age_ms == 2**63 - 1}
    assert cut is not None
    assert cut.snapshots["db.orders"] in protected


def test_tag_is_set_under_the_condition_that_it_is_as_seen(sink: RoutedSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drivers would set one tag to two snapshots."""
    sent = []
    send = CatalogClient.send

    def sending(self: CatalogClient, table: object, requirements: tuple[object, ...], updates: object) -> object:
        sent.extend(found.ref for found in requirements if isinstance(found, AssertRefSnapshotId))
        return send(self, table, requirements, updates)  # type: ignore[arg-type]

    monkeypatch.setattr(CatalogClient, "send", sending)
    for number in range(KEPT_TAGS + 1):
        sink.append(order(number), epoch_id=number)

    prefix = tag_prefix(BY_QUERY)
    assert {f"{prefix}{number}" for number in range(KEPT_TAGS + 1)} <= set(sent)
    assert sent.count(f"{prefix}0") == 2  # set, and dropped


def test_tags_of_others_stay(tmp_path: Path, last: Ask) -> None:
    """The tag of an auditor would be dropped or moved, and its snapshot expire; or a branch would keep the cut back."""
    sink = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales")
    sink.append(order(0), epoch_id=0)
    table = sink.catalog.load_table(("db", "orders"))
    first = last_snapshot(sink, "db.orders")
    others = {"sales-epoch-2", "sales-epoch-20240131"}
    for name in others:
        table.manage_snapshots().create_tag(first, name).commit()
    table.manage_snapshots().create_branch(first, "sales-epoch-1").commit()

    for number in range(1, KEPT_TAGS + 2):
        sink.append(order(number), epoch_id=number)

    refs = sink.catalog.load_table(("db", "orders")).refs()
    assert {name for name in {*others, "sales-epoch-1"} if refs[name].snapshot_id == first} == {
        *others,
        "sales-epoch-1",
    }
    assert len(refs) == 1 + len(others) + 1 + KEPT_TAGS
    assert ids_at(sink, last()) == {"db.orders": [0, 1, 2, 3, 4]}


@pytest.mark.usefixtures("_heard")
def test_new_checkpoint_does_not_move_the_tag_of_the_last_cut(
    tmp_path: Path, last: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last cut would expire before the first one of the new checkpoint is recorded."""
    sink = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales")
    sink.append(order(0), customer(0), epoch_id=0)
    before = last()
    monkeypatch.setattr(routed, "QUERY", "0b9f2c1e-9999-4222-8333-444455556666")
    sink = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales", accept_new_checkpoint="true")
    dying_at(FaultPoint.CUT_TAGGED, time=2)
    with pytest.raises(KeyboardInterrupt):
        sink.append(order(1), customer(1), epoch_id=0)
    listen(None)

    tables = [sink.catalog.load_table(parse_identifier(name)) for name in BOTH]
    tagged = {ref.snapshot_id for table in tables for name, ref in table.refs().items() if name != "main"}
    assert before is not None
    assert {*before.snapshots.values()} <= tagged
    assert len(tagged) == 4
    sink.append(order(1), customer(1), epoch_id=0)
    assert ids_at(sink, last()) == {"db.customers": [0, 1], "db.orders": [0, 1]}


@pytest.mark.usefixtures("_heard")
def test_old_version_of_a_batch_makes_no_cut(tmp_path: Path, last: Ask) -> None:
    """A cut would go backwards, or have the number of one epoch and the rows of another."""

    def run(version: int, *rows: Mapping[str, object]) -> None:
        RoutedSink.of(tmp_path, consistent_cut=CUTS, txn_app_id="app", txn_version=str(version)).append(*rows)

    run(1, order(1), customer(7))
    before = last()
    dying_at(FaultPoint.CUT_BEGUN)
    with pytest.raises(KeyboardInterrupt):
        run(3, order(3), customer(9))
    listen(None)
    run(2, order(2), customer(8))
    assert before == last()

    run(3, order(3), customer(9))
    cut = last()
    assert cut is not None
    assert cut.epoch == 3
    run(2, order(2), customer(8))
    assert cut == last()


def test_named_stream_goes_on_with_its_cut_under_a_new_checkpoint(
    tmp_path: Path, last: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables without new rows would leave the cut, or the numbers of the old checkpoint would hide the new epochs."""
    named = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales")
    for number in range(3):
        named.append(order(number), *([customer(7)] if number == 0 else []), epoch_id=number)

    monkeypatch.setattr(routed, "QUERY", "0b9f2c1e-9999-4222-8333-444455556666")
    RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales", accept_new_checkpoint="true").append(
        order(9), epoch_id=0
    )

    cut = last(app_id="sales")
    assert cut is not None
    assert cut.epoch == 0
    assert ids_at(named, cut) == {"db.customers": [7], "db.orders": [0, 1, 2, 9]}


def test_name_without_a_namespace_is_refused(tmp_path: Path) -> None:
    """The table would be looked for in no namespace, by the first epoch that has landed."""
    with pytest.raises(OptionError, match=r"'consistent-cut' is 'cuts': expected a namespace and a table"):
        RoutedSink.of(tmp_path, consistent_cut="cuts")


def test_each_writer_has_its_own_cut(tmp_path: Path, last: Ask) -> None:
    """One writer's cut would replace another's."""
    for name in ("first", "second"):
        sink = RoutedSink.of(tmp_path, consistent_cut=CUTS, txn_app_id=name, txn_version="5", route_namespace=name)
        sink.append(order(1))

    with pytest.raises(OptionError, match=r"has cuts of first, second\. Say which"):
        last()
    first = last(app_id="first")
    assert first is not None
    assert list(first.snapshots) == ["first.orders"]
    assert last(app_id="third") is None


def test_table_that_no_epoch_has_written_has_no_snapshot(sink: RoutedSink, last: Ask) -> None:
    """A reader could not tell such a table from one that it forgot."""
    sink.append(order(1), epoch_id=0)

    cut = last(*BOTH)
    assert cut is not None
    assert list(cut.snapshots) == [*BOTH]
    assert cut.snapshots["db.customers"] is None


@pytest.mark.usefixtures("_heard")
def test_table_that_no_cut_names_and_the_writer_has_written_is_refused(
    sink: RoutedSink, last: Ask, tmp_path: Path
) -> None:
    """A reader would get no row of a table that had rows before the option was given, or the table of cuts dropped."""
    RoutedSink.of(tmp_path).append(order(0), customer(0), epoch_id=0)
    sink.append(order(1), epoch_id=1)
    with pytest.raises(
        UnsupportedTableError, match=r"snapshot of db\.customers .* have written it, but none with option"
    ):
        last(*BOTH)
    assert ids_at(sink, last()) == {"db.orders": [0, 1]}

    dying_at(FaultPoint.CUT_BEGUN)  # a new table that waits for its first cut
    with pytest.raises(KeyboardInterrupt):
        sink.append({"kind": "prices", "id": 2}, customer(2), epoch_id=2)
    listen(None)
    assert ids_at(sink, last("db.orders", "db.prices")) == {"db.orders": [0, 1], "db.prices": []}

    sink.append({"kind": "prices", "id": 2}, customer(2), epoch_id=2)
    assert ids_at(sink, last(*BOTH)) == {"db.customers": [0, 2], "db.orders": [0, 1]}


@pytest.mark.parametrize("option", ["namespace", "route-namespace"])
def test_names_are_completed_as_in_the_write(sink: RoutedSink, tmp_path: Path, option: str) -> None:
    """A reader would be told that a table has no rows yet."""
    sink.append(order(0), epoch_id=0)
    options = {"warehouse": str(tmp_path), "consistent-cut": CUTS}

    assert ids_at(sink, iceberg_ds.last_complete(["orders"], options={**options, option: "db"})) == {"db.orders": [0]}
    with pytest.raises(OptionError, match="expected namespace and table"):
        iceberg_ds.last_complete(["orders"], options=options)


def test_table_that_was_dropped_or_replaced_is_named(sink: RoutedSink, last: Ask, tmp_path: Path) -> None:
    """A reader would get a snapshot of another table."""
    sink.append(order(1), customer(7), epoch_id=0)
    sink.catalog.raw.drop_table("db.orders")
    with pytest.raises(TableNotFoundError, match=r"db\.orders in the last complete cut: there is no such table"):
        last()
    assert last("db.customers") is not None

    RoutedSink.of(tmp_path).append(order(2))
    with pytest.raises(UnsupportedTableError, match=r"Cannot read db\.orders .* another table has its name"):
        last()


def test_snapshot_that_is_gone_is_named(sink: RoutedSink, last: Ask, tmp_path: Path) -> None:
    """A reader would fail with an error of its own, in the middle of its work."""
    sink.append(order(1), epoch_id=0)
    cut = last()
    RoutedSink.of(tmp_path).append(order(2))
    table = sink.catalog.load_table(("db", "orders"))
    table.manage_snapshots().remove_tag(f"{tag_prefix(BY_QUERY)}0").commit()
    assert cut is not None
    table.maintenance.expire_snapshots().by_id(cut.snapshots["db.orders"] or 0).commit()

    with pytest.raises(UnsupportedTableError, match=r"its snapshot .* is gone"):
        last()


def test_cut_that_cannot_be_read_is_told(sink: RoutedSink, last: Ask, tmp_path: Path) -> None:
    """A user would get an error of a library, which does not say what was to be read."""
    sink.append(order(1), epoch_id=0)
    for path in (tmp_path / "meta").rglob("*.parquet"):
        path.unlink()

    with pytest.raises(DataFileError, match=r"Cannot read the cuts in meta\.cuts: "):
        last()


def test_rows_that_name_the_table_of_cuts_before_it_is_there_are_refused(tmp_path: Path) -> None:
    """They would make a table of that name, in which no cut can ever be recorded."""
    sink = RoutedSink.of(tmp_path, consistent_cut="db.cuts", route_namespace="db")

    with pytest.raises(RefusedRowsError, match=r"without db\.cuts, which the write keeps for itself"):
        sink.append(order(1), {"kind": "cuts", "id": 2}, epoch_id=0)

    assert sink.catalog.find_table(("db", "cuts")) is None


def test_batch_without_a_number_is_refused(sink: RoutedSink) -> None:
    """A cut would have no number, and a repeated batch would make another one."""
    with pytest.raises(OptionError, match="a cut is that of a numbered epoch, and this batch has no number"):
        sink.append(order(1))
    assert not sink.ids("db.orders")


def test_catalog_without_tags_is_refused(sink: RoutedSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots of a cut would expire."""
    monkeypatch.setattr(CatalogClient, "holds_branches", False)
    with pytest.raises(OptionError, match="Nessie holds no tags of single tables"):
        sink.append(order(1), epoch_id=0)


def test_table_of_something_else_is_refused_before_rows_are_written(tmp_path: Path, last: Ask) -> None:
    """The first epoch would land, and its cut never."""
    RoutedSink.of(tmp_path).append(customer(7))
    with pytest.raises(UnsupportedTableError, match=r"Cannot use db\.customers .* lacks column 'app_id'"):
        RoutedSink.of(tmp_path, consistent_cut="db.customers").append(order(1), epoch_id=0)
    with pytest.raises(UnsupportedTableError, match="no table of cuts"):
        last(place="db.customers")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda update: update.delete_column("epoch").add_column("epoch", StringType()),
            "'epoch' is string, where long",
        ),
        (lambda update: update.update_column("snapshot_id", required=True), "'snapshot_id' is required"),
        (lambda update: update.add_column("more", LongType(), required=True), "'more' is required"),
    ],
)
def test_table_with_unfit_columns_is_refused_before_rows_are_written(
    sink: RoutedSink, change: Callable[[UpdateSchema], object], problem: str
) -> None:
    """Every epoch would land, and its cut never."""
    sink.append(order(0), epoch_id=0)
    with sink.catalog.load_table(("meta", "cuts")).update_schema(allow_incompatible_changes=True) as update:
        change(update)

    with pytest.raises(UnsupportedTableError, match=rf"Cannot use meta\.cuts .* its column {problem}"):
        sink.append(order(1), epoch_id=1)
    assert sink.ids("db.orders") == [0]


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("number", [3, 5])
def test_rows_that_no_cut_would_have_are_refused(tmp_path: Path, last: Ask, number: int, *, is_stream: bool) -> None:
    """Each later cut would be of two epochs: that of a number is recorded once, and has what its tables had then."""

    def put(number: int, *rows: Mapping[str, object]) -> RoutedSink:
        numbered = {} if is_stream else {"txn_app_id": "app", "txn_version": str(number)}
        sink = RoutedSink.of(tmp_path, consistent_cut=CUTS, **numbered)
        sink.append(*rows, epoch_id=number if is_stream else None)
        return sink

    put(0, order(0), customer(0))
    put(5, order(5))
    with pytest.raises(
        CommitConflictError, match=r"nothing was committed: .*db\.customers would get rows that no cut has"
    ):
        put(number, order(5), customer(5))
    assert put(5, order(5)).ids("db.customers") == [0]

    sink = put(6, order(6), customer(6))
    assert ids_at(sink, last()) == {"db.orders": [0, 5, 6], "db.customers": [0, 6]}


@pytest.mark.usefixtures("_heard")
def test_repeated_epoch_with_a_table_less_has_the_rows_of_that_table(sink: RoutedSink, last: Ask) -> None:
    """The cut would say that the epoch is complete, without the rows that its first run has written."""
    sink.append(order(0), customer(0), epoch_id=0)
    dying_at(FaultPoint.CUT_BEGUN)
    with pytest.raises(KeyboardInterrupt):
        sink.append(order(1), customer(1), epoch_id=1)
    listen(None)

    sink.append(order(1), epoch_id=1)

    assert ids_at(sink, last()) == {"db.orders": [0, 1], "db.customers": [0, 1]}


def test_checkpoint_whose_cut_is_refused_is_refused_before_rows_land(
    tmp_path: Path, last: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would land in tables that the query before it did not write, and their cut never."""
    sink = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales", accept_new_checkpoint="true")
    sink.append(order(0), customer(0), epoch_id=0)
    for query, rows in (("second", [order(1)]), ("third", [customer(1)])):
        monkeypatch.setattr(routed, "QUERY", query)
        if query == "third":
            break
        sink.append(*rows, epoch_id=0)

    with pytest.raises(CommitConflictError, match=r"nothing was committed: meta\.cuts has the cuts of another query"):
        sink.append(*rows, epoch_id=0)
    assert ids_at(sink, last()) == {"db.orders": [0, 1], "db.customers": [0]}
    assert sink.ids("db.customers") == [0]


def test_snapshot_that_expires_before_its_tag_gives_way_to_the_newest(
    sink: RoutedSink, last: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag would be refused until the last try, although a repeated epoch finds out what to tag."""
    sink.append(order(0), epoch_id=0)
    real, left = CatalogClient.send, [0]

    def expire_first(self: CatalogClient, table: Table, requirements: Any, updates: Any) -> Any:
        if left and any(getattr(update, "ref_name", "").endswith("epoch-1") for update in updates):
            left.pop()
            sink.catalog.reading_anew().load_table(("db", "orders")).append(table.scan().to_arrow().slice(0, 0))
            expire(
                Sink(
                    catalog=sink.catalog,
                    options=replace(embedded_options(Path(str(sink.options.of_all.warehouse))), table=("db", "orders")),
                )
            )
        return real(self, table, requirements, updates)

    monkeypatch.setattr(CatalogClient, "send", expire_first)
    sink.append(order(1), epoch_id=1)

    assert not left
    assert ids_at(sink, last()) == {"db.orders": [0, 1]}


def test_text_is_no_list_of_tables(sink: RoutedSink) -> None:
    """Each of its letters would be taken for a table."""
    sink.append(order(0), epoch_id=0)
    options = {"warehouse": str(sink.options.of_all.warehouse), "consistent-cut": CUTS}
    with pytest.raises(OptionError, match=r"give a list of tables, such as \['db.orders'\]"):
        iceberg_ds.last_complete("db.orders", options=options)


def test_table_with_another_partitioning_is_refused_before_rows_are_written(sink: RoutedSink) -> None:
    """Every epoch would land, and its cut never."""
    sink.append(order(0), epoch_id=0)
    table = sink.catalog.load_table(("meta", "cuts"))
    with table.update_spec() as change:
        change.remove_field("app_id")

    with pytest.raises(UnsupportedTableError, match=r"Cannot use meta\.cuts .* is partitioned by nothing, and"):
        sink.append(order(1), epoch_id=1)
    assert sink.ids("db.orders") == [0]


def test_name_of_another_kind_of_writer_is_refused(tmp_path: Path, last: Ask) -> None:
    """The cut of one would take the place of the other's, and go back, or have rows of both."""
    RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales").append(order(0), customer(0), epoch_id=7)
    before = last()
    batch = RoutedSink.of(tmp_path, consistent_cut=CUTS, txn_app_id="sales", txn_version="1")

    with pytest.raises(
        OptionError, match=r"cuts of the application 'sales': it has the last cut of the stream 'sales'"
    ):
        batch.append(customer(100))
    assert last() == before
    assert batch.ids("db.customers") == [0]
    # A stream without a name has an id, which is known only when it commits.
    RoutedSink.of(tmp_path, consistent_cut=CUTS, txn_app_id=QUERY, txn_version="1").append(order(1))
    with pytest.raises(OptionError, match=r"^The rows of query .* have landed .* of the stream without a name '"):
        RoutedSink.of(tmp_path, consistent_cut=CUTS).append(order(8), epoch_id=8)


def test_rows_may_not_name_the_table_of_the_cut(tmp_path: Path, last: Ask) -> None:
    """Rows of the feed would be taken for a cut."""
    sink = RoutedSink.of(tmp_path, consistent_cut="db.cuts")
    sink.append(order(1), epoch_id=0)
    with pytest.raises(RefusedRowsError, match=r"without db\.cuts, which the write keeps for itself"):
        sink.append(order(2), {"kind": "cuts", "id": 1}, epoch_id=1)

    cut = last(place="db.cuts")
    assert cut is not None
    assert cut.epoch == 0


def test_one_table_has_no_cut(tmp_path: Path) -> None:
    """The option would do nothing, in silence."""
    from iceberg_ds.options.rules import Kind, broken_rules  # noqa: PLC0415
    from iceberg_ds.options.sink_options import SinkOptions  # noqa: PLC0415

    options = SinkOptions(table=("db", "t"), consistent_cut=("meta", "cuts"))
    assert "this write has one table" in broken_rules(options, Kind.DATA_SOURCE | Kind.BATCH | Kind.APPEND)[0]
    with pytest.raises(OptionError, match="'consistent-cut' is one for all tables"):
        RoutedSink.of(tmp_path, {"route-options.orders.consistent-cut": "a.b"})
    with pytest.raises(OptionError, match="give option 'consistent-cut'"):
        iceberg_ds.last_complete(options={})


@WAYS
@pytest.mark.usefixtures("_heard")
def test_transaction_records_its_cut(tmp_path: Path, way: str | None, request: pytest.FixtureRequest) -> None:
    """Tables of a transaction would have no cut, or a repeated one would leave it out."""
    if way is not None:
        request.getfixturevalue(way)
    shop = Shop(folder=tmp_path)
    options = {**shop.house.options, "consistent-cut": CUTS}

    def run(version: int) -> None:
        with without_moving_rows(), shop.begin(version, consistent_cut=CUTS) as epoch:
            shop.write(epoch, version)

    run(0)
    dying_at(FaultPoint.CUT_BEGUN)
    with pytest.raises(KeyboardInterrupt):
        run(1)
    listen(None)
    before = iceberg_ds.last_complete(options=options)
    run(1)

    after = iceberg_ds.last_complete(TABLES, options=options)
    assert before is not None
    assert before.epoch == 0
    assert after is not None
    assert (after.app_id, after.epoch) == ("shop", 1)
    assert all(after.snapshots.values())
    heads = {name: shop.house.table(name).current_snapshot() for name in TABLES}
    assert after.snapshots == {name: head and head.snapshot_id for name, head in heads.items()}


def test_cut_is_that_of_a_whole_transaction(tmp_path: Path) -> None:
    """One line would name another cut, or a transaction without number would record one."""
    shop = Shop(folder=tmp_path)
    with without_moving_rows(), pytest.raises(OptionError, match="has no number"), shop.begin(consistent_cut=CUTS) as e:
        shop.write(e, 0)
    with without_moving_rows(), pytest.raises(OptionError, match="for one table of a transaction"), shop.begin(0) as e:
        e.append(frame(ORDERS, []), ORDERS, options={"consistent-cut": CUTS})


def test_lines_that_put_rows_into_the_table_of_the_cut_are_refused(tmp_path: Path) -> None:
    """A reader would take them for the cut of an epoch, or no cut could be recorded after the rows have landed."""
    shop = Shop(folder=tmp_path)
    shop.run(0)
    kept = {"on_bad_row": "quarantine", "quarantine_table": "Meta.Cuts"}
    for name, options in ((CUTS, {}), (ORDERS, kept)):
        with (
            without_moving_rows(),
            pytest.raises(OptionError, match=r"it names meta\.cuts, into which this write puts other rows"),
            shop.begin(1, consistent_cut=CUTS, **options) as epoch,
        ):
            epoch.append(frame(ORDERS, []), name)

    assert not shop.house.has_table(CUTS)


def test_table_of_the_cut_that_is_a_quarantine_table_is_refused(tmp_path: Path) -> None:
    """Its first bad row would make a table in which no cut can be recorded."""
    kept = {"on_bad_row": "quarantine", "consistent_cut": "db.cuts"}
    for own in ({"quarantine-table": "cuts"}, {"route-options.orders.quarantine-table": "db.cuts"}):
        with pytest.raises(OptionError, match=r"it names db\.cuts, into which this write puts other rows"):
            RoutedSink.of(tmp_path, own, **kept).append(order(1), epoch_id=0)


@pytest.mark.parametrize(("cut", "own"), [("db.Orders__quarantine", {}), ("other.kept", {"quarantine-table": "kept"})])
def test_table_of_the_cut_has_no_name_of_quarantine_tables(tmp_path: Path, cut: str, own: dict[str, str]) -> None:
    """Such a name is taken in each namespace, with bad rows that are yet to come."""
    sink = RoutedSink.of(tmp_path, own, on_bad_row="quarantine", consistent_cut=cut)
    with pytest.raises(OptionError, match=rf"it names {cut}, into which this write puts other rows"):
        sink.append(order(1), epoch_id=0)


@pytest.mark.parametrize("other", ["a b", "a/b", "ä", "x" * 100])
def test_names_of_tags_are_safe_and_apart(other: str) -> None:
    """Other engines could not name a tag, or two writers would drop each other's."""

    def prefix_of(name: str, kind: WriterKind = WriterKind.STREAM) -> str:
        return tag_prefix(CutWriter(app_id=name, kind=kind))

    prefix = prefix_of(other)
    assert prefix.isascii()
    assert all(letter.isalnum() or letter in "_-" for letter in prefix)
    assert len({prefix, prefix_of(f"{other}b"), prefix_of("a_b"), prefix_of(other, WriterKind.APPLICATION)}) == 4
    assert prefix_of("app-1") == "app-1-epoch-"
