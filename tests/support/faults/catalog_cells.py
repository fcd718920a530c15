"""The cells of the matrix of catalog faults: every call of a write, every kind of fault, at each attempt."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from support.catalogs.faulty_catalog import FaultyCatalog, Strike
from support.catalogs.lax_catalog import LaxCatalog
from support.checks.invariants import unreferenced_files
from support.faults.kinds import COMMIT_KINDS, CONFLICT, READ_KINDS, SERVER_ERRORS, Effect, Kind, Way
from support.faults.operations import Mode, Operation, Phase
from support.faults.writes import ATTEMPTS, Trial, few_retries, ids_of_clickhouse
from support.tables.sink import IDENTIFIER, Sink, embedded_options, local

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.settings import catalog_settings

MOST_CALLS = 40  # more than any write makes


class At(Enum):
    """At which of the calls of one kind the fault is."""

    FIRST = 1
    MIDDLE = 2
    LAST = ATTEMPTS
    LOOK = ATTEMPTS + 1  # what the last attempt is followed by
    EVERY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a write makes.

    Attributes:
        phase: In which phase.
        method: Which.
        first: How often it was made in that phase before the first attempt, for another reason.
        is_tried_again: Whether there are further attempts.
    """

    phase: Phase
    method: str
    first: int = 0
    is_tried_again: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """How it can fail."""
        if self.method == "commit_table":
            return COMMIT_KINDS
        if self.method == "create_namespace_if_not_exists":
            return tuple(kind for kind in COMMIT_KINDS if kind.effect in {Effect.NEVER, Effect.AT_ONCE})
        return tuple(kind for kind in READ_KINDS if kind.way is not Way.STALE or self.method == "load_table")

    @property
    def places(self) -> tuple[At, ...]:
        """Which of these calls can fail."""
        if not self.is_tried_again:
            return (At.FIRST,)
        has_look = self.method == "load_table" and self.phase is Phase.COMMIT
        return tuple(at for at in At if at is not At.LOOK or has_look)


