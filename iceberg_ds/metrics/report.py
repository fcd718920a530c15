"""Pure: `CommitReport`, the report on one commit: what it did to the table, what it took, and how it ended.

Iceberg's own counts have the names and units of its metrics API (REST catalog spec, `CommitReport`; Java's
`CommitMetricsResult`); what the sink counts beside them has fields of its own. A report holds no secret: names of the
table, the branch and the stream, numbers, and the class of an error, never its text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Any, Literal, NoReturn, TypeAlias

from iceberg_ds._version import __version__
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, IcebergSinkError
from iceberg_ds.messages import TaskCommit

# How a commit ended, as `CommitReport` says; `maintained` is none of a commit.
Outcome: TypeAlias = Literal["committed", "replayed", "empty", "conflict", "unknown", "failed", "maintained"]
OUTCOMES: tuple[Outcome, ...] = ("committed", "replayed", "empty", "conflict", "unknown", "failed")

# Iceberg's names of its counts, and the key of a snapshot's summary that each is read from.
COUNTS: Mapping[str, str] = {
    "added-data-files": "added-data-files",
    "removed-data-files": "deleted-data-files",
    "total-data-files": "total-data-files",
    "added-delete-files": "added-delete-files",
    "added-equality-delete-files": "added-equality-delete-files",
    "added-positional-delete-files": "added-position-delete-files",
    "added-dvs": "added-dvs",
    "removed-delete-files": "removed-delete-files",
    "removed-equality-delete-files": "removed-equality-delete-files",
    "removed-positional-delete-files": "removed-position-delete-files",
    "removed-dvs": "removed-dvs",
    "total-delete-files": "total-delete-files",
    "added-records": "added-records",
    "removed-records": "deleted-records",
    "total-records": "total-records",
    "added-files-size-bytes": "added-files-size",
    "removed-files-size-bytes": "removed-files-size",
    "total-files-size-bytes": "total-files-size",
    "added-positional-deletes": "added-position-deletes",
    "removed-positional-deletes": "removed-position-deletes",
    "total-positional-deletes": "total-position-deletes",
    "added-equality-deletes": "added-equality-deletes",
    "removed-equality-deletes": "removed-equality-deletes",
    "total-equality-deletes": "total-equality-deletes",
    "manifests-created": "manifests-created",
    "manifests-replaced": "manifests-replaced",
    "manifests-kept": "manifests-kept",
}


# Before the names of what the tasks took, in summaries of snapshots.
SUMMARY_PREFIX = "icebergsink.metrics."


def counts_of(summary: Mapping[str, str | None]) -> dict[str, int]:
    """Return Iceberg's counts that a snapshot's summary tells, by their names in the metrics API."""
    found = {name: summary.get(key) or "" for name, key in COUNTS.items()}
    return {name: int(text) for name, text in found.items() if text.isascii() and text.isdigit() and _fits(text)}


def _fits(digits: str) -> bool:
    """Return whether a text of digits, which any writer may have left, is a number that Iceberg's library can hold."""
    return len(digits) <= len(str(_LARGEST)) and int(digits) <= _LARGEST


