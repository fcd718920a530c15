"""How fast does the sink append, beside Iceberg's own Spark runtime?

    python benchmarks/bench_peer.py --rounds 5 --rows 6000000

Two warm Spark sessions on the same two cores take turns: ours, and one with Iceberg's runtime, which has an
environment of its own (`.ci/peer_environment.py` makes it) because it exists for another version of Spark. Both
write the lineitem-like set of `datasets.py` into new tables of one catalog: unpartitioned, by return flag (three),
by month of the ship date (84). The order rotates from round to round; one round before them is not counted.
Jobs: `ours` is the sink with its defaults, `ours-level-3` with the level of zstd that the runtime has, `jvm` is the
runtime with its defaults (rows are brought to the task of their partition first), `jvm-fanout` without that and
with all partitions' files open at once. Tables are made, checked and dropped outside of the measured time; each is
counted and its keys are summed up by the runtime before it is dropped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from charts import Bar, Chart, draw
from datasets import lineitem_folder, session
from harness import (
    HERE,
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
from pyspark.sql import DataFrame

import iceberg_ds

sys.path.append(str(HERE.parent / "tests"))  # the tests talk to the same peer
from support.jvm_peer import JvmPeer, PeerCatalog

QUESTION = "How fast does the sink append, beside Iceberg's own Spark runtime?"
USES = {"rows": "", "rounds": "one more is run first and not counted"}
CASES = {
    "unpartitioned": "",
    "by return flag": "PARTITIONED BY (l_returnflag)",
    "by month": "PARTITIONED BY (months(l_shipdate))",
}
TABLE = "bench.t"
WRITE_TIMEOUT_S = 600.0
FANOUT = {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}
# What `datasets.session` sets, as far as it has to do with speed.
PEER_CONF = {
    "spark.app.name": "bench_peer",
    "spark.driver.memory": "4g",
    "spark.sql.files.openCostInBytes": "134217728",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the jobs work with.

    Attributes:
        rows: The input in our session; the peer has it as `lineitem`.
        warehouse: The folder of the catalog.
        jvm: The catalog as the peer sees it.
        expected: Number of the input's rows, and the sum of their keys.
    """

    rows: DataFrame
    warehouse: Path
    jvm: PeerCatalog
    expected: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One competitor.

    Attributes:
        label: How results name it.
        write: Appends the rows once to the table and returns the seconds that it took.
        properties: Properties of its table.
        is_ours: Whether the sink does it.
        cases: Where it differs from the others.
    """

    label: str
    write: Callable[[Bench], float]
    properties: dict[str, str]
    is_ours: bool
    cases: tuple[str, ...] = tuple(CASES)


def _ours(**options: str) -> Callable[[Bench], float]:
    def write(bench: Bench) -> float:
        writer = bench.rows.write.format("icebergsink").option("warehouse", str(bench.warehouse)).mode("append")
        started = time.perf_counter()
        writer.options(**options).save(TABLE)
        return time.perf_counter() - started

    return write


def _jvm(bench: Bench) -> float:
    return bench.jvm.run(f"INSERT INTO {TABLE} SELECT * FROM lineitem", WRITE_TIMEOUT_S).seconds  # noqa: S608


JOBS = {
    "ours": Job(label="icebergsink", write=_ours(), properties={}, is_ours=True),
    "ours-level-3": Job(
        label="icebergsink, zstd level 3", write=_ours(**{"compression-level": "3"}), properties={}, is_ours=True
    ),
    "jvm": Job(label="Iceberg's Spark runtime", write=_jvm, properties={}, is_ours=False),
    "jvm-fanout": Job(
        label="Iceberg's Spark runtime, no distribution, fan-out",
        write=_jvm,
        properties=FANOUT,
        is_ours=False,
        cases=tuple(CASES)[1:],  # without partitions nothing is distributed anyway
    ),
}


def measure(bench: Bench, settings: Settings) -> list[Sample]:
    """Run all jobs in every round, beginning with another one each time."""
    samples = []
    for number in range(settings.rounds + 1):
        for case in CASES:
            names = [name for name, job in JOBS.items() if case in job.cases]
            shift = number % len(names)
            for name in (*names[shift:], *names[:shift]):
                load = load_average()
                seconds, files, size = _run(bench, case, JOBS[name])
                print(f"round {number}, {case}, {name}: {seconds:.2f} s, {files} files, {size / MEGABYTE:.0f} MB")
                sys.stdout.flush()
                if number:  # the first warms up
                    details = {"files": files, "bytes": size, "rows_per_second": settings.rows / seconds}
                    details["load_before"] = load
                    samples.append(Sample(case=case, variant=name, round=number, value=seconds, details=details))
    return samples


def _run(bench: Bench, case: str, job: Job) -> tuple[float, int, int]:
    """Return seconds, files and bytes of one append to a new table.

    Raises:
        RuntimeError: The table does not hold exactly what was written into it.
    """
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in bench.rows.schema)
    properties = {"write.parquet.compression-codec": "zstd", **job.properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    bench.jvm.run(f"CREATE TABLE {TABLE} ({columns}) USING iceberg {CASES[case]} TBLPROPERTIES ({listed})")
    os.sync()  # the disk is not shared with what earlier jobs left to write
    seconds = job.write(bench)
    if (found := _totals(bench.jvm, TABLE)) != bench.expected:
        raise RuntimeError(f"{case}, {job.label}: rows and sum of keys are {found} instead of {bench.expected}")
    ((files, size),) = bench.jvm.run(f"SELECT count(*), sum(file_size_in_bytes) FROM {TABLE}.files").rows  # noqa: S608
    bench.jvm.run(f"DROP TABLE {TABLE} PURGE")
    return seconds, files, size


def _totals(jvm: PeerCatalog, source: str) -> tuple[int, int]:
    """Return the number of rows and the sum of their keys."""
    ((rows, total),) = jvm.run(f"SELECT count(*), sum(l_orderkey) FROM {source}", WRITE_TIMEOUT_S).rows  # noqa: S608
    return rows, total


def report(settings: Settings, samples: Sequence[Sample], notes: Sequence[str]) -> Report:
    """Return the outcome as tables."""
    return Report(
        name="peer",
        question=QUESTION,
        unit="seconds",
        samples=samples,
        header=(
            "table",
            "job",
            "seconds: median (min-max)",
            "million rows/s: median (min-max)",
            "files",
            "MB written",
            "time / the runtime's faster setting, per round",
        ),
        lines=[_line(case, name, samples) for case in CASES for name, job in JOBS.items() if case in job.cases],
        notes=(f"{settings.rows:,} rows, {settings.rounds} rounds, local[2], two warm sessions in turn.", *notes),
    )


def _line(case: str, name: str, samples: Sequence[Sample]) -> list[str]:
    own = [sample for sample in samples if (sample.case, sample.variant) == (case, name)]
    beside = ratios(samples, (case, name), (case, faster_setting(case, samples)))
    return [
        case,
        JOBS[name].label,
        Spread.of([sample.value for sample in own]).show(),
        Spread.of([sample.details["rows_per_second"] / 1e6 for sample in own]).show(),
        f"{Spread.of([sample.details['files'] for sample in own]).median:,.0f}",
        f"{Spread.of([sample.details['bytes'] for sample in own]).median / MEGABYTE:,.0f}",
        Spread.of(beside).show(),
    ]


def faster_setting(case: str, samples: Sequence[Sample]) -> str:
    """Return the runtime's job with the lower median."""
    spreads = {name: spread_of(samples, case, name) for name, job in JOBS.items() if not job.is_ours}
    medians = {name: spread.median for name, spread in spreads.items() if spread is not None}
    return min(medians, key=lambda name: medians[name])


