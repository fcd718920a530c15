"""Tables in a real S3 server are verified, and cleaned up, there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.bucket import Bucket
from support.others import plain_catalog, rename
from support.tables import NAME, SCHEMA, Sink, epoch, rows

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.inspect.orphans import VerifyResult
from iceberg_ds.options.parse import parse_options

SECRET = "tests-secret-key"  # noqa: S105  # of the server that the tests start


@pytest.fixture
def options(bucket: Bucket, tmp_path: Path) -> dict[str, str]:
    """Return the options of writes to a SQL catalog with its tables in the bucket."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{bucket.location}/warehouse",
        **bucket.store.properties,
    }
    return {"catalog": "stores", **{f"catalog.{key}": value for key, value in catalog.items()}}


@pytest.fixture
def sink(options: dict[str, str]) -> Sink:
    """Return a table in the bucket."""
    parsed = parse_options({"table": NAME, **options})
    sink = Sink(catalog=connect(catalog_settings(parsed)), options=parsed)
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    return sink


def failures(result: VerifyResult) -> list[str]:
    """Return the names of the checks that failed."""
    return [check.name for check in result.failures]


def test_table_in_s3_is_verified_and_cleaned_up(sink: Sink, options: dict[str, str], bucket: Bucket) -> None:
    """A table in a bucket could be neither proven whole nor cleaned up."""
    (left,) = (found.file_path for message in sink.write(rows(9), schema=SCHEMA) for found in message.data_files)

    result = iceberg_ds.verify(NAME, options=options, deep=True, older_than="0s", delete_orphans=True, force=True)

    assert result.ok, str(result)
    assert [(orphan.path, orphan.deleted) for orphan in result.orphans] == [(left, True)]
    assert iceberg_ds.verify(NAME, options=options, older_than="0s").orphans == ()
    assert sink.ids() == [0, 1, 2]
    assert bucket.pending_uploads() == []


def test_age_of_objects_is_told_by_the_clock_of_their_store(
    sink: Sink, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of a write that runs would be deleted by a machine whose clock is ahead."""
    sink.write(rows(9), schema=SCHEMA)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 30 * 86_400 * 10**9)

    result = iceberg_ds.verify(NAME, options=options, delete_orphans=True)

    assert result.ok, str(result)
    assert result.orphans == ()


def test_table_in_s3_that_was_renamed_shares_its_folder_with_none(sink: Sink, options: dict[str, str]) -> None:
    """Two tables in one folder of a bucket could not be cleaned up any more, or take each other's rows."""
    old = rename(sink, "db.t_old")
    sink.append(9)
    place = old.table().metadata.location

    assert sink.table().metadata.location.startswith(f"{place}-")
    made = plain_catalog(sink).create_table("db.beside", sink.table().schema(), location=place)
    result = iceberg_ds.verify("db.t_old", options=options, older_than="0s", delete_orphans=True, force=True)
    assert f"another table (uuid {made.metadata.table_uuid}, at {place})" in result.failures[0].detail
    assert old.ids() == [0, 1, 2]


def test_object_that_is_missing_is_found_and_no_secret_is_shown(sink: Sink, options: dict[str, str]) -> None:
    """Lost rows would not be noticed, or the report would give away the keys of the store."""
    table = sink.table()
    path = table.inspect.files()["file_path"][0].as_py()
    table.io.delete(path)

    result = iceberg_ds.verify(NAME, options=options)

    assert failures(result) == ["data files"]
    assert f"data file {path} is missing" in result.failures[0].detail
    assert SECRET not in f"{result} {result.to_json()}"