def outcome_of(failure: BaseException, *, is_in_doubt: bool) -> Outcome:
    """Return how a commit ended that raised `failure`.

    Args:
        failure: The error.
        is_in_doubt: Whether the write may have landed, unless the error itself says that it did not.
    """
    says_so = isinstance(failure, IcebergSinkError) and not isinstance(failure, CommitStateUnknownError)
    if is_in_doubt and not says_so:
        return "unknown"
    return "conflict" if isinstance(failure, CommitConflictError) else "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """What the tasks of a write report of themselves, together.

    Attributes:
        tasks: Number of tasks that had rows for the table, or all tasks of a write of one table.
        rows: Rows that Spark sent to them.
        bytes: Bytes of these rows in memory, as Arrow batches.
        seconds_min: Seconds of the shortest task, from its first line to its message; 0 without tasks.
        seconds_median: Seconds of the median task.
        seconds_max: Seconds of the longest task.
        small_tasks: Tasks whose rows the commit wrote, into files together with those of other tasks.
        spilled_bytes: Bytes that tasks wrote to local disks because they did not fit in memory, to sort or to wait.
        newest_event_ms: Event time of the newest row, in milliseconds since 1970 in UTC; None if unknown.
        bad_rows: Rows that could not be written as they came, by the first reason of each (a value of `plan.Reason`).
    """

    tasks: int = 0
    rows: int = 0
    bytes: int = 0
    seconds_min: float = 0.0
    seconds_median: float = 0.0
    seconds_max: float = 0.0
    small_tasks: int = 0
    spilled_bytes: int = 0
    newest_event_ms: int | None = None
    bad_rows: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bad_rows", _Counts(self.bad_rows))

    def summary(self) -> dict[str, str]:
        """Return the figures as entries of a snapshot's summary."""
        told = {name.replace("_", "-"): value for name, value in asdict(self).items() if value is not None}
        told |= {f"bad-rows.{reason}": count for reason, count in told.pop("bad-rows").items()}
        return {f"{SUMMARY_PREFIX}{name}": _shown(value) for name, value in told.items()}


def figures_of(commits: Sequence[TaskCommit]) -> TaskFigures:
    """Return the figures of the tasks that sent these messages."""
    taken = [commit.metrics for commit in commits if commit.metrics is not None]
    if not taken:
        return TaskFigures()
    seconds = [metrics.seconds for metrics in taken]
    newest = [metrics.newest_event_us for metrics in taken if metrics.newest_event_us is not None]
    return TaskFigures(
        tasks=len(taken),
        rows=sum(commit.counts.received for commit in commits),
        bytes=sum(metrics.received_bytes for metrics in taken),
        seconds_min=min(seconds),
        seconds_median=median(seconds),
        seconds_max=max(seconds),
        small_tasks=sum(commit.rows is not None for commit in commits),
        spilled_bytes=sum(metrics.spilled_bytes for metrics in taken),
        newest_event_ms=max(newest) // 1000 if newest else None,
        bad_rows=sum((Counter(commit.bad.counts) for commit in commits if commit.bad is not None), Counter()),
    )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"


# Of a number in a report: that of Iceberg's own.
_LARGEST = 2**63 - 1
# Milliseconds since 1970 of a time that nanoseconds can tell, as spans do: in the year 2262.
_LATEST_MS = _LARGEST // 1_000_000


