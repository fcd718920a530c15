"""The page that says what was run where: each cell names a test that is there, or says that none is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support.services.fixtures import CATALOGS
from support.supported_sparks import supported_sparks

REPOSITORY = Path(__file__).parents[2]
SUPPORT = REPOSITORY / "docs" / "support.md"
SUITE = REPOSITORY / "tests" / "integration" / "catalogs"
NOT_RUN = "not run here"


def matrix() -> list[list[str]]:
    """Return the cells of the matrix, its head first and the line below it left out."""
    text = SUPPORT.read_text().partition("<!-- matrix -->")[2].partition("<!-- end of matrix -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [rows[0], *rows[2:]]


def functions(path: Path) -> set[str]:
    """Return the names of the functions of a Python file, none if there is no such file."""
    if not path.exists():
        return set()
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def variants() -> set[str]:
    """Return the names of the catalogs that the suite runs on."""
    return set(CATALOGS)


def is_shown(cell: str, test: str) -> bool:
    """Return whether the test that `cell` names, in the column of `test`, is there."""
    if cell == NOT_RUN:
        return True
    if variant := re.fullmatch(r"`\[(\w+)\]`", cell):
        return variant[1] in variants() and test in functions(SUITE / "test_every_catalog.py")
    named = re.fullmatch(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", cell)
    if named is None:
        return False
    path = REPOSITORY / named[1]
    return path.exists() if named[2] is None else named[2] in functions(path)


def test_every_cell_names_a_test_or_says_that_it_was_not_run() -> None:
    """A user would trust a combination that nobody has tried."""
    head, *rows = matrix()
    tests = [cell.strip("`") for cell in head]

    assert len(rows) >= 10
    cells = [(test, cell) for row in rows for test, cell in zip(tests[2:], row[2:], strict=True)]
    assert [(test, cell) for test, cell in cells if not is_shown(cell, test)] == []


def test_every_catalog_of_the_suite_is_in_the_matrix() -> None:
    """A catalog would be tested, and its users would not know."""
    shown = {cell.strip("`[]") for row in matrix() for cell in row if cell.startswith("`[")}

    assert shown == variants()


def test_every_test_of_the_suite_is_in_the_matrix() -> None:
    """What a catalog can do would not be said."""
    suite = {name for name in functions(SUITE / "test_every_catalog.py") if name.startswith("test_")}

    assert {cell.strip("`") for cell in matrix()[0][2:]} == suite


def test_versions_that_are_promised_are_those_that_are_tested_and_declared() -> None:
    """A promise would outlive the tests, or a version would be tried of which nobody is told."""
    text = SUPPORT.read_text().partition("<!-- versions -->")[2].partition("<!-- end of versions -->")[0]
    promised = re.findall(r"^\| (\w+) ([\d.]+) \| (\d{4}-\d\d-\d\d) \| (\d{4}-\d\d-\d\d) \|$", text, re.MULTILINE)
    declared = (REPOSITORY / "pyproject.toml").read_text()

    assert [version for what, version, *_ in promised if what == "Spark"] == [spark[:3] for spark in supported_sparks()]
    assert [version for what, version, *_ in promised if what == "Python"] == re.findall(
        r"Python :: (3\.\d+)", declared
    )
    assert [version for what, version, *_ in promised if what == "PyArrow"] == re.findall(r"pyarrow>=(\d+)", declared)
    assert [version for what, version, *_ in promised if what == "PyIceberg"] == re.findall(
        r"pyiceberg\[.*\]>=(0\.\d+)", declared
    )[:1]
    assert all(released < until for *_, released, until in promised)
