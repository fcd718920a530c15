"""What the workflows and forms in `.github` name: the project's own targets, versions and commands."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from iceberg_ds.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))


def read(path: str) -> str:
    """Return a file of the repository as text."""
    return (REPOSITORY / path).read_text()


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script that has the versions of Spark."""
    monkeypatch.syspath_prepend(REPOSITORY / ".ci")
    found = importlib.util.spec_from_file_location("test_matrix_script", REPOSITORY / ".ci/test_matrix.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, module)
    found.loader.exec_module(module)
    return module


def test_there_are_workflows() -> None:
    """The tests below would pass over nothing."""
    assert {path.stem for path in WORKFLOWS} == {"checks", "versions", "release", "docs"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_target_that_a_workflow_makes_is_in_the_makefile(path: Path) -> None:
    """A release would stop at a target that was renamed."""
    made = re.findall(r"\bmake ([a-z][a-z0-9-]*)", path.read_text())

    assert [target for target in made if not re.search(rf"^{target}:", read("Makefile"), re.MULTILINE)] == []


def test_help_lists_every_target() -> None:
    """A user would not find a target that `make help` leaves out."""
    makefile = read("Makefile")
    shown = subprocess.run(["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    for target in re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE):
        assert re.search(rf"^  {target} ", shown, re.MULTILINE), target


def test_each_supported_spark_is_tried(matrix: ModuleType) -> None:
    """A version would be called supported that nobody tries."""
    cells = yaml.safe_load(read(".github/workflows/versions.yml"))["jobs"]["cells"]["strategy"]["matrix"]["cell"]
    tried = yaml.safe_load(read(".github/workflows/release.yml"))["jobs"]["try"]["strategy"]["matrix"]["spark"]

    assert cells == ["lowest", *(f"spark-{version}" for version in matrix.SPARKS)]
    assert tried == [f"{version.rpartition('.')[0]}.*" for version in matrix.SPARKS]


def test_every_test_that_a_workflow_runs_exists() -> None:
    """The newest PySpark would be tried by nothing."""
    named = [name for path in WORKFLOWS for name in re.findall(r"tests/\S+\.py", path.read_text())]

    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_the_form_for_bugs_asks_for_commands_that_exist() -> None:
    """Who reports a bug would be told that the command is unknown."""
    commands = re.findall(r"`iceberg-ds ([a-z-]+)", read(".github/ISSUE_TEMPLATE/bug.yml"))

    assert set(commands) == {"check", "verify"}
    assert set(commands) <= set(main.commands)