_LOOK_UP = Call(phase=Phase.PLAN, method="load_table")
_ATTEMPT = (
    Call(phase=Phase.COMMIT, method="load_table", is_tried_again=True),
    Call(phase=Phase.COMMIT, method="commit_table", is_tried_again=True),
)
_CHANGE = (
    Call(phase=Phase.PLAN, method="load_table", first=1, is_tried_again=True),
    Call(phase=Phase.PLAN, method="commit_table", is_tried_again=True),
)
_CREATION = tuple(
    Call(phase=Phase.PLAN, method=method)
    for method in (
        "view_exists",
        "namespace_exists",
        "create_namespace_if_not_exists",
        "create_table_transaction",
    )
)
# The search loads the table before the attempts, and who deletes the files of keys does so after the last one.
_UPSERT = (
    Call(phase=Phase.COMMIT, method="load_table"),
    *(replace(call, first=1) if call.method == "load_table" else call for call in _ATTEMPT),
    Call(phase=Phase.COMMIT, method="load_table", first=2),
)
CALLS_OF: Mapping[Operation, tuple[Call, ...]] = {
    Operation.APPEND: (_LOOK_UP, *_ATTEMPT),
    Operation.APPEND_BY_MANIFESTS: (_LOOK_UP, *_ATTEMPT),
    Operation.APPEND_AND_MERGE: (_LOOK_UP, *_ATTEMPT),
    Operation.OVERWRITE: (_LOOK_UP, *_ATTEMPT),
    Operation.UPSERT: (_LOOK_UP, *_ATTEMPT),
    Operation.MARK: (_LOOK_UP, *_UPSERT),
    Operation.REWRITE: (_LOOK_UP, *_UPSERT),
    Operation.CREATE_BY_KEYS: (_LOOK_UP, *_CREATION, Call(phase=Phase.COMMIT, method="view_exists"), *_UPSERT),
    Operation.REPLACE: (_LOOK_UP, *_ATTEMPT),
    Operation.CREATE: (_LOOK_UP, *_CREATION, Call(phase=Phase.COMMIT, method="view_exists"), *_ATTEMPT),
    Operation.CREATE_EMPTY: (_LOOK_UP, *_CREATION, _ATTEMPT[1]),
    Operation.CHANGE: (_LOOK_UP, *_CHANGE, *_ATTEMPT),
    Operation.CHANGE_AND_REPLACE: (_LOOK_UP, *_ATTEMPT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the matrix."""

    operation: Operation
    mode: Mode
    call: Call
    at: At
    kind: Kind

    def __str__(self) -> str:
        what = f"{self.call.phase.value}: {self.call.method}"
        place = (
            f" {self.at.name.lower()}"
            if self.call.is_tried_again
            else f" {self.call.first + 1}" * (self.call.first > 0)
        )
        return f"{self.mode.value}, {self.operation.value}, {what}{place}, {self.kind}"

    @property
    def seen(self) -> Hashable:
        """What the sink sees of the fault: statuses for which PyIceberg raises the same error look alike."""
        kind = self.kind
        return kind if kind.status not in SERVER_ERRORS else (type(kind.error(self.call.method)), kind.effect)

    def strikes(self) -> Iterator[Strike]:
        """Yield what fails; attempts before the one that the cell is about lose a race."""
        call, method = self.call, self.call.method
        if self.at is At.EVERY:
            for number in range(1, MOST_CALLS):
                yield Strike(method=method, number=call.first + number, kind=self.kind)
            return
        yield Strike(method=method, number=call.first + self.at.value, kind=self.kind)
        for number in range(1, self.at.value):
            yield Strike(method="commit_table", number=number, kind=CONFLICT)


# One commit loop tries the calls of all operations again, so that each fault is shown to one of them, at each call and
# attempt; and each operation meets, at each of its calls and attempts, a fault of each effect.
KINDS_OF_CELLS: tuple[Callable[[Cell], Hashable], ...] = (
    lambda cell: (cell.mode, cell.call, cell.at, cell.seen),
    lambda cell: (cell.mode, cell.operation, cell.call, cell.at, cell.kind.effect),
    lambda cell: (cell.mode, cell.call.method, cell.kind),
)


# What a table of version 3 has of its own is in the rows and in the requests, whose loss is told as in version 2: each
# write meets a fault, and each fate of a request is met by some.
KINDS_IN_VERSION_3: tuple[Callable[[Cell], Hashable], ...] = (
    lambda cell: cell.operation,
    lambda cell: cell.kind.effect,
)


def cells(mode: Mode) -> list[Cell]:
    """Return the cells of a mode but for upserts, which have a matrix of their own."""
    return [cell for cell in all_cells(mode) if cell.operation.encoding is None]


def all_cells(mode: Mode) -> list[Cell]:
    """Return the cells of a mode, those of upserts among them."""
    return [
        Cell(operation=operation, mode=mode, call=call, at=at, kind=kind)
        for operation, calls in CALLS_OF.items()
        if mode is Mode.BATCH or operation is not Operation.CREATE_EMPTY  # an epoch without rows creates nothing
        for call in calls
        for at in call.places
        for kind in call.kinds
    ]


# ClickHouse takes as long for one read as a cell does for all else.
_CELLS_FOR_A_SECOND_READER = 16


def check_cell(ground: Ground, cell: Cell) -> None:
    """Run a cell and hold the table against the oracle; every 16th cell, drawn by its name, has a second reader."""
    trial = ground.trial(cell.operation, cell.call.phase, cell.strikes())
    # PyIceberg writes down no metadata of version 3 for ClickHouse.
    if zlib.crc32(str(cell).encode()) % _CELLS_FOR_A_SECOND_READER == 0 and ground.version is None:
        trial.second_reader = ids_of_clickhouse
    trial.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The calls of a catalog that a write made.

    Attributes:
        named: Those that can fail, by phase.
        unnamed: Others.
    """

    named: set[tuple[Phase, str]]
    unnamed: set[str]


class CatalogAttack:
    """Faults of the catalog.

    Args:
        catalog: The catalog whose calls fail.
        phase: When.
        strikes: Which.
        tidying: How often the table is loaded after the commit's last look at it.
    """

    def __init__(self, catalog: FaultyCatalog, phase: Phase, strikes: tuple[Strike, ...], *, tidying: int = 0) -> None:
        self._catalog = catalog
        self._phase = phase
        self._strikes = strikes
        self._tidying = tidying
        self._struck: list[Strike] = []
        self._loads = 0
        self._lied = False
        self.calls: dict[Phase, dict[str, int]] = {}
        self._now: Phase | None = None

    def begin(self, phase: Phase) -> None:
        """Let calls fail if this is the phase."""
        self.calm()
        self._now = phase
        self._catalog.begin(*(self._strikes if phase is self._phase else ()))

    def calm(self) -> None:
        """Let no call fail any more."""
        if self._now is not None:
            self.calls[self._now] = dict(self._catalog.calls)
        if self._now is self._phase:
            self._struck = list(self._catalog.struck)
            self._loads = self._catalog.calls["load_table"]
            self._lied = self._catalog.lied
        self._now = None
        self._catalog.begin()

    def deliver(self, *, all_of_them: bool) -> bool:
        """Let the catalog carry out what it held up."""
        return self._catalog.deliver(*(() if all_of_them else (Effect.AT_LAST,))) > 0

    @property
    def unnamed(self) -> set[str]:
        """The methods that were asked for and are none of `CALLS`."""
        return self._catalog.passed

    @property
    def has_struck(self) -> bool:
        """Whether the call that the cell is about has failed."""
        return bool(self._struck) and self._struck[-1].kind is self._strikes[0].kind

    @property
    def leaves_doubt(self) -> bool:
        """Whether a commit was sent whose answer told nothing; one that tells must be seen in the table, too."""
        if self._lied or (self.was_blind and self.calls.get(self._phase, {}).get("commit_table")):
            return True
        return any(strike.method == "commit_table" and not strike.kind.is_refusal for strike in self._struck)

    @property
    def was_blind(self) -> bool:
        """Whether the last load failed or was out of date."""
        last = self._loads - self._tidying
        return any(strike.method == "load_table" and strike.number == last for strike in self._struck)

    @property
    def hinders_deleting(self) -> bool:
        """Return that the catalog has nothing to do with files."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the cells of a mode begin with: an empty catalog, and one with a table; each cell works on copies.

    Attributes:
        folder: The files of both.
        mode: The mode.
        empty: Without any table.
        used: With the table, by the operation that filled it, in folders of their own.
        version: Format version of the table, None for the default.
    """

    folder: Path
    mode: Mode
    empty: FaultyCatalog
    used: Mapping[Operation, FaultyCatalog]
    version: str | None = None

    @classmethod
    def make(cls, folder: Path, mode: Mode, version: str | None = None) -> Ground:
        """Make the catalogs; tables are of a format version, None for the default."""
        made = {}
        for operation in {operation.first for operation in Operation}:
            place = _folder(folder, operation)
            place.mkdir(exist_ok=True)
            made[operation] = catalog = FaultyCatalog(LaxCatalog(place, namespaces=set()))
            calm, sink = CatalogAttack(catalog, Phase.COMMIT, ()), _sink(catalog, place, version)
            Trial(operation=operation, mode=mode, clean=sink, attacked=sink, attack=calm, folder=place).prepare()
        empty = FaultyCatalog(LaxCatalog(folder, namespaces=set()))
        return cls(folder=folder, mode=mode, empty=empty, used=made, version=version)

    def trial(self, operation: Operation, phase: Phase = Phase.COMMIT, strikes: Iterable[Strike] = ()) -> Trial:
        """Return a write whose catalog strikes in one phase."""
        ground = self.empty if operation.creates else self.used[operation.first]
        folder = _folder(self.folder, operation)
        inner = ground.inner.copy()
        faulty = ground.copy(inner)
        return Trial(
            operation=operation,
            mode=self.mode,
            clean=_sink(inner, folder, self.version),
            attacked=_sink(faulty, folder, self.version),
            attack=CatalogAttack(faulty, phase, tuple(strikes), tidying=operation.encoding is not None),
            folder=folder / "db" / "t",
        )

    def calls_of(self, operation: Operation) -> Made:
        """Return the calls of a write of which nothing fails."""
        trial = self.trial(operation)
        trial.write()
        attack = trial.attack
        assert isinstance(attack, CatalogAttack)
        named = {(phase, method) for phase, calls in attack.calls.items() for method in calls}
        return Made(named=named, unnamed=attack.unnamed)

    def tidy(self) -> None:
        """Remove what a cell has left behind in the folder."""
        for catalog in self.used.values():
            table = catalog.load_table(IDENTIFIER)
            for path in unreferenced_files(table) | set(local(table.location()).rglob("*.json")):
                path.unlink()


def _folder(folder: Path, operation: Operation) -> Path:
    """Return where the table of an operation is."""
    first = Operation.APPEND if operation.creates else operation.first
    return folder if first is Operation.APPEND else folder / first.name


def _sink(catalog: Any, folder: Path, version: str | None) -> Sink:
    """Return what writes through a catalog; its client only calls methods that the faulty one has, too."""
    options = embedded_options(folder)
    return few_retries(Sink(catalog=CatalogClient(catalog, catalog_settings(options)), options=options), version)
