"""`convert_deletes`: replaces the equality deletes of a branch by what every reader can read, while streams run."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.overwrite import RewriteValidationError
from iceberg_ds.deletes.index import KeySource, key_types
from iceberg_ds.deletes.search import KeySearch, KeysToDelete, RewriteByKeys
from iceberg_ds.deletes.work import RowEncoding, SearchPlan
from iceberg_ds.errors import CommitConflictError, DataFileError, OptionError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.metrics.commit_meter import CommitMeter, metered
from iceberg_ds.options.arguments import TEXT, require_types
from iceberg_ds.options.file_settings import new_write
from iceberg_ds.options.parse import OF_REWRITES, options_of_call, parse_call
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import Fingerprint, Route, WritePlan
from iceberg_ds.planning.decide import check_rewritable
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head, branch_snapshot_id
from iceberg_ds.spark.task_job import active_session
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

_ENCODINGS: tuple[RowEncoding, ...] = get_args(RowEncoding)
# The largest number of rounds: each one also searches the data files that others committed during the one before.
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """What `convert_deletes` did to a branch.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the committed snapshot, which no longer has the converted equality deletes; None if there
            was nothing to convert.
        delete_files: Number of equality delete files that were converted.
        data_files: Number of data files in which the equality deletes had deleted rows.
        rows: Number of rows that the equality deletes had deleted.
        position_delete_files: Number of position delete files that were added in their place.
        rewritten_files: Number of data files that were rewritten without the deleted rows.
        read_bytes: Compressed bytes that tasks read, position deletes excluded.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    delete_files: int = 0
    data_files: int = 0
    rows: int = 0
    position_delete_files: int = 0
    rewritten_files: int = 0
    read_bytes: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.snapshot_id is None:
            return f"Nothing to convert: {where} has no equality deletes."
        now = (
            f"{self.rewritten_files:,} data files were written without them"
            if self.rewritten_files
            else f"{self.position_delete_files:,} files of position deletes hide them"
        )
        return (
            f"Converted {self.delete_files:,} equality delete files of {where}: they hid {self.rows:,} rows of "
            f"{self.data_files:,} data files; {now}. Snapshot {self.snapshot_id}, {self.read_bytes:,} bytes read, "
            f"{self.seconds:.1f} s."
        )


def convert_deletes(
    table: str,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    encoding: RowEncoding = "position",
) -> ConvertResult:
    """Turn all equality deletes of a branch into position deletes, or rewrite data files without the deleted rows.

    The branch gets one more snapshot, with the same rows, which every reader can read. Streams may keep running: the
    equality deletes that they add wait for the next conversion. Without equality deletes, nothing is committed.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: The session whose executors read and write the files; None for the active session, or for this process
            if no session is active.
        options: Catalog options, as for a write: `catalog`, `catalog.*`, `warehouse`, `namespace`; and the options
            that say how files are written. None for no options.
        branch: The branch; None for the branch of option `branch`, or `main`.
        encoding: `position` hides deleted rows by position deletes; `copy-on-write` rewrites their data files without
            these rows.

    Returns:
        What was converted; its `snapshot_id` is None if there was nothing to convert.

    Raises:
        OptionError: The options or arguments are malformed, or name another table.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table has files that cannot be searched; nothing was committed.
        DataFileError: Files could not be read or written; nothing was committed.
        CommitConflictError: Others kept rewriting the same files; nothing was committed.
        CommitStateUnknownError: It may have been committed; nothing was deleted.
        CatalogError: The catalog could not be reached or refused; nothing was committed.
    """
    require_types("convert deletes", branch=(branch, TEXT))
    if encoding not in _ENCODINGS:
        raise OptionError(f"Cannot convert deletes: encoding is {encoding!r}, expected {' or '.join(_ENCODINGS)}.")
    given = options_of_call(table, options)
    parsed = parse_call("convert deletes", given if branch is None else {**given, "branch": branch}, OF_REWRITES)
    catalog = connect_to_existing(parsed)
    with catalog.hiding_secrets(), metered(catalog.reporting) as meter:
        return Conversion(catalog, parsed, spark or active_session(), encoding).run(meter)


