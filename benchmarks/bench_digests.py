"""What do digests of keys cost a write by keys?

    python benchmarks/bench_digests.py --rounds 15 --keys 100000

Two tasks write ten times `--keys` changes of as many keys, and the commit adds them to a new table, in one process
without Spark, whose own work would hide the difference. The rows lie distributed by key; so the tasks prove that they
share none, and report no digests. Or the same two parts have changed places: then there is no proof, each task reports
a digest of every key, and the commit compares them. Both find out by their keys' digests which row of a key wins, so
what is measured is reporting and comparing, less the proof. The two take turns in who goes first. Seconds are those of
the processor, which other processes disturb less than the clock. What Spark does besides makes a write longer, and so
the share of digests smaller.
"""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from charts import Bar, Chart, draw
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
from pyspark.sql.pandas.types import from_arrow_schema

from iceberg_ds.catalogs.client import connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.changes.spark_hash import spark_hash
from iceberg_ds.commits.commit import commit_write
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options import parse_options
from iceberg_ds.planning import plan_write
from iceberg_ds.writing.keyed import report_keyed_task
from iceberg_ds.writing.writers import TaskAttempt

QUESTION = "What do digests of keys cost a write by keys?"
USES = {"rounds": "one more is run first and not counted", "keys": "ten times as many are written"}
TASKS = 2
BATCH_ROWS = 10_000  # Spark's default
MOST = 0.15
# What the keys are, and their columns.
KEYS = {"a long": ("id",), "text of 36 characters": ("token",), "a short text and a long": ("region", "id")}
LAYOUTS = {"proven": "layout is proven, no digests", "reported": "digests of all keys"}


def changes(count: int) -> pa.RecordBatch:
    """Return so many changes: of ten, eight are updates, one is a delete, one an insert."""
    draw_number = random.Random(count)  # noqa: S311  # numbers to measure with
    numbers = pa.array([draw_number.getrandbits(63) for _ in range(count)], pa.int64())
    texts = numbers.cast(pa.string())
    places = pa.array(range(count), pa.int64())
    wide = pc.utf8_lpad(texts, 20, "0")
    operations = pa.array(["I", "D", *"UUUUUUUU"])
    columns = {
        "op": operations.take(pa.array([place % 10 for place in range(count)])),
        "id": places,
        "token": pc.binary_join_element_wise(wide, pc.utf8_lpad(places.cast(pa.string()), 15, "0"), "-"),
        "region": pc.binary_join_element_wise(
            "region", pa.array([n % 20 for n in range(count)]).cast(pa.string()), " "
        ),
        "amount": pc.divide(numbers.cast(pa.float64(), safe=False), 1e13),
        "units": pa.array(draw_number.choices(range(50), k=count), pa.int32()),
        "note": pc.binary_join_element_wise(wide, texts, "as ordered", " "),
    }
    return pa.RecordBatch.from_pydict(columns)


def laid_out(rows: pa.RecordBatch, keys: Sequence[str]) -> list[list[pa.RecordBatch]]:
    """Return the batches of each task, whose number every key's hash leaves."""
    hashes = spark_hash([rows.column(name) for name in keys])
    if hashes is None:
        raise ValueError(f"there is no hash of {keys}")
    places = pc.bit_wise_and(hashes, pa.scalar(TASKS - 1, pa.int32()))
    tables = [pa.Table.from_batches([rows.filter(pc.equal(places, number))]) for number in range(TASKS)]
    return [table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS) for table in tables]


