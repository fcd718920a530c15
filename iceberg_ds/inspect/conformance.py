"""Tries on scratch tables whether a catalog keeps Iceberg's commit protocol, which exactly-once depends on.

The trials are requests that the catalog must apply as a whole, and requests that it must refuse. They are sent as they
are, without what `CatalogClient.send` adds for catalogs with known gaps; one trial tests those additions. No rows are
written: a snapshot only claims a number of rows. Nothing is left behind. Runs on the driver only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
)
from pyiceberg.types import LongType, NestedField

from iceberg_ds.catalog.answers import CommitRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.inspect.scratch import ScratchTables, total_records
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.snapshot import creation_request
from iceberg_ds.table.requests import LAST_ADDED, AddSchema, CommitRequest

_WRITERS = 3
_COMMITS = 3
_ROUNDS = 2
_PATIENCE_S = 300
# Of a server that loses changes in a race, half of the races show it.
_RACES = 6
_ONE_BY_ONE = "one table after the other"
_MARK = "iceberg-ds.check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One thing to try.

    Attributes:
        name: What is tried.
        run: Makes the trial; returns what is wrong, or None if it passed.
        is_needed: Whether a catalog that fails the trial loses or duplicates rows, and this package cannot prevent it.
        without: What to do if the trial fails.
        shown: Returns what a catalog does that passes.
    """

    name: str
    run: Callable[[ScratchTables], str | None]
    is_needed: bool
    without: str
    shown: Callable[[ScratchTables], str] = lambda _: "as the spec says"


def _create_with_snapshot(scratch: ScratchTables) -> str | None:
    staged = scratch.stage()
    creation = creation_request(staged.metadata)
    first = scratch.with_snapshot(staged)
    scratch.commit(
        staged, CommitRequest(requirements=creation.requirements, updates=(*creation.updates, *first.updates))
    )
    found = scratch.load(staged.name())
    return None if total_records(found) == 1 else "the table was created without its first snapshot"


def _create_twice(scratch: ScratchTables) -> str | None:
    staged = scratch.stage()
    creation = creation_request(staged.metadata)
    scratch.commit(staged, creation)
    uuid = scratch.load(staged.name()).metadata.table_uuid
    is_refused = scratch.is_refused(staged, creation)
    is_same = scratch.load(staged.name()).metadata.table_uuid == uuid
    return None if is_refused and is_same else "a table that exists was created again"


def _stale(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    late = scratch.with_snapshot(table)
    scratch.commit(table, scratch.with_snapshot(table))
    return _kept(scratch, table, late, 2)


def _null_on_snapshot(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    request = scratch.with_snapshot(table)
    nothing: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=None),
    )
    return _kept(scratch, table, CommitRequest(requirements=nothing, updates=request.updates), 1)


def _kept(scratch: ScratchTables, table: Table, late: CommitRequest, expected: int) -> str | None:
    """Send a request that must be refused; return what is wrong, or None if it was refused and no row changed."""
    is_refused = scratch.is_refused(table, late)
    found = total_records(scratch.load(table.name()))
    return None if is_refused and found == expected else "a request from an old state of the branch was accepted"


def _other_uuid(scratch: ScratchTables) -> str | None:
    table, other = scratch.table(), scratch.table()
    foreign = AssertTableUUID(uuid=other.metadata.table_uuid)
    update = SetPropertiesUpdate(updates={_MARK: "x"})
    is_refused = scratch.is_refused(table, CommitRequest(requirements=(foreign,), updates=(update,)))
    return None if is_refused else "a request for another table of the same name was accepted"


