"""What does it take to read what snapshots changed, beside the changelog view of Iceberg's own Spark runtime?

    python benchmarks/bench_changes.py --rounds 3 --rows 999983 --keys 1000 --snapshots 5,20

One warm session of the runtime's Spark has both. A table of `--rows` rows in 8 files is changed by so many snapshots
as `--snapshots` say: by appends, by copy-on-write updates of the runtime, and by equality deletes of the sink, `--keys`
rows each. Then the changes are read with their updates, all columns, and counted by their kind, planning included. The
runtime refuses to read changes of tables with delete files. The counts have to be the same. One round before is not
counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from charts import Bar, Chart, draw
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
from upsert_cases import TABLE, Bench, prepared

QUESTION = "What does it take to read what snapshots changed, beside Iceberg's own Spark runtime?"
USES = {
    "rows": "of the table",
    "keys": "rows that a snapshot changes",
    "snapshots": "that are read",
    "rounds": "one more is run first, not counted",
}
VARIANTS: Mapping[str, str] = {"jvm": "the runtime", "spark": "iceberg_ds.read_changes"}
_FILES = 8
_KEYED = "equality deletes"


def _append(bench: Bench, settings: Settings, number: int) -> None:
    where = f"id BETWEEN {number * settings.keys} AND {(number + 1) * settings.keys - 1}"
    columns = "id + 100000000 AS id, * EXCEPT (id)"
    bench.sql(f"INSERT INTO {TABLE} SELECT {columns} FROM {TABLE} WHERE {where}")  # noqa: S608  # no outside input


def _update(bench: Bench, settings: Settings, number: int) -> None:
    one_in = settings.rows // settings.keys
    bench.sql(f"UPDATE {TABLE} SET units = units + 1 WHERE pmod(xxhash64(id), {one_in}) = {number}")  # noqa: S608


def _write_keys(bench: Bench, settings: Settings, number: int) -> None:
    source = f"keys_{number}"
    bench.session.ask("changes", name=source, order="random", number=number + 1, keys=settings.keys, rows=settings.rows)
    bench.write("ours", source)


_CASES: Mapping[str, Callable[[Bench, Settings, int], None]] = {
    "appends": _append,
    "copy-on-write updates": _update,
    _KEYED: _write_keys,
}


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Read the changes of every case by each in turn, beginning with another one in each round.

    Raises:
        RuntimeError: The counts differ.
    """
    samples = []
    bench.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    for case, change in _CASES.items():
        bench.set_back(bench.base, expires=False)
        done = 0
        for snapshots in settings.snapshots:
            for number in range(done, snapshots):
                change(bench, settings, number)
            done = snapshots
            names = [name for name in VARIANTS if name != "jvm" or case != _KEYED]
            for number in range(settings.rounds + 1):
                answers = set()
                for variant in names[:: -1 if number % 2 else 1]:
                    sample, answer = _sample(bench, _label(case, snapshots), variant, number)
                    answers.add(str(answer))
                    samples += [sample] if number else []
                if len(answers) != 1:
                    raise RuntimeError(f"{case}, {snapshots} snapshots, round {number}: other changes: {answers}")
    return samples


def _sample(bench: Bench, case: str, variant: str, number: int) -> tuple[Sample, Any]:
    load = load_average()
    measured = bench.session.ask(
        "read_changes", table=TABLE, variant=variant, start=bench.base, options=bench.place.options
    )
    seconds, answer = measured.pop("seconds"), bench.session.ask("answer")
    print(f"round {number}, {case}, {variant}: {seconds:.2f} s, {answer}", flush=True)
    details = {**measured, "load_before": load}
    return Sample(case=case, variant=variant, round=number, value=seconds, details=details), answer


def _label(case: str, snapshots: int) -> str:
    return f"{snapshots} {case}"


def _labels(settings: Settings) -> list[str]:
    return [_label(case, snapshots) for case in _CASES for snapshots in settings.snapshots]


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str]) -> Report:
    """Return the reads as a table."""
    notes = []
    for label in _labels(settings):
        if times := ratios(samples, (label, "spark"), (label, "jvm")):
            notes.append(f"{label}: {Spread.of(times).show()} of the runtime's time.")
        else:
            notes.append(f"{label}: the runtime refuses to read changes of tables with delete files.")
    return Report(
        name="changes",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=("snapshots", "by", "seconds: median (min-max)"),
        lines=[
            [label, by, spread.show()]
            for label in _labels(settings)
            for variant, by in VARIANTS.items()
            if (spread := spread_of(samples, label, variant)) is not None
        ],
        notes=(
            *notes,
            (
                f"{settings.rounds} rounds, local[2], both in turn in a warm session: Spark {versions['spark']}, "
                f"Iceberg {versions['iceberg']}. A table of {settings.rows:,} rows in {_FILES} files; about "
                f"{settings.keys:,} rows change in a snapshot."
            ),
        ),
    )


def chart(settings: Settings, samples: Sequence[Sample]) -> Chart:
    """Return the reads as bars."""
    bars = [
        Bar(label=f"{label}, {by}", group=variant, spread=spread)
        for label in _labels(settings)
        for variant, by in VARIANTS.items()
        if (spread := spread_of(samples, label, variant)) is not None
    ]
    return Chart(title="Reading the changes of snapshots, two cores", axis="seconds", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    begun = time.monotonic()
    with (
        scratch_folder(settings) as scratch,
        prepared(settings, scratch / "changes", _FILES, script="read_server.py") as bench,
    ):
        samples = measure(bench, settings)
        versions = bench.session.ask("versions")
    print(f"the whole took {time.monotonic() - begun:.0f} s", flush=True)
    write_report(settings, host, report(settings, samples, versions))
    draw(settings.results_dir / "changes.png", chart(settings, samples))


if __name__ == "__main__":
    main()
