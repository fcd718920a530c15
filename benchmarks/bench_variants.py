"""What does it cost to write structs, lists and maps as variants, by tasks or by `to_variant_object`?

    python benchmarks/bench_variants.py --rounds 5 --rows 300000

One warm Spark session on two cores appends two sets of `datasets.py`, to a new table of format version 3 each time:
the lineitem-like one with all its columns in one struct, and the nested one, whose four nested columns become four
variants. Each is appended as it is, with `to_variant_object` of these columns in the DataFrame, and with
`nested-as-variant`. The order of the three rotates from round to round; one round before them is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from datasets import session, set_folder
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
    shown,
    spread_of,
    write_report,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

import iceberg_ds

QUESTION = "What does it cost to write structs, lists and maps as variants?"
USES = {"rows": "", "rounds": "one more is run first and not counted"}
FLAT, DEEP = "one struct of 16 fields", "structs, lists and maps"
PLAIN, BY_SPARK, BY_TASKS = "as they are", "to_variant_object", "nested-as-variant"
VARIANTS = (PLAIN, BY_SPARK, BY_TASKS)
NESTED = {FLAT: ("line",), DEEP: ("address", "tags", "items", "counts")}


def sources(spark: SparkSession, settings: Settings) -> dict[str, DataFrame]:
    """Return the rows of each case."""
    flat = spark.read.parquet(str(set_folder(settings, "lineitem", settings.rows)))
    deep = spark.read.parquet(str(set_folder(settings, "nested", settings.rows)))
    return {FLAT: flat.select("l_orderkey", F.struct("*").alias("line")), DEEP: deep}


def append(case: str, variant: str, rows: DataFrame, warehouse: Path, number: int) -> float:
    """Append rows in one of the ways, and return the seconds that it took."""
    options = {"warehouse": str(warehouse), "format-version": "3"}
    if variant == BY_SPARK:
        rows = rows.withColumns({name: F.to_variant_object(name) for name in NESTED[case]})
    elif variant == BY_TASKS:
        options["nested-as-variant"] = "true"
    name = f"bench.t{[*NESTED].index(case)}_{VARIANTS.index(variant)}_{number}"
    os.sync()
    started = time.perf_counter()
    rows.write.format("icebergsink").mode("append").options(**options).save(name)
    return time.perf_counter() - started


def measure(spark: SparkSession, settings: Settings, warehouse: Path) -> list[Sample]:
    """Append in every way in every round, beginning with another one each time."""
    samples = []
    for case, rows in sources(spark, settings).items():
        for number in range(settings.rounds + 1):
            shift = number % len(VARIANTS)
            for variant in (*VARIANTS[shift:], *VARIANTS[:shift]):
                load = load_average()
                seconds = append(case, variant, rows, warehouse, number)
                rate = settings.rows / seconds
                print(f"round {number}, {case}, {variant}: {rate:,.0f} rows a second", flush=True)
                if number:  # the first warms up
                    details = {"load_before": load}
                    samples.append(Sample(case=case, variant=variant, round=number, value=rate, details=details))
    return samples


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the outcome as a table."""
    return Report(
        name="variants",
        question=QUESTION,
        unit="rows a second",
        samples=samples,
        header=["rows", "written", "rows a second: median (min-max)", "beside to_variant_object, per round"],
        lines=[
            [
                case,
                variant,
                shown(spread_of(samples, case, variant), 0),
                Spread.of(ratios(samples, (case, variant), (case, BY_SPARK))).show(),
            ]
            for case in NESTED
            for variant in VARIANTS
        ],
        notes=[f"{settings.rows:,} rows in each append, {settings.rounds} rounds, two cores."],
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        spark = session("bench_variants", scratch)
        iceberg_ds.register(spark)
        samples = measure(spark, settings, scratch / "iceberg")
        spark.stop()
    write_report(settings, host, report(settings, samples))


if __name__ == "__main__":
    main()
