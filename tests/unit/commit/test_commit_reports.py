"""The report that each commit hands out: how it ended, and what it counts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType, TimestampType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal
from support.tables.sink import QUERY, SCHEMA, Sink, arrow_batch, embedded_options, epoch, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.errors import (
    CommitConflictError,
    CommitMessageError,
    CommitStateUnknownError,
    OptionError,
    RefusedRowsError,
)
from iceberg_ds.messages import CountedBatches, TimedBatches
from iceberg_ds.metrics.delivery import LIMIT_S, Reporting
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

TIMED = StructType([StructField("id", LongType()), StructField("ts", TimestampType())])


@pytest.fixture
def reports(sink: Sink, faulty_sink: Sink) -> list[CommitReport]:
    """Return the list that takes the reports on commits of both sinks."""
    taken: list[CommitReport] = []
    for writer in (sink, faulty_sink):
        writer.catalog.reporting = Reporting([("the list", taken.append)])
    return taken


def test_report_counts_what_the_snapshot_adds(sink: Sink, reports: list[CommitReport]) -> None:
    """Sums of reports would differ from the table."""
    sink.commit(sink.write(rows(1, 2), [], rows(3)))
    sink.append(4, of_epoch=epoch(0))

    first, second = reports
    snapshots = sink.table().metadata.snapshots
    assert [report.snapshot_id for report in reports] == [snapshot.snapshot_id for snapshot in snapshots]
    assert [report.outcome for report in reports] == ["committed", "committed"]
    assert (first.counts["added-records"], first.counts["added-data-files"], first.counts["total-records"]) == (3, 2, 3)
    assert (first.tasks.tasks, first.tasks.rows, first.attempts, first.operation) == (3, 3, 1, "append")
    assert first.counts["manifests-created"] == 1
    assert second.counts["manifests-kept"] == 1
    assert second.counts["total-records"] == 4
    assert (second.query_id, second.number, first.query_id, first.number) == (QUERY, 0, None, None)
    assert 0 < first.catalog_ms + first.store_ms <= first.duration_ms
    assert abs(first.at_ms - time.time() * 1000) < 60_000
    assert first.table_uuid == str(sink.table().metadata.table_uuid)


def test_report_names_the_table_that_another_writer_created_first(sink: Sink, reports: list[CommitReport]) -> None:
    """A replay, which knows the table, would count the rows a second time."""
    first, second = sink.plan(), sink.plan()

    for number, plan in enumerate((first, second)):
        sink.commit(sink.write(rows(number), plan=plan))

    assert first.write.table_uuid != second.write.table_uuid
    assert {report.table_uuid for report in reports} == {str(sink.table().metadata.table_uuid)}


def test_report_on_replaced_rows_counts_both_sides(sink: Sink, reports: list[CommitReport]) -> None:
    """A board would show rows that were replaced for ever."""
    sink.append(1, 2)

    sink.overwrite(rows(7))

    assert reports[-1].operation == "overwrite"
    assert (reports[-1].counts["added-records"], reports[-1].counts["removed-records"]) == (1, 2)
    assert (reports[-1].counts["removed-data-files"], reports[-1].counts["total-records"]) == (1, 1)


def test_replay_tells_of_the_snapshot_that_has_its_rows(sink: Sink, reports: list[CommitReport]) -> None:
    """A commit whose process died before its report would be missing in all sums."""
    sink.append(1, 2, of_epoch=epoch(5))

    sink.append(1, 2, of_epoch=epoch(5))

    first, again = reports
    assert again.outcome == "replayed"
    assert (again.snapshot_id, again.counts["added-records"]) == (first.snapshot_id, 2)
    assert sink.ids() == [1, 2]


def test_lost_answer_of_a_commit_that_landed_is_told_as_resolved(
    faulty_sink: Sink, sink: Sink, faulty_catalog: FaultyCatalog, reports: list[CommitReport]
) -> None:
    """Trouble with the catalog would stay unseen until it is an outage."""
    sink.append(1)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    faulty_sink.append(2)

    assert (reports[-1].outcome, reports[-1].answers_lost, reports[-1].answers_resolved) == ("committed", 1, 1)
    assert reports[-1].counts["total-records"] == 2


def test_lost_races_are_counted(
    faulty_sink: Sink, sink: Sink, faulty_catalog: FaultyCatalog, reports: list[CommitReport]
) -> None:
    """Writers that hinder each other would look healthy."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    sink.append(3)
    faulty_catalog.fail_next(2, refusal)

    faulty_sink.commit(messages)

    assert (reports[-1].outcome, reports[-1].conflicts, reports[-1].attempts) == ("committed", 2, 3)


