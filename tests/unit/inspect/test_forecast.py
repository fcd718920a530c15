"""How fast a table grows, against figures computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyiceberg.table.metadata import TableMetadata
from support.tables.metadata import Past, line, metadata_of

from iceberg_ds.inspect.forecast import DAY_MS, Forecast, forecast_of, outlook

HOUR_MS = DAY_MS // 24
NOW_MS = 1_800_000_000_000
MB = 1_000_000
PACE = Forecast(
    hours=24,
    commits_per_day=1440,
    files_per_day=6400,
    snapshots_per_day=1440,
    metadata_growth_bytes_per_day=0.8 * MB,
    metadata_written_bytes_per_day=None,
    old_metadata_is_deleted=True,
    history_has_expired=False,
)


def committed(
    ages_h: Sequence[float],
    *,
    files: int | str | None = 2,
    past: Sequence[Past] | None = None,
    properties: dict[str, str] | None = None,
) -> TableMetadata:
    """Return a table whose commits, the oldest first, are these hours old and add that many files each."""
    summary = {} if files is None else {"added-data-files": str(files), "added-delete-files": "1"}
    history = past or [replace(one, summary=summary) for one in line(*range(1, len(ages_h) + 1))]
    table = metadata_of(history, properties=properties)
    timed = [
        snapshot.model_copy(update={"timestamp_ms": NOW_MS - round(age * HOUR_MS)})
        for snapshot, age in zip(table.snapshots, ages_h, strict=True)
    ]
    return table.model_copy(update={"snapshots": timed})


def test_pace_is_that_of_the_last_day() -> None:
    """A stream whose trigger was changed last week would be foretold by its old one."""
    # Six are younger than a day, each of two data files and a delete file.
    found = forecast_of(committed([90, 60, 30, 20, 16, 12, 8, 4, 1]), "main", 9 * 100, NOW_MS)

    assert found is not None
    assert (found.hours, found.commits_per_day, found.snapshots_per_day, found.files_per_day) == (24, 6, 6, 18)
    assert found.metadata_growth_bytes_per_day == 600  # a ninth of the file for each
    assert found.metadata_written_bytes_per_day == 6 * 900


def test_pace_of_a_younger_table_is_that_of_what_there_is() -> None:
    """A new table would have no forecast on the day on which its trigger is chosen."""
    # In the four hours after the first one there were three.
    found = forecast_of(committed([4, 3, 2, 1]), "main", None, NOW_MS)

    assert found is not None
    assert (found.hours, found.commits_per_day, found.files_per_day) == (4, 18, 54)
    assert (found.metadata_growth_bytes_per_day, found.metadata_written_bytes_per_day) == (None, None)


def test_growth_is_that_of_the_snapshots_and_not_of_the_schema() -> None:
    """The metadata of a table with many columns and few snapshots would seem to explode."""
    table = committed([4, 3, 2, 1])
    entry = len(table.snapshots[1].model_dump_json()) + 1 + 70

    found = forecast_of(table, "main", 100 * MB, NOW_MS)

    assert found is not None
    assert found.metadata_growth_bytes_per_day == pytest.approx(18 * entry, rel=0.01)


@pytest.mark.parametrize(
    ("ages_h", "is_told"),
    [
        ([0.9, 0.5, 0.4, 0.3, 0.1], False),  # an hour at least
        ([1, 0.5, 0.4, 0.3], True),
        ([23, 2, 1], False),  # and three commits after the first
        ([23, 3, 2, 1], True),
        ([25, 2], True),  # unless the whole day is known
        ([25], True),
        ([-2, -1, -0.5, -0.1], False),
    ],
)
def test_history_that_is_too_short_tells_nothing(ages_h: list[float], is_told: bool) -> None:  # noqa: FBT001
    """A first burst of commits would be taken for the pace of a year, or a daily batch for none."""
    assert (forecast_of(committed(ages_h), "main", 1, NOW_MS) is not None) is is_told


def test_table_that_is_no_longer_written_does_not_grow() -> None:
    """A table that stands still would be foretold to pass the limit."""
    found = forecast_of(committed([50, 49, 48]), "main", 1000, NOW_MS)

    assert found is not None
    assert (found.commits_per_day, found.files_per_day, found.metadata_growth_bytes_per_day) == (0, 0, 0)
    assert outlook(found, 1000, 5 * MB).startswith("0 files and 0 commits a day (by the last 24 h)")


def test_table_without_snapshots_tells_nothing() -> None:
    """A table that waits for its first write would end the command with an error."""
    assert forecast_of(metadata_of(), "main", 1, NOW_MS) is None


@pytest.mark.parametrize(
    ("size", "days"), [(None, None), (MB, 5.0), (5 * MB, 0.0), (6 * MB, 0.0)], ids=["unknown", "below", "at", "above"]
)
def test_days_until_the_limit_are_those_of_the_growth(size: int | None, days: float | None) -> None:
    """A program that plans maintenance would plan it for a wrong day."""
    assert PACE.days_until(size, 5 * MB) == pytest.approx(days)
    assert replace(PACE, metadata_growth_bytes_per_day=0.0).days_until(MB, 5 * MB) is None


@pytest.mark.parametrize(("files", "told"), [(None, 0), ("many", None), (2, 18)])
def test_files_are_unknown_where_a_summary_is_malformed(files: int | str | None, told: int | None) -> None:
    """A sum without some of the commits would be taken for all; writers leave out zeros."""
    found = forecast_of(committed([25, 20, 15, 10, 8, 4, 1], files=files), "main", 1, NOW_MS)

    assert found is not None
    assert found.files_per_day == told


def test_snapshots_of_other_branches_make_the_metadata_grow_too() -> None:
    """A table that grows by its staging branch would seem to stand still."""
    past = [*line(1, 2, 3, 4), Past(snapshot_id=5, parent=4), Past(snapshot_id=6, parent=5)]
    table = committed([25, 3, 2, 1, 0.5, 0.4], past=past)
    main = table.refs["main"].model_copy(update={"snapshot_id": 4})

    found = forecast_of(table.model_copy(update={"refs": {"main": main}}), "main", 1, NOW_MS)

    assert found is not None
    assert (found.commits_per_day, found.snapshots_per_day) == (3, 5)


def test_expired_history_and_kept_files_are_told_apart() -> None:
    """A user whose maintenance runs would be warned of what never comes, or not of files that pile up."""
    expired = [Past(snapshot_id=5, parent=4), Past(snapshot_id=6, parent=5)]
    whole = forecast_of(committed([25, 1]), "main", 1, NOW_MS)
    tidy = forecast_of(
        committed([25, 1], past=expired, properties={"write.metadata.delete-after-commit.enabled": "true"}),
        "main",
        1,
        NOW_MS,
    )

    assert whole is not None
    assert tidy is not None
    assert (whole.history_has_expired, whole.old_metadata_is_deleted) == (False, False)
    assert (tidy.history_has_expired, tidy.old_metadata_is_deleted) == (True, True)


@pytest.mark.parametrize(
    ("forecast", "size", "said"),
    [
        (PACE, MB, "6,400 files and 1,440 commits a day (by the last 24 h); metadata passes 5 MB in 5 days unless"),
        (PACE, round(4.6 * MB), "metadata passes 5 MB in 12 hours unless snapshots expire."),
        (PACE, 5 * MB, "metadata passes 5 MB in 1 hour unless"),
        (PACE, 5 * MB + 1, "; metadata has passed 5 MB."),
        (replace(PACE, history_has_expired=True), MB, "in 5 days unless snapshots expire again."),
        (replace(PACE, metadata_growth_bytes_per_day=10.0), MB, "; metadata stays below 5 MB for years."),
        (replace(PACE, metadata_growth_bytes_per_day=None), MB, "1,440 commits a day (by the last 24 h)."),
        (
            replace(PACE, files_per_day=None, commits_per_day=0.14, hours=1.234),
            None,
            "0.14 commits a day (by the last ",
        ),
        (
            replace(PACE, metadata_written_bytes_per_day=2.5e9, old_metadata_is_deleted=False),
            MB,
            "; 2.5 GB of old metadata files a day stay in the store.",
        ),
        (replace(PACE, metadata_written_bytes_per_day=2.5e9), MB, "unless snapshots expire."),
        (None, MB, "The history is too short for a forecast."),
    ],
)
def test_outlook_says_what_comes_and_under_which_condition(
    forecast: Forecast | None, size: int | None, said: str
) -> None:
    """A user would have to compute when maintenance is due, or be told of a day that expiry puts off."""
    text = outlook(forecast, size, 5 * MB)

    assert said in text
    assert text.endswith(".")
    assert text.count("stay in the store") == said.count("stay in the store")


@pytest.mark.parametrize("digits", [30, 400, 5000])
def test_absurd_number_of_files_is_unknown(digits: int) -> None:
    """One snapshot of a foreign writer would keep a table from being watched."""
    found = forecast_of(committed([30, 20, 10, 1], files="9" * digits), "main", 900, NOW_MS)

    assert found is not None
    assert (found.files_per_day, found.commits_per_day) == (None, 3)


@pytest.mark.parametrize(
    ("written", "text"), [(999.4e6, "999 MB"), (999.6e6, "1 GB"), (5e12, "5 TB"), (5e18, "5,000 PB")]
)
def test_bytes_of_old_metadata_files_are_plain_numbers(written: float, text: str) -> None:
    """A user would read 5e+03 GB."""
    told = outlook(replace(PACE, metadata_written_bytes_per_day=written, old_metadata_is_deleted=False), 4 * MB, 5 * MB)

    assert f"; {text} of old metadata files a day" in told
