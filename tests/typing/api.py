"""Only has to type-check: every public name, called in all the ways of docs/api.md, and the types of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import iceberg_ds
from pyspark_icebergsink import DefaultSource

registers: Callable[[SparkSession], None] = iceberg_ds.register
reading: type[DataSource] = iceberg_ds.IcebergSource
version: str = iceberg_ds.__version__
exported: list[str] = iceberg_ds.__all__

source: type[DataSource] = iceberg_ds.IcebergSink
found_by_name: type[iceberg_ds.IcebergSink] = DefaultSource
format_name: str = iceberg_ds.IcebergSink.name()


def read_table(spark: SparkSession) -> list[DataFrame]:
    """Read a table in all the ways that say which rows."""
    return [
        iceberg_ds.read(spark, "db.t"),
        iceberg_ds.read(spark, "db.t", columns=["id", "_file"], where="id > 1", options={"catalog": "lake"}),
        iceberg_ds.read(spark, "db.t", snapshot_id=5, reader="spark"),
        iceberg_ds.read(spark, "db.t", as_of=datetime.now().astimezone(), reader="python"),
        iceberg_ds.read(spark, "db.t", as_of="2026-11-21T12:00:00Z", reader="auto"),
        iceberg_ds.read(spark, "db.t", as_of=1_700_000_000_000),
        iceberg_ds.read(spark, "db.t", branch="audit"),
        iceberg_ds.read(spark, "db.t", tag="eom"),
        iceberg_ds.read_changes(spark, "db.t"),
        iceberg_ds.read_changes(
            spark, "db.t", start=5, end=datetime.now().astimezone(), columns=["id"], reader="spark"
        ),
        iceberg_ds.read_changes(spark, "db.t", start="2026-11-21T12:00:00Z", keys=["id"], net=True, branch="audit"),
    ]


def plan_batch(options: dict[str, str], schema: StructType) -> DataSourceArrowWriter:
    """Make the writer of a batch, as Spark does."""
    return iceberg_ds.IcebergSink(options).writer(schema, overwrite=False)


def plan_stream(options: dict[str, str], schema: StructType) -> DataSourceStreamWriter:
    """Make the writer of a micro-batch, as Spark does."""
    return iceberg_ds.IcebergSink(options).streamWriter(schema, overwrite=False)


def commit_stream(options: dict[str, str], schema: StructType, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit a micro-batch, as Spark does."""
    writer = iceberg_ds.IcebergSink(options).streamWriter(schema, overwrite=False)
    writer.commit(messages, 0)
    writer.abort(messages, 0)


def check_set_up(spark: SparkSession, options: Mapping[str, str], schema: StructType) -> list[str]:
    """Try all that a write needs: from this machine, with executors, with columns, within a time."""
    results: list[iceberg_ds.CheckResult] = [
        iceberg_ds.check("db.t"),
        iceberg_ds.check(table="db.t", spark=None, options=None, schema=None, sample=None),
        iceberg_ds.check("db.t", spark=spark, options=options, schema=schema, limit_s=10),
        iceberg_ds.check("db.t", options=options, schema="id BIGINT, name STRING"),
        iceberg_ds.check("db.t", options=options, sample="sample.parquet"),
        iceberg_ds.check("db.t", options=options, sample=Path("sample.csv"), limit_s=0.5),
    ]
    return [text for result in results for text in told(result)]


def told(result: iceberg_ds.CheckResult) -> list[str]:
    """Return what a result tells, in each of its forms."""
    checks: tuple[iceberg_ds.Check, ...] = result.checks
    failures: tuple[iceberg_ds.Check, ...] = result.failures
    is_well: bool = result.ok
    json_text: str = result.to_json()
    return [str(is_well), json_text, *(describe(check) for check in (*checks, *failures))]


def describe(check: iceberg_ds.Check) -> str:
    """Return every attribute of a check."""
    name: str = check.name
    outcome: Literal["ok", "failed", "warning", "skipped"] = check.outcome
    where: str = check.where
    seconds: float = check.seconds
    detail: str = check.detail
    next_step: str = check.next_step
    return f"{name} [{where}] {outcome} ({seconds:.2f} s): {detail} {next_step}"


