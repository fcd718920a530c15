"""The cells of the matrix of faults between a write and an S3 store: each request x every kind of fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from support.catalogs.faulty_catalog import FaultyCatalog, Strike
from support.faults.catalog_cells import MOST_CALLS
from support.faults.kinds import KINDS, READ_KINDS, THROTTLED, Effect, Kind, Way
from support.faults.operations import Mode, Operation, Phase
from support.faults.proxy import FaultProxy, Request, WireFault
from support.faults.writes import Trial, few_retries
from support.services.servers import ObjectStore
from support.tables.sink import FOLDERS_OF_STORES, NAME, Sink

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

_BUSY = 503
_LASTING = (Kind(way=Way.STATUS, status=_BUSY), Kind(way=Way.RESET))
_EVERY = frozenset(range(1, 1000))
DELETING = r"(POST|DELETE) .*"
WRITING = (
    r"PUT .*\.parquet",
    r"PUT .*-m\d+\.avro",
    r"PUT .*/snap-[^/]*\.avro",
    r"PUT .*\.metadata\.json",
)
READING = (r"GET .*\.metadata\.json", r"GET .*/snap-[^/]*\.avro")
_PATTERNS = (*WRITING, *READING, DELETING)
# A server that hangs costs this much; one that is busy should not seem to hang.
_PATIENCE = {"s3.connect-timeout": "5", "s3.request-timeout": "1", "s3.retry.num-retries": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the matrix."""

    pattern: str
    is_lasting: bool
    kind: Kind

    def __str__(self) -> str:
        return f"{self.pattern} {'each' if self.is_lasting else 'first'}, {self.kind}"

    @property
    def fault(self) -> WireFault:
        """What goes wrong."""
        return WireFault(request=self.pattern, numbers=_EVERY if self.is_lasting else frozenset({1}), kind=self.kind)


# Each request is lost before and after it is done; a store that stops reading is met for once and for good.
KINDS_OF_CELLS: tuple[Callable[[Cell], Hashable], ...] = (
    lambda cell: (cell.pattern, cell.kind.effect),
    lambda cell: (cell.kind.way is Way.STALL, cell.is_lasting),
)


def kinds_for(pattern: str) -> tuple[Kind, ...]:
    """Return how a request can fail; one error of the server stands for all."""
    effects = {Effect.NEVER} if pattern in READING else {Effect.NEVER, Effect.AT_ONCE}
    return tuple(
        kind
        for kind in (READ_KINDS if pattern in READING else KINDS)
        if kind.effect in effects
        and kind.way is not Way.STALE
        and kind.status in {None, _BUSY}
        and (kind.way is not Way.HALF or (pattern in READING) == (kind.effect is Effect.NEVER))
    )


def cells() -> list[Cell]:
    """Return all cells; two kinds of fault last, so that every request has met one that does."""
    return [
        Cell(pattern=pattern, is_lasting=is_lasting, kind=kind)
        for pattern in _PATTERNS
        for kind in kinds_for(pattern)
        for is_lasting in ((False, True) if kind in _LASTING else (False,))
    ]


