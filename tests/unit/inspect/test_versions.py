"""Which versions are too old, or differ too much."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iceberg_ds.inspect.machine_checks import MINIMUM, installed_versions, version_problems

DRIVER = {"python": "3.11.7", "pyspark": "4.1.4", "pyarrow": "20.0.0", "pyiceberg": "0.12.0", "iceberg_ds": "0.1.0"}


def test_this_machine_has_what_is_needed() -> None:
    """Every check would fail."""
    assert version_problems(installed_versions(), installed_versions()) == []


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({"pyarrow": "9.0.0"}, ["pyarrow is 9.0.0, and 18 or later is needed"]),
        ({"pyarrow": "26.0.1"}, []),
        ({"python": "3.11.2"}, []),
        ({"python": "3.12.1"}, ["python is 3.12.1, and 3.11.7 on the driver"]),
        ({"pyspark": "4.1.0.dev1"}, []),
        ({"pyspark": "4.0.5"}, ["pyspark is 4.0.5, and 4.1.4 on the driver"]),
        (
            {"pyspark": "3.5.8"},
            ["pyspark is 3.5.8, and 4.0 or later is needed", "pyspark is 3.5.8, and 4.1.4 on the driver"],
        ),
        ({"iceberg_ds": "0.1.1"}, ["iceberg_ds is 0.1.1, and 0.1.0 on the driver"]),
    ],
)
def test_versions_that_do_not_fit_are_named(changed: dict[str, str], problems: list[str]) -> None:
    """A job would fail in its tasks, or a healthy cluster would be refused."""
    assert version_problems({**DRIVER, **changed}, DRIVER) == problems


def test_missing_package_is_named() -> None:
    """A job would fail in its tasks."""
    found = {name: version for name, version in DRIVER.items() if name != "pyarrow"}

    assert version_problems(found, DRIVER) == ["pyarrow is not installed"]


def test_least_versions_are_those_of_the_project() -> None:
    """A check would pass what cannot be installed, or refuse what can."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    declared = dict(re.findall(r'^  "(pyspark|pyarrow|pyiceberg)[^>"]*>=([\d.]+)', text, re.MULTILINE))
    declared["python"] = re.findall(r'^requires-python = ">=([\d.]+)"', text, re.MULTILINE)[0]

    assert declared == MINIMUM
