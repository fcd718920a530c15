"""Tables that cannot be of version 3, or be written once they are: refused before anything is written or changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    IcebergType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    UnknownType,
)
from pyspark.sql import types as spark
from support.keys.conversions import meanwhile as at_step
from support.tables.data_rewrites import rewrite
from support.tables.sink import SCHEMA, Sink, local, rows

from iceberg_ds.errors import SchemaMismatchError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.planning.plan_write import foresee
from iceberg_ds.table.lineage import LAST_UPDATED, ROW_ID
from iceberg_ds.table.requests import UpgradeFormatVersion

pytestmark = pytest.mark.usefixtures("waits")

_NAMES = [ROW_ID.name, LAST_UPDATED.name, "_Row_ID"]
_REASON = "column '{}' has the name of a column that keeps the identity of rows in format version 3: rename"


def upgrading(sink: Sink) -> Sink:
    """Return a sink that upgrades the table with its writes."""
    return replace(sink, options=replace(sink.options, format_version="3", upgrade_format=True))


def with_column(name: str, kind: IcebergType | None = None) -> Schema:
    """Return the columns of `SCHEMA`, and one more of that name."""
    columns = NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False)
    return Schema(*columns, NestedField(3, name, kind or LongType(), required=False))


def data_files(sink: Sink) -> set[Path]:
    """Return all data files in the folder of the table, whether it lists them or not."""
    return set(local(sink.table().location()).rglob("*.parquet"))


@pytest.mark.parametrize("name", _NAMES)
def test_table_of_others_with_a_column_of_the_lineage_is_refused(sink: Sink, name: str) -> None:
    """A write would break in the middle, or a row's value of that column be taken for its id."""
    sink.create(with_column(name))
    sink.append(1, 2)
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))
    before, files = sink.table().metadata_location, data_files(sink)

    for write in (
        lambda: sink.append(3),
        lambda: sink.overwrite(rows(1), replace_where="id = 1"),
        lambda: rewrite(sink, rewrite_all="true"),
        lambda: foresee(sink.options, sink.table().metadata, SCHEMA),
    ):
        with pytest.raises(UnsupportedTableError, match=_REASON.format(name)):
            write()

    assert (sink.table().metadata_location, data_files(sink)) == (before, files)


@pytest.mark.parametrize("name", _NAMES)
def test_table_with_a_column_of_the_lineage_is_not_upgraded(sink: Sink, name: str) -> None:
    """Nobody could take the upgrade back, nor write to the table."""
    sink.create(with_column(name))
    sink.append(1)
    before = sink.table().metadata_location

    for write in (
        lambda: upgrading(sink).append(2),
        lambda: upgrading(sink).overwrite(rows(2)),
        lambda: foresee(upgrading(sink).options, sink.table().metadata, SCHEMA),
    ):
        with pytest.raises(UnsupportedTableError, match=f"nothing was changed: .* because {_REASON.format(name)}"):
            write()

    assert sink.table().metadata_location == before
    sink.append(2)
    sink.overwrite(rows(1), replace_where="id = 1")
    assert sink.ids() == [1, 2]


def test_all_that_keeps_a_table_from_being_upgraded_is_named_at_once(sink: Sink) -> None:
    """A user would mend one column after the other, or be left with a table that is not written any more."""
    sink.create(with_column("_row_id"))
    at = NestedField(5, "at", TimestampNanoType(), required=False)
    schema = Schema(*with_column("_row_id").fields, at)
    metadata = sink.table().metadata.model_copy(update={"schemas": [schema]})

    with pytest.raises(
        UnsupportedTableError,
        match=r"column '_row_id' .*; column 'at' is of type timestamp_ns",
    ):
        foresee(upgrading(sink).options, metadata, SCHEMA)


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("name", _NAMES)
def test_no_write_makes_a_column_of_the_lineage(sink: Sink, version: str, name: str) -> None:
    """A user's own table would be one that cannot be written any more."""
    more = spark.StructType([*SCHEMA.fields, spark.StructField(name, spark.LongType())])
    with pytest.raises(SchemaMismatchError, match=f"column '{name}' has the name"):
        sink.plan(more, format_version=version)
    replace(sink, options=replace(sink.options, format_version=version)).append(1)

    for options in ({"schema_evolution": "add-columns"}, {"schema_evolution": "full"}):
        with pytest.raises(SchemaMismatchError, match=f"column '{name}' has the name"):
            sink.plan(more, **options)


