"""The recipe for dbt, which reads through Iceberg's own Spark runtime."""

from __future__ import annotations

from datetime import date

import pytest
from support.recipes import REPOSITORY, TIMEOUT_S, Recipe

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(TIMEOUT_S)]
JARS = (REPOSITORY / ".peer" / "jars").resolve()


def test_models_see_each_row_of_a_load_that_was_repeated_once(recipe: Recipe) -> None:
    """A user's models could not read the sink's table, or would count the orders of a repeated load twice."""
    jars = ",".join(str(next(JARS.glob(f"*{name}*.jar"))) for name in ("iceberg-spark-runtime", "sqlite-jdbc"))
    readme = recipe.folder / "README.md"
    lines = [
        f"export JARS={jars}" if line.startswith("export JARS=") else line for line in readme.read_text().splitlines()
    ]
    readme.write_text("\n".join(lines).replace("--packages $JARS", "--jars $JARS") + "\n")
    recipe.run_readme()

    (takings,) = recipe.read("marts.takings_by_day", sort_by="day")
    orders = recipe.read("shop.orders", sort_by="id")
    assert [row["id"] for row in orders] == list(range(20261121000, 20261122000))
    assert takings == {"day": date(2026, 11, 21), "orders": 1_000, "takings": sum(row["price"] for row in orders)}
