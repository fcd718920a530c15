"""`convert_deletes`: turns the deletes by keys of a branch into what every reader reads, beside running streams."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalogs.client import CatalogClient, connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.commits.commit import commit_swap
from iceberg_ds.commits.swapping import StaleWorkError
from iceberg_ds.diagnosis.diagnosing import advice
from iceberg_ds.errors import CommitConflictError, DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.file_settings import file_settings
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.options import SinkOptions, parse_options
from iceberg_ds.plan import WritePlan
from iceberg_ds.resolving.job import resolve
from iceberg_ds.resolving.live_files import SnapshotReader, key_types
from iceberg_ds.resolving.resolution import Goal, Resolution, ResolvedSwap
from iceberg_ds.resolving.result import ConvertResult
from iceberg_ds.resolving.scan import LiveFiles, field_ids, plan_work
from iceberg_ds.resolving.values import FileWork, ResolvePlan, RowEncoding
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.snapshots.branches import MAIN_BRANCH, branch_head, why_not_writable
from iceberg_ds.steps import Step, reach
from iceberg_ds.storage.cleanup import Proof, delete_files
from iceberg_ds.supported import check_supported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_ENCODINGS: tuple[RowEncoding, ...] = get_args(RowEncoding)
_VERSION = 2
_SIGNED_64_BIT = 0x7FFF_FFFF_FFFF_FFFF
# How often data files that others have brought meanwhile are searched, too.
_ROUNDS = 5
_GRANULARITY = "write.delete.granularity"


def convert_deletes(
    table: str,
    spark: SparkSession | None = None,
    *,
    encoding: RowEncoding = "position",
    branch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> ConvertResult:
    """Turn all equality deletes that a branch has into position deletes, or rewrite the files that they hit.

    The rows stay the same, in one snapshot more, and every reader can read them then. Streams may go on meanwhile: the
    deletes that they add stay for the next time. Nothing is committed if there are none.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: Reads and writes files in its executors; None for the active session, or this process if there is none.
        encoding: `position` marks the rows by position deletes; `copy-on-write` writes their files without them.
        branch: The branch, None for `main`.
        options: Catalog options, as a write has them: `catalog`, `catalog.*`, `warehouse`, `namespace`; and those that
            say how files are written.

    Raises:
        OptionError: The options or arguments are malformed.
        TableNotFoundError: There is no such table.
        UnsupportedTableError: The table has files that cannot be searched; nothing was committed.
        DataFileError: Files could not be read or written; nothing was committed.
        CommitConflictError: Others rewrite the same files again and again; nothing was committed.
        CommitStateUnknownError: It may have been committed; nothing was deleted.
        CatalogError: The catalog could not be reached or refuses; nothing was committed.
    """
    if encoding not in _ENCODINGS:
        raise OptionError(f"Cannot convert deletes: encoding is {encoding!r}, expected {' or '.join(_ENCODINGS)}.")
    given = {key.lower(): str(value) for key, value in (options or {}).items()}
    parsed = parse_options({**given, "table": table, **({} if branch is None else {"branch": branch})})
    catalog = connect(catalog_settings(parsed))
    with catalog.hiding_secrets():
        return Conversion(catalog, parsed, spark or _active_session(), encoding).run()


def _active_session() -> SparkSession | None:
    from pyspark.sql import SparkSession  # noqa: PLC0415  # a command may do without

    with suppress(Exception):  # where there is no JVM
        return SparkSession.getActiveSession()
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The table at one moment, and what is to be done."""

    table: Table
    goal: Goal
    work: list[FileWork]


