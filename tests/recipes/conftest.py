"""The recipe of a test module: `test_airflow.py` gets a copy of `examples/airflow`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recipes import Recipe, copy_recipe


@pytest.fixture
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Recipe:
    """Return a copy of the recipe that the test module is named for."""
    return copy_recipe(request.path.stem.removeprefix("test_"), tmp_path / "recipe")
