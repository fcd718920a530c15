"""The README's examples, run as a reader would run them, and what it claims of options and tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spark.session import prepare_environment, spare_defaults
from support.spark.tables import Warehouse, read_with_chdb

from iceberg_ds.options.other_writers import foreign_table
from iceberg_ds.options.sink_options import options_table

REPOSITORY = Path(__file__).parents[2]
README = REPOSITORY / "README.md"
UPSERTS = REPOSITORY / "docs" / "upserts.md"
COMING_FROM = REPOSITORY / "docs" / "coming-from.md"
DOCUMENTS = [README, *sorted((REPOSITORY / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(# example: *(.+?)\n.*?)^```$", re.DOTALL | re.MULTILINE)
_OPTIONS = re.compile(
    r"^<!-- options: made by `make readme` -->$(.*?)^<!-- end of options -->$", re.DOTALL | re.MULTILINE
)
_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_NAMED_MODULE = re.compile(r"`(\w+(?:/\w+)?\.py)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
TIMEOUT_S = 500
_RUN = """
import json, sys
for name, code in json.load(sys.stdin).items():
    print(f"example {name}:", flush=True)
    exec(compile(code, f"example {name}", "exec"), {"__name__": "__main__"})
"""
_PRINTED = re.compile(r"^example (.+):\n((?:(?!example ).*\n)*)", re.MULTILINE)


def read_examples(document: Path = README) -> dict[str, str]:
    """Return a document's examples by their names, in their order."""
    return {match[2]: match[1] for match in _BLOCK.finditer(document.read_text())}


def run(examples: dict[str, str], folder: Path) -> dict[str, str]:
    """Run examples in one process, each with names of its own, and return what each prints.

    Raises:
        AssertionError: One of them failed; the output is in the text.
    """
    environment = dict(os.environ)
    prepare_environment(environment, folder.with_name("environment"))
    spare_defaults(environment, folder.with_name("conf"))
    ended = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(examples),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-5000:]}"
    return {match[1]: match[2] for match in _PRINTED.finditer(ended.stdout)}


def test_readme_has_an_example_for_a_batch_and_for_a_stream() -> None:
    """The test below would check nothing."""
    examples = read_examples()

    assert len(examples) >= 3
    assert any('.write.format("icebergsink")' in code for code in examples.values())
    assert any('.writeStream.format("icebergsink")' in code for code in examples.values())


@pytest.mark.timeout(600)
def test_examples_of_the_readme_run_one_after_the_other(tmp_path: Path) -> None:
    """The first thing that a new user tries would fail."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    examples = read_examples()

    printed = run(examples, folder)

    assert list(printed) == list(examples)
    assert int(printed["read"]) > 0
    house = Warehouse(folder=folder / "iceberg-warehouse")
    assert house.rows("db.events").num_rows == 1000
    assert house.rows("db.ticks").num_rows > 0


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_examples_of_rows_with_keys_leave_the_rows_that_they_promise(tmp_path: Path) -> None:
    """A user's change feed would be read otherwise than its documentation says."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    examples = read_examples(UPSERTS)

    printed = run(examples, folder)

    def rows(table: str, columns: str = "id, name", order: str = "id") -> list[tuple[Any, ...]]:
        found = read_with_chdb(folder / "iceberg-warehouse" / "shop" / table, columns, order)
        return [tuple(row.values()) for row in found]

    names = ["customer"] * 90 + ["renamed"] * 20
    assert list(printed) == list(examples)
    assert rows("customers") == [(number, f"{name} {number}") for number, name in enumerate(names)]
    assert rows("orders", "id, status, lsn") == [(1, "paid", 3)]
    assert rows("people") == [(1, "anna")]
    assert rows("moved_people") == [(7, "ann")]
    assert rows("delta_people") == [(1, "anna")]
    assert rows("materialize_people") == [(1, "anna")]
    assert rows("totals", "customer, paid", "customer") == [(1, 6), (2, 7)]
    assert rows("accounts", "id, lsn") == [(1, 1)]
    assert rows("members", "id, name, gone") == [(1, "ann", True), (2, None, True), (3, "cem", False)]
    assert printed["changelog"].strip() == "[(1, 'ann', 8, 1)]"
    outdated = "[(1, 'ann', True), (1, 'anna', False), (2, 'bob', True), (2, 'bob', True)]"
    assert printed["outdated"].strip() == outdated
    assert "they hid 10 rows of 1 data files" in printed["convert"]
    newest = rows("regions", "id, region, version", "version")
    assert len(newest) == 300
    assert [version for _, _, version in newest] == list(range(700, 1000))


@pytest.mark.parametrize(("page", "table"), [(README, options_table), (COMING_FROM, foreign_table)])
def test_table_of_options_is_that_of_the_code(page: Path, table: Callable[[], str]) -> None:
    """A page would tell of options that do not exist, or not of those that do."""
    found = _OPTIONS.search(page.read_text())

    assert found is not None
    assert found[1].strip() == table()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    """A guarantee could name a test that nobody runs."""
    named = _NAMED_TEST.findall(document.read_text())

    missing = [
        f"{path}::{function}"
        for path, function in named
        if not (REPOSITORY / path).exists()
        or (function and not re.search(rf"^def {function}\(", (REPOSITORY / path).read_text(), re.MULTILINE))
    ]
    assert named
    assert missing == []


@pytest.mark.parametrize("document", ["architecture.md", "glossary.md"])
def test_every_module_that_a_document_names_exists(document: str) -> None:
    """A newcomer would look for code where it stood once."""
    named = _NAMED_MODULE.findall((REPOSITORY / "docs" / document).read_text())

    assert named
    assert [name for name in named if not (REPOSITORY / "iceberg_ds" / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    """A reader would be sent nowhere."""
    links = [link for link in _LINK.findall(document.read_text()) if "://" not in link]

    assert [link for link in links if not _leads_somewhere(document, link)] == []


def _leads_somewhere(document: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    if not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_word_of_another_writer_has_a_test_or_is_said_to_be_missing() -> None:
    """A user who changes writers would find out in production what is not here."""
    # The table of options is made from those that the sink knows, and has a test of its own.
    written, _, _ = COMING_FROM.read_text().partition("<!-- options:")
    _, _, rest = COMING_FROM.read_text().partition("<!-- end of options -->")
    rows = [line.split("|") for line in (written + rest).splitlines() if line.startswith("| ")]
    words = [cells for cells in rows if cells[1].strip() != "there"]

    assert len(words) >= 30
    assert [cells[1] for cells in words if not (_NAMED_TEST.search(cells[3]) or "not here yet" in cells[2])] == []
