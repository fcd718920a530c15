"""What the demo tells: where each kill hit, what became of it, the figures of the run, and how to look further.

Every figure and every claim comes from the disk of this run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from flights_demo.kills import FLIGHTS, Hit, Place
from flights_demo.source import MONTHS

if TYPE_CHECKING:
    from flights_demo.proof import Comparison, Figures


_TRACES = {
    Place.BEFORE_CHECKPOINT: "in the table, not in Spark's checkpoint",
    Place.BETWEEN_EPOCHS: "nothing was under way",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What became of the epoch that a kill hit.

    Attributes:
        hit: The kill.
        was_landed: It was in the table before the kill.
        rewritten: How many data files the next driver wrote, found to be superfluous and deleted.
    """

    hit: Hit
    was_landed: bool
    rewritten: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What became of the change feed.

    Attributes:
        counts: How many changes of each kind it has.
        killed_in: The epoch in which its driver was killed.
        left: How many rows are left.
        readers: Who found exactly these.
    """

    counts: Mapping[str, int]
    killed_in: int
    left: int
    readers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of the demo.

    Attributes:
        folder: Where everything lies.
        figures: The flights' table.
        recoveries: What became of each kill.
        comparisons: Each table beside its source.
        changes: What became of the change feed.
        streamed_s: Seconds from the start to the end of the stream.
        total_s: Seconds from the start to the end of the proof.
    """

    folder: Path
    figures: Figures
    recoveries: Sequence[Recovery]
    comparisons: Sequence[Comparison]
    changes: Changes
    streamed_s: float
    total_s: float


def find_recoveries(
    hits: Sequence[Hit], seen: Sequence[frozenset[str]], figures: Figures, files: frozenset[str]
) -> list[Recovery]:
    """Return what became of each kill.

    Args:
        hits: The kills, in order.
        seen: The data files that were seen during each driver's turn.
        figures: The table at the end.
        files: The data files at the end.
    """
    return [
        _find_recovery(hit, figures.landings_ms.get(hit.epoch_id, []), len(next_seen - files))
        for hit, next_seen in zip(hits, seen[1:], strict=True)
    ]


def _find_recovery(hit: Hit, landings_ms: Sequence[int], deleted: int) -> Recovery:
    was_landed = any(landing_ms <= hit.killed_s * 1000 for landing_ms in landings_ms)
    return Recovery(hit=hit, was_landed=was_landed, rewritten=deleted if was_landed else 0)


def find_contradictions(figures: Figures, recoveries: Sequence[Recovery]) -> list[str]:
    """Return where the table's snapshots contradict "each epoch once", or what a kill was found to have hit."""
    epochs = figures.landings_ms
    doubled = [f"epoch {epoch_id} has {len(times)} snapshots" for epoch_id, times in epochs.items() if len(times) != 1]
    missing = [f"epoch {epoch_id} has no snapshot" for epoch_id in range(max(epochs)) if epoch_id not in epochs]
    untimely = [
        f"epoch {recovery.hit.epoch_id} landed {'before' if recovery.was_landed else 'after'} its kill"
        for recovery in recoveries
        if recovery.was_landed != (recovery.hit.place is Place.BEFORE_CHECKPOINT)
    ]
    return [f"nyc.{FLIGHTS}: {problem}" for problem in (*doubled, *missing, *untimely)]


def describe_hit(hit: Hit) -> str:
    """Return where a kill hit and what it left, such as `in a task of epoch 2: ...`."""
    return f"{hit.place.value} epoch {hit.epoch_id}: {_describe_traces(hit)}"


def _describe_traces(hit: Hit) -> str:
    leftovers = hit.traces.leftovers
    trace = _TRACES.get(hit.place, "no trace in the table")
    if not leftovers:
        return trace
    unfinished = sum(leftover.rows is None for leftover in leftovers)
    return f"{trace}, {_count(len(leftovers), 'orphan file')} left" + (
        f" ({unfinished} unfinished)" if unfinished else ""
    )