def test_failures_are_told_by_kind_and_without_their_text(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, reports: list[CommitReport]
) -> None:
    """An alert could not tell rows that are refused from an unknown outcome, or would show a secret."""
    sink.append(1)
    messages = sink.write_over(rows(9), replace_where="id = 1")
    with pytest.raises(RefusedRowsError):
        sink.commit(messages)
    assert (reports[-1].outcome, reports[-1].error, reports[-1].snapshot_id) == ("failed", "RefusedRowsError", None)

    plan = sink.plan(is_stream=True)
    sink.append(5, of_epoch=epoch(9))
    with pytest.raises(CommitConflictError):
        sink.commit(sink.write(rows(2), plan=plan, of_epoch=epoch(3)))
    assert (reports[-1].outcome, reports[-1].error) == ("conflict", "CommitConflictError")

    with sink.table().transaction() as change:
        change.set_properties({"commit.retry.num-retries": "1"})
    messages = faulty_sink.write(rows(6))
    faulty_catalog.fail_next(50, connection_lost)
    with pytest.raises(CommitStateUnknownError):
        faulty_sink.commit(messages)
    assert (reports[-1].outcome, reports[-1].error) == ("unknown", "CommitStateUnknownError")
    assert reports[-1].files_left == 1
    assert reports[-1].answers_lost == reports[-1].attempts > 0


def test_write_without_rows_is_told_as_empty(sink: Sink, reports: list[CommitReport]) -> None:
    """A stream that is alive and has nothing to write would look dead."""
    sink.append(1)

    sink.commit(sink.write([]))

    assert (reports[-1].outcome, reports[-1].snapshot_id, reports[-1].tasks.tasks) == ("empty", None, 1)


def test_messages_that_do_not_fit_together_make_no_report(sink: Sink, reports: list[CommitReport]) -> None:
    """A report would name one of two writes that were mixed up."""
    with pytest.raises(CommitMessageError):
        commit_write(sink.catalog, [None])

    assert not reports


def test_write_that_landed_and_could_not_be_published_is_told_as_failed(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, reports: list[CommitReport]
) -> None:
    """Sums would count rows that no reader sees, and no alert tell that they are missing."""
    sink.append(1)
    reports.clear()
    faulty_catalog.before_commit(2, lambda: sink.append(3) and None)
    messages = faulty_sink.write(rows(2), plan=faulty_sink.plan(staging_branch="staging"))

    with pytest.raises(CommitConflictError, match="are not on 'main'"):
        faulty_sink.commit(messages)

    failed, landed = sorted(reports, key=lambda report: report.outcome == "committed")  # they come in any order
    assert landed.snapshot_id is not None
    assert (failed.outcome, failed.branch, failed.snapshot_id, dict(failed.counts)) == ("conflict", "main", None, {})
    assert failed.tasks.rows == 1


