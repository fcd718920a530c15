"""What do tables of format version 3 cost beside those of version 2, and beside Iceberg's own Spark runtime?

    python benchmarks/bench_version_3.py --rounds 5 --rows 10000000 --keys 100000 --read-epochs 1,10 --files 50000

One warm session of the runtime's Spark has both. Two tables of the same `--rows` rows, one of each version, in 16 files
of neighbouring keys and without partitions, take the same changes of `--keys` keys (of ten, eight are updates, one is a
delete, one an insert): by `iceberg_ds.upsert`, which writes position deletes in version 2 and deletion vectors in
version 3, and by MERGE INTO, merge-on-read. All begin with the same rows and come to the same rows, which is checked.
One round before is not counted. Then each table takes epoch after epoch of such changes by `iceberg_ds.upsert`, and is
read after some of them by the runtime and by `iceberg_ds.read`. Last come commits and plans of reads of tables of
`--files` files, the last number if there are several: each in a process of its own, onto files that are made up.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from charts import Bar, Chart, draw
from harness import (
    MEGABYTE,
    Report,
    Sample,
    Settings,
    cell,
    load_average,
    machine,
    parse_arguments,
    ratio_of,
    run_case,
    scratch_folder,
    shown,
    spread_of,
    write_report,
)
from peer_tables import median_of
from upsert_cases import TABLE, Bench, filled, prepared, read_label

QUESTION = "What do upserts take in tables of format version 3, beside version 2 and Iceberg's own Spark runtime?"
READ_QUESTION = "What does it take to read a table with deletion vectors, beside one with position delete files?"
COMMIT_QUESTION = "What do manifests of format version 3 cost, beside those of version 2?"
USES = {
    "rows": "of the table",
    "rounds": "one more is run first and not counted, but of commits",
    "keys": "of a write, and of each epoch before a read",
    "orders": "",
    "read-epochs": "",
    "files": "of a table whose manifests are read: the last number",
}
_OF_VERSION_3 = f"{TABLE}_v3"
VERSIONS = (2, 3)
_MANY_MANIFESTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A way to write.

    Attributes:
        label: How results name it.
        version: Format version of the table.
        variant: The way, as `upsert_cases` names it.
    """

    label: str
    version: int
    variant: str


OURS, THEIRS = "iceberg_ds.upsert", "MERGE INTO, merge-on-read"
JOBS: Mapping[str, Job] = {
    "ours-v2": Job(label=f"{OURS}, position deletes, version 2", version=2, variant="ours-position"),
    "ours-v3": Job(label=f"{OURS}, deletion vectors, version 3", version=3, variant="ours-vectors"),
    "ours-v2-again": Job(label=f"{OURS}, version 2 once more: the noise", version=2, variant="ours-position"),
    "jvm-v2": Job(label=f"{THEIRS}, version 2", version=2, variant="jvm-mor"),
    "jvm-v3": Job(label=f"{THEIRS}, version 3", version=3, variant="jvm-mor"),
}
LATER = "random keys, onto earlier deletes"
READERS: Mapping[str, str] = {"jvm": "the runtime", "spark": "iceberg_ds.read"}
QUERIES: Mapping[str, str] = {
    "sums of two columns": "SELECT count(*), sum(units), sum(CAST(amount * 100 AS BIGINT)) FROM rows_read",
    "all columns": "",
}
# Version 3 takes at most so many times the time of version 2, and MERGE INTO at least so many times that of ours.
_MOST, _LEAST_OF_MERGE = 1.0, 5.0


def measure_writes(tables: Mapping[int, Bench], settings: Settings) -> list[Sample]:
    """Write the changes of each order in each of the ways in every round, beginning with another way each time.

    Raises:
        RuntimeError: The ways do not come to the same rows.
    """
    samples = []
    names = list(JOBS)
    for number in range(settings.rounds + 1):
        shift = number % len(names)
        for order in settings.orders:
            source = f"{order}_{number}"
            _change(tables, settings, source, order=order, number=number)
            found: dict[str, list[list[Any]]] = {}
            for name in (*names[shift:], *names[:shift]):
                job = JOBS[name]
                bench = tables[job.version]
                sample = _write(bench, f"{order} keys", name, number, source)
                found[name] = bench.totals()
                bench.set_back(bench.base)
                samples += [sample] if number else []
            if len({str(totals) for totals in found.values()}) != 1:
                raise RuntimeError(f"{order} keys, round {number}: other rows in each way: {found}")
    return samples


def _change(tables: Mapping[int, Bench], settings: Settings, source: str, *, order: str, number: int) -> None:
    session = tables[VERSIONS[0]].session
    session.ask("changes", name=source, order=order, number=number, keys=settings.keys, rows=settings.rows)


