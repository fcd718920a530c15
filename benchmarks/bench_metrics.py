"""What does it cost to report on every commit, everywhere?

    python benchmarks/bench_metrics.py --rounds 7 --rows 3000000

One warm Spark session appends the lineitem-like set and runs micro-batches, in turn with every report off and with all
of them on: a file, the log, a function of a user's, the snapshot's summary, and the event time of the newest row. The
sides rotate from round to round, and a round before them is not counted. `nothing` is the side without reports run
once more: how far it is from 1.00 tells what the machine's noise is. What a clock does not show for noise, the CPU's
time does: the same append by tasks and a commit in this process, without Spark.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from charts import Bar, Chart, draw
from datasets import set_folder
from harness import (
    Report,
    Sample,
    Settings,
    cost_lines,
    load_average,
    machine,
    parse_arguments,
    scratch_folder,
    spread_of,
    write_report,
)
from peer_place import NAMESPACE, Place
from pyspark.sql.pandas.types import from_arrow_schema
from remote import Remote

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.options.parse import parse_options
from iceberg_ds.planning.plan_write import plan_write
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

QUESTION = "What does it cost to report on every commit, everywhere?"
USES = {"rounds": "", "rows": "", "batches": ""}
VARIANTS = {"off": "no report", "on": "every report", "off-again": "nothing"}
CPU = "append, CPU time of tasks and commit"
APPEND, FEW, MANY = "append", "micro-batch of 1,000 rows", "micro-batch of 100,000 rows"
LOADS = {FEW: {"rows": 1_000, "tasks": 2}, MANY: {"rows": 100_000, "tasks": 8}}
WARMING = 2
BATCH_ROWS = 10_000  # as Spark sends them


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure all sides of every case in every round."""
    place = Place(folder=scratch / "metrics")
    place.database.parent.mkdir(parents=True)
    source = set_folder(settings, "lineitem", settings.rows)
    samples = []
    with place.session_of_sink() as session:
        session.ask("source", name="source", folder=str(source), key="l_orderkey")
        for number in range(settings.rounds + 1):
            names = list(VARIANTS)
            rotated = names[number % len(names) :] + names[: number % len(names)]
            for case in (APPEND, *LOADS):
                for variant in rotated:
                    load = load_average()
                    value = _milliseconds(settings, session, case, _options(place, case, variant), (variant, number))
                    print(f"round {number}, {case}, {variant}: {value:.0f} ms", flush=True)
                    if number:
                        details = {"load_before": load}
                        samples.append(Sample(case=case, variant=variant, round=number, value=value, details=details))
    return [*samples, *_measure_cpu(settings, place, source)]


def _measure_cpu(settings: Settings, place: Place, source: Path) -> list[Sample]:
    parts = [pq.read_table(path) for path in sorted(source.glob("*.parquet"))]
    samples = []
    for number in range(settings.rounds + 1):
        names = list(VARIANTS)
        for variant in [*names[number % len(names) :], *names[: number % len(names)]]:
            load = load_average()
            value = _cpu_milliseconds(place, parts, variant, f"{NAMESPACE}.cpu_{number}_{names.index(variant)}")
            print(f"round {number}, {CPU}, {variant}: {value:.0f} ms", flush=True)
            if number:
                details = {"load_before": load}
                samples.append(Sample(case=CPU, variant=variant, round=number, value=value, details=details))
    return samples


def _cpu_milliseconds(place: Place, parts: Sequence[pa.Table], variant: str, table: str) -> float:
    options = parse_options({**_options(place, APPEND, variant), "table": table})
    catalog = connect(catalog_settings(options), options.reports)
    plan = plan_write(catalog, options, from_arrow_schema(parts[0].schema, prefer_timestamp_ntz=True))
    started = time.process_time()
    messages = [
        report_task(plan, part.to_batches(BATCH_ROWS), TaskAttempt(partition_id=number, task_attempt_id=number))
        for number, part in enumerate(parts)
    ]
    commit_write(catalog, messages)
    return (time.process_time() - started) * 1000


def _options(place: Place, case: str, variant: str) -> dict[str, str]:
    if variant != "on":
        return place.options
    return {
        **place.options,
        "metrics-file": str(place.folder / "commits.jsonl"),
        "metrics-reporter": "log,operator:truth",
        "snapshot-metrics": "true",
        "event-time-column": "l_updated_at" if case == APPEND else "timestamp",
    }


def _milliseconds(
    settings: Settings, session: Remote, case: str, options: dict[str, str], run: tuple[str, int]
) -> float:
    words = re.sub(r"\W+", "_", f"{case} {run[0]} {run[1]}")
    table = f"{NAMESPACE}.{words}"
    if case == APPEND:
        taken: dict[str, float] = session.ask(
            "append", sink="icebergsink", source="source", table=table, options=options
        )
        return taken["seconds"] * 1000
    load = {**LOADS[case], "warming": WARMING, "batches": settings.batches}
    found = session.ask("stream", sink="icebergsink", table=table, options=options, load=load)
    return statistics.median(found["triggers"])


def report(samples: Sequence[Sample]) -> Report:
    """Return all cases as a table."""
    return Report(
        name="metrics",
        question=QUESTION,
        unit="milliseconds",
        samples=samples,
        header=["case", "no report, ms", "every report, ms", "ratio", "ratio of no report to no report"],
        lines=cost_lines(samples, (APPEND, CPU, *LOADS), "off", "on"),
        notes=["Ratios are taken within each round. A micro-batch is a whole trigger, as Spark times it."],
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the micro-batches as bars."""
    bars = [
        Bar(label=f"{case}: {label}", group="ours" if variant == "on" else variant, spread=spread)
        for case in LOADS
        for variant, label in VARIANTS.items()
        if (spread := spread_of(samples, case, variant)) is not None
    ]
    return Chart(title="A trigger with and without reports", axis="milliseconds", bars=bars)


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        samples = measure(settings, scratch)
    write_report(settings, host, report(samples))
    draw(settings.results_dir / "metrics.png", chart(samples))


if __name__ == "__main__":
    main()
