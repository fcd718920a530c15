"""Which delete files a commit may drop: those that apply to no data file, and never another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent
from support.tables.live_files import BY_DAY, BY_REGION, NO_PARTITIONS, PATH_ID, SPECS, VOID, keys, live, positions

from iceberg_ds.maintenance.dangling_deletes import dangling_deletes
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles

EU, US = {"spec": BY_REGION, "partition": ("EU",)}, {"spec": BY_REGION, "partition": ("US",)}


def dangling(*files: LiveFile, **commit: Any) -> list[str]:
    """Return the paths of the delete files that apply to nothing."""
    return [found.path for found in dangling_deletes(LiveFiles.of(files), SPECS, **commit)]


def of(path: str, last: str | None = None) -> dict[int, tuple[bytes, bytes]]:
    """Return the bounds of a file of positions in these data files."""
    return {PATH_ID: (path.encode(), (last or path).encode())}


def test_equality_deletes_stay_while_an_older_data_file_is_live() -> None:
    """Deleted rows would come back; or deletes that apply to nothing stay for good."""
    deletes = [keys("below", 3, **EU), keys("same", 4, **EU), keys("above", 5, **EU)]

    assert dangling(live("f", 4, **EU), *deletes) == ["below", "same"]


def test_position_deletes_stay_while_a_data_file_as_old_is_live() -> None:
    """The rows that a commit both wrote and deleted would come back."""
    deletes = [positions("below", 3, **EU), positions("same", 4, **EU), positions("above", 5, **EU)]

    assert dangling(live("f", 4, **EU), *deletes) == ["below"]


def test_partitions_are_told_apart() -> None:
    """An old file in one partition would keep the deletes of all; or deletes go with the files of another."""
    old, new = live("old", 1, **EU), live("new", 9, **US)
    deletes = [keys("eu", 5, **EU), keys("us", 5, **US), positions("pos", 5, **US), keys("nowhere", 5, spec=BY_DAY)]

    assert dangling(old, new, *deletes) == ["pos", "us", "nowhere"]


@pytest.mark.parametrize("scope", [{}, {"spec": VOID, "partition": (None,)}])
def test_deletes_of_the_whole_table_stay_while_any_data_file_is_older(scope: dict[str, Any]) -> None:
    """Iceberg's own clean-up takes them for deletes of a partition without files, and rows come back."""
    deletes = [keys("below", 2, **scope), keys("above", 3, **scope)]

    assert dangling(live("eu", 2, **EU), live("us", 9, **US), *deletes) == ["below"]


def test_position_deletes_without_partitions_are_not_of_the_whole_table() -> None:
    """They would be kept for data files of other specs, to which no reader applies them."""
    assert dangling(live("eu", 1, **EU), positions("p", 5)) == ["p"]


def test_positions_of_files_that_are_gone_apply_to_nothing() -> None:
    """They would stay while any old file of their partition is live."""
    deletes = [
        positions("of gone", 5, bounds=of("b")),
        positions("of live", 5, bounds=of("c")),
        positions("of younger", 5, bounds=of("d")),
        positions("between", 5, bounds=of("b", "bz")),
        positions("around", 5, bounds=of("b", "cz")),
        positions("unknown", 5),
    ]

    assert dangling(live("a", 1), live("c", 1), live("d", 6), *deletes) == ["of gone", "of younger", "between"]


def test_positions_of_one_file_stay_in_whatever_partition_they_are_listed() -> None:
    """Iceberg's Java library applies them by the path alone, and would show the rows again."""
    assert dangling(live("f", 1, **EU), positions("p", 5, bounds=of("f"), **US)) == []


def test_what_the_commit_drops_and_adds_counts() -> None:
    """Deletes would stay until the next rewrite; or go although they apply to the rows that were written again."""
    files = [live("old", 1), keys("k", 4), positions("p", 4, bounds=of("old")), positions("q", 4)]

    assert dangling(*files, gone={"old"}) == ["p", "q", "k"]
    assert dangling(*files, gone={"old"}, added=[live("new", 4)]) == ["p", "k"]
    assert dangling(*files, gone={"old"}, added=[live("new", 3)]) == ["p"]
    assert dangling(*files, gone={"old", "p"}, added=[live("new", 5)]) == ["q", "k"]


