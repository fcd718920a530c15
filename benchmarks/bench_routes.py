"""What does it take to write one DataFrame into many tables?

    python benchmarks/bench_routes.py --rounds 5 --rows 1000000

One warm session of Iceberg's runtime and of the sink appends the lineitem-like set to 1, 10 and 100 tables that are
there: the sink in one pass by `route-by`; the runtime as its users write it in `foreachBatch`, rows kept in
memory and a filtered write for each table; and the sink without a route, into the one table. Then the sink alone
writes one row to each of 10, 100 and 1,000 tables, first new ones, then those that are there: what the driver takes for
a table. The order rotates from round to round, and a round before them is not counted. Spark ends Python workers that
had nothing to do for a minute, as while the other side writes: each side writes a few rows before it is timed. Every
table is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from charts import Bar, Chart, draw
from datasets import set_folder
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
    spread_of,
    write_report,
)
from peer_place import CATALOG, NAMESPACE, Place
from pyiceberg.catalog import load_catalog
from remote import Remote

QUESTION = "What does it take to write one DataFrame into many tables?"
USES = {"rounds": "", "rows": ""}
OURS, PLAIN, RUNTIME = "route-by", "no route", "runtime"
COUNTS = (1, 10, 100)
EACH = (10, 100, 1_000)
NEW, THERE = "new", "there"
WARM = f"{NAMESPACE}.warm"
FORMATS = {OURS: "icebergsink", PLAIN: "icebergsink", RUNTIME: "iceberg"}


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure every side of every case in every round."""
    place = Place(folder=scratch / "routes")
    source = set_folder(settings, "lineitem", settings.rows)
    with place.session_of_both() as session:
        found = session.ask("source", name="source", folder=str(source), key="l_orderkey")
        session.ask("small_source", name="few", of="source", rows=100)
        session.ask("sql", statement=f"CREATE TABLE {WARM} ({found['columns']}) USING iceberg")
        return [*_divided(settings, place, session, found), *_one_each(settings, place, session)]


def _divided(settings: Settings, place: Place, session: Remote, found: dict[str, object]) -> list[Sample]:
    samples = []
    for count in COUNTS:
        sides = [OURS, RUNTIME] if count > 1 else [OURS, PLAIN, RUNTIME]
        for number in range(settings.rounds + 1):
            for side in [*sides[number % len(sides) :], *sides[: number % len(sides)]]:
                tables = [f"{NAMESPACE}.r{count}_{number}_{sides.index(side)}_{table}" for table in range(count)]
                _make(place, session, str(found["columns"]), tables)
                _append(session, place, side, [WARM], source="few")
                load = load_average()
                taken = _append(session, place, side, tables)
                _check(place, tables, found["totals"])
                print(f"round {number}, {count} tables, {side}: {taken:.2f} s", flush=True)
                if number:
                    details = {"load_before": load}
                    samples.append(Sample(case=_case(count), variant=side, round=number, value=taken, details=details))
    return samples


def _make(place: Place, session: Remote, columns: str, tables: list[str]) -> None:
    """Make tables alike: only the first by the runtime, which takes a second for one."""
    first, *others = tables
    session.ask("sql", statement=f"CREATE TABLE {first} ({columns}) USING iceberg")
    catalog = load_catalog(CATALOG, **place.properties)
    model = catalog.load_table(first)
    for name in others:
        catalog.create_table(name, model.schema(), properties=model.properties)


def _append(session: Remote, place: Place, side: str, tables: list[str], source: str = "source") -> float:
    options = {} if side == RUNTIME else place.options
    if side == PLAIN:
        asked = {"sink": FORMATS[side], "source": source, "table": tables[0], "options": options}
        return float(session.ask("append", **asked)["seconds"])
    return float(session.ask("divide", sink=FORMATS[side], source=source, tables=tables, options=options)["seconds"])


def _check(place: Place, tables: list[str], totals: object) -> None:
    catalog = load_catalog(CATALOG, **place.properties)
    keys = [catalog.load_table(table).scan(selected_fields=("l_orderkey",)).to_arrow() for table in tables]
    found = pa.concat_tables(keys).column(0)
    if [len(found), pc.sum(found).as_py()] != totals:
        raise RuntimeError(f"{len(tables)} tables have {len(found)} rows and another sum of keys than {totals}")


def _one_each(settings: Settings, place: Place, session: Remote) -> list[Sample]:
    """Measure one row for each of many tables: what the driver takes for a table."""
    samples = []
    for count in EACH:
        for number in range(min(settings.rounds, 3)):
            tables = [f"{NAMESPACE}.e{count}_{number}_{table}" for table in range(count)]
            # Part keys are numbers without order, so the first rows name a share of the tables.
            session.ask("small_source", name="few", of="source", rows=4 * count)
            for state in (NEW, THERE):
                load = load_average()
                taken = session.ask("divide", sink="icebergsink", source="few", tables=tables, options=place.options)
                case = f"{count:,} tables, {state}"
                print(f"round {number}, {case}: {taken['seconds']:.2f} s", flush=True)
                details = {"load_before": load, **taken}
                samples.append(
                    Sample(case=case, variant=OURS, round=number + 1, value=taken["seconds"], details=details)
                )
    return samples


def _case(count: int) -> str:
    return "1 table" if count == 1 else f"{count} tables"


def report(samples: Sequence[Sample]) -> Report:
    """Return all cases as a table."""
    lines = []
    for case in dict.fromkeys(sample.case for sample in samples):
        spreads = [spread_of(samples, case, side) for side in (OURS, PLAIN, RUNTIME)]
        pairs = [ratios(samples, (case, OURS), (case, side)) for side in (PLAIN, RUNTIME)]
        lines.append(
            [
                case,
                *(spread.show(2) if spread else "-" for spread in spreads),
                *(Spread.of(found).show(2) if found else "-" for found in pairs),
            ]
        )
    return Report(
        name="routes",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=["case", "`route-by`, s", "no route, s", "runtime, s", "to no route", "to the runtime"],
        lines=lines,
        notes=[
            (
                "Ratios are taken within each round. `new` and `there`: some four rows for each table, which tables "
                "the write creates, or which are there."
            )
        ],
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the appends as bars."""
    bars = [
        Bar(label=f"{_case(count)}: {side}", group="ours" if side == OURS else side, spread=spread)
        for count in COUNTS
        for side in (OURS, PLAIN, RUNTIME)
        if (spread := spread_of(samples, _case(count), side)) is not None
    ]
    return Chart(title="One DataFrame into many tables", axis="seconds", bars=bars)


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        samples = measure(settings, scratch)
    write_report(settings, host, report(samples))
    draw(settings.results_dir / "routes.png", chart(samples))


if __name__ == "__main__":
    main()
