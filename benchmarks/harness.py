"""What all benchmarks share: arguments, the machine, spreads, and results as JSON and Markdown.

Knows no benchmark. Everything that is shown is computed from the samples of the run that shows it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEGABYTE = 1_000_000
_PACKAGES = ("pyspark", "pyarrow", "pyiceberg", "pyiceberg-core", "iceberg-ds")


# What `bench_peer.py` measures: appends by the shape of their table, then micro-batches and commits.
PEER_APPENDS = ("unpartitioned", "flag", "month", "thousand", "wide", "nested", "narrow", "s3")
PEER_SETS = (*PEER_APPENDS, "batches", "commits")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


# Every option of every benchmark, so that `make bench BENCH_ARGS=...` can hand all scripts the same line.
_OPTIONS: dict[str, tuple[Callable[[str], object], object, str]] = {
    "rounds": (int, 5, "how often everything is measured"),
    "rows": (int, 6_000_000, "rows of the lineitem-like set"),
    "jobs": (_words, ("jvm-noop", "python-noop", "parquet", "ours"), "which jobs, separated by commas"),
    "files": (_numbers, (1, 1_000, 50_000), "files of one commit, separated by commas"),
    "snapshots": (_numbers, (10, 1_000, 10_000), "snapshots of the table, separated by commas"),
    "gigabytes": (_numbers, (1, 3, 10), "Arrow gigabytes of one task, separated by commas"),
    "writers": (int, 8, "processes that commit at once"),
    "commits": (int, 100, "commits of each writer"),
    "catalogs": (_words, ("sqlite", "postgres", "rest"), "which catalogs, separated by commas"),
    "set": (str, "lineitem", "set that is made"),
    "sets": (_words, PEER_SETS, "what is compared with Iceberg's runtime, separated by commas"),
    "tasks": (_numbers, (1, 2, 8, 64), "tasks of a micro-batch, separated by commas"),
    "batches": (int, 8, "micro-batches of each query that are counted"),
    "consecutive": (int, 1_000, "commits in a row to one table"),
    "keys": (int, 100_000, "keys of a write by keys"),
    "orders": (_words, ("random", "clustered"), "how these keys lie in the table, separated by commas"),
    "read-epochs": (_numbers, (1, 10, 100), "epochs of changes after which a table is read, separated by commas"),
    "scale-factor": (Decimal, Decimal(1), "scale factor of TPC-H's tables, in gigabytes of text"),
    "data-dir": (Path, HERE / ".data", "folder of the input, kept between runs, and of what is written meanwhile"),
    "results-dir": (Path, HERE / "results", "folder that the results go to"),
}
_ALWAYS_USED = {"data-dir": "", "results-dir": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of a run; what a script does not use has its default."""

    rounds: int
    rows: int
    jobs: tuple[str, ...]
    files: tuple[int, ...]
    snapshots: tuple[int, ...]
    gigabytes: tuple[int, ...]
    writers: int
    commits: int
    catalogs: tuple[str, ...]
    set: str
    sets: tuple[str, ...]
    tasks: tuple[int, ...]
    batches: int
    consecutive: int
    keys: int
    orders: tuple[str, ...]
    read_epochs: tuple[int, ...]
    scale_factor: Decimal
    data_dir: Path
    results_dir: Path


def parse_arguments(description: str, uses: Mapping[str, str]) -> Settings:
    """Parse the command line.

    Every script takes every option. One that a script does not use is marked in its help, and named on
    stderr when it is given.

    Args:
        description: The script's question.
        uses: The options that the script uses, and what for.
    """
    used = {**_ALWAYS_USED, **uses}
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (convert, default, text) in _OPTIONS.items():
        remark = f" ({used[name]})" if used.get(name) else ""
        parser.add_argument(
            f"--{name}",
            type=convert,
            help=f"{text}{remark}; default {_shown(default)}" if name in used else f"{text}: NOT USED by this script",
        )
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    for name in sorted(given):
        if name.replace("_", "-") not in used:
            print(f"note: {Path(sys.argv[0]).name} does not use --{name.replace('_', '-')}", file=sys.stderr)
    defaults = {name.replace("-", "_"): default for name, (_, default, _) in _OPTIONS.items()}
    return Settings(**{**defaults, **given})


