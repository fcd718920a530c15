"""`progress`: what Spark says of a streaming query, beside what its last commit did to the table.

Spark knows rows and rates; what was committed is in the file of reports, or, where that cannot be seen (Spark Connect),
in the table itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.follow import Files, paths_of
from iceberg_ds.metrics.report import CommitReport, counts_of
from iceberg_ds.metrics.report_file import last_report
from iceberg_ds.options.parse import options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.txn import EPOCHS, TXNS, find_last_marker
from iceberg_ds.table.names import identifier_text


class StreamingQuery(Protocol):
    """A streaming query of Spark, classic or Connect."""

    @property
    def id(self) -> object:
        """Spark's id of the query, which lasts as long as its checkpoint."""

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:  # noqa: N802  # Spark's
        """What Spark says of the last micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """A streaming query: what Spark says of its last micro-batch, and what its last commit did.

    Attributes:
        query_id: Spark's id of the query.
        spark: Spark's last progress as plain values, by Spark's names; None before the first micro-batch has ended.
        source: Where the commit was found: `file` (a report), `table` (a snapshot), or None if in neither.
        report: The last report on a commit of the query; None if the file has none.
        number: Number of the micro-batch that was committed, from 0; None if unknown.
        snapshot_id: Snapshot of the commit; None if it failed, had nothing to add, or is unknown.
        at_ms: When the commit ended, in milliseconds since 1970; None if unknown.
        counts: Iceberg's counts of the snapshot, such as `added-records`; empty without one, or if it has expired.
    """

    query_id: str
    spark: Mapping[str, Any] | None = None
    source: Literal["file", "table"] | None = None
    report: CommitReport | None = None
    number: int | None = None
    snapshot_id: int | None = None
    at_ms: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def batch_id(self) -> int | None:
        """Number of the micro-batch that Spark tells of: ahead of `number` without rows, behind while one ends."""
        found = None if self.spark is None else self.spark.get("batchId")
        return found if isinstance(found, int) else None

    def to_json(self) -> str:
        """Return a JSON object with the attributes."""
        return json.dumps(asdict(self), indent=2)


def progress(
    query: StreamingQuery,
    *,
    options: Mapping[str, str] | None = None,
    file: Files | None = None,
    table: str | None = None,
) -> QueryProgress:
    """Return Spark's last progress of a streaming query beside its last commit.

    Args:
        query: The query, as `start()` returned it. It may write by `foreachBatch` and `upsert_into`.
        options: Options of the write, for a table that is looked at; those that say where it is are used.
        file: The path of option `metrics-file`, or those of several streams; looked at first.
        table: Identifier of the table, which is looked at if the file has no report on the query and this table. A
            query into several tables has a report on each: without `table` the last one is told, be it that of
            `consistent-cut`.

    Returns:
        The progress. Of a table the newest snapshot of the query on its branch is told, without durations.

    Raises:
        OptionError: Neither file nor table is given, or an option is wrong.
        TableNotFoundError: The table does not exist.
        CatalogError: The catalog could not be reached or refused.
    """
    if file is None and table is None:
        raise OptionError("Cannot tell the progress of a query: neither file nor table is given. Give one of them.")
    of_table = None if table is None else parse_options(options_of_call(table, options))
    query_id, told = str(query.id), query.lastProgress
    found = QueryProgress(query_id=query_id, spark=None if told is None else _plain(told))
    if file is not None and (report := _reported(file, query_id, of_table)) is not None:
        return replace(
            found,
            source="file",
            report=report,
            number=report.number,
            snapshot_id=report.snapshot_id,
            at_ms=report.at_ms,
            counts=report.counts,
        )
    return found if of_table is None else _committed(found, of_table)


def _plain(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return Spark's progress without its classes, which cannot be copied field by field."""
    plain: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return plain


def _reported(file: Files, query_id: str, options: SinkOptions | None) -> CommitReport | None:
    name = None if options is None else identifier_text(options.table)
    reports = [report for path in paths_of(file) if (report := last_report(path, query_id, name)) is not None]
    return max(reports, key=lambda report: report.at_ms, default=None)


def _committed(found: QueryProgress, options: SinkOptions) -> QueryProgress:
    metadata = connect_to_existing(options).load_table(options.table).metadata
    branch = options.branch or MAIN_BRANCH
    markers = [
        find_last_marker(metadata, branch, EPOCHS, found.query_id),
        find_last_marker(metadata, branch, TXNS, options.txn_app_id or found.query_id),
    ]
    marker = max(filter(None, markers), key=lambda one: one.timestamp_ms, default=None)
    if marker is None:
        return found
    snapshot = metadata.snapshot_by_id(marker.snapshot_id)
    return replace(
        found,
        source="table",
        number=marker.number,
        snapshot_id=marker.snapshot_id,
        at_ms=marker.timestamp_ms,
        counts={} if snapshot is None else counts_of(summary_entries(snapshot)),
    )