def distribute_rows(df: DataFrame, options: Mapping[str, str]) -> list[DataFrame]:
    """Bring rows together by the layout of a table, or by key."""
    return [
        iceberg_ds.distribute(df, "db.t"),
        iceberg_ds.distribute(df, table="db.t", options=options, mode="range", num_partitions=8),
        iceberg_ds.distribute(df, keys=["region", "id"], num_partitions=8),
        iceberg_ds.distribute(df, keys="region, id"),
        df.transform(iceberg_ds.distribute, "db.t", options=options),
    ]


def keep_transactions(changes: DataFrame) -> list[DataFrame]:
    """Hold changes back until the transaction of the source that made them is whole."""
    return [
        iceberg_ds.whole_transactions(changes, "tx", position="offset"),
        iceberg_ds.whole_transactions(changes, transaction="tx", position="lsn", end="is_end"),
        iceberg_ds.whole_transactions(changes, "tx", position="lsn", end="is_end", count="n", max_held_bytes=2**30),
    ]


def upsert_rows(df: DataFrame, options: Mapping[str, str]) -> list[iceberg_ds.UpsertResult]:
    """Replace rows of the same keys."""
    return [
        iceberg_ds.upsert(df, "db.t", keys="id"),
        iceberg_ds.upsert(df, "db.t", keys=["region", "id"], options=options),
        iceberg_ds.upsert(df, table="db.t", options={**options, "keys": "id"}),
    ]


def upsert_stream(df: DataFrame, options: Mapping[str, str]) -> None:
    """Replace rows of the same keys in each micro-batch."""
    write: Callable[[DataFrame, int], None] = iceberg_ds.upsert_into("db.t", keys="id", options=options)
    df.writeStream.foreachBatch(write).start()
    df.writeStream.foreachBatch(iceberg_ds.upsert_into(table="db.t", keys=["id"])).start()


def write_together(spark: SparkSession, df: DataFrame, options: Mapping[str, str]) -> str:
    """Write several tables in one epoch, in every way."""
    begun: iceberg_ds.Transaction = iceberg_ds.transaction()
    with begun:
        pass
    with iceberg_ds.transaction(spark, app_id="cdc", version=7, options=options) as epoch:
        epoch.append(df, "db.a")
        epoch.append(df, table="db.b", options={"keys": "id"})
        epoch.upsert(df, "db.c", keys="id")
        epoch.upsert(df, "db.d", keys=["region", "id"], options=options)
        epoch.overwrite(df, "db.e")
        epoch.overwrite(df, "db.f", replace_where="day = 1", options=options)
    result: iceberg_ds.TransactionResult = epoch.result
    tables: tuple[iceberg_ds.TableResult, ...] = result.tables
    numbers = [(one.snapshot_id, one.rows, one.late_rows, one.replaced_rows, one.was_replayed) for one in tables]
    return f"{result} {result.was_replayed} {result.seconds} {numbers} {tables[0].table} {tables[0].branch}"


def told_of_transaction(result: iceberg_ds.TransactionResult) -> str:
    """Return a transaction for programs."""
    return result.to_json()


def count_upserted(result: iceberg_ds.UpsertResult) -> int:
    """Return every attribute of an upsert, as a sum where it is a number."""
    text: str = f"{result}: {result.table}, {result.branch}, {result.to_json()}"
    was_replayed: bool = result.was_replayed
    snapshot_id: int | None = result.snapshot_id
    seconds: float = result.seconds
    rows: int = result.rows + result.late_rows + result.replaced_rows
    files: int = result.data_files + result.position_delete_files + result.rewritten_files
    read_bytes: int = result.read_bytes
    return (0 if was_replayed or snapshot_id is None else rows + files + read_bytes + int(seconds)) + len(text)


