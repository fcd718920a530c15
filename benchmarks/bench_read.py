"""What does it take to read a table by iceberg_ds.read, beside Iceberg's own Spark runtime?

    python benchmarks/bench_read.py --rounds 5 --rows 6000000 --files 10000,8

One warm session of the runtime's Spark has both. A table of `--rows` rows lies in so many files as the last number of
`--files` says. It is read as it is, then with a hundredth of its rows deleted by position, by deletion vectors (a table
of format version 3), and by equality deletes: by the runtime, by Spark's own Parquet reader, and, once without deletes,
by Python tasks. If there is another number, a table of a tenth of the rows in so many files is read, whole and by a
predicate that leaves few of them. Planning counts. The answers have to be the same. One round before is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

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

QUESTION = "What does it take to read a table, beside Iceberg's own Spark runtime?"
USES = {
    "rows": "of the table",
    "files": "of the table: the last number; of one with many files: the first",
    "rounds": "one more is run first, not counted",
}
VARIANTS: Mapping[str, str] = {
    "jvm": "the runtime",
    "spark": "iceberg_ds.read, by Spark",
    "python": "iceberg_ds.read, by Python tasks",
}
QUERIES: Mapping[str, str] = {
    "sums of two columns": "SELECT count(*), sum(units), sum(CAST(amount * 100 AS BIGINT)) FROM rows_read",
    "a filter and groups": (
        "SELECT region, count(*), sum(units) FROM rows_read WHERE at >= TIMESTAMP '2023-11-20 00:00:00' AND units < 25 "
        "GROUP BY region ORDER BY region"
    ),
    "a range of keys": "SELECT count(*), sum(units) FROM rows_read WHERE id BETWEEN 100000 AND 200000",
    "all columns": "",
}
PLAIN, POSITIONS, VECTORS, KEYS = "no deletes", "position deletes", "deletion vectors", "equality deletes"
MANY = "many files"
# At most so many times the runtime's time.
_MARKS = {PLAIN: 1.0, POSITIONS: 1.2, VECTORS: 1.2, KEYS: 1.2, MANY: 1.0}
_OF_VERSION_3, _OF_MANY_FILES = f"{TABLE}_v3", f"{TABLE}_many"
_SUMS, _RANGE = "sums of two columns", "a range of keys"
# The range is handed to `read`, so that files are passed over.
_OF_MANY: Mapping[str, str] = {_SUMS: QUERIES[_SUMS], _RANGE: "SELECT count(*), sum(units) FROM rows_read"}
# Spark's default, as the runtime has its own: other benchmarks read each file of their source in a task of its own.
_AS_USERS = {"spark.sql.files.openCostInBytes": "4194304"}
_FEW_KEYS = "id BETWEEN 10000 AND 12000"
_HUNDREDTH = "pmod(xxhash64(id), 100) = 0"


def _delete_by_position(bench: Bench, settings: Settings) -> None:
    del settings
    bench.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    bench.sql(f"DELETE FROM {TABLE} WHERE {_HUNDREDTH}")  # noqa: S608  # no outside input


def _delete_by_vector(bench: Bench, settings: Settings) -> None:
    properties = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'none'"
    empty = f"SELECT * FROM {TABLE} LIMIT 0"  # noqa: S608  # no outside input
    bench.sql(f"CREATE TABLE {_OF_VERSION_3} USING iceberg TBLPROPERTIES ({properties}) AS {empty}")
    bench.session.ask("fill", table=_OF_VERSION_3, rows=settings.rows, files=settings.files[-1])
    bench.sql(f"DELETE FROM {_OF_VERSION_3} WHERE {_HUNDREDTH}")  # noqa: S608


def _delete_by_key(bench: Bench, settings: Settings) -> None:
    keys = settings.rows // 100
    bench.session.ask("changes", name="hundredth", order="random", number=1, keys=keys, rows=settings.rows)
    bench.write("ours", "hundredth")


def _fill_many(bench: Bench, settings: Settings) -> None:
    columns = f"SELECT * FROM {TABLE} LIMIT 0"  # noqa: S608  # no outside input
    bench.sql(f"CREATE TABLE {_OF_MANY_FILES} USING iceberg AS {columns}")
    bench.sql(f"ALTER TABLE {_OF_MANY_FILES} SET TBLPROPERTIES ('write.distribution-mode' = 'none')")
    bench.session.ask("fill", table=_OF_MANY_FILES, rows=settings.rows // 10, files=settings.files[0])


# What is done before the table is read, and its queries; each begins with the snapshot without deletes.
_CASES: Mapping[str, tuple[Callable[[Bench, Settings], None] | None, str, Mapping[str, str]]] = {
    PLAIN: (None, TABLE, QUERIES),
    POSITIONS: (_delete_by_position, TABLE, QUERIES),
    VECTORS: (_delete_by_vector, _OF_VERSION_3, QUERIES),
    KEYS: (_delete_by_key, TABLE, QUERIES),
    MANY: (_fill_many, _OF_MANY_FILES, _OF_MANY),
}


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Read the table in every case by each in turn, beginning with another one in each round.

    Raises:
        RuntimeError: The answers differ.
    """
    samples = []
    for case, (prepare, table, queries) in _CASES.items():
        if case == MANY and len(settings.files) == 1:
            continue
        bench.set_back(bench.base, expires=False)
        if prepare is not None:
            prepare(bench, settings)
        names = [name for name in VARIANTS if name != "python" or case == PLAIN]
        for number in range(settings.rounds + 1):
            shift = number % len(names)
            for query, statement in queries.items():
                answers = set()
                for variant in (*names[shift:], *names[:shift]):
                    sample = _sample(bench, table, variant, (case, query, statement), number)
                    answers.add(str(bench.session.ask("answer")))
                    samples += [sample] if number else []
                if len(answers) != 1:
                    raise RuntimeError(f"{case}, {query}, round {number}: other answers in each way: {answers}")
    return samples


