"""The recipe for Dagster, materialised by Dagster in one process."""

from __future__ import annotations

from datetime import date

import pytest
from support.recipes import TIMEOUT_S, Recipe

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(TIMEOUT_S)]


def test_partition_that_is_materialised_again_is_in_the_table_once(recipe: Recipe) -> None:
    """A user who copies the asset would double a day by materialising it again."""
    printed = recipe.run_readme()

    assert "This try fails after its commit." in printed
    rows = recipe.read("shop.takings", sort_by="day")
    for day in (date(2026, 11, 20), date(2026, 11, 21)):
        assert sorted(row["id"] for row in rows if row["day"] == day) == list(range(1_000))
    assert len(rows) == 2_000
    operations = [snapshot.summary.operation.value for snapshot in recipe.lake.load_table("shop.takings").snapshots()]
    assert len(operations) == 5, operations
