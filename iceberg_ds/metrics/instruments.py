"""Pure: the one list of metrics: names, kinds, units, and which value of a report each takes.

OpenTelemetry, Prometheus, the Grafana board, the alert rules and the page of docs follow from it. `iceberg.commit.*`
are the names of iceberg-go's reporter and of Iceberg's Java proposal (apache/iceberg#16250); `iceberg.sink.*` are ours.
Where these count up the totals of a table, which no sum of commits means, a gauge shows the last one here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from iceberg_ds.messages import FUTURE_MS
from iceberg_ds.metrics.report import COUNTS, CommitReport, TaskFigures
from iceberg_ds.plan import Reason

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
# OpenTelemetry's units (UCUM); empty for a plain count.
Unit: TypeAlias = Literal["", "By", "ms", "s"]
Label: TypeAlias = Literal["table", "branch", "stream", "operation", "outcome"]
# Which reports have a value: `snapshot`: those on a snapshot that no report before told of, be it of the commit or of a
# replay; `commit`: those on commits; `success`: also those on replays and on commits without anything to add; `any`:
# all of these; `maintenance`: those on maintenance alone.
Basis: TypeAlias = Literal["snapshot", "commit", "success", "any", "maintenance"]
# What a gauge keeps: the value of the newest snapshot of the branch, of the latest report, or of the newest event.
Keeps: TypeAlias = Literal["newest_snapshot", "latest", "newest_event"]

# The attributes of OpenTelemetry that stand for the labels.
ATTRIBUTES: dict[Label, str] = {
    "table": "iceberg.table.name",
    "branch": "iceberg.branch.name",
    "stream": "iceberg.sink.stream",
    "operation": "iceberg.operation",
    "outcome": "iceberg.sink.outcome",
}
_WRITER: tuple[Label, ...] = ("table", "branch", "stream")
_COMMIT: tuple[Label, ...] = (*_WRITER, "operation")
_TABLE: tuple[Label, ...] = ("table", "branch")
_MAINTENANCE: tuple[Label, ...] = (*_TABLE, "operation")
# The functions that report what a run of them did, beside the reports on its commits; `maintain` that none could begin.
MAINTENANCE = ("rewrite_data_files", "expire_snapshots", "remove_orphan_files", "maintain")

DURATION_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECORD_BUCKETS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One metric.

    Attributes:
        name: Its name in OpenTelemetry.
        prometheus: Its name in Prometheus, with the unit, without the `_total` of counters.
        kind: What its values mean together.
        unit: The unit of `value`.
        doc: What it tells.
        labels: What tells its series apart.
        value: Takes the value from a report; None if the report has none.
        basis: Which reports have a value.
        keeps: Which value a gauge keeps; other kinds ignore it.
        buckets: Upper bounds of a histogram's buckets, in seconds or in records; else empty.
    """

    name: str
    prometheus: str
    kind: Kind
    doc: str
    value: Callable[[CommitReport], float | None]
    labels: tuple[Label, ...] = _COMMIT
    unit: Unit = ""
    basis: Basis = "commit"
    keeps: Keeps = "latest"
    buckets: tuple[float, ...] = ()

    @property
    def scale(self) -> float:
        """What a value is multiplied by for Prometheus, which counts in seconds."""
        return 0.001 if self.unit == "ms" else 1.0


def _count(key: str) -> Callable[[CommitReport], float | None]:
    return lambda report: report.counts.get(key)


def _of_tasks(value: Callable[[TaskFigures], float]) -> Callable[[CommitReport], float | None]:
    """Return what takes a value from the tasks' figures; None for a commit without tasks, whose zeros mean nothing."""
    return lambda report: value(report.tasks) if report.tasks.tasks else None


def _newest_event_s(report: CommitReport) -> float | None:
    newest_ms = report.tasks.newest_event_ms  # by the clock of a task, which may have been wrong
    if newest_ms is None or newest_ms > report.at_ms + FUTURE_MS:
        return None
    return newest_ms / 1000


# Iceberg's words in `COUNTS`, as the names of metrics spell them.
_NOUNS = {
    "data-files": "data_files",
    "delete-files": "delete_files",
    "equality-delete-files": "delete_files.equality",
    "positional-delete-files": "delete_files.positional",
    "dvs": "dvs",
    "records": "records",
    "files-size-bytes": "file_size",
    "positional-deletes": "positional_deletes",
    "equality-deletes": "equality_deletes",
}
_MEANINGS = {
    "data-files": "data files",
    "delete-files": "delete files",
    "equality-delete-files": "equality delete files",
    "positional-delete-files": "position delete files",
    "dvs": "deletion vectors",
    "records": "records",
    "files-size-bytes": "bytes of files",
    "positional-deletes": "position deletes",
    "equality-deletes": "equality deletes",
}
_DID = {"added": "added by commits", "removed": "removed by commits", "total": "in the table after the last commit"}