@dataclass(slots=True, kw_only=True)
class StoreAttack:
    """A fault between the write and its store, with refused commits where files are to be deleted."""

    proxy: FaultProxy
    catalog: FaultyCatalog
    cell: Cell | None
    requests: list[tuple[Request, Kind | None]] = field(default_factory=list)
    _is_on: bool = False

    def begin(self, phase: Phase) -> None:  # noqa: ARG002  # each request belongs to one
        """Let requests fail from now on."""
        if self._is_on:
            return
        self._is_on = True
        self.proxy.begin(*((self.cell.fault,) if self.cell is not None else ()))
        if self.hinders_deleting:
            refused = (Strike(method="commit_table", number=number, kind=THROTTLED) for number in range(1, MOST_CALLS))
            self.catalog.begin(*refused)

    def calm(self) -> None:
        """Let no request fail any more."""
        if self._is_on:
            self.requests = list(self.proxy.requests)
        self._is_on = False
        self.proxy.begin()
        self.catalog.begin()

    def deliver(self, *, all_of_them: bool) -> bool:  # noqa: ARG002  # of the protocol
        """Return that the store holds nothing up."""
        return False

    @property
    def has_struck(self) -> bool:
        """Whether a request has failed."""
        return any(kind is not None for _, kind in self.requests)

    @property
    def leaves_doubt(self) -> bool:
        """Whether the catalog's own file was hit, which it writes and reads in the midst of a commit."""
        return self.cell is not None and "metadata" in self.cell.pattern

    @property
    def was_blind(self) -> bool:
        """Whether the table could not be loaded any more."""
        return self.cell is not None and self.cell.pattern in READING and self.cell.is_lasting

    @property
    def hinders_deleting(self) -> bool:
        """Whether files cannot be deleted."""
        return self.cell is not None and self.cell.pattern == DELETING

    @property
    def asked(self) -> set[str]:
        """The patterns of what was asked."""
        texts = [str(request) for request, _ in self.requests]
        return {pattern for pattern in _PATTERNS if any(re.fullmatch(pattern, text) for text in texts)}

    @property
    def unnamed(self) -> list[str]:
        """The requests that no cell is about."""
        return [
            str(request)
            for request, _ in self.requests
            if not any(re.fullmatch(pattern, str(request)) for pattern in _PATTERNS)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A store with the proxy before it, and a catalog over both ways; each cell has a table of its own.

    Attributes:
        direct: Past the proxy.
        proxied: Through it.
        faulty: The catalog of `proxied`.
        proxy: The proxy.
        warehouse: The folder of the tables.
    """

    direct: Sink
    proxied: Sink
    faulty: FaultyCatalog
    proxy: FaultProxy
    warehouse: Path
    _numbers: count[int] = field(default_factory=count)

    @classmethod
    def make(cls, store: ObjectStore, proxy: FaultProxy, folder: Path) -> Ground:
        """Connect to the catalog, whose database is in `folder`."""
        bucket = store.bucket("faults")
        FOLDERS_OF_STORES[bucket] = warehouse = store.folder / "faults"
        catalog = {
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{folder}/catalog.db",
            "catalog.warehouse": bucket,
        }
        proxied = _sink(catalog, {**store.properties, "s3.endpoint": proxy.uri, **_PATIENCE})
        faulty = FaultyCatalog(proxied.catalog.raw)
        # The client only calls methods that the faulty catalog has, too.
        client: Any = CatalogClient(faulty, catalog_settings(proxied.options))  # type: ignore[arg-type]
        return cls(
            direct=_sink(catalog, store.properties),
            proxied=Sink(catalog=client, options=proxied.options),
            faulty=faulty,
            proxy=proxy,
            warehouse=warehouse,
        )

    def trial(self, cell: Cell | None) -> tuple[Trial, StoreAttack]:
        """Return an epoch of a stream, into a table of its own."""
        name = f"t{next(self._numbers)}"
        attack = StoreAttack(proxy=self.proxy, catalog=self.faulty, cell=cell)
        trial = Trial(
            operation=Operation.APPEND,
            mode=Mode.STREAM,
            clean=_at(name, self.direct),
            attacked=_at(name, self.proxied),
            attack=attack,
            folder=self.warehouse / "db" / name,
        )
        trial.prepare()
        return trial, attack


def _at(name: str, sink: Sink) -> Sink:
    return Sink(catalog=sink.catalog, options=replace(sink.options, table=("db", name)))


def _sink(catalog: Mapping[str, str], store: Mapping[str, str]) -> Sink:
    given = {"table": NAME, **catalog, **{f"catalog.{key}": value for key, value in store.items()}}
    options = parse_options(given)
    return few_retries(Sink(catalog=connect(catalog_settings(options)), options=options))
