"""What does a micro-batch from one table to another take, beside source and sink of Iceberg's own Spark runtime?

    python benchmarks/bench_source.py --rounds 5 --keys 1000 --batches 20

One warm session of the runtime's Spark has both. A table gets a file of `--keys` rows in each of its snapshots, and a
stream of each side copies it into a new one, a file in a micro-batch, with a trigger that never waits: what counts are
whole triggers, as Spark itself times them. The copy has to have each row once. One round before is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from peer_place import NAMESPACE
from upsert_cases import TABLE, Bench, prepared

QUESTION = "What does a micro-batch from one table to another take, beside Iceberg's own Spark runtime?"
USES = {
    "keys": "rows of a micro-batch",
    "batches": "",
    "rounds": "one more is run first, not counted",
}
VARIANTS: Mapping[str, str] = {"jvm": "source and sink of the runtime", "ours": "icebergsource and icebergsink"}
_COPY = f"{NAMESPACE}.copied"
_WARMING = 2
_MARK = 1.0  # at most so many times the runtime's time
_CASE = "micro-batch"


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Copy the table by each in every round, beginning with the other one each time.

    Raises:
        RuntimeError: A copy lacks rows, or has some twice.
    """
    batches = _WARMING + settings.batches
    for number in range(1, batches):  # the table has the first snapshot
        columns, first = f"id + {number * settings.keys} AS id, * EXCEPT (id)", f"{TABLE} VERSION AS OF {bench.base}"
        bench.sql(f"INSERT INTO {TABLE} SELECT {columns} FROM {first}")  # noqa: S608  # no outside input
    samples = []
    load = {"warming": _WARMING, "batches": settings.batches}
    for number in range(settings.rounds + 1):
        for variant in list(VARIANTS)[:: -1 if number % 2 else 1]:
            sample = _sample(bench, variant, number, load)
            ((rows, distinct),) = bench.sql(f"SELECT count(*), count(DISTINCT id) FROM {_COPY}")  # noqa: S608
            if rows != distinct or rows != batches * settings.keys:
                raise RuntimeError(f"{variant}, round {number}: {rows} rows, {distinct} of them different")
            bench.sql(f"DROP TABLE {_COPY} PURGE")
            samples += [sample] if number else []
    return samples


def _sample(bench: Bench, variant: str, number: int, load: Mapping[str, int]) -> Sample:
    bench.sql(f"CREATE TABLE {_COPY} USING iceberg AS SELECT * FROM {TABLE} LIMIT 0")  # noqa: S608
    busy = load_average()
    options = bench.place.options
    found = bench.session.ask("copy", table=TABLE, variant=variant, target=_COPY, options=options, load=load)
    triggers = found["triggers"]
    value = statistics.median(triggers)
    print(f"round {number}, {variant}: {value:.0f} ms ({min(triggers)}-{max(triggers)})", flush=True)
    details = {"lowest_ms": min(triggers), "highest_ms": max(triggers), "load_before": busy}
    return Sample(case=_CASE, variant=variant, round=number, value=value, details=details)


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str]) -> Report:
    """Return the copies as a table."""
    times = Spread.of(ratios(samples, (_CASE, "ours"), (_CASE, "jvm")))
    verdict = "met" if times.median <= _MARK else "not met"
    return Report(
        name="source",
        question=QUESTION,
        unit="milliseconds",
        samples=samples,
        header=("by", "milliseconds of a micro-batch: median of the rounds' medians (min-max)"),
        lines=[
            [by, spread.show(0)]
            for variant, by in VARIANTS.items()
            if (spread := spread_of(samples, _CASE, variant)) is not None
        ],
        notes=(
            f"{times.show()} of the runtime's time; the mark is {_MARK:.1f}: {verdict}.",
            (
                f"{settings.rounds} rounds of {settings.batches} micro-batches of {settings.keys:,} rows, local[2], "
                f"both in turn in a warm session: Spark {versions['spark']}, Iceberg {versions['iceberg']}."
            ),
        ),
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    begun = time.monotonic()
    with (
        scratch_folder(settings) as scratch,
        prepared(replace(settings, rows=settings.keys), scratch / "source", 1, script="read_server.py") as bench,
    ):
        samples = measure(bench, settings)
        versions = bench.session.ask("versions")
    print(f"the whole took {time.monotonic() - begun:.0f} s", flush=True)
    write_report(settings, host, report(settings, samples, versions))


if __name__ == "__main__":
    main()
