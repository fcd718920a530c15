"""Functions that take a table: options that would not count, arguments of other types, catalogs that are not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import iceberg_ds
from iceberg_ds.errors import OptionError, TableNotFoundError
from iceberg_ds.options.sink_options import OPTIONS

SECRET = "hunter2s3cr3t"  # noqa: S105  # the thing to hide
SPARK: Any = mock.MagicMock(name="session")  # nothing is asked of it before options are known to be right
SPARK.conf.get.return_value = "UTC"
SPARK.isStreaming = False
Options = dict[str, Any]

CALLS: dict[str, Callable[[Options], object]] = {
    "expire snapshots": lambda options: iceberg_ds.expire_snapshots("db.t", options=options),
    "remove orphan files": lambda options: iceberg_ds.remove_orphan_files("db.t", options=options),
    "rewrite data files": lambda options: iceberg_ds.rewrite_data_files("db.t", options=options),
    "rewrite manifests": lambda options: iceberg_ds.rewrite_manifests("db.t", options=options),
    "rewrite position delete files": lambda options: iceberg_ds.rewrite_position_delete_files("db.t", options=options),
    "convert deletes": lambda options: iceberg_ds.convert_deletes("db.t", options=options),
    "maintain the table": lambda options: iceberg_ds.maintain("db.t", options=options),
    "publish": lambda options: iceberg_ds.publish("db.t", "audit", options=options),
    "delete rows of db.t": lambda options: iceberg_ds.delete_from("db.t", "true", spark=SPARK, options=options),
    "update db.t": lambda options: iceberg_ds.update("db.t", {"a": "1"}, "true", spark=SPARK, options=options),
}
# What no call heeds that writes no DataFrame.
OF_WRITES = {
    "partition-by": "id",
    "evolve-partitioning": "true",
    "sort-by": "id",
    "keys": "id",
    "stream-name": "s",
    "overwrite-mode": "dynamic",
    "schema-evolution": "full",
    "on-bad-row": "quarantine",
    "table-property.x": "y",
}
LOOKS: dict[str, Callable[[Options], object]] = {
    **CALLS,
    "verify": lambda options: iceberg_ds.verify("db.t", options=options),
    "look at health": lambda options: iceberg_ds.table_health("db.t", options=options),
    "read": lambda options: iceberg_ds.read(SPARK, "db.t", options=options),
    "read changes": lambda options: iceberg_ds.read_changes(SPARK, "db.t", options=options),
}


@pytest.mark.parametrize("action", CALLS)
@pytest.mark.parametrize("option", OF_WRITES)
def test_option_that_would_not_count_is_refused(action: str, option: str, tmp_path: Path) -> None:
    """A user would believe that his table is sorted now, or partitioned anew, or written once only."""
    needed = {"evolve-partitioning": {"partition-by": "id"}}.get(option, {})
    given = {"warehouse": str(tmp_path), option: OF_WRITES[option], **needed}
    shown = next(one.name for one in OPTIONS if option == one.name or (one.prefix and option.startswith(one.prefix)))

    with pytest.raises(OptionError, match=rf"^Cannot {action}: options? .*'{re.escape(shown)}'.* would not count here"):
        CALLS[action](given)


@pytest.mark.parametrize("action", CALLS)
def test_unknown_option_shows_no_secret(action: str) -> None:
    """A secret that is pasted into the name of an option would be in an error, which logs keep."""
    for name in (f"s3.secret-access-key={SECRET}", f"password={SECRET}", f"uri=postgresql://me:{SECRET}@h/db"):
        with pytest.raises(OptionError) as caught:
            CALLS[action]({name: "x"})

        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("action", ["rewrite data files", "rewrite position delete files"])
@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("min-inputfiles", "2", "unknown option 'min-inputfiles': did you mean 'min-input-files'"),
        ("min-input-files", "0", "option 'min-input-files' is '0': expected a whole number above 0"),
    ],
)
def test_wrong_option_of_a_rewrite_is_told_before_the_table_is_looked_at(
    action: str, option: str, value: str, problem: str
) -> None:
    """A user would look for the slip in his table, or in the options of writes."""
    with pytest.raises(OptionError, match=rf"^Cannot {action} with these options:\n  - {re.escape(problem)}"):
        CALLS[action]({option: value})


@pytest.mark.parametrize("look", LOOKS)
def test_call_on_a_table_makes_no_catalog(look: str, tmp_path: Path) -> None:
    """A slip in the warehouse would leave a catalog there, and be told as a missing table."""
    folder = tmp_path / "typo"

    try:
        found = str(LOOKS[look]({"warehouse": str(folder)}))
    except TableNotFoundError as problem:
        found = str(problem)

    assert f"there is no catalog in folder {folder}" in found
    assert not folder.exists()


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("value", [["main"], {"main": 1}, b"main"])
def test_option_that_is_no_text_is_refused(look: str, value: object) -> None:
    """`['main']` would be taken for the name of a branch, or of columns."""
    with pytest.raises(OptionError, match=rf"^Option 'branch' is a {type(value).__name__}, expected a text\.$"):
        LOOKS[look]({"branch": value})


def test_option_in_two_cases_is_refused(tmp_path: Path) -> None:
    """Merged options would delete rows of another branch than the one that is named, by their order."""
    given = {"warehouse": str(tmp_path), "BRANCH": "main", "branch": "audit"}

    for look in LOOKS.values():
        with pytest.raises(OptionError, match=r"^Option 'branch' is given twice, with its name in other case"):
            look(given)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "net": (lambda: iceberg_ds.read_changes(SPARK, "db.t", net="false"), "net is 'false', expected True or False"),  # type: ignore[arg-type]
    "branch of changes": (lambda: iceberg_ds.read_changes(SPARK, "db.t", branch=5), "branch is 5, expected a text"),  # type: ignore[arg-type]
    "keys of changes": (lambda: iceberg_ds.read_changes(SPARK, "db.t", keys=[None]), r"keys is \[None\], expected a"),  # type: ignore[list-item]
    "columns": (lambda: iceberg_ds.read(SPARK, "db.t", columns=[5]), r"columns is \[5\], expected a list of names"),  # type: ignore[list-item]
    "tag": (lambda: iceberg_ds.read(SPARK, "db.t", tag=5), "tag is 5, expected a text"),  # type: ignore[arg-type]
    "snapshot": (lambda: iceberg_ds.read(SPARK, "db.t", snapshot_id="5"), "snapshot_id is '5', expected a whole"),  # type: ignore[arg-type]
    "branch": (lambda: iceberg_ds.delete_from("db.t", "true", branch=5), "branch is 5, expected a text"),  # type: ignore[arg-type]
    "branch of health": (lambda: iceberg_ds.table_health("db.t", branch=5), "branch is 5, expected a text"),  # type: ignore[arg-type]
    "age": (lambda: iceberg_ds.verify("db.t", older_than=5), "older_than is 5, expected an age"),  # type: ignore[arg-type]
    "keys": (lambda: iceberg_ds.upsert(SPARK, "db.t", keys=5), "keys is 5, expected a text or a list"),  # type: ignore[arg-type]
    "file of reports": (lambda: iceberg_ds.follow_reports(5, print), "file is 5, expected the path"),  # type: ignore[arg-type]
    "files of reports": (lambda: iceberg_ds.follow_reports(["a", 5], print), "file is 5, expected the path"),  # type: ignore[list-item]
    "partitions": (lambda: iceberg_ds.distribute(SPARK, keys="a", num_partitions="5"), "num_partitions is '5'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("argument", WRONG)
def test_argument_of_another_type_is_named(argument: str) -> None:
    """A user would get an error of another library's code, or what he did not ask for."""
    call, problem = WRONG[argument]

    with pytest.raises(OptionError, match=problem):
        call()
