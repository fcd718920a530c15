"""What does it take to make large files of many small ones, beside rewrite_data_files of Iceberg's own Spark runtime?

    python benchmarks/bench_rewrites.py --rounds 3 --rows 10000000 --files 2000

One warm session of the runtime's Spark has both. A table of `--rows` rows lies in `--files` files, the last number if
there are several. It is rewritten as it is, in the order of its files and sorted; then with a tenth of its rows deleted
by position, and then with a tenth of them changed by equality deletes. Every rewrite begins with the same snapshot, and
the table's rows are summed up after each. One round before is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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
from peer_tables import median_of
from upsert_cases import TABLE, Bench, prepared

QUESTION = "What does it take to rewrite small data files, beside Iceberg's own Spark runtime?"
USES = {
    "rows": "of the table",
    "files": "of the table: the last number",
    "rounds": "one more is run first, not counted",
}
VARIANTS: Mapping[str, str] = {"ours": "iceberg_ds.rewrite_data_files", "jvm": "CALL rewrite_data_files"}
_SORT_ORDER = "units, at"
PLAIN, SORTED, POSITIONS, KEYS = "as it is", "sorted", "a tenth deleted by position", "a tenth changed by key"
# Ours has to be so many times as fast.
_MARKS = {PLAIN: 1.2, SORTED: 1.0, POSITIONS: 1.2, KEYS: 1.2}


def _delete_by_position(bench: Bench, settings: Settings) -> None:
    del settings
    bench.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    bench.sql(f"DELETE FROM {TABLE} WHERE pmod(xxhash64(id), 10) = 0")  # noqa: S608  # no outside input


def _change_by_key(bench: Bench, settings: Settings) -> None:
    keys = settings.rows // 10
    bench.session.ask("changes", name="tenth", order="random", number=1, keys=keys, rows=settings.rows)
    bench.write("ours", "tenth")


# What is done to the table before it is rewritten in each way: those of a case begin with one snapshot.
_CASES: Sequence[tuple[Callable[[Bench, Settings], None] | None, Sequence[str]]] = (
    (None, (PLAIN, SORTED)),
    (_delete_by_position, (POSITIONS,)),
    (_change_by_key, (KEYS,)),
)


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Rewrite the table in every case by both in each round, beginning with the other one each time.

    Raises:
        RuntimeError: A rewrite has changed the rows.
    """
    samples = []
    for prepare, cases in _CASES:
        bench.set_back(bench.base, expires=False)
        if prepare is not None:
            prepare(bench, settings)
        base = bench.head()
        expected = bench.totals()
        for number in range(settings.rounds + 1):
            names = list(VARIANTS) if number % 2 else list(VARIANTS)[::-1]
            for case in cases:
                for variant in names:
                    sample = _sample(bench, case, variant, number)
                    if (found := bench.totals()) != expected:
                        raise RuntimeError(f"{case}, {variant}, round {number}: {found} instead of {expected}")
                    bench.set_back(base, expires=False)
                    samples += [sample] if number else []
    return samples


def _sample(bench: Bench, case: str, variant: str, number: int) -> Sample:
    bench.wake()
    load = load_average()
    measured = bench.rewrite(variant, _SORT_ORDER if case == SORTED else None)
    details = {**measured, **bench.files(), "load_before": load}
    seconds = details.pop("seconds")
    print(f"round {number}, {case}, {variant}: {seconds:.2f} s, {details['added-data-files']:.0f} files", flush=True)
    return Sample(case=case, variant=variant, round=number, value=seconds, details=details)


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str], megabytes: float) -> Report:
    """Return the rewrites as a table."""
    notes = []
    for case, least in _MARKS.items():
        speed = ratios(samples, (case, "jvm"), (case, "ours"))
        if speed:
            verdict = "met" if Spread.of(speed).median >= least else "not met"
            notes.append(f"{case}: {Spread.of(speed).show()} x as fast; the mark is {least:.1f} x: {verdict}.")
    return Report(
        name="rewrites",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=("table", "job", "seconds: median (min-max)", "files made", "MB made"),
        lines=[
            [
                case,
                VARIANTS[variant],
                spread.show(),
                f"{median_of(samples, case, variant, 'added-data-files') or 0:,.0f}",
                f"{(median_of(samples, case, variant, 'added-files-size') or 0) / MEGABYTE:,.1f}",
            ]
            for case in _MARKS
            for variant in VARIANTS
            if (spread := spread_of(samples, case, variant)) is not None
        ],
        notes=(
            *notes,
            (
                f"{settings.rounds} rounds, local[2], all in turn in a warm session: Spark {versions['spark']}, "
                f"Iceberg {versions['iceberg']}. A table of {settings.rows:,} rows in {settings.files[-1]:,} files of "
                f"{megabytes:,.0f} MB."
            ),
        ),
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the rewrites as bars."""
    bars = [
        Bar(label=f"{case}: {label}", group=variant, spread=spread)
        for case in _MARKS
        for variant, label in VARIANTS.items()
        if (spread := spread_of(samples, case, variant)) is not None
    ]
    return Chart(title="Rewriting small data files, two cores", axis="seconds", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    if settings.files[-1] < 1:
        raise SystemExit("--files must be above 0")
    settings = replace(settings, files=settings.files[-1:])
    host = machine()
    begun = time.monotonic()
    with (
        scratch_folder(settings) as scratch,
        prepared(settings, scratch / "rewrites", settings.files[-1]) as bench,
    ):
        ((size,),) = bench.sql(f"SELECT sum(file_size_in_bytes) FROM {TABLE}.files")  # noqa: S608  # no outside input
        samples = measure(bench, settings)
        versions = bench.session.ask("versions")
    print(f"the whole took {time.monotonic() - begun:.0f} s", flush=True)
    write_report(settings, host, report(settings, samples, versions, size / MEGABYTE))
    draw(settings.results_dir / "rewrites.png", chart(samples))


if __name__ == "__main__":
    main()
