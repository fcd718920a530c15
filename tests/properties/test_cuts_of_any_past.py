"""Whatever happens to the tables, the catalog and the drivers: a cut that readers get is the state after one epoch.

Each row has the number of its epoch. So a dictionary of which epochs have written which table, by its UUID, tells what
a cut may show: of each table the epochs up to that of the cut, each once. Or a reader is told that it cannot be told.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from support.exhaustive import examples
from support.tables.routed import RoutedSink

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import IcebergSinkError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.table.names import parse_identifier

_numbers = itertools.count()
NAMES = ("a", "b", "c")
ALL = frozenset(NAMES)
AWAY = "_away"
STEPS = (
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
    FaultPoint.SKIPPED,
    FaultPoint.CUT_BEGUN,
    FaultPoint.CUT_TAGGED,
)


class Change(Enum):
    """What others do to a table."""

    RENAME = auto()  # away, or back if nothing has taken its name
    DROP = auto()
    ROLL_BACK = auto()  # to the snapshot before, or forth again


@dataclass(frozen=True)
class Others:
    """Others change a table."""

    change: Change
    name: str


class Mishap(Enum):
    """What goes wrong in one try of an epoch."""

    DEATH = auto()
    STALE = auto()  # one load answers from a state of the table before
    RIVAL = auto()  # a second driver runs the epoch from that step on, to its end
    FASTER_RIVAL = auto()  # and the next epoch, too
    ROLLED_BACK = auto()  # a table of the epoch, and set right again after the try
    AWAY = auto()  # a table, and back after the try


@dataclass(frozen=True)
class Epoch:
    """An epoch: each mishap is that of one try, and the last try has none.

    Attributes:
        names: The tables that get a row.
        has_cut: Whether it has the option.
        mishaps: What goes wrong, at which step or load, and at the how manieth time.
        repeats: How often it runs again once it has ended.
        skips: How many numbers are left out before it, by an application.
    """

    names: frozenset[str]
    has_cut: bool = True
    mishaps: Sequence[tuple[Mishap, FaultPoint, int]] = ()
    repeats: int = 0
    skips: int = 0


Event: TypeAlias = Epoch | Others


class Died(BaseException):
    """The driver is gone."""


@contextmanager
def answering_late(at: int, states: int) -> Iterator[None]:
    """Let one load, counted from 1, answer from so many states of the table before."""
    find, loads = CatalogClient.find_table, itertools.count(1)
    seen: dict[tuple[str, ...], Table] = {}

    def late(self: CatalogClient, identifier: Sequence[str]) -> Table | None:
        table = find(self, identifier)
        if next(loads) != at:
            if table is not None:
                seen[tuple(identifier)] = table
            return table
        if table is None:
            return seen.get(tuple(identifier))
        log = table.metadata.metadata_log
        if len(log) < states:
            return None
        place = log[-states].metadata_file
        metadata = FromInputFile.table_metadata(table.io.new_input(place))
        return Table(table.name(), metadata, place, table.io, table.catalog)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CatalogClient, "find_table", late)
        yield


@dataclass
class World:
    """A stream or an application, the tables, and what a dictionary knows of them.

    Attributes:
        warehouse: The warehouse.
        space: The namespace of the tables.
        is_stream: Whether epochs are numbered by a stream, without gaps.
        written: The epochs that have written a table, by its UUID.
        number: Number of the last epoch.
        due: The names that the epochs in flight write, by their numbers.
        newest: Number of the newest cut that a reader has seen.
    """

    warehouse: Path
    space: str
    is_stream: bool
    written: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    number: int = -1
    due: dict[int, frozenset[str]] = field(default_factory=dict)
    newest: int = -1

    def __post_init__(self) -> None:
        """Connect."""
        self.catalog = RoutedSink.of(self.warehouse, route_namespace=self.space).catalog
        self.taken: list[str] = []
        self.ahead: dict[str, int] = {}  # the snapshot to which a table that was rolled back is set again

    @property
    def cuts(self) -> str:
        """The table of cuts."""
        return f"{self.space}_meta.cuts"

    def find(self, name: str) -> Table | None:
        """Return a table."""
        return self.catalog.find_table((self.space, name))

    def write(self, number: int, names: frozenset[str], *, has_cut: bool) -> None:
        """Run an epoch once."""
        options = {"route_namespace": self.space, **({"consistent_cut": self.cuts} if has_cut else {})}
        if not self.is_stream:
            options |= {"txn_app_id": "app", "txn_version": str(number)}
        rows = [{"kind": name, "id": number} for name in sorted(names)]
        RoutedSink.of(self.warehouse, **options).append(*rows, epoch_id=number if self.is_stream else None)

    def note_written(self) -> None:
        """Note that the epochs in flight have ended."""
        for number, names in self.due.items():
            for name in names:
                table = self.find(name)
                assert table is not None
                self.written[str(table.metadata.table_uuid)].add(number)
        self.due = {}

    def run(self, epoch: Epoch) -> None:
        """Run an epoch through its mishaps to its end, and look after each try."""
        is_overtaken = any(mishap is Mishap.FASTER_RIVAL for mishap, *_ in epoch.mishaps)
        for name in ALL if is_overtaken else epoch.names:
            self.set_right(name)
        self.number += 1 + (0 if self.is_stream else epoch.skips)
        self.due[self.number] = epoch.names
        last = self.number
        for mishap, step, time in epoch.mishaps:
            if mishap is Mishap.FASTER_RIVAL:
                self.due[self.number + 1] = ALL
            with self.going_wrong(epoch, mishap, step, time):
                self.write(last, epoch.names, has_cut=epoch.has_cut)
            self.look()
            if mishap in {Mishap.RIVAL, Mishap.FASTER_RIVAL} and self.has_ended(self.number + 1):
                self.number += 1
                break
            self.due.pop(self.number + 1, None)
        if self.number == last:
            for _ in range(1 + epoch.repeats):
                self.write(last, epoch.names, has_cut=epoch.has_cut)
                self.look()
        self.note_written()
        self.look(at_least=self.number if epoch.has_cut else -1)

    def has_ended(self, number: int) -> bool:
        """Return whether a rival has run the epoch of this number."""
        return number in self.due and self._rival_ended >= number

    @contextmanager
    def going_wrong(self, epoch: Epoch, mishap: Mishap, step: FaultPoint, time: int) -> Iterator[None]:
        """Let one try of an epoch go wrong."""
        left, self._rival_ended = time, -1

        def act(point: FaultPoint) -> None:
            nonlocal left
            left -= point is step
            if point is not step or left:
                return
            if mishap is Mishap.DEATH:
                raise Died
            listen(None)
            self.let(mishap, epoch, is_in_cut=step in {FaultPoint.CUT_BEGUN, FaultPoint.CUT_TAGGED})

        with ExitStack() as stack:
            if mishap is Mishap.STALE:
                at = time * (1 + STEPS.index(step))
                stack.enter_context(answering_late(at=at, states=1 + time % 2))
            else:
                listen(act)
            try:
                yield
            except Died:
                pass
            except IcebergSinkError as refusal:
                assert mishap is not Mishap.DEATH
                assert mishap is not Mishap.STALE or "rolled" not in str(refusal)  # noqa: PT017
            finally:
                listen(None)
        for name in [name for name in NAMES if name in self.taken]:
            self.catalog.raw.rename_table((self.space, name + AWAY), (self.space, name))
        self.taken = []
        self.set_right(min(epoch.names))

    def let(self, mishap: Mishap, epoch: Epoch, *, is_in_cut: bool) -> None:
        """Let a rival or others come between; others only while the cut is recorded."""
        number = self.number
        if mishap in {Mishap.RIVAL, Mishap.FASTER_RIVAL}:
            self.write(number, epoch.names, has_cut=epoch.has_cut)
            self.look()
        if mishap is Mishap.FASTER_RIVAL:
            self.write(number + 1, ALL, has_cut=epoch.has_cut)
            self._rival_ended = number + 1
        if mishap is Mishap.ROLLED_BACK and is_in_cut:
            self.roll_back(min(epoch.names))
        if mishap is Mishap.AWAY and is_in_cut:
            self.taken = [name for name in NAMES if self.find(name) is not None and self.find(name + AWAY) is None]
            for name in self.taken:
                self.catalog.raw.rename_table((self.space, name), (self.space, name + AWAY))

    def roll_back(self, name: str) -> None:
        """Set a table to its snapshot before."""
        table = self.find(name)
        head = None if table is None else table.current_snapshot()
        if table is not None and head is not None and head.parent_snapshot_id is not None:
            self.ahead[str(table.metadata.table_uuid)] = head.snapshot_id
            table.manage_snapshots().set_current_snapshot(head.parent_snapshot_id).commit()

    def set_right(self, name: str) -> None:
        """Set a table that was rolled back to its newest snapshot."""
        table = self.find(name)
        if table is not None and (right := self.ahead.pop(str(table.metadata.table_uuid), None)) is not None:
            table.manage_snapshots().set_current_snapshot(right).commit()

    def change(self, event: Others) -> None:
        """Let others change a table."""
        here, away = (self.space, event.name), (self.space, event.name + AWAY)
        table = self.find(event.name)
        if event.change is Change.DROP:
            if table is not None:
                self.catalog.raw.drop_table(here)
        elif event.change is Change.ROLL_BACK:
            if table is not None and str(table.metadata.table_uuid) in self.ahead:
                self.set_right(event.name)
            else:
                self.roll_back(event.name)
        elif self.catalog.find_table(away) is None:
            if table is not None:
                self.catalog.raw.rename_table(here, away)
        elif table is None:
            self.catalog.raw.rename_table(away, here)

    def look(self, *, at_least: int = -1) -> None:
        """Ask for the cut of all tables, and for each one alone; compare each with the dictionary."""
        names = [f"{self.space}.{name}{end}" for name in NAMES for end in ("", AWAY)]
        for asked in (None, *([name] for name in names)):
            try:
                cut = iceberg_ds.last_complete(
                    asked, options={"warehouse": str(self.warehouse), "consistent-cut": self.cuts}
                )
            except (TableNotFoundError, UnsupportedTableError):  # readers are told
                continue
            if cut is None:
                assert self.newest < 0
                continue
            assert cut.epoch >= max(self.newest, at_least)
            self.newest = cut.epoch
            for name, snapshot_id in cut.snapshots.items():
                assert self.shown(name, snapshot_id) == self.expected(name, cut.epoch), (name, cut)

    def shown(self, name: str, snapshot_id: int | None) -> list[int]:
        """Return the epochs that a snapshot shows."""
        if snapshot_id is None:
            return []
        table = self.catalog.load_table(parse_identifier(name))
        return sorted(table.scan(snapshot_id=snapshot_id).to_arrow().column("id").to_pylist())

    def expected(self, name: str, number: int) -> list[int]:
        """Return the epochs that a table has, up to a number; those in flight, too, if a cut shows them."""
        table = self.catalog.find_table(parse_identifier(name))
        if table is None:
            return []
        written = {*self.written[str(table.metadata.table_uuid)]}
        written |= {one for one, names in self.due.items() if name.removeprefix(f"{self.space}.") in names}
        return sorted(one for one in written if one <= number)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the warehouse of all examples; each has a namespace of its own."""
    return tmp_path_factory.mktemp("cuts")


