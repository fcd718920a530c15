"""The recipe for Airflow, in a real Airflow over SQLite."""

from __future__ import annotations

from datetime import date

import pytest
from support.recipes import TIMEOUT_S, Recipe

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(TIMEOUT_S)]


def test_day_that_was_killed_retried_and_cleared_is_in_the_table_once(recipe: Recipe) -> None:
    """A user who copies the DAG would load a day twice when its task dies after the commit."""
    printed = recipe.run_readme()

    assert "run with fault 'kill' ended with code -9" in printed
    assert "This try fails after its commit." in printed
    rows = recipe.read("shop.orders", sort_by="id")
    assert [row["id"] for row in rows] == list(range(1_000))
    assert {row["day"] for row in rows} == {date(2026, 11, 21)}
    # The three later writes were skipped: they made no snapshot.
    assert len(recipe.lake.load_table("shop.orders").metadata.snapshots) == 1
