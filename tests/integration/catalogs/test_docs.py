"""The examples of the pages in docs/catalogs, run as they stand but for addresses and keys, against real servers."""

from __future__ import annotations

import ast
import pprint
import re
import uuid
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from support.exhaustive import few
from support.services.servers import CatalogService

PAGES = Path(__file__).parents[3] / "docs" / "catalogs"
# Which server stands for the one that a page is about.
SERVERS = {
    "rest": "rest_catalog",
    "glue": "glue",
    "hive": "hive_metastore",
    "nessie": "nessie",
    "sql": "postgres",
}
NOT_RUN = "not run here"
_EXAMPLE = re.compile(r"^```python\n(# example: .+?\n.*?)^```$", re.DOTALL | re.MULTILINE)
_LINE_BEFORE = re.compile(r"(?m)^lake = ")


def read_examples(page: str) -> list[str]:
    """Return the examples of a page, in their order."""
    return [match[1] for match in _EXAMPLE.finditer((PAGES / f"{page}.md").read_text())]


def documented_options(code: str) -> dict[str, str]:
    """Return the options by which an example names its catalog."""
    (literal,) = _dictionaries(code)
    options: dict[str, str] = ast.literal_eval(literal)
    return options


def with_server(code: str, service: CatalogService) -> str:
    """Return an example with the options of a server that runs here, and those that the page alone has."""
    (literal,) = _dictionaries(code)
    return code.replace(literal, pprint.pformat({**documented_options(code), **service.options}))


def _dictionaries(code: str) -> list[str]:
    return [code[match.end() :].partition("\n}")[0] + "\n}" for match in _LINE_BEFORE.finditer(code)]


def test_every_page_is_run_or_says_that_it_is_not() -> None:
    """A user would trust settings that nobody has ever tried."""
    pages = {path.stem: path.read_text() for path in PAGES.glob("*.md")}

    assert pages.keys() >= SERVERS.keys()
    assert [name for name in SERVERS if not read_examples(name)] == []
    assert [name for name, text in pages.items() if name not in SERVERS and NOT_RUN not in text] == []


@pytest.mark.parametrize("page", few(1, SERVERS))
@pytest.mark.usefixtures("spark")  # the examples get the session that there is
def test_example_of_a_page_runs_against_the_real_catalog(
    page: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The first thing that a user of this catalog tries would fail."""
    service: CatalogService = request.getfixturevalue(SERVERS[page])
    namespace = f"docs_{uuid.uuid4().hex[:8]}"
    monkeypatch.chdir(tmp_path)

    for code in read_examples(page):
        assert documented_options(code).keys() <= service.options.keys()
        exec(with_server(code, service).replace("shop.", f"{namespace}."), {})  # noqa: S102  # a page of ours
    catalog = load_catalog(service.name, **service.properties)

    assert catalog.load_table(f"{namespace}.events").scan().to_arrow().num_rows == 1000
