"""Jobs for Spark that tests run in this process or in another one: described as values, written as a user would."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.hooks.faults import struck_from_now_on
from support.hooks.hooked_sink import HookedSink
from support.spark.session import NO_PANDAS

import iceberg_ds

_FIRST_FILE_S = 1_700_000_000
SCHEMA = "id BIGINT, name STRING"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJob:
    """A stream of JSON files into a table, one file an epoch.

    Attributes:
        source: Folder of the files.
        checkpoint: The query's checkpoint.
        table: Identifier of the table.
        options: Options of the sink.
        sink: `icebergsink`, or `hookedsink` with options of its hooks.
        trigger: Arguments of `trigger()`.
        where: Which rows go into the table.
        files_per_epoch: How many files an epoch takes.
        register: Whether the job registers the sink, as it must where PySpark does not find it.
        columns: The columns of the files.
    """

    source: str
    checkpoint: str
    table: str = "db.t"
    options: Mapping[str, str] = field(default_factory=dict)
    sink: str = "icebergsink"
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"availableNow": True})
    where: str = "true"
    files_per_epoch: int = 1
    register: bool = False
    columns: str = SCHEMA

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query."""
        _register(spark, self.sink, real=self.register)
        writer = self._rows(spark).writeStream.format(self.sink).options(**self.options)
        return writer.option("checkpointLocation", self.checkpoint).trigger(**self.trigger).start(self.table)

    def _rows(self, spark: SparkSession) -> DataFrame:
        source = spark.readStream.schema(self.columns).option("maxFilesPerTrigger", self.files_per_epoch)
        return source.json(self.source).where(self.where)

    def run(self, spark: SparkSession, timeout_s: float = 120) -> None:
        """Run the query to its end.

        Raises:
            TimeoutError: It did not end.
            StreamingQueryException: It failed.
        """
        query = self.start(spark)
        try:
            if not query.awaitTermination(timeout_s):  # type: ignore[arg-type]  # PySpark takes seconds with fractions
                raise TimeoutError(f"The query did not end in {timeout_s} s: {query.status}")
        finally:
            query.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertJob(StreamJob):
    """A stream through `foreachBatch` and the function of `upsert_into`; its faults strike in the driver's process."""

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query."""
        _find_pandas()
        write = iceberg_ds.upsert_into(self.table, options=struck_from_now_on(self.options))
        writer = self._rows(spark).writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", self.checkpoint).trigger(**self.trigger).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedJob(StreamJob):
    """A stream that maintains its own table, in the same process.

    Attributes:
        catalog: Options that lead to the table.
        policy: The figures of the policy, by their names.
        every_s: Seconds from one look at the table to the next.
        steps: File that gets a note of each step, as `maintenance_steps` writes them.
        longest_s: For so many seconds the stream may run.
    """

    catalog: Mapping[str, str]
    policy: Mapping[str, float]
    every_s: float
    steps: str
    longest_s: float

    def run(self, spark: SparkSession, timeout_s: float | None = None) -> None:
        """Run the query to its end, and then finish the step of maintenance that is under way."""
        from support.spark.maintenance_steps import noting_steps  # noqa: PLC0415  # other jobs load no maintenance

        _find_pandas()
        policies = {self.table: iceberg_ds.MaintenancePolicy.of(self.policy)}
        with (
            noting_steps(Path(self.steps)),
            iceberg_ds.maintaining(spark, policies, options=self.catalog, every_s=self.every_s),
        ):
            StreamJob.run(self, spark, timeout_s or self.longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedJob(StreamJob):
    """A stream of changes that keeps transactions of the source whole; columns as `transaction_feed.COLUMNS`.

    Attributes:
        has_ends: Whether rows say where transactions end, and how many rows they have.
        max_held_bytes: As `whole_transactions` takes it.
    """

    has_ends: bool = True
    max_held_bytes: int = 2**28

    def _rows(self, spark: SparkSession) -> DataFrame:
        source = StreamJob._rows(self, spark)
        told = {"end": "is_end", "count": "count"} if self.has_ends else {}
        limit = self.max_held_bytes
        return iceberg_ds.whole_transactions(
            source, "transaction", position="position", max_held_bytes=limit, **told
        ).drop("is_end", "count")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowJob(StreamJob):
    """A stream of what is appended to the table that `source` names.

    Attributes:
        reading: Options of the source.
    """

    reading: Mapping[str, str] = field(default_factory=dict)

    def _rows(self, spark: SparkSession) -> DataFrame:
        iceberg_ds.register(spark)
        return spark.readStream.format("icebergsource").options(**self.reading).load(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """Batches of numbered rows, appended one after the other.

    Attributes:
        first: First id.
        appends: How many batches.
        rows: Rows in each batch.
        partitions: Partitions of each.
        table: Identifier of the table, as `save` takes it.
        options: Options of the sink.
        sink: `icebergsink`, or `hookedsink` with options of its hooks.
        mode: `append` or `overwrite`.
        register: Whether the job registers the sink, as it must where PySpark does not find it.
    """

    first: int = 0
    appends: int = 1
    rows: int = 10
    partitions: int = 2
    table: str = "db.t"
    options: Mapping[str, str] = field(default_factory=dict)
    sink: str = "icebergsink"
    mode: str = "append"
    register: bool = False

    def run(self, spark: SparkSession) -> None:
        """Write all batches."""
        _register(spark, self.sink, real=self.register)
        for number in range(self.appends):
            start = self.first + number * self.rows
            rows = numbered(spark, start, start + self.rows, self.partitions)
            rows.write.format(self.sink).mode(self.mode).options(**self.options).save(self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlJob:
    """Statements of SQL, in a session in which the sink and the one with hooks get registered.

    Attributes:
        statements: The statements, one after the other.
        rows: File that gets the rows of all of them as text, None to drop them.
        log_level: What Java logs from then on, None for what it logs already.
    """

    statements: Sequence[str]
    rows: str | None = None
    log_level: str | None = None

    def run(self, spark: SparkSession) -> None:
        """Run all statements."""
        iceberg_ds.register(spark)
        spark.dataSource.register(HookedSink)
        if self.log_level is not None:
            spark.sparkContext.setLogLevel(self.log_level)
        found = [str(row) for statement in self.statements for row in spark.sql(statement).collect()]
        if self.rows is not None:
            Path(self.rows).write_text("\n".join(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJob:
    """A change of rows of `db.t`, which has the columns of `numbered`; its faults strike in the driver's process.

    Attributes:
        verb: `delete`, of every third id, or `merge`, of the ids 4 to 13.
        options: Options of the sink.
    """

    verb: str
    options: Mapping[str, str] = field(default_factory=dict)

    def run(self, spark: SparkSession) -> None:
        """Change the rows, merge-on-read."""
        _find_pandas()
        options = struck_from_now_on(self.options)
        if self.verb == "delete":
            iceberg_ds.delete_from("db.t", "id % 3 = 0", spark, options=options, mode="merge-on-read")
            return
        source = spark.range(4, 14, 1, 2).selectExpr("id", "concat('merged ', id) AS name")
        iceberg_ds.merge(
            spark,
            source,
            "db.t",
            on=["id"],
            when_matched=iceberg_ds.Update(),
            when_not_matched=iceberg_ds.Insert(),
            options=options,
            mode="merge-on-read",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallJob:
    """A call of a function of the package.

    Attributes:
        function: Its name.
        arguments: Its arguments by name; the session is added if the function takes one.
        answer: File that gets what it returns: the rows of a DataFrame as JSON, anything else as text; None to drop it.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answer: str | None = None

    def run(self, spark: SparkSession) -> None:
        """Call it."""
        _find_pandas()
        call = getattr(iceberg_ds, self.function)
        session = {"spark": spark} if "spark" in inspect.signature(call).parameters else {}
        returned = call(**session, **self.arguments)
        if self.answer is not None:
            is_rows = isinstance(returned, DataFrame)
            text = json.dumps([list(row) for row in returned.collect()]) if is_rows else str(returned)
            Path(self.answer).write_text(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsJob:
    """Events in files of JSON, written into `table` as one batch by keys.

    Attributes:
        files: The files.
        columns: Their columns.
        options: Options of the sink.
        is_searched: Whether `upsert` writes them, which looks for the old rows, and not `format("icebergsink")`.
        table: Identifier of the table.
    """

    files: Sequence[str]
    columns: str
    options: Mapping[str, str]
    is_searched: bool = False
    table: str = "db.t"

    def run(self, spark: SparkSession) -> None:
        """Write them."""
        _find_pandas()
        events = spark.read.schema(self.columns).json(list(self.files))
        if self.is_searched:
            iceberg_ds.upsert(events, self.table, options=self.options)
        else:
            events.write.format("icebergsink").mode("append").options(**self.options).save(self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """A copy of a table by its changes, again and again, as docs/reading.md shows it.

    Attributes:
        source: Identifier of the table that is copied; its key is `id`.
        copy: Identifier of the copy.
        options: Options that lead to both.
        writing: Options of the sink beside those of the page.
        times: How often.
    """

    source: str
    copy: str
    options: Mapping[str, str]
    writing: Mapping[str, str] = field(default_factory=dict)
    times: int = 1

    def run(self, spark: SparkSession) -> None:
        """Bring the copy to where the source is, so often."""
        _find_pandas()
        iceberg_ds.register(spark)
        for _ in range(self.times):
            self._copy(spark)

    def _copied_up_to(self, spark: SparkSession) -> int | None:
        try:
            snapshots = iceberg_ds.read(spark, f"{self.copy}.snapshots", options=self.options)
        except iceberg_ds.TableNotFoundError:
            return None
        (last,) = snapshots.where("summary['copied-up-to'] IS NOT NULL").orderBy("committed_at").tail(1)
        return int(last["summary"]["copied-up-to"])

    def _copy(self, spark: SparkSession) -> None:
        at = {"options": self.options}
        head = iceberg_ds.read(spark, f"{self.source}.metadata_log_entries", **at).tail(1)[0]
        start, end = self._copied_up_to(spark), head["latest_snapshot_id"]
        changes = iceberg_ds.read_changes(spark, self.source, start=start, end=end, keys=["id"], net=True, **at)
        changes = changes.drop("_change_ordinal", "_commit_snapshot_id", "_commit_timestamp")
        by_key = {"keys": "id", "operation-column": "_change_type", "snapshot-property.copied-up-to": end}
        once = {"txn-app-id": f"copy of {self.source}", "txn-version": head["latest_sequence_number"]}
        writer = changes.write.format("icebergsink").mode("append").options(**by_key, **once)
        writer.options(**self.options, **self.writing).save(self.copy)


Job = StreamJob | BatchJob | SqlJob | ChangeJob | CallJob | EventsJob | CopyJob


def _find_pandas() -> None:
    """Let this process find pandas, which Spark's `mapInArrow` asks for."""
    sys.path[:] = [path for path in sys.path if Path(path).name != NO_PANDAS]


def _register(spark: SparkSession, sink: str, *, real: bool) -> None:
    if sink == HookedSink.name():
        spark.dataSource.register(HookedSink)
    if real:
        iceberg_ds.register(spark)


def dump(job: Job) -> str:
    """Return the job as one line of JSON."""
    return json.dumps({"kind": type(job).__name__, **asdict(job)})


def load(text: str) -> Job:
    """Return the job that `dump` wrote."""
    values = json.loads(text)
    of_streams = (StreamJob, UpsertJob, MaintainedJob, FeedJob, FollowJob)
    of_tables = (BatchJob, SqlJob, ChangeJob, CallJob, EventsJob, CopyJob)
    kinds: dict[str, type[Job]] = {kind.__name__: kind for kind in (*of_streams, *of_tables)}
    return kinds[values.pop("kind")](**values)


def numbered(spark: SparkSession, start: int, end: int, partitions: int = 2) -> DataFrame:
    """Return rows with ids from `start` to below `end`, and a name each."""
    return spark.range(start, end, 1, partitions).selectExpr("id", "concat('row ', id) AS name")


def write_source(folder: Path, files: Iterable[range], *, first_file: int = 0) -> None:
    """Write rows with these ids as files that a stream takes one after the other.

    Args:
        folder: Folder of the source; created if missing.
        files: The ids of each file.
        first_file: Number of the first file.
    """
    for number, ids in enumerate(files, start=first_file):
        write_file(folder, number, "".join(f'{{"id": {row}, "name": "row {row}"}}\n' for row in ids))


def write_file(folder: Path, number: int, lines: str) -> None:
    """Write lines of JSON as the file of a stream that has this number; the folder is created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{number:06d}.json"
    hidden.write_text(lines)
    os.utime(hidden, (_FIRST_FILE_S + number, _FIRST_FILE_S + number))  # Spark takes files by age
    hidden.rename(folder / f"{number:06d}.json")  # and must not see half of one


def remove_last_commit(checkpoint: Path) -> int:
    """Take the last epoch out of Spark's log of finished ones, as a crash before it would; return its number."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last
