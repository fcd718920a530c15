"""What do TPC-H's 22 queries take over iceberg_ds.read, beside Iceberg's own Spark runtime?

    python benchmarks/bench_tpch.py --rounds 5 --scale-factor 1

The sink writes the tables, which `tpchgen-cli` makes. Two warm sessions of the runtime's Spark query them in turn: one
without the jar, where each table that a query names is a view of what `iceberg_ds.read` returns, read by Spark's own
Parquet reader; and one with the runtime, whose tables they are. Planning counts: views are made anew for each query.
The answers have to be the same. One round before is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from peer_place import NAMESPACE, Place
from remote import Remote
from tpch import TABLES, difference, make_tables, tables_of
from tpch_queries import queries

QUESTION = "What do TPC-H's 22 queries take over iceberg_ds.read, beside Iceberg's own Spark runtime?"
USES = {"scale-factor": "", "rounds": "one more is run first, not counted"}
OURS, JVM = "ours", "jvm"
# At most so many times the runtime's time, as the geometric mean of all queries.
_MARK = 1.0
_SCRIPT = "tpch_server.py"
_CONF = {
    "spark.driver.memory": "3g",  # there are two sessions
    "spark.sql.files.openCostInBytes": "4194304",  # Spark's own default, as users have it
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The tables, ready to be queried.

    Attributes:
        place: The catalog.
        sessions: The sessions by who reads.
    """

    place: Place
    sessions: Mapping[str, Remote]

    def fill(self, settings: Settings) -> None:
        """Let the sink write the tables."""
        folder = settings.data_dir.resolve() / f"tpch-{settings.scale_factor}"
        for table, file in make_tables(folder, settings.scale_factor).items():
            told = {"file": str(file), "table": f"{NAMESPACE}.{table}", "options": self.place.options}
            self.sessions[OURS].ask("load", **told)
        self.sessions[JVM].ask("sql", statement=f"USE {NAMESPACE}")

    def size(self) -> tuple[int, int]:
        """Return how many data files the tables have, and their bytes."""
        sizes = "SELECT count(*), sum(file_size_in_bytes) FROM"
        found = [self.sessions[JVM].ask("sql", statement=f"{sizes} {NAMESPACE}.{table}.files") for table in TABLES]
        return sum(count for ((count, _),) in found), sum(size for ((_, size),) in found)

    def run(self, reader: str, query: str) -> dict[str, Any]:
        """Run a query over the tables as one of both reads them."""
        views = {table: f"{NAMESPACE}.{table}" for table in tables_of(query)} if reader == OURS else {}
        told = {"statement": query, "views": views, "options": self.place.options}
        found: dict[str, Any] = self.sessions[reader].ask("query", **told)
        return found


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Run every query by both in each round, beginning with the other one each time.

    Raises:
        RuntimeError: The answers differ.
    """
    samples = []
    for number in range(settings.rounds + 1):
        for place, (name, query) in enumerate(queries(settings.scale_factor).items()):
            answers = {}
            for reader in (OURS, JVM) if (number + place) % 2 else (JVM, OURS):
                load = load_average()
                details = bench.run(reader, query)
                answers[reader], seconds = details.pop("answer"), details.pop("seconds")
                print(f"round {number}, {name}, {reader}: {seconds:.2f} s", flush=True)
                details["load_before"] = load
                sample = Sample(case=name, variant=reader, round=number, value=seconds, details=details)
                samples += [sample] if number else []
            if problem := difference(query, answers[OURS], answers[JVM]):
                raise RuntimeError(f"{name}, round {number}: another answer than the runtime's: {problem}")
    return samples


def by_query(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Return, for each query, how many times the runtime's time ours took in each round."""
    names = dict.fromkeys(sample.case for sample in samples)
    return {name: ratios(samples, (name, OURS), (name, JVM)) for name in names}


def mean_of_rounds(found: Mapping[str, Sequence[float]]) -> Spread:
    """Return the geometric mean of all queries' ratios, of each round."""
    return Spread.of([statistics.geometric_mean(of_round) for of_round in zip(*found.values(), strict=True)])


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str], size: tuple[int, int]) -> Report:
    """Return the queries as a table."""
    found = by_query(samples)
    mean = mean_of_rounds(found)
    verdict = "met" if mean.median <= _MARK else "not met"
    return Report(
        name="tpch",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=("query", "iceberg_ds.read, seconds: median (min-max)", "runtime, seconds", "time / runtime, per round"),
        lines=[
            [
                name,
                *(spread.show() for reader in (OURS, JVM) if (spread := spread_of(samples, name, reader))),
                Spread.of(times).show(),
            ]
            for name, times in found.items()
        ],
        notes=(
            f"Geometric mean: {mean.show()} of the runtime's time; the mark is {_MARK:.1f}: {verdict}.",
            "All answers are the runtime's.",
            (
                f"{settings.rounds} rounds, local[2], both in turn in a warm session of its own: Spark "
                f"{versions['spark']}, Iceberg {versions['iceberg']}. Scale factor {settings.scale_factor}: the sink "
                f"wrote {size[0]:,} files of {size[1] / MEGABYTE:,.0f} MB."
            ),
        ),
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the ratios as bars."""
    found = by_query(samples)
    spreads = {**{name: Spread.of(times) for name, times in found.items()}, "geometric mean": mean_of_rounds(found)}
    return Chart(
        title="TPC-H over iceberg_ds.read beside Iceberg's Spark runtime, two cores",
        axis="time / the runtime's time",
        bars=[Bar(label=label, group=OURS, spread=spread) for label, spread in spreads.items()],
        mark=(1.0, "the runtime"),
    )


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    begun = time.monotonic()
    with scratch_folder(settings) as scratch:
        place = Place(folder=scratch / "tpch")
        with (
            place.session_of_both(_CONF, _SCRIPT) as with_jar,
            place.session_without_jar(_CONF, _SCRIPT) as without_jar,
        ):
            bench = Bench(place=place, sessions={OURS: without_jar, JVM: with_jar})
            bench.fill(settings)
            size = bench.size()
            samples = measure(bench, settings)
            versions = with_jar.ask("versions")
    print(f"the whole took {time.monotonic() - begun:.0f} s", flush=True)
    write_report(settings, host, report(settings, samples, versions, size))
    draw(settings.results_dir / "tpch.png", chart(samples))


if __name__ == "__main__":
    main()
