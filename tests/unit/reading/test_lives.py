"""When files are in a table."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.reading.lives import END, Life, Lives

FILES = st.frozensets(st.sampled_from("abc"))


def test_file_that_comes_back_has_another_life() -> None:
    """Rows would be taken for visible while their file was gone, and none would be inserted as it came back."""
    lives = Lives()
    for moment, present in enumerate(["a", "ab", "b", "ab"]):
        lives.note(moment, present)

    assert lives.of("a") == (Life(0, 2), Life(3))
    assert lives.of("b") == (Life(1),)
    assert lives.of("c") == ()


def test_files_that_are_not_looked_at_stay_as_they_are() -> None:
    """All files of the manifests that two snapshots share would be gone."""
    lives = Lives()
    lives.note(0, "ab")
    lives.note(1, "c", among="bc")

    assert (lives.of("a"), lives.of("b"), lives.of("c")) == ((Life(0),), (Life(0, 1),), (Life(1),))


@given(st.lists(FILES, max_size=8))
def test_a_file_lives_in_the_moments_in_which_it_is_there(moments: list[frozenset[str]]) -> None:
    """A change would be told of a moment in which nothing happened."""
    lives = Lives()
    for moment, present in enumerate(moments):
        lives.note(moment, present)

    for path in "abc":
        found = lives.of(path)
        there = {moment for life in found for moment in range(life.since, min(life.until, len(moments)))}
        assert there == {moment for moment, present in enumerate(moments) if path in present}
        assert all(life.until < after.since for life, after in itertools.pairwise(found))
        assert {life.until for life in found} <= {END, *range(len(moments))}
