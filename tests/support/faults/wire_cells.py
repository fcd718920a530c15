"""The cells of the matrix of faults on the wire: every request of a write to a REST catalog x every kind of fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from support.catalogs.rest_sinks import rest_sink
from support.faults.kinds import COMMIT_KINDS, READ_KINDS, Effect, Kind, Way
from support.faults.operations import Mode, Operation, Phase
from support.faults.proxy import FaultProxy, Request, WireFault
from support.faults.writes import Trial, few_retries
from support.tables.sink import Sink

from iceberg_ds.catalog.client import CatalogClient

_EVERY = frozenset(range(1, 100))
_NAMESPACE, _TABLE = r"/v1/namespaces/ns\d+", r"/v1/namespaces/ns\d+/tables/t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that a write makes.

    Attributes:
        phase: In which phase.
        pattern: What it is like.
    """

    phase: Phase
    pattern: str

    def __str__(self) -> str:
        return f"{self.phase.value}: {self.pattern.replace(_NAMESPACE, '/v1/namespaces/ns')}"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """How it can fail; a request that is no commit is not carried out late."""
        if self.pattern.startswith("HEAD"):
            return tuple(kind for kind in READ_KINDS if kind.way not in {Way.STALE, Way.HALF})
        if not self.pattern.startswith("POST"):
            return tuple(kind for kind in READ_KINDS if kind.way is not Way.STALE or self.pattern == f"GET {_TABLE}")
        if self.pattern == f"POST {_TABLE}":
            return COMMIT_KINDS
        return tuple(kind for kind in COMMIT_KINDS if kind.effect in {Effect.NEVER, Effect.AT_ONCE})


_VIEW = f"HEAD {_NAMESPACE}/views/t"
_LOOK_UP = Asked(phase=Phase.PLAN, pattern=f"GET {_TABLE}")
_ATTEMPT = (Asked(phase=Phase.COMMIT, pattern=f"GET {_TABLE}"), Asked(phase=Phase.COMMIT, pattern=f"POST {_TABLE}"))
ASKED_BY: Mapping[Operation, tuple[Asked, ...]] = {
    Operation.APPEND: (_LOOK_UP, *_ATTEMPT),
    Operation.CREATE: (
        _LOOK_UP,
        *(
            Asked(phase=Phase.PLAN, pattern=pattern)
            for pattern in (_VIEW, f"HEAD {_NAMESPACE}", "POST /v1/namespaces", f"POST {_NAMESPACE}/tables")
        ),
        Asked(phase=Phase.COMMIT, pattern=_VIEW),
        *_ATTEMPT,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the matrix."""

    operation: Operation
    mode: Mode
    asked: Asked
    is_lasting: bool
    kind: Kind

    def __str__(self) -> str:
        which = "each" if self.is_lasting else "first"
        return f"{self.mode.value}, {self.operation.value}, {self.asked} {which}, {self.kind}"

    @property
    def fault(self) -> WireFault:
        """What goes wrong."""
        numbers = _EVERY if self.is_lasting else frozenset({1})
        return WireFault(request=self.asked.pattern, numbers=numbers, kind=self.kind)


# Each way to fail of each request is shown to one of the writes, and so is each fault; each mode meets a fault of each
# effect at each request.
KINDS_OF_CELLS: tuple[Callable[[Cell], Hashable], ...] = (
    lambda cell: (cell.asked, cell.kind.way, cell.is_lasting),
    lambda cell: cell.kind,
    lambda cell: (cell.mode, cell.kind.effect),
)


def cells() -> list[Cell]:
    """Return all cells; only a commit fails in each attempt, too."""
    return [
        Cell(operation=operation, mode=mode, asked=asked, is_lasting=is_lasting, kind=kind)
        for operation, requests in ASKED_BY.items()
        for mode in Mode
        for asked in requests
        for kind in asked.kinds
        # What hangs takes the product's time-out.
        for is_lasting in (
            (False, True) if asked.pattern == f"POST {_TABLE}" and kind.way not in {Way.HANG, Way.STALL} else (False,)
        )
    ]


@dataclass(slots=True, kw_only=True)
class WireAttack:
    """A fault on the wire.

    Attributes:
        proxy: Where it strikes.
        asked: Which request, None for none.
        fault: How.
    """

    proxy: FaultProxy
    asked: Asked | None = None
    fault: WireFault | None = None
    requests: dict[Phase, list[tuple[Request, Kind | None]]] = field(default_factory=dict)
    _now: Phase | None = None
    _lied: bool = False

    def begin(self, phase: Phase) -> None:
        """Let requests fail if this is the phase."""
        self.calm()
        self._now = phase
        strikes = self.fault is not None and self.asked is not None and self.asked.phase is phase
        self.proxy.begin(*((self.fault,) if strikes and self.fault is not None else ()))

    def calm(self) -> None:
        """Let no request fail any more."""
        if self._now is not None:
            self.requests[self._now] = list(self.proxy.requests)
            self._lied = self._lied or self.proxy.lied
        self._now = None
        self.proxy.begin()

    def deliver(self, *, all_of_them: bool) -> bool:
        """Let the catalog carry out what was held up."""
        return self.proxy.deliver(*(() if all_of_them else (Effect.AT_LAST,))) > 0

    @property
    def _attacked(self) -> list[tuple[Request, Kind | None]]:
        return self.requests.get(self.asked.phase, []) if self.asked is not None else []

    @property
    def has_struck(self) -> bool:
        """Whether a request has failed."""
        return any(kind is not None for _, kind in self._attacked)

    @property
    def leaves_doubt(self) -> bool:
        """Whether a commit was sent whose answer told nothing."""
        return self._lied or any(
            kind is not None and not kind.is_refusal and re.fullmatch(f"POST {_TABLE}", str(request))
            for request, kind in self._attacked
        )

    @property
    def was_blind(self) -> bool:
        """Return that a load is tried again as often as it takes."""
        return False

    @property
    def hinders_deleting(self) -> bool:
        """Return that the catalog has nothing to do with files."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The catalog of all cells, each of which has a namespace of its own.

    Attributes:
        direct: Past the proxy.
        proxied: Through it.
        proxy: The proxy.
        warehouse: The folder of the tables.
    """

    direct: Sink
    proxied: Sink
    proxy: FaultProxy
    warehouse: Path
    _numbers: count[int] = field(default_factory=count)

    @classmethod
    def make(cls, proxy: FaultProxy, warehouse: Path, **properties: str) -> Ground:
        """Connect to the catalog."""
        shared = {"warehouse": f"file://{warehouse}", **properties}
        return cls(
            direct=few_retries(rest_sink({"uri": proxy.upstream, **shared})),
            proxied=few_retries(rest_sink({"uri": proxy.uri, **shared})),
            proxy=proxy,
            warehouse=warehouse,
        )

    def trial(
        self, operation: Operation, mode: Mode, asked: Asked | None = None, fault: WireFault | None = None
    ) -> tuple[Trial, WireAttack]:
        """Return a write into a namespace of its own."""
        namespace = f"ns{next(self._numbers)}"

        def sink(of: Sink) -> Sink:
            catalog: CatalogClient = of.catalog
            return Sink(catalog=catalog, options=replace(of.options, table=(namespace, "t")))

        attack = WireAttack(proxy=self.proxy, asked=asked, fault=fault)
        folder = self.warehouse / namespace / "t"
        trial = Trial(
            operation=operation,
            mode=mode,
            clean=sink(self.direct),
            attacked=sink(self.proxied),
            attack=attack,
            folder=folder,
        )
        trial.prepare()
        return trial, attack
