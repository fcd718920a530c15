"""The one way of `delete_from`, `update` and `merge`: read, write what changes, take out what goes, commit.

A job of Spark reads the rows of one snapshot and says of each that goes where it is, by data file and position, and of
each new row what it is. Its tasks write the new rows, and files of these positions (`change_tasks`). Other tasks then
hide the rows that go by position deletes, or write their data files again without them, as an upsert does
(`deletes.tasks`). One commit adds and removes all of it. If others have changed meanwhile what the operation read, it
is done anew on the newest snapshot (`replaced_rows`).
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.commit import give_up_write
from iceberg_ds.commit.overwrite import RewriteValidationError
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.deletes.job import resolve
from iceberg_ds.deletes.search import BranchReader, SearchAnswers
from iceberg_ds.deletes.work import FileWork, RowEncoding, SearchPlan
from iceberg_ds.errors import (
    CommitConflictError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
    UnsupportedTableError,
)
from iceberg_ds.expressions.parser import Tree
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.messages import check_rows, complete_commits
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.options.arguments import TEXT, require_types
from iceberg_ds.options.parse import OF_REWRITES, options_of_call, parse_call
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning.decide import check_columns
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.planning.quarantine import was_written_before
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.reading.read import is_read_alike, planned_rows, selected, session_options, why_by_python
from iceberg_ds.reading.request import LoadedTable, PlannedRead, ReadRequest, read_options
from iceberg_ds.reading.scan import ScanPlan
from iceberg_ds.row_level.change_tasks import ChangedRows, report_changes
from iceberg_ds.row_level.replaced_rows import ReplacedRows, RowsRead
from iceberg_ds.snapshots.refs import MAIN_BRANCH, find_snapshot, write_base
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.spark.sql_text import refusing_sql
from iceberg_ds.spark.task_job import active_session
from iceberg_ds.spark.write_job import check_session, of_no_rows, run_job
from iceberg_ds.table.lineage import ROW_ID, with_lineage
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.spark_types import spark_struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode: TypeAlias = Literal["merge-on-read", "copy-on-write"]
Isolation: TypeAlias = Literal["serializable", "snapshot"]
_ENCODINGS: Mapping[str, RowEncoding] = {"merge-on-read": "position", "copy-on-write": "copy-on-write"}
# Where a row is: metadata columns of a read (spec, "Reserved Field IDs").
PLACE = ("_file", "_pos")
# The largest number of times that an operation is done, if others keep changing what it reads.
ROUNDS = 5
_POSITION_BYTES = 16
# Up to as many data files, position deletes are written by the driver: a job of Spark takes longer.
_FEW_FILES = 8
# What counts beside the options of every call that writes files.
_OPTIONS = (
    *OF_REWRITES,
    *("txn-app-id", "txn-version", "max-snapshots", "max-small-files"),
    *("use-table-distribution-and-ordering", "small-task-size-bytes"),
)
_OF_READS = frozenset({"table", "path", "namespace", "catalog", "warehouse", "branch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLevelResult:
    """What `delete_from`, `update` or `merge` did to a branch.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the snapshot that was committed; None if there was nothing to change.
        was_replayed: Whether the table already had this `txn-version` of the application, so that nothing was done.
        inserted_rows: Number of rows that were added.
        updated_rows: Number of rows that were changed.
        deleted_rows: Number of rows that were deleted.
        data_files: Number of data files that were added for new and changed rows.
        position_delete_files: Number of position delete files that were added to hide old rows.
        rewritten_files: Number of data files that were written again without some of their rows.
        removed_files: Number of data files that were removed, because no row of them stays.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    was_replayed: bool = False
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    data_files: int = 0
    position_delete_files: int = 0
    rewritten_files: int = 0
    removed_files: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.was_replayed:
            return f"Nothing to do: {where} has this version already."
        if self.snapshot_id is None:
            return f"Nothing to change in {where}."
        return (
            f"Inserted {self.inserted_rows:,}, updated {self.updated_rows:,} and deleted {self.deleted_rows:,} rows of "
            f"{where}: {self.data_files:,} data files and {self.position_delete_files:,} files of position deletes "
            f"were added, {self.rewritten_files:,} data files written again, {self.removed_files:,} removed. Snapshot "
            f"{self.snapshot_id}, {self.seconds:.1f} s."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A row-level operation.

    Attributes:
        command: The kind of the operation, as in the table properties `write.<command>.mode`.
        action: What is being done, such as `delete from db.t`, for errors.
        changes: Returns the rows that change, from the rows that were read and the table's columns. The columns are
            those that `change_tasks.report_changes` takes, in their order; behind them `ROW_ID` if it was read, null
            for rows that are new.
        where: A predicate in Spark's SQL: the operation reads only rows that satisfy it. None for all.
        takes_values: Whether new rows have values of rows that go.
        allows_twice: Whether a row may go that is named more than once.
    """

    command: Literal["delete", "update", "merge"]
    action: str
    changes: Callable[[DataFrame, Sequence[NestedField]], DataFrame]
    where: str | None = None
    takes_values: bool = False
    allows_twice: bool = False

    @property
    def deletes_alone(self) -> bool:
        """Whether all rows that satisfy `where` go, and none is new, so that whole files need no look."""
        return self.command == "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What an operation reads and writes.

    Attributes:
        table: The table as it was loaded.
        write: How its new rows are written.
        read: What is read.
        where: The predicate by which files are passed over; None if none is, or if only Spark understands it.
        read_options: The options of that read, in lower case.
    """

    table: Table
    write: WritePlan
    read: PlannedRead
    where: Tree | None
    read_options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An operation whose files are written.

    Attributes:
        write: What is to be committed.
        answers: What tasks found and wrote for data files that lose rows.
        result: The result, as far as it is known before the commit.
    """

    write: TableWrite
    answers: SearchAnswers
    result: RowLevelResult


class RowLevelRun:
    """One call of a row-level operation.

    Args:
        spark: The session; None for the active one.
        operation: What is done.
        given: The options of the call, in lower case, with the table.
        mode: How rows are taken out; None for what the table's properties say, else `merge-on-read`.
        isolation_level: Which changes by others are conflicts; None for what the table's properties say, else
            `serializable`.

    Raises:
        OptionError: Options or arguments are malformed.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        operation: Operation,
        given: Mapping[str, str],
        mode: Mode | None,
        isolation_level: Isolation | None,
    ) -> None:
        self._action = operation.action
        self._check("mode", mode, get_args(Mode))
        self._check("isolation_level", isolation_level, get_args(Isolation))
        session = spark or active_session()
        if session is None:
            raise OptionError(f"Cannot {self._action}: no Spark session is active in this thread. Give argument spark.")
        self._spark = session
        self._operation = operation
        self._given = given
        self._mode, self._isolation_level = mode, isolation_level
        self._options = parse_call(self._action, given, _OPTIONS)
        self._catalog = connect_to_existing(self._options)
        self._name = identifier_text(self._options.table)
        self._nothing = RowLevelResult(table=self._name, branch=self._options.branch or MAIN_BRANCH)
        self._rounds = 0
        self._prepared: _Prepared | None = None

    @waiting_once()
    def run(self) -> RowLevelResult:
        """Read the rows, write the change and commit it; start anew if others have committed a conflict meanwhile.

        Raises:
            IcebergSinkError: As `delete_from`, `update` and `merge`.
        """
        started = time.monotonic()
        with self._catalog.hiding_secrets():
            plan = self._plan()
            if was_written_before(self._catalog, plan.write.write):
                result = replace(self._nothing, was_replayed=True)
            else:
                self._prepared = self._prepare(plan)
                (committed,) = commit_tables(self._catalog, [self._prepared.write])
                result = self._result(self._prepared, committed)
        return replace(result, seconds=time.monotonic() - started)

    def _result(self, prepared: _Prepared, committed: CommitResult) -> RowLevelResult:
        if committed.snapshot_id is None or committed.seen is None:
            return replace(self._nothing, was_replayed=committed.was_replayed)
        snapshot = find_snapshot(committed.seen.metadata, committed.snapshot_id)
        added = int(summary_entries(snapshot).get("added-data-files", 0)) if snapshot is not None else 0
        again = len(prepared.answers.added.data_files)
        return replace(prepared.result, snapshot_id=committed.snapshot_id, data_files=added - again)

    def _plan(self) -> _Plan:
        """Load the table, and plan to read its newest snapshot and to write its new rows.

        Raises:
            IcebergSinkError: The table is missing, or cannot be read or written.
        """
        table = self._catalog.load_table(self._options.table)
        names = [field.name for field in table.metadata.schema().fields]
        if clash := sorted({*PLACE}.intersection(name.lower() for name in names)):
            raise UnsupportedTableError(
                f"Cannot {self._action}: it has a column '{clash[0]}', which names where a row is. Rename the column."
            )
        check_columns(table.metadata, self._name)  # Spark may have no type for such a one
        columns = self._read_columns(table.metadata)
        asked = {
            "columns": [*columns, *PLACE],
            "where": self._operation.where,
            **session_options(self._spark),
        }
        of_read = {key: text for key, text in self._given.items() if key in _OF_READS or key.startswith("catalog.")}
        given = read_options(self._given["table"], of_read, asked)
        loaded = LoadedTable(catalog=self._catalog, table=table)
        request = ReadRequest.of(given)
        prunes = is_read_alike(self._spark, request, loaded)
        read = request.plan(loaded, prunes=prunes)
        rows = spark_struct(read.plan.schema.fields)
        write = plan_write(self._catalog, self._options, rows, WriteMode.ROW_LEVEL, table=table)
        if ROW_ID.name in columns:  # rows that are handed over have the table's columns alone
            write = replace(write, schema=with_lineage(write.schema), small_task_size_bytes=0)
        check_session(write, self._spark)
        where = request.tree() if prunes and request.test(read.plan.schema) is not None else None
        return _Plan(table=table, write=write, read=read, where=where, read_options=given)

    def _read_columns(self, metadata: TableMetadata) -> list[str]:
        """Return the columns that new rows are made of, with the id that a row keeps when it changes."""
        if self._operation.deletes_alone:
            return []
        names = [field.name for field in metadata.schema().fields]
        return [*names, ROW_ID.name] if metadata.format_version >= VERSION_3 else names

    def _prepare(self, plan: _Plan) -> _Prepared:
        """Write all files.

        Raises:
            IcebergSinkError: As `run`; no file is left.
        """
        metadata, io, route = plan.table.metadata, plan.table.io, plan.write.write.route
        encoding, is_serializable = self._encoding(metadata), self._is_serializable(metadata)
        whole = self._whole_files(plan.read)
        changed = self._write_changes(plan, whole)
        answers = SearchAnswers()
        commits = [one.commit for one in changed]
        try:
            search = SearchPlan.of(plan.write, metadata, {}, encoding)
            self._take_out(search, plan.read.plan, changed, answers, whole)
        except BaseException:
            delete_files(io, dict.fromkeys(file.file_path for file in answers.added.files), Proof.NEVER_SENT)
            give_up_write(self._catalog, self._name, commits)
            raise
        finally:
            delete_files(io, [file.file_path for one in changed for file in one.positions], Proof.NEVER_SENT)
        fault_point(FaultPoint.ROWS_CHANGED)
        rests_on = RowsRead(
            route=route,
            base_snapshot_id=plan.read.plan.snapshot_id,
            is_serializable=is_serializable,
            where=plan.where,
            case_sensitive=bool(plan.read.request.options.case_sensitive),
            time_zone=plan.read.request.options.time_zone,
            takes_values=self._operation.takes_values,
        )
        reader = BranchReader(self._action, partial(write_base, route=route))
        rewrite = ReplacedRows(rests_on, answers, whole, reader)
        gone = sum(answer.rows for answer in answers.hit) + sum(whole.values())
        updated, rewritten = sum(one.updated for one in changed), answers.rewritten.values()
        return _Prepared(
            write=TableWrite(commits=commits, rewrite=rewrite, renew=self._renew),
            answers=answers,
            result=replace(
                self._nothing,
                inserted_rows=sum(one.inserted for one in changed),
                updated_rows=updated,
                deleted_rows=gone - updated,
                position_delete_files=len(answers.added.delete_files),
                rewritten_files=sum(bool(answer.rewritten) for answer in rewritten),
                removed_files=sum(not answer.rewritten for answer in rewritten) + len(whole),
            ),
        )

    def _whole_files(self, planned: PlannedRead) -> dict[str, int]:
        """Return the data files that go as they are, without a look into them, with the number of their rows."""
        if not self._operation.deletes_alone:
            return {}
        tasks = [task for task in planned.plan.tasks if task.work.path in planned.plan.inside and not task.has_deletes]
        return {task.work.path: task.data_file.record_count for task in tasks}

    def _write_changes(self, plan: _Plan, whole: Collection[str]) -> list[ChangedRows]:
        """Run the job that writes new rows and says which rows go.

        Raises:
            IcebergSinkError: It failed; no file is left.
        """
        scan, request = plan.read.plan, plan.read.request
        looked_into = replace(scan, tasks=[task for task in scan.tasks if task.work.path not in whole])
        if not looked_into.tasks and self._operation.deletes_alone:
            return [_nothing_changed(plan.write)]
        to_read = replace(plan.read, plan=looked_into)
        rows = planned_rows(self._spark, to_read, plan.read_options, why_by_python(self._spark, to_read, "auto"))
        chosen = selected(request, rows, plan.read.names, self._action)
        with refusing_sql("", f"Cannot {self._action}: Spark does not take what rows become"):
            changes = self._operation.changes(chosen, scan.schema.fields)
            changes.schema  # noqa: B018  # for its errors
        answers = run_job(changes, plan.write, self._action, report_changes)
        changed = [answer for answer in answers if isinstance(answer, ChangedRows)]
        problem = next((answer for answer in answers if isinstance(answer, IcebergSinkError)), None)
        try:
            if problem is not None:
                raise problem
            # Spark runs no task for a DataFrame that it knows to be empty.
            changed = changed or [_nothing_changed(plan.write)]
            complete_commits([one.commit for one in changed], epoch_id=None)
        except IcebergSinkError:
            written = [replace(one.commit, delete_files=one.positions) for one in changed]
            give_up_write(self._catalog, self._name, written)
            raise
        return changed

    def _take_out(
        self,
        plan: SearchPlan,
        scan: ScanPlan,
        changed: Sequence[ChangedRows],
        answers: SearchAnswers,
        whole: Collection[str],
    ) -> None:
        """Hide the rows that go, or write their data files again without them.

        Raises:
            DataFileError: A task failed in every try.
            RefusedRowsError: A row goes that is named more than once.
        """
        gone: Counter[str] = Counter()
        chosen: dict[str, list[str]] = defaultdict(list)
        for one in changed:
            gone.update(one.gone)
            for path in one.gone:
                chosen[path] += [file.file_path for file in one.positions]
        work = [
            _work(task.work, plan.encoding, chosen[task.work.path], gone[task.work.path])
            for task in scan.tasks
            if task.work.path in gone and task.work.path not in whole
        ]
        is_small = plan.encoding == "position" and len(work) <= _FEW_FILES
        found = resolve(None if is_small else self._spark, plan, work, "take rows out of {}")
        answers.take(found)
        if (failure := next((answer.problem for answer in found if answer.problem), None)) is not None:
            raise DataFileError(f"Cannot {self._action}, nothing was committed: a task failed: {failure}")
        named = {answer.path: answer.rows for one in found for answer in one.files}
        for path in gone.keys() - {*whole}:
            _check_named(self._operation, path, gone[path], named.get(path, 0))

    def _renew(self, stale: RewriteValidationError) -> TableWrite:
        """Do the operation anew on the newest snapshot."""
        before, self._rounds = self._prepared, self._rounds + 1
        if self._rounds == ROUNDS or before is None:
            raise CommitConflictError(
                f"Cannot {self._action} in {ROUNDS} tries, nothing was committed: {stale}. Run it again when fewer "
                'others write; with isolation_level="snapshot", rows that come meanwhile are no conflict.'
            ) from stale
        self._prepared = self._prepare(self._plan())
        give_up_write(self._catalog, self._name, before.write.commits, before.write.rewrite, Proof.REFUSED)
        return self._prepared.write

    def _encoding(self, metadata: TableMetadata) -> RowEncoding:
        mode = self._mode or self._told(metadata, "mode", get_args(Mode))
        if metadata.format_version == 1:
            if self._mode == "merge-on-read":
                raise OptionError(
                    f"Cannot {self._action} by mode merge-on-read: the table's format version is 1, and position "
                    "deletes need 2. Leave the mode out, or give copy-on-write."
                )
            return "copy-on-write"
        return _ENCODINGS.get(mode or "", "position")

    def _is_serializable(self, metadata: TableMetadata) -> bool:
        level = self._isolation_level or self._told(metadata, "isolation-level", get_args(Isolation))
        return level != "snapshot"

    def _told(self, metadata: TableMetadata, name: str, allowed: Sequence[str]) -> str | None:
        """Return what a property of the table says of such operations, in lower case; None if it says nothing.

        Raises:
            OptionError: It is none of what is allowed.
        """
        key = f"write.{self._operation.command}.{name}"
        told = metadata.properties.get(key)
        text = None if told is None else told.lower()
        self._check(f"table property {key}", text, allowed)
        return text

    def _check(self, name: str, value: str | None, allowed: Sequence[str]) -> None:
        if value is not None and value not in allowed:
            raise OptionError(f"Cannot {self._action}: {name} is {value!r}, expected {' or '.join(allowed)}.")


