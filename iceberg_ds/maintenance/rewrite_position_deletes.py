"""`rewrite_position_delete_files`: few position delete files in place of many, while others write, upsert and compact.

Each rewrite of a partition takes the delete files that are too small or too large, drops the positions of data files
that are not live any more, and writes the rest again. The new files get the highest data sequence number of those
that they replace, so they apply to every data file that one of these applies to. Position delete files that apply to
no data file at all are dropped without being read.

Each attempt to commit looks at the current manifests of the branch, so all that others commit meanwhile is covered:

* position deletes that others add are no part of the rewrite, and stay;
* a data file that is gone leaves positions behind that apply to nothing, as any delete of a file that goes;
* a delete file that was replaced and is gone makes the work on its partition stale;
* a data file to which an old delete file applies, and which was not live before, may have positions that were dropped:
  the work on its partition is stale. A file that is new has a higher sequence number, so only files with an explicit
  older one, or of a branch that was set back, can do that.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.overwrite import FilteredManifests, RewriteValidationError
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.index import without_metrics
from iceberg_ds.deletes.search import KeySearch, without_files
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    DataFileError,
    OptionError,
    RowCountError,
    UnsupportedTableError,
)
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.maintenance.dangling_deletes import dangling_deletes
from iceberg_ds.maintenance.position_delete_tasks import (
    DeleteAnswer,
    DeleteGroup,
    DeletePlan,
    Replaced,
    Target,
    rewrite_group,
)
from iceberg_ds.maintenance.rewrite_options import own_options
from iceberg_ds.metrics.commit_meter import CommitMeter, metered
from iceberg_ds.options.arguments import TEXT, require_types
from iceberg_ds.options.file_settings import new_write
from iceberg_ds.options.parse import OF_REWRITES, options_of_call, parse_call
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.parsing import boolean, positive_integer, whole_number
from iceberg_ds.plan import Fingerprint, Route, WriteIdentity, WritePlan
from iceberg_ds.planning.decide import check_rewritable
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles, PositionIndex, only_path
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.spark.task_job import TaskJob, active_session
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_ACTION = "rewrite position delete files"
# The largest number of rounds: in each one, what others have changed meanwhile is written again.
_ROUNDS = 5
_TARGET_PROPERTY = "write.delete.target-file-size-bytes"
_TARGET_BYTES = 64 * 1024 * 1024
_GRANULARITY = "write.delete.granularity"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePositionDeleteFilesResult:
    """What `rewrite_position_delete_files` did to a branch; the counts have the names of Spark's procedure.

    Attributes:
        table: Identifier of the table.
        branch: Name of the branch.
        snapshot_id: Id of the committed snapshot; None if there was nothing to rewrite.
        rewritten_delete_files_count: Number of position delete files that were replaced or dropped.
        added_delete_files_count: Number of position delete files that were added in their place.
        rewritten_bytes_count: Size of the files that were replaced or dropped.
        added_bytes_count: Size of the files that were added.
        seconds: Seconds from start to end.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    rewritten_delete_files_count: int = 0
    added_delete_files_count: int = 0
    rewritten_bytes_count: int = 0
    added_bytes_count: int = 0
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        where = f"branch '{self.branch}' of {self.table}"
        if self.snapshot_id is None:
            return f"Nothing to rewrite: {where} has no position delete files that are too many, too small or dangling."
        return (
            f"Rewrote {self.rewritten_delete_files_count:,} position delete files of {where} "
            f"({self.rewritten_bytes_count:,} bytes) into {self.added_delete_files_count:,} "
            f"({self.added_bytes_count:,} bytes). Snapshot {self.snapshot_id}, {self.seconds:.1f} s."
        )


