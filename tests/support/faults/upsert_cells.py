"""The cells of the matrix of upserts: faults of the catalog and of files that their own code meets.

Their commit is that of all writes, which the other matrices are about. So there are few cells in which it alone
differs: those after which files stay, go, or are searched again.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.faults.catalog_cells import At, Cell, all_cells
from support.faults.io import Doing, FileFault, FileKind, Harm
from support.faults.kinds import Effect, Kind, Way
from support.faults.operations import Mode, Operation, Phase

_ONCE = frozenset({1})


def catalog_cells() -> list[Cell]:
    """Return the cells of faults of the catalog; upserts are numbered, as in a stream."""
    return [cell for cell in all_cells(Mode.STREAM) if cell.operation.encoding is not None]


def differs_in_upserts(cell: Cell) -> bool:
    """Return whether the fault meets the code of upserts alone, and not that of all commits."""
    if cell.call.phase is not Phase.COMMIT:
        return False
    if cell.call.method == "load_table":
        return cell.kind.way in {Way.RESET, Way.STALE} and cell.at in {At.FIRST, At.LOOK, At.EVERY}
    return _tells_something_new(cell.kind) and cell.at in {At.FIRST, At.EVERY}


def _tells_something_new(kind: Kind) -> bool:
    """Return whether an answer to a commit differs from the others in what it says and what has become of it."""
    return kind.status in {401, 504} or (kind.status == 409 and kind.effect in {Effect.NEVER, Effect.AT_ONCE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCell:
    """A fault of files from the search on; what tasks write before it is written as in every write by keys."""

    operation: Operation
    fault: FileFault

    def __str__(self) -> str:
        return f"{self.operation.value}, {self.fault}"


_DONE: dict[FileKind, dict[Doing, tuple[Harm, ...]]] = {
    FileKind.DATA: {  # of keys, of rows, of marks
        Doing.OPEN: (Harm.FAIL,),
        Doing.WRITE: (Harm.TRUNCATE,),
        Doing.CLOSE: (Harm.FAIL_LATE, Harm.TRUNCATE_SILENTLY),
        Doing.READ: (Harm.FAIL,),
        Doing.DELETE: (Harm.FAIL,),
    },
    FileKind.MANIFEST: {Doing.READ: (Harm.FAIL,)},
    FileKind.MANIFEST_LIST: {Doing.READ: (Harm.FAIL,)},
}


def file_cells() -> list[FileCell]:
    """Return the cells of faults of files."""
    return [
        FileCell(operation=operation, fault=FileFault(file=file, doing=doing, harm=harm, numbers=numbers))
        for operation in (Operation.MARK, Operation.REWRITE)
        for file, done in _DONE.items()
        for doing, harms in done.items()
        for harm in harms
        for numbers in (_ONCE, None)
    ]
