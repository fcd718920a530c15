"""The recipe with a notebook, executed by Jupyter's client."""

from __future__ import annotations

import json

import pytest
from support.recipes import TIMEOUT_S, Recipe

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(TIMEOUT_S)]


def test_executed_notebook_has_its_rows_and_its_plots(recipe: Recipe) -> None:
    """A user's first notebook would fail, or show no plot."""
    recipe.run_readme()

    cells = json.loads((recipe.folder / "done.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert [row["id"] for row in recipe.read("city.trips", sort_by="id")] == list(range(20_000))
    assert [output for output in outputs if "image/png" in output.get("data", {})]
    assert (recipe.folder / "trips.png").stat().st_size > 10_000
    assert not [output for output in outputs if output["output_type"] == "error"]
