"""The command `iceberg-ds verify`, and tables that real Spark has written."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from support.spark.jobs import numbered
from support.spark.tables import Warehouse
from support.tables.sink import NAME, Sink, epoch, local, paths_of, rows

from iceberg_ds.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "verify.md"


def run(warehouse: Path, *arguments: str, table: str = NAME) -> Result:
    """Run the command for a table in this warehouse."""
    return CliRunner().invoke(main, ["verify", table, "--option", f"warehouse={warehouse}", *arguments])


def test_example_of_the_page_runs(sink: Sink, warehouse: Path) -> None:
    """A user who copies it would get an error."""
    sink.append(1)
    (code,) = re.findall(r"^```python\n(# example: .+?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)

    exec(code.replace("shop.events", NAME).replace("/lake", str(warehouse)), {})  # noqa: S102  # the page's own


def test_every_check_is_on_the_page(sink: Sink, warehouse: Path) -> None:
    """A user could not find out what a check proves."""
    sink.append(1)
    checks = json.loads(run(warehouse, "--json").stdout)["checks"]

    assert [check["name"] for check in checks if f"| `{check['name']}`" not in PAGE.read_text()] == []


def test_sound_table_ends_with_zero(sink: Sink, warehouse: Path) -> None:
    """A script could not tell by the exit code that all is well."""
    sink.append(1, of_epoch=epoch(0))

    result = run(warehouse, "--deep", "--all-snapshots")

    assert result.exit_code == 0, result.output
    assert "Whole: 18 passed, 0 failed, 1 skipped." in result.output


def test_broken_table_ends_with_one_and_says_what_to_do(sink: Sink, warehouse: Path) -> None:
    """A scheduler would go on beside a broken table."""
    (path,) = paths_of(messages := sink.write(rows(1)))
    sink.commit(messages)
    path.unlink()

    result = run(warehouse)

    assert result.exit_code == 1
    assert "Not whole: " in result.output
    assert "is missing" in result.output
    assert "next: Restore the file from a backup" in result.output


def test_json_holds_checks_and_orphans(sink: Sink, warehouse: Path) -> None:
    """Other tools could not read what was found."""
    sink.append(1)
    (path,) = paths_of(sink.write(rows(2)))
    then = time.time() - 9 * 86_400
    os.utime(path, (then, then))

    result = run(warehouse, "--json")

    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["ok"] is True
    assert found["table"] == NAME
    assert {check["name"] for check in found["checks"]} > {"history", "manifests", "data files", "orphans"}
    assert [(local(orphan["path"]), orphan["deleted"]) for orphan in found["orphans"]] == [(path, False)]


def test_orphans_are_listed_and_deleted_when_asked_for(sink: Sink, warehouse: Path) -> None:
    """What a kill leaves behind could not be removed."""
    sink.append(1)
    (path,) = paths_of(sink.write(rows(2)))

    assert run(warehouse, "--older-than", "0s").output.count(path.name[:8]) == 1
    assert path.exists()
    refused = run(warehouse, "--older-than", "0s", "--delete-orphans")
    assert refused.exit_code == 2
    assert "Cannot delete orphans older than 0s" in refused.output
    assert path.exists()
    assert "deleted 1 file" in run(warehouse, "--older-than", "0s", "--delete-orphans", "--force").output
    assert not path.exists()
    assert sink.ids() == [1]


def test_missing_table_ends_with_one(sink: Sink, warehouse: Path) -> None:
    """A misspelled name would look like a sound table."""
    sink.append(1)
    result = run(warehouse, table="db.none")

    assert result.exit_code == 1
    assert "does not exist" in result.output


def test_malformed_option_is_a_wrong_use(warehouse: Path) -> None:
    """A misspelled option would be passed over."""
    result = run(warehouse, "--option", "brnch=x")

    assert result.exit_code == 2
    assert "brnch" in result.output


def test_table_that_spark_writes_and_overwrites_is_whole(spark: SparkSession, house: Warehouse) -> None:
    """What real tasks write would not agree with what is recorded of it."""
    frame = numbered(spark, 0, 200)
    writer = frame.repartition(3).write.format("icebergsink").option("warehouse", str(house.folder))
    writer.mode("append").save(NAME)
    writer.mode("overwrite").save(NAME)

    result = run(house.folder, "--deep", "--all-snapshots", "--older-than", "0s")

    assert result.exit_code == 0, result.output
    assert "nothing refers to 0 files" in result.output
