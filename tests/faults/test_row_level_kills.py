"""SIGKILL of a driver at every step of a delete and a merge, which then run again: nothing lost, nothing back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.checks.version_3 import check_version_3
from support.hooks.faults import Action, Fault
from support.spark.jobs import ChangeJob, dump, numbered
from support.spark.process import SparkProcess
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint

STEPS = [
    FaultPoint.ROWS_CHANGED,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
]
LANDED_BY_THEN = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED}
BEFORE = {number: f"row {number}" for number in range(10) if number != 1}
AFTER = {
    "delete": {number: name for number, name in BEFORE.items() if number % 3},
    "merge": {**BEFORE, **{number: f"merged {number}" for number in range(4, 14)}},
}


def names(house: Warehouse, version: str) -> dict[int, str]:
    """Return the rows, after a look at all of the table's metadata and files."""
    table = house.table()
    check_sound(table)
    check_deletes(table)
    if version == "3":
        check_version_3(table)
    rows = rows_of(table)
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("verb", AFTER)
@pytest.mark.parametrize("version", ["2", "3"])
def test_change_of_rows_that_is_killed_lands_whole_or_not_at_all(  # noqa: PLR0913, PLR0917  # what is combined
    spark: SparkSession, house: Warehouse, tmp_path: Path, version: str, verb: str, step: FaultPoint
) -> None:
    """Rows would be there twice or be lost, deleted ones come back, or a data file have two deletion vectors."""
    house.append(numbered(spark, 0, 10), format_version=version)
    iceberg_ds.delete_from("db.t", "id = 1", spark, options=house.options, mode="merge-on-read")
    fault = Fault(point=step, action=Action.KILL_WORKER, fuse=tmp_path / "fuse")

    with SparkProcess(tmp_path / "driver", finds_pandas=True) as driver, pytest.raises(RuntimeError, match="has died"):
        driver.run(dump(ChangeJob(verb=verb, options={**house.options, **fault.arm()})))

    assert fault.has_struck
    assert names(house, version) == (AFTER[verb] if step in LANDED_BY_THEN else BEFORE)
    ChangeJob(verb=verb, options=house.options).run(spark)
    assert names(house, version) == AFTER[verb]
    result = iceberg_ds.verify("db.t", options=house.options, older_than="0s", delete_orphans=True, force=True)
    assert result.ok, str(result)
    assert unreferenced_files(house.table()) == set()
