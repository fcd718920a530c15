"""How fast does the sink write, beside Spark's own Parquet writer?

    python benchmarks/bench_write.py --rounds 5 --rows 6000000

One warm Spark session on two cores writes the lineitem-like set of `datasets.py` with each job in turn, in
an order that rotates from round to round; one round before them is not counted. Jobs: `jvm-noop` reads
and drops the rows in the JVM, `python-noop` sends them to Python and drops them there (what any Python sink
pays before it does anything), `parquet` is Spark's own Parquet writer with zstd, `ours` is this sink with its
defaults, appending to an unpartitioned table, and `ours-month` (not run unless asked for) to one with a
partition per month of `l_shipdate`. Afterwards the rows of our tables are read back and compared.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from charts import Bar, Chart, draw
from datasets import lineitem_folder, session
from harness import (
    MEGABYTE,
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
from noop_sink import register_noop
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import MonthTransform
from pyspark.sql import DataFrame, SparkSession

import iceberg_ds
from iceberg_ds.table.spark_types import iceberg_schema

QUESTION = "How fast does the sink write, beside Spark's own Parquet writer?"
USES = {"rows": "", "rounds": "one more is run first and not counted", "jobs": "see the head of this file for all"}
CASE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the jobs work with."""

    rows: DataFrame
    scratch: Path
    catalog: Catalog

    @property
    def warehouse(self) -> Path:
        """Return the folder of our embedded catalog."""
        return self.scratch / "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One competitor.

    Attributes:
        label: How results name it.
        write: Writes the rows once; this is what is measured.
        written_bytes: Tells the size of what the last `write` left, and removes it if it is of no more use.
    """

    label: str
    write: Callable[[Bench], None]
    written_bytes: Callable[[Bench], int]


def _jvm_noop(bench: Bench) -> None:
    bench.rows.write.format("noop").mode("overwrite").save()


def _python_noop(bench: Bench) -> None:
    bench.rows.write.format("python-noop").mode("append").save()


def _parquet(bench: Bench) -> None:
    bench.rows.write.option("compression", "zstd").parquet(str(bench.scratch / "parquet"))


def _parquet_bytes(bench: Bench) -> int:
    folder = bench.scratch / "parquet"
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    shutil.rmtree(folder)
    return size


def _ours(table: str) -> Callable[[Bench], None]:
    def write(bench: Bench) -> None:
        bench.rows.write.format("icebergsink").option("warehouse", str(bench.warehouse)).mode("append").save(table)

    return write


def _ours_bytes(table: str) -> Callable[[Bench], int]:
    def written_bytes(bench: Bench) -> int:
        snapshot = bench.catalog.load_table(table).current_snapshot()
        if snapshot is None or snapshot.summary is None:
            raise RuntimeError(f"{table} has no snapshot after a write")
        return int(snapshot.summary["added-files-size"] or 0)

    return written_bytes


def _nothing(_: Bench) -> int:
    return 0


OURS = {"ours": "bench.plain", "ours-month": "bench.by_month"}
JOBS = {
    "jvm-noop": Job(label="no-op in the JVM", write=_jvm_noop, written_bytes=_nothing),
    "python-noop": Job(label="no-op Python sink", write=_python_noop, written_bytes=_nothing),
    "parquet": Job(label="Spark's Parquet writer, zstd", write=_parquet, written_bytes=_parquet_bytes),
    "ours": Job(label="icebergsink, zstd", write=_ours(OURS["ours"]), written_bytes=_ours_bytes(OURS["ours"])),
    "ours-month": Job(
        label="icebergsink, zstd, by month",
        write=_ours(OURS["ours-month"]),
        written_bytes=_ours_bytes(OURS["ours-month"]),
    ),
}


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Run all jobs in every round, beginning with another one each time."""
    samples = []
    for number in range(settings.rounds + 1):
        shift = number % len(settings.jobs)
        for name in (*settings.jobs[shift:], *settings.jobs[:shift]):
            load = load_average()
            seconds, size = _run(JOBS[name], bench)
            print(f"round {number}, {name}: {seconds:.2f} s, {size / MEGABYTE:.0f} MB", flush=True)
            if number:  # the first warms up
                details = {"bytes": size, "rows_per_second": settings.rows / seconds, "load_before": load}
                samples.append(Sample(case=CASE, variant=name, round=number, value=seconds, details=details))
    return samples


def _run(job: Job, bench: Bench) -> tuple[float, int]:
    """Return seconds and bytes of one run, which does not share the disk with what earlier ones left to write."""
    os.sync()
    started = time.perf_counter()
    job.write(bench)
    return time.perf_counter() - started, job.written_bytes(bench)


