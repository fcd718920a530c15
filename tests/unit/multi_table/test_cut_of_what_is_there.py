"""A cut rests on what tables have: one that is away, or of which the catalog tells late, is none without rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from support.tables.routed import RoutedSink, customer, order

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import CommitConflictError, OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.table.names import parse_identifier

pytestmark = pytest.mark.usefixtures("waits", "_heard")

CUTS = "meta.cuts"
CUSTOMERS, AWAY = ("db", "customers"), ("db", "clients")


@pytest.fixture
def _heard() -> Iterator[None]:
    yield
    listen(None)


@pytest.fixture
def sink(tmp_path: Path) -> RoutedSink:
    """Return a write into `db.orders` and `db.customers` that records cuts."""
    return RoutedSink.of(tmp_path, consistent_cut=CUTS)


@pytest.fixture
def shown(sink: RoutedSink, tmp_path: Path) -> Callable[..., dict[str, list[int]]]:
    """Return what asks for the last complete cut, and reads the ids of each table in it."""

    def ask(*tables: str) -> dict[str, list[int]]:
        cut = iceberg_ds.last_complete(tables or None, options={"warehouse": str(tmp_path), "consistent-cut": CUTS})
        assert cut is not None
        found = {}
        for name, snapshot_id in cut.snapshots.items():
            rows = sink.catalog.load_table(parse_identifier(name)).scan(snapshot_id=snapshot_id).to_arrow()
            found[name] = sorted(rows.column("id").to_pylist())
        return found

    return ask


Shown = Callable[..., dict[str, list[int]]]


def at(point: FaultPoint, act: Callable[[], object]) -> None:
    """Do something once when the driver comes to a point."""

    def hear(reached: FaultPoint) -> None:
        if reached is point:
            listen(None)
            act()

    listen(hear)


def answering_late(patch: pytest.MonkeyPatch, late: tuple[str, ...], *, states: int, loads: int = 1) -> list[str]:
    """Let the next loads of a table answer from so many states before; None for a state without it."""
    find = CatalogClient.find_table
    told: list[str] = []

    def answer(self: CatalogClient, identifier: Sequence[str]) -> Table | None:
        table = find(self, identifier)
        if table is None or tuple(identifier) != late or len(told) == loads:
            return table
        told.append("")
        log = table.metadata.metadata_log
        if len(log) < states:
            return None
        metadata = FromInputFile.table_metadata(table.io.new_input(log[-states].metadata_file))
        return Table(table.name(), metadata, log[-states].metadata_file, table.io, table.catalog)

    patch.setattr(CatalogClient, "find_table", answer)
    return told


def rename_away(sink: RoutedSink) -> None:
    """Give `db.customers` another name."""
    sink.catalog.raw.rename_table(CUSTOMERS, AWAY)


def replace_by_another(sink: RoutedSink) -> None:
    """Give `db.customers` another name, and its name to a table that nobody has written."""
    schema = sink.catalog.load_table(CUSTOMERS).schema()
    rename_away(sink)
    sink.catalog.raw.create_table(CUSTOMERS, schema)


def roll_back(sink: RoutedSink) -> None:
    """Set `db.customers` to the snapshot before its last."""
    table = sink.catalog.load_table(CUSTOMERS)
    table.manage_snapshots().set_current_snapshot(table.snapshots()[-2].snapshot_id).commit()


def name_back(sink: RoutedSink) -> None:
    """Give `db.customers` its name back."""
    if sink.catalog.find_table(CUSTOMERS) is not None:
        sink.catalog.raw.drop_table(CUSTOMERS)
    sink.catalog.raw.rename_table(AWAY, CUSTOMERS)


def set_forth(sink: RoutedSink) -> None:
    """Set `db.customers` to its last snapshot."""
    table = sink.catalog.load_table(CUSTOMERS)
    table.manage_snapshots().set_current_snapshot(table.snapshots()[-1].snapshot_id).commit()


@pytest.mark.parametrize(
    ("take", "give", "under"),
    [(rename_away, name_back, AWAY), (replace_by_another, name_back, AWAY), (roll_back, set_forth, CUSTOMERS)],
)
def test_table_that_is_away_is_told_until_a_cut_has_it(  # noqa: PLR0913, PLR0917  # each is a part of the case
    sink: RoutedSink,
    shown: Shown,
    tmp_path: Path,
    take: Callable[[RoutedSink], None],
    give: Callable[[RoutedSink], None],
    under: tuple[str, ...],
) -> None:
    """The cut would have an epoch in the orders, and not in the customers, for good."""
    sink.append(order(0), customer(0), epoch_id=0)
    RoutedSink.of(tmp_path).append(order(1), customer(1), epoch_id=1)
    take(sink)
    sink.append(order(2), epoch_id=2)

    with pytest.raises(UnsupportedTableError, match=r"Cannot tell .* db\.customers was renamed, dropped or"):
        shown(".".join(under))
    assert shown("db.orders") == {"db.orders": [0, 1, 2]}
    give(sink)
    with pytest.raises(UnsupportedTableError, match="Give it its name and rows back"):
        shown()
    sink.append(order(3), epoch_id=3)
    assert shown() == {"db.customers": [0, 1], "db.orders": [0, 1, 2, 3]}


def test_table_that_is_gone_for_a_moment_is_asked_by_the_next_cut(
    sink: RoutedSink, shown: Shown, tmp_path: Path
) -> None:
    """The driver would take a table that it misses for one without new rows."""
    sink.append(order(0), customer(0), epoch_id=0)
    RoutedSink.of(tmp_path).append(order(1), customer(1), epoch_id=1)
    at(FaultPoint.CUT_BEGUN, lambda: rename_away(sink))
    sink.append(order(2), epoch_id=2)
    name_back(sink)
    sink.append(order(3), epoch_id=3)

    assert shown() == {"db.customers": [0, 1], "db.orders": [0, 1, 2, 3]}


def test_renamed_table_that_an_epoch_writes_is_told_again(sink: RoutedSink, shown: Shown, tmp_path: Path) -> None:
    """A table with a new name for good would never be in a cut again."""
    sink.append(order(0), customer(0), epoch_id=0)
    RoutedSink.of(tmp_path).append(order(1), customer(1), epoch_id=1)
    rename_away(sink)
    sink.append(order(2), epoch_id=2)
    sink.append({"kind": "clients", "id": 3, "name": "Ann"}, epoch_id=3)

    assert shown() == {"db.clients": [0, 1, 3], "db.orders": [0, 1, 2]}


@pytest.mark.parametrize("states", [1, 9], ids=["older", "not-there"])
@pytest.mark.parametrize("has_recorded", [True, False])
def test_cut_replaces_the_rows_that_it_has_read(
    sink: RoutedSink, shown: Shown, monkeypatch: pytest.MonkeyPatch, states: int, *, has_recorded: bool
) -> None:
    """Tables that the last cut names would be in no cut any more."""
    sink.append(order(0), epoch_id=0)
    if has_recorded:
        sink.append(order(1), customer(1), epoch_id=1)
    before = shown()

    with monkeypatch.context() as patch:
        at(FaultPoint.COMMITTED, lambda: answering_late(patch, ("meta", "cuts"), states=states))
        with pytest.raises(CommitConflictError, match="have landed in all tables, but their cut was not recorded"):
            sink.append(order(2), epoch_id=2)

    assert shown() == before
    sink.append(order(2), epoch_id=2)
    assert shown() == {name: [*ids, 2] if name == "db.orders" else ids for name, ids in before.items()}


@pytest.mark.parametrize("states", [1, 9], ids=["older", "not-there"])
def test_table_that_the_catalog_tells_of_late_is_asked_again(
    sink: RoutedSink, shown: Shown, monkeypatch: pytest.MonkeyPatch, states: int
) -> None:
    """The stream would end, and be told that somebody has rolled back a table."""
    sink.append(order(0), customer(0), epoch_id=0)

    told: list[list[str]] = []
    with monkeypatch.context() as patch:
        late = lambda: told.append(answering_late(patch, CUSTOMERS, states=states, loads=3))  # noqa: E731
        at(FaultPoint.CUT_BEGUN, late)
        sink.append(order(1), customer(1), epoch_id=1)

    assert [len(answers) for answers in told] == [3]
    assert shown() == {"db.customers": [0, 1], "db.orders": [0, 1]}


def test_table_that_was_rolled_back_is_refused_at_once(sink: RoutedSink, waits: list[float]) -> None:
    """A table that shows that it had the epoch would be waited for."""
    sink.append(order(0), customer(0), epoch_id=0)
    at(FaultPoint.CUT_BEGUN, lambda: roll_back(sink))
    with pytest.raises(CommitConflictError, match="does not have the rows"):
        sink.append(order(1), customer(1), epoch_id=1)
    assert waits == []


def test_table_that_is_dropped_for_good_is_waited_for_and_told(sink: RoutedSink, waits: list[float]) -> None:
    """The driver would wait for ever."""
    sink.append(order(0), customer(0), epoch_id=0)
    at(FaultPoint.CUT_BEGUN, lambda: sink.catalog.raw.drop_table(CUSTOMERS))
    with pytest.raises(TableNotFoundError, match=r"have landed .* Table db\.customers does not exist"):
        sink.append(order(1), customer(1), epoch_id=1)
    assert waits


@pytest.mark.parametrize("states", [1, 2, 9])
def test_left_out_table_that_the_catalog_tells_of_late_is_seen_as_it_is(
    sink: RoutedSink, shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: int
) -> None:
    """The cut would have the epoch without the option in one table alone."""
    sink.append(order(0), customer(0), epoch_id=0)
    RoutedSink.of(tmp_path).append(order(1), customer(1), epoch_id=1)
    with monkeypatch.context() as patch:
        at(FaultPoint.CUT_BEGUN, lambda: answering_late(patch, CUSTOMERS, states=states, loads=2))
        sink.append(order(2), epoch_id=2)

    if states < 9:
        assert shown() == {"db.customers": [0, 1], "db.orders": [0, 1, 2]}
    else:  # as if there were no such table
        with pytest.raises(UnsupportedTableError, match="Cannot tell which"):
            shown()
    sink.append(order(3), epoch_id=3)
    assert shown() == {"db.customers": [0, 1], "db.orders": [0, 1, 2, 3]}


def test_left_out_table_without_news_stays_as_it_is(sink: RoutedSink, shown: Shown, tmp_path: Path) -> None:
    """Each cut after a gap would change tables that have no new rows."""
    sink.append(order(0), customer(0), epoch_id=0)
    RoutedSink.of(tmp_path).append(order(1), epoch_id=1)
    before = sink.catalog.load_table(CUSTOMERS).metadata_location
    sink.append(order(2), epoch_id=2)

    assert sink.catalog.load_table(CUSTOMERS).metadata_location == before
    assert shown() == {"db.customers": [0], "db.orders": [0, 1, 2]}


@pytest.mark.parametrize("point", [FaultPoint.COMMITTED, FaultPoint.CUT_BEGUN])
@pytest.mark.parametrize("is_first", [True, False])
def test_other_kind_of_writer_that_records_between_planning_and_record_keeps_its_cut(
    tmp_path: Path, point: FaultPoint, *, is_first: bool
) -> None:
    """Planning has looked before; the cut of an application would take the place of a stream's."""
    if not is_first:
        RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="other").append(order(0), epoch_id=0)
    stream = RoutedSink.of(tmp_path, consistent_cut=CUTS, stream_name="sales")
    batch = RoutedSink.of(tmp_path, consistent_cut=CUTS, txn_app_id="sales", txn_version="1")
    messages = batch.write([order(100)])
    at(point, lambda: stream.append(customer(7), epoch_id=7))

    with pytest.raises((OptionError, CommitConflictError), match="have landed in all tables, but their cut was not"):
        batch.commit(messages)

    cut = iceberg_ds.last_complete(options={"warehouse": str(tmp_path), "consistent-cut": CUTS}, app_id="sales")
    assert cut is not None
    assert (cut.epoch, list(cut.snapshots)) == (7, ["db.customers"])