class _Counts(dict[str, int]):
    """A dict that cannot be changed; a `MappingProxyType` could be neither copied nor made into JSON."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the counts of a report cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[_Counts], tuple[dict[str, int]]]:
        return _Counts, (dict(self),)


NO_TASKS = TaskFigures()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """What one commit did, what it took, and how it ended; or what a run of maintenance did (outcome `maintained`).

    Attributes:
        table: Identifier of the table, such as `db.events`.
        table_uuid: The table's UUID; empty for maintenance.
        branch: Branch that was written or maintained.
        outcome: How it ended. `committed`; `replayed`: the table had the write already, or passes its number over;
            `empty`: there was nothing to add; `conflict`: other writers won, nothing was committed; `unknown`: it may
            be committed; `failed`: nothing was. `maintained`: maintenance has ended, as `error` says if it failed.
        at_ms: When it ended, in milliseconds since 1970 in UTC, by the clock of the committing machine.
        duration_ms: Milliseconds from the tasks' messages to the end, tidying up included.
        stream: The stream's name (`stream-name`) or the application's (`txn-app-id`); None if neither is given.
        query_id: Spark's id of the streaming query; None for a batch.
        number: Number of the micro-batch, or of the batch that the application numbers; else None.
        error: Class of the error that was raised, None if none was.
        snapshot_id: The snapshot that holds the rows; None if there is none, as when the number was passed over.
        sequence_number: The snapshot's sequence number; None if there is no snapshot.
        schema_id: The schema that the snapshot was written with; None if there is no snapshot.
        operation: The snapshot's operation; None if there is no snapshot. For maintenance its function, such as
            `expire_snapshots`.
        counts: Iceberg's counts of the snapshot, by their names in `COUNTS`. In a replay they are those of the snapshot
            that an earlier run committed, which tells what that run perhaps could not report; empty if it has expired.
            For maintenance the counts of its result, such as `rewritten-data-files`, and `expired-snapshots`.
        attempts: Requests that were sent for the commit, those for several tables included; 0 if none was due.
        conflicts: Requests that were lost to faster commits of others, perhaps to another table of the request.
        answers_lost: Requests whose answer was lost or told nothing, so that the table had to be looked at.
        answers_resolved: Those of them that the table showed to have been carried out.
        catalog_ms: Milliseconds that the commit waited for the catalog: loads of the table and requests.
        store_ms: Milliseconds that it waited for the store: manifests, manifest lists and rows of small tasks.
        files_left: Files that were not deleted, and that no table refers to; with outcome `unknown` one may. The log
            names those that could not be deleted. Of a commit that was interrupted all of its data and delete files.
        tasks: What its tasks report of themselves; zeros for a commit without tasks.
    """

    table: str
    table_uuid: str
    branch: str
    outcome: Outcome
    at_ms: int
    duration_ms: float
    stream: str | None = None
    query_id: str | None = None
    number: int | None = None
    error: str | None = None
    snapshot_id: int | None = None
    sequence_number: int | None = None
    schema_id: int | None = None
    operation: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 0
    conflicts: int = 0
    answers_lost: int = 0
    answers_resolved: int = 0
    catalog_ms: float = 0.0
    store_ms: float = 0.0
    files_left: int = 0
    tasks: TaskFigures = NO_TASKS

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _Counts(self.counts))  # all reporters get the same report

    def to_json(self) -> str:
        """Return the report as one line of JSON, with the names of the attributes."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> CommitReport:
        """Return the report that a line of `to_json` holds; what a newer version added is left out.

        Raises:
            ValueError: The text is no such line.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            tasks = TaskFigures(**_known(TaskFigures, found.pop("tasks", {})))
            found.get("counts", {}).items()  # an object, and no list of pairs
            report = cls(**_known(cls, found), tasks=tasks)
        except (TypeError, AttributeError, RecursionError) as problem:
            raise ValueError(f"no commit report: {problem}") from problem
        is_sound = _is_sound(report) and _is_sound(tasks) and report.at_ms <= _LATEST_MS
        if report.outcome not in {*OUTCOMES, "maintained"} or not is_sound:
            raise ValueError("no commit report: outcome, counts or another value are none")
        return report


def rest_report(report: CommitReport) -> dict[str, Any]:
    """Return the report in the form of the REST catalog spec (`ReportMetricsRequest`, `CommitReport`)."""
    duration = {"count": 1, "time-unit": "nanoseconds", "total-duration": int(report.duration_ms * 1_000_000)}
    counts = {
        name: {"unit": "bytes" if name.endswith("-bytes") else "count", "value": value}
        for name, value in {"attempts": report.attempts, **report.counts}.items()
    }
    return {
        "report-type": "commit-report",
        "table-name": report.table,
        "snapshot-id": report.snapshot_id,
        "sequence-number": report.sequence_number or 0,
        "operation": report.operation or "append",
        "metrics": {"total-duration": duration, **counts},
        "metadata": {"engine-name": "icebergsink", "engine-version": __version__},
    }


def _is_sound(values: CommitReport | TaskFigures) -> bool:
    """Return whether values from outside are of the types that the class declares, and can be summed up and shown."""
    return all(_is_of(known.type, getattr(values, known.name)) for known in fields(values))


def _is_of(declared: object, value: object) -> bool:
    words = str(declared)
    if value is None:
        return words.endswith("| None")
    if words.startswith("Mapping"):
        return isinstance(value, dict) and all(_is_of("int", number) for number in value.values())
    if words.startswith(("int", "float")):
        numbers = (int, float) if words.startswith("float") else int
        lowest = -_LARGEST if words.endswith("| None") else 0  # such as times before 1970; what is summed up is above 0
        return isinstance(value, numbers) and not isinstance(value, bool) and lowest <= value <= _LARGEST
    return words == "TaskFigures" or isinstance(value, str)


def _known(of: type, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {known.name for known in fields(of)}
    return {name: value for name, value in values.items() if name in names}