def change_rows(spark: SparkSession, source: DataFrame, options: Mapping[str, str]) -> int:
    """Delete rows, change them, and merge others into them, in every way that a call can be written."""
    update, delete = iceberg_ds.Update({"n": "n + 1"}, "target.n > 0"), iceberg_ds.Delete()
    insert = iceberg_ds.Insert(values={"n": "source.n"}, condition=None)
    results: list[iceberg_ds.RowLevelResult] = [
        iceberg_ds.delete_from("db.t", "n = 1", spark),
        iceberg_ds.delete_from("db.t", "n = 1"),
        iceberg_ds.delete_from(table="db.t", where="true", options=options, branch="b", mode="copy-on-write"),
        iceberg_ds.update("db.t", {"n": "n + 1"}),
        iceberg_ds.update("db.t", {"n": "n + 1"}, "n = 1", spark),
        iceberg_ds.update(table="db.t", assignments={}, where=None, isolation_level="snapshot", mode=None),
        iceberg_ds.merge(spark, source, "db.t", on=["n"], when_matched=update),
        iceberg_ds.merge(
            spark,
            source=source,
            table="db.t",
            on="target.n = source.n",
            when_matched=[delete, update],
            when_not_matched=insert,
            when_not_matched_by_source=(iceberg_ds.Delete(condition="target.n = 0"),),
            options=None,
            branch=None,
            mode="merge-on-read",
            isolation_level="serializable",
        ),
    ]
    return sum(map(count_changed, results))


def count_changed(result: iceberg_ds.RowLevelResult) -> int:
    """Return every attribute of a result, as a sum where it is a number."""
    text: str = f"{result}: {result.table}, {result.branch}, {result.to_json()}"
    was_replayed: bool = result.was_replayed
    snapshot_id: int | None = result.snapshot_id
    seconds: float = result.seconds
    rows: int = result.inserted_rows + result.updated_rows + result.deleted_rows
    files: int = result.data_files + result.position_delete_files + result.rewritten_files + result.removed_files
    return (0 if was_replayed or snapshot_id is None else rows + files + int(seconds)) + len(text)


def requeue(spark: SparkSession, options: Mapping[str, str]) -> int:
    """Write quarantined rows again, as they came and mended."""
    results: list[iceberg_ds.RequeueResult] = [
        iceberg_ds.requeue(spark, "db.t__quarantine", "db.t"),
        iceberg_ds.requeue(spark, quarantine="db.q", table="db.t", transform=lambda df: df, options=options),
    ]
    text: str = "".join(f"{one}: {one.table}, {one.quarantine}, {one.to_json()}" for one in results)
    rows: int = sum(one.rows + one.batches for one in results)
    return rows + len(text)


def read_together(options: Mapping[str, str]) -> int:
    """Read the snapshots of several tables that belong together."""
    cuts: list[iceberg_ds.Cut | None] = [
        iceberg_ds.last_complete(options=options),
        iceberg_ds.last_complete(["db.a", "db.b"], options=options, app_id="feed"),
    ]
    text: str = "".join(f"{cut}: {cut.app_id}, {cut.to_json()}" for cut in cuts if cut is not None)
    snapshots: list[int | None] = [found for cut in cuts if cut is not None for found in cut.snapshots.values()]
    return sum(cut.epoch for cut in cuts if cut is not None) + len(snapshots) + len(text)


def convert(spark: SparkSession, options: Mapping[str, str]) -> int:
    """Let every reader read a table."""
    results: list[iceberg_ds.ConvertResult] = [
        iceberg_ds.convert_deletes("db.t"),
        iceberg_ds.convert_deletes("db.t", spark),
        iceberg_ds.convert_deletes(table="db.t", spark=None, options=None, branch=None, encoding="position"),
        iceberg_ds.convert_deletes("db.t", spark=spark, options=options, branch="audit", encoding="copy-on-write"),
    ]
    return sum(map(count_converted, results))