def _shown(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


@contextlib.contextmanager
def scratch_folder(settings: Settings) -> Iterator[Path]:
    """Give a new folder on the disk of the input, and delete it with all that is in it."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=settings.data_dir.resolve()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_case(script: str, case: Mapping[str, object]) -> dict[str, float]:
    """Run one measurement in a process of its own: `script` gets `case` as JSON and prints its result as JSON."""
    load = load_average()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it for its Python workers
    done = subprocess.run(
        [sys.executable, str(HERE / script)],
        input=json.dumps(case),
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**result, "load_before": load}


def load_average() -> float:
    """Return how many processes wanted a core during the last minute: what a measurement may have suffered from."""
    return round(os.getloadavg()[0], 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement.

    Attributes:
        case: What was measured.
        variant: By which competitor.
        round: Number of the round, from 1.
        value: The measured number.
        details: What else is known of it.
    """

    case: str
    variant: str
    round: int
    value: float
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Lowest, median and highest of some measurements."""

    low: float
    median: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        return cls(low=min(values), median=statistics.median(values), high=max(values), count=len(values))

    def show(self, digits: int = 2) -> str:
        """Return median and range, such as `5.10 (4.98-5.31)`."""
        numbers = [f"{value:,.{digits}f}" for value in (self.median, self.low, self.high)]
        return f"{numbers[0]} ({numbers[1]}-{numbers[2]})"


def spread_of(samples: Sequence[Sample], case: str, variant: str) -> Spread | None:
    """Return the spread of the samples of one case and variant, None if there are none."""
    values = [sample.value for sample in samples if (sample.case, sample.variant) == (case, variant)]
    return Spread.of(values) if values else None


def ratios(samples: Sequence[Sample], above: tuple[str, str], below: tuple[str, str]) -> list[float]:
    """Return, for each round that has both, the value of case and variant `above` divided by that of `below`."""
    values = {(sample.case, sample.variant, sample.round): sample.value for sample in samples}
    rounds = sorted({sample.round for sample in samples})
    pairs = [(values.get((*above, number)), values.get((*below, number))) for number in rounds]
    return [first / second for first, second in pairs if first is not None and second]


def ratio_of(samples: Sequence[Sample], above: tuple[str, str], below: tuple[str, str]) -> Spread | None:
    """Return the spread of `ratios`, None if no round has both."""
    values = ratios(samples, above, below)
    return Spread.of(values) if values else None


def shown(spread: Spread | None, digits: int = 2) -> str:
    """Return a spread as a cell of a table."""
    return "-" if spread is None else spread.show(digits)


def cell(value: float | None, unit: float = 1, digits: int = 0) -> str:
    """Return a number in some unit as a cell of a table."""
    return "-" if value is None else f"{value / unit:,.{digits}f}"


def cost_lines(samples: Sequence[Sample], cases: Sequence[str], off: str, on: str) -> list[list[str]]:
    """Return a line for each case: the spreads of `off` and `on`, their ratio, and the ratio of `off` to itself.

    The last is the noise, from a variant of the name of `off` with `-again` behind it.
    """
    lines = []
    for case in cases:
        spreads = [spread_of(samples, case, variant) for variant in (off, on)]
        found = [ratios(samples, (case, variant), (case, off)) for variant in (on, f"{off}-again")]
        lines.append(
            [
                case,
                *(spread.show(0) if spread else "-" for spread in spreads),
                *(Spread.of(values).show(3) if values else "-" for values in found),
            ]
        )
    return lines


def machine() -> dict[str, object]:
    """Describe what the run runs on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "load_before": load_average(),
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        **{name: version(name) for name in _PACKAGES},
        "commit": _first_line(["git", "-C", str(HERE), "describe", "--always", "--dirty"]),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _first_line(command: list[str]) -> str:
    """Return the first line that `command` prints on either stream, `?` if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "?"
    return next(iter((done.stdout + done.stderr).splitlines()), "?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one benchmark.

    Attributes:
        name: Name of the result files.
        question: What was asked.
        unit: Unit of the samples' values.
        samples: Every measurement.
        header: Column heads of the Markdown table.
        lines: Its lines.
        notes: Sentences below the table.
    """

    name: str
    question: str
    unit: str
    samples: Sequence[Sample]
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str]


def write_report(settings: Settings, host: Mapping[str, object], report: Report) -> None:
    """Write the report as JSON and as Markdown, and print the latter."""
    settings.results_dir.mkdir(parents=True, exist_ok=True)
    target = settings.results_dir / report.name
    content = {
        "question": report.question,
        "command": " ".join([Path(sys.executable).name, *sys.argv]),
        "finished": datetime.now(tz=timezone.utc).isoformat(timespec="seconds"),
        "machine": host,
        "unit": report.unit,
        "samples": [asdict(sample) for sample in report.samples],
    }
    target.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    text = _markdown(report, host)
    target.with_suffix(".md").write_text(text)
    print(text)


def _markdown(report: Report, host: Mapping[str, object]) -> str:
    table = [report.header, ["---"] * len(report.header), *report.lines]
    rows = ["| " + " | ".join(cells) + " |" for cells in table]
    versions = ", ".join(f"{name} {host[name]}" for name in _PACKAGES)
    place = (
        f"{host['cpu']}, {host['cores']} cores, {host['memory_gb']} GB; Python {host['python']}, {versions}; "
        f"{host['java']}; commit {host['commit']}; load before the run {host['load_before']}."
    )
    return "\n".join([f"{report.question}\n", *rows, "", *(f"{note}\n" for note in report.notes), place, ""])
