"""`rewrite_data_files`: makes few large files of many small ones, without deleted rows, while others write.

Plans from the files of a snapshot, lets tasks write the rows of each group of files anew, and commits all groups that
still hold in the branch as it is by then (`rebase`); deletes that landed meanwhile are moved to the new files first.
What others have made stale is planned again. Writers never wait for a rewrite, and no rewrite waits for them.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID, SortOrder
from pyiceberg.transforms import IdentityTransform

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.overwrite import RewriteValidationError
from iceberg_ds.deletes.index import why_not_readable
from iceberg_ds.deletes.search import BranchReader
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    UnsupportedTableError,
)
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.maintenance.file_groups import deleted_rows, plan_groups, with_ranges
from iceberg_ds.maintenance.rebase import Rebase, RewrittenGroup, files_with_deletes, types_of_keys
from iceberg_ds.maintenance.reports import reported
from iceberg_ds.maintenance.rewrite_options import OF_Z_ORDER, RewriteOptions, write_options
from iceberg_ds.maintenance.rewrite_tasks import move_deletes, rewrite_group
from iceberg_ds.maintenance.rewrite_work import DeletesMoved, FileGroup, GroupRewritten, RewritePlan
from iceberg_ds.metrics.commit_meter import metered
from iceberg_ds.options.arguments import TEXT, require_types
from iceberg_ds.options.file_settings import new_write
from iceberg_ds.options.parse import OF_REWRITES, options_of_call, parse_call
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import Fingerprint, Route, WritePlan, new_operation
from iceberg_ds.planning.decide import check_rewritable
from iceberg_ds.snapshots.live_files import LiveFiles
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head
from iceberg_ds.snapshots.version_3 import first_row_id
from iceberg_ds.spark.task_job import TaskJob, active_session
from iceberg_ds.table.lineage import with_lineage
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.spec_parser import names_z_order, parse_z_order
from iceberg_ds.table.specs import describes_order, new_sort_order, parse_sort_by
from iceberg_ds.table.zorder import ZOrder, z_order_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Strategy: TypeAlias = Literal["binpack", "sort", "zorder"]
_STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
# The largest number of plans: each one takes what others have made stale during the one before.
_ROUNDS = 5
# The largest number of tries to commit: each one moves the deletes that landed during the one before.
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """What `rewrite_data_files` did to a branch. The counts are those of Spark's procedure, by the same names.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_ids: Ids of the committed snapshots, the oldest first; empty if there was nothing to rewrite.
        rewritten_data_files_count: Data files that were rewritten, and are in the branch no longer.
        added_data_files_count: Data files that have their rows now.
        rewritten_bytes_count: Bytes of the rewritten files.
        added_bytes_count: Bytes of the files that have their rows now.
        failed_data_files_count: Data files whose rewrite failed; without `partial-progress.enabled` a failure raises.
        removed_delete_files_count: Delete files that apply to no row any more, and were removed.
        removed_rows_count: Deleted rows that were left out.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_ids: tuple[int, ...] = ()
    rewritten_data_files_count: int = 0
    added_data_files_count: int = 0
    rewritten_bytes_count: int = 0
    added_bytes_count: int = 0
    failed_data_files_count: int = 0
    removed_delete_files_count: int = 0
    removed_rows_count: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        failed = f" {self.failed_data_files_count:,} failed." if self.failed_data_files_count else ""
        if not self.snapshot_ids:
            return f"Nothing to rewrite in {where}.{failed}"
        return (
            f"Rewrote {self.rewritten_data_files_count:,} data files ({self.rewritten_bytes_count:,} bytes) of {where} "
            f"into {self.added_data_files_count:,} ({self.added_bytes_count:,} bytes), without "
            f"{self.removed_rows_count:,} deleted rows and {self.removed_delete_files_count:,} delete files, in "
            f"{self.seconds:.1f} s.{failed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user asks for, beside options.

    Attributes:
        strategy: Whether rows stay in the order of their files, are sorted, or are sorted by several columns alike.
        sort_order: The order of sorted rows, as option `sort-by` takes it, or `zorder(a, b)`; None for the table's.
        where: A predicate; only files that may have rows which satisfy it are rewritten. None for all files.
    """

    strategy: Strategy = "binpack"
    sort_order: str | None = None
    where: str | None = None

    @property
    def is_z_order(self) -> bool:
        """Whether rows are sorted by several columns alike."""
        return self.strategy == "zorder" or (self.strategy == "sort" and names_z_order(self.sort_order or ""))


def rewrite_data_files(  # noqa: PLR0913  # all but two by name
    table: str,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    strategy: Strategy = "binpack",
    sort_order: str | None = None,
    where: str | None = None,
) -> RewriteResult:
    """Rewrite the data files of a branch that are too small, too large, or have too many deleted rows.

    The branch has the same rows afterwards, in fewer files and without those that are deleted. Streams, upserts and all
    others may write meanwhile: none of them waits, and none of their rows or deletes is lost. Where an error below says
    that nothing was committed, with `partial-progress.enabled` it says which commits of this call stay.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: The session whose executors read and write the files; None for the active session, or for this process
            if no session is active.
        options: The options of Spark's procedure `rewrite_data_files`, the catalog's options as for a write, and those
            that say how files are written. None for no options.
        branch: The branch; None for the branch of option `branch`, or `main`.
        strategy: `binpack` keeps the rows in the order of their files; `sort` sorts the rows of each group of files;
            `zorder` sorts them by several columns alike, so that readers skip files by each of these.
        sort_order: The order to sort by, such as `ts desc nulls last, id`, or the columns of a Z-order, such as
            `zorder(a, b)`; None for the table's own.
        where: A predicate, such as `day < date '2026-11-01'`: only files that may have rows which satisfy it are
            rewritten, as a whole. None for all files.

    Returns:
        What was rewritten; its `snapshot_ids` are empty if there was nothing to do.

    Raises:
        OptionError: The options or arguments are malformed, or name another table.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table's delete files cannot be read, or it cannot be written; nothing was
            committed.
        DataFileError: Files could not be read or written, or new files do not have the rows of the old ones; nothing
            was committed.
        RowCountError: Manifests do not list all rows; nothing was committed.
        SchemaMismatchError, CommitMessageError: The table was changed so that the new files do not fit it, or replaced;
            nothing was committed.
        CommitConflictError: Others kept changing the same files; nothing was committed.
        CommitStateUnknownError: It may have been committed; nothing was deleted.
        CatalogError: The catalog could not be reached or refused; nothing was committed.
    """
    require_types(
        "rewrite data files",
        branch=(branch, TEXT),
        sort_order=(sort_order, TEXT),
        where=(where, TEXT),
    )
    if strategy not in _STRATEGIES:
        raise OptionError(f"Cannot rewrite data files: strategy is {strategy!r}, expected {' or '.join(_STRATEGIES)}.")
    if strategy == "binpack" and sort_order is not None:
        raise OptionError("Cannot rewrite data files: sort_order is given, and strategy binpack sorts no rows.")
    wish = Wish(strategy=strategy, sort_order=sort_order, where=where)
    given = options_of_call(table, options)
    if not wish.is_z_order and (named := sorted(given.keys() & set(OF_Z_ORDER))):
        raise OptionError(f"Cannot rewrite data files: {', '.join(named)} is for a Z-order, and none is asked for.")
    parsed = parse_call(
        "rewrite data files",
        write_options(given if branch is None else {**given, "branch": branch}),
        (*OF_REWRITES, "case-sensitive", "time-zone"),
    )
    catalog = connect_to_existing(parsed)
    name = identifier_text(parsed.table)
    with catalog.hiding_secrets(), reported(catalog.reporting, "rewrite_data_files", name, parsed.branch) as note:
        return note(Rewrite(catalog, parsed, given, wish, spark or active_session()).run())


class Rewrite:
    """The rewrite of one branch.

    Args:
        catalog: The catalog of the table.
        options: The table, the branch, and how files are written.
        given: The options of the rewrite, among others.
        wish: What is asked for beside options.
        spark: Runs the tasks; None to run them in this process.
    """

    def __init__(
        self,
        catalog: CatalogClient,
        options: SinkOptions,
        given: Mapping[str, str],
        wish: Wish,
        spark: SparkSession | None,
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._given = given
        self._wish = wish
        self._spark = spark
        self._branch = options.branch or MAIN_BRANCH
        self._name = identifier_text(options.table)
        self._action = f"rewrite data files of {self._name}"
        self._reader = BranchReader(self._action, partial(branch_head, branch=self._branch))
        self._result = RewriteResult(table=self._name, branch=self._branch)
        self._started = time.monotonic()
        self._failed_commits = 0
        # Paths of the new files: what this call has written is not rewritten by it again.
        self._own: set[str] = set()

    def run(self) -> RewriteResult:
        """Plan, rewrite and commit, again for the partitions whose groups others have made stale."""
        places: set[tuple[int, str]] | None = None
        for _ in range(_ROUNDS):
            table = self._catalog.load_table(self._options.table)
            check_rewritable(table.metadata, self._options, self._branch, self._action)
            settings = RewriteOptions.of(self._given, table.metadata)
            plan, groups = self._plan(table, settings, places)
            fault_point(FaultPoint.PLANNED)
            try:
                stale = [
                    group for portion in _portions(groups, settings) for group in self._portion(plan, settings, portion)
                ]
            except IcebergSinkError as failure:
                if not self._result.snapshot_ids:
                    raise
                ids = ", ".join(map(str, self._result.snapshot_ids))
                raise type(failure)(
                    f"{failure} That is of the last commit; snapshots {ids} of this call stay."
                ) from failure
            places = {group.files[0].place for group in stale}
            if not places:
                break
            logger.info("Planning %d partitions of %s again: others have changed them", len(places), self._name)
        else:
            logger.warning(
                "%d partitions of %s are left for another call: others keep changing them",
                len(places or ()),
                self._name,
            )
        result = replace(self._result, seconds=time.monotonic() - self._started)
        logger.info("%s", result)
        return result

    def _plan(
        self, table: Table, settings: RewriteOptions, places: Collection[tuple[int, str]] | None
    ) -> tuple[RewritePlan, list[FileGroup]]:
        metadata, action = table.metadata, self._action
        live = self._reader.read(table).files
        head = branch_head(metadata, self._branch)
        number = (head.sequence_number or 0) if head is not None else 0
        is_numbered = settings.use_starting_sequence_number and metadata.format_version > 1
        spec_id = metadata.default_spec_id if settings.output_spec_id is None else settings.output_spec_id
        order = self._order(metadata)
        z_order = self._z_order(metadata, metadata.specs()[spec_id], settings)
        write = new_write(self._options, metadata, Route(branch=self._branch), Fingerprint.of(metadata))
        writing = WritePlan.into(metadata, write, self._catalog.plan_properties(table))
        plan = RewritePlan(
            writing=replace(writing, schema=_columns(metadata, live), spec=metadata.specs()[spec_id], sort_order=order),
            specs=metadata.specs(),
            key_types=types_of_keys(metadata, live, action),
            is_sorted=order is not None or z_order is not None,
            planned_at=number,
            sequence_number=number if is_numbered else None,
            z_order=z_order,
        )
        most, done = settings.max_files_to_rewrite, self._result.rewritten_data_files_count
        groups = plan_groups(
            self._candidates(metadata, live, places),
            deleted_rows(live),
            replace(settings, max_files_to_rewrite=None if most is None else most - done),
            spec_id=spec_id,
            is_sorted=plan.is_sorted,
        )
        if groups:
            self._check_deletes_readable(live)
        if z_order is not None:
            types = {field_id: metadata.schema().find_type(field_id) for field_id in z_order.field_ids}
            files = {found.path: found.data_file for found in live.data}
            groups = [with_ranges(group, files, types) for group in groups]
        return plan, groups

    def _order(self, metadata: TableMetadata) -> SortOrder | None:
        """Return the order to sort rows by; None if they are not to be sorted, or in Z-order.

        Raises:
            OptionError: The order is malformed, does not fit the table, or the table has none.
        """
        if self._wish.strategy == "binpack" or self._wish.is_z_order:
            return None
        text = self._wish.sort_order
        order = metadata.sort_order_by_id(metadata.default_sort_order_id)
        if text is None and order is not None and not order.is_unsorted:
            return order
        if text is None:
            raise OptionError(f"Cannot {self._action} by strategy sort: the table has no sort order. Give sort_order.")
        try:
            terms = parse_sort_by(text)
            recorded = (order for order in metadata.sort_orders if describes_order(terms, order, metadata.schema()))
            # An order that the table does not record has no id that files may name.
            return next(recorded, None) or new_sort_order(terms, metadata.schema(), UNSORTED_SORT_ORDER_ID)
        except ValueError as problem:
            raise OptionError(f"Cannot {self._action}: sort_order is {text!r}: {problem}.") from problem

    def _z_order(self, metadata: TableMetadata, spec: PartitionSpec, settings: RewriteOptions) -> ZOrder | None:
        """Return the Z-order to sort rows by; None if they are not to be sorted so.

        Raises:
            OptionError: No columns are named, or columns that have no order.
        """
        if not self._wish.is_z_order:
            return None
        text = self._wish.sort_order
        if text is None:
            raise OptionError(
                f"Cannot {self._action} in Z-order: no columns are named. Give sort_order, such as zorder(a, b)."
            )
        try:
            columns = z_order_columns(parse_z_order(text), metadata.schema())
        except ValueError as problem:
            raise OptionError(f"Cannot {self._action}: sort_order is {text!r}: {problem}.") from problem
        alike = {field.source_id for field in spec.fields if isinstance(field.transform, IdentityTransform)}
        told = ", ".join(field.name for field in columns if field.field_id in alike)
        if alike.issuperset(field.field_id for field in columns):
            raise OptionError(
                f"Cannot {self._action} in Z-order: all rows of a partition have the same value of {told}. Name "
                "columns that the table is not partitioned by."
            )
        if told:
            logger.warning("No Z-order of %s by %s: all rows of a partition have one value of it", self._name, told)
        return ZOrder(
            field_ids=tuple(field.field_id for field in columns if field.field_id not in alike),
            var_length_contribution=settings.var_length_contribution,
            max_output_size=settings.max_output_size,
        )

    def _candidates(
        self, metadata: TableMetadata, live: LiveFiles, places: Collection[tuple[int, str]] | None
    ) -> list[FileWork]:
        """Return the data files that may be rewritten, in the order of their age."""
        listed = Counter(found.path for found in live.data)
        is_meant = self._where(metadata)
        files = {found.path: found.data_file for found in live.data if is_meant(found.data_file)}
        unreadable = {path: reason for path, file in files.items() if (reason := why_not_readable(file)) is not None}
        for path, reason in unreadable.items():
            logger.warning("%s of %s is not rewritten: it %s", path, self._name, reason)
        for path in (path for path, count in listed.items() if count > 1):
            logger.warning("%s of %s is not rewritten: the table lists it more than once", path, self._name)
        work = [
            item
            for item in files_with_deletes(metadata, live, self._action)
            if item.path in files
            and item.path not in unreadable
            and item.path not in self._own
            and listed[item.path] == 1
            and (places is None or item.place in places)
        ]
        return sorted(work, key=lambda item: item.sequence_number)

    def _where(self, metadata: TableMetadata) -> Callable[[DataFile], bool]:
        if self._wish.where is None:
            return lambda _: True
        try:
            meant = FilterRange(
                metadata,
                parse_predicate(self._wish.where),
                case_sensitive=bool(self._options.case_sensitive),
                time_zone=self._options.time_zone,
            )
        except ValueError as problem:
            raise OptionError(f"Cannot {self._action}: where is no predicate on its columns: {problem}.") from problem
        return lambda file: meant.coverage(file) is not Coverage.OUTSIDE

    def _check_deletes_readable(self, live: LiveFiles) -> None:
        for deletes in (*live.positions, *live.equalities):
            if (reason := why_not_readable(deletes.data_file)) is not None:
                raise UnsupportedTableError(
                    f"Cannot {self._action}, nothing was committed: {deletes.path}, which deletes rows, {reason}."
                )

    def _portion(self, plan: RewritePlan, settings: RewriteOptions, groups: Sequence[FileGroup]) -> list[FileGroup]:
        """Rewrite groups and commit them together; return those that others have made stale."""
        done = self._rewritten(plan, settings, groups)
        if not done:
            return []
        try:
            return self._commit(plan, settings, done)
        except CommitStateUnknownError:
            raise
        except (CommitConflictError, CatalogError) as failure:
            self._failed_commits += 1
            limit = settings.partial_progress_max_failed_commits
            most = settings.partial_progress_max_commits if limit is None else limit
            if not settings.partial_progress_enabled or self._failed_commits > most:
                raise
            left = sum(len(found.group.files) for found in done)
            self._count_failed(found.group for found in done)
            logger.warning("%d data files of %s are left for another call: %s", left, self._name, failure)
            return []

    def _rewritten(
        self, plan: RewritePlan, settings: RewriteOptions, groups: Sequence[FileGroup]
    ) -> list[RewrittenGroup]:
        job = TaskJob(
            plan=plan, write=plan.writing.write, action=self._action, answer=rewrite_group, refuse=_group_refused
        )
        answers = job.run(self._spark, groups, settings.max_concurrent_file_group_rewrites)
        done = [
            RewrittenGroup.of(group, answer)
            for group, answer in zip(groups, answers, strict=True)
            if answer.problem is None
        ]
        failed = [(group, answer.problem) for group, answer in zip(groups, answers, strict=True) if answer.problem]
        if failed and not settings.partial_progress_enabled:
            self._discard(plan, done)
            raise DataFileError(f"Cannot {self._action}, nothing was committed: a task failed: {failed[0][1]}")
        for group, problem in failed:
            logger.warning("%d data files of %s are not rewritten: %s", len(group.files), self._name, problem)
        self._count_failed([group for group, _ in failed])
        return done

    def _commit(self, plan: RewritePlan, settings: RewriteOptions, done: Sequence[RewrittenGroup]) -> list[FileGroup]:
        stale: list[FileGroup] = []
        rebase = Rebase(plan, self._action, self._reader, done, drops_dangling=settings.remove_dangling_deletes)
        with metered(self._catalog.reporting) as meter:
            for number in itertools.count(1):
                operation_id, snapshot_id = new_operation()
                write = replace(plan.writing.write, operation_id=operation_id, snapshot_id=snapshot_id)
                meter.begin(write)
                try:
                    committed = commit_rewrite(self._catalog, write, rebase, meter)
                except RewriteValidationError as behind:
                    if number == _TRIES:
                        self._discard(plan, rebase.groups)
                        raise CommitConflictError(
                            f"Cannot {self._action} in {_TRIES} tries, nothing was committed: {behind}. Run it again "
                            "while less is deleted."
                        ) from behind
                    logger.info("Looking at %s again: %s", self._name, behind)
                    stale += self._catch_up(plan, rebase)
                    if not rebase.groups:
                        break
                except DataFileError:
                    self._discard(plan, rebase.groups)
                    raise
                else:
                    self._count(committed.snapshot_id, rebase)
                    break
        return stale

    def _catch_up(self, plan: RewritePlan, rebase: Rebase) -> list[FileGroup]:
        """Move the deletes that landed meanwhile; give up stale groups, and return them."""
        try:
            moves, stale = rebase.sort_out(self._catalog.load_table(self._options.table))
            self._discard(plan, stale)
            write = plan.writing.write
            job = TaskJob(plan=plan, write=write, action=self._action, answer=move_deletes, refuse=_move_refused)
            answers = job.run(self._spark, [work for _, work in moves])
        except BaseException:
            self._discard(plan, rebase.groups)
            raise
        superseded: list[DataFile] = []
        for (found, work), answer in zip(moves, answers, strict=True):
            if answer.problem is not None or answer.is_undone:
                reason = answer.problem or "deleted rows are there again, or too many were deleted since"
                logger.info("%d data files of %s are rewritten anew: %s", len(found.group.files), self._name, reason)
                rebase.groups.remove(found)
                self._discard(plan, [found])
                stale.append(found)
            else:
                superseded += found.take(answer.files, work)
        self._delete(plan, superseded)
        return [found.group for found in stale]

    def _discard(self, plan: RewritePlan, groups: Iterable[RewrittenGroup]) -> None:
        """Delete the files of groups that are in no request which may still land."""
        self._delete(plan, [file for found in groups for file in found.files])

    @staticmethod
    def _delete(plan: RewritePlan, files: Iterable[DataFile]) -> None:
        io = file_io(plan.writing.io_properties, plan.writing.location)
        delete_files(io, dict.fromkeys(file.file_path for file in files), Proof.REFUSED)

    def _count_failed(self, groups: Iterable[FileGroup]) -> None:
        count = sum(len(group.files) for group in groups)
        self._result = replace(self._result, failed_data_files_count=self._result.failed_data_files_count + count)

    def _count(self, snapshot_id: int | None, rebase: Rebase) -> None:
        """Add a commit to the result."""
        before = self._result
        old = [item for found in rebase.groups for item in found.group.files]
        new = [file for found in rebase.groups for file in found.rewritten.files]
        self._own |= {file.file_path for file in new}
        removed = sum(file.content != DataFileContent.DATA for file in rebase.dropped)
        rows = sum(item.data_file.record_count for item in old) - sum(file.record_count for file in new)
        self._result = replace(
            before,
            snapshot_ids=(*before.snapshot_ids, *(() if snapshot_id is None else (snapshot_id,))),
            rewritten_data_files_count=before.rewritten_data_files_count + len(old),
            added_data_files_count=before.added_data_files_count + len(new),
            rewritten_bytes_count=before.rewritten_bytes_count + sum(item.size_bytes for item in old),
            added_bytes_count=before.added_bytes_count + sum(file.file_size_in_bytes for file in new),
            removed_delete_files_count=before.removed_delete_files_count + removed,
            removed_rows_count=before.removed_rows_count + rows,
        )


def _portions(groups: Sequence[FileGroup], settings: RewriteOptions) -> Iterator[Sequence[FileGroup]]:
    """Yield the groups that are committed together."""
    commits = settings.partial_progress_max_commits if settings.partial_progress_enabled else 1
    size = max(1, ceil(len(groups) / commits))
    yield from (groups[first : first + size] for first in range(0, len(groups), size))


def _group_refused(problem: str) -> GroupRewritten:
    return GroupRewritten(problem=problem)


def _move_refused(problem: str) -> DeletesMoved:
    return DeletesMoved(problem=problem)


def _columns(metadata: TableMetadata, live: LiveFiles) -> Schema:
    """Return the columns of new files: the table's, with the ids of the rows behind them if the rows have ids."""
    schema = metadata.schema()
    have_ids = live.data and all(first_row_id(found.data_file) is not None for found in live.data)
    return with_lineage(schema) if have_ids else schema