def remove_orphans(options: Mapping[str, str], yesterday: datetime, spark: SparkSession, inventory: DataFrame) -> int:
    """Delete files that nothing refers to."""
    results: list[iceberg_ds.OrphanFilesResult] = [
        iceberg_ds.remove_orphan_files("db.t"),
        iceberg_ds.remove_orphan_files("db.t", options=options, older_than=yesterday, dry_run=True),
        iceberg_ds.remove_orphan_files(table="db.t", options=None, older_than=0, dry_run=False, force=True),
        iceberg_ds.remove_orphan_files("db.t", spark, location="s3://b/t/data", prefix_mismatch_mode="ignore"),
        iceberg_ds.remove_orphan_files(
            "db.t",
            file_list=inventory,
            equal_schemes={"s3a,s3n": "s3"},
            equal_authorities={"a": "b"},
            max_concurrent_deletes=8,
            stream_results=True,
        ),
        iceberg_ds.remove_orphan_files("db.t", spark=None, file_list="inventory"),
    ]
    return sum(map(count_orphans, results))


def count_orphans(result: iceberg_ds.OrphanFilesResult) -> int:
    """Return every attribute of a removal, as a sum where it is a number."""
    files: list[iceberg_ds.Orphan] = [*result.orphan_files]
    text: str = f"{result} {result.table} {result.dry_run} {result.to_json()}"
    counts: int = result.deleted_files_count + result.left_files_count + result.too_young
    counts += result.orphan_files_count + result.orphan_files_bytes
    return len(files) + len(text) + counts + int(result.seconds)


def maintain(spark: SparkSession, options: Mapping[str, str]) -> int:
    """Look after tables in every way."""
    policy = iceberg_ds.MaintenancePolicy(
        max_small_files=1,
        max_equality_delete_files=None,
        max_position_delete_files=3,
        max_manifests=4,
        max_snapshots=5,
        min_snapshot_age_s=0.5,
        max_bytes=6,
        max_seconds=7.5,
    )
    results: list[iceberg_ds.MaintenanceResult] = [
        iceberg_ds.maintain("db.t"),
        iceberg_ds.maintain("db.t", spark, policy=policy, dry_run=True),
        iceberg_ds.maintain(table="db.t", spark=None, options=options, branch=None, policy=None, dry_run=False),
    ]
    with iceberg_ds.maintaining(spark, {"db.t": policy, "db.u": None}, options=options, every_s=1.0, pool="slow"):
        pass
    steps: list[iceberg_ds.StepTaken] = [taken for result in results for taken in result.steps]
    texts = [f"{taken.step} {taken.reason} {taken.problem} {taken.has_failed} {taken.result}" for taken in steps]
    return sum(map(count_maintained, results)) + len(texts)


def count_maintained(result: iceberg_ds.MaintenanceResult) -> int:
    """Return every attribute of a maintenance, as a sum where it is a number."""
    looks: list[iceberg_ds.TableHealth | None] = [result.before, result.after]
    flags: list[bool] = [result.ok, result.dry_run]
    text: str = f"{result} {result.table} {result.held_by} {result.to_json()}"
    return len(looks) + len(flags) + len(text) + int(result.seconds)


def rewrite_data(spark: SparkSession, options: Mapping[str, str]) -> int:
    """Rewrite data files in every way."""
    results = (
        iceberg_ds.rewrite_data_files("db.t"),
        iceberg_ds.rewrite_data_files("db.t", spark, strategy="sort", sort_order="id desc"),
        iceberg_ds.rewrite_data_files(
            table="db.t", spark=None, strategy="binpack", sort_order=None, where="id < 5", branch=None, options=options
        ),
    )
    return sum(map(count_rewritten, results))


def count_rewritten(result: iceberg_ds.RewriteResult) -> int:
    """Return how many files a rewrite took away."""
    ids: tuple[int, ...] = result.snapshot_ids
    text: str = result.to_json()
    return result.rewritten_data_files_count - result.added_data_files_count + len(ids) + len(text)


def count_converted(result: iceberg_ds.ConvertResult) -> int:
    """Return every attribute of a conversion, as a sum where it is a number."""
    text: str = f"{result}: {result.table}, {result.branch}, {result.to_json()}"
    snapshot_id: int | None = result.snapshot_id
    seconds: float = result.seconds
    files: int = result.delete_files + result.data_files + result.position_delete_files + result.rewritten_files
    rows: int = result.rows
    read_bytes: int = result.read_bytes
    return (0 if snapshot_id is None else rows + files + read_bytes + int(seconds)) + len(text)


