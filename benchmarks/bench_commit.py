"""How long does a commit take, beside PyIceberg's own append?

    python benchmarks/bench_commit.py --rounds 5 --files 1,1000,50000 --snapshots 10,1000,10000

Three sets of cases: commits of many files to a table with ten snapshots; commits of one file to tables with
many snapshots whose newest lists one manifest; and the same with one manifest per snapshot, which is what
appends leave on a table that nobody maintains. Ours is `bring_in(SnapshotUpdate(...))`, stock is PyIceberg's
`transaction().update_snapshot().fast_append()` with the same files; the time of both includes loading the
table. Catalog: SQLite on the local disk. Each measurement is one commit in a fresh process to a table
of its own, after a warming commit to another one; the two take turns in who goes first.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from charts import Bar, Chart, draw
from harness import (
    MEGABYTE,
    Report,
    Sample,
    Settings,
    Spread,
    machine,
    parse_arguments,
    ratios,
    run_case,
    scratch_folder,
    spread_of,
    write_report,
)

QUESTION = "How long does a commit take, beside PyIceberg's own append?"
USES = {"rounds": "", "files": "", "snapshots": ""}
VARIANTS = {"ours": "icebergsink", "stock": "PyIceberg"}
FEW_SNAPSHOTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A commit of so many files to a table of so many snapshots, the newest with so many manifests."""

    files: int
    snapshots: int
    manifests: int

    @property
    def label(self) -> str:
        """Return how results name it."""
        return " ".join(
            (_counted(self.files, "file"), f"to {self.snapshots:,} snapshots,", _counted(self.manifests, "manifest"))
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def situations(settings: Settings) -> list[Situation]:
    """Return what is measured, each once."""
    by_files = [Situation(files=files, snapshots=FEW_SNAPSHOTS, manifests=1) for files in settings.files]
    by_snapshots = [Situation(files=1, snapshots=count, manifests=1) for count in settings.snapshots]
    unmaintained = [Situation(files=1, snapshots=count, manifests=count) for count in settings.snapshots]
    return list(dict.fromkeys([*by_files, *by_snapshots, *unmaintained]))


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure every situation for both in every round."""
    samples = []
    for number in range(1, settings.rounds + 1):
        for situation in situations(settings):
            for variant in sorted(VARIANTS, reverse=bool(number % 2)):
                folder = scratch / "commit"
                case = {"variant": variant, "folder": str(folder), **asdict(situation)}
                details = run_case("commit_case.py", case)
                shutil.rmtree(folder)
                value = details["seconds"] * 1000
                print(f"round {number}, {situation.label}, {VARIANTS[variant]}: {value:.0f} ms", flush=True)
                samples.append(
                    Sample(case=situation.label, variant=variant, round=number, value=value, details=details)
                )
    return samples


def report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return the outcome as tables."""
    return Report(
        name="commit",
        question=QUESTION,
        unit="milliseconds",
        samples=samples,
        header=(
            "commit of",
            *(f"{name}, ms: median (min-max)" for name in VARIANTS.values()),
            "PyIceberg / icebergsink, per round",
            *(f"{name}, memory it adds, MB" for name in VARIANTS.values()),
        ),
        lines=[_line(samples, situation.label) for situation in situations(settings)],
        notes=(
            f"{settings.rounds} rounds; each measurement is one commit in a fresh process, table load included.",
            "Memory: how far the commit raised the process's peak, median.",
        ),
    )


def _line(samples: Sequence[Sample], case: str) -> list[str]:
    spreads = [spread_of(samples, case, variant) for variant in VARIANTS]
    beside = ratios(samples, (case, "stock"), (case, "ours"))
    return [
        case,
        *(spread.show(0) if spread else "-" for spread in spreads),
        Spread.of(beside).show(1) if beside else "-",
        *(_memory(samples, case, variant) for variant in VARIANTS),
    ]


def _memory(samples: Sequence[Sample], case: str, variant: str) -> str:
    chosen = [sample.details for sample in samples if (sample.case, sample.variant) == (case, variant)]
    if not chosen:
        return "-"
    added = [(details["peak_bytes"] - details["peak_before_bytes"]) / MEGABYTE for details in chosen]
    return f"{Spread.of(added).median:.0f}"


def chart(settings: Settings, samples: Sequence[Sample]) -> Chart:
    """Return the outcome as bars, on a logarithmic axis."""
    bars = [
        Bar(label=f"{situation.label}: {name}", group=variant, spread=spread)
        for situation in situations(settings)
        for variant, name in VARIANTS.items()
        if (spread := spread_of(samples, situation.label, variant)) is not None
    ]
    return Chart(title="Time of one commit", axis="milliseconds", bars=bars, is_logarithmic=True, pattern="{:,.0f}")


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        samples = measure(settings, scratch)
    write_report(settings, host, report(settings, samples))
    draw(settings.results_dir / "commit.png", chart(settings, samples))


if __name__ == "__main__":
    main()
