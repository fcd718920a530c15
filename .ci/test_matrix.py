"""Run the core tests with other versions of Spark and PyArrow than the ones that the project is developed with.

Each pair of versions is a cell with an environment of its own in `.matrix/`, made by pip once and kept as long as
what it was made from stays the same. The cells run one after the other: each wants the whole machine. The cell
`lowest` has the lowest version of every dependency that pyproject.toml allows.

    python .ci/test_matrix.py                 all cells
    python .ci/test_matrix.py lowest          some of them, by name
    python .ci/test_matrix.py --quick lowest  only what most depends on versions
    python .ci/test_matrix.py --list          their names

Prints a table, writes it to `.matrix/results.json` and ends with 1 if a cell failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from installing import STAMP, alone, clean_environment, finish, is_finished, run

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / ".matrix"
CONSTRAINTS = REPOSITORY / ".ci" / "constraints.txt"

SPARKS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
LOWEST_SPARK, LOWEST_PYARROW = SPARKS[0], "18.0.0"
# What most depends on the version of Spark: how its processes pickle and call writers and readers, and what tasks know.
QUICK = (
    "tests/unit/test_datasource.py",
    "tests/unit/writers/test_parquet.py",
    "tests/integration/test_executor_secrets.py",
    "tests/integration/test_batch.py",
    "tests/integration/test_streaming.py",
    "tests/integration/reading/test_streams_of_appends.py",
    "tests/integration/reading/test_streams_of_changes.py",
    "tests/integration/reading/test_changes.py",
)
CORE = (
    *QUICK,
    "tests/unit/table/test_casts.py",
    "tests/unit/table/test_conformed_batches.py",
    "tests/unit/writers/test_metrics.py",
    "tests/unit/table/test_partitioning.py",
    "tests/unit/table/test_spark_types.py",
    "tests/unit/writers/test_writers.py",
    "tests/integration/test_entry_points.py",
    "tests/integration/test_partitioned.py",
    "tests/integration/test_types.py",
    "tests/integration/test_variants.py",
    "tests/integration/test_upsert_function.py::test_batch_replaces_the_rows_of_its_keys",
    "tests/faults/test_batch_failures.py",
    "tests/faults/test_stream_replays.py::test_replay_of_epoch_commits_once",
)
# A reader of 300 MB, which knows neither Spark nor PyArrow.
NOT_HERE = ("tests/integration/test_types.py::test_every_value_comes_back_through_clickhouse",)
# PyArrow opens files with variants from version 22 on; older ones are refused, which other tests look at.
NOT_BEFORE_PYARROW_22 = ("tests/integration/test_variants.py",)
# What PyArrow 18 writes into a file's statistics beside what newer ones do; no reader loses a row by it.
DIFFERENT_IN_PYARROW_18 = {
    "tests/unit/writers/test_metrics.py::test_row_group_of_nulls_does_not_take_the_bounds_away": (
        "of a float column that holds minus infinity alone, the upper bound is the lowest finite number: too wide"
    ),
    "tests/unit/writers/test_metrics.py::test_counts_of_nested_columns_are_those_of_the_rows": (
        "in structs inside lists and maps, nulls of empty and null lists are not counted; readers skip no file by those"
    ),
    "tests/unit/writers/test_metrics.py::test_counts_of_a_sliced_batch_are_those_of_its_rows": "the same",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An environment to test in.

    Attributes:
        spark: Version of PySpark.
        pyarrow: Version of PyArrow.
        is_lowest: Whether every other dependency, too, is the lowest that is allowed.
    """

    spark: str
    pyarrow: str
    is_lowest: bool = False

    @property
    def name(self) -> str:
        """What it is called on the command line, and its folder."""
        return "lowest" if self.is_lowest else f"spark-{self.spark}-pyarrow-{self.pyarrow}"

    @property
    def folder(self) -> Path:
        """Where its environment is."""
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How the tests of a cell went.

    Attributes:
        cell: Its name.
        python: Version of its interpreter.
        spark: Version of PySpark that was really there.
        pyarrow: Version of PyArrow that was really there.
        exit_code: pytest's.
        summary: pytest's last line.
        seconds: How long pytest ran.
    """

    cell: str
    python: str
    spark: str
    pyarrow: str
    exit_code: int
    summary: str
    seconds: float


def pinned() -> dict[str, str]:
    """Return the lines of the constraints by the package's name, without those for other interpreters' versions."""
    lines = CONSTRAINTS.read_text().splitlines()
    return {line: re.split("[=<>~]", line)[0] for line in lines if line}


def highest_pyarrow() -> str:
    """Return the version of PyArrow that the project is developed with on the newest interpreter."""
    versions = re.findall(r"^pyarrow==([\d.]+)", CONSTRAINTS.read_text(), re.MULTILINE)
    return max(versions, key=lambda version: [int(part) for part in version.split(".")])


def cells() -> list[Cell]:
    """Return all cells."""
    versions = (LOWEST_PYARROW, highest_pyarrow())
    pairs = [Cell(spark=spark, pyarrow=pyarrow) for spark in SPARKS for pyarrow in versions]
    return [Cell(spark=LOWEST_SPARK, pyarrow=LOWEST_PYARROW, is_lowest=True), *pairs]


def dependencies() -> str:
    """Return what pyproject.toml says of the dependencies, extras aside."""
    return (REPOSITORY / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("\n]")[0]


def lowest_versions() -> list[str]:
    """Return the lower bound of every dependency but Spark and PyArrow, as a requirement of that very version."""
    bounds = re.findall(r'"([\w-]+)(?:\[[^\]]*\])?>=([\d.]+)', dependencies())
    return [f"{name}=={version}" for name, version in bounds if name not in ("pyspark", "pyarrow")]


def requirements(cell: Cell) -> list[str]:
    """Return what pip is told of a cell's versions beside the project itself."""
    wanted = [f"pyspark=={cell.spark}", f"pyarrow=={cell.pyarrow}"]
    return [*wanted, *lowest_versions()] if cell.is_lowest else wanted


