"""Which figures are too high, and what is said to do about it."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

import pytest
from support.tables.metadata import START_MS, line, metadata_of
from support.tables.sink import NAME

from iceberg_ds.inspect.file_counts import FileCounts, SnapshotCounts
from iceberg_ds.inspect.health import TableHealth, WriterHealth, health_of
from iceberg_ds.inspect.thresholds import Thresholds, exceeded

FILES = SnapshotCounts(
    data_manifests=60,
    delete_manifests=40,
    data_files=100,
    delete_files=50,
    read=FileCounts(data_files=100, small_files=70, equality_delete_files=50),
)
HEALTH = replace(
    health_of(metadata_of(line(1)), NAME, "main", FILES, metadata_bytes=3_000_000, now_ms=START_MS),
    snapshots=80,
    last_commit_age_s=900.0,
    lag_s=600.0,
)
# Each limit, at the very figure of the table.
EDGES = Thresholds(
    max_snapshots=80,
    max_metadata_mb=3.0,
    max_manifests=100,
    max_small_files=70,
    max_deletes_per_file=0.5,
    max_age_s=900.0,
    max_lag_s=600.0,
)
NEXT_STEPS = {
    "max_snapshots": "`iceberg-ds expire-snapshots db.t --older-than 1d`",
    "max_metadata_mb": "`iceberg-ds expire-snapshots db.t --older-than 1d`",
    "max_manifests": "`iceberg-ds rewrite-manifests db.t`",
    "max_small_files": "`iceberg-ds rewrite-data-files db.t`",
    "max_deletes_per_file": "`iceberg-ds convert-deletes db.t`; then apply them: `iceberg-ds rewrite-data-files db.t",
    "max_age_s": "its writer still runs",
    "max_lag_s": "the source has newer rows",
}


def test_figure_that_is_equal_to_its_threshold_is_no_finding() -> None:
    """A user who compacts to the limit would be called again at once."""
    assert exceeded(HEALTH, EDGES) == ()


@pytest.mark.parametrize("name", [one.name for one in fields(Thresholds)])
def test_figure_above_its_threshold_is_a_finding_with_the_next_step(name: str) -> None:
    """A user would be called, and not know to what."""
    lower = replace(EDGES, **{name: getattr(EDGES, name) * 0.99})

    (finding,) = exceeded(HEALTH, lower)

    assert finding.name == name.removesuffix("_s").replace("_", "-")
    assert (finding.value, finding.limit) == (getattr(EDGES, name), getattr(lower, name))
    assert "more than" in finding.detail
    assert NEXT_STEPS[name] in finding.next_step
    assert str(finding) == f"{finding.detail}. {finding.next_step}"


@pytest.mark.parametrize("name", [one.name for one in fields(Thresholds)])
def test_threshold_of_none_is_no_threshold(name: str) -> None:
    """A user could not leave out what does not matter to a table."""
    none = replace(Thresholds(**{one.name: 0 for one in fields(Thresholds)}), **{name: None})

    assert len(exceeded(HEALTH, none)) == len(fields(Thresholds)) - 1


def test_figure_that_is_unknown_is_no_finding() -> None:
    """A table of which less is known than of others would call its user each time."""
    unknown = replace(HEALTH, metadata_bytes=None, delete_files=None, last_commit_age_s=None, lag_s=None)

    found = exceeded(unknown, Thresholds(**{one.name: 0 for one in fields(Thresholds)}))

    assert [finding.name for finding in found] == ["max-snapshots", "max-manifests", "max-small-files"]


def test_healthy_table_is_well_by_default_and_old_or_late_by_no_default() -> None:
    """A table that is written once a month would call its user every day."""
    old = replace(HEALTH, last_commit_age_s=1e9, lag_s=1e9)

    assert exceeded(old) == ()


@pytest.mark.parametrize(("delete_files", "count"), [(9, 0), (10, 1)])
def test_few_delete_files_are_no_finding_in_a_small_table(delete_files: int, count: int) -> None:
    """The first upserts of each new table would call its user."""
    small = replace(HEALTH, data_files=1, delete_files=delete_files)

    assert len(exceeded(small)) == count


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"branch": "audit"}, "`iceberg-ds convert-deletes db.t --branch audit`"),
        ({"equality_delete_files": 0}, "Apply them: `iceberg-ds rewrite-data-files"),
        ({"format_version": 3}, "Apply them: CALL"),
        ({"equality_delete_files": None}, "`iceberg-ds convert-deletes db.t`"),
    ],
)
def test_next_step_for_deletes_is_one_that_works(changed: dict[str, object], said: str) -> None:
    """A user would be sent to a command that converts nothing, or refuses the table."""
    health: TableHealth = replace(HEALTH, **changed)  # type: ignore[arg-type]  # fields of it

    (finding,) = exceeded(health, replace(EDGES, max_deletes_per_file=0.1))

    assert said in finding.next_step


def test_old_table_names_the_writer_that_committed_last() -> None:
    """A user would have to find out which of the streams stands still."""
    writer = WriterHealth(kind="stream", name="clicks", query_id="q", number=1, last_commit_ms=1, age_s=900.0)

    (finding,) = exceeded(replace(HEALTH, writers=(writer,)), replace(EDGES, max_age_s=60.0))

    assert finding.detail == "the last commit was 900 s ago, more than 60 s"
    assert "stream clicks still runs" in finding.next_step


def test_small_files_of_a_table_that_was_not_read_whole_are_a_lower_bound() -> None:
    """A user would take a part of the small files for all."""
    (finding,) = exceeded(replace(HEALTH, is_complete=False), replace(EDGES, max_small_files=10))

    assert finding.detail == "at least 70 data files below 134,217,728 bytes, more than 10"


def command_in(next_step: str) -> list[str]:
    """Return the words of the command between the backticks of a next step, as a shell reads them."""
    return shlex.split(next_step[next_step.index("`") + 1 : next_step.rindex("`")])


@pytest.mark.parametrize("branch", ["main", "a; rm -rf ~", "$(reboot)"])
def test_commands_of_next_steps_are_safe_in_a_shell_and_name_the_options(branch: str) -> None:
    """A user who copies one would run what somebody wrote into a name, or look at another warehouse."""
    health = replace(HEALTH, table="db.t'; touch x #", branch=branch)
    options = {
        "warehouse": "/my lake",
        "catalog.token": "s3cret",
        "catalog.uri": "http://me:s3cret@lake",
        "branch": "x",
        "table": "y",
    }

    found = {
        one.name: one.next_step for one in exceeded(health, Thresholds(max_age_s=1, max_deletes_per_file=0), options)
    }

    place = ["--option", "warehouse=/my lake"]
    audited = [] if branch == "main" else ["--branch", branch]
    checked = [] if branch == "main" else ["--option", f"branch={branch}"]
    convert = found["max-deletes-per-file"].partition("; then apply them: ")[0]
    assert command_in(convert) == ["iceberg-ds", "convert-deletes", health.table, *audited, *place]
    assert command_in(found["max-age"]) == ["iceberg-ds", "check", health.table, *place, *checked]
    assert "s3cret" not in str(found)


def test_statements_of_next_steps_have_their_names_quoted_for_sql() -> None:
    """A user who copies one would run what somebody wrote into a name."""
    health = replace(HEALTH, table="db.it's\\")

    health = replace(health, format_version=3)

    (finding,) = exceeded(health, replace(EDGES, max_deletes_per_file=0.1))

    assert "rewrite_data_files(table => 'db.it\\'s\\\\'," in finding.next_step


@pytest.mark.parametrize(
    ("changed", "limits", "said"),
    [
        ({"metadata_bytes": 5_000_001}, {}, "a metadata file of 5.000001 MB, more than 5 MB"),
        ({"metadata_bytes": 9_000_000_000_001}, {"max_metadata_mb": 9e6}, "more than 9,000,000 MB"),
        ({"last_commit_age_s": 60.004}, {"max_age_s": 60.0}, "the last commit was 60.004 s ago, more than 60 s"),
        ({"data_files": 1000, "delete_files": 501}, {}, "0.501 delete files for each data file, more than 0.5"),
    ],
)
def test_figure_just_above_its_threshold_looks_so(
    changed: dict[str, object], limits: dict[str, float], said: str
) -> None:
    """A user would read that 5 MB are more than 5 MB."""
    health: TableHealth = replace(HEALTH, **changed)  # type: ignore[arg-type]  # fields of it

    (finding,) = exceeded(health, replace(Thresholds(), **limits))  # type: ignore[arg-type]  # fields of it

    assert said in finding.detail


def test_writer_with_control_characters_is_named_with_escapes() -> None:
    """Whoever names an application could write to the terminal of the user who prints the finding."""
    writer = WriterHealth(kind="application", name="a\x1b[2J", query_id=None, number=1, last_commit_ms=1, age_s=900.0)

    (finding,) = exceeded(replace(HEALTH, writers=(writer,)), replace(EDGES, max_age_s=60.0))

    assert r"application a\x1b[2J still runs" in finding.next_step