def test_staged_write_is_told_of_the_branch_that_readers_use(sink: Sink, reports: list[CommitReport]) -> None:
    """A board of `main` would not show it, and have a series for a branch that comes and goes."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(staging_branch="staging")))

    assert [(report.outcome, report.branch) for report in reports] == [("committed", "main")] * 2


def test_reporter_that_raises_or_hangs_fails_no_commit(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Rows would be lost for a metric."""

    def hang(_: CommitReport) -> None:
        time.sleep(60)

    def fail(_: CommitReport) -> None:
        raise SystemExit("password=hidden-1")

    sink.catalog.reporting = Reporting([("the hanging one", hang), ("the failing one", fail)])
    started = time.monotonic()

    for number in range(5):
        sink.append(number)

    assert sink.ids() == [0, 1, 2, 3, 4]
    assert time.monotonic() - started < 5 * LIMIT_S  # it was waited for once
    warnings = [record.getMessage() for record in caplog.records if "Reports on commits" in record.getMessage()]
    assert len(warnings) == 2
    assert "hidden-1" not in str(warnings)


def test_options_say_where_reports_go(sink: Sink, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The options would be taken and ignored."""
    file = tmp_path / "new folder" / "commits.jsonl"
    options = embedded_options(
        Path(str(sink.options.warehouse)), metrics_file=str(file), metrics_reporter="log,support.reporters:keep"
    )
    writer = Sink(catalog=connect(catalog_settings(options), options.reports), options=options)
    from support.reporters import kept  # noqa: PLC0415  # the same module that the option names

    kept.clear()
    with caplog.at_level("INFO", logger="iceberg_ds.metrics"):
        writer.append(1, 2)

    (line,) = file.read_text().splitlines()
    assert CommitReport.from_json(line) == kept[0]
    assert kept[0].counts["added-records"] == 2
    assert line in caplog.messages
    assert json.loads(line)["outcome"] == "committed"


@pytest.mark.parametrize(
    "name", ["no_such_module:f", "json:no_such", "json:__name__", "no-such-entry-point", "support.reporters:late"]
)
def test_reporter_that_does_not_exist_is_refused_by_name(sink: Sink, name: str) -> None:
    """The user would wait for reports that never come."""
    options = embedded_options(Path(str(sink.options.warehouse)), metrics_reporter=name)

    with pytest.raises(OptionError, match=f"Cannot report to '{name}'"):
        connect(catalog_settings(options), options.reports)


def test_reporter_whose_module_exits_is_refused_by_name(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would end without a word."""
    (tmp_path / "exiting_module.py").write_text("import sys; sys.exit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    options = embedded_options(Path(str(sink.options.warehouse)), metrics_reporter="exiting_module:f")

    with pytest.raises(OptionError, match="Cannot report to 'exiting_module:f'"):
        connect(catalog_settings(options), options.reports)


@pytest.mark.parametrize(
    ("name", "text"),
    [("metrics_file", ""), ("metrics_file", "reports/"), ("metrics_file", "s3://b/x"), ("metrics_reporter", "log,log")],
)
def test_malformed_option_is_refused(tmp_path: Path, name: str, text: str) -> None:
    """Reports would go nowhere."""
    with pytest.raises(OptionError, match=name.replace("_", "-")):
        embedded_options(tmp_path, **{name: text})


def test_path_relative_to_the_folder_of_a_session_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark Connect would delete the reports with the session."""
    assert embedded_options(tmp_path, metrics_file="commits.jsonl").reports.file == str(Path.cwd() / "commits.jsonl")

    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "7d0e")
    with pytest.raises(OptionError, match=r"metrics-file.*absolute path"):
        embedded_options(tmp_path, metrics_file="commits.jsonl")


def test_summary_tells_what_tasks_took_if_asked(sink: Sink) -> None:
    """Whoever sees only the table, as a client of Spark Connect does, would know nothing of the tasks."""
    sink.append(1)
    options = embedded_options(Path(str(sink.options.warehouse)), snapshot_metrics="true")
    writer = Sink(catalog=connect(catalog_settings(options), options.reports), options=options)

    writer.commit(writer.write(rows(2, 3), rows(4)))

    first, second = sink.table().metadata.snapshots
    told = {name: text for name, text in second.summary.additional_properties.items() if "icebergsink.metrics" in name}
    assert told["icebergsink.metrics.rows"] == "3"
    assert told["icebergsink.metrics.tasks"] == "2"
    assert float(told["icebergsink.metrics.seconds-max"]) >= 0
    assert not any("icebergsink.metrics" in name for name in first.summary.additional_properties)


def test_event_time_is_that_of_the_watermark_or_of_the_named_column(sink: Sink) -> None:
    """A board would show a stream as fresh that is hours behind."""
    marked = StructType(
        [
            StructField("id", LongType()),
            StructField("seen", TimestampNTZType()),
            StructField("ts", TimestampType(), metadata={"spark.watermarkDelayMs": 1000}),
        ]
    )

    assert sink.plan(SCHEMA).event_time is None
    assert sink.plan(marked, table=("db", "marked")).event_time == "ts"
    assert sink.plan(marked, table=("db", "marked"), event_time_column="TS").event_time == "ts"
    refused = {
        "nope": "no such column: it has id, seen, ts",
        "id": "it is bigint",
        "seen": "it is timestamp_ntz.*cast it to timestamp",
    }
    for name, reason in refused.items():
        with pytest.raises(OptionError, match=f"'event-time-column' names '{name}': .*{reason}"):
            sink.plan(marked, table=("db", "marked"), event_time_column=name)


def test_watermark_without_a_zone_tells_no_freshness(sink: Sink) -> None:
    """Freshness would be off by the hours between the session's zone and UTC."""
    seen = StructField("seen", TimestampNTZType(), metadata={"spark.watermarkDelayMs": 1000})

    assert sink.plan(StructType([StructField("id", LongType()), seen]), table=("db", "local")).event_time is None


def test_newest_event_is_the_latest_of_all_batches() -> None:
    """Freshness would be that of the last batch, or of a null."""
    batches = [
        arrow_batch([{"id": n, "ts": time_of(second) if second else None} for n, second in enumerate(part)], TIMED)
        for part in ([3, 9, None], [5], [None], [])
    ]

    counted = CountedBatches(batches)
    timed = TimedBatches(counted, "ts")
    assert sum(batch.num_rows for batch in timed) == counted.rows == 5
    assert timed.newest_us == 9_000_000
    assert counted.received_bytes == sum(batch.nbytes for batch in batches)
    assert TimedBatches([], "ts").newest_us is None


def test_event_in_the_far_future_hides_no_other(sink: Sink, reports: list[CommitReport]) -> None:
    """One row with the year 9999 for "no end" in each batch would leave a stream without freshness."""
    for seconds in ([9, 253_402_214_400, 3], [253_402_214_400]):
        batch = arrow_batch([{"id": n, "ts": time_of(second)} for n, second in enumerate(seconds)], TIMED)
        plan = sink.plan(TIMED, table=("db", "timed"), event_time_column="ts")
        sink.commit([report_task(plan, [batch], TaskAttempt(partition_id=0, task_attempt_id=len(seconds)))])

    assert [report.tasks.newest_event_ms for report in reports] == [9_000, None]


@pytest.mark.parametrize("mode", ["quarantine", "drop"])
def test_row_that_was_not_written_makes_no_table_fresh(sink: Sink, mode: str) -> None:
    """A stream whose rows are all bad would look fresh for as long as none is written."""
    schema = Schema(NestedField(1, "id", ice.LongType(), required=True), NestedField(2, "ts", ice.TimestamptzType()))
    sink.create(schema)
    lost = {"accept_lost_rows": True} if mode == "drop" else {}
    plan = sink.plan(TIMED, event_time_column="ts", on_bad_row=mode, **lost)
    batch = arrow_batch([{"id": 1, "ts": time_of(3)}, {"id": None, "ts": time_of(9)}], TIMED)

    message = report_task(plan, [batch], TaskAttempt(partition_id=0, task_attempt_id=0))

    assert (message.counts.received, message.counts.to_add) == (2, 1)
    assert message.metrics.newest_event_us == 3_000_000


def time_of(second: int) -> object:
    """Return the second of 1970 as Spark's rows hold it."""
    return pa.scalar(second, pa.timestamp("s", "UTC")).as_py()
