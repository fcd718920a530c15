"""How long does a new user wait, and how long the first append of each new session?

    python benchmarks/bench_first.py --rounds 5

First append: each sink in turn gets a Spark session that has run nothing, appends 1,000 rows in two tasks to a new
table, and appends them again. The time is that of the append alone: Spark has started before. The no-op Python sink
drops its rows; the runtime and the sink write into the same catalog, on the runtime's Spark.

First table: an empty environment, the package installed from the checkout with `pip`, with a cache that is empty and
with one that is full; then the first two examples of the README, each as a script of its own, Spark's start included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from charts import Bar, Chart, draw
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
    scratch_folder,
    spread_of,
    write_report,
)
from peer_place import NAMESPACE, Place
from peer_server import RUNTIME

QUESTION = "How long does a new user wait, and how long the first append of each new session?"
USES = {"rounds": ""}
ROWS = 1_000
FIRST, SECOND = "first append", "second append"
SINKS = {"python-noop": "no-op Python sink", "icebergsink": "icebergsink", RUNTIME: "Iceberg's Spark runtime"}
STEPS = ("install", "first write", "read back")
REPOSITORY = HERE.parent
CONSTRAINTS = REPOSITORY / ".ci" / "constraints.txt"
_EXAMPLE = r"```python\n(# example: {}\n.*?)```"


def measure_appends(settings: Settings, scratch: Path) -> list[Sample]:
    """Measure both appends of a new session, of each sink in each round, beginning with another sink each time."""
    place = Place(folder=scratch / "appends")
    with place.session_of_both():
        pass  # makes the namespace
    samples = []
    for number in range(1, settings.rounds + 1):
        shift = number % len(SINKS)
        for sink in (*list(SINKS)[shift:], *list(SINKS)[:shift]):
            load = load_average()
            with place.new_session_of_both(script="first_session.py") as session:
                table = f"{NAMESPACE}.first_{sink.replace('-', '_')}_{number}"
                taken = session.ask("first", sink=sink, rows=ROWS, table=table, options=place.options)
                if sink != "python-noop":
                    _check(session.ask("sql", statement=f"SELECT count(*) FROM {table}"), table)  # noqa: S608  # ours
            print(f"round {number}, {sink}: {taken[0]:.2f} s, then {taken[1]:.2f} s", flush=True)
            samples += [
                Sample(case=case, variant=sink, round=number, value=seconds, details={"load_before": load})
                for case, seconds in zip((FIRST, SECOND), taken, strict=True)
            ]
    return samples


def _check(counted: list[list[int]], table: str) -> None:
    if counted != [[2 * ROWS]]:
        raise RuntimeError(f"{table} has {counted} rows instead of {2 * ROWS}")


def measure_user(settings: Settings, scratch: Path) -> list[Sample]:
    """Install the package into an empty environment and run the README's examples, in each round with both caches."""
    samples = []
    for number in range(1, settings.rounds + 1):
        cache = scratch / f"cache-{number}"
        for case in ("cold cache", "warm cache"):
            folder = scratch / f"user-{number}-{case.partition(' ')[0]}"
            folder.mkdir(parents=True)
            load = load_average()
            taken = _as_a_user(folder, cache)
            print(f"round {number}, {case}: " + ", ".join(f"{step} {taken[step]:.1f} s" for step in STEPS), flush=True)
            details = {"megabytes": taken["megabytes"], "load_before": load}
            samples += [
                Sample(case=case, variant=step, round=number, value=taken[step], details=details) for step in STEPS
            ]
            subprocess.run(["rm", "-rf", str(folder)], check=True)
        subprocess.run(["rm", "-rf", str(cache)], check=True)
    return samples


