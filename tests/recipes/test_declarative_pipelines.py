"""The recipe for Spark's declarative pipelines, run by `spark-pipelines`."""

from __future__ import annotations

import pytest
from support.recipes import TIMEOUT_S, Recipe

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(TIMEOUT_S)]


def test_pipeline_that_is_run_again_appends_new_rows_alone(recipe: Recipe) -> None:
    """A user's pipeline would add all rows again with every run."""
    recipe.run_readme()  # runs it twice

    assert [row["id"] for row in recipe.read("web.clicks", sort_by="id")] == [1, 2]

    (recipe.folder / "incoming" / "2.json").write_text('{"id": 3, "page": "/", "at": "2026-11-21T12:00:02Z"}\n')
    recipe.run_again("spark-pipelines run")

    assert [row["id"] for row in recipe.read("web.clicks", sort_by="id")] == [1, 2, 3]
