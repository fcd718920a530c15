"""Does a stream of upserts that maintains its own table stay as fast as it was, and what does that cost its epochs?

    python benchmarks/bench_maintained.py --batches 720 --keys 500 --rows 200000

Two tables have the same `--rows` rows. A query for each changes `--keys` keys a second, anywhere in the table, by
equality deletes; one runs within `iceberg_ds.maintaining`, the other's table is left alone. They take turns, 60 epochs
each, of which the first five are not counted: a query has just been started. Epochs are timed by Spark
(`triggerExecution`). After each turn the table is read once, and looked at. In the end both must have the same rows.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from charts import Course, Panel, draw_courses
from datasets import session
from harness import (
    MEGABYTE,
    Report,
    Sample,
    Settings,
    Spread,
    load_average,
    machine,
    parse_arguments,
    scratch_folder,
    write_report,
)
from pyspark.sql import SparkSession

import iceberg_ds
from iceberg_ds.maintenance import maintain

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

QUESTION = "Does a stream of upserts that maintains its own table stay as fast as it was?"
USES = {"rows": "of the table", "keys": "of an epoch", "batches": "of each query, in turns of 60"}
WAYS = {"maintained": "maintained by itself", "alone": "left alone"}
EPOCH, SCAN, FILES, METADATA = "epoch", "scan", "files", "metadata"
POLICY = iceberg_ds.MaintenancePolicy(
    max_small_files=40,
    max_equality_delete_files=20,
    max_position_delete_files=20,
    max_manifests=50,
    max_snapshots=100,
    min_snapshot_age_s=30,
)
_TURN, _WARM = 60, 5
# Small files are read together, as by Spark's default, and jobs of maintenance wait in a pool of their own.
_SETTINGS = {"spark.sql.files.openCostInBytes": "4194304", "spark.scheduler.mode": "FAIR"}
_FIRST_FILE_S = 1_700_000_000
_TRIGGER = "1 second"
_LOOK_EVERY_S = 5.0
_TURN_TIMEOUT_S = 1800
# What the epochs may take beside maintenance, and what metadata may come to.
_MOST_OF_EPOCHS, _MOST_METADATA = 1.2, MEGABYTE
_COLUMNS = "id BIGINT, region STRING, amount DOUBLE, note STRING"
_VALUES = ("concat('r', id % 50) AS region", "rand(7) * 1000 AS amount", "concat('note of ', id) AS note")


class StepCounter(logging.Handler):
    """Counts the steps that maintenance has taken, as its log tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count the steps of a result."""
        for result in record.args if isinstance(record.args, tuple) else ():
            if isinstance(result, iceberg_ds.MaintenanceResult):
                self.taken.update(f"{step.step}{' (failed)' if step.has_failed else ''}" for step in result.steps)


@dataclass(slots=True, kw_only=True)
class Stream:
    """A query, its table, and what was measured of both.

    Attributes:
        way: How the table is looked after.
        scratch: The catalog, the checkpoint, and the files of changes.
        samples: What was measured.
    """

    way: str
    scratch: Path
    samples: list[Sample] = field(default_factory=list)

    @property
    def table(self) -> str:
        """Its identifier."""
        return f"bench.{self.way}"

    @property
    def options(self) -> dict[str, str]:
        """What leads to the catalog."""
        return {"warehouse": str(self.scratch / "warehouse")}

    def fill(self, spark: SparkSession, rows: int) -> None:
        """Make the table with its first rows."""
        first = spark.range(0, rows, 1, 4).selectExpr("id", *_VALUES)
        first.write.format("icebergsink").mode("append").options(**self.options).save(self.table)

    def turn(self, spark: SparkSession, number: int) -> None:
        """Run the query for its next epochs; then read the table and look at it."""
        load = load_average()
        looked_after = (
            iceberg_ds.maintaining(spark, {self.table: POLICY}, options=self.options, every_s=_LOOK_EVERY_S)
            if self.way == "maintained"
            else nullcontext()
        )
        with looked_after:
            seconds = self._epochs(spark, number * _TURN)
        self._note(EPOCH, number * _TURN, seconds[_WARM:], load)
        self._note(SCAN, number, [self._scan_s(spark)], load)
        health = iceberg_ds.table_health(self.table, options=self.options)
        self._note(FILES, number, [(health.data_files or 0) + (health.delete_files or 0)], load)
        self._note(METADATA, number, [health.metadata_bytes or 0], load)
        print(
            f"turn {number + 1}, {WAYS[self.way]}: epochs {Spread.of(seconds[_WARM:]).show()} s, "
            + ", ".join(f"{case} {self.values(case)[-1]:,.2f}" for case in (SCAN, FILES, METADATA)),
            flush=True,
        )

    def values(self, case: str) -> list[float]:
        """Return what was measured, in the order of time."""
        return [sample.value for sample in self.samples if sample.case == case]

    def _note(self, case: str, first: int, values: Sequence[float], load: float) -> None:
        self.samples += [
            Sample(case=case, variant=self.way, round=first + at, value=value, details={"load_before": load})
            for at, value in enumerate(values, start=1)
        ]

    def _epochs(self, spark: SparkSession, first: int) -> list[float]:
        """Run the query from an epoch on; return the seconds of each."""
        changes = spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1)
        writer = changes.parquet(str(self.scratch / "changes")).writeStream.format("icebergsink")
        options = {**self.options, "keys": "id", "delete-encoding": "equality"}
        checkpoint = str(self.scratch / f"checkpoint-{self.way}")
        writer = writer.options(**options, checkpointLocation=checkpoint).trigger(processingTime=_TRIGGER)
        query = writer.start(self.table)
        try:
            return _timed(query, first, first + _TURN)
        finally:
            query.stop()

    def _scan_s(self, spark: SparkSession) -> float:
        started = time.monotonic()
        totals(spark, self)
        return time.monotonic() - started


def _timed(query: StreamingQuery, first: int, end: int) -> list[float]:
    """Return the seconds of the epochs from `first` to before `end`, once they are all done.

    Raises:
        RuntimeError: The query failed, or did not come to the end.
    """
    until = time.monotonic() + _TURN_TIMEOUT_S
    while time.monotonic() < until:
        if (failure := query.exception()) is not None:
            raise RuntimeError(str(failure))
        timed = {one.batchId: one.durationMs["triggerExecution"] / 1000 for one in query.recentProgress}
        if end - 1 in timed:
            return [timed[number] for number in range(first, end) if number in timed]
        time.sleep(0.1)
    raise RuntimeError(f"Epoch {end - 1} did not end in {_TURN_TIMEOUT_S} s: {query.status}")


def totals(spark: SparkSession, stream: Stream) -> list[tuple[float, ...]]:
    """Return sums over all rows of a table."""
    rows = iceberg_ds.read(spark, stream.table, options=stream.options)
    sums = ("count(*)", "sum(id)", "sum(CAST(amount * 1000 AS BIGINT))", "sum(length(note))")
    return [tuple(row) for row in rows.selectExpr(*sums).collect()]


def write_changes(folder: Path, settings: Settings) -> None:
    """Write a file of changes for each epoch that a query may begin."""
    folder.mkdir()
    keys, rows = settings.keys, settings.rows
    for number in range(settings.batches + _TURN):
        # An odd factor without a common factor with the rows visits keys all over the table, each once an epoch.
        ids = [((place + number * keys) * 7919 + number) % rows for place in range(keys)]
        changes = {
            "id": ids,
            "region": [f"r{key % 50}" for key in ids],
            "amount": [float(number + key) for key in ids],
            "note": [f"change {number} of {key}" for key in ids],
        }
        file = folder / f"{number:05d}.parquet"
        pq.write_table(pa.table(changes), file)
        os.utime(file, (_FIRST_FILE_S + number,) * 2)  # Spark takes the oldest first


def measure(spark: SparkSession, scratch: Path, settings: Settings) -> tuple[list[Stream], Counter[str]]:
    """Let the streams take turns; return them, and the steps of maintenance.

    Raises:
        RuntimeError: The tables differ in the end.
    """
    streams = [Stream(way=way, scratch=scratch) for way in WAYS]
    write_changes(scratch / "changes", settings)
    for stream in streams:
        stream.fill(spark, settings.rows)
    counter = StepCounter()
    maintain.logger.addHandler(counter)
    maintain.logger.setLevel(logging.INFO)
    for number in range(settings.batches // _TURN):
        for stream in streams[:: 1 if number % 2 else -1]:
            stream.turn(spark, number)
    found = [totals(spark, stream) for stream in streams]
    if found[0] != found[1]:
        raise RuntimeError(f"Other rows in each way: {found}")
    return streams, counter.taken


def p95(values: Sequence[float]) -> float:
    """Return what 95 % of some values are not above."""
    return quantiles(values, n=20, method="inclusive")[-1]


def report(settings: Settings, streams: Sequence[Stream], taken: Counter[str]) -> Report:
    """Return what became of both tables."""
    maintained, alone = streams
    ratio = p95(maintained.values(EPOCH)) / p95(alone.values(EPOCH))
    largest = max(maintained.values(METADATA))
    steps = ", ".join(f"{name} {times}" for name, times in sorted(taken.items()))
    return Report(
        name="maintained",
        question=QUESTION,
        unit="seconds, files, bytes",
        samples=[sample for stream in streams for sample in stream.samples],
        header=("", *(WAYS[stream.way] for stream in streams)),
        lines=[
            ["seconds of an epoch: median (min-max)", *(Spread.of(one.values(EPOCH)).show() for one in streams)],
            ["seconds of an epoch: p95", *(f"{p95(one.values(EPOCH)):.2f}" for one in streams)],
            *(
                [
                    f"{label}: after the first turn, and after the last",
                    *(_ends(one.values(case), unit) for one in streams),
                ]
                for case, label, unit in _LOOKED_AT
            ),
        ],
        notes=(
            (
                f"p95 of the epochs beside maintenance: {ratio:.2f} x; the mark is {_MOST_OF_EPOCHS} x: "
                f"{'met' if ratio <= _MOST_OF_EPOCHS else 'not met'}."
            ),
            (
                f"Metadata of the maintained table: {largest / MEGABYTE:.2f} MB at most; the mark is 1 MB: "
                f"{'met' if largest <= _MOST_METADATA else 'not met'}."
            ),
            f"Steps of maintenance: {steps or 'none'}.",
            (
                f"{len(maintained.values(EPOCH)):,} epochs of each query counted, in turns of {_TURN}, one a second, "
                f"each of {settings.keys:,} keys of {settings.rows:,} rows; local[2], one session."
            ),
        ),
    )


_LOOKED_AT = (
    (SCAN, "seconds of a full scan", 1.0),
    (FILES, "data and delete files", 1.0),
    (METADATA, "MB of metadata", float(MEGABYTE)),
)


def _ends(values: Sequence[float], unit: float) -> str:
    digits = 0 if max(values) / unit >= 100 else 2
    return f"{values[0] / unit:,.{digits}f}, {values[-1] / unit:,.{digits}f}"


def panels(streams: Sequence[Stream]) -> list[Panel]:
    """Return the course of each figure."""
    turns = len(streams[0].values(SCAN))
    each = len(streams[0].values(EPOCH)) // turns

    def courses(case: str, unit: float) -> list[Course]:
        found = []
        for stream in streams:
            values = stream.values(case)
            shown = [p95(values[at * each : (at + 1) * each]) for at in range(turns)] if case == EPOCH else values
            points = [((at + 1) * _TURN, value / unit) for at, value in enumerate(shown)]
            found.append(Course(label=WAYS[stream.way], points=points))
        return found

    looked_at = [(EPOCH, "seconds of an epoch, p95 of a turn", 1.0), *_LOOKED_AT]
    return [Panel(title=label, courses=courses(case, unit)) for case, label, unit in looked_at]


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    if settings.batches < 2 * _TURN:
        raise SystemExit(f"--batches must be {2 * _TURN} or more")
    host = machine()
    with scratch_folder(settings) as scratch:
        spark = session("maintained", scratch, _SETTINGS)
        try:
            streams, taken = measure(spark, scratch, settings)
        finally:
            spark.stop()
    write_report(settings, host, report(settings, streams, taken))
    draw_courses(settings.results_dir / "maintained.png", "A stream of upserts, two cores", "epochs", panels(streams))


if __name__ == "__main__":
    main()