def _as_a_user(folder: Path, cache: Path) -> dict[str, float]:
    """Return the seconds of each step, and the size of the environment."""
    environment, taken = folder / "environment", {}
    python = environment / "bin" / "python"
    ours = ("PYTHON", "PYSPARK_", "SPARK_", "PYICEBERG_", "VIRTUAL_ENV", "PIP_CACHE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    variables = {**clean, "PATH": f"{python.parent}:{os.environ['PATH']}", "PIP_CACHE_DIR": str(cache)}

    def run(*command: str | Path) -> float:
        started = time.perf_counter()
        arguments = [str(part) for part in command]
        done = subprocess.run(arguments, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments} failed: {done.stderr[-3000:]}")
        return time.perf_counter() - started

    taken["install"] = run(sys.executable, "-m", "venv", environment)
    taken["install"] += run(python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, REPOSITORY)
    readme = (REPOSITORY / "README.md").read_text()
    for step, name in (("first write", "batch"), ("read back", "read")):
        script = folder / f"{name}.py"
        found = re.search(_EXAMPLE.format(name), readme, re.DOTALL)
        if found is None:
            raise RuntimeError(f"README.md has no example '{name}'")
        script.write_text(found[1])
        taken[step] = run(python, script)
    files = (path for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    taken["megabytes"] = sum(path.stat().st_size for path in files) / MEGABYTE
    return taken


def appends_report(samples: Sequence[Sample]) -> Report:
    """Return the appends as a table."""
    lines = []
    for sink, label in SINKS.items():
        spreads = [spread_of(samples, case, sink) for case in (FIRST, SECOND)]
        over = Spread.of(_seconds_over_noop(samples, sink)).show() if sink != "python-noop" else "-"
        lines.append([label, *(spread.show() if spread else "-" for spread in spreads), over])
    return Report(
        name="first",
        question=f"{QUESTION} Appends of {ROWS:,} rows by a session that has run nothing.",
        unit="seconds",
        samples=samples,
        header=["sink", "first append, s", "the next one, s", "first, beyond the no-op sink, s"],
        lines=lines,
        notes=["Every table was counted by the runtime. Differences are taken within each round."],
    )


def _seconds_over_noop(samples: Sequence[Sample], sink: str) -> list[float]:
    values = {(sample.variant, sample.round): sample.value for sample in samples if sample.case == FIRST}
    rounds = sorted({sample.round for sample in samples})
    return [values[sink, number] - values["python-noop", number] for number in rounds]


def appends_chart(samples: Sequence[Sample]) -> Chart:
    """Return the appends as bars."""
    bars = [
        Bar(label=label, group="ours" if sink == "icebergsink" else sink, spread=spread)
        for sink, label in SINKS.items()
        if (spread := spread_of(samples, FIRST, sink)) is not None
    ]
    return Chart(title="First append of a new session, 1,000 rows", axis="seconds", bars=bars)


def user_report(samples: Sequence[Sample]) -> Report:
    """Return a new user's steps as a table."""
    cases = list(dict.fromkeys(sample.case for sample in samples))
    lines = [
        [case, *(spread.show(1) if (spread := spread_of(samples, case, step)) else "-" for step in STEPS)]
        for case in cases
    ]
    size = Spread.of([sample.details["megabytes"] for sample in samples]).show(0)
    return Report(
        name="first-table",
        question=f"{QUESTION} From an empty environment to the first table and back.",
        unit="seconds",
        samples=samples,
        header=["pip's cache", "install, s", "first write, s", "read back, s"],
        lines=lines,
        notes=[f"The environment has {size} MB. Both scripts start a Python; the write starts Spark, too."],
    )


def main() -> None:
    """Measure and report."""
    settings = parse_arguments(QUESTION, USES)
    host = machine()
    with scratch_folder(settings) as scratch:
        appends = measure_appends(settings, scratch)
        write_report(settings, host, appends_report(appends))
        draw(settings.results_dir / "first.png", appends_chart(appends))
        write_report(settings, host, user_report(measure_user(settings, scratch)))


if __name__ == "__main__":
    main()
