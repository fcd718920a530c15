"""What does an epoch of a stream by keys take without equality deletes, beside one with them?

    python benchmarks/bench_keyed_streams.py --rows 10000000 --keys 1000 --batches 30

Two tables of format version 3 have the same `--rows` rows, in 16 files of neighbouring keys and without partitions. A
query for each takes epochs of `--keys` keys anywhere in the table (of ten, eight are updates, one is a delete, one an
insert): by equality deletes, and by deletion vectors, whose old rows the commit looks up in its index of keys. Epochs
are timed by Spark (`triggerExecution`). The first three are not counted: the first has to make the index, which is told
apart. After the last epoch both tables are read once, and must have the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from charts import Bar, Chart, draw
from datasets import session
from harness import (
    Report,
    Sample,
    Settings,
    Spread,
    load_average,
    machine,
    parse_arguments,
    ratios,
    scratch_folder,
    spread_of,
    write_report,
)
from pyspark.sql import DataFrame, SparkSession

import iceberg_ds

QUESTION = "What does an epoch of a stream by keys take without equality deletes, beside one with them?"
USES = {"rows": "of the table", "keys": "of an epoch", "batches": ""}
WAYS = {"equality": "equality deletes", "deletion-vector": "deletion vectors, by the index of keys"}
# Epochs that are not counted: the first makes the index, and workers wake up.
_WARM = 3
_FILES = 16
_MARK = 2.0
_COLUMNS = "id BIGINT, region STRING, amount DOUBLE, note STRING, op STRING"
_VALUES = ("concat('r', id % 50) AS region", "rand(7) * 1000 AS amount", "concat('note of ', id) AS note")


def table_of(way: str) -> str:
    """Return the table that is written in that way."""
    return f"bench.{way.replace('-', '_')}"


def fill(spark: SparkSession, warehouse: Path, way: str, rows: int) -> None:
    """Make a table with its first rows."""
    first = spark.range(0, rows, 1, _FILES).selectExpr("id", *_VALUES)
    options = {"warehouse": str(warehouse), "format-version": "3"}
    first.write.format("icebergsink").mode("append").options(**options).save(table_of(way))


def write_epochs(spark: SparkSession, source: Path, settings: Settings) -> None:
    """Write a file of changes for each epoch."""
    for number in range(settings.batches + _WARM):
        keys = settings.keys
        kind = "CASE id % 10 WHEN 8 THEN 'D' WHEN 9 THEN 'I' ELSE 'U' END AS op"
        # An odd factor without a common factor with the rows visits keys all over the table, each once.
        key = f"CASE id % 10 WHEN 9 THEN {settings.rows} + {number * keys} + id "
        key += f"ELSE ((id + {number * keys}) * 7919 + {number}) % {settings.rows} END AS id"
        changes = spark.range(0, keys, 1, 1).selectExpr(key, *_VALUES, kind)
        changes.coalesce(1).write.mode("append").parquet(str(source / f"{number:05d}"))


def run(spark: SparkSession, warehouse: Path, source: Path, way: str) -> list[float]:
    """Run a query over all epochs, and return the seconds of each."""
    stream = spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).parquet(f"{source}/*")
    options = {
        "warehouse": str(warehouse),
        "keys": "id",
        "operation-column": "op",
        "delete-encoding": way,
        "checkpointLocation": str(warehouse / f"checkpoint-{way}"),
    }
    if way != "equality":
        options["key-index-folder"] = str(warehouse / "keys")
    query = stream.writeStream.format("icebergsink").options(**options).trigger(availableNow=True).start(table_of(way))
    query.awaitTermination()
    timed = {progress.batchId: progress.durationMs["triggerExecution"] for progress in query.recentProgress}
    return [timed[number] / 1000 for number in sorted(timed)]


def rows_of(spark: SparkSession, warehouse: Path, way: str) -> DataFrame:
    """Return the rows of the table."""
    return iceberg_ds.read(spark, table_of(way), options={"warehouse": str(warehouse)})


def measure(spark: SparkSession, scratch: Path, settings: Settings) -> tuple[list[Sample], list[str]]:
    """Run both queries, and compare their tables.

    Raises:
        RuntimeError: The tables differ.
    """
    # Spark forgets the older epochs of a query.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", settings.batches + _WARM + 1)
    source = scratch / "changes"
    write_epochs(spark, source, settings)
    samples, notes, totals = [], [], {}
    case = f"{settings.rows:,} rows"
    for way, label in WAYS.items():
        fill(spark, scratch, way, settings.rows)
        load = load_average()
        seconds = run(spark, scratch, source, way)
        notes.append(f"{label}: the first epoch took {seconds[0]:.1f} s.")
        counted = enumerate(seconds[_WARM : _WARM + settings.batches], start=1)
        samples += [
            Sample(case=case, variant=way, round=number, value=value, details={"load_before": load})
            for number, value in counted
        ]
        begun = time.monotonic()
        totals[way] = (
            rows_of(spark, scratch, way)
            .selectExpr("count(*)", "sum(id)", "sum(CAST(amount * 1000 AS BIGINT))", "sum(length(note))")
            .collect()
        )
        notes.append(
            f"{label}: reading all rows by `iceberg_ds.read` after the last epoch took "
            f"{time.monotonic() - begun:.1f} s."
        )
    if totals["equality"] != totals["deletion-vector"]:
        raise RuntimeError(f"Other rows in each way: {totals}")
    return samples, notes


def report(settings: Settings, samples: Sequence[Sample], notes: Sequence[str]) -> Report:
    """Return the epochs as a table."""
    case = samples[0].case
    ratio = Spread.of(ratios(samples, (case, "deletion-vector"), (case, "equality")))
    halves = [
        Spread.of([one.value for one in samples if one.variant == "deletion-vector" and (one.round > middle) == late])
        for middle in [settings.batches // 2]
        for late in (False, True)
    ]
    verdict = "met" if ratio.median <= _MARK else "not met"
    return Report(
        name=f"keyed-streams-{settings.rows}",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=("way", "seconds of an epoch: median (min-max)"),
        lines=[[label, spread.show()] for way, label in WAYS.items() if (spread := spread_of(samples, case, way))],
        notes=(
            f"Without equality deletes an epoch takes {ratio.show()} x the time; the mark is {_MARK:.0f} x: {verdict}.",
            f"The first half of its epochs took {halves[0].show()} s, the second {halves[1].show()} s.",
            f"{settings.batches} epochs of {settings.keys:,} keys into {case}, local[2], one session.",
            *notes,
        ),
    )


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        spark = session("keyed streams", scratch)
        try:
            samples, notes = measure(spark, scratch, settings)
        finally:
            spark.stop()
    made = report(settings, samples, notes)
    write_report(settings, host, made)
    bars = [
        Bar(label=label, group="ours", spread=spread)
        for way, label in WAYS.items()
        if (spread := spread_of(samples, samples[0].case, way)) is not None
    ]
    draw(settings.results_dir / f"{made.name}.png", Chart(title=QUESTION, axis="seconds", bars=bars))


if __name__ == "__main__":
    main()