def test_fields_of_structs_may_have_the_names_of_the_lineage(sink: Sink) -> None:
    """A table that is sound would be refused."""
    inner = StructType(NestedField(4, "_row_id", LongType(), required=False))
    sink.create(with_column("inner", inner))
    sink.append(1)
    upgrading(sink).append(2, 3)

    sink.overwrite(rows(3), replace_where="id = 3")
    rewrite(sink, rewrite_all="true")

    assert sink.ids() == [1, 2, 3]


def test_column_that_has_been_renamed_goes_into_version_3(sink: Sink) -> None:
    """The values that files have under its old name would be taken for the ids of rows."""
    more = spark.StructType([*SCHEMA.fields, spark.StructField("_row_id", spark.LongType())])
    sink.create(with_column("_row_id"))
    sink.commit(sink.write([{"id": 1, "name": "a", "_row_id": 77}, {"id": 2, "name": "b", "_row_id": 88}], schema=more))
    with sink.table().update_schema() as update:
        update.rename_column("_row_id", "theirs")
    upgrading(sink).append(3)

    sink.overwrite(rows(2), replace_where="id = 2")
    rewrite(sink, rewrite_all="true")

    assert [(row["id"], row["theirs"]) for row in sink.rows()] == [(1, 77), (2, None), (3, None)]


@pytest.mark.parametrize(
    ("columns", "changes", "reason"),
    [
        (
            [NestedField(1, "s", StructType(NestedField(2, "u", UnknownType(), required=False)), required=False)],
            {},
            r"column 's\.u' is of type unknown inside another column",
        ),
        ([NestedField(1, "u", UnknownType(), required=False)], {}, "all its columns are of type unknown"),
        (
            [NestedField(1, "u", UnknownType(), required=False), NestedField(2, "id", LongType(), required=False)],
            {"partition_specs": [PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "u"))]},
            "column 'u' is of type unknown, and the table is partitioned or sorted by it",
        ),
        (
            [NestedField(1, "u", UnknownType(), required=False), NestedField(2, "id", LongType(), required=False)],
            {"sort_orders": [SortOrder(SortField(1, IdentityTransform()), order_id=1)], "default_sort_order_id": 1},
            "column 'u' is of type unknown, and the table is partitioned or sorted by it",
        ),
    ],
    ids=["nested", "alone", "partitioned", "sorted"],
)
def test_table_of_others_with_columns_without_a_type_is_refused_where_they_count(
    sink: Sink, columns: list[NestedField], changes: dict[str, Any], reason: str
) -> None:
    """Files would lack what they are found by, or have what the spec keeps out of them."""
    sink.create(with_column("more"))
    schema = Schema(*columns)
    metadata = sink.table().metadata.model_copy(update={"format_version": 3, "schemas": [schema], **changes})

    with pytest.raises(UnsupportedTableError, match=reason):
        foresee(sink.options, metadata, None)


def test_upgrade_by_others_meanwhile_is_met_with_the_same_words(sink: Sink) -> None:
    """A write would fail with an error that names neither the column nor a next step."""
    sink.create(with_column("_row_id"))
    sink.append(1, 2)
    theirs = sink.write(rows(9))

    def upgraded() -> None:
        sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))
        sink.commit(theirs)  # the snapshot that gives the rows their ids

    with (
        at_step(FaultPoint.COMMIT_BEGUN, upgraded),
        pytest.raises(UnsupportedTableError, match=_REASON.format("_row_id")),
    ):
        sink.overwrite(rows(2), replace_where="id = 2")
