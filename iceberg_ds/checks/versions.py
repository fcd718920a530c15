"""Pure: the versions of what a machine runs, and what is wrong with them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from iceberg_ds._version import __version__

PYTHON, OWN = "python", "iceberg_ds"
# The oldest that may be used; `pyproject.toml` says the same.
MINIMUM = {PYTHON: "3.10", "pyspark": "4.0", "pyarrow": "18", "pyiceberg": "0.12"}
# How many parts of the version must be the same on all machines.
_SAME_PARTS = {PYTHON: 2, "pyspark": 2, "pyarrow": 0, "pyiceberg": 2, OWN: 3}


def installed_versions() -> dict[str, str]:
    """Return the versions of this machine; what is not installed has none."""
    found = {name: text for name in MINIMUM if name != PYTHON and (text := _version(name)) is not None}
    return {PYTHON: platform.python_version(), **found, OWN: __version__}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # shipped without what pip records
        try:
            return str(import_module(name).__version__)
        except (ImportError, AttributeError):
            return None


def version_problems(found: Mapping[str, str], driver: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the versions of a machine.

    Args:
        found: Its versions.
        driver: Those of the driver.
    """
    problems = []
    for name, least in MINIMUM.items():
        if name not in found:
            problems.append(f"{name} is not installed")
        elif _numbers(found[name]) < _numbers(least):
            problems.append(f"{name} is {found[name]}, and {least} or later is needed")
    for name, parts in _SAME_PARTS.items():
        here, there = found.get(name), driver.get(name)
        if here is not None and there is not None and _numbers(here)[:parts] != _numbers(there)[:parts]:
            problems.append(f"{name} is {here}, and {there} on the driver")
    return problems


def _numbers(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split("."):
        digits = "".join(character for character in part if character.isdigit())
        if not digits or not part[0].isdigit():
            break
        parts.append(int(digits))
    return tuple(parts)


def describe(versions: Mapping[str, str]) -> str:
    """Return the versions in words."""
    return ", ".join(f"{name} {text}" for name, text in versions.items())
