"""What the scripts share that kill a process again and again: their arguments, other readers, the end of their reports.

Each has a run with a list of problems, which is empty as long as all is as it must be.
"""

from __future__ import annotations

import argparse
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFileContent
from support.checks.invariants import unreferenced_files
from support.checks.reader import listed, rows_of
from support.peer.jvm_peer import JvmPeer
from support.spark.neighbour import Neighbour
from support.spark.tables import Warehouse, read_with_chdb
from support.tables.sink import local

import iceberg_ds
from iceberg_ds.inspect.orphans import ORPHANS


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201  # a script


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="for kills; the end takes a few more")
    parser.add_argument("--kills", type=int, default=10_000, help="at most so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a new folder for everything; a temporary one by default")
    parser.add_argument("--runtime", action="store_true", help="let Iceberg's Spark runtime read, too")
    return parser


def folder_of(given: Path | None, name: str) -> Path:
    """Return the folder that was given, or a new one."""
    return (given or Path(tempfile.mkdtemp(prefix=f"{name}-"))).resolve()


@contextmanager
def telling(problems: list[str]) -> Iterator[None]:
    """Take an error in the block for a problem, so that a long run has a report even so."""
    try:
        yield
    except Exception as failure:
        traceback.print_exc()
        problems.append(f"the run broke off: {type(failure).__name__}: {failure}")


def readings(
    neighbour: Neighbour, house: Warehouse, table: str, columns: Sequence[str], *, runtime: Path | None
) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Yield the rows of a table as each reader reads them, with the reader's name.

    Args:
        neighbour: Has a Spark in which `iceberg_ds.read` reads.
        house: The table's catalog.
        table: Identifier of the table.
        columns: The columns, of which the first one gives an order.
        runtime: A folder for Iceberg's Spark runtime; None to do without.
    """
    loaded = house.table(table)
    yield "the reader of the tests", [tuple(row[name] for name in columns) for row in rows_of(loaded)]
    for reader in ("spark", "python"):
        yield f"iceberg_ds.read ({reader})", neighbour.read(table, columns, house.options, reader)
    # ClickHouse passes over equality deletes that are of the whole table, and reads format version 2.
    if loaded.metadata.format_version == 2 and not listed(loaded)[DataFileContent.EQUALITY_DELETES]:
        where, metadata = local(loaded.location()), local(loaded.metadata_location)
        found = read_with_chdb(where, ", ".join(columns), order=columns[0], metadata=metadata)
        yield "ClickHouse", [tuple(row[name] for name in columns) for row in found]
    if runtime is not None:
        yield "Iceberg's Spark runtime", read_by_runtime(runtime, house, table, columns)


def read_by_runtime(folder: Path, house: Warehouse, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a table as Iceberg's Spark runtime reads them; `folder` is for its log."""
    peer = JvmPeer(folder)
    try:
        rows = peer.open_catalog(house.folder).run(f"SELECT {', '.join(columns)} FROM {table}").rows  # noqa: S608  # no outside input
    finally:
        peer.close()
    return [tuple(row) for row in rows]


def proved(
    house: Warehouse, table: str, problems: list[str], *, may_leave_files: bool = True
) -> iceberg_ds.VerifyResult:
    """Return what `verify` says of all of a table, and tell what is wrong; killed processes may have left files."""
    result = iceberg_ds.verify(table, options=house.options, deep=True, all_snapshots=True, older_than="0s")
    wrong = [one for one in result.checks if one.outcome in {"failed", "warning"}]
    expected = {ORPHANS} if may_leave_files else set()
    problems += [f"verify of {table}: {one.name}: {one.detail}" for one in wrong if one.name not in expected]
    return result


def swept(house: Warehouse, table: str, problems: list[str]) -> Counter[str]:
    """Delete the files that killed processes left, as docs/verify.md says it; tell what is left even so.

    Returns:
        How many files of each kind were deleted. `by hand` are metadata files of commits that were killed: only a user
        knows that no other catalog has the state of the table that is in them, whose files stay until then.
    """
    found = proved(house, table, problems).orphans
    deleted: Counter[str] = Counter()
    for is_last in (False, True):
        done = iceberg_ds.remove_orphan_files(table, options=house.options, older_than="now", force=True)
        deleted += Counter(Path(orphan.path).suffix for orphan in done.orphan_files if orphan.deleted)
        stray = [local(orphan.path) for orphan in done.orphan_files if not orphan.deleted and is_metadata(orphan.path)]
        for file in [] if is_last else stray:
            file.unlink()
            deleted["by hand"] += 1
    if deleted.total() != len(found):
        problems.append(f"{deleted.total()} files of {table} are deleted, and verify had found {len(found)}")
    proved(house, table, problems, may_leave_files=False)
    if left := sorted(unreferenced_files(house.table(table))):
        problems.append(f"{len(left)} files of {table} are in no snapshot, and stay, such as {left[0]}: {done}")
    return deleted


def is_metadata(path: str) -> bool:
    """Return whether a file is a table's metadata file by its name."""
    return path.endswith(".metadata.json")


def verdict(problems: Sequence[str], whole: str, folder: Path) -> bool:
    """Print all problems and the verdict; return whether all is as it must be.

    Args:
        problems: What is wrong.
        whole: The verdict if nothing is.
        folder: Where to look if something is.
    """
    for problem in problems:
        say(f"PROBLEM: {problem}")
    say(f"VERDICT: BROKEN; see {folder}" if problems else f"VERDICT: {whole}")
    return not problems
