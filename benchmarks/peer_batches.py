"""The micro-batches of `bench_peer.py`: whole triggers, as Spark itself times them (`durationMs.triggerExecution`).

Both sides read Spark's rate source and run one query after the other, each into a new table, with a trigger that
never waits. The sink runs in a warm session of its own, with the Spark that the project is developed with, for which
no runtime exists; and, for some loads, in the session of the runtime as well.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from harness import Sample, Settings, load_average
from peer_place import NAMESPACE, Place
from remote import Remote

TABLE = f"{NAMESPACE}.s"
ROWS = (1_000, 100_000)
WARMING = 2
# The loads of which the sink is measured in the runtime's session, too.
SHARED = ((1_000, 2), (1_000, 64))
VARIANTS = {
    "ours": "icebergsink, Spark of the project",
    "ours-same-session": "icebergsink, Spark of the runtime",
    "jvm": "Iceberg's Spark runtime",
}


def label(rows: int, tasks: int) -> str:
    """Return how results name micro-batches of so many rows in so many tasks."""
    return f"{rows:,} rows, {tasks} task{'s' if tasks > 1 else ''}"


def measure(settings: Settings, scratch: Path) -> list[Sample]:
    """Run a query of each side for every load in every round, beginning with another side each time.

    One round before them, of one load, is not counted.
    """
    place = Place(folder=scratch / "batches")
    samples = []
    loads = [(rows, tasks) for rows in ROWS for tasks in settings.tasks]
    with place.session_of_both() as both, place.session_of_sink() as own:
        for number in range(settings.rounds + 1):
            for rows, tasks in loads if number else loads[:1]:
                names = [name for name in VARIANTS if name != "ours-same-session" or (rows, tasks) in SHARED]
                shift = number % len(names)
                for variant in (*names[shift:], *names[:shift]):
                    load = load_average()
                    session = own if variant == "ours" else both
                    told = {"rows": rows, "tasks": tasks, "warming": WARMING, "batches": settings.batches}
                    found = _run(place, both, session, variant, told)
                    value = statistics.median(found.pop("triggers"))
                    print(f"round {number}, {label(rows, tasks)}, {variant}: {value:.0f} ms", flush=True)
                    if number:  # the first warms up
                        details = {**found, "load_before": load}
                        case = label(rows, tasks)
                        samples.append(Sample(case=case, variant=variant, round=number, value=value, details=details))
    return samples


def _run(place: Place, both: Remote, session: Remote, variant: str, load: dict[str, int]) -> dict[str, Any]:
    """Run one query and check its table.

    Raises:
        RuntimeError: Rows are missing or there twice, or another sink wrote them.
    """
    both.ask("sql", statement=f"CREATE TABLE {TABLE} (timestamp timestamp, value bigint) USING iceberg")
    sink = "iceberg" if variant == "jvm" else "icebergsink"
    options = {} if variant == "jvm" else place.options
    found: dict[str, Any] = session.ask("stream", sink=sink, table=TABLE, options=options, load=load)
    ((rows, distinct),) = both.ask("sql", statement=f"SELECT count(*), count(DISTINCT value) FROM {TABLE}")  # noqa: S608
    snapshots = both.ask(
        "sql",
        statement="SELECT summary['engine-name'], CAST(summary['added-data-files'] AS int), "  # noqa: S608
        f"CAST(summary['added-files-size'] AS bigint) FROM {TABLE}.snapshots",
    )
    both.ask("sql", statement=f"DROP TABLE {TABLE} PURGE")
    # Spark may be stopped after a commit and before it has recorded it.
    if rows != distinct or rows // load["rows"] - found["committed"] not in (0, 1) or rows % load["rows"]:
        raise RuntimeError(f"{variant}, {load}: {rows} rows after {found['committed']} micro-batches")
    if {engine for engine, _, _ in snapshots} != {"spark" if variant == "jvm" else "icebergsink"}:
        raise RuntimeError(f"{variant}, {load}: another sink has written the table: {snapshots[0]}")
    return {
        "triggers": found["triggers"],
        "add_batch_ms": found["median_add_batch"],
        "lowest_ms": min(found["triggers"]),
        "highest_ms": max(found["triggers"]),
        "files": statistics.median(files for _, files, _ in snapshots),
        "bytes": statistics.median(size for _, _, size in snapshots),
    }