def create_month_table(bench: Bench) -> None:
    """Create the table of `ours-month`, which our sink takes as it is."""
    schema = iceberg_schema(bench.rows.schema)
    field = PartitionField(
        source_id=schema.find_field("l_shipdate").field_id, field_id=1000, transform=MonthTransform(), name="month"
    )
    bench.catalog.create_table(OURS["ours-month"], schema, partition_spec=PartitionSpec(field))


def verify(bench: Bench, settings: Settings, source: Path) -> list[str]:
    """Read our tables with PyIceberg and compare them with the input; return a sentence about each.

    Raises:
        RuntimeError: A table does not hold exactly what was written into it.
    """
    expected_rows, expected_sum = _totals(ds.dataset(source).scanner(columns=["l_orderkey"]).to_batches())
    sentences = []
    for job in sorted(OURS.keys() & set(settings.jobs)):
        table = bench.catalog.load_table(OURS[job])
        writes = len(table.metadata.snapshots)
        scan = table.scan(row_filter=AlwaysTrue(), selected_fields=("l_orderkey",))
        found = _totals(scan.to_arrow_batch_reader())
        if writes != settings.rounds + 1 or found != (writes * expected_rows, writes * expected_sum):
            raise RuntimeError(f"{job}: {found} after {writes} writes of {(expected_rows, expected_sum)}")
        sentences.append(f"`{job}`: PyIceberg reads {found[0]:,} rows with the right sum of keys, {writes} writes.")
    return sentences


def _totals(batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of rows and the sum of their first column."""
    rows = total = 0
    for batch in batches:
        rows += batch.num_rows
        total += pc.sum(batch.column(0)).as_py() or 0
    return rows, total


def report(settings: Settings, samples: Sequence[Sample], notes: Sequence[str]) -> Report:
    """Return the outcome as tables."""
    return Report(
        name="write",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=(
            "job",
            "seconds: median (min-max)",
            "million rows/s",
            "MB written",
            "time / Spark's Parquet, per round",
        ),
        lines=[_line(name, settings.rows, samples) for name in settings.jobs],
        notes=(f"{settings.rows:,} rows, {settings.rounds} rounds, local[2], one warm session.", *notes),
    )


def _line(name: str, rows: int, samples: Sequence[Sample]) -> list[str]:
    spread = spread_of(samples, CASE, name)
    if spread is None:
        return [JOBS[name].label, "-", "-", "-", "-"]
    sizes = [sample.details["bytes"] / MEGABYTE for sample in samples if sample.variant == name]
    beside = ratios(samples, (CASE, name), (CASE, "parquet"))
    return [
        JOBS[name].label,
        spread.show(),
        f"{rows / spread.median / 1e6:.2f}",
        f"{Spread.of(sizes).median:,.0f}" if any(sizes) else "-",
        Spread.of(beside).show() if beside else "-",
    ]


def chart(settings: Settings, samples: Sequence[Sample]) -> Chart:
    """Return the outcome as bars."""
    spreads = [(name, spread_of(samples, CASE, name)) for name in settings.jobs]
    return Chart(
        title=f"Writing {settings.rows / 1e6:g} million rows with Spark, two cores",
        axis="seconds",
        bars=[
            Bar(label=JOBS[name].label, group="ours" if name in OURS else "others", spread=spread)
            for name, spread in spreads
            if spread is not None
        ],
    )


def main() -> None:
    """Measure, verify and report."""
    settings = parse_arguments(QUESTION, USES)
    if unknown := set(settings.jobs) - JOBS.keys():
        raise SystemExit(f"unknown jobs {sorted(unknown)}; there are {', '.join(JOBS)}")
    host = machine()
    source = lineitem_folder(settings)
    with scratch_folder(settings) as scratch:
        spark = session("bench_write", scratch)
        bench = _prepare(spark, source, scratch)
        if "ours-month" in settings.jobs:
            create_month_table(bench)
        samples = measure(bench, settings)
        notes = verify(bench, settings, source)
        spark.stop()
    write_report(settings, host, report(settings, samples, notes))
    draw(settings.results_dir / "write.png", chart(settings, samples))


def _prepare(spark: SparkSession, source: Path, scratch: Path) -> Bench:
    iceberg_ds.register(spark)  # sets maxBytesPerBatch, which the no-op sink profits from, too
    register_noop(spark)
    rows = spark.read.parquet(str(source))
    if (tasks := rows.rdd.getNumPartitions()) != len(list(source.glob("*.parquet"))):
        raise RuntimeError(f"Spark reads the input in {tasks} tasks instead of one per file")
    warehouse = scratch / "iceberg"
    warehouse.mkdir()
    catalog = load_catalog(
        "default", type="sql", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}"
    )
    catalog.create_namespace("bench")
    return Bench(rows=rows, scratch=scratch, catalog=catalog)


if __name__ == "__main__":
    main()