def _sample(bench: Bench, table: str, variant: str, what: tuple[str, str, str], number: int) -> Sample:
    case, query, statement = what
    load = load_average()
    where = _FEW_KEYS if (case, query) == (MANY, _RANGE) else None
    measured = bench.session.ask(
        "read", table=table, variant=variant, query=statement, options=bench.place.options, where=where
    )
    seconds = measured.pop("seconds")
    print(f"round {number}, {case}, {query}, {variant}: {seconds:.2f} s", flush=True)
    details = {**measured, "load_before": load}
    return Sample(case=_label(case, query), variant=variant, round=number, value=seconds, details=details)


def _label(case: str, query: str) -> str:
    return f"{case}: {query}"


def report(settings: Settings, samples: Sequence[Sample], versions: dict[str, str]) -> Report:
    """Return the reads as a table."""
    notes = []
    for case, most in _MARKS.items():
        for query in QUERIES:
            times = ratios(samples, (_label(case, query), "spark"), (_label(case, query), "jvm"))
            if times:
                verdict = "met" if Spread.of(times).median <= most else "not met"
                shown = Spread.of(times).show()
                notes.append(
                    f"{_label(case, query)}: {shown} of the runtime's time; the mark is {most:.1f}: {verdict}."
                )
    return Report(
        name="read",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=("table", "query", "by", "seconds: median (min-max)"),
        lines=[
            [case, query, label, spread.show()]
            for case in _MARKS
            for query in QUERIES
            for variant, label in VARIANTS.items()
            if (spread := spread_of(samples, _label(case, query), variant)) is not None
        ],
        notes=(
            *notes,
            (
                f"{settings.rounds} rounds, local[2], all in turn in a warm session: Spark {versions['spark']}, "
                f"Iceberg {versions['iceberg']}. A table of {settings.rows:,} rows in {settings.files[-1]:,} files, a "
                f"hundredth of the rows deleted; many files: {settings.rows // 10:,} rows in {settings.files[0]:,}."
            ),
        ),
    )


def chart(samples: Sequence[Sample]) -> Chart:
    """Return the reads as bars."""
    bars = [
        Bar(label=f"{_label(case, query)}, {label}", group=variant, spread=spread)
        for case in _MARKS
        for query in QUERIES
        for variant, label in VARIANTS.items()
        if variant != "python" and (spread := spread_of(samples, _label(case, query), variant)) is not None
    ]
    return Chart(title="Reading a table, two cores", axis="seconds", bars=bars)


def main() -> None:
    """Measure, report and draw."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    begun = time.monotonic()
    with (
        scratch_folder(settings) as scratch,
        prepared(settings, scratch / "read", settings.files[-1], script="read_server.py", conf=_AS_USERS) as bench,
    ):
        samples = measure(bench, settings)
        versions = bench.session.ask("versions")
    print(f"the whole took {time.monotonic() - begun:.0f} s", flush=True)
    write_report(settings, host, report(settings, samples, versions))
    draw(settings.results_dir / "read.png", chart(samples))


if __name__ == "__main__":
    main()