def chart(settings: Settings, samples: Sequence[Sample]) -> Chart:
    """Return the outcome as bars."""
    return Chart(
        title=f"Appending {settings.rows / 1e6:g} million rows to an Iceberg table with Spark, two cores",
        axis="seconds",
        bars=[
            Bar(label=f"{case}: {job.label}", group="ours" if job.is_ours else "others", spread=spread)
            for case in CASES
            for name, job in JOBS.items()
            if (spread := spread_of(samples, case, name)) is not None
        ],
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    source = lineitem_folder(settings)
    with scratch_folder(settings) as scratch:
        peer = JvmPeer(scratch / "peer", PEER_CONF)
        try:
            bench = _prepare(peer, source, scratch)
            samples = measure(bench, settings)
            (iceberg,) = bench.jvm.values("SELECT system.iceberg_version()")
            bench.rows.sparkSession.stop()
        finally:
            peer.close()
    notes = (
        f"Runtime: Iceberg {iceberg} on Spark {peer.version}; zstd at its default level, 3.",
        "After every append the runtime has counted the rows and summed up their keys.",
    )
    write_report(settings, host, report(settings, samples, notes))
    draw(settings.results_dir / "peer.png", chart(settings, samples))


def _prepare(peer: JvmPeer, source: Path, scratch: Path) -> Bench:
    warehouse = scratch / "iceberg"
    jvm = peer.open_catalog(warehouse)
    jvm.run("CREATE NAMESPACE bench")
    jvm.run(f"CREATE TEMPORARY VIEW lineitem USING parquet OPTIONS (path '{source}')")
    spark = session("bench_peer", scratch)
    iceberg_ds.register(spark)
    rows = spark.read.parquet(str(source))
    if (tasks := rows.rdd.getNumPartitions()) != len(list(source.glob("*.parquet"))):
        raise RuntimeError(f"Spark reads the input in {tasks} tasks instead of one per file")
    return Bench(rows=rows, warehouse=warehouse, jvm=jvm, expected=_totals(jvm, "lineitem"))


if __name__ == "__main__":
    main()
