"""What `check` says of a write by keys."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.sink import Sink

from iceberg_ds.inspect.check import check
from iceberg_ds.inspect.checklist import Check, CheckResult

COLUMNS = "id BIGINT, name STRING, op STRING"
TABLE = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"))


def found(result: CheckResult, name: str) -> Check:
    """Return the check of that name."""
    return next(one for one in result.checks if one.name == name)


def test_new_table_is_checked_with_its_keys(warehouse: Path) -> None:
    """A check would pass where the write is refused."""
    options = {"warehouse": str(warehouse), "keys": "id", "operation-column": "op"}

    fit = check("db.t", options=options, schema=COLUMNS)
    unfit = check("db.t", options={**options, "sequence-by": "lsn"}, schema=COLUMNS)

    assert found(fit, "schema").detail == "2 columns can be written, by key (id)"
    assert found(unfit, "schema").outcome == "failed"
    assert "sequence column 'lsn' is not in the DataFrame" in found(unfit, "schema").detail


def test_existing_table_is_checked_with_its_keys_and_not_changed(sink: Sink, warehouse: Path) -> None:
    """A check would pass where the write is refused, or would change the table."""
    sink.create(TABLE, BY_NAME)
    before = sink.table().metadata_location
    options = {"warehouse": str(warehouse), "keys": "id", "operation-column": "op"}

    unfit = check("db.t", options=options)
    fit = check("db.t", options={**options, "evolve-keys": "true"}, schema=COLUMNS)

    assert found(unfit, "table").outcome == "failed"
    assert "the table's identifier fields are none: give evolve-keys=true" in found(unfit, "table").detail
    assert found(fit, "schema").detail == (
        "the columns fit; rows are written by key (id), and they become the table's identifier fields, and it gets an "
        "unpartitioned spec for deletes"
    )
    assert sink.table().metadata_location == before
