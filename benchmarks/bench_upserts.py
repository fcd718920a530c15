"""What does a write by keys cost beside MERGE INTO of Iceberg's own Spark runtime, and what does reading cost then?

    python benchmarks/bench_upserts.py --rounds 5 --rows 10000000 --keys 100000 --read-epochs 1,10,100

One warm session of the runtime's Spark has both. A table of `--rows` rows, in 16 files of neighbouring keys and without
partitions, takes changes of `--keys` keys (of ten, eight are updates, one is a delete, one an insert), which lie
anywhere in it or side by side: by equality deletes, as the rows come and distributed by key, and published when they
are converted; by `iceberg_ds.upsert`, position deletes and copy-on-write; and by MERGE INTO, merge-on-read and
copy-on-write. All come to the same rows, which is checked, and begin with the same snapshot, in Python workers that are
awake, as those of a stream are. One round before is not counted. Then the runtime reads the table after some epochs of
a tenth of the keys, by equality deletes and by position deletes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from charts import Bar, Chart, draw
from harness import (
    MEGABYTE,
    Report,
    Sample,
    Settings,
    cell,
    machine,
    parse_arguments,
    ratio_of,
    scratch_folder,
    shown,
    spread_of,
    write_report,
)
from peer_tables import median_of
from upsert_cases import (
    BY_POSITION,
    TREATMENTS,
    WRITES,
    measure_reads,
    measure_writes,
    prepared,
    read_label,
)

QUESTION = "What does a write by keys cost beside MERGE INTO of Iceberg's own Spark runtime?"
READ_QUESTION = "What does it cost Iceberg's own Spark runtime to read a table after epochs of changes by keys?"
USES = {
    "rows": "of the table",
    "rounds": "one more is run first and not counted",
    "keys": "a tenth in an epoch before a read",
    "orders": "",
    "read-epochs": "",
}
# Ours has to be so many times as fast, on random keys.
_MARKS = {"jvm-cow": 10.0, "jvm-mor": 5.0}
# And where it writes position deletes as well, at least as fast.
_LEAST_BY_POSITION = 1.0


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str], seconds: float) -> Report:
    """Return the writes as a table."""
    cases = dict.fromkeys((sample.case, sample.variant) for sample in samples)
    ordered = [(case, name) for case in dict.fromkeys(c for c, _ in cases) for name in WRITES if (case, name) in cases]
    return Report(
        name="upserts",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=(
            "changes",
            "job",
            "seconds: median (min-max)",
            "MB written",
            "data files",
            "delete files",
            "time / the first line's, per round",
        ),
        lines=[
            [
                case,
                WRITES[name],
                shown(spread_of(samples, case, name)),
                cell(median_of(samples, case, name, "added-files-size"), MEGABYTE, 1),
                cell(median_of(samples, case, name, "added-data-files")),
                cell(median_of(samples, case, name, "added-delete-files")),
                shown(ratio_of(samples, (case, name), (case, _first(ordered, case)))),
            ]
            for case, name in ordered
        ],
        notes=(
            *_marks(samples),
            (
                f"{settings.rounds} rounds, local[2]; all in turn in a warm session: Spark "
                f"{versions['spark']}, Iceberg {versions['iceberg']}. A table of {settings.rows:,} rows."
            ),
            f"The whole took {seconds:.0f} s, checks and reads included.",
        ),
    )


def _first(ordered: Sequence[tuple[str, str]], case: str) -> str:
    return next(name for found, name in ordered if found == case)


def _marks(samples: Sequence[Sample]) -> list[str]:
    """Return what the marks ask for and what was measured."""
    notes = []
    for variant, least in _MARKS.items():
        for ours in ("ours", "ours-distributed"):
            speed = ratio_of(samples, ("random keys", variant), ("random keys", ours))
            if speed is not None:
                verdict = "met" if speed.median >= least else "not met"
                what = f"{WRITES[ours]} is {speed.show()} x as fast as {WRITES[variant]} on random keys"
                notes.append(f"{what}; the mark is {least:.0f} x: {verdict}.")
    speed = ratio_of(samples, ("random keys", "jvm-mor"), ("random keys", "ours-position"))
    if speed is not None:
        verdict = "met" if speed.median >= _LEAST_BY_POSITION else "not met"
        what = f"{WRITES['ours-position']} is {speed.show()} x as fast as {WRITES['jvm-mor']} on random keys"
        notes.append(f"{what}; the mark is {_LEAST_BY_POSITION:.0f} x: {verdict}.")
    return notes


def reads_report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str]) -> Report:
    """Return the reads as a table."""
    cases = [read_label(count) for count in (0, *settings.read_epochs)]
    return Report(
        name="upserts-reads",
        question=READ_QUESTION,
        unit="seconds",
        samples=samples,
        header=("after", "table", "seconds: median (min-max)", "time / that before any change"),
        lines=[
            [
                case,
                name,
                shown(spread_of(samples, case, name)),
                shown(ratio_of(samples, (case, name), (cases[0], "as written"))),
            ]
            for case in cases
            for name in (*TREATMENTS, BY_POSITION)
            if spread_of(samples, case, name) is not None
        ],
        notes=(
            (
                f"Each epoch changes {max(10, settings.keys // 10):,} random keys of {settings.rows:,} rows. All are "
                f"read, four columns of six. {settings.rounds} rounds, local[2], Spark {versions['spark']}, Iceberg "
                f"{versions['iceberg']}."
            ),
        ),
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the writes as bars, on a logarithmic axis."""
    bars = [
        Bar(label=f"{case}: {label}", group="ours" if name.startswith("ours") else name, spread=spread)
        for case in dict.fromkeys(sample.case for sample in samples)
        for name, label in WRITES.items()
        if (spread := spread_of(samples, case, name)) is not None
    ]
    return Chart(title="Changing rows by key, two cores", axis="seconds", bars=bars, is_logarithmic=True)


def reads_chart(samples: Sequence[Sample]) -> Chart:
    """Return the reads as bars."""
    bars = [
        Bar(label=f"{case}: {name}", group="ours" if name == "as written" else name, spread=spread)
        for case in dict.fromkeys(sample.case for sample in samples)
        for name in (*TREATMENTS, BY_POSITION)
        if (spread := spread_of(samples, case, name)) is not None
    ]
    return Chart(title="Reading a table after epochs of changes by key, two cores", axis="seconds", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    host, begun = machine(), time.monotonic()
    with scratch_folder(settings) as scratch, prepared(settings, scratch / "upserts") as bench:
        samples = measure_writes(bench, settings)
        versions = bench.session.ask("versions")
        reads = measure_reads(bench, settings) if settings.read_epochs else []
    write_report(settings, host, report(settings, samples, versions, time.monotonic() - begun))
    draw(settings.results_dir / "upserts.png", chart(samples))
    if reads:
        write_report(settings, host, reads_report(settings, reads, versions))
        draw(settings.results_dir / "upserts-reads.png", reads_chart(reads))


if __name__ == "__main__":
    main()