class Conversion:
    """The conversion of one branch.

    Args:
        catalog: The catalog of the table.
        options: Which table and branch, and how files are written.
        spark: Runs the tasks; None to run them in this process.
        encoding: What becomes of the rows that deletes by keys hide.
    """

    def __init__(
        self, catalog: CatalogClient, options: SinkOptions, spark: SparkSession | None, encoding: RowEncoding
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._spark = spark
        self._encoding: RowEncoding = encoding
        self._name = ".".join(options.table)
        self._branch = options.branch or MAIN_BRANCH
        self._reader = SnapshotReader()
        self._resolution = Resolution()
        self._goal: Goal | None = None
        self._read_bytes = 0
        self._started = time.monotonic()

    def run(self) -> ConvertResult:
        """Look, search and commit, until no deletes of the beginning are left."""
        for number in itertools.count(1):
            look = self._look()
            if look is None:
                break
            plan = self._plan(look.table)
            self._search(look, plan)
            specs, write = look.table.metadata.specs(), WriteIdentity.of(plan.write, None)
            swap = ResolvedSwap(look.goal, self._resolution, self._branch, self._reader, specs)
            try:
                committed = commit_swap(self._catalog, write, self._resolution.added, swap)
            except StaleWorkError as stale:
                if number == _ROUNDS:
                    self._discard(look.table.io)
                    raise CommitConflictError(
                        f"Cannot convert deletes of {self._name} in {_ROUNDS} tries, nothing was committed: {stale}. "
                        "Run it again while no compaction runs."
                    ) from stale
                logger.info("Searching %s again: %s", self._name, stale)
            except DataFileError:
                self._discard(look.table.io)
                raise
            else:
                return self._result(committed.snapshot_id, swap)
        return ConvertResult(table=self._name, branch=self._branch, seconds=self._seconds)

    def _look(self) -> _Look | None:
        """Return what is to be done in the table as it is now, None if nothing is left."""
        table = self._catalog.load_table(self._options.table)
        try:
            return self._find_work(table)
        except BaseException:
            self._discard(table.io)
            raise

    def _find_work(self, table: Table) -> _Look | None:
        metadata = table.metadata
        self._check(metadata)
        live = self._files_of(table)
        if self._goal is None:
            self._goal = self._goal_of(metadata, live)
        delete_files(table.io, [file.file_path for file in self._resolution.prune(live)], Proof.REFUSED)
        sources = self._goal.sources(live)
        if not sources:
            self._discard(table.io)
            return None
        work = plan_work(live, sources, metadata.specs(), self._goal.key_types)
        left = [item for item in work if not self._resolution.covers(item)]
        searched = {item.path for item in left}
        read = [source.data_file for source in sources]
        read += [found.data_file for found in live.data if found.path in searched]
        self._check_readable([*read, *(found.data_file for found in live.positions)])
        return _Look(table=table, goal=self._goal, work=left)

    def _files_of(self, table: Table) -> LiveFiles:
        try:
            return self._reader.read(table.io, branch_head(table.metadata, self._branch)).files
        except Exception as error:  # of whatever storage library
            reason = mask_text(f"{type(error).__name__}: {error}", table.io.properties)
            raise DataFileError(
                f"Cannot convert deletes of {self._name}, nothing was committed: its manifests cannot be read: "
                f"{reason}. {advice(error)}".rstrip()
            ) from masked_cause(error, table.io.properties)

    def _check(self, metadata: TableMetadata) -> None:
        if metadata.format_version > _VERSION:
            raise UnsupportedTableError(
                f"Cannot convert deletes of {self._name}: its format version is {metadata.format_version}, where "
                "deletion vectors take the place of position deletes, and they are not written here."
            )
        check_supported(metadata, self._name)
        if (reason := why_not_writable(metadata, self._branch, None)) is not None:
            raise OptionError(f"Cannot convert deletes of {self._name}: {reason}.")

    def _goal_of(self, metadata: TableMetadata, live: LiveFiles) -> Goal:
        try:
            types = key_types(metadata, (number for found in live.equalities for number in field_ids(found.data_file)))
        except ValueError as problem:
            raise UnsupportedTableError(f"Cannot convert deletes of {self._name}: {problem}.") from problem
        return Goal(paths=frozenset(found.path for found in live.equalities), key_types=types)

    def _check_readable(self, files: Sequence[DataFile]) -> None:
        """Refuse files that cannot be searched, or that say nothing of what they delete by."""
        for file in files:
            is_by_key = file.content == DataFileContent.EQUALITY_DELETES
            reason = (
                f"is a file of {file.file_format.value}, and only Parquet is read"
                if file.file_format is not FileFormat.PARQUET
                else "is encrypted"
                if file.key_metadata is not None
                else "does not say by which columns it deletes"
                if is_by_key and not file.equality_ids
                else None
            )
            if reason is not None:
                raise UnsupportedTableError(
                    f"Cannot convert deletes of {self._name}: {file.file_path} {reason}. Rewrite its files with "
                    "Iceberg's rewrite_data_files instead."
                )

    def _plan(self, table: Table) -> ResolvePlan:
        metadata, operation_id = table.metadata, uuid.uuid4()
        write = WritePlan(
            table=self._name,
            table_uuid=str(metadata.table_uuid),
            branch=self._branch,
            schema=metadata.schema(),
            spec=metadata.spec(),
            location=metadata.location,
            properties={key: value for key, value in metadata.properties.items() if key.startswith("write.")},
            io_properties=self._catalog.plan_properties(table),
            operation_id=str(operation_id),
            snapshot_id=(operation_id.int & _SIGNED_64_BIT) or 1,
            files=file_settings(self._options, metadata, self._name),
            snapshot_properties=self._options.snapshot_properties,
        )
        return ResolvePlan(
            write=write,
            specs=metadata.specs(),
            sort_orders={order.order_id: order for order in metadata.sort_orders},
            key_types={} if self._goal is None else self._goal.key_types,
            encoding=self._encoding,
            is_by_file=metadata.properties.get(_GRANULARITY, "").lower() == "file",
        )

    def _search(self, look: _Look, plan: ResolvePlan) -> None:
        """Search what was not searched yet."""
        reach(Step.PLANNED)
        try:
            answers = resolve(self._spark, plan, look.work)
        except BaseException:
            self._discard(look.table.io)
            raise
        self._resolution.take(answers)
        self._read_bytes += sum(answer.read_bytes for answer in answers)
        if (problem := next((answer.problem for answer in answers if answer.problem), None)) is not None:
            self._discard(look.table.io)
            raise DataFileError(
                f"Cannot convert deletes of {self._name}, nothing was committed: a task failed: {problem}"
            )

    def _discard(self, io: FileIO) -> None:
        """Delete what tasks have written; no commit has landed, and none can land any more."""
        delete_files(io, [file.file_path for file in self._resolution.added.files], Proof.REFUSED)
        self._resolution = Resolution()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _result(self, snapshot_id: int | None, swap: ResolvedSwap) -> ConvertResult:
        hit, added = self._resolution.hit, self._resolution.added
        result = ConvertResult(
            table=self._name,
            branch=self._branch,
            snapshot_id=snapshot_id,
            delete_files=sum(file.content == DataFileContent.EQUALITY_DELETES for file in swap.dropped),
            data_files=len(hit),
            rows=sum(answer.rows for answer in hit),
            position_delete_files=len(added.delete_files),
            rewritten_files=len(self._resolution.rewritten),
            read_bytes=self._read_bytes,
            seconds=self._seconds,
        )
        logger.info("%s", result)
        return result
