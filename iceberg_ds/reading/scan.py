"""Plans a read on the driver: the snapshot, its schema, the data files that may have rows, and the deletes of each.

Reads manifests as version 3 has them, so that deletion vectors are seen. A file that is left out has, by its partition
or its metrics, no row that satisfies the predicate. Source: Iceberg spec, "Scan Planning".
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, IcebergType, NestedField, StructType, TimestampType, TimestamptzType

from iceberg_ds.deletes.index import KeySource, KnownKeys, all_specs, key_types, plan_work, why_not_readable
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange, bound_value
from iceberg_ds.expressions.parser import Tree
from iceberg_ds.garbage_collection import no_garbage_collection
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.reading.file_errors import naming_manifests
from iceberg_ds.reading.lives import FileId, Life
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles
from iceberg_ds.snapshots.manifests import added_entries, live_entries, live_manifests
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_head, find_snapshot

logger = logging.getLogger(__name__)

# Earlier ones are shifted in filters that Spark pushes down: in days and microseconds since 1970.
_FIRST_DAY = -141_349  # 1583-01-01: the calendar was Caesar's before
_FIRST_TIME = -2_208_988_800_000_000  # 1900-01-01: Java's older classes know no change of a zone's offset before it


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChoice:
    """Which snapshot is read: at most one of these; none for the head of `main`.

    Attributes:
        snapshot_id: Id of the snapshot.
        as_of_ms: The snapshot that was current in `main` at this time, in milliseconds since the Unix epoch.
        branch: The head of this branch.
        tag: The snapshot of this tag.
        schema_id: Id of the schema to read with; None for the table's at the head of a branch, else the snapshot's.
    """

    snapshot_id: int | None = None
    as_of_ms: int | None = None
    branch: str | None = None
    tag: str | None = None
    schema_id: int | None = None

    def of(self, metadata: TableMetadata) -> Snapshot | None:
        """Return the snapshot; None if the branch has none, as a new table.

        Raises:
            ValueError: There is no such snapshot, or more than one is named.
        """
        given = {
            "snapshot_id": self.snapshot_id,
            "as_of": self.as_of_ms,
            "branch": self.branch,
            "tag": self.tag,
        }
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} name a snapshot each: give one of them")
        if self.snapshot_id is not None:
            found = find_snapshot(metadata, self.snapshot_id)
            if found is None:
                raise ValueError(f"it has no snapshot {self.snapshot_id}, or no longer: it may have expired")
            return found
        if self.as_of_ms is not None:
            return _as_of(metadata, self.as_of_ms)
        if self.tag is not None or self.branch not in {None, MAIN_BRANCH}:
            return _of_ref(metadata, self.tag, self.branch)
        return branch_head(metadata, MAIN_BRANCH)

    def schema(self, metadata: TableMetadata, snapshot: Snapshot | None) -> Schema:
        """Return the schema of the read.

        Raises:
            ValueError: There is no such schema.
        """
        number = self.schema_id
        is_fixed = self.snapshot_id is not None or self.as_of_ms is not None or self.tag is not None
        if number is None and is_fixed and snapshot is not None:
            number = snapshot.schema_id
        if number is None:
            return metadata.schema()
        found = next((schema for schema in metadata.schemas if schema.schema_id == number), None)
        if found is None:
            raise ValueError(f"it has no schema {number}")
        return found


def _as_of(metadata: TableMetadata, as_of_ms: int) -> Snapshot:
    entries = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= as_of_ms]
    found = find_snapshot(metadata, entries[-1].snapshot_id) if entries else None
    if found is None:
        first = min((entry.timestamp_ms for entry in metadata.snapshot_log), default=None)
        known = "none" if first is None else _time_text(first)
        raise ValueError(
            f"it has no snapshot of {_time_text(as_of_ms)} or before; the first that is known is of {known}"
        )
    return found


def _time_text(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat()
    except (OverflowError, ValueError, OSError):  # beyond the years that Python knows
        return f"{time_ms} ms since the Unix epoch"


def _of_ref(metadata: TableMetadata, tag: str | None, branch: str | None) -> Snapshot | None:
    name, kind = (tag, "tag") if tag is not None else (branch, "branch")
    ref = metadata.refs.get(str(name))
    if ref is None or ref.snapshot_ref_type.value != kind:
        names = ", ".join(sorted(n for n, other in metadata.refs.items() if other.snapshot_ref_type.value == kind))
        raise ValueError(f"it has no {kind} '{name}' (it has: {names or 'none'})")
    return find_snapshot(metadata, ref.snapshot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What is read.

    Attributes:
        name: Identifier of the table, for messages.
        snapshot_id: The snapshot; None if the table has none.
        schema: The columns, as the table or the snapshot has them.
        metadata: The table.
        tasks: The data files, in the order of the manifests.
        deletes: The position delete files that apply to some of them, by path.
        key_files: The equality delete files that apply to some of them, by path.
        key_types: Types of the columns that equality deletes delete by, by field id.
        specs: The table's partition specs, by spec id.
        left_out: How many data files were left out by the predicate.
        inside: Paths of the data files all of whose rows satisfy the predicate, by their partitions or metrics.
        early_times: Ids of columns with dates or times that Spark may shift in filters, since they are long ago.
        lives: Of a read of changes, when the data files and the equality delete files are in the table.
    """

    name: str
    snapshot_id: int | None
    schema: Schema
    metadata: TableMetadata
    tasks: Sequence[ScanTask]
    deletes: Mapping[str, DataFile]
    key_files: Mapping[str, DataFile]
    key_types: Mapping[int, IcebergType]
    specs: Mapping[int, PartitionSpec]
    left_out: int = 0
    inside: frozenset[str] = frozenset()
    early_times: frozenset[int] = frozenset()
    lives: Mapping[FileId, Sequence[Life]] = field(default_factory=dict)


