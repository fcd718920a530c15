"""`transaction`: several DataFrames written into several tables, which are committed together at the end of a block.

Each line of the block runs a job of Spark that writes files, and nothing else: no reader sees anything of them. The end
of the block commits all tables (`commit.together`), each exactly once by its own marker. If a line or the block raises,
nothing is committed, and the files are deleted, because no request that names them was sent.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import check_reports, give_up_write
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite, giving_up
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.deletes.upsert import UpsertCommit, row_encoding
from iceberg_ds.errors import OptionError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.messages import TaskCommit
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.multi_table.cut_table import refuse_other_use, refuse_unfit_cut
from iceberg_ds.multi_table.record_cut import record_cut, refuse_rows_without_cut
from iceberg_ds.options.arguments import TEXT, ArgumentType, require_types
from iceberg_ds.options.parse import given_options, options_of_call, parse_options
from iceberg_ds.options.rules import Kind, check_kind
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.planning.quarantine import quarantine_writes, was_written_before
from iceberg_ds.secrets import mask_url
from iceberg_ds.spark.write_job import check_session, query_id_of, write_rows
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_NAMES = ArgumentType(str | Sequence | None, "names of columns, or None")
_NUMBERING = ("txn-app-id", "txn-version")
_ACTIONS = {WriteMode.APPEND: "append to", WriteMode.OVERWRITE: "overwrite", WriteMode.UPSERT: "upsert into"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResult:
    """What a transaction did to one table.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the snapshot that was committed; None if there was nothing to change.
        was_replayed: Whether the table already had this version of the application, so that nothing was written.
        rows: Number of rows that were added to the table.
        late_rows: Number of rows, deletes included, that lost to newer rows of the table (`sequence-scope=table`).
        replaced_rows: Number of rows of the table that an upsert replaced or deleted.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    was_replayed: bool = False
    rows: int = 0
    late_rows: int = 0
    replaced_rows: int = 0

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        late = f", {self.late_rows:,} rows were late" if self.late_rows else ""
        if self.was_replayed:
            return f"{where} has this version already"
        if self.snapshot_id is None:
            return f"{where}: nothing to change{late}"
        replaced = f" in place of {self.replaced_rows:,}" if self.replaced_rows else ""
        return f"{where}: {self.rows:,} rows{replaced}, snapshot {self.snapshot_id}{late}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """What a transaction did.

    Attributes:
        tables: What it did to each table, in the order of the lines.
        seconds: Seconds from the beginning of the block to its end.
    """

    tables: tuple[TableResult, ...] = ()
    seconds: float = 0.0

    @property
    def was_replayed(self) -> bool:
        """Whether every table already had this version of the application; False without tables."""
        return bool(self.tables) and all(found.was_replayed for found in self.tables)

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        if not self.tables:
            return "Nothing to commit: the transaction wrote to no table."
        listed = "\n".join(f"  - {found}" for found in self.tables)
        return f"Transaction over {len(self.tables)} tables in {self.seconds:.1f} s:\n{listed}"


def transaction(
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    app_id: str | None = None,
    version: int | None = None,
) -> Transaction:
    """Return a context manager that writes several DataFrames into several tables and commits them together.

    Files are written as the lines of the block run. Everything is committed at the end of the block: in one request
    where the catalog takes one for several tables, else one table after the other. If the block raises, nothing is
    committed.

    With a version, each table gets the rows of that version once: when the block is run again under the same version,
    as after a crash between two tables, the tables that have it are skipped, and the other ones get their rows.

    Args:
        spark: The session that tells the streaming query's id; None for the session of each DataFrame.
        options: Options of all writes of the block: where the tables are, and more. None for no options.
        app_id: Name of the application that numbers its transactions, as in option `txn-app-id`. None with a `version`
            for the id of the streaming query whose `foreachBatch` function runs; else None for no number.
        version: Number of this transaction, as in option `txn-version`: in `foreachBatch` the number of the epoch. None
            for a transaction that is not numbered.

    Returns:
        The transaction, whose methods write; its `result` tells, after the block, what was committed.

    Raises:
        OptionError: An `app_id` is given without a `version`, or the options have numbers of their own.
    """
    require_types("begin a transaction", app_id=(app_id, TEXT))
    given = given_options(options)
    _check_numbering(given)
    if app_id is not None and version is None:
        raise OptionError(
            f"Cannot begin a transaction: app_id is {app_id!r}, and there is no version. Number the transactions of an "
            "application by argument 'version', such as by the epoch in foreachBatch, or drop app_id."
        )
    return Transaction(spark, given, app_id, version)


def _check_numbering(given: Mapping[str, str]) -> None:
    if named := [option for option in _NUMBERING if option in given]:
        raise OptionError(
            f"Cannot take options {', '.join(named)} in a transaction: all of its tables have one number. Give app_id "
            "and version to iceberg_ds.transaction."
        )


class Transaction:
    """Writes that are committed together at the end of a `with` block; get one from `transaction`.

    Each method runs one job of Spark, which writes files, and returns; threads may call them side by side. `options`
    are those of the write beside those of the transaction, and win over these. No table may be written twice. A line
    that raises dooms the transaction, even if the block handles the error.
    """

    def __init__(
        self, spark: SparkSession | None, options: Mapping[str, str], app_id: str | None, version: int | None
    ) -> None:
        self._spark = spark
        self._options = options
        self._app_id = app_id
        self._version = version
        self._lines: list[_Line] = []
        self._begun: list[tuple[str, ...]] = []  # the tables of all lines, in their order
        self._quarantines: list[tuple[str, ...]] = []
        self._lock = Lock()
        self._catalog: CatalogClient | None = None
        self._of_cut: SinkOptions | None = None  # the options of the first line, if they ask for a cut
        self._is_open = False
        self._failure: BaseException | None = None
        self._result: TransactionResult | None = None
        self._started = time.monotonic()

    def __enter__(self) -> Transaction:  # noqa: PYI034  # Self needs Python 3.11
        if self._is_open or self._result is not None or self._failure is not None:
            raise OptionError("Cannot begin this transaction twice: make a new one with iceberg_ds.transaction.")
        self._is_open = True
        self._started = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_open = False
        problem = error or self._failure or self._why_unfinished()
        if problem is None:
            try:
                self._commit()
            except BaseException as failure:
                self._failure = failure
                raise
            return
        self._failure = problem
        self._give_up()
        if error is None:
            raise problem

    def _why_unfinished(self) -> OptionError | None:
        """Return the error to raise if threads still write lines of the block, or None."""
        if len(self._begun) == len(self._lines) and all(line.is_done for line in self._lines):
            return None
        return OptionError(
            "Cannot commit this transaction, nothing was committed: its block ended while lines were still being "
            "written. Wait for the threads that write them."
        )

    @property
    def result(self) -> TransactionResult:
        """What was committed.

        Raises:
            OptionError: The block has not ended, or nothing was committed.
        """
        if self._result is None:
            raise OptionError(
                "Cannot tell the result of this transaction: its block has not ended, or has failed. Ask after a block "
                "that ended without an error."
            )
        return self._result

    def append(self, df: DataFrame, table: str, *, options: Mapping[str, str] | None = None) -> None:
        """Write rows to be added to a table; with option `keys` they replace the rows of their keys.

        Args:
            df: The rows, or the change feed: a batch, such as the one that `foreachBatch` gets.
            table: Identifier of the table, such as `db.events`; it is created if it does not exist.
            options: Further options of this write. None for no options.

        Raises:
            OptionError: The options do not fit, or the table is written twice, or the DataFrame is a stream.
            IcebergSinkError: As a write with `format("icebergsink")`.
        """
        self._write(df, table, WriteMode.APPEND, options, {})

    def upsert(
        self,
        df: DataFrame,
        table: str,
        *,
        options: Mapping[str, str] | None = None,
        keys: Sequence[str] | str | None = None,
    ) -> None:
        """Write rows that replace the rows of their keys, without equality deletes, as `iceberg_ds.upsert` does.

        The old rows are searched for at the end of the block, and again if other writers bring more meanwhile.

        Args:
            df: The rows, or the change feed: a batch, such as the one that `foreachBatch` gets.
            table: Identifier of the table, such as `db.events`; it is created if it does not exist.
            options: Further options of this write, as `iceberg_ds.upsert` takes them. None for no options.
            keys: Names of the key columns, or one text with commas between them; None for the names in option `keys`.

        Raises:
            OptionError: As for `append`.
            IcebergSinkError: As `iceberg_ds.upsert`.
        """
        require_types(f"upsert into {mask_url(str(table))}", keys=(keys, _NAMES))
        named = {} if keys is None else {"keys": keys if isinstance(keys, str) else ", ".join(map(_quoted, keys))}
        self._write(df, table, WriteMode.UPSERT, options, named)

    def overwrite(
        self,
        df: DataFrame,
        table: str,
        *,
        options: Mapping[str, str] | None = None,
        replace_where: str | None = None,
    ) -> None:
        """Write rows in place of rows of a table: of all, or of those that a predicate or `overwrite-mode` names.

        Args:
            df: The rows: a batch, such as the one that `foreachBatch` gets.
            table: Identifier of the table, such as `db.events`; it is created if it does not exist.
            options: Further options of this write, such as `overwrite-mode`. None for no options.
            replace_where: The predicate, as option `replace-where` takes it; None for the option, or all rows.

        Raises:
            OptionError: As for `append`.
            IcebergSinkError: As a write with `format("icebergsink")`.
        """
        named = {} if replace_where is None else {"replace-where": replace_where}
        self._write(df, table, WriteMode.OVERWRITE, options, named)

    def _write(
        self,
        df: DataFrame,
        table: str,
        mode: WriteMode,
        options: Mapping[str, str] | None,
        named: Mapping[str, str],
    ) -> None:
        if not self._is_open:
            raise OptionError(
                f"Cannot {_ACTIONS[mode]} {mask_url(table)}: the transaction has not begun, or has ended. Write in its "
                "block: with iceberg_ds.transaction(...) as epoch: epoch.append(df, table)."
            )
        with self._dooming():
            if not hasattr(df, "isStreaming"):
                raise OptionError(
                    f"Cannot {_ACTIONS[mode]} {mask_url(str(table))}: its rows are a {type(df).__name__}, expected a "
                    "DataFrame of Spark."
                )
            if df.isStreaming:
                raise OptionError(
                    f"Cannot {_ACTIONS[mode]} {mask_url(table)}: the DataFrame is a stream. Begin the transaction in "
                    "the function of foreachBatch, with version=epoch_id."
                )
            parsed = self._parse(df, table, options, named)
            catalog = self._catalog_of(parsed)
            with catalog.hiding_secrets():
                self._write_line(catalog, df, parsed, mode)

    @contextmanager
    def _dooming(self) -> Iterator[None]:
        """Let the transaction fail if the block raises, even if the error is caught outside."""
        try:
            yield
        except BaseException as failure:
            self._failure = self._failure or failure
            raise

    def _parse(
        self, df: DataFrame, table: str, options: Mapping[str, str] | None, named: Mapping[str, str]
    ) -> SinkOptions:
        own = given_options(options)
        _check_numbering(own)
        given = options_of_call(table, {**self._options, **own, **named})
        parsed = parse_options({**given, **self._numbered(df, table)})
        if "consistent-cut" in own:
            raise OptionError(
                "Cannot take option 'consistent-cut' for one table of a transaction: the cut is that of all of them. "
                "Give it to iceberg_ds.transaction."
            )
        check_kind(replace(parsed, consistent_cut=None), Kind.TRANSACTION)
        with self._lock:
            if parsed.table in self._begun:
                raise _twice(identifier_text(parsed.table))
            self._begun.append(parsed.table)
            self._quarantines += [] if parsed.quarantine is None else [parsed.quarantine]
            if both := set(self._begun).intersection(self._quarantines):
                raise _kept_for_bad_rows(identifier_text(both.pop()))
        return parsed

    def _numbered(self, df: DataFrame, table: str) -> dict[str, str]:
        if self._version is None:
            return {}
        app_id = self._app_id if self._app_id is not None else query_id_of(self._spark or df.sparkSession)
        if app_id is None:
            raise OptionError(
                f"Cannot write to {mask_url(table)}: the transaction has version {self._version} and no app_id, and "
                "this session does not tell the id of a streaming query. Give app_id, a name that no other application "
                "has."
            )
        return {"txn-app-id": app_id, "txn-version": str(self._version)}

    def _catalog_of(self, options: SinkOptions) -> CatalogClient:
        """Return the catalog of all tables."""
        with self._lock:
            catalog = connect(catalog_settings(options), options.reports)
            self._catalog = self._catalog or catalog
        if catalog is not self._catalog:
            raise OptionError(
                f"Cannot write to {identifier_text(options.table)}: its options name another catalog, or other places "
                "for reports, than those of another table of the transaction. Tables that are committed together are "
                "in one catalog: give these options to iceberg_ds.transaction."
            )
        return catalog

    def _write_line(self, catalog: CatalogClient, df: DataFrame, options: SinkOptions, mode: WriteMode) -> None:
        """Plan a write and write its files."""
        if options.consistent_cut is not None:
            if self._of_cut is None:
                refuse_unfit_cut(catalog, options, is_numbered=self._version is not None)
                self._of_cut = options
            refuse_other_use(options.consistent_cut, [options.table, options.quarantine])
            options = replace(options, consistent_cut=None)
        plan = plan_write(catalog, options, df.schema, mode)
        check_session(plan, df.sparkSession)
        line = _Line(options, plan)
        with self._lock:
            if plan.write.table_uuid in [other.plan.write.table_uuid for other in self._lines]:
                raise _twice(line.name)
            self._lines.append(line)
        fault_point(FaultPoint.PLANNED)
        if was_written_before(catalog, plan.write):
            line.skip()
            return
        discard = partial(give_up_write, catalog, line.name)
        commits = write_rows(df, plan, f"{_ACTIONS[mode]} {line.name}", discard)
        with giving_up(catalog, [TableWrite(commits=commits)]):
            check_reports(commits)
        if mode is WriteMode.UPSERT:
            line.upsert = UpsertCommit(catalog, plan, row_encoding(options), df.sparkSession, options)
        with self._lock:
            if self._is_open:
                line.commits = commits
                return
        discard(commits)
        raise OptionError(
            f"Cannot {_ACTIONS[mode]} {line.name}: the block ended while its rows were being written. Wait in the "
            "block for the threads that write them."
        )

    @waiting_once()
    def _commit(self) -> None:
        self._lines.sort(key=lambda line: self._begun.index(line.options.table))
        due = [line for line in self._lines if line.commits]
        if self._catalog is not None and due:
            with self._catalog.hiding_secrets():
                self._commit_lines(self._catalog, due)
        if self._catalog is not None and self._of_cut is not None:
            landed = [line.plan.write for line in self._lines if line.has_rows]
            is_repeated = any(line.result.was_replayed for line in self._lines)
            with self._catalog.hiding_secrets():
                record_cut(self._catalog, self._of_cut, landed, is_repeated=is_repeated)
        tables = tuple(line.result for line in self._lines)
        self._result = TransactionResult(tables=tables, seconds=time.monotonic() - self._started)
        logger.info("%s", self._result)

    def _commit_lines(self, catalog: CatalogClient, due: Sequence[_Line]) -> None:
        options = {line.name: line.options for line in due}
        quarantines: list[TableWrite] = []
        try:
            with giving_up(catalog, lambda: [*(line.at_stake() for line in due), *quarantines]):
                sent = [TableWrite(commits=line.commits) for line in due]
                quarantines, own = quarantine_writes(catalog, sent, options.__getitem__)
                for line, write in zip(due, own, strict=True):
                    line.commits = write.commits
                if self._of_cut is not None:
                    refuse_rows_without_cut(catalog, self._of_cut, own)
                writes = [line.ready() for line in due]
            results = commit_tables(catalog, writes, first=quarantines)
        finally:
            for line in due:
                line.forget_keys()
        for line, result in zip(due, results, strict=True):
            line.take(result)

    def _give_up(self) -> None:
        """Delete the files of all lines; no request that names them was sent."""
        if self._catalog is None:
            return
        with self._catalog.hiding_secrets():
            for line in self._lines:
                give_up_write(self._catalog, line.name, line.commits)


def _quoted(name: str) -> str:
    return identifier_text([name])


def _twice(table: str) -> OptionError:
    return OptionError(
        f"Cannot write to {table} twice in one transaction: a table gets one snapshot of it. Write one DataFrame, such "
        "as the union of both, or write in two transactions."
    )


def _kept_for_bad_rows(table: str) -> OptionError:
    return OptionError(
        f"Cannot write to {table} in this transaction: it is the quarantine table of one of its lines, and takes no "
        "other rows. Name another one in option 'quarantine-table', or write to it in another transaction."
    )


class _Line:
    """One write of a transaction.

    Args:
        options: The options of the write.
        plan: The plan of the write.

    Attributes:
        commits: What its tasks report; none before they have ended, and for a write that is skipped.
        upsert: Searches for the old rows; None for another write.
        result: What became of it.
    """

    def __init__(self, options: SinkOptions, plan: WritePlan) -> None:
        self.options = options
        self.plan = plan
        self.commits: Sequence[TaskCommit] = ()
        self.upsert: UpsertCommit | None = None
        self.result = TableResult(table=plan.write.table, branch=plan.write.route.branch)

    @property
    def name(self) -> str:
        """Identifier of the table."""
        return self.plan.write.table

    @property
    def is_done(self) -> bool:
        """Whether the files of the write are written, or it is skipped."""
        return bool(self.commits) or self.result.was_replayed

    @property
    def has_rows(self) -> bool:
        """Whether the table has the rows of the write, by this commit or an earlier one."""
        return self.result.was_replayed or self.result.snapshot_id is not None

    def skip(self) -> None:
        """Note that the table already has this version."""
        self.result = replace(self.result, was_replayed=True)

    def at_stake(self) -> TableWrite:
        """Return the write with all files that it has by the time when it is given up."""
        return TableWrite(commits=self.commits) if self.upsert is None else self.upsert.at_stake(self.commits)

    def ready(self) -> TableWrite:
        """Return what is to be committed, after the search for old rows."""
        return TableWrite(commits=self.commits) if self.upsert is None else self.upsert.begin(self.commits)

    def take(self, committed: CommitResult) -> None:
        """Note what became of the commit."""
        self.result = replace(
            self.result,
            snapshot_id=committed.snapshot_id,
            was_replayed=committed.was_replayed,
            rows=committed.record_count or 0,
        )
        if self.upsert is not None:
            told = self.upsert.result(committed)
            self.result = replace(
                self.result, rows=told.rows, late_rows=told.late_rows, replaced_rows=told.replaced_rows
            )

    def forget_keys(self) -> None:
        """Delete the files of an upsert that are in no table."""
        if self.upsert is not None:
            self.upsert.forget_keys()