def _describe_recovery(recovery: Recovery) -> str:
    if recovery.hit.place is Place.BETWEEN_EPOCHS:
        return "the next driver began with it, landed once"
    if not recovery.was_landed:
        return "epoch run again, landed once"
    if not recovery.rewritten:
        return "epoch replayed, recognised, not written twice"
    return f"epoch replayed, recognised, its {_count(recovery.rewritten, 'new file')} deleted: not written twice"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def print_problems(console: Console, problems: Sequence[str]) -> None:
    """Print what is wrong with the tables."""
    console.print("[bold red]The tables are not what they should be:[/]")
    for problem in problems:
        console.print(f"  {problem}", soft_wrap=True, markup=False, highlight=False)


def print_summary(console: Console, outcome: Outcome) -> None:
    """Print the one table of the run."""
    table = Table(title="Flights into Iceberg, killed on the way", box=box.SIMPLE_HEAVY, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _summarise(outcome):
        table.add_row(name, text)
    console.print(table)


def _summarise(outcome: Outcome) -> Iterator[tuple[str, str]]:
    figures, recoveries = outcome.figures, outcome.recoveries
    yield "epochs", _describe_epochs(figures)
    yield "data files", f"{figures.files}, {figures.bytes:,} bytes"
    for number, recovery in enumerate(recoveries, start=1):
        yield f"kill {number}", f"{describe_hit(recovery.hit)}\n[green]{_describe_recovery(recovery)}[/]"
    yield "orphan files", f"{figures.orphans}, left by the kills and seen by no reader"
    for comparison in outcome.comparisons:
        what = "each row number once, " if comparison.name == FLIGHTS else ""
        equal = f"{what}all {comparison.columns} columns equal to the source"
        yield comparison.name, f"{comparison.rows:,} rows, {equal}"
    yield "departures", _describe_changes(outcome.changes)
    yield "seconds", f"{outcome.total_s:.1f}, of them {outcome.streamed_s:.1f} for {len(recoveries) + 3} drivers"


def _describe_changes(changes: Changes) -> str:
    counts = changes.counts
    found = f"{' and '.join(changes.readers)} find exactly the {changes.left:,} that are left"
    return (
        f"{counts['c']:,} planned, {counts['u']:,} updated with their delays, {counts['d']:,} deleted; killed in "
        f"epoch {changes.killed_in}\n[green]{found}[/]"
    )


def _describe_epochs(figures: Figures) -> str:
    epochs = f"{len(figures.landings_ms)}, in {_count(figures.snapshots, 'snapshot')}"
    if len(figures.landings_ms) == MONTHS:
        return epochs
    # Spark's file source notes what it takes before Spark begins the epoch.
    return f"{epochs}; a kill between the source and the epoch made Spark put {MONTHS} months into fewer epochs"


def print_hints(console: Console, outcome: Outcome) -> None:
    """Print how to look at the tables, ready to paste."""
    warehouse, metadata = outcome.folder / "warehouse", outcome.figures.metadata
    texts = {
        "PyIceberg": f"""\
from pyiceberg.catalog.sql import SqlCatalog
catalog = SqlCatalog("default", uri="sqlite:///{warehouse}/catalog.db", warehouse="file://{warehouse}")
flights = catalog.load_table("nyc.flights")
for snapshot in flights.snapshots():
    print(snapshot.summary["spark.sql.streaming.epochId"], snapshot.summary["added-records"])
print(flights.scan(row_filter="dest == 'HNL'").to_pandas())""",
        "DuckDB": f"""\
INSTALL iceberg; LOAD iceberg;
FROM iceberg_scan('{metadata.removeprefix("file://")}') SELECT origin, count(*) GROUP BY origin;""",
        "Iceberg's Spark runtime (a jar for Spark up to 4.1)": f"""\
spark.read.format("iceberg").load("{metadata}").groupBy("origin").count().show()""",
    }
    where = f"The tables are in {warehouse}, the drivers' logs in {outcome.folder / 'logs'}."
    console.print(where, soft_wrap=True, markup=False, highlight=False)
    for name, text in texts.items():
        console.print(f"\n[bold]{name}[/]", highlight=False)
        console.print(text, soft_wrap=True, markup=False, highlight=False)