def chosen_schema(name: str, metadata: TableMetadata, choice: SnapshotChoice) -> tuple[Snapshot | None, Schema]:
    """Return the snapshot that is read, or None if the table has no snapshot yet, and its columns.

    Raises:
        OptionError: There is no such snapshot or schema.
    """
    try:
        snapshot = choice.of(metadata)
        return snapshot, choice.schema(metadata, snapshot)
    except ValueError as problem:
        raise OptionError(f"Cannot read {name}: {problem}.") from problem


@no_garbage_collection()
def plan_scan(  # noqa: PLR0913  # all but three by name
    name: str,
    metadata: TableMetadata,
    io: FileIO,
    choice: SnapshotChoice,
    *,
    where: Tree | None,
    case_sensitive: bool,
    time_zone: str | None,
) -> ScanPlan:
    """Return what a read of a table has to read.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        io: Opens its storage.
        choice: The snapshot.
        where: A predicate, as `parser.parse_predicate` returns it: files without such rows are left out. None for all.
        case_sensitive: Whether names in it must match exactly.
        time_zone: Time zone of times in it without a zone, or None if unknown.

    Raises:
        OptionError: The snapshot is not there.
        UnsupportedTableError: A file cannot be read, or is listed twice.
        DataFileError: Manifests cannot be read.
    """
    snapshot, schema = chosen_schema(name, metadata, choice)
    meant = None
    if where is not None:
        at_schema = metadata.model_copy(update={"current_schema_id": schema.schema_id})
        try:
            meant = FilterRange(at_schema, where, case_sensitive=case_sensitive, time_zone=time_zone)
        except ValueError:  # whoever filters the rows says what is wrong, or casts what is not cast here
            logger.info("All files of %s are read: the predicate cannot be told by metrics", name)
    files, inside, total = _read(name, io, snapshot, meant)
    plan = plan_files(name, metadata, schema, snapshot, files)
    return replace(plan, left_out=total - len(plan.tasks), inside=inside)


def plan_files(  # noqa: PLR0913  # the last one is seldom given
    name: str,
    metadata: TableMetadata,
    schema: Schema,
    snapshot: Snapshot | None,
    files: Sequence[LiveFile],
    *,
    known: KnownKeys | None = None,
) -> ScanPlan:
    """Return what a read of some live files of a snapshot has to read, all their delete files among them.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        schema: The columns.
        snapshot: The snapshot; None for one without files.
        files: The files.
        known: As for `plan_work`.

    Raises:
        UnsupportedTableError: A file or a column cannot be read, or a file is listed twice.
    """
    live = _by_content(name, files)
    schemas = [*sorted(metadata.schemas, key=lambda one: one.schema_id), schema]
    try:
        types = key_types(schemas, map(KeySource.of, live.equalities))
    except ValueError as problem:
        raise UnsupportedTableError(f"Cannot read {name}: {problem}.") from problem
    specs = all_specs(metadata)
    work = plan_work(live, [*map(KeySource.of, live.equalities)], specs, types, with_all=True, known=known)
    entry_of = {found.path: found.data_file for found in live.data}
    tasks = [_task(item, entry_of[item.path]) for item in work]
    applied = {path for task in tasks for path in task.work.hidden_by.positions}
    keys = {key.path for task in tasks for key in task.work.keys}
    return ScanPlan(
        name=name,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        schema=schema,
        metadata=metadata,
        tasks=tasks,
        deletes={found.path: found.data_file for found in live.positions if found.path in applied},
        key_files={found.path: found.data_file for found in live.equalities if found.path in keys},
        key_types=types,
        specs=specs,
        early_times=_early_times(schema, [found.data_file for found in live.data]),
    )