def _all_or_nothing(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    whole = _everything(scratch, table)
    scratch.commit(table, scratch.with_snapshot(table))
    if not scratch.is_refused(table, whole):
        return "a request from an old state of the branch was accepted"
    if (parts := _parts(scratch, table)) != []:
        return f"of a refused request this was carried out: {', '.join(parts)}"
    now = scratch.load(table.name())
    scratch.commit(now, _everything(scratch, now))
    missing = {"property", "schema", "snapshot"} - {*_parts(scratch, table)}
    return f"of an accepted request this is missing: {', '.join(sorted(missing))}" if missing else None


def _everything(scratch: ScratchTables, table: Table) -> CommitRequest:
    """Return a request that adds a property, a column and a snapshot with that column."""
    metadata = table.metadata
    wider = Schema(*metadata.schema().fields, NestedField(metadata.last_column_id + 1, "more", LongType()), schema_id=1)
    request = scratch.with_snapshot(table, schema_id=1)
    return CommitRequest(
        requirements=request.requirements,
        updates=(
            SetPropertiesUpdate(updates={_MARK: "x"}),
            AddSchema(schema_=wider, last_column_id=metadata.last_column_id + 1),
            SetCurrentSchemaUpdate(schema_id=LAST_ADDED),
            *request.updates,
        ),
    )


def _parts(scratch: ScratchTables, table: Table) -> list[str]:
    found = scratch.load(table.name())
    parts = {
        "property": _MARK in found.metadata.properties,
        "schema": "more" in found.schema().column_names,
        "snapshot": total_records(found) > 2,  # noqa: PLR2004  # the two earlier snapshots
    }
    return [part for part, is_there in parts.items() if is_there]


def _concurrent(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    accepted = _race(scratch, table.name(), _COMMITS)
    found = total_records(scratch.load(table.name())) - 1
    return None if found == accepted else f"{accepted} commits of {_WRITERS} writers were accepted, {found} are there"


def _first_commits(scratch: ScratchTables) -> str | None:
    table = scratch.table()
    late = scratch.with_snapshot(table)
    scratch.commit(table, scratch.with_snapshot(table))
    return _kept(scratch, table, late, 1)


def _our_first_commits(scratch: ScratchTables) -> str | None:
    for _ in range(_ROUNDS):
        table = scratch.table()
        accepted = _race(scratch, table.name(), 1, is_plain=False)
        if (found := total_records(scratch.load(table.name()))) != accepted:
            return f"{accepted} first commits of {_WRITERS} writers were accepted, {found} are there"
    return None


def _race(scratch: ScratchTables, name: tuple[str, ...], commits: int, *, is_plain: bool = True) -> int:
    """Let several writers commit at once, and return how many requests were accepted."""
    at_once = Barrier(_WRITERS, timeout=_PATIENCE_S)

    def write(catalog: CatalogClient) -> int:
        accepted = 0
        for _ in range(commits):
            table = catalog.load_table(name)
            request = scratch.with_snapshot(table)
            at_once.wait()
            try:
                scratch.commit(table, request, catalog=catalog, is_plain=is_plain)
                accepted += 1
            except CommitRefusedError:
                pass
            at_once.wait()
        return accepted

    def write_or_let_go(catalog: CatalogClient) -> int:
        try:
            return write(catalog)
        except BaseException:
            at_once.abort()
            raise

    with ThreadPoolExecutor(_WRITERS) as writers:
        return sum(writers.map(write_or_let_go, scratch.connections(_WRITERS)))


def _properties_last(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    request = scratch.with_snapshot(table)
    mark = SetPropertiesUpdate(updates={_MARK: '{"epoch-id": 1}'})
    scratch.commit(table, CommitRequest(requirements=request.requirements, updates=(mark, *request.updates)))
    scratch.commit_snapshots(table.name(), 2)
    found = scratch.load(table.name()).metadata.properties.get(_MARK)
    return None if found == '{"epoch-id": 1}' else f"a table property that was set is {found!r} two commits later"


def _history(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=3)
    shown = len(table.metadata.snapshots)
    return None if shown == 3 else f"of 3 snapshots {shown} are shown"  # noqa: PLR2004


def _branch(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    scratch.commit(table, scratch.with_snapshot(table, branch="other"))
    found = scratch.load(table.name())
    if total_records(found) != 1:
        return "a snapshot of another branch took the place of the main one's"
    return None if "other" in found.metadata.refs else "the branch is not there"


def _schema_stays(scratch: ScratchTables) -> str | None:
    table = scratch.table(snapshots=1)
    late, change = scratch.with_snapshot(table), _everything(scratch, table)
    scratch.commit(table, CommitRequest(requirements=change.requirements, updates=change.updates[1:3]))
    scratch.is_refused(table, late)  # the catalog may refuse or accept the request
    kept = "more" in scratch.load(table.name()).schema().column_names
    return None if kept else "a snapshot took back a change of the schema that came before it"


def _several_tables(scratch: ScratchTables) -> str | None:
    if not scratch.catalog.takes_many_tables:
        return None
    return _doomed(scratch) or _beside_another_writer(scratch)


def _doomed(scratch: ScratchTables) -> str | None:
    """Send a request whose change of the second table must be refused, and then one that must be accepted."""
    tables = [scratch.table(snapshots=1) for _ in range(2)]
    doomed = [(table, scratch.with_snapshot(table)) for table in tables]
    scratch.commit_snapshots(tables[1].name(), 1)
    is_accepted = scratch.commit_together(doomed)
    if is_accepted or _totals(scratch, tables) != [1, 2]:
        return f"{_ONE_BY_ONE}: a request for two tables was not refused as a whole, although the second had moved on"
    fresh = [scratch.load(table.name()) for table in tables]
    is_accepted = scratch.commit_together([(table, scratch.with_snapshot(table)) for table in fresh])
    if not is_accepted or _totals(scratch, tables) != [2, 3]:
        return f"{_ONE_BY_ONE}: a request for two tables was not carried out as a whole"
    return None


def _beside_another_writer(scratch: ScratchTables) -> str | None:
    """Send requests for two tables while another writer commits to the second."""
    tables = [scratch.table(snapshots=1) for _ in range(2)]
    at_once = Barrier(2, timeout=_PATIENCE_S)
    ours, theirs = scratch.connections(2)

    def write_both(changes: Sequence[tuple[Table, CommitRequest]]) -> bool:
        at_once.wait()
        return scratch.commit_together(changes, catalog=ours)

    def write_second(request: CommitRequest) -> bool:
        at_once.wait()
        try:
            scratch.commit(tables[1], request, catalog=theirs)
        except CommitRefusedError:
            return False
        return True

    for _ in range(_RACES):
        fresh = [scratch.load(table.name()) for table in tables]
        before = [total_records(table) for table in fresh]
        changes = [(table, scratch.with_snapshot(table)) for table in fresh]
        with ThreadPoolExecutor(2) as writers:
            both = writers.submit(write_both, changes)
            second = writers.submit(write_second, scratch.with_snapshot(fresh[1]))
            is_both, is_second = both.result(), second.result()
        if _totals(scratch, tables) != [before[0] + is_both, before[1] + is_both + is_second]:
            said = "accepted" if is_both else "refused"
            return f"{_ONE_BY_ONE}: beside another writer, a request for two tables was {said}, and one of them differs"
    return None


def _totals(scratch: ScratchTables, tables: Sequence[Table]) -> list[int]:
    return [total_records(scratch.load(table.name())) for table in tables]


def _how_several(scratch: ScratchTables) -> str:
    if scratch.catalog.takes_many_tables:
        return "atomic over tables"
    return f"{_ONE_BY_ONE}: the catalog takes no request for several tables"


_UNSAFE = "Ask the catalog's maintainers: commits of two writers overwrite each other here."
_WORKED_AROUND = "Other engines may lose rows here; this sink sends what the catalog does honour."

TRIALS = (
    Trial(
        name="a table is created with its first snapshot in one commit",
        run=_create_with_snapshot,
        is_needed=False,
        without="Create tables by hand, and write with create-table=false.",
    ),
    Trial(name="a table that exists is not created again", run=_create_twice, is_needed=True, without=_UNSAFE),
    Trial(name="a commit from an old snapshot is refused", run=_stale, is_needed=True, without=_UNSAFE),
    Trial(
        name="a commit for an empty branch is refused if it has a snapshot",
        run=_null_on_snapshot,
        is_needed=False,
        without=_WORKED_AROUND,
    ),
    Trial(
        name="of two first commits into an empty table one is refused",
        run=_first_commits,
        is_needed=False,
        without=_WORKED_AROUND,
    ),
    Trial(
        name="of first commits of this sink at once, none is lost",
        run=_our_first_commits,
        is_needed=True,
        without="Let one writer commit before others begin.",
    ),
    Trial(name="of commits at once, none is lost", run=_concurrent, is_needed=True, without=_UNSAFE),
    Trial(name="a commit is carried out whole or not at all", run=_all_or_nothing, is_needed=True, without=_UNSAFE),
    Trial(
        name="a commit for another table of the same name is refused",
        run=_other_uuid,
        is_needed=False,
        without="Do not drop and create a table again while it is written to.",
    ),
    Trial(
        name="table properties last",
        run=_properties_last,
        is_needed=True,
        without="Streams cannot tell here which micro-batch landed last: write batches only.",
    ),
    Trial(
        name="all snapshots are shown",
        run=_history,
        is_needed=False,
        without="A batch whose answer was lost may end with an unknown state: look before it is run again.",
    ),
    Trial(name="branches are held", run=_branch, is_needed=False, without="Do not use the options for branches here."),
    Trial(
        name="a snapshot does not take back a change of the schema",
        run=_schema_stays,
        is_needed=False,
        without=_WORKED_AROUND,
    ),
    Trial(
        name="of a request for several tables, all changes are carried out or none",
        run=_several_tables,
        is_needed=False,
        without="Readers may see an epoch in one table before it is in another; this sink finds out, and finishes it.",
        shown=_how_several,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceResult:
    """What one trial showed.

    Attributes:
        name: What was tried.
        passed: Whether the catalog did as the spec says; None if that could not be found out.
        seconds: Seconds that the trial took.
        detail: What the catalog did.
        next_step: What to do about it; empty if there is nothing to do.
        is_needed: Whether a catalog that fails the trial loses or duplicates rows, and this package cannot prevent it.
    """

    name: str
    passed: bool | None
    seconds: float
    detail: str
    next_step: str = ""
    is_needed: bool = True


def check_conformance(
    catalog: CatalogClient, namespace: Sequence[str], *, another: Callable[[], CatalogClient] | None = None
) -> list[ConformanceResult]:
    """Try whether the catalog keeps the commit protocol, and conclude whether exactly-once holds there.

    Args:
        catalog: The catalog.
        namespace: Namespace of the scratch tables. If it is missing, it is created and removed again.
        another: Returns a further connection to the catalog, for trials that need several at once.

    Returns:
        One result for each trial, and a last one for all trials together.
    """
    results: list[ConformanceResult] = []
    with ScratchTables(catalog, namespace, another or catalog.another) as scratch:
        results += [_result(trial, scratch) for trial in TRIALS]
    if scratch.left_behind:
        left = ", ".join(scratch.left_behind)
        results.append(
            ConformanceResult(
                name="scratch tables are removed",
                passed=False,
                seconds=0.0,
                detail=f"left behind: {left}",
                next_step="Remove them by hand.",
                is_needed=False,
            )
        )
    return [*results, _conclusion(results)]


def _result(trial: Trial, scratch: ScratchTables) -> ConformanceResult:
    started = time.monotonic()
    try:
        problem = trial.run(scratch)
        passed, detail = problem is None, problem or trial.shown(scratch)
    except Exception as error:  # each library below raises its own errors
        reason = str(error) if isinstance(error, IcebergSinkError) else scratch.catalog.describe(error)
        passed, detail = None, f"could not be tried: {reason}"
    seconds = time.monotonic() - started
    next_step = "" if passed else trial.without
    return ConformanceResult(
        name=trial.name,
        passed=passed,
        seconds=seconds,
        detail=detail,
        next_step=next_step,
        is_needed=trial.is_needed,
    )


def _conclusion(results: Sequence[ConformanceResult]) -> ConformanceResult:
    outcome = {result.name: result.passed for result in results}
    broken = [trial.name for trial in TRIALS if trial.is_needed and outcome[trial.name] is False]
    open_ones = [trial.name for trial in TRIALS if trial.is_needed and outcome[trial.name] is None]
    name, seconds = "rows land exactly once", sum(result.seconds for result in results)
    if broken:
        return ConformanceResult(
            name=name,
            passed=False,
            seconds=seconds,
            detail=f"not here: {'; '.join(broken)}",
            next_step="Use a single writer for each table at a time, or another catalog.",
        )
    if open_ones:
        return ConformanceResult(
            name=name,
            passed=None,
            seconds=seconds,
            detail=f"not known: {'; '.join(open_ones)}",
            next_step="Remove what kept these trials from being made, and check again.",
        )
    return ConformanceResult(name=name, passed=True, seconds=seconds, detail="with what this sink sends")
