"""How old a file must be to count as left behind."""

from __future__ import annotations

import pytest

from iceberg_ds import OptionError
from iceberg_ds.inspect.orphans import parse_grace_ms, require_safe_grace


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("3d", 72),
        ("36h", 36),
        ("90m", 1.5),
        ("1.5 days", 36),
        ("0s", 0),
        ("7200 seconds", 2),
        ("2 hrs", 2),
        ("3 Min", 0.05),
    ],
)
def test_ages_are_read_as_they_are_written(text: str, hours: float) -> None:
    """Files would be deleted too early."""
    assert parse_grace_ms(text) == hours * 3_600_000


@pytest.mark.parametrize("text", ["", "3", "-3d", "3w", "d", "3 months", "10 ms", "2 decades", f"{'9' * 400}d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    """A misspelled age would delete everything."""
    with pytest.raises(OptionError, match="is no age of files"):
        parse_grace_ms(text)


def test_ages_of_running_writes_are_refused_unless_forced() -> None:
    """Files that a running write is about to commit would be deleted."""
    with pytest.raises(OptionError, match="a write that still runs may have files of that age"):
        require_safe_grace("23h", force=False)
    require_safe_grace("24h", force=False)
    require_safe_grace("0s", force=True)
