"""The examples of README and docs, run as a reader would run them, and what the pages claim of options and tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.exhaustive import EXHAUSTIVE
from support.scripts import load_script
from support.spark.session import NO_PANDAS, prepare_environment, spare_defaults
from support.spark.tables import Warehouse, read_with_chdb

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
GUARANTEES = DOCS / "guarantees.md"
COMING_FROM = sorted(path for path in (DOCS / "coming-from").glob("*.md") if path.stem != "index")
DOCUMENTS = [README, *sorted(DOCS.rglob("*.md"))]
# Pages whose examples run one after the other: later ones read what earlier ones have written.
GUIDES = [
    DOCS / f"{page}.md"
    for page in (
        "tables",
        "overwrites",
        "branches",
        "streams",
        "many-tables",
        "bad-rows",
        "atomic",
        "transactions",
        "maintenance/expire-snapshots",
        "maintenance/remove-orphan-files",
        "metrics/index",
        "metrics/prometheus",
        "maintenance/rewrite-data-files",
        "maintenance/index",
        "changing-rows",
        "reading",
        "version-3",
    )
]
KEYS = [
    DOCS / "keys" / f"{page}.md"
    for page in (
        "index",
        "feeds",
        "soft-deletes",
        "changes",
        "distribute",
        "published",
        "upsert",
        "streams",
        "late-rows",
        "convert",
    )
]
# Pages whose examples other tests run: those of catalogs and stores, on clusters, of `verify` and of `watch`.
RUN_ELSEWHERE = [
    *(DOCS / "catalogs").glob("*.md"),
    *(DOCS / f"{page}.md" for page in ("storage", "clusters", "verify", "metrics/watch")),
]
RUN_ELSEWHERE += [DOCS / "connect.md", DOCS / "maintenance" / "manifests-and-deletes.md"]
# Pages whose examples need Python workers that find pandas.
WITH_PANDAS = [DOCS / "source-transactions.md"]
MOST_LINES = 150
_BLOCK = re.compile(r"^```python\n(# example: *(.+?)\n.*?)^```$", re.DOTALL | re.MULTILINE)
_GUARANTEE = re.compile(r"^\| (?!guarantee|---)([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_NAMED_MODULE = re.compile(r"`(\w+(?:/\w+)?\.py)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
TIMEOUT_S = 500
# Spark's `mapInArrow` asks for pandas in the driver's Python, where the environment of the tests hides it.
_RUN = f"""
import json, sys
sys.path[:] = [path for path in sys.path if not path.endswith({NO_PANDAS!r})]
for name, code in json.load(sys.stdin).items():
    print(f"example {{name}}:", flush=True)
    exec(compile(code, f"example {{name}}", "exec"), {{"__name__": "__main__"}})
"""
_PRINTED = re.compile(r"^example (.+):\n((?:(?!example ).*\n)*)", re.MULTILINE)


def read_examples(*documents: Path) -> dict[str, str]:
    """Return the examples of documents by their names, in their order."""
    found = [(match[2], match[1]) for document in documents for match in _BLOCK.finditer(document.read_text())]
    assert len(dict(found)) == len(found)
    return dict(found)


def run(examples: dict[str, str], folder: Path, *, finds_pandas: bool = False) -> dict[str, str]:
    """Run examples in one process, each with names of its own, and return what each prints.

    `finds_pandas` says whether Python workers find pandas.

    Raises:
        AssertionError: One of them failed; the output is in the text.
    """
    environment = dict(os.environ)
    prepare_environment(environment, folder.with_name("environment"), finds_pandas=finds_pandas)
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


def test_readme_is_short_and_has_no_links_that_break_elsewhere() -> None:
    """A package index shows the README without the files beside it, and nobody reads a long one."""
    text = README.read_text()

    assert len(text.splitlines()) <= MOST_LINES
    assert [link for link in _LINK.findall(text) if not link.startswith("https://")] == []
    assert "<img" not in text


def test_pages_that_the_readme_names_exist() -> None:
    """A reader would look for a page that has another name."""
    named = set(re.findall(r"\b(?:docs(?:/[\w-]+)*(?:\.md)?|[A-Z]{5,}\.md)\b", README.read_text()))

    assert len(named) >= 8
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
    packed = (REPOSITORY / "pyproject.toml").read_text().partition("[tool.hatch.build.targets.sdist]")[2]
    assert [name for name in named if f'"{name.partition("/")[0]}"' not in packed] == []


def test_source_distribution_holds_what_tests_and_pages_read() -> None:
    """Tests of the unpacked distribution would fail at files that only a checkout has."""
    packed = (
        (REPOSITORY / "pyproject.toml").read_text().partition("[tool.hatch.build.targets.sdist]")[2].partition("]")[0]
    )
    tops = {name.partition("/")[0] for name in re.findall(r'"([^"]+)"', packed)} | {"pyproject.toml", "PKG-INFO"}
    read = {"CONTRIBUTING.md", "Makefile", ".github", ".pre-commit-config.yaml", ".ci", "docs", "tests", "examples"}

    assert read <= tops
    if (REPOSITORY / ".git").exists():
        tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
        assert {name.partition("/")[0] for name in tracked.stdout.splitlines()} - tops == {".gitignore"}


def test_readme_has_an_example_for_each_way_to_write() -> None:
    """The test below would check nothing."""
    examples = read_examples(README)

    assert len(examples) >= 4
    for way in (
        '.write.format("icebergsink")',
        '.writeStream.format("icebergsink")',
        "iceberg_ds.upsert(",
        "iceberg_ds.read(",
    ):
        assert any(way in code for code in examples.values())


@pytest.mark.timeout(600)
def test_examples_of_readme_and_guides_run_one_after_the_other(tmp_path: Path) -> None:
    """The first thing that a new user tries would fail."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    examples = read_examples(README, *GUIDES)

    printed = run(examples, folder)

    assert list(printed) == list(examples)
    assert int(printed["read"]) == 20
    assert int(printed["read a stream"]) == 100
    assert printed["copy by changes"].strip() == "[Row(id=1, name='anna')]"
    house = Warehouse(folder=folder / "iceberg-warehouse")
    names = house.rows("db.events").column("name").to_pylist()
    assert sum(name.startswith("renamed") for name in names) == 20
    assert house.rows("db.ticks").num_rows == 2
    assert {"[{'id': 1, 'customer': 7}]", "[{'id': 7}]"} <= set(printed["cut"].splitlines())
    assert printed["reports"].strip() == "committed 1000 1000"
    (added,) = [line for line in printed["exporter"].splitlines() if 'table="db.watched"' in line]
    assert added.endswith(" 1000.0")
    assert sorted(house.rows("db.takings").column("price").to_pylist()) == [Decimal("1.5")] * 50 + [Decimal("2.5")] * 50