def write(folder: Path, parts: Sequence[Sequence[pa.RecordBatch]], keys: Sequence[str]) -> dict[str, float]:
    """Write and commit once. Return the processor's seconds, and bytes of the messages and of what they say of keys."""
    names = {"table": "bench.t", "warehouse": str(folder), "keys": ",".join(keys), "operation-column": "op"}
    options = parse_options(names)
    catalog = connect(catalog_settings(options))
    plan = plan_write(catalog, options, from_arrow_schema(parts[0][0].schema))
    started = time.process_time()
    messages = [
        pickle.dumps(report_keyed_task(plan, batches, TaskAttempt(partition_id=number, task_attempt_id=number)))
        for number, batches in enumerate(parts)
    ]
    commits: list[TaskCommit] = [pickle.loads(message) for message in messages]  # noqa: S301  # our own
    result = commit_write(catalog, commits)
    seconds = time.process_time() - started
    return {
        "seconds": seconds,
        "rows": result.record_count or 0,
        "message_bytes": sum(map(len, messages)),
        "reported_bytes": sum(len(commit.keys.evidence or b"") for commit in commits if commit.keys is not None),
    }


def measure(settings: Settings) -> list[Sample]:
    """Measure both layouts of all keys in every round."""
    rows = changes(10 * settings.keys)
    samples = []
    for case, keys in KEYS.items():
        proven = laid_out(rows, keys)
        layouts = {"proven": proven, "reported": proven[::-1]}
        for number in range(settings.rounds + 1):
            for variant in sorted(layouts, reverse=bool(number % 2)):
                with scratch_folder(settings) as folder:
                    details = {"load_before": load_average(), **write(folder, layouts[variant], keys)}
                _check(variant, rows.num_rows, details)
                seconds = details.pop("seconds")
                print(f"round {number}, {case}, {variant}: {seconds:.3f} s", flush=True)
                if number:
                    samples.append(Sample(case=case, variant=variant, round=number, value=seconds, details=details))
    return samples


def _check(variant: str, changes_count: int, measured: dict[str, float]) -> None:
    expected = changes_count - changes_count // 10
    if measured["rows"] != expected:
        raise RuntimeError(f"{variant}: {measured['rows']} rows instead of {expected}")
    if bool(measured["reported_bytes"]) != (variant == "reported"):
        raise RuntimeError(f"{variant}: {measured['reported_bytes']} bytes of digests")


def share_of(samples: Sequence[Sample], case: str) -> Spread:
    """Return how many times as long a write takes with digests, pair by pair."""
    return Spread.of(ratios(samples, (case, "reported"), (case, "proven")))


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the samples as a table."""
    lines, notes = [], []
    for case in KEYS:
        for variant, label in LAYOUTS.items():
            found = [sample for sample in samples if (sample.case, sample.variant) == (case, variant)]
            spread = Spread.of([sample.value for sample in found])
            share = share_of(samples, case).show() if variant == "reported" else "1"
            size = Spread.of([sample.details["message_bytes"] for sample in found]).median / MEGABYTE
            lines.append([case, label, spread.show(), f"{size:.1f}", share])
        share = share_of(samples, case)
        verdict = "met" if share.median - 1 <= MOST else "not met"
        notes.append(f"Keys of {case}: {share.show()} x; the mark is {1 + MOST} x: {verdict}.")
    notes.append(f"{settings.rounds} rounds of {10 * settings.keys:,} changes in {TASKS} tasks, one after the other.")
    return Report(
        name="digests",
        question=QUESTION,
        unit="seconds of the processor",
        samples=samples,
        header=(
            "keys",
            "way",
            "seconds of the processor: median (min-max)",
            "MB of messages",
            "time / without, by pairs",
        ),
        lines=lines,
        notes=notes,
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the samples as bars."""
    bars = [
        Bar(label=f"{case}: {label}", group="ours" if variant == "reported" else variant, spread=spread)
        for case in KEYS
        for variant, label in LAYOUTS.items()
        if (spread := spread_of(samples, case, variant)) is not None
    ]
    return Chart(title="A write by keys, with digests and without", axis="seconds of the processor", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    pa.set_cpu_count(1)  # as Spark sets it for its Python workers
    host = machine()
    samples = measure(settings)
    write_report(settings, host, report(settings, samples))
    draw(settings.results_dir / "digests.png", chart(samples))


if __name__ == "__main__":
    main()
