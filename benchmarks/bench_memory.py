"""How much memory does a task need, and does it grow with its DataFrame partition?

    python benchmarks/bench_memory.py --gigabytes 1,3,10 --rounds 1

`write_task` gets record batches of 10,000 rows, made from the lineitem-like set of `datasets.py`, until it
has had so many gigabytes of Arrow data; it writes files of 512 MB at most into a table without partitions, and
into ones with 100 and 1,000 partitions, each of which occurs in nearly every batch. Each measurement has a fresh
process. The number is its peak resident memory (`ru_maxrss`), which includes Python and all libraries; it is to
stay below 400 MB. What is written is deleted at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from charts import Bar, Chart, draw
from datasets import lineitem_folder
from harness import (
    MEGABYTE,
    Report,
    Sample,
    Settings,
    machine,
    parse_arguments,
    run_case,
    scratch_folder,
    spread_of,
    write_report,
)

QUESTION = "How much memory does a task need, and does it grow with its DataFrame partition?"
USES = {"rows": "the first million of its first quarter is used", "rounds": "", "gigabytes": ""}
MARK_MEGABYTES = 400
GIGABYTE = 1_000_000_000
HEADER = (
    "Arrow data of the task",
    "table",
    "peak MB: median (min-max)",
    "before the first row, MB",
    "seconds",
    "files",
    "row groups",
    "MB written",
)
PARTITIONS = {"unpartitioned": 0, "100 partitions": 100, "1,000 partitions": 1_000}


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure every amount with and without partitions in every round."""
    case = {
        "source": str(min(lineitem_folder(settings).glob("*.parquet"))),
        "batches": str(scratch / "batches.arrows"),
        "plan": str(scratch / "plan.pickle"),
        "folder": str(scratch / "iceberg"),
    }
    samples = []
    for number in range(1, settings.rounds + 1):
        for name, partitions in PARTITIONS.items():
            for gigabytes in settings.gigabytes:
                run_case("memory_plan.py", {**case, "partitions": partitions})
                details = run_case("memory_case.py", {**case, "arrow_bytes": gigabytes * GIGABYTE})
                shutil.rmtree(case["folder"])
                peak = details["peak_bytes"] / MEGABYTE
                print(f"round {number}, {gigabytes} GB, {name}: {peak:.0f} MB, {details['seconds']:.1f} s", flush=True)
                samples.append(Sample(case=f"{gigabytes} GB", variant=name, round=number, value=peak, details=details))
    return samples


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the outcome as tables."""
    return Report(
        name="memory",
        question=QUESTION,
        unit="megabytes",
        samples=samples,
        header=HEADER,
        lines=[_line(samples, f"{gigabytes} GB", name) for name in PARTITIONS for gigabytes in settings.gigabytes],
        notes=(f"Mark: below {MARK_MEGABYTES} MB. One process a measurement, {settings.rounds} rounds.",),
    )


def _line(samples: Sequence[Sample], case: str, variant: str) -> list[str]:
    spread = spread_of(samples, case, variant)
    if spread is None:
        return [case, variant, *["-"] * (len(HEADER) - 2)]
    last = next(s.details for s in reversed(samples) if (s.case, s.variant) == (case, variant))
    return [
        case,
        variant,
        spread.show(0),
        f"{last['before_bytes'] / MEGABYTE:.0f}",
        f"{last['seconds']:.1f}",
        f"{last['files']:.0f}",
        f"{last['row_groups']:.0f}",
        f"{last['file_bytes'] / MEGABYTE:,.0f}",
    ]


def chart(settings: Settings, samples: Sequence[Sample]) -> Chart:
    """Return the outcome as bars."""
    bars = [
        Bar(label=f"{gigabytes} GB, {name}", group=name, spread=spread)
        for name in PARTITIONS
        for gigabytes in settings.gigabytes
        if (spread := spread_of(samples, f"{gigabytes} GB", name)) is not None
    ]
    return Chart(
        title="Peak memory of one task, by the Arrow data that it writes",
        axis="megabytes",
        bars=bars,
        mark=(MARK_MEGABYTES, "mark"),
        pattern="{:,.0f}",
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        samples = measure(settings, scratch)
    write_report(settings, host, report(settings, samples))
    draw(settings.results_dir / "memory.png", chart(settings, samples))


if __name__ == "__main__":
    main()
