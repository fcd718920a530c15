"""What a machine tries in a local folder, and how clocks are compared."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from iceberg_ds.inspect import machine_checks
from iceberg_ds.inspect.machine_checks import (
    CLOCK,
    DELETE,
    GET,
    PUT,
    SEES,
    Place,
    clean_up,
    probe_storage,
    skew_s,
    write_marker,
)


def place(folder: Path) -> Place:
    """Return a local place."""
    return Place(folder=f"file://{folder}/new/folder", properties={}, limit_s=5.0)


def test_healthy_folder_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    """Each check would leave files in the table's folder."""
    checks = probe_storage(place(tmp_path), "x", "here")

    assert {check.name: check.outcome for check in checks if check.outcome != "skipped"} == dict.fromkeys(
        [PUT, GET, "storage: list it", CLOCK, DELETE], "ok"
    )
    assert {check.where for check in checks} == {"here"}
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A job would fail after its query has run."""
    (tmp_path / "new").write_text("a file where a folder is needed")

    checks = probe_storage(place(tmp_path), "x", "here")

    assert [check.name for check in checks if check.outcome == "failed"] == [PUT]


@pytest.mark.parametrize(
    ("other", "expected"),
    [(100.0, 0.0), (104.0, 0.0), (90.0, 10.0), (120.0, -15.0)],
    ids=["=", "in", "ahead", "behind"],
)
def test_clocks_are_compared_within_what_is_known(other: float, expected: float) -> None:
    """A slow answer would look like a wrong clock."""
    assert skew_s(other, 100.0, 105.0) == expected


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_wrong_clock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Signed requests would be refused for a reason that nobody sees."""
    put = machine_checks._put

    def put_at_another_time(properties: dict[str, str], path: str) -> object:
        found = put(properties, path)
        os.utime(path.removeprefix("file://"), times=(0, time.time() + seconds))
        return found

    monkeypatch.setattr(machine_checks, "_put", put_at_another_time)

    (clock,) = [check for check in probe_storage(place(tmp_path), "x", "here") if check.name == CLOCK]

    assert clock.outcome == "failed"
    assert f"{-seconds:+d} s" in clock.detail
    assert "NTP" in clock.next_step


def test_machine_that_does_not_see_the_drivers_files_is_named(tmp_path: Path) -> None:
    """Rows would be written to the disks of machines that nobody reads."""
    driver = place(tmp_path)
    _, marker = write_marker(driver)
    seen = probe_storage(replace(driver, marker=marker), "x", "here")
    left = clean_up(replace(driver, marker=marker))
    unseen = probe_storage(replace(driver, marker=marker), "x", "here")

    assert left == []
    assert [check.outcome for check in (*seen, *unseen) if check.name == SEES] == ["ok", "failed"]
    assert "share" in next(check.next_step for check in unseen if check.name == SEES)


def test_file_that_is_changed_on_its_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would be read from somewhere else than they were written to."""
    put = machine_checks._put

    def put_other(properties: dict[str, str], path: str) -> object:
        found = put(properties, path)
        Path(path.removeprefix("file://")).write_bytes(b"other")
        return found

    monkeypatch.setattr(machine_checks, "_put", put_other)

    assert [check.name for check in probe_storage(place(tmp_path), "x", "here") if check.outcome == "failed"] == [GET]