some_names = st.frozensets(st.sampled_from(NAMES), min_size=1)
epochs = st.builds(
    Epoch,
    names=some_names,
    has_cut=st.integers(0, 2).map(bool),
    mishaps=st.lists(st.tuples(st.sampled_from(Mishap), st.sampled_from(STEPS), st.integers(1, 4)), max_size=2),
    repeats=st.integers(0, 1),
    skips=st.integers(0, 1),
)
events = st.lists(
    epochs | st.builds(Others, change=st.sampled_from(Change), name=st.sampled_from(NAMES)), min_size=1, max_size=8
)


@pytest.mark.usefixtures("waits")
@settings(max_examples=examples(15))
@given(events=events, is_stream=st.booleans())
@example(  # a table is away while the cut after an epoch without the option is recorded
    events=[
        Epoch(ALL),
        Epoch(ALL, has_cut=False),
        Others(Change.RENAME, "b"),
        Epoch(frozenset("a")),
        Others(Change.RENAME, "b"),
        Epoch(frozenset("a")),
    ],
    is_stream=True,
)
def test_cut_is_the_state_after_one_epoch(warehouse: Path, events: list[Event], *, is_stream: bool) -> None:
    """A reader would join tables of different epochs, and nothing would tell it."""
    world = World(warehouse, f"n{next(_numbers)}", is_stream)
    for event in events:
        if isinstance(event, Epoch):
            world.run(event)
        else:
            world.change(event)
            world.look()
    for name in NAMES:
        world.set_right(name)
    world.run(Epoch(ALL))
    cut = iceberg_ds.last_complete(
        [f"{world.space}.{name}" for name in NAMES],
        options={"warehouse": str(warehouse), "consistent-cut": world.cuts},
    )
    assert cut is not None
    assert cut.epoch == world.number
