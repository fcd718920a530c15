"""The documentation as a site: it builds strictly, without network, and loads nothing from elsewhere."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import iceberg_ds

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 300
# Runs mkdocs in a process that cannot reach any other.
_WITHOUT_NETWORK = """
import socket, sys

def refuse(*_):
    raise OSError("the site is built without network")

socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli

cli(sys.argv[1:])
"""
# Of each element that makes a browser load something, the attribute that says what.
_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Loads(HTMLParser):
    """Notes what a page makes a browser load, and which anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if address := given.get(_LOADED.get(tag, "")):
            self.loaded.append(address)
        if anchor := given.get("id"):
            self.anchors.add(anchor)


def parsed(page: Path) -> _Loads:
    """Return what a page loads and has."""
    parser = _Loads()
    parser.feed(page.read_text())
    return parser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    arguments = ("build", "--strict", "--site-dir", str(folder))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_NETWORK, *arguments],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return folder


def test_every_page_of_the_docs_is_on_the_site(site: Path) -> None:
    """A page could be written that no reader finds."""
    docs = REPOSITORY / "docs"
    pages = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}

    assert len(pages) > 50
    assert [page for page in pages if not (site / page).exists()] == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Readers would be told to others, and see no page without a network."""
    pages = {page: parsed(page).loaded for page in site.rglob("*.html")}
    styles = [
        text
        for path in site.rglob("*.css")
        for text in re.findall(r"(?:url\(|@import)\s*['\"]?(\S+)", path.read_text())
    ]

    assert all(pages.values())
    assert {address for loaded in pages.values() for address in loaded if re.match(r"(?:\w+:)?//", address)} == set()
    assert [address for address in styles if re.match(r"(?:https?:)?//", address)] == []


def test_charts_and_drawings_are_there(site: Path) -> None:
    """A page would show an empty frame."""
    shown = {
        page: [address for address in parsed(page).loaded if address.endswith((".png", ".svg"))]
        for page in site.rglob("*.html")
        if page.name != "404.html"  # which any folder shows: its addresses begin at the root
    }

    assert [
        address for page, images in shown.items() for address in images if not (page.parent / address).exists()
    ] == []
    assert len([1 for images in shown.values() for address in images if "benchmarks/results" in address]) >= 3
    assert any("architecture.svg" in address for address in shown[site / "architecture.html"])


def test_page_of_the_python_api_has_every_function_and_argument(site: Path) -> None:
    """A user could not find what a name is."""
    page = site / "api.html"
    text, anchors = page.read_text(), parsed(page).anchors
    public: dict[str, Any] = {name: getattr(iceberg_ds, name) for name in iceberg_ds.__all__}
    functions = {name: thing for name, thing in public.items() if inspect.isfunction(thing)}

    assert len(functions) >= 9
    assert [name for name in functions if f"iceberg_ds.{name}" not in anchors] == []
    assert [
        (name, argument)
        for name, function in functions.items()
        for argument in inspect.signature(function).parameters
        if f"<code>{argument}</code>" not in text
    ] == []


def test_links_to_files_that_the_site_lacks_are_their_texts(site: Path) -> None:
    """A reader of the site would be sent nowhere."""
    contributing = (site / "CONTRIBUTING.html").read_text()

    assert "tests/support/exhaustive.py" in contributing
    assert 'href="tests/support/exhaustive.py"' not in contributing
    assert 'href="architecture.html"' in contributing