def rewrite(spark: SparkSession, options: Mapping[str, str]) -> int:
    """Let manifests and position delete files become few."""
    manifests: list[iceberg_ds.RewriteManifestsResult] = [
        iceberg_ds.rewrite_manifests("db.t"),
        iceberg_ds.rewrite_manifests(table="db.t", options=None, branch=None, spec_id=None, sort_by=None),
        iceberg_ds.rewrite_manifests("db.t", options=options, branch="audit", spec_id=0, sort_by=["day"]),
    ]
    deletes: list[iceberg_ds.RewritePositionDeleteFilesResult] = [
        iceberg_ds.rewrite_position_delete_files("db.t"),
        iceberg_ds.rewrite_position_delete_files("db.t", spark),
        iceberg_ds.rewrite_position_delete_files(table="db.t", spark=None, options=None, branch=None, where=None),
        iceberg_ds.rewrite_position_delete_files("db.t", spark, options=options, branch="audit", where="day > 1"),
    ]
    return sum(map(count_manifests, manifests)) + sum(map(count_deletes, deletes))


def count_manifests(result: iceberg_ds.RewriteManifestsResult) -> int:
    """Return every attribute of a rewrite of manifests, as a sum where it is a number."""
    text: str = f"{result}: {result.table}, {result.branch}, {result.to_json()}"
    snapshot_id: int | None = result.snapshot_id
    seconds: float = result.seconds
    count: int = result.rewritten_manifests_count + result.added_manifests_count
    return count + len(text) + int(seconds) + (snapshot_id or 0)


def count_deletes(result: iceberg_ds.RewritePositionDeleteFilesResult) -> int:
    """Return every attribute of a rewrite of position deletes, as a sum where it is a number."""
    text: str = f"{result}: {result.table}, {result.branch}, {result.to_json()}"
    snapshot_id: int | None = result.snapshot_id
    seconds: float = result.seconds
    files: int = result.rewritten_delete_files_count + result.added_delete_files_count
    size: int = result.rewritten_bytes_count + result.added_bytes_count
    return files + size + len(text) + int(seconds) + (snapshot_id or 0)


def expire(options: Mapping[str, str], yesterday: datetime, spark: SparkSession) -> int:
    """Remove old snapshots."""
    results: list[iceberg_ds.ExpireResult] = [
        iceberg_ds.expire_snapshots("db.t"),
        iceberg_ds.expire_snapshots("db.t", "7d", 10, [1, 2]),
        iceberg_ds.expire_snapshots("db.t", yesterday, options=options, clean_expired_metadata=True),
        iceberg_ds.expire_snapshots("db.t", spark=spark, stream_results=True, max_concurrent_deletes=8),
        iceberg_ds.expire_snapshots(table="db.t", older_than=0, retain_last=None, snapshot_ids=None, dry_run=True),
    ]
    return sum(map(count_expired, results))


def count_expired(result: iceberg_ds.ExpireResult) -> int:
    """Return every attribute of an expiry, as a sum where it is a number."""
    kept: tuple[iceberg_ds.KeptSnapshot, ...] = result.kept
    reasons: list[str] = [one.reason for one in kept]
    ids: list[int] = [*result.snapshot_ids, *result.schema_ids, *result.spec_ids, *(one.snapshot_id for one in kept)]
    files: int = (
        result.deleted_data_files_count
        + result.deleted_position_delete_files_count
        + result.deleted_equality_delete_files_count
        + result.deleted_manifest_files_count
        + result.deleted_manifest_lists_count
        + result.deleted_statistics_files_count
        + result.left_files
    )
    refs: tuple[str, ...] = result.refs
    why: str | None = result.why_left
    is_dry: bool = result.dry_run
    seconds: float = result.seconds
    text: str = f"{result}: {result.table}, {result.to_json()}, {why}"
    return len(ids) + files + len(refs) + len(reasons) + int(seconds) + is_dry + len(text)


