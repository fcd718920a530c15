"""The second half of an upsert: from what tasks have written to one snapshot without the old rows.

The tasks of a search look for the keys in the table, and mark or rewrite what they find. Then one commit adds the new
rows and takes the old ones away. If others bring data files meanwhile, these are searched, too: what commits later
wins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.catalogs.client import CatalogClient
from iceberg_ds.commits.commit import commit_write
from iceberg_ds.commits.commit_loop import CommitResult
from iceberg_ds.commits.settling import KeyReports
from iceberg_ds.commits.swapping import StaleWorkError
from iceberg_ds.errors import (
    CommitConflictError,
    CommitMessageError,
    DataFileError,
    IcebergSinkError,
    RefusedRowsError,
    RowCountError,
)
from iceberg_ds.identifiers import parse_identifier
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import WritePlan, new_operation
from iceberg_ds.resolving.key_sources import KeySource, key_types
from iceberg_ds.resolving.resolution import Goal
from iceberg_ds.resolving.search import KeySearch
from iceberg_ds.resolving.swap import ResolvedSwap
from iceberg_ds.resolving.values import ResolvePlan, RowEncoding
from iceberg_ds.snapshots.branches import write_base
from iceberg_ds.storage.cleanup import Proof, delete_files
from iceberg_ds.upserts.result import UpsertResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

# How often data files that others have brought meanwhile are searched, too.
ROUNDS = 10


class UpsertCommit:
    """The commit of one upsert.

    Args:
        catalog: The catalog of the table.
        plan: What the driver decided.
        encoding: How old rows are taken away.
        spark: Runs the tasks of the search; None to run them here.
    """

    def __init__(
        self, catalog: CatalogClient, plan: WritePlan, encoding: RowEncoding, spark: SparkSession | None
    ) -> None:
        self._catalog = catalog
        self._plan = plan
        self._encoding: RowEncoding = encoding
        self._identifier = parse_identifier(plan.table)
        self._search = KeySearch(f"upsert into {plan.table}", spark, _base_of(plan))
        self._started = time.monotonic()

    def run(self, commits: Sequence[TaskCommit]) -> UpsertResult:
        """Search and commit, and leave no file that is in no snapshot, unless it is not known what became of a request.

        Args:
            commits: What the tasks report; their deletes by keys are the keys to look for.

        Raises:
            IcebergSinkError: As `upsert`.
        """
        key_files = [file for commit in commits for file in commit.delete_files]
        try:
            return self._commit([replace(commit, delete_files=()) for commit in commits], key_files)
        finally:
            self._discard(key_files)

    def _commit(self, commits: Sequence[TaskCommit], key_files: Sequence[DataFile]) -> UpsertResult:
        self._check_losers(commits)
        keys = tuple(KeySource(data_file=file, sequence_number=None) for file in key_files)
        goal = Goal(
            paths=frozenset(),
            key_types=key_types([self._plan.schema], keys),
            written=keys,
            counts_stored=self._plan.changes is not None and self._plan.changes.counts_stored,
        )
        swap = ResolvedSwap(goal, self._search) if keys else None
        stale: StaleWorkError | None = None
        for number in range(ROUNDS):
            named = commits if number == 0 else _renamed(commits)
            self._look_for_rows(goal, named)
            try:
                late_keys = self._search.resolution.late_keys
                committed = commit_write(self._catalog, named, swap=swap, late_keys=late_keys)
            except StaleWorkError as problem:
                logger.info("Searching %s again: %s", self._plan.table, problem)
                stale = problem
            except (CommitMessageError, DataFileError, RowCountError):
                # Where there was no request yet, files of the write's own tasks alone were deleted.
                self._discard(self._search.resolution.added.files)
                raise
            else:
                return self._result(commits, committed, 0 if late_keys is None else late_keys.num_rows)
        self._give_up(commits)
        raise CommitConflictError(
            f"Cannot upsert into {self._plan.table} in {ROUNDS} tries, nothing was committed: {stale}. Run it again."
        ) from stale

    def _check_losers(self, commits: Sequence[TaskCommit]) -> None:
        """Refuse rows that lose to other tasks' rows where no mark may hide them."""
        if self._encoding == "copy-on-write" and self._count_losers(commits):
            self._give_up(commits)
            raise RefusedRowsError(
                f"Cannot upsert into {self._plan.table}, nothing was committed: rows of one key came to several tasks, "
                "because Spark and the table tell these keys apart in different ways, such as UUIDs as text. Bring "
                "them into one form, or write with delete-encoding=position."
            )

    def _count_losers(self, commits: Sequence[TaskCommit]) -> int | None:
        try:
            return KeyReports(commits[0].write, commits, self._storage_of).hidden_count
        except Exception as problem:  # of whatever storage library: keys in doubt are read from files
            self._give_up(commits)
            raise DataFileError(
                f"Cannot upsert into {self._plan.table}, nothing was committed: keys that came to several tasks cannot "
                f"be read again: {self._catalog.describe(problem)}."
            ) from None  # its own text may have secrets

    def _look_for_rows(self, goal: Goal, commits: Sequence[TaskCommit]) -> None:
        try:
            table = self._catalog.find_table(self._identifier)
            if table is None:  # it is created by the commit, or the commit says that it is gone
                return
            if (work := self._search.look(table, goal)) is not None:
                self._search.run(work, ResolvePlan.of(self._plan, table.metadata, goal.key_types, self._encoding))
        except BaseException:
            self._give_up(commits)
            raise

    def _give_up(self, commits: Sequence[TaskCommit]) -> None:
        """Delete what tasks have written; no commit has landed, and none can land any more."""
        self._discard([file for commit in commits for file in commit.data_files])
        self._discard(self._search.resolution.added.files)

    def _discard(self, files: Sequence[DataFile]) -> None:
        """Delete files that no table has; where their storage cannot be opened they stay, and that is logged."""
        if not files:
            return
        path = files[0].file_path
        try:
            io = self._storage_of(path)
        except Exception as problem:  # of whatever storage library; there is an outcome to report already
            reason = self._catalog.describe(problem)
            logger.warning("Left behind %d files, such as %s: %s", len(files), path, reason)
        else:
            delete_files(io, [file.file_path for file in files], Proof.REFUSED)

    def _storage_of(self, path: str) -> FileIO:
        try:
            return self._catalog.file_io(self._identifier, path)
        except IcebergSinkError:  # the catalog cannot be reached, and the storage maybe can
            return self._catalog.storage_of(path)

    def _result(self, commits: Sequence[TaskCommit], committed: CommitResult, late_count: int) -> UpsertResult:
        found = self._search.resolution
        if committed.snapshot_id is None:
            return UpsertResult(
                table=self._plan.table,
                branch=self._plan.route.branch,
                was_replayed=committed.was_replayed,
                late_rows=0 if committed.was_replayed else late_count,
                seconds=time.monotonic() - self._started,
            )
        data_files = [file for commit in commits for file in commit.data_files]
        return UpsertResult(
            table=self._plan.table,
            branch=self._plan.route.branch,
            snapshot_id=committed.snapshot_id,
            rows=committed.record_count or 0,
            late_rows=late_count,
            replaced_rows=sum(answer.rows for answer in found.hit),
            data_files=len(data_files) - committed.lost_files,
            position_delete_files=len(found.added.delete_files),
            rewritten_files=len(found.rewritten),
            read_bytes=self._search.read_bytes,
            seconds=time.monotonic() - self._started,
        )


def _base_of(plan: WritePlan) -> Callable[[TableMetadata], Snapshot | None]:
    return partial(write_base, route=plan.route)


def _renamed(commits: Sequence[TaskCommit]) -> list[TaskCommit]:
    """Return the messages as those of another write, whose commit has other names and another id."""
    operation_id, snapshot_id = new_operation()
    write = replace(commits[0].write, operation_id=operation_id, snapshot_id=snapshot_id)
    return [replace(commit, write=write) for commit in commits]
