"""The page that lists the cases of other writers' suites says what the tests say."""

from __future__ import annotations

import pytest
from support.peer.cases import DIFFERS, PAGE, PASSES, Peer, find_cases, repeated, verdict_page


def test_page_lists_the_cases_of_today() -> None:
    """A user would read verdicts that no test holds; `make reference` writes the page anew."""
    assert PAGE.read_text() == verdict_page(find_cases())


def test_each_case_is_ported_once() -> None:
    """A case could have two verdicts, or be counted twice."""
    assert repeated(find_cases()) == []


def test_difference_without_a_reason_or_a_place_is_refused() -> None:
    """A case that fails could be waved through without a word."""
    with pytest.raises(ValueError, match="where the docs say so"):
        DIFFERS("it does", see="")


def test_marks_say_the_case_its_verdict_and_what_is_tried() -> None:
    """The page would show a verdict beside the wrong case."""
    peer = Peer("somebody/tables", "writes")

    @peer.case("SuiteA.one", "SuiteB.one")
    @peer.case("SuiteA.two", verdict=DIFFERS("names count", see="columns.md"))
    def test_rows_come_back() -> None: ...

    page = verdict_page(test_rows_come_back.peer_cases)  # type: ignore[attr-defined]
    assert page.splitlines()[-3:] == [
        "| `SuiteA.one` | rows come back | passes |",
        "| `SuiteB.one` | rows come back | passes |",
        "| `SuiteA.two` | rows come back | differs: names count ([docs](columns.md)) |",
    ]
    assert "3 cases: 2 pass, 1 differ." in page
    assert PASSES.passes