def publish_audited(options: Mapping[str, str]) -> list[int]:
    """Show readers the rows of a branch, in both words."""
    return [
        iceberg_ds.publish("db.t", "audit"),
        iceberg_ds.publish(table="db.t", branch="audit", options=options, to="main"),
        iceberg_ds.fast_forward("db.t", "main", "audit"),
        iceberg_ds.fast_forward(table="db.t", branch="main", to="audit", options=options),
    ]


def verify_table(options: Mapping[str, str]) -> list[str]:
    """Prove a table whole, and name what nothing refers to."""
    results: list[iceberg_ds.VerifyResult] = [
        iceberg_ds.verify("db.t"),
        iceberg_ds.verify(table="db.t", options=None, orphans=False),
        iceberg_ds.verify("db.t", options=options, deep=True, unique_keys=True, all_snapshots=True),
        iceberg_ds.verify("db.t", options=options, older_than="36h", delete_orphans=True, force=True),
    ]
    texts = [text for result in results for text in told(result)]
    return texts + [describe_orphan(orphan, result.table) for result in results for orphan in result.orphans]


def describe_orphan(orphan: iceberg_ds.Orphan, table: str) -> str:
    """Return every attribute of a file that nothing refers to."""
    path: str = orphan.path
    size_bytes: int = orphan.size_bytes
    modified_ms: int = orphan.modified_ms
    deleted: bool = orphan.deleted
    return f"{table}: {path}, {size_bytes} bytes, {modified_ms} ms, {deleted}"


def watch_table(options: Mapping[str, str]) -> list[str]:
    """Tell how a table does."""
    results: list[iceberg_ds.TableHealth] = [
        iceberg_ds.table_health("db.t"),
        iceberg_ds.table_health(table="db.t", options=None, branch=None),
        iceberg_ds.table_health("db.t", options=options, branch="audit"),
    ]
    return [describe_health(result) for result in results]


def describe_health(health: iceberg_ds.TableHealth) -> str:
    """Return every attribute of a table's health."""
    where: list[str] = [health.table, health.branch, health.to_json(), health.outlook(), health.outlook(10_000_000)]
    history: list[int] = [health.at_ms, health.format_version, health.snapshots, health.small_below_bytes]
    listed: list[int] = [health.data_manifests, health.delete_manifests, health.files_read, health.small_files]
    files: list[int | None] = [health.data_files, health.delete_files, health.rows, health.bytes]
    deletes: list[int | None] = [health.equality_delete_files, health.position_delete_files]
    deletes += [health.equality_deletes, health.position_deletes, health.hidden_rows_at_most]
    times: list[int | None] = [health.metadata_bytes, health.last_commit_ms, health.newest_event_ms]
    parts: list[float | None] = [health.average_file_bytes, health.deletes_per_file]
    ages: list[float | None] = [health.last_commit_age_s, health.lag_s, health.oldest_snapshot_age_s]
    is_complete: bool = health.is_complete
    writers: tuple[iceberg_ds.WriterHealth, ...] = health.writers
    forecast: iceberg_ds.Forecast | None = health.forecast
    texts = [describe_writer(writer) for writer in writers] + [describe_forecast(forecast) if forecast else ""]
    return f"{where} {history} {listed} {files} {deletes} {times} {parts} {ages} {is_complete} {texts} {health}"


def describe_writer(writer: iceberg_ds.WriterHealth) -> str:
    """Return every attribute of a writer."""
    kind: Literal["stream", "query", "application"] = writer.kind
    query_id: str | None = writer.query_id
    numbers: list[int] = [writer.number, writer.last_commit_ms]
    age_s: float = writer.age_s
    lag_s: float | None = writer.lag_s
    return f"{kind} {writer.name} {query_id} {numbers} {age_s} {lag_s}"


def describe_forecast(forecast: iceberg_ds.Forecast) -> str:
    """Return every attribute of a forecast."""
    paces: list[float] = [forecast.hours, forecast.commits_per_day, forecast.snapshots_per_day]
    known: list[float | None] = [forecast.files_per_day, forecast.metadata_growth_bytes_per_day]
    known += [forecast.metadata_written_bytes_per_day, forecast.days_until(1, 2), forecast.days_until(None, 2)]
    flags: list[bool] = [forecast.old_metadata_is_deleted, forecast.history_has_expired]
    return f"{paces} {known} {flags}"