def _of_iceberg(key: str) -> Instrument:
    verb, _, noun = key.partition("-")
    if verb == "manifests":
        return Instrument(
            name=f"iceberg.commit.manifests.{noun}",
            prometheus=f"iceberg_commit_manifests_{noun}",
            kind="counter",
            doc=f"Manifests {noun} by commits.",
            value=_count(key),
            basis="snapshot",
        )
    stem, is_size = _NOUNS[noun], noun == "files-size-bytes"
    name = f"iceberg.commit.{stem}.{verb}{'_bytes' if is_size else ''}"
    flat = stem.replace(".", "_")
    is_total = verb == "total"
    return Instrument(
        name=name,
        prometheus=f"iceberg_table_{flat}{'_bytes' if is_size else ''}" if is_total else name.replace(".", "_"),
        kind="gauge" if is_total else "counter",
        doc=f"{_MEANINGS[noun].capitalize()} {_DID[verb]}.",
        value=_count(key),
        labels=_TABLE if is_total else _COMMIT,
        unit="By" if is_size else "",
        basis="snapshot",
        keeps="newest_snapshot",
    )


def _milliseconds(
    name: str, doc: str, value: Callable[[CommitReport], float | None], *, is_last: bool = False
) -> Instrument:
    return Instrument(
        name=name,
        prometheus=f"{name.replace('.', '_')}_seconds",
        kind="gauge" if is_last else "counter",
        doc=doc,
        value=value,
        labels=_WRITER,
        unit="ms",
        basis="commit" if is_last else "any",
    )


def _sink(name: str, doc: str, value: Callable[[CommitReport], float | None], unit: Unit = "") -> Instrument:
    """Return a counter of the sink's own that every commit counts for, however it ended."""
    name = f"iceberg.sink.{name}"
    flat = name.replace(".", "_") + ("_bytes" if unit == "By" else "")
    return Instrument(
        name=name, prometheus=flat, kind="counter", doc=doc, value=value, labels=_WRITER, unit=unit, basis="any"
    )


def _maintenance(name: str, doc: str, value: Callable[[CommitReport], float | None], unit: Unit = "") -> Instrument:
    name = f"iceberg.sink.maintenance.{name}"
    return Instrument(
        name=name,
        prometheus=name.replace(".", "_") + ("_seconds" if unit == "ms" else ""),
        kind="counter",
        doc=doc,
        value=value,
        labels=_MAINTENANCE,
        unit=unit,
        basis="maintenance",
    )


def _files(verb: str) -> Callable[[CommitReport], float | None]:
    """Return what takes the number of files of all kinds that maintenance has treated so."""
    return lambda report: sum(
        count for name, count in report.counts.items() if name.startswith(verb) and not name.endswith(_NO_FILES)
    )


_NO_FILES = ("-bytes", "-rows")


def _bad_rows(reason: Reason) -> Callable[[CommitReport], float | None]:
    return lambda report: report.tasks.bad_rows.get(reason.value)