def test_file_that_is_listed_twice_stays_if_one_of_its_entries_applies() -> None:
    """Files are dropped by their paths, so the entry that applies would go with the other."""
    assert dangling(live("f", 3), keys("twice", 2), keys("twice", 4)) == []
    assert dangling(live("f", 3), live("f", 1), positions("p", 2, bounds=of("f"))) == []
    assert dangling(live("f", 5), keys("twice", 2), keys("twice", 4)) == ["twice", "twice"]


def test_without_data_files_all_deletes_dangle() -> None:
    """A table that was emptied would keep its deletes for good."""
    assert dangling(keys("k", 3), positions("p", 3)) == ["p", "k"]
    assert dangling() == []


places = st.sampled_from(
    [
        {"spec": NO_PARTITIONS, "partition": ()},
        {"spec": VOID, "partition": (None,)},
        *(
            {"spec": spec, "partition": (value,)}
            for spec, value in ((BY_REGION, "EU"), (BY_REGION, None), (BY_DAY, "EU"))
        ),
    ]
)
names = st.sampled_from("abc")
data_files = st.builds(lambda path, number, place: live(path, number, **place), names, st.integers(0, 3), places)
bounds = st.one_of(
    st.just({}), st.tuples(names, names).map(lambda pair: of(min(pair), max(pair))), st.builds(of, names)
)
delete_files = st.one_of(
    st.builds(lambda path, number, place: keys(f"k{path}", number, **place), names, st.integers(0, 3), places),
    st.builds(
        lambda path, number, place, known: positions(f"p{path}", number, bounds=known, **place),
        names,
        st.integers(0, 3),
        places,
        bounds,
    ),
)


def applies(deletes: LiveFile, data: LiveFile) -> bool:
    """Return whether a reader applies a delete file to a data file, rule by rule of the spec, and of Java's library."""
    is_here = (deletes.data_file.spec_id, deletes.data_file.partition) == (
        data.data_file.spec_id,
        data.data_file.partition,
    )
    if deletes.data_file.content is DataFileContent.EQUALITY_DELETES:
        is_everywhere = deletes.data_file.spec_id in {NO_PARTITIONS, VOID}
        return data.sequence_number < deletes.sequence_number and (is_here or is_everywhere)
    low = (deletes.data_file.lower_bounds or {}).get(PATH_ID, b"")
    high = (deletes.data_file.upper_bounds or {}).get(PATH_ID, b"~")
    names_it = low <= data.path.encode() <= high
    return data.sequence_number <= deletes.sequence_number and names_it and (is_here or low == high)


@settings(max_examples=300)
@given(
    data=st.lists(data_files, max_size=6),
    deletes=st.lists(delete_files, max_size=6),
    gone=st.frozensets(st.sampled_from([*"abcdef", "ka", "pa"]), max_size=4),
    added=st.lists(data_files.map(lambda found: live(f"new-{found.path}", found.sequence_number)), max_size=2),
)
def test_exactly_what_applies_to_nothing_is_found(
    data: list[LiveFile], deletes: list[LiveFile], gone: frozenset[str], added: list[LiveFile]
) -> None:
    """One delete too many would bring rows back; one too few stays if a file is listed in several partitions."""
    left = [*(found for found in data if found.path not in gone), *added]
    stand = [found for found in deletes if found.path not in gone]
    needed = {found.path for found in stand if any(applies(found, other) for other in left)}

    found, expected = set(dangling(*data, *deletes, gone=gone, added=added)), {one.path for one in stand} - needed

    assert found <= expected
    if len({one.path for one in left}) == len({(one.path, one.place) for one in left}):
        assert found == expected
