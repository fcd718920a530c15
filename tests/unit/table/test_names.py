"""Which column a name means, with and without regard to case."""

from __future__ import annotations

import pytest

from iceberg_ds.table.names import AmbiguousNameError, find_position, find_sources, safe_names

BOTH = ["id", "ID"]


@pytest.mark.parametrize(
    ("names", "position"),
    [(["id", "ID"], 0), (["ID", "id"], 1), (["a", "ID"], 1), (["a", "Id", "b"], 1), (["a"], None), ([], None)],
)
def test_exact_name_wins_over_another_case(names: list[str], position: int | None) -> None:
    """Values would go into another column."""
    assert find_position("id", names) == position


@pytest.mark.parametrize(("names", "position"), [(["id", "ID"], 0), (["ID"], None), (["Id", "id"], 1)])
def test_only_the_exact_name_counts_where_case_does(names: list[str], position: int | None) -> None:
    """Values would go into another column."""
    assert find_position("id", names, case_sensitive=True) == position


@pytest.mark.parametrize(("names", "position"), [(["ID"], 0), (["a", "id"], 1), (["a"], None)])
def test_any_case_counts_where_case_does_not(names: list[str], position: int | None) -> None:
    """A write that Spark allows would be refused."""
    assert find_position("Id", names, case_sensitive=False) == position


@pytest.mark.parametrize(("name", "case_sensitive"), [("Id", None), ("Id", False), ("id", False)])
def test_name_of_several_columns_is_refused(name: str, case_sensitive: bool | None) -> None:  # noqa: FBT001  # parametrized
    """Values would go into one of two columns, by luck."""
    with pytest.raises(AmbiguousNameError, match=f"'{name}' could be any of 'id', 'ID'"):
        find_position(name, BOTH, case_sensitive=case_sensitive)


@pytest.mark.parametrize("case_sensitive", [True, None])
@pytest.mark.parametrize(
    ("given", "sources"), [(["ID"], [None, 0]), (["id"], [0, None]), (["ID", "id"], [1, 0]), (["x"], [None, None])]
)
def test_column_feeds_the_exact_one_of_two_alone(
    given: list[str],
    sources: list[int | None],
    case_sensitive: bool | None,  # noqa: FBT001  # parametrized
) -> None:
    """A column that the DataFrame does not have would be filled with another's values."""
    assert find_sources(given, BOTH, case_sensitive=case_sensitive) == sources


@pytest.mark.parametrize(("given", "case_sensitive"), [(["id", "ID"], False), (["id", "ID"], None), (["x", "x"], True)])
def test_two_columns_never_feed_one(given: list[str], case_sensitive: bool | None) -> None:  # noqa: FBT001  # parametrized
    """The values of one of them would be lost."""
    with pytest.raises(AmbiguousNameError, match="could be any of"):
        find_sources(given, ["id", "x"] if case_sensitive else ["id"], case_sensitive=case_sensitive)


def test_safe_names_differ() -> None:
    """Two columns of a file would have the same name."""
    assert safe_names(["a b", "a_x20b", "1", "_1", "ok", "ünï", "👍"]) == [
        "a_x20b_",
        "a_x20b",
        "_1_",
        "_1",
        "ok",
        "ünï",
        "_x1F44D",
    ]
