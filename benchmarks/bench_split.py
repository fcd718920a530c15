"""How long does it take to split rows by partition, beside PyIceberg's own split?

    python benchmarks/bench_split.py --rounds 5

One million rows of nine columns, in random order, are split into 16, 160 and 960 partitions by identity of a text
and day of a timestamp. Ours is `PartitionSplitter.split()`, stock is PyIceberg's `_determine_partitions()`, which its
own append uses; both give every partition's rows, copied. The two take turns in who goes first, in one process with
one thread, as Spark's Python workers have. Ours is to need 0.4 s at most for 960 partitions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
from charts import Bar, Chart, draw
from harness import (
    Report,
    Sample,
    Settings,
    Spread,
    load_average,
    machine,
    parse_arguments,
    ratios,
    spread_of,
    write_report,
)
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import _determine_partitions
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform

from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.partitioning import PartitionSplitter

QUESTION = "How long does it take to split rows by partition, beside PyIceberg's own split?"
USES = {"rounds": ""}
ROWS = 1_000_000
REGIONS = 16
DAYS = (1, 10, 60)
MARK_SECONDS = 0.4
DAY_US = 86_400 * 10**6

SCHEMA = Schema(
    ice.NestedField(1, "id", ice.LongType()),
    ice.NestedField(2, "ts", ice.TimestamptzType()),
    ice.NestedField(3, "region", ice.StringType()),
    ice.NestedField(4, "amount", ice.LongType()),
    ice.NestedField(5, "price", ice.DoubleType()),
    ice.NestedField(6, "name", ice.StringType()),
    ice.NestedField(7, "shipped", ice.DateType()),
    ice.NestedField(8, "quantity", ice.IntegerType()),
    ice.NestedField(9, "comment", ice.StringType()),
)
SPEC = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "region"), PartitionField(2, 1001, DayTransform(), "ts_day")
)


def batch_of(days: int) -> pa.RecordBatch:
    """Return the rows: so many days, and all regions in each."""
    draw_number = random.Random(days)  # noqa: S311  # numbers to measure with
    regions = pa.array([f"region {number:02d}" for number in range(REGIONS)])
    texts = pa.array([f"text number {number}" for number in range(1000)])

    def drawn(below: int, data_type: pa.DataType) -> pa.Array:
        return pa.array(draw_number.choices(range(below), k=ROWS), data_type)

    moments = pa.array([draw_number.randrange(days * DAY_US) for _ in range(ROWS)])
    columns = [
        pa.array(range(ROWS)),
        moments.view(pa.timestamp("us", "UTC")),
        regions.take(drawn(REGIONS, pa.int32())),
        drawn(10_000, pa.int64()),
        drawn(10_000, pa.int64()).cast(pa.float64()),
        texts.take(drawn(len(texts), pa.int32())),
        drawn(20_000, pa.int32()).view(pa.date32()),
        drawn(100, pa.int32()),
        texts.take(drawn(len(texts), pa.int32())),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=file_shape(SCHEMA).schema)


def ours(rows: pa.RecordBatch) -> list[int]:
    """Return the number of rows of each partition."""
    return [part.num_rows for _, part in PartitionSplitter(SPEC, SCHEMA).split(rows)]


def stock(rows: pa.RecordBatch) -> list[int]:
    """Return the number of rows of each partition, split by PyIceberg."""
    parts = _determine_partitions(SPEC, SCHEMA, pa.Table.from_batches([rows]))
    return [part.arrow_table_partition.num_rows for part in parts]


VARIANTS: dict[str, tuple[str, Callable[[pa.RecordBatch], list[int]]]] = {
    "ours": ("icebergsink", ours),
    "stock": ("PyIceberg", stock),
}


def measure(settings: Settings) -> list[Sample]:
    """Measure every number of partitions for both in every round."""
    batches = {days * REGIONS: batch_of(days) for days in DAYS}
    return [
        sample
        for number in range(1, settings.rounds + 1)
        for partitions, rows in batches.items()
        for sample in _measure_both(number, partitions, rows)
    ]


def _measure_both(number: int, partitions: int, rows: pa.RecordBatch) -> Iterable[Sample]:
    sizes = {}
    for variant in sorted(VARIANTS, reverse=bool(number % 2)):
        name, split = VARIANTS[variant]
        details = {"load_before": load_average()}
        started = time.perf_counter()
        sizes[variant] = split(rows)
        seconds = time.perf_counter() - started
        print(f"round {number}, {partitions} partitions, {name}: {seconds:.2f} s", flush=True)
        yield Sample(case=label(partitions), variant=variant, round=number, value=seconds, details=details)
    if len(sizes["ours"]) != partitions or sorted(sizes["ours"]) != sorted(sizes["stock"]):
        raise AssertionError(f"the two found different partitions: {sizes}")


def label(partitions: int) -> str:
    """Return how results name a number of partitions."""
    return f"{partitions} partitions"


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the outcome as tables."""
    return Report(
        name="split",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=(
            f"{ROWS:,} rows into",
            *(f"{name}, seconds: median (min-max)" for name, _ in VARIANTS.values()),
            "PyIceberg / icebergsink, per round",
        ),
        lines=[_line(samples, label(days * REGIONS)) for days in DAYS],
        notes=(
            f"{settings.rounds} rounds in one process, one thread.",
            f"Mark: {DAYS[-1] * REGIONS} partitions in {MARK_SECONDS} s at most.",
        ),
    )


def _line(samples: Sequence[Sample], case: str) -> list[str]:
    spreads = [spread_of(samples, case, variant) for variant in VARIANTS]
    beside = ratios(samples, (case, "stock"), (case, "ours"))
    return [case, *(spread.show() if spread else "-" for spread in spreads), Spread.of(beside).show(1)]


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the outcome as bars, on a logarithmic axis."""
    bars = [
        Bar(label=f"{label(days * REGIONS)}: {name}", group=variant, spread=spread)
        for days in DAYS
        for variant, (name, _) in VARIANTS.items()
        if (spread := spread_of(samples, label(days * REGIONS), variant)) is not None
    ]
    return Chart(
        title=f"Time to split {ROWS:,} rows",
        axis="seconds",
        bars=bars,
        is_logarithmic=True,
        mark=(MARK_SECONDS, "mark of 960"),
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    pa.set_cpu_count(1)
    host = machine()
    samples = measure(settings)
    write_report(settings, host, report(settings, samples))
    draw(settings.results_dir / "split.png", chart(samples))


if __name__ == "__main__":
    main()