def _write(bench: Bench, case: str, name: str, number: int, source: str) -> Sample:
    bench.wake()
    load = load_average()
    measured = bench.write(JOBS[name].variant, source)
    seconds = measured.pop("seconds")
    print(f"round {number}, {case}, {name}: {seconds:.2f} s", flush=True)
    details = {**measured, **bench.files(), "load_before": load}
    return Sample(case=case, variant=name, round=number, value=seconds, details=details)


def measure_epochs(tables: Mapping[int, Bench], settings: Settings) -> tuple[list[Sample], list[Sample]]:
    """Write epochs into the table of each version by `iceberg_ds.upsert`; return these writes, and reads of both.

    Each epoch after the first is a round of the writes onto earlier deletes.

    Raises:
        RuntimeError: The tables have other rows.
    """
    writes = []
    reads = _read(tables, settings, read_label(0))
    for number in range(1, max(settings.read_epochs) + 1):
        source = f"epoch_{number}"
        _change(tables, settings, source, order="random", number=number)
        for name in ("ours-v2", "ours-v3") if number % 2 else ("ours-v3", "ours-v2"):
            sample = _write(tables[JOBS[name].version], LATER, name, number, source)
            writes += [sample] if number > 1 else []
        if number in settings.read_epochs:
            totals = [bench.totals() for bench in tables.values()]
            if totals[0] != totals[1]:
                raise RuntimeError(f"{read_label(number)}: other rows in each version: {totals}")
            reads += _read(tables, settings, read_label(number))
    return writes, reads


def _read(tables: Mapping[int, Bench], settings: Settings, after: str) -> list[Sample]:
    samples = []
    ways = [(reader, version) for reader in READERS for version in VERSIONS]
    for number in range(settings.rounds + 1):
        shift = number % len(ways)
        for query, statement in QUERIES.items():
            answers = set()
            for reader, version in (*ways[shift:], *ways[:shift]):
                bench = tables[version]
                told = {"table": bench.table, "variant": reader, "query": statement, "options": bench.place.options}
                load = load_average()
                measured = bench.session.ask("read", **told)
                answers.add(str(bench.session.ask("answer")))
                details = {**measured, "load_before": load}
                seconds = details.pop("seconds")
                name = _reader(reader, version)
                print(f"round {number}, after {after}, {query}, {name}: {seconds:.2f} s", flush=True)
                case = _read_case(after, query)
                sample = Sample(case=case, variant=name, round=number, value=seconds, details=details)
                samples += [sample] if number else []
            if len(answers) != 1:
                raise RuntimeError(f"after {after}, {query}, round {number}: other answers in each way: {answers}")
    return samples


def _reader(reader: str, version: int) -> str:
    return f"{reader}-v{version}"


def _read_case(after: str, query: str) -> str:
    return f"{after}: {query}"


def commit_cases(settings: Settings) -> dict[str, dict[str, object]]:
    """Return what is done with manifests, by label, as `commit_case.py` takes it."""
    files = settings.files[-1]
    one = {"snapshots": 10, "manifests": 1}
    return {
        "commit of 1 file to 1,000 snapshots, 1,000 manifests": {
            "files": 1,
            "snapshots": _MANY_MANIFESTS,
            "manifests": _MANY_MANIFESTS,
        },
        f"commit of {files:,} files": {**one, "files": files},
        f"removal of 1 file of {files:,}": {**one, "files": files, "work": "drop"},
        f"plan of a read of {files:,} files": {**one, "files": files, "work": "plan"},
        f"plan of a read of {files:,} files, each with deletes": {
            **one,
            "files": files,
            "work": "plan",
            "deletes": True,
        },
    }