def rewrite_position_delete_files(
    table: str,
    spark: SparkSession | None = None,
    *,
    options: Mapping[str, str] | None = None,
    branch: str | None = None,
    where: str | None = None,
) -> RewritePositionDeleteFilesResult:
    """Write few position delete files in place of many, and drop the positions of data files that are gone.

    The branch gets one more snapshot, with the same rows. Writers may go on meanwhile. Without anything to rewrite,
    nothing is committed.

    Args:
        table: Identifier of the table, such as `db.events`.
        spark: The session whose executors read and write the files; None for the active session, or for this process
            if no session is active.
        options: Catalog options, as for a write; and those of Spark's procedure: `target-file-size-bytes` (default: the
            property `write.delete.target-file-size-bytes`, or 64 MB), `min-file-size-bytes` (75 % of the target),
            `max-file-size-bytes` (180 %), `min-input-files` (5) and `rewrite-all` (false). None for no options.
        branch: The branch; None for the branch of option `branch`, or `main`.
        where: A predicate; only delete files of partitions that may have such rows are rewritten. None for all.

    Returns:
        How many files were replaced by how many; its `snapshot_id` is None if there was nothing to rewrite.

    Raises:
        OptionError: The options or arguments are malformed, or name another table.
        TableNotFoundError: The table does not exist.
        UnsupportedTableError: The table is of format version 3, or has files that cannot be read, or are listed more
            than once; nothing was committed.
        DataFileError: Files could not be read or written; nothing was committed.
        RowCountError: The new files would hide other rows than the old ones; nothing was committed.
        CommitConflictError: Others kept changing the same files; nothing was committed.
        CommitStateUnknownError: It may have been committed; nothing was deleted.
        CatalogError: The catalog could not be reached or refused; nothing was committed.
    """
    require_types(_ACTION, branch=(branch, TEXT), where=(where, TEXT))
    given = options_of_call(table, options)
    wanted = own_options(_ACTION, given, _PARSERS)
    of_write = {key: text for key, text in given.items() if key not in _PARSERS}
    parsed = parse_call(_ACTION, of_write if branch is None else {**of_write, "branch": branch}, OF_REWRITES)
    selection = Selection.of(parsed, wanted, where)
    catalog = connect_to_existing(parsed)
    with catalog.hiding_secrets(), metered(catalog.reporting) as meter:
        return PositionDeleteRewrite(catalog, parsed, spark or active_session(), selection).run(meter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which position delete files are rewritten, as options of Spark's procedure say.

    Attributes:
        where: A predicate that rows of their partitions may satisfy; None for all partitions.
        target_bytes: Size that new files are to have; None for what the table says.
        min_bytes: Smaller files are rewritten; None for 75 % of the target.
        max_bytes: Larger files are rewritten; None for 180 % of the target.
        min_input_files: So many files of a partition are rewritten even if they make less than one file.
        rewrites_all: Whether all files are rewritten.
    """

    where: str | None = None
    target_bytes: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    min_input_files: int = 5
    rewrites_all: bool = False

    @classmethod
    def of(cls, options: SinkOptions, wanted: Mapping[str, Any], where: str | None) -> Selection:
        """Return what options ask for.

        Args:
            options: The options that a write knows, too.
            wanted: The values of the procedure's own options.
            where: Which rows the partitions may have.
        """
        return cls(
            where=where,
            target_bytes=options.target_file_size_bytes,
            min_bytes=wanted.get("min_file_size_bytes"),
            max_bytes=wanted.get("max_file_size_bytes"),
            min_input_files=wanted.get("min_input_files", cls().min_input_files),
            rewrites_all=wanted.get("rewrite_all", False),
        )

    def sizes(self, properties: Mapping[str, str]) -> Sizes:
        """Return the sizes for a table with these properties.

        Raises:
            OptionError: They contradict each other.
        """
        target = self.target_bytes or max(1, whole_number(properties, _TARGET_PROPERTY, _TARGET_BYTES))
        low = int(0.75 * target) if self.min_bytes is None else self.min_bytes
        high = int(1.8 * target) if self.max_bytes is None else self.max_bytes
        if not low < target < high:
            raise OptionError(
                f"Cannot {_ACTION}: min-file-size-bytes is {low}, target-file-size-bytes is "
                f"{target} and max-file-size-bytes is {high}, and each must be below the next."
            )
        return Sizes(target_bytes=target, min_bytes=low, max_bytes=high)


_PARSERS: Mapping[str, Callable[[str], int]] = {
    "min-file-size-bytes": positive_integer,
    "max-file-size-bytes": positive_integer,
    "min-input-files": positive_integer,
    "rewrite-all": boolean,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of position delete files, in bytes.

    Attributes:
        target_bytes: Size that new files are to have.
        min_bytes: Smaller files are rewritten.
        max_bytes: Larger files are rewritten.
    """

    target_bytes: int
    min_bytes: int
    max_bytes: int


def select(
    deletes: Iterable[LiveFile], sizes: Sizes, selection: Selection, *, is_by_file: bool
) -> list[list[LiveFile]]:
    """Return the position delete files to rewrite, those of each partition in a list of their own.

    The rules are those of Iceberg's Java library (`SizeBasedFileRewritePlanner`): files outside the desired sizes are
    rewritten if there are enough of them, or if they make more than one file. Files for one data file each stay if
    the new ones are to be so, too.

    Args:
        deletes: The files that may be rewritten.
        sizes: The desired sizes.
        selection: The other options.
        is_by_file: Whether new files are for one data file each.
    """
    by_place: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
    for found in deletes:
        size = found.data_file.file_size_in_bytes
        if selection.rewrites_all or not sizes.min_bytes <= size <= sizes.max_bytes:
            by_place[found.place].append(found)
    return [
        files
        for _, files in sorted(by_place.items())
        if selection.rewrites_all
        or (_are_enough(files, sizes, selection) and not (is_by_file and _are_apart(files, sizes)))
    ]


def _are_enough(files: Sequence[LiveFile], sizes: Sizes, selection: Selection) -> bool:
    size = sum(found.data_file.file_size_in_bytes for found in files)
    are_several = len(files) > 1 and (len(files) >= selection.min_input_files or size > sizes.target_bytes)
    return are_several or size > sizes.max_bytes


def _are_apart(files: Sequence[LiveFile], sizes: Sizes) -> bool:
    """Return whether the files are for one data file each, so that they cannot become fewer."""
    paths = {only_path(found.data_file) for found in files}
    is_large = any(found.data_file.file_size_in_bytes > sizes.max_bytes for found in files)
    return None not in paths and len(paths) == len(files) and not is_large


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The finished rewrite of the delete files of one partition.

    Attributes:
        group: What was rewritten.
        answer: What was written in its place.
    """

    group: DeleteGroup
    answer: DeleteAnswer

    @property
    def replaced(self) -> dict[str, int]:
        """Data sequence numbers of the replaced files, by path."""
        return {found.path: found.sequence_number for found in self.group.replaced}

    @property
    def targets(self) -> dict[str, int]:
        """Data sequence numbers of the data files that they applied to, by path."""
        return {target.path: target.sequence_number for target in self.group.targets}


class PositionDeleteRewrite:
    """The rewrite of the position delete files of one branch.

    Args:
        catalog: The catalog of the table.
        options: The table, the branch, and how files are written.
        spark: Runs the tasks; None to run them in this process.
        selection: Which files are rewritten.
    """

    def __init__(
        self, catalog: CatalogClient, options: SinkOptions, spark: SparkSession | None, selection: Selection
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._spark = spark
        self._selection = selection
        self._name = identifier_text(options.table)
        self._branch = options.branch or MAIN_BRANCH
        self._action = f"{_ACTION} of {self._name}"
        self._search = KeySearch(self._action, spark, lambda metadata: branch_head(metadata, self._branch))
        self._parts: list[_Part] = []
        self._dropped: Sequence[DataFile] = ()
        self._started = time.monotonic()

    @property
    def keeps_rows(self) -> bool:
        """Return True: the same rows are hidden."""
        return True

    @property
    def added(self) -> Added:
        """The new position delete files."""
        return Added((), delete_files=tuple(file for part in self._parts for file in part.answer.written))

    @property
    def sequence_numbers(self) -> dict[str, int]:
        """Data sequence number of each new file, by path."""
        return {file.file_path: part.group.sequence_number for part in self._parts for file in part.answer.written}

    def filtered(self, table: Table) -> FilteredManifests:
        """Return the manifests of the current branch without the files that were replaced and those that dangle.

        Raises:
            RewriteValidationError: Others have changed what the new files were made from.
            UnsupportedTableError: A file that matters is listed more than once.
        """
        read = self._search.read(table)
        if (reason := next(filter(None, self._why_stale(read.files)), None)) is not None:
            raise RewriteValidationError(reason)
        gone = {path for part in self._parts for path in part.replaced}
        gone |= {found.path for found in self._dangling(table.metadata, read.files)}
        found = without_files(read, gone)
        self._dropped = found.removed
        return found

    def run(self, meter: CommitMeter) -> RewritePositionDeleteFilesResult:
        """Plan, write, prove and commit, until nothing that was rewritten has changed meanwhile.

        Args:
            meter: Notes what the commit takes.
        """
        table = self._catalog.load_table(self._options.table)
        for number in itertools.count(1):
            try:
                table = table if number == 1 else self._catalog.load_table(self._options.table)
                write = self._prepare(table)
            except BaseException:
                self._discard(table.io, self._parts)
                raise
            if write is None:
                return RewritePositionDeleteFilesResult(table=self._name, branch=self._branch, seconds=self._seconds)
            meter.begin(write)
            try:
                committed = commit_rewrite(self._catalog, write, self, meter)
            except RewriteValidationError as stale:
                if number == _ROUNDS:
                    self._discard(table.io, self._parts)
                    raise CommitConflictError(
                        f"Cannot {self._action} in {_ROUNDS} tries, nothing was committed: {stale}. Run it again while "
                        "no compaction runs."
                    ) from stale
                logger.info("Rewriting some position delete files of %s again: %s", self._name, stale)
            except (CatalogError, DataFileError):
                self._discard(table.io, self._parts)
                raise
            else:
                return self._result(committed.snapshot_id)
        raise AssertionError("unreachable: the rounds end")

    def _prepare(self, table: Table) -> WriteIdentity | None:
        """Drop what is stale, rewrite what no other part covers, and return the write, or None if no work is left."""
        metadata = table.metadata
        check_rewritable(metadata, self._options, self._branch, self._action)
        if metadata.format_version >= VERSION_3:
            raise UnsupportedTableError(
                f"Cannot {self._action}, nothing was committed: its format version is 3, in which a data file has one "
                "deletion vector, and nothing is to be gained. Rewrite data files with many deleted rows instead, with "
                "rewrite_data_files and option delete-ratio-threshold."
            )
        sizes = self._selection.sizes(metadata.properties)
        read = self._search.read(table)
        stale = [part for part, reason in zip(self._parts, self._why_stale(read.files), strict=True) if reason]
        self._discard(table.io, stale)
        dangling = {found.path for found in self._dangling(metadata, read.files)}
        groups = self._groups(metadata, read.files, dangling, sizes)
        if not (groups or dangling or self._parts):
            return None
        write = new_write(self._options, metadata, Route(branch=self._branch), Fingerprint.of(metadata))
        plan = DeletePlan(
            writing=WritePlan.into(metadata, write, self._catalog.plan_properties(table)),
            spec_of=metadata.specs(),
            is_by_file=_is_by_file(metadata),
        )
        fault_point(FaultPoint.PLANNED)
        job = TaskJob(plan=plan, write=write, action=self._action, answer=rewrite_group, refuse=_refused)
        self._take(groups, job.run(self._spark, groups))
        return write

    def _selected(self, metadata: TableMetadata, deletes: Iterable[LiveFile]) -> list[LiveFile]:
        """Return the delete files of partitions that may have rows which `where` names."""
        where = self._selection.where
        if where is None:
            return list(deletes)
        try:
            predicate = FilterRange(metadata, parse_predicate(where), case_sensitive=False)
        except ValueError as problem:
            raise OptionError(f"Cannot {self._action}: where is no predicate of its columns: {problem}.") from problem
        return [found for found in deletes if predicate.coverage(found.data_file) is not Coverage.OUTSIDE]

    def _dangling(self, metadata: TableMetadata, live: LiveFiles) -> list[LiveFile]:
        replaced = {path for part in self._parts for path in part.replaced}
        found = dangling_deletes(replace(live, equalities=()), metadata.specs(), gone=replaced)
        return self._selected(metadata, found)

    def _groups(
        self, metadata: TableMetadata, live: LiveFiles, dangling: Collection[str], sizes: Sizes
    ) -> list[DeleteGroup]:
        left_out = {*dangling, *(path for part in self._parts for path in part.replaced)}
        places = {found.path: found.place for found in live.data}
        free = [
            found
            for found in self._selected(metadata, live.positions)
            # Iceberg's Java library applies one that names a file of another partition, and the spec does not.
            if found.path not in left_out and places.get(only_path(found.data_file) or "", found.place) == found.place
        ]
        chosen = select(free, sizes, self._selection, is_by_file=_is_by_file(metadata))
        files = [found for group in chosen for found in group]
        self._check_readable(files)
        paths = {found.path for found in files}
        self._search.check_listed_once(found.path for found in live.positions if found.path in paths)
        by_place = _ByPlace(live)
        return [_group(group, self._targets(by_place, group), sizes) for group in chosen]

    def _targets(self, by_place: _ByPlace, deletes: Sequence[LiveFile]) -> list[LiveFile]:
        """Return the data files to which some of these delete files of one partition may apply."""
        targets = by_place.targets(deletes)
        self._search.check_listed_once(target.path for target in targets)
        return targets

    def _check_readable(self, files: Sequence[LiveFile]) -> None:
        for found in files:
            file = found.data_file
            if file.file_format is not FileFormat.PARQUET or file.key_metadata is not None:
                is_other = file.file_format is not FileFormat.PARQUET
                reason = (
                    f"is a file of {file.file_format.value}, and only Parquet is read" if is_other else "is encrypted"
                )
                raise UnsupportedTableError(
                    f"Cannot {self._action}, nothing was committed: {file.file_path} {reason}. Rewrite it with "
                    "Iceberg's own rewrite_position_delete_files, or leave its partition out with `where`."
                )

    def _why_stale(self, live: LiveFiles) -> list[str | None]:
        """Return for each part why it no longer fits the files of the branch, None if it does."""
        by_place = _ByPlace(live)
        return [self._why_part_is_stale(part, by_place) for part in self._parts]

    def _why_part_is_stale(self, part: _Part, by_place: _ByPlace) -> str | None:
        present: list[LiveFile] = []
        for path, number in part.replaced.items():
            found = by_place.deletes.get(path, [])
            if [entry.sequence_number for entry in found] != [number]:
                return f"another writer has replaced {path}"
            present += found
        for target in self._targets(by_place, present):
            if part.targets.get(target.path) != target.sequence_number:
                return f"another writer has brought {target.path}, whose rows older deletes may name"
        return None

    def _take(self, groups: Sequence[DeleteGroup], answers: Sequence[DeleteAnswer]) -> None:
        """Take what tasks wrote, if all is there and hides what it is to hide.

        Raises:
            DataFileError: A task failed in every try.
            RowCountError: The new files hide other rows than the old ones.
        """
        done = {answer.place: answer for answer in answers if answer.problem is None}
        self._parts += [_Part(group=group, answer=done[group.place]) for group in groups if group.place in done]
        if (problem := next((answer.problem for answer in answers if answer.problem), None)) is not None:
            raise DataFileError(f"Cannot {self._action}, nothing was committed: a task failed: {problem}")
        for part in self._parts:
            check_proof(self._action, part.group, part.answer)

    def _discard(self, io: FileIO, parts: Sequence[_Part]) -> None:
        """Delete the files of some parts; no commit that names them has landed, and none can land any more."""
        delete_files(io, [file.file_path for part in parts for file in part.answer.written], Proof.REFUSED)
        self._parts = [part for part in self._parts if part not in parts]

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _result(self, snapshot_id: int | None) -> RewritePositionDeleteFilesResult:
        added = self.added.delete_files
        result = RewritePositionDeleteFilesResult(
            table=self._name,
            branch=self._branch,
            snapshot_id=snapshot_id,
            rewritten_delete_files_count=len(self._dropped),
            added_delete_files_count=len(added),
            rewritten_bytes_count=sum(file.file_size_in_bytes for file in self._dropped),
            added_bytes_count=sum(file.file_size_in_bytes for file in added),
            seconds=self._seconds,
        )
        logger.info("%s", result)
        return result


def check_proof(action: str, group: DeleteGroup, answer: DeleteAnswer) -> None:
    """Check that new files hide in each data file just the positions that the old ones hide.

    Args:
        action: What is being done, for errors.
        group: The old files.
        answer: The new files, with what both hide, as it was read from storage.

    Raises:
        RowCountError: They do not.
    """
    wrong = sorted(
        path for path in answer.before.keys() | answer.after.keys() if answer.before.get(path) != answer.after.get(path)
    )
    if wrong:
        raise RowCountError(
            f"Cannot {action}, nothing was committed: the new files hide other rows of {wrong[0]} and "
            f"{len(wrong) - 1} more data files than the {len(group.replaced)} old ones, such as "
            f"{group.replaced[0].path}. This is a defect of iceberg_ds or of a library below it: please report it."
        )


def _is_by_file(metadata: TableMetadata) -> bool:
    return metadata.properties.get(_GRANULARITY, "").lower() == "file"


class _ByPlace:
    """The files of a snapshot, for many questions about one partition each.

    Attributes:
        deletes: The entries of position delete files, by path.
    """

    def __init__(self, live: LiveFiles) -> None:
        self.deletes: dict[str, list[LiveFile]] = defaultdict(list)
        self._data: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
        for found in live.positions:
            self.deletes[found.path].append(found)
        for found in live.data:
            self._data[found.place].append(found)

    def targets(self, deletes: Sequence[LiveFile]) -> list[LiveFile]:
        """Return the entries of data files to which some of these delete files of one partition may apply."""
        data = self._data.get(deletes[0].place, [])
        index = PositionIndex(LiveFiles(positions=deletes))
        paths = {found.path for found in data if index.of(found).positions}
        return [found for found in data if found.path in paths]


def _group(deletes: Sequence[LiveFile], targets: Sequence[LiveFile], sizes: Sizes) -> DeleteGroup:
    positions = sum(found.data_file.record_count for found in deletes)
    size = sum(found.data_file.file_size_in_bytes for found in deletes)
    return DeleteGroup(
        like=without_metrics(deletes[0].data_file),
        replaced=tuple(
            Replaced(
                path=found.path,
                sequence_number=found.sequence_number,
                record_count=found.data_file.record_count,
            )
            for found in deletes
        ),
        targets=tuple(
            Target(
                path=found.path,
                sequence_number=found.sequence_number,
                record_count=found.data_file.record_count,
            )
            for found in targets
        ),
        positions_per_file=max(1, math.floor(positions * sizes.target_bytes / max(size, 1))),
    )


def _refused(problem: str) -> DeleteAnswer:
    return DeleteAnswer(place=(0, ""), problem=problem)
