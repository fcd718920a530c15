"""The page on storage: its example runs, and the tests that it names are there."""

from __future__ import annotations

import pprint
import re
from pathlib import Path

import pytest
from support.services.bucket import Bucket

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "storage.md"
_EXAMPLE = re.compile(r"^```python\n(# example: s3\n.*?)^```$", re.DOTALL | re.MULTILINE)
_OPTIONS = re.compile(r"(?ms)^lake = (\{.*?^\})")
_PLACE = re.compile(r"`(?:tests/[\w/]+/)?(test_\w+)\.py(?:::(test_\w+))?`")
_TEST = re.compile(r"`(test_\w+)`")


@pytest.mark.usefixtures("spark")  # the example gets the session that there is
def test_example_runs_against_a_real_server(bucket: Bucket, tmp_path: Path) -> None:
    """The first thing that a user of S3 tries would fail."""
    (code,) = _EXAMPLE.findall(PAGE.read_text())
    options = {
        "catalog": "documented",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": f"{bucket.location}/warehouse",
        **{f"catalog.{key}": text for key, text in bucket.store.properties.items()},
    }
    (literal,) = _OPTIONS.findall(code)
    assert set(re.findall(r'"(catalog[^"]*)":', literal)) == set(options)
    exec(code.replace(literal, pprint.pformat(options)), {})  # noqa: S102  # a page of ours
    catalog = connect(catalog_settings(parse_options({"table": "shop.events", **options})))

    assert catalog.load_table(("shop", "events")).scan().to_arrow().num_rows == 1000


def test_tests_that_the_page_names_are_there() -> None:
    """A user would trust words that no test holds."""
    text = PAGE.read_text()
    files = list((ROOT / "tests").rglob("test_*.py"))
    stems, sources = {path.stem for path in files}, [path.read_text() for path in files]
    places = _PLACE.findall(text)
    named = {name for name in _TEST.findall(text) if name not in stems} | {test for _, test in places if test}

    assert len(places) > 5
    assert {file for file, _ in places} <= stems
    assert [name for name in named if not any(f"def {name}(" in source for source in sources)] == []
