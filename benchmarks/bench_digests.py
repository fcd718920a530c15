"""What do digests of keys cost a write by keys?

    python benchmarks/bench_digests.py --rounds 15 --keys 100000

Two tasks write ten times `--keys` changes of as many keys, and the commit adds them to a new table, in one process
without Spark, whose own work would hide the difference. The rows lie distributed by key; so the tasks prove that they
share none, and report no digests. Or the same two parts have changed places: then there is no proof, each task reports
a digest of every key, and the commit compares them. The two take turns in who goes first. Digests and the hashes that
the proof needs are computed once more alone. A write without digests takes as long as one with a proof, less both of
these: beside that, digests are computed, reported and compared. Seconds are those of the processor, which other
processes disturb less than the clock. What Spark does besides makes a write longer, and so the share smaller: some 2.3
core-seconds for so many keys of a long (`results/upserts.md` of commit aa299e8: 1.16 s on two cores).
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

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.cdc.keys import digest_keys, digest_seed
from iceberg_ds.cdc.spark_hash import spark_hash
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options.parse import parse_options
from iceberg_ds.planning.plan_write import plan_write
from iceberg_ds.writers.keyed import report_keyed_task
from iceberg_ds.writers.task_writer import TaskAttempt

QUESTION = "What do digests of keys cost a write by keys?"
USES = {"rounds": "one more is run first and not counted", "keys": "ten times as many are written"}
TASKS = 2
BATCH_ROWS = 10_000  # Spark's default
# What the keys are, and their columns.
KEYS = {"a long": ("id",), "text of 36 characters": ("token",), "a short text and a long": ("region", "id")}
WAYS = {
    "reported": "digests of all keys",
    "proven": "layout is proven, none reported",
    "digests": "computing digests, alone",
    "hashes": "computing the proof's hashes, alone",
    "without": "without any of it",
}


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
        "reported_bytes": sum(len(commit.keys.key_report or b"") for commit in commits if commit.keys is not None),
    }


def alone(parts: Sequence[Sequence[pa.RecordBatch]], keys: Sequence[str]) -> dict[str, float]:
    """Return the processor's seconds for the digests of all keys, and for their hashes."""
    columns = [[batch.column(name) for name in keys] for batches in parts for batch in batches]
    begun = time.process_time()
    for found in columns:
        digest_keys(found, digest_seed("alone"))
    between = time.process_time()
    for found in columns:
        spark_hash(found)
    return {"digests": between - begun, "hashes": time.process_time() - between}


def measure(settings: Settings) -> list[Sample]:
    """Measure both layouts of all keys in every round."""
    rows = changes(10 * settings.keys)
    samples = []
    for case, keys in KEYS.items():
        proven = laid_out(rows, keys)
        layouts = {"proven": proven, "reported": proven[::-1]}
        for number in range(settings.rounds + 1):
            seconds, details = alone(proven, keys), {}
            for variant in sorted(layouts, reverse=bool(number % 2)):
                with scratch_folder(settings) as folder:
                    details[variant] = {"load_before": load_average(), **write(folder, layouts[variant], keys)}
                _check(variant, rows.num_rows, details[variant])
                seconds[variant] = details[variant].pop("seconds")
            seconds["without"] = seconds["proven"] - seconds["digests"] - seconds["hashes"]
            print(f"round {number}, {case}: {', '.join(f'{way} {value:.3f} s' for way, value in seconds.items())}")
            samples += [
                Sample(case=case, variant=way, round=number, value=seconds[way], details=details.get(way, {}))
                for way in WAYS
                if number
            ]
    return samples


def _check(variant: str, changes_count: int, measured: dict[str, float]) -> None:
    expected = changes_count - changes_count // 10
    if measured["rows"] != expected:
        raise RuntimeError(f"{variant}: {measured['rows']} rows instead of {expected}")
    if bool(measured["reported_bytes"]) != (variant == "reported"):
        raise RuntimeError(f"{variant}: {measured['reported_bytes']} bytes of digests")


def added_by(samples: Sequence[Sample], case: str) -> Spread:
    """Return the seconds that a write takes longer with digests than without any, round by round."""
    values = {(sample.variant, sample.round): sample.value for sample in samples if sample.case == case}
    return Spread.of(
        [value - values["without", number] for (way, number), value in values.items() if way == "reported"]
    )


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the samples as a table."""
    lines, notes = [], []
    for case in KEYS:
        for way, label in WAYS.items():
            found = [sample for sample in samples if (sample.case, sample.variant) == (case, way)]
            spread = Spread.of([sample.value for sample in found])
            share = Spread.of(ratios(samples, (case, way), (case, "without"))).show()
            sizes = [size for sample in found if (size := sample.details.get("message_bytes")) is not None]
            size = f"{Spread.of(sizes).median / MEGABYTE:.1f}" if sizes else "-"
            lines.append([case, label, spread.show(), size, share])
        notes.append(f"Keys of {case}: digests take {added_by(samples, case).show()} s of the processor.")
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
            "time / without, per round",
        ),
        lines=lines,
        notes=notes,
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the samples as bars."""
    bars = [
        Bar(label=f"{case}: {WAYS[way]}", group="ours" if way == "reported" else way, spread=spread)
        for case in KEYS
        for way in ("reported", "proven", "without")
        if (spread := spread_of(samples, case, way)) is not None
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
