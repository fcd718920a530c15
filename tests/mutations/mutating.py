"""One mutation at a time, in a copy of the package, and the tests that are expected to notice it.

Python finds the copy before the package: it is the working folder of the tests' process, and the first entry of the
PYTHONPATH that Spark's workers inherit. The package itself is never touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "iceberg_ds"
_FOUND_BY_SPARK = ("pyspark_icebergsink.py", "pyspark_icebergsource.py")
_TIMEOUT_S = 1200
_ALL_PASSED, _SOME_FAILED = 0, 1
_LAST_CHARACTERS = 4000


class MutationError(RuntimeError):
    """A mutation does not fit the package any more, or its tests could not be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A small change that breaks a promise.

    Attributes:
        name: What the product does then.
        file: The module, below the package's folder.
        before: Text that stands there exactly once.
        after: What stands there instead.
        tests: Tests without Spark, each of which has to fail then: `path::name`, below `tests/`.
        spark_tests: Such tests that take Spark or servers, and so a while.
    """

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = ()
    spark_tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """What tests said.

    Attributes:
        failed: Those that failed, by the names that they were asked for.
        passed: Those that did not.
        report: The end of what pytest printed.
    """

    failed: tuple[str, ...]
    passed: tuple[str, ...]
    report: str


def mutate(text: str, mutation: Mutation) -> str:
    """Return a module's text with the mutation.

    Raises:
        MutationError: The text to change does not stand there exactly once.
    """
    found = text.count(mutation.before)
    if found != 1:
        raise MutationError(
            f"Mutation '{mutation.name}' does not fit {mutation.file} any more: the text stands there {found} times "
            f"instead of once. Change it in tests/mutations, too:\n{mutation.before}"
        )
    return text.replace(mutation.before, mutation.after)


def fit(mutation: Mutation) -> None:
    """Check that the mutation fits the package, and leaves a module that compiles.

    Raises:
        MutationError: It does not.
    """
    text = mutate((REPOSITORY / PACKAGE / mutation.file).read_text(), mutation)
    try:
        compile(text, mutation.file, "exec")
    except SyntaxError as error:
        raise MutationError(f"Mutation '{mutation.name}' leaves no Python in {mutation.file}: {error}") from error


def run(tests: Sequence[str], folder: Path, mutation: Mutation | None = None) -> Noticed:
    """Run tests on a copy of the package in `folder`, with a mutation or as it is.

    Raises:
        MutationError: The mutation does not fit, or the tests could not be run.
    """
    copy = folder / "copy"
    shutil.copytree(REPOSITORY / PACKAGE, copy / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    for module in _FOUND_BY_SPARK:
        shutil.copy(REPOSITORY / module, copy)
    if mutation is not None:
        fit(mutation)
        module = copy / PACKAGE / mutation.file
        module.write_text(mutate(module.read_text(), mutation))
    results = folder / "results.xml"
    try:
        done = _pytest(tests, copy, results)
    except subprocess.TimeoutExpired as timeout:
        raise MutationError(f"The tests did not end in {_TIMEOUT_S} s: {', '.join(tests)}") from timeout
    report = (done.stdout + done.stderr)[-_LAST_CHARACTERS:]
    if done.returncode not in {_ALL_PASSED, _SOME_FAILED}:
        raise MutationError(f"The tests could not be run (exit code {done.returncode}):\n{report}")
    broken = _failures(results)
    failed = tuple(test for test in tests if any(_is_of(case, test) for case in broken))
    return Noticed(failed=failed, passed=tuple(test for test in tests if test not in failed), report=report)


def _pytest(tests: Sequence[str], copy: Path, results: Path) -> subprocess.CompletedProcess[str]:
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(copy), *inherited]),
        "HYPOTHESIS_PROFILE": "all",
    }
    # A mutation may be noticed by a test that `make test` leaves out.
    everything = ["-m", ""]
    options = [*everything, "--quiet", "--tb=short", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]
    project = ["-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(REPOSITORY), f"--junitxml={results}"]
    paths = [str(REPOSITORY / "tests" / test) for test in tests]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *project, *paths],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )


def _failures(results: Path) -> list[str]:
    """Return the test cases that failed, as `path::name`; one whose fixtures fail has not noticed anything."""
    cases = ET.parse(results).getroot().iter("testcase")  # noqa: S314  # pytest has just written it
    return [
        f"{case.get('classname', '').removeprefix('tests.').replace('.', '/')}.py::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None
    ]


def _is_of(case: str, test: str) -> bool:
    """Return whether a test case is what `test` names: itself, one of its parameters, or of its file."""
    return case == test or case.startswith((f"{test}[", f"{test}::"))
