"""`TaskCommit`: what a task sends to the commit, the manifests it names, and the proofs that no row is missing.

The planner, the tasks and the committer of a stream are different processes with different writer objects: all that
they must agree on stands in the message. Each step that moves rows says how many it got, and where they are now, by a
count that it did not make: the footers of files, the messages of tasks, manifests. The sums are equal, or nothing is
committed. Counting costs nothing beside the rows, so every write does it. Pure but for PySpark's base class, which
Spark requires.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestFile
from pyspark.sql.datasource import WriterCommitMessage

from iceberg_ds.errors import CommitMessageError, RowCountError
from iceberg_ds.plan import EpochId, TaskKeys, WriteIdentity

WIRE_VERSION = 13

# An event time further ahead of the clock, such as 9999-12-31 for "no end", is no time of an event: it would hide all
# that comes after it.
FUTURE_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows a task got, and what became of them.

    Attributes:
        received: Rows that Spark sent to the task.
        left_out: The received rows that go into no file: refused rows, deletes without a row, rows that lose to
            other rows of their keys.
        quarantined: The received rows that go into the quarantine table.
        dropped: The received rows that cannot be written and are lost, as the user asked.
    """

    received: int
    left_out: int = 0
    quarantined: int = 0
    dropped: int = 0

    @property
    def to_add(self) -> int:
        """Rows that the task wrote into files or handed over."""
        return self.received - self.left_out - self.quarantined - self.dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """What a task took, for the report on the commit.

    Attributes:
        seconds: Seconds from its first line to its message.
        received_bytes: Bytes of the rows that Spark sent, in memory.
        spilled_bytes: Bytes that it wrote to local disks because they did not fit in memory.
        newest_event_us: Event time of the newest row that it wrote, in microseconds since 1970 in UTC; None if unknown.
    """

    seconds: float = 0.0
    received_bytes: int = 0
    spilled_bytes: int = 0
    newest_event_us: int | None = None


class CountedBatches:
    """Batches as they come, counted on the way.

    Args:
        batches: The batches.

    Attributes:
        rows: How many rows have come so far.
        received_bytes: How many bytes they take in memory.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.rows = self.received_bytes = 0
        self._batches = batches
        self._started = time.monotonic()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            self.received_bytes += batch.nbytes
            yield batch

    def metrics(self, spilled_bytes: int = 0, newest_event_us: int | None = None) -> TaskMetrics:
        """Return what the task took from when this was made until now."""
        return TaskMetrics(
            seconds=time.monotonic() - self._started,
            received_bytes=self.received_bytes,
            spilled_bytes=spilled_bytes,
            newest_event_us=newest_event_us,
        )


class TimedBatches:
    """Batches on their way to the writers, whose newest event time is noted.

    Event times more than a day ahead of this machine's clock are left out.

    Args:
        batches: The batches, without rows that are not written.
        event_time: Name of the column with the event time of rows, None for no such column.

    Attributes:
        newest_us: The latest event time so far, in microseconds since 1970 in UTC; None if unknown.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], event_time: str | None) -> None:
        self.newest_us: int | None = None
        self._batches = batches
        self._event_time = event_time

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self._event_time is not None:
                self._see(batch.column(self._event_time))
            yield batch

    def _see(self, times: pa.Array) -> None:
        if not pa.types.is_timestamp(times.type):  # with `on-bad-row`, a column of the table may take times as text
            return
        latest_us = time.time_ns() // 1000 + FUTURE_MS * 1000
        newest = _newest_us(times)
        if newest is not None and newest > latest_us:
            newest = _newest_us(times.filter(pc.less_equal(times, pa.scalar(latest_us, times.type))))
        if newest is not None and (self.newest_us is None or newest > self.newest_us):
            self.newest_us = newest


def _newest_us(times: pa.Array) -> int | None:
    newest: int | None = pc.max(times).cast(pa.timestamp("us", times.type.tz)).value
    return newest


def rows_in(data_files: Iterable[DataFile]) -> int:
    """Return how many rows, or deletes, files have according to their footers."""
    return sum(data_file.record_count for data_file in data_files)


_OUR_DEFECT = (
    "Your rows are not at fault: this is a defect of iceberg_ds or of a library below it. Please report it with these "
    "numbers, and write with another version until it is mended."
)