def constraints(cell: Cell) -> list[str]:
    """Return the pinned versions that do not stand against a cell's."""
    tools = ("hypothesis", "iniconfig", "packaging", "pluggy", "pygments", "pytest", "pytest-timeout")
    free = ("pyspark", "pyarrow", "py4j")
    if cell.is_lowest:
        return [line for line, name in pinned().items() if name in tools]
    return [line for line, name in pinned().items() if name not in free]


def make(cell: Cell) -> None:
    """Make a cell's environment unless it is there."""
    wanted = {
        "interpreter": f"{sys.base_prefix} {sys.version}",
        "requirements": requirements(cell),
        "constraints": constraints(cell),
        "dependencies": dependencies(),
    }
    if is_finished(cell.folder, wanted):
        return
    print(f"Making {cell.folder.relative_to(REPOSITORY)}", flush=True)
    (cell.folder / STAMP).unlink(missing_ok=True)
    run(cell.folder, sys.executable, "-m", "venv", cell.folder)
    file = cell.folder / "constraints.txt"
    file.write_text("\n".join([*constraints(cell), *requirements(cell)]) + "\n")
    pip = (cell.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(cell.folder, *pip, "--upgrade", "pip")  # older ones know no dependency groups
    group = f"{REPOSITORY / 'pyproject.toml'}:matrix"
    run(cell.folder, *pip, "--constraint", file, "--editable", REPOSITORY, "--group", group, *requirements(cell))
    finish(cell.folder, wanted)


def installed(cell: Cell) -> list[str]:
    """Return the versions of Python, PySpark and PyArrow in a cell."""
    program = (
        "import platform, pyspark, pyarrow; print(platform.python_version(), pyspark.__version__, pyarrow.__version__)"
    )
    return subprocess.run([cell.python, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test(cell: Cell, paths: Sequence[str], arguments: Sequence[str]) -> Result:
    """Run tests in a cell, and show what they print."""
    print(f"\n=== {cell.name}", flush=True)
    started = time.monotonic()
    is_old = cell.pyarrow == LOWEST_PYARROW
    left_out = [*NOT_HERE, *((*DIFFERENT_IN_PYARROW_18, *NOT_BEFORE_PYARROW_22) if is_old else ())]
    deselected = [f"--deselect={test}" for test in left_out]
    command = [cell.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *deselected, *arguments, *paths]
    environment = {**clean_environment(os.environ), "PYSPARK_PYTHON": str(cell.python)}
    summary = ""
    with subprocess.Popen(
        [str(part) for part in command], cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as tests:
        for line in tests.stdout or ():
            print(line, end="", flush=True)
            summary = line.strip() or summary
    python, spark, pyarrow = installed(cell)
    return Result(
        cell=cell.name,
        python=python,
        spark=spark,
        pyarrow=pyarrow,
        exit_code=tests.returncode,
        summary=summary,
        seconds=round(time.monotonic() - started, 1),
    )


def show(results: Sequence[Result]) -> None:
    """Print the results as a table, and write them to a file."""
    print(f"\n{'cell':32} {'Python':8} {'Spark':7} {'PyArrow':8} {'result':7} {'tests'}")
    for result in results:
        verdict = "failed" if result.exit_code else "ok"
        versions = f"{result.python:8} {result.spark:7} {result.pyarrow:8}"
        print(f"{result.cell:32} {versions} {verdict:7} {result.summary}")
    (FOLDER / "results.json").write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def main() -> None:
    """Test the cells that are named, or all."""
    known = {cell.name: cell for cell in cells()}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cells", nargs="*", metavar="CELL", help="names of cells; all without any")
    parser.add_argument("--quick", action="store_true", help="run only what most depends on versions")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    parser.add_argument("--make", action="store_true", help="make the environments, and run nothing")
    parser.add_argument("--pytest", action="append", default=[], metavar="ARGUMENT", help="an argument for pytest")
    given = parser.parse_args()
    if unknown := [name for name in given.cells if name not in known]:
        raise SystemExit(f"There is no cell {', '.join(unknown)}. There are: {', '.join(known)}.")
    if given.list:
        print("\n".join(known))
        return
    FOLDER.mkdir(exist_ok=True)
    results = []
    for cell in [known[name] for name in given.cells or known]:
        with alone(cell.folder):
            make(cell)
        if not given.make:
            results.append(test(cell, QUICK if given.quick else CORE, given.pytest))
    if results:
        show(results)
    raise SystemExit(any(result.exit_code for result in results))


if __name__ == "__main__":
    main()