def measure_commits(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure every case of both versions in every round, in a process of its own each."""
    samples = []
    folder = scratch / "commit"
    for number in range(1, settings.rounds + 1):
        for label, case in commit_cases(settings).items():
            for version in sorted(VERSIONS, reverse=bool(number % 2)):
                told = {"variant": "ours", "folder": str(folder), "version": version, **case}
                details = run_case("commit_case.py", told)
                shutil.rmtree(folder)
                value = details["seconds"] * 1000
                print(f"round {number}, {label}, version {version}: {value:.0f} ms", flush=True)
                samples.append(Sample(case=label, variant=f"v{version}", round=number, value=value, details=details))
    return samples


def _at_most(samples: Sequence[Sample], case: str, what: str, above: str, below: str) -> list[str]:
    """Return a sentence about the mark for version 3, none if it was not measured."""
    found = ratio_of(samples, (case, above), (case, below))
    if found is None:
        return []
    verdict = "met" if found.median <= _MOST else "not met"
    return [
        f"{case}: {what} in version 3 takes {found.show()} x as long as in version 2; at most {_MOST:.1f}: {verdict}."
    ]


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str], seconds: float) -> Report:
    """Return the writes as a table."""
    cases = list(dict.fromkeys(sample.case for sample in samples))
    notes = [text for case in cases for text in _at_most(samples, case, OURS, "ours-v3", "ours-v2")]
    for case in cases:
        speed = ratio_of(samples, (case, "jvm-v3"), (case, "ours-v3"))
        if speed is not None:
            verdict = "met" if speed.median >= _LEAST_OF_MERGE else "not met"
            what = f"{OURS} in version 3 is {speed.show()} x as fast as {THEIRS} in version 3"
            notes.append(f"{case}: {what}; at least {_LEAST_OF_MERGE:.0f}: {verdict}.")
    return Report(
        name="version-3",
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
                job.label,
                shown(spread_of(samples, case, name)),
                cell(median_of(samples, case, name, "added-files-size"), MEGABYTE, 1),
                cell(median_of(samples, case, name, "added-data-files")),
                cell(median_of(samples, case, name, "added-delete-files")),
                shown(ratio_of(samples, (case, name), (case, "ours-v2"))),
            ]
            for case in cases
            for name, job in JOBS.items()
            if spread_of(samples, case, name) is not None
        ],
        notes=(
            *notes,
            (
                f"{settings.rounds} rounds, local[2]; all in turn in a warm session: Spark {versions['spark']}, "
                f"Iceberg {versions['iceberg']}. Tables of {settings.rows:,} rows, {settings.keys:,} changes a write."
            ),
            f"Onto earlier deletes: epochs 2 to {max(settings.read_epochs)} in a row, a round each.",
            f"The whole took {seconds:.0f} s, checks, reads and commits included.",
        ),
    )


def reads_report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str]) -> Report:
    """Return the reads as a table."""
    cases = [_read_case(read_label(count), query) for count in (0, *settings.read_epochs) for query in QUERIES]
    ways = {_reader(reader, version): (label, version) for reader, label in READERS.items() for version in VERSIONS}
    notes = [
        text
        for case in cases[len(QUERIES) :]  # before any epoch it is the noise
        for reader, label in READERS.items()
        for text in _at_most(samples, case, f"a read by {label}", _reader(reader, 3), _reader(reader, 2))
    ]
    return Report(
        name="version-3-reads",
        question=READ_QUESTION,
        unit="seconds",
        samples=samples,
        header=("after", "by", "version", "seconds: median (min-max)", "time / that of version 2, per round"),
        lines=[
            [
                case,
                label,
                str(version),
                shown(spread_of(samples, case, name)),
                shown(ratio_of(samples, (case, name), (case, name.replace("-v3", "-v2")))),
            ]
            for case in cases
            for name, (label, version) in ways.items()
        ],
        notes=(
            *notes,
            (
                f"Each epoch changes {settings.keys:,} random keys of {settings.rows:,} rows, by {OURS}. "
                f"{settings.rounds} rounds, local[2], Spark {versions['spark']}, Iceberg {versions['iceberg']}."
            ),
        ),
    )


def commits_report(settings: Settings, samples: Sequence[Sample]) -> Report:
    """Return what is done with manifests as a table."""
    cases = list(commit_cases(settings))
    return Report(
        name="version-3-commits",
        question=COMMIT_QUESTION,
        unit="milliseconds",
        samples=samples,
        header=("what", *(f"version {version}, ms: median (min-max)" for version in VERSIONS), "3 / 2, per round"),
        lines=[
            [
                case,
                *(shown(spread_of(samples, case, f"v{version}"), 0) for version in VERSIONS),
                shown(ratio_of(samples, (case, "v3"), (case, "v2"))),
            ]
            for case in cases
        ],
        notes=(
            (
                f"{settings.rounds} rounds; each measurement is one commit or plan in a fresh process, table load "
                "included. Files are made up, manifests are real; the files of a table that is planned came in ten "
                "commits. Deletes are what an upsert leaves in each: a position delete file for all its files in "
                "version 2, a deletion vector for each file in version 3."
            ),
        ),
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the writes as bars."""
    bars = [
        Bar(label=f"{case}: {job.label}", group="ours" if name.startswith("ours") else name, spread=spread)
        for case in dict.fromkeys(sample.case for sample in samples)
        for name, job in JOBS.items()
        if (spread := spread_of(samples, case, name)) is not None
    ]
    return Chart(title="Changing rows by key in versions 2 and 3, two cores", axis="seconds", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    settings = replace(settings, files=settings.files[-1:])
    host, begun = machine(), time.monotonic()
    with scratch_folder(settings) as scratch:
        with prepared(settings, scratch / "version-3", script="read_server.py") as bench:
            tables = {2: bench, 3: filled(replace(bench, table=_OF_VERSION_3), settings, version=3)}
            samples = measure_writes(tables, settings)
            later, reads = measure_epochs(tables, settings)
            versions = bench.session.ask("versions")
        commits = measure_commits(settings, scratch)
    samples += later
    write_report(settings, host, report(settings, samples, versions, time.monotonic() - begun))
    write_report(settings, host, reads_report(settings, reads, versions))
    write_report(settings, host, commits_report(settings, commits))
    draw(settings.results_dir / "version-3.png", chart(samples))


if __name__ == "__main__":
    main()