_REASONS = {
    Reason.REQUIRED: "a null in a required column",
    Reason.CAST: "a value that the type of the table's column cannot hold",
    Reason.MALFORMED: "text or bytes that are no uuid, no time, or of a wrong length",
    Reason.OPERATION: "an unknown operation",
    Reason.KEY: "a null in a key column",
    Reason.RANGE: "a row that does not satisfy replace-where",
    Reason.PARTITION: "a value whose partition no reader would find",
    Reason.ROUTE: "a value of the route column that names no table which may be written",
}
INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        name="iceberg.commit.duration",
        prometheus="iceberg_commit_duration_seconds",
        kind="histogram",
        doc="Time that commits took, from the tasks' messages to the end.",
        value=lambda report: report.duration_ms,
        unit="ms",
        buckets=DURATION_BUCKETS_S,
    ),
    Instrument(
        name="iceberg.commit.attempts",
        prometheus="iceberg_commit_attempts",
        kind="counter",
        doc="Requests that were sent for commits, also for commits that failed; one for several tables counts for each "
        "of them.",
        value=lambda report: report.attempts,
        basis="any",
    ),
    *map(_of_iceberg, COUNTS),
    Instrument(
        name="iceberg.sink.commits",
        prometheus="iceberg_sink_commits",
        kind="counter",
        doc="Commits by their outcome: committed, replayed, empty, conflict, unknown, failed.",
        value=lambda _: 1,
        labels=(*_WRITER, "outcome"),
        basis="any",
    ),
    Instrument(
        name="iceberg.sink.records_per_batch",
        prometheus="iceberg_sink_records_per_batch",
        kind="histogram",
        doc="Rows that Spark sent for one commit.",
        value=_of_tasks(lambda tasks: tasks.rows),
        labels=_WRITER,
        buckets=RECORD_BUCKETS,
    ),
    _sink(
        "conflicts",
        "Requests that were lost to faster commits of others; one for several tables counts for each of them.",
        lambda report: report.conflicts,
    ),
    _sink("answers.lost", "Requests whose answer was lost or told nothing.", lambda report: report.answers_lost),
    _sink(
        "answers.resolved",
        "Those of them that the table showed to have been carried out.",
        lambda report: report.answers_resolved,
    ),
    _sink(
        "files.left",
        "Files that were not deleted and that no table refers to; after outcome `unknown` one may.",
        lambda report: report.files_left,
    ),
    _sink("records.received", "Rows that Spark sent to tasks, repeated ones included.", lambda r: r.tasks.rows),
    *(
        _sink(
            f"records.bad.{reason.value}",
            f"Rows that could not be written as they came: {_REASONS[reason]}; repeated ones included.",
            _bad_rows(reason),
        )
        for reason in Reason
    ),
    _sink("received", "Bytes that these rows take in memory.", lambda report: report.tasks.bytes, "By"),
    _sink("tasks", "Tasks that reported.", lambda report: report.tasks.tasks),
    _sink("tasks.small", "Tasks whose rows the commit wrote into shared files.", lambda r: r.tasks.small_tasks),
    _sink("spilled", "Bytes that tasks wrote to local disks.", lambda report: report.tasks.spilled_bytes, "By"),
    _milliseconds(
        "iceberg.sink.catalog.wait", "Time that commits waited for the catalog.", lambda report: report.catalog_ms
    ),
    _milliseconds("iceberg.sink.store.wait", "Time that commits waited for the store.", lambda report: report.store_ms),
    _milliseconds(
        "iceberg.sink.task.duration.min",
        "Time of the shortest task of the last commit.",
        _of_tasks(lambda tasks: tasks.seconds_min * 1000),
        is_last=True,
    ),
    _milliseconds(
        "iceberg.sink.task.duration.median",
        "Time of the median task of the last commit.",
        _of_tasks(lambda tasks: tasks.seconds_median * 1000),
        is_last=True,
    ),
    _milliseconds(
        "iceberg.sink.task.duration.max",
        "Time of the longest task of the last commit.",
        _of_tasks(lambda tasks: tasks.seconds_max * 1000),
        is_last=True,
    ),
    _maintenance("runs", "Runs of maintenance that changed the table, or failed.", lambda _: 1),
    _maintenance("failures", "Runs of maintenance that failed.", lambda report: report.error is not None),
    _maintenance("duration", "Time that maintenance took.", lambda report: report.duration_ms, "ms"),
    _maintenance("files.rewritten", "Files that maintenance has written anew.", _files("rewritten-")),
    _maintenance("files.added", "Files that took their place.", _files("added-")),
    _maintenance("files.deleted", "Files of expired snapshots that were deleted.", _files("deleted-")),
    _maintenance(
        "snapshots.expired", "Snapshots that have expired.", lambda report: report.counts.get("expired-snapshots", 0)
    ),
    Instrument(
        name="iceberg.sink.last_success.time",
        prometheus="iceberg_sink_last_success_timestamp_seconds",
        kind="gauge",
        doc="When the last commit ended that found or brought its rows in the table, in seconds since 1970.",
        value=lambda report: report.at_ms / 1000,
        labels=_WRITER,
        unit="s",
        basis="success",
    ),
    Instrument(
        name="iceberg.sink.last_micro_batch.time",
        prometheus="iceberg_sink_last_micro_batch_timestamp_seconds",
        kind="gauge",
        doc="When the last micro-batch of a streaming query ended that found or brought its rows in the table, in "
        "seconds since 1970.",
        value=lambda report: None if report.query_id is None else report.at_ms / 1000,
        labels=_WRITER,
        unit="s",
        basis="success",
    ),
    Instrument(
        name="iceberg.sink.newest_event.time",
        prometheus="iceberg_sink_newest_event_timestamp_seconds",
        kind="gauge",
        doc="Event time of the newest row that was committed, in seconds since 1970; what is behind it is freshness. "
        "Event times more than a day ahead of their commit are left out.",
        value=_newest_event_s,
        labels=_WRITER,
        unit="s",
        basis="success",
        keeps="newest_event",
    ),
    Instrument(
        name="iceberg.sink.epoch",
        prometheus="iceberg_sink_epoch",
        kind="gauge",
        doc="Number of the last micro-batch, or of the last batch that the application numbers.",
        value=lambda report: report.number,
        labels=_WRITER,
        basis="success",
    ),
)
