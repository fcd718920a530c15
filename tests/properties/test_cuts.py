"""Any epochs, deaths, rollbacks and so on: the last cut is what a dictionary says, and never goes back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.exhaustive import examples
from support.tables import routed
from support.tables.routed import RoutedSink

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.table.names import parse_identifier

_numbers = itertools.count()
NAMES = ("a", "b", "c")
# The steps of the committer from the first table to the record of the cut.
STEPS = (
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
    FaultPoint.SKIPPED,
    FaultPoint.CUT_BEGUN,
    FaultPoint.CUT_TAGGED,
)
Model = Mapping[str, tuple[int, ...]]


class Event(Enum):
    """What happens beside an epoch."""

    NOTHING = auto()
    REPEATED = auto()
    WITHOUT_OPTION = auto()
    ROLLED_BACK = auto()  # a table of it, before its snapshot is tagged
    NEW_CHECKPOINT = auto()  # numbers begin with 0 again


class Died(BaseException):
    """The driver is gone."""


@contextmanager
def dying_at(step: FaultPoint, time: int) -> Iterator[None]:
    """Let the driver die when it comes to a step for the nth time."""
    reached = itertools.count(1)

    def act(point: FaultPoint) -> None:
        if point is step and next(reached) == time:
            raise Died

    listen(act)
    try:
        yield
    except Died:
        pass
    finally:
        listen(None)


@contextmanager
def rolling_back(sink: RoutedSink, name: str) -> Iterator[None]:
    """Roll a table back once all tables have their rows, and set it right again after the refusal."""
    right: list[int] = []

    def act(point: FaultPoint) -> None:
        if point is FaultPoint.CUT_BEGUN:
            table = sink.catalog.load_table(parse_identifier(name))
            head = table.current_snapshot()
            assert head is not None
            if head.parent_snapshot_id is not None:
                right.append(head.snapshot_id)
                table.manage_snapshots().set_current_snapshot(head.parent_snapshot_id).commit()

    listen(act)
    try:
        yield
    except CommitConflictError as refusal:
        assert "does not have the rows" in str(refusal)  # noqa: PT017
    else:
        assert not right
    finally:
        listen(None)
        for snapshot_id in right:
            table = sink.catalog.load_table(parse_identifier(name))
            table.manage_snapshots().set_current_snapshot(snapshot_id).commit()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the warehouse of all examples; each has a namespace of its own."""
    return tmp_path_factory.mktemp("cuts")


@pytest.mark.usefixtures("waits")
@settings(max_examples=examples(15))
@given(
    epochs=st.lists(
        st.tuples(
            st.sets(st.sampled_from(NAMES), min_size=1),
            st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 4)), max_size=2),
            st.sampled_from(Event),
        ),
        min_size=1,
        max_size=6,
    ),
    way=st.sampled_from(["together", "one by one"]),
)
@example(
    epochs=[({"a", "b"}, [], Event.NOTHING), ({"a", "b"}, [], Event.WITHOUT_OPTION), ({"a"}, [], Event.ROLLED_BACK)],
    way="together",
)
def test_last_cut_is_always_one_of_whole_epochs(
    warehouse: Path, epochs: list[tuple[set[str], list[tuple[FaultPoint, int]], Event]], way: str
) -> None:
    """A reader would join tables of different epochs, go back to an older one, or get snapshots that it cannot read."""
    space = f"n{next(_numbers)}"
    reader = Reader(RoutedSink.of(warehouse, route_namespace=space), warehouse, f"{space}_meta.cuts")
    options = {"route_namespace": space, "stream_name": "sales"}
    epoch_id, recorded = -1, -1
    with pytest.MonkeyPatch.context() as patch:
        if way == "one by one":
            patch.setattr(CatalogClient, "takes_many_tables", False)
        for number, (names, deaths, event) in enumerate(epochs):
            rows = [{"kind": name, "id": number} for name in sorted(names)]
            epoch_id += 1
            if event is Event.NEW_CHECKPOINT and "accept_new_checkpoint" not in options:  # which takes the name once
                options["accept_new_checkpoint"], epoch_id = "true", 0
                patch.setattr(routed, "QUERY", "0b9f2c1e-9999-4222-8333-444455556666")
            has_cut = event is not Event.WITHOUT_OPTION
            reader.expect(number, epoch_id, {f"{space}.{name}" for name in names}, has_cut=has_cut)
            if not has_cut:
                RoutedSink.of(warehouse, **options).append(*rows, epoch_id=epoch_id)
                reader.look(at_least=recorded)
                continue
            sink = RoutedSink.of(warehouse, **options, consistent_cut=f"{space}_meta.cuts")
            for step, time in deaths:
                with dying_at(step, time):
                    sink.append(*rows, epoch_id=epoch_id)
                reader.look(at_least=recorded)
            if event is Event.ROLLED_BACK:
                with rolling_back(sink, f"{space}.{min(names)}"):
                    sink.append(*rows, epoch_id=epoch_id)
                reader.look(at_least=recorded)
            recorded = number
            for _ in range(1 + (event is Event.REPEATED)):
                sink.append(*rows, epoch_id=epoch_id)
                reader.look(at_least=recorded)


class Reader:
    """Looks at the last complete cut again and again, and compares it with what the epochs wrote.

    Args:
        sink: A sink with the catalog.
        warehouse: The warehouse.
        cuts: The table of cuts.
    """

    def __init__(self, sink: RoutedSink, warehouse: Path, cuts: str) -> None:
        self._sink = sink
        self._options = {"warehouse": str(warehouse), "consistent-cut": cuts}
        self._rows: dict[str, tuple[int, ...]] = {}
        self._in_cuts: set[str] = set()
        self._models: dict[int, tuple[int, Model]] = {}
        self._seen: dict[int, iceberg_ds.Cut] = {}

    def expect(self, number: int, epoch_id: int, tables: set[str], *, has_cut: bool) -> None:
        """Note that the epoch adds its number to tables; tables that no cut has named so far are in none."""
        self._rows |= {table: (*self._rows.get(table, ()), number) for table in tables}
        self._in_cuts |= tables if has_cut else set()
        self._models[number] = epoch_id, {table: self._rows[table] for table in self._in_cuts}

    def look(self, *, at_least: int) -> None:
        """Ask for the cut, and read each of its snapshots."""
        cut = iceberg_ds.last_complete(options=self._options)
        if cut is None:
            assert at_least < 0
            assert not self._seen
            return
        found = {}
        for name, snapshot_id in cut.snapshots.items():
            table = self._sink.catalog.load_table(parse_identifier(name))
            found[name] = tuple(sorted(table.scan(snapshot_id=snapshot_id).to_arrow().column("id").to_pylist()))
            assert any(ref.snapshot_id == snapshot_id and name != "main" for name, ref in table.refs().items())
        number = max(itertools.chain(*found.values()))
        assert number >= max(at_least, *self._seen, -1)
        assert self._seen.setdefault(number, cut) == cut
        assert (cut.epoch, found) == self._models[number]