def _nothing_changed(plan: WritePlan) -> ChangedRows:
    return ChangedRows(commit=of_no_rows(plan), gone={}, positions=())


def _work(work: FileWork, encoding: RowEncoding, chosen: Sequence[str], count: int) -> FileWork:
    """Return the work on a data file with some rows that go."""
    read_bytes = work.size_bytes if encoding == "copy-on-write" else _POSITION_BYTES * count
    return replace(work, keys=(), chosen=tuple(chosen), read_bytes=read_bytes)


def _check_named(operation: Operation, path: str, count: int, found: int) -> None:
    """Check that all rows that go were found in a data file, and none was named twice.

    Raises:
        RefusedRowsError: A row was named more than once.
        RowCountError: Other rows were found.
    """
    if found < count and not operation.allows_twice and found:
        raise RefusedRowsError(
            f"Cannot {operation.action}, nothing was committed: {count - found:,} rows of {path} have more than one "
            "row of the source that changes them, and which one is meant is not certain. Bring the source to one row "
            "of each, such as by dropDuplicates, or narrow the condition."
        )
    places = {"found": found, "named again": count - found if operation.allows_twice and found else 0}
    check_rows(operation.action, f"{path} loses", count, places)


def call_options(table: str, options: Mapping[str, str] | None, branch: str | None) -> dict[str, str]:
    """Return the options of a call, in lower case, with its table and branch.

    Raises:
        OptionError: Option `table` names another table, or the branch is no text.
    """
    require_types(f"change rows of {table}", branch=(branch, TEXT))
    given = options_of_call(table, options)
    return given if branch is None else {**given, "branch": branch}