class Conversion:
    """The conversion of one branch.

    Args:
        catalog: The catalog of the table.
        options: The table, the branch, and how files are written.
        spark: Runs the tasks; None to run them in this process.
        encoding: How the rows that equality deletes hide are removed.

    Attributes:
        clean_id: After `run`, the id of a snapshot of the branch without equality deletes; None if others committed
            equality deletes meanwhile.
    """

    def __init__(
        self,
        catalog: CatalogClient,
        options: SinkOptions,
        spark: SparkSession | None,
        encoding: RowEncoding,
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._encoding: RowEncoding = encoding
        self._name = identifier_text(options.table)
        self._branch = options.branch or MAIN_BRANCH
        self._search = KeySearch(f"convert deletes of {self._name}", spark, self._head)
        self._started = time.monotonic()
        self.clean_id: int | None = None

    def run(self, meter: CommitMeter) -> ConvertResult:
        """Search and commit until all equality deletes that the branch had at the beginning are gone.

        Args:
            meter: Notes what the commit takes.
        """
        to_delete: KeysToDelete | None = None
        for number in itertools.count(1):
            table = self._catalog.load_table(self._options.table)
            try:
                check_rewritable(table.metadata, self._options, self._branch, f"convert deletes of {self._name}")
                if to_delete is None or not to_delete.is_whole(self._search.read(table).files):
                    self._search.discard(table.io)
                    to_delete = self._keys_to_delete(table)
                work = self._search.look(table, to_delete)
                if work is None:
                    self._search.discard(table.io)
                    self.clean_id = branch_snapshot_id(table.metadata, self._branch)
                    break
                plan = self._plan(table, to_delete)
                fault_point(FaultPoint.PLANNED)
                self._search.run(work, plan)
            except BaseException:
                self._search.discard(table.io)
                raise
            rewrite, write = RewriteByKeys(to_delete, self._search), plan.writing.write
            meter.begin(write)
            try:
                committed = commit_rewrite(self._catalog, write, rewrite, meter)
            except RewriteValidationError as stale:
                if number == _ROUNDS:
                    self._search.discard(table.io)
                    raise CommitConflictError(
                        f"Cannot convert deletes of {self._name} in {_ROUNDS} tries, nothing was committed: {stale}. "
                        "Run it again while no compaction runs."
                    ) from stale
                logger.info("Searching %s again: %s", self._name, stale)
            except DataFileError:
                self._search.discard(table.io)
                raise
            else:
                self.clean_id = None if rewrite.leaves_deletes else committed.snapshot_id
                return self._result(committed.snapshot_id, rewrite)
        return ConvertResult(table=self._name, branch=self._branch, seconds=self._seconds)

    def _head(self, metadata: TableMetadata) -> Snapshot | None:
        return branch_head(metadata, self._branch)

    def _keys_to_delete(self, table: Table) -> KeysToDelete:
        deletes = self._search.read(table).files.equalities
        schemas = [*sorted(table.metadata.schemas, key=lambda schema: schema.schema_id), table.metadata.schema()]
        try:
            types = key_types(schemas, map(KeySource.of, deletes))
        except ValueError as problem:
            raise UnsupportedTableError(f"Cannot convert deletes of {self._name}: {problem}.") from problem
        return KeysToDelete(paths=frozenset(found.path for found in deletes), key_types=types)

    def _plan(self, table: Table, to_delete: KeysToDelete) -> SearchPlan:
        fingerprint = Fingerprint.of(table.metadata)
        write = new_write(self._options, table.metadata, Route(branch=self._branch), fingerprint)
        plan = WritePlan.into(table.metadata, write, self._catalog.plan_properties(table))
        return SearchPlan.of(plan, table.metadata, to_delete.key_types, self._encoding)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _result(self, snapshot_id: int | None, rewrite: RewriteByKeys) -> ConvertResult:
        found = self._search.answers
        hit, added = found.hit, found.added
        result = ConvertResult(
            table=self._name,
            branch=self._branch,
            snapshot_id=snapshot_id,
            delete_files=sum(file.content == DataFileContent.EQUALITY_DELETES for file in rewrite.dropped),
            data_files=len(hit),
            rows=sum(answer.rows for answer in hit),
            position_delete_files=len(added.delete_files),
            rewritten_files=len(found.rewritten),
            read_bytes=self._search.read_bytes,
            seconds=self._seconds,
        )
        logger.info("%s", result)
        return result
