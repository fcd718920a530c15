"""How many files does `distribute` save, and what does it cost?

    python benchmarks/bench_distribute.py --rounds 5 --rows 6000000

One warm Spark session on two cores appends the lineitem-like set of `datasets.py`, which four tasks read in the
order of its keys, to tables with a partition per month of `l_shipdate`: as it comes, and after
`distribute` in its modes `hash` and `range`. The order of the three rotates from round to round; one round before
them is not counted. The files of each append are counted, and the rows of each table in the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from charts import Bar, Chart, draw
from datasets import FILES, lineitem_folder, session
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
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame

import iceberg_ds
from iceberg_ds.spark.distribution import Mode, distribute

QUESTION = "How many files does `distribute` save, and what does it cost?"
USES = {"rows": "", "rounds": "one more is run first and not counted"}
CASE = "append"
PARTITION_BY = "month(l_shipdate)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to write the rows.

    Attributes:
        label: How results name it.
        mode: How `distribute` moves them, None to write them as they come.
    """

    label: str
    mode: Mode | None


VARIANTS = {
    "as_it_comes": Variant(label="as it comes", mode=None),
    "ours_hash": Variant(label="distribute, hash", mode="hash"),
    "ours_range": Variant(label="distribute, range", mode="range"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the variants work with."""

    rows: DataFrame
    warehouse: Path

    def append(self, name: str) -> None:
        """Append the rows in one of the ways."""
        options = {"warehouse": str(self.warehouse), "partition-by": PARTITION_BY}
        mode = VARIANTS[name].mode
        rows = self.rows if mode is None else distribute(self.rows, f"bench.{name}", mode=mode, options=options)
        rows.write.format("icebergsink").mode("append").options(**options).save(f"bench.{name}")

    def last_append(self, name: str) -> dict[str, float]:
        """Return what the last append left: files, their bytes, and partitions."""
        uri = f"sqlite:///{self.warehouse}/catalog.db"
        table = load_catalog("default", type="sql", uri=uri).load_table(f"bench.{name}")
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            raise RuntimeError(f"{name} has no snapshot after a write")
        summary = snapshot.summary
        return {
            "files": int(summary["added-data-files"] or 0),
            "bytes": int(summary["added-files-size"] or 0),
            "partitions": int(summary["changed-partition-count"] or 0),
            "rows": int(summary["added-records"] or 0),
        }


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Append in every way in every round, beginning with another one each time."""
    samples = []
    names = list(VARIANTS)
    for number in range(settings.rounds + 1):
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            load = load_average()
            os.sync()
            started = time.perf_counter()
            bench.append(name)
            seconds = time.perf_counter() - started
            details = {**bench.last_append(name), "load_before": load}
            print(f"round {number}, {VARIANTS[name].label}: {seconds:.2f} s, {details['files']} files", flush=True)
            if details["rows"] != settings.rows:
                raise RuntimeError(f"{name}: {details['rows']} rows were written instead of {settings.rows}")
            if number:  # the first warms up
                samples.append(Sample(case=CASE, variant=name, round=number, value=seconds, details=details))
    return samples


def files_of(samples: Sequence[Sample], name: str) -> Spread:
    """Return the number of files of one append."""
    return Spread.of([sample.details["files"] for sample in samples if sample.variant == name])


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the outcome as tables."""
    partitions = max(sample.details["partitions"] for sample in samples)
    return Report(
        name="distribute",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=(
            "rows are written",
            "files",
            "MB of a file",
            "seconds: median (min-max)",
            "time / as it comes, per round",
        ),
        lines=[_line(samples, name) for name in VARIANTS],
        notes=(
            f"{settings.rows:,} rows from {FILES} tasks into {partitions:.0f} partitions, {settings.rounds} rounds.",
            "Two cores; the range mode runs the query once more, to find where to cut.",
        ),
    )


def _line(samples: Sequence[Sample], name: str) -> list[str]:
    sizes = [
        sample.details["bytes"] / sample.details["files"] / MEGABYTE for sample in samples if sample.variant == name
    ]
    spread = spread_of(samples, CASE, name)
    beside = ratios(samples, (CASE, name), (CASE, "as_it_comes"))
    return [
        VARIANTS[name].label,
        files_of(samples, name).show(0),
        f"{Spread.of(sizes).median:.2f}",
        spread.show() if spread else "-",
        Spread.of(beside).show(),
    ]


def charts(settings: Settings, samples: Sequence[Sample]) -> dict[str, Chart]:
    """Return the outcome as bars, by name of the file: the files, and the time."""
    groups = {name: "ours" if variant.mode else "others" for name, variant in VARIANTS.items()}
    title = f"{settings.rows / 1e6:g} million rows from {FILES} tasks, by month"
    files = [Bar(label=VARIANTS[name].label, group=groups[name], spread=files_of(samples, name)) for name in VARIANTS]
    seconds = [
        Bar(label=VARIANTS[name].label, group=groups[name], spread=spread)
        for name in VARIANTS
        if (spread := spread_of(samples, CASE, name)) is not None
    ]
    return {
        "distribute-files": Chart(title=f"{title}: files of one append", axis="files", bars=files, pattern="{:,.0f}"),
        "distribute": Chart(title=f"{title}: time of one append", axis="seconds", bars=seconds),
    }


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    source = lineitem_folder(settings)
    with scratch_folder(settings) as scratch:
        spark = session("bench_distribute", scratch)
        iceberg_ds.register(spark)
        bench = Bench(rows=spark.read.parquet(str(source)), warehouse=scratch / "iceberg")
        samples = measure(bench, settings)
        spark.stop()
    write_report(settings, host, report(settings, samples))
    for name, chart in charts(settings, samples).items():
        draw(settings.results_dir / f"{name}.png", chart)


if __name__ == "__main__":
    main()
