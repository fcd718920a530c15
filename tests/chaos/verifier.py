"""Compares the table with the sources, row by row, and counts what is lost, doubled, strange or wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos.driver import TABLE, BatchSpec
from chaos.fleet import BRANCH, Fleet
from chaos.reader import Row, TableFiles

MAIN = "main"
_QUERY, _EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
_FEW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of the rows of one writer in one branch.

    Attributes:
        source: Rows that it had to write.
        found: Rows of it in the branch.
        lost: Rows that are missing.
        doubled: Rows that are there more than once.
    """

    source: int
    found: int
    lost: int
    doubled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the verifier found.

    Attributes:
        accounts: Of each writer.
        problems: What is wrong, one line each; none if every row is there exactly once.
        snapshots: Snapshots that have not expired.
        data_files: Data files of the main branch.
        orphans: Files at the table's location that no snapshot refers to.
    """

    accounts: Mapping[str, Account]
    problems: tuple[str, ...]
    snapshots: int
    data_files: int
    orphans: int

    @property
    def is_whole(self) -> bool:
        """Whether every row is there exactly once, and nothing is wrong."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What was to be written.

    Attributes:
        rows: The rows of each writer.
        branch: Names of the writers into the branch `audit`; all others write to `main`.
        open_rows: Rows of batches of which nobody knows whether they landed; each may be there once or not.
    """

    rows: Mapping[str, frozenset[Row]]
    branch: frozenset[str] = frozenset({BRANCH})
    open_rows: frozenset[Row] = field(default_factory=frozenset)


def sources_of(fleet: Fleet) -> Sources:
    """Read what the writers of a fleet had to write."""
    appending = {name: spec for name, spec in fleet.streams.items() if spec.table == TABLE}
    streams = {name: frozenset(source_rows(Path(spec.source))) for name, spec in appending.items()}
    batches = {name: frozenset(_batch_rows(spec, spec.next_number())) for name, spec in fleet.batches.items()}
    tried = {row for spec in fleet.batches.values() for row in _batch_rows(spec, spec.next_number() + 1)}
    return Sources(rows=streams | batches, open_rows=frozenset(tried.difference(*batches.values())))


def source_rows(folder: Path) -> Iterator[Row]:
    """Yield the rows of a source."""
    for path in folder.glob("*.json"):
        for line in path.read_text().splitlines():
            values = json.loads(line)
            yield values["id"], values["name"]


def _batch_rows(spec: BatchSpec, batches: int) -> Iterator[Row]:
    for number in range(spec.first_id, spec.first_id + batches * spec.rows):
        yield number, f"row {number}"


def verify(table: TableFiles, sources: Sources) -> Verdict:
    """Compare a table with what was to be written."""
    found = {branch: table.rows(branch) for branch in (MAIN, BRANCH)}
    accounts, problems = {}, []
    for name, rows in sources.rows.items():
        account = accounts[name] = _account(rows, found[BRANCH if name in sources.branch else MAIN])
        if account.lost or account.doubled:
            problems.append(f"{name}: {account.lost} rows lost, {account.doubled} doubled")
    problems += _strangers(found, sources)
    problems += _doubled_epochs(table)
    missing = sorted(str(path) for path in table.referenced() if not path.exists())
    problems += [f"{len(missing)} referenced files are missing, such as {missing[0]}"] if missing else []
    return Verdict(
        accounts=accounts,
        problems=tuple(problems),
        snapshots=len(table.snapshots),
        data_files=len(table.data_files(MAIN)),
        orphans=len(table.stored() - table.referenced()),
    )


def _account(rows: frozenset[Row], found: Counter[Row]) -> Account:
    there = {row: found[row] for row in rows if row in found}
    return Account(
        source=len(rows),
        found=sum(there.values()),
        lost=len(rows) - len(there),
        doubled=sum(times > 1 for times in there.values()),
    )


def _strangers(found: Mapping[str, Counter[Row]], sources: Sources) -> Iterator[str]:
    """Yield what is wrong with rows that are where their writer did not put them.

    The branch was forked from `main` at some time, so it may have rows of `main`, each once.
    """
    of_branch = frozenset[Row]().union(*(sources.rows[name] for name in sources.branch if name in sources.rows))
    of_main = frozenset[Row]().union(*sources.rows.values()) - of_branch | sources.open_rows
    for branch, known in ((MAIN, of_main), (BRANCH, of_main | of_branch)):
        strange = found[branch].keys() - known
        doubled = [row for row, times in found[branch].items() if times > 1]
        if strange:
            yield f"{branch}: {len(strange)} rows of unknown origin, such as {sorted(strange)[:_FEW]}"
        if doubled:
            yield f"{branch}: {len(doubled)} rows are there more than once, such as {sorted(doubled)[:_FEW]}"


def _doubled_epochs(table: TableFiles) -> Iterator[str]:
    """Yield the epochs of a query that more than one snapshot claims."""
    summaries = [snapshot.get("summary", {}) for snapshot in table.snapshots]
    epochs = Counter((summary[_QUERY], summary[_EPOCH]) for summary in summaries if _QUERY in summary)
    for (query, epoch), times in epochs.items():
        if times > 1:
            yield f"{times} snapshots claim epoch {epoch} of query {query}"