def check_rows(action: str, source: str, count: int, found: Mapping[str, int], advice: str = _OUR_DEFECT) -> None:
    """Check that all rows are where they belong.

    Args:
        action: What is being done, such as `write to db.t`; nothing was sent to the catalog yet.
        source: Where the rows come from, such as `task 3 got`.
        count: How many rows there are.
        found: How many rows are in which place; each row belongs into one of these places.
        advice: What is wrong if the sums differ, and what to do.

    Raises:
        RowCountError: The sums differ.
    """
    total = sum(found.values())
    if total == count:
        return
    places = ", ".join(f"{rows:,} {place}" for place, rows in found.items())
    difference = f"{count - total:,} would be lost" if total < count else f"{total - count:,} are too many"
    raise RowCountError(
        f"Cannot {action}, nothing was committed: {source} {count:,} rows, and {total:,} are accounted for ({places}), "
        f"so that {difference}. {advice}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over data files.

    Attributes:
        files: Number of files.
        rows: Number of rows in the files.
        size_bytes: Size of the files.
        partitions: The same three figures for each partition, by its path; empty for an unpartitioned spec.
    """

    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskManifest:
    """A manifest that adds the data files of one task.

    Attributes:
        file: Its entry in a manifest list.
        format_version: The table format that it is written in.
        totals: The sums over its files.
        example: Path and size in bytes of one of its files.
    """

    file: ManifestFile
    format_version: int
    totals: Totals
    example: tuple[str, int]

    @property
    def path(self) -> str:
        """Where the manifest is."""
        return self.file.manifest_path


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRows:
    """Rows outside the range that the write replaces.

    Attributes:
        count: How many such rows a task met.
        example: One of these rows, as text.
    """

    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOverRows:
    """Rows of a task with little data, which the committer writes into a file together with those of other tasks.

    Attributes:
        record_count: How many rows there are; never 0.
        arrow_stream: The rows, checked and in the schema of the files, as a stream of Arrow's IPC format.
        spec_id: Partition spec to write the rows with.
        sort_order_id: Order of the rows within a file, None for the order in which they come.
    """

    record_count: int
    arrow_stream: bytes = field(repr=False)
    spec_id: int
    sort_order_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseRows:
    """Rows of a table that the task has no plan for; the driver plans and writes them.

    Attributes:
        table: Identifier of the table, as `identifier_text` writes it.
        columns: The columns of the rows, as the JSON of a Spark `StructType`.
        record_count: How many rows there are; never 0.
        arrow_stream: The rows, as a stream of Arrow's IPC format.
    """

    table: str
    columns: str
    record_count: int
    arrow_stream: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRows:
    """Rows of a task that could not be written as they came.

    Attributes:
        counts: How many rows there were, by the first reason of each (a value of `plan.Reason`).
        example: Column and reason of one of them, without its values.
        rows: The rows for the quarantine table; None if there is no such table, or once the commit has taken them.
        taken: How many of these rows the commit has taken, to write them beside those of other tasks.
    """

    counts: Mapping[str, int]
    example: str
    rows: LooseRows | None = None
    taken: int = 0

    @property
    def record_count(self) -> int:
        """How many rows there were."""
        return sum(self.counts.values())

    @property
    def quarantined(self) -> int:
        """How many rows are here, or were taken from here, for the quarantine table."""
        return self.taken if self.rows is None else self.rows.record_count


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What one successful task attempt wrote.

    Attributes:
        write: What all tasks of the write have in common.
        partition_id: Number of the DataFrame's partition, from 0.
        data_files: The files of this attempt, in the order in which `keys` tells of their rows; none without rows.
        manifests: Manifests that name further files of this attempt.
        refused: Rows that may not be written, so that nothing may be committed; None if there are none.
        rows: The rows that it hands over instead of writing files; None if it wrote files, or had no rows.
        delete_files: Files of equality deletes that this attempt wrote; empty for a write without keys.
        keys: The report on the keys that it met, even if there were none; None for a write without keys.
        wire_version: Layout of this message.
        counts: How many rows it got from Spark, and how many of them it left out.
        metrics: Its time and bytes; None if it wrote into several tables and had no rows of this one.
        bad: The rows that it could not write as they came; None if there are none.
    """

    write: WriteIdentity
    partition_id: int
    data_files: tuple[DataFile, ...]
    refused: RefusedRows | None = None
    manifests: tuple[TaskManifest, ...] = ()
    rows: HandedOverRows | None = None
    delete_files: tuple[DataFile, ...] = ()
    keys: TaskKeys | None = None
    wire_version: int = WIRE_VERSION
    counts: RowCounts = field(kw_only=True)
    metrics: TaskMetrics | None = field(default=TaskMetrics(), kw_only=True)
    bad: BadRows | None = field(default=None, kw_only=True)

    @property
    def reported_rows(self) -> dict[str, int]:
        """Number of rows in its files and among those that it hands over, by where they are."""
        return {
            f"in {len(self.data_files)} files": rows_in(self.data_files),
            f"in the files of {len(self.manifests)} manifests": sum(found.totals.rows for found in self.manifests),
            "handed over": 0 if self.rows is None else self.rows.record_count,
            "for the quarantine table": 0 if self.bad is None else self.bad.quarantined,
        }


@dataclass(frozen=True)
class TablesCommit(WriterCommitMessage):
    """What one successful task attempt wrote into several tables.

    Attributes:
        partition_id: Number of the DataFrame's partition, from 0.
        received: How many rows it got from Spark.
        commits: One for each table that it wrote, no table twice.
        loose: The rows of other tables.
        refused: Rows that name no table that may be written, so that nothing may be committed; None if there are none.
        bad: Such rows, if they go to the quarantine table or are lost; None if there are none.
        epoch: The micro-batch, None for a batch.
        is_overwrite: Whether the write replaces rows of the tables.
        wire_version: Layout of this message.
    """

    partition_id: int
    received: int
    commits: tuple[TaskCommit, ...] = ()
    loose: tuple[LooseRows, ...] = ()
    refused: RefusedRows | None = None
    bad: BadRows | None = None
    epoch: EpochId | None = None
    is_overwrite: bool = False
    wire_version: int = WIRE_VERSION


def check_tables(message: TablesCommit) -> None:
    """Check that every row that a task got went to a table or to the driver, or is accounted for without a table.

    Raises:
        RowCountError: The sums differ.
    """
    found = {
        f"for {len(message.commits)} tables": sum(commit.counts.received for commit in message.commits),
        "for the driver": sum(part.record_count for part in message.loose),
        "refused": message.refused.count if message.refused else 0,
        "for no table": message.bad.record_count if message.bad else 0,
    }
    check_rows("write to several tables", f"task {message.partition_id} got", message.received, found)


def complete_messages(messages: Sequence[object], *, epoch_id: int | None) -> list[TablesCommit]:
    """Return the messages as those of tasks that wrote into several tables, one for each partition of one write.

    Raises:
        CommitMessageError: As `complete_commits`; nothing may be committed then.
    """
    _check_sent(messages)
    commits = [message for message in messages if isinstance(message, TablesCommit)]
    _check_versions(messages, commits)
    if len(epochs := {str(commit.epoch) for commit in commits}) > 1:
        _refuse(f"the messages tell of different writes: {', '.join(sorted(epochs))}")
    _check_epoch(commits[0].epoch, epoch_id)
    _check_partitions(commits)
    return commits


def complete_commits(messages: Sequence[object], *, epoch_id: int | None) -> list[TaskCommit]:
    """Return the messages as task commits, one for each partition of one write.

    Args:
        messages: What Spark passes to `commit`.
        epoch_id: The micro-batch that Spark commits, None for a batch write.

    Raises:
        CommitMessageError: There is no message, one is None or foreign, a partition is missing or
            doubled, two messages belong to different writes, or a message of a write by keys does not tell of its
            keys and of every file. Nothing may be committed then.
    """
    _check_sent(messages)
    commits = [message for message in messages if isinstance(message, TaskCommit)]
    _check_versions(messages, commits)
    if any(commit.write != commits[0].write for commit in commits):
        _refuse(f"the messages tell of different writes: {', '.join(sorted({str(c.write) for c in commits}))}")
    _check_epoch(commits[0].write.epoch, epoch_id)
    _check_partitions(commits)
    if commits[0].write.changes is not None:
        _check_keyed(commits)
    return commits


def _check_sent(messages: Sequence[object]) -> None:
    if not messages or any(message is None for message in messages):
        _refuse(
            f"{sum(message is None for message in messages)} of {len(messages)} task messages are missing. "
            "trigger(continuous=...) never runs the tasks of a Python sink, so it is not supported: "
            "use processingTime or availableNow"
        )


def _check_versions(messages: Sequence[object], commits: Sequence[TaskCommit | TablesCommit]) -> None:
    versions = sorted({commit.wire_version for commit in commits})
    if len(commits) != len(messages) or versions != [WIRE_VERSION]:
        _refuse(
            f"the tasks sent messages of versions {versions}, and this driver reads version {WIRE_VERSION}: "
            "install one version of iceberg_ds on the driver and on all executors"
        )


def _check_epoch(epoch: EpochId | None, epoch_id: int | None) -> None:
    if (epoch.epoch_id if epoch else None) != epoch_id:
        _refuse(f"the messages are of {epoch or 'a batch'}, and Spark commits epoch {epoch_id}")


def _check_partitions(commits: Sequence[TaskCommit | TablesCommit]) -> None:
    partitions = sorted(commit.partition_id for commit in commits)
    if partitions != list(range(len(commits))):
        _refuse(f"the messages are of partitions {partitions}, and each of 0 to {len(commits) - 1} must come once")


def _check_keyed(commits: Sequence[TaskCommit]) -> None:
    """Refuse messages whose rows cannot be compared with the keys of other tasks."""
    silent = [commit.partition_id for commit in commits if commit.keys is None]
    if silent:
        _refuse(f"the tasks of partitions {sorted(silent)} of a write by keys tell nothing of their keys")
    unnamed = [commit.partition_id for commit in commits if commit.manifests or commit.rows is not None]
    if unnamed:
        _refuse(f"the tasks of partitions {sorted(unnamed)} of a write by keys do not name the file of every row")


def reported_commits(messages: Sequence[object]) -> list[TaskCommit]:
    """Return the task commits among the messages of a write that is given up."""
    return [message for message in messages if isinstance(message, TaskCommit)]


def _refuse(reason: str) -> NoReturn:
    raise CommitMessageError(f"Cannot commit, nothing was committed: {reason}.")
