"""`KnownFiles`: what is kept of files, and what goes."""

from __future__ import annotations

import re

from iceberg_ds.io.known_files import KnownFiles


def known_files(max_weight: int = 10) -> KnownFiles[str]:
    """Return files that hold text, which takes the room of its letters."""
    return KnownFiles(re.compile(r"-[0-9a-f]{4}\.txt$"), len, max_weight)


def test_file_is_known_once_it_was_kept() -> None:
    """It would be read again at each look."""
    files = known_files()
    files.keep("/t/1-00aa.txt", "one")

    assert files.find("/t/1-00aa.txt") == "one"
    assert files.find("/t/2-00aa.txt") is None


def test_file_that_may_have_been_another_one_is_not_kept() -> None:
    """A table would be shown as it was before it was made again."""
    files = known_files()
    files.keep("/t/v1.txt", "one")

    assert files.find("/t/v1.txt") is None


def test_what_was_not_used_for_the_longest_time_goes_first() -> None:
    """A driver that writes to many tables would run out of memory."""
    files = known_files(max_weight=6)
    for number, held in ((1, "one"), (2, "two")):
        files.keep(f"/t/{number}-00aa.txt", held)
    files.find("/t/1-00aa.txt")
    files.keep("/t/3-00aa.txt", "six")

    assert [files.find(f"/t/{number}-00aa.txt") for number in (1, 2, 3)] == ["one", None, "six"]


def test_file_that_alone_is_too_large_drives_out_only_what_it_replaces() -> None:
    """One large table would slow down all small ones."""
    files = known_files(max_weight=6)
    files.keep("/t/1-00aa.txt", "one", owner="t")
    files.keep("/u/1-00aa.txt", "two", owner="u")
    files.keep("/t/2-00aa.txt", "o" * 7, owner="t")

    assert [files.find(path) for path in ("/t/1-00aa.txt", "/u/1-00aa.txt", "/t/2-00aa.txt")] == [None, "two", None]
    assert (files.find_of("t"), files.find_of("u")) == (None, "two")


def test_last_file_of_an_owner_is_found_by_its_name() -> None:
    """Of a table that was written by others, the whole history would be parsed again."""
    files = known_files(max_weight=6)
    files.keep("/t/1-00aa.txt", "one", owner="t")
    files.keep("/t/2-00aa.txt", "two", owner="t")

    assert files.find_of("t") == "two"
    assert files.find("/t/1-00aa.txt") is None
    assert files.find_of("u") is None
    files.keep("/u/1-00aa.txt", "u" * 6, owner="u")
    assert (files.find_of("t"), files.find_of("u")) == (None, "u" * 6)


def test_room_is_that_of_what_is_kept() -> None:
    """Files that are kept again and again would fill the room, and drive out all others."""
    files = known_files(max_weight=6)
    for _ in range(5):
        files.keep("/t/1-00aa.txt", "one")
        files.keep("/u/1-00aa.txt", "two", owner="u")

    assert (files.find("/t/1-00aa.txt"), files.find_of("u")) == ("one", "two")
