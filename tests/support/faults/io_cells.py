"""The cells of the matrix of file faults: what is done to each kind of file x every harm, once and always."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.catalogs.faulty_catalog import FaultyCatalog, Strike
from support.faults.catalog_cells import MOST_CALLS
from support.faults.io import FAULTY_IO, HARMS, Damage, Doing, FileFault, FileKind, Harm, strike
from support.faults.kinds import THROTTLED
from support.faults.operations import Mode, Operation, Phase
from support.faults.writes import Trial, few_retries
from support.spark.tables import Warehouse
from support.tables.sink import NAME, Sink

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

_WRITING = {(file, doing) for file in FileKind for doing in (Doing.OPEN, Doing.WRITE, Doing.CLOSE)}
_LOADING = {(FileKind.METADATA, Doing.READ)}
_LISTING = {(FileKind.MANIFEST_LIST, Doing.READ)}
# Data files are read by Arrow's own file system, past `py-io-impl`.
_REPLACING = {(FileKind.MANIFEST, Doing.READ)}
# Beside what is deleted after refused commits; the writes of a matrix that is not larger than it needs to be.
DONE_BY: Mapping[tuple[Operation, Mode], set[tuple[FileKind, Doing]]] = {
    (Operation.APPEND, Mode.BATCH): _WRITING | _LOADING | _LISTING,
    (Operation.APPEND, Mode.STREAM): _WRITING | _LOADING | _LISTING,
    (Operation.APPEND_BY_MANIFESTS, Mode.STREAM): _WRITING | _LOADING | _LISTING,
    (Operation.APPEND_AND_MERGE, Mode.BATCH): _WRITING | _LOADING | _LISTING | {(FileKind.MANIFEST, Doing.READ)},
    (Operation.UPSERT, Mode.STREAM): _WRITING | _LOADING | _LISTING,
    (Operation.REPLACE, Mode.BATCH): _WRITING | _LOADING | _LISTING | _REPLACING,
    (Operation.CREATE, Mode.STREAM): _WRITING,
}
_DELETED = (FileKind.DATA, FileKind.MANIFEST, FileKind.MANIFEST_LIST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the matrix."""

    operation: Operation
    mode: Mode
    fault: FileFault

    def __str__(self) -> str:
        return f"{self.mode.value}, {self.operation.value}, {self.fault}"


# Each fault, once or always, is shown to a write, and each write meets one at everything that it does to files.
KINDS_OF_CELLS: tuple[Callable[[Cell], Hashable], ...] = (
    lambda cell: (cell.fault.file, cell.fault.doing, cell.fault.harm),
    lambda cell: (cell.operation, cell.fault.file, cell.fault.doing),
)


def cells() -> list[Cell]:
    """Return all cells."""
    return [
        Cell(
            operation=operation,
            mode=mode,
            fault=FileFault(file=file, doing=doing, harm=harm, numbers=numbers),
        )
        for (operation, mode), done in DONE_BY.items()
        for file in FileKind
        for doing in Doing
        if (file, doing) in done or (doing is Doing.DELETE and file in _DELETED)
        for harm in HARMS[doing]
        # Nobody can see that of a file whose size was not recorded before.
        if harm is not Harm.TRUNCATE_SILENTLY or file is FileKind.DATA
        for numbers in (frozenset({1}), None)
    ]


class FileAttack:
    """A fault of the file system, with refused commits where files are to be deleted.

    Args:
        catalog: The catalog.
        fault: The fault, None for none.
        phase: When it is in force, None for always.
    """

    def __init__(self, catalog: FaultyCatalog, fault: FileFault | None, phase: Phase | None = None) -> None:
        self._catalog = catalog
        self._fault = fault
        self._stack = ExitStack()
        self._damages: list[Damage] = []
        self._only = phase

    def begin(self, phase: Phase) -> None:
        """Let files suffer from now on."""
        self.calm()
        fault = self._fault if self._only in {None, phase} else None
        self._damages.append(self._stack.enter_context(strike(fault)))
        if fault is not None and fault.doing is Doing.DELETE:
            refused = (Strike(method="commit_table", number=number, kind=THROTTLED) for number in range(1, MOST_CALLS))
            self._catalog.begin(*refused)

    def calm(self) -> None:
        """Let no file suffer any more."""
        self._stack.close()
        self._catalog.begin()

    def deliver(self, *, all_of_them: bool) -> bool:  # noqa: ARG002  # of the protocol
        """Return that a disk holds nothing up."""
        return False

    @property
    def done(self) -> set[tuple[FileKind, Doing]]:
        """What was done to files."""
        return {pair for damage in self._damages for pair in damage.done}

    @property
    def has_struck(self) -> bool:
        """Whether a file has suffered."""
        return any(damage.struck for damage in self._damages)

    @property
    def leaves_doubt(self) -> bool:
        """Whether the catalog's own file suffered, which it writes and reads in the midst of a commit."""
        return self._fault is not None and self._fault.file is FileKind.METADATA

    @property
    def was_blind(self) -> bool:
        """Whether the table could not be loaded any more."""
        fault = self._fault
        return fault is not None and fault.doing is Doing.READ and fault.numbers is None

    @property
    def hinders_deleting(self) -> bool:
        """Whether files cannot be deleted."""
        return self._fault is not None and self._fault.doing is Doing.DELETE


def trial_of(  # noqa: PLR0913, PLR0917  # most are seldom given
    operation: Operation,
    mode: Mode,
    fault: FileFault | None,
    folder: Path,
    phase: Phase | None = None,
    version: str | None = None,
) -> tuple[Trial, FileAttack]:
    """Return a write into a new catalog in a SQLite file, whose table, of a format version, has its rows already."""
    clean = few_retries(_sink(folder), version)
    faulty = FaultyCatalog(_sink(folder, {"catalog.py-io-impl": FAULTY_IO}).catalog.raw)
    # The client only calls methods that the faulty catalog has, too.
    client: Any = CatalogClient(faulty, catalog_settings(clean.options))  # type: ignore[arg-type]
    attack = FileAttack(faulty, fault, phase)
    trial = Trial(
        operation=operation,
        mode=mode,
        clean=clean,
        attacked=Sink(catalog=client, options=clean.options),
        attack=attack,
        folder=folder / "db" / "t",
    )
    trial.prepare()
    return trial, attack


def _sink(folder: Path, more: Mapping[str, str] | None = None) -> Sink:
    options = parse_options({"table": NAME, **Warehouse(folder=folder).catalog_options, **(more or {})})
    return Sink(catalog=connect(catalog_settings(options)), options=options)