@pytest.mark.timeout(600)
@EXHAUSTIVE
def test_examples_that_need_pandas_in_workers_run(tmp_path: Path) -> None:
    """The first thing that a user of these pages tries would fail."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    examples = read_examples(*WITH_PANDAS)

    assert list(run(examples, folder, finds_pandas=True)) == list(examples)


def test_every_example_is_run_by_a_test() -> None:
    """A user would copy what nobody has ever run."""
    run_here = {README, *GUIDES, *KEYS, *WITH_PANDAS, *RUN_ELSEWHERE}

    assert [page for page in DOCUMENTS if _BLOCK.search(page.read_text()) and page not in run_here] == []


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_examples_of_rows_with_keys_leave_the_rows_that_they_promise(tmp_path: Path) -> None:
    """A user's change feed would be read otherwise than its documentation says."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    examples = read_examples(*KEYS)

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
    assert rows("marked") == rows("customers")
    assert printed["balances"].strip() == "[(1, 10), (2, 25)]"
    assert rows("visitors", "id, page, at") == [(1, "/", 1), (2, "/", 2)]
    assert rows("newest", "id, name, gone") == [(1, "anna", False), (2, "bob", True), (3, "cem", False)]
    assert rows("members", "id, name, gone") == [(1, "ann", True), (2, None, True), (3, "cem", False)]
    assert printed["changelog"].strip() == "[(1, 'ann', 8, 1)]"
    outdated = "[(1, 'ann', True), (1, 'anna', False), (2, 'bob', True), (2, 'bob', True)]"
    assert printed["outdated"].strip() == outdated
    assert "they hid 10 rows of 1 data files" in printed["convert"]
    newest = rows("regions", "id, region, version", "version")
    assert len(newest) == 300
    assert [version for _, _, version in newest] == list(range(700, 1000))


def test_pages_of_reference_say_what_the_code_says() -> None:
    """A page would tell of options, properties, types, errors or commands that do not exist."""
    reference = load_script(REPOSITORY / ".ci" / "write_reference.py")

    assert len(reference.TABLES) >= 6
    assert reference.outdated() == [], "run `make reference`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    """A guarantee could name a test that nobody runs."""
    missing = [
        f"{path}::{function}"
        for path, function in _NAMED_TEST.findall(document.read_text())
        if not (REPOSITORY / path).exists()
        or (function and not re.search(rf"^def {function}\(", (REPOSITORY / path).read_text(), re.MULTILINE))
    ]
    assert missing == []


def test_every_guarantee_names_a_test() -> None:
    """A promise could stand there that no test holds."""
    guarantees = _GUARANTEE.findall(GUARANTEES.read_text())

    assert len(guarantees) >= 60
    assert [promise for promise, test in guarantees if not _NAMED_TEST.search(test)] == []


@pytest.mark.parametrize("document", ["architecture.md", "glossary.md"])
def test_every_module_that_a_document_names_exists(document: str) -> None:
    """A newcomer would look for code where it stood once."""
    named = _NAMED_MODULE.findall((DOCS / document).read_text())

    assert named
    assert [name for name in named if not (REPOSITORY / "iceberg_ds" / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
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
    if f"::: {anchor}\n" in target.read_text():  # which the site makes a heading of
        return True
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", COMING_FROM, ids=lambda path: path.stem)
def test_every_word_of_another_writer_has_a_test_or_is_said_to_be_missing(page: Path) -> None:
    """A user who changes writers would find out in production what is not here."""
    # The table of options is made from those that the sink knows, and has a test of its own.
    written, _, made = page.read_text().partition("<!-- made from code")
    _, _, rest = made.partition("<!-- end of what is made from code -->")
    rows = [line.split("|") for line in (written + rest).splitlines() if line.startswith("| ")]
    words = [cells for cells in rows if cells[1].strip() != "there"]

    assert len(words) >= 8
    assert [cells[1] for cells in words if not (_NAMED_TEST.search(cells[3]) or "not here yet" in cells[2])] == []
