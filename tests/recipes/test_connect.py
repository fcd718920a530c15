"""The recipe for Spark Connect, with a real server and a client in another process."""

from __future__ import annotations

import pytest
from support.recipes import TIMEOUT_S, Recipe
from support.services.server_process import free_port

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(TIMEOUT_S)]


def test_client_that_writes_again_has_its_rows_in_the_table_once(recipe: Recipe) -> None:
    """A user's client could not write through a server, or would double its rows after a lost answer."""
    readme = recipe.folder / "README.md"
    readme.write_text(readme.read_text().replace("15002", str(free_port())))
    printed = recipe.run_readme()

    assert "written by a client" in printed
    assert [row["id"] for row in recipe.read("home.readings", sort_by="id")] == list(range(100))
    assert len(recipe.lake.load_table("home.readings").metadata.snapshots) == 1