def follow_commits(paths: Sequence[Path]) -> str:
    """Read sums, rates and reports from files, in all forms."""
    metrics: iceberg_ds.Metrics = iceberg_ds.Metrics("/var/log/commits.jsonl")
    several = iceberg_ds.Metrics(paths)
    snapshots: list[iceberg_ds.MetricsSnapshot] = [
        metrics.totals,
        metrics.snapshot(),
        metrics.window(60),
        several.snapshot_and_reset(),
    ]
    tables: tuple[iceberg_ds.TableMetrics, ...] = metrics.tables
    reports: tuple[iceberg_ds.CommitReport, ...] = metrics.reports(n=5)
    rates: list[float | None] = [snapshots[0].records_per_second, snapshots[0].success_rate]
    errors: list[str | None] = [table.last_error for table in tables]
    figures: list[iceberg_ds.TaskFigures] = [report.tasks for report in reports]
    metrics.close()
    return f"{metrics.to_json()} {metrics.to_prometheus()} {metrics.malformed} {rates} {errors} {figures}"


def show_to_prometheus(path: Path, paths: Sequence[str]) -> int:
    """Serve, collect and push metrics."""
    collector: iceberg_ds.MetricsCollector = iceberg_ds.metrics_collector(paths)
    collector.close()
    iceberg_ds.push_metrics(path, "http://localhost:9091", job="nightly", timeout_s=5)
    with iceberg_ds.serve_metrics(path, 0, address="0.0.0.0") as server:  # noqa: S104  # whom a container serves
        url: str = server.url
    running: iceberg_ds.MetricsServer = iceberg_ds.serve_metrics(str(path))
    running.close()
    return len(url) + running.port


def report_by_opentelemetry(path: Path) -> None:
    """Hand each new report to OpenTelemetry, and to a function."""
    reporter = iceberg_ds.OpenTelemetryReporter(meter_provider=None, tracer_provider=None)
    follower: iceberg_ds.ReportFollower = iceberg_ds.follow_reports(path, reporter, interval_s=0.5)
    follower.close()
    with iceberg_ds.follow_reports([path], print, from_start=True, position=path.with_name("position")):
        pass


def tell_progress(query: StreamingQuery, options: Mapping[str, str]) -> iceberg_ds.QueryProgress:
    """Tell the progress of a query by its file and by its table."""
    told: list[iceberg_ds.QueryProgress] = [
        iceberg_ds.progress(query, file="/var/log/commits.jsonl"),
        iceberg_ds.progress(query, options=options, table="db.t"),
    ]
    batch: int | None = told[0].batch_id
    return told[0] if batch is not None else told[1]


root: type[Exception] = iceberg_ds.IcebergSinkError
errors: list[type[iceberg_ds.IcebergSinkError]] = [
    iceberg_ds.CatalogError,
    iceberg_ds.CommitConflictError,
    iceberg_ds.CommitMessageError,
    iceberg_ds.CommitStateUnknownError,
    iceberg_ds.DataFileError,
    iceberg_ds.OptionError,
    iceberg_ds.OverloadedTableError,
    iceberg_ds.RefusedRowsError,
    iceberg_ds.RowCountError,
    iceberg_ds.SchemaMismatchError,
    iceberg_ds.StreamHistoryError,
    iceberg_ds.TableNotFoundError,
    iceberg_ds.UnsupportedTableError,
]
values: list[type[ValueError]] = [
    iceberg_ds.OptionError,
    iceberg_ds.RefusedRowsError,
    iceberg_ds.SchemaMismatchError,
    iceberg_ds.UnsupportedTableError,
]
look_ups: type[LookupError] = iceberg_ds.TableNotFoundError
connections: type[ConnectionError] = iceberg_ds.CatalogError
storage: type[OSError] = iceberg_ds.DataFileError