def _read(
    name: str, io: FileIO, snapshot: Snapshot | None, meant: FilterRange | None
) -> tuple[list[LiveFile], frozenset[str], int]:
    """Return the live files that may have rows of the predicate, deletes included, and what is known of data files.

    Returns:
        The files; paths of the data files that have only such rows; and how many data files there are: those that a
        manifest of its own leaves out count as far as the manifest list tells their number.
    """
    with naming_manifests(name, io, snapshot):
        manifests = live_manifests(io, snapshot)
        wanted = [one for one in manifests if one.content != 0 or meant is None or meant.may_touch(one)]
        files = [live for listed in in_parallel(partial(live_files, io), wanted) for live in listed]
    skipped = [one for one in manifests if one not in wanted]
    total = sum((one.added_files_count or 0) + (one.existing_files_count or 0) for one in skipped)
    total += sum(live.data_file.content == DataFileContent.DATA for live in files)
    covered = [(live, _coverage(live, meant)) for live in files]
    inside = frozenset(live.path for live, coverage in covered if coverage is Coverage.INSIDE)
    return [live for live, coverage in covered if coverage is not Coverage.OUTSIDE], inside, total


def live_files(io: FileIO, manifest: ManifestFile) -> list[LiveFile]:
    """Return the live files of a manifest."""
    return [LiveFile.of(entry) for entry in live_entries(io, manifest)]


def added_tasks(name: str, metadata: TableMetadata, io: FileIO, snapshot: Snapshot) -> list[ScanTask]:
    """Return the data files that a snapshot added, in the order of its manifests, without any deletes.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        io: Opens its storage.
        snapshot: The snapshot.

    Raises:
        UnsupportedTableError: A file cannot be read, or is listed twice.
        DataFileError: Manifests cannot be read.
    """
    with naming_manifests(name, io, snapshot):
        added = [LiveFile.of(entry) for entry in added_entries(io, snapshot)]
    _check(name, added)
    work = plan_work(LiveFiles(data=added), (), all_specs(metadata), {}, with_all=True)
    return [_task(item, found.data_file) for item, found in zip(work, added, strict=True)]


def _coverage(live: LiveFile, meant: FilterRange | None) -> Coverage:
    """Return how much of a data file satisfies the predicate; of deletes, and without a predicate, that is unknown."""
    if meant is None or live.data_file.content != DataFileContent.DATA:
        return Coverage.PARTIAL
    return meant.coverage(live.data_file)


def _by_content(name: str, files: Sequence[LiveFile]) -> LiveFiles:
    """Return the files by content.

    Raises:
        UnsupportedTableError: A file cannot be read, or is listed twice.
    """
    try:
        live = LiveFiles.of(files)
    except ValueError as problem:
        raise UnsupportedTableError(f"Cannot read {name}: {problem}.") from problem
    _check(name, [*live.data, *live.positions, *live.equalities])
    return live


def _check(name: str, files: Sequence[LiveFile]) -> None:
    for live in files:
        if (reason := why_not_readable(live.data_file)) is not None:
            raise UnsupportedTableError(f"Cannot read {name}: {live.path} {reason}.")
    listed = Counter(live.path for live in files if live.data_file.content == DataFileContent.DATA)
    twice = [path for path, count in listed.items() if count > 1]
    if twice:
        raise UnsupportedTableError(
            f"Cannot read {name}: it lists {twice[0]} more than once, and rows could be read twice. Remove the second "
            "entry, for example by iceberg_ds.verify, which names all of them."
        )


def _task(work: FileWork, entry: DataFile) -> ScanTask:
    return ScanTask(work=work, absent={n: v for n, v in work.partition_values.items() if not _holds(entry, n)})


def _early_times(schema: Schema, files: Sequence[DataFile]) -> frozenset[int]:
    """Return the columns with dates or times, also in structs, for which some file may have values that are too early.

    Spark shifts them in filters that it pushes down. The lower bounds tell; without one, any may be.
    """
    return frozenset(
        column.field_id
        for column in schema.fields
        if any(_may_be_early(time, file) for time in _times_in(column) for file in files)
    )


def _times_in(field: NestedField) -> Iterator[NestedField]:
    """Yield the dates and times of a column, also in structs; Spark pushes no filter into lists and maps."""
    match field.field_type:
        case StructType(fields=fields):
            for one in fields:
                yield from _times_in(one)
        case DateType() | TimestampType() | TimestamptzType():
            yield field


def _may_be_early(field: NestedField, file: DataFile) -> bool:
    number, kind = field.field_id, field.field_type
    low = bound_value((file.lower_bounds or {}).get(number), kind)
    if low is None:
        values, nulls = ((counts or {}).get(number) for counts in (file.value_counts, file.null_value_counts))
        return values is None or values != nulls  # not nulls only
    return bool(low < (_FIRST_DAY if isinstance(kind, DateType) else _FIRST_TIME))


def _holds(entry: DataFile, field_id: int) -> bool:
    """Return whether the metrics of a file tell that it has a column."""
    return any(field_id in (counts or {}) for counts in (entry.column_sizes, entry.value_counts))
