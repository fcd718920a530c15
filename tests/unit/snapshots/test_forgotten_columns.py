"""Tables with partition fields whose column no schema has any more: expiry removes schemas that nothing uses."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from dataclasses import replace
from typing import Any

import pyspark.sql.types as spark
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import ManifestEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)
from support.tables.damage import Json, Listing, edit_metadata
from support.tables.data_rewrites import rewrite
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.snapshots.manifests import all_entries
from iceberg_ds.table.spark_types import spark_struct

LEFT = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("amount", spark.LongType())])
_PLACE, _NUMBER = 9, 1000

VALUES: list[tuple[IcebergType, Any]] = [
    (StringType(), "EU"),
    (StringType(), None),
    (LongType(), -7),
    (BooleanType(), True),
    (DateType(), dt.date(2026, 11, 28)),
    (DecimalType(9, 2), decimal.Decimal("-12.50")),
    (DoubleType(), 0.5),
    (BinaryType(), b"\x00\xff"),
    (UUIDType(), str(uuid.UUID(int=7))),
]


def table_of(sink: Sink, kind: IcebergType, value: Any, version: str, *transforms: Transform[Any, Any]) -> None:
    """Create a table with three rows, partitioned by a column of that type, `place`."""
    columns = [NestedField(1, "id", LongType()), NestedField(2, "amount", LongType())]
    schema = Schema(*columns, NestedField(_PLACE, "place", kind))
    fields = [PartitionField(_PLACE, _NUMBER + at, transform, f"p{at}") for at, transform in enumerate(transforms)]
    sink.create(schema, PartitionSpec(*fields), format_version=version)
    sent = spark_struct(sink.table().schema().fields)
    sink.commit(sink.write([{"id": number, "amount": number, "place": value} for number in range(3)], schema=sent))


def forget_place(document: Json) -> None:
    """Take the column out of all schemas, and let nothing but an earlier spec name it."""
    (schema,) = document["schemas"]
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "place"]
    if document["default-spec-id"] == 0 and document["partition-specs"][0]["fields"][0]["transform"] != "void":
        document["partition-specs"].append({"spec-id": 1, "fields": []})
        document["default-spec-id"] = 1


def loaded_anew(sink: Sink) -> Sink:
    """Return the sink as another process has it."""
    return replace(sink, catalog=sink.catalog.reading_anew())


def check(sink: Sink, expected: list[tuple[int, int]]) -> None:
    """Check that everybody reads the rows, and that the table is whole."""
    assert [(row["id"], row["amount"]) for row in read_by_tasks(loaded_anew(sink))] == expected
    assert [(row["id"], row["amount"]) for row in loaded_anew(sink).rows()] == expected
    assert [check.detail for check in iceberg_ds.verify(NAME, options=catalog_of(sink)).failures] == []


def partitions_of(sink: Sink) -> set[Any]:
    """Return the values of the first partition field that manifests of the first spec have."""
    listing = Listing.of(sink)
    of_first = [manifest for manifest in listing.manifests if manifest.partition_spec_id == 0]
    entries = [entry for manifest in of_first for entry in all_entries(listing.table.io, manifest)]
    return {entry.data_file.partition[0] for entry in entries}


def catalog_of(sink: Sink) -> dict[str, str]:
    """Return the options by which a user names the catalog."""
    return {"warehouse": str(sink.options.warehouse)}


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
def test_rows_in_partitions_of_a_forgotten_column_are_changed(sink: Sink, kind: IcebergType, value: Any) -> None:
    """Nobody could read the table any more, or its old rows could never be changed again."""
    table_of(sink, kind, value, "2", IdentityTransform())
    before = partitions_of(sink)
    edit_metadata(sink, forget_place)
    sink = loaded_anew(sink)

    sink.overwrite([{"id": 1, "amount": 9}], schema=LEFT, replace_where="id = 1")

    check(sink, [(0, 0), (1, 9), (2, 2)])
    assert partitions_of(sink) == before


@pytest.mark.parametrize("version", ["2", "3"])
def test_values_of_a_transform_that_is_not_known_are_not_written(sink: Sink, version: str) -> None:
    """The error would say that a number has no letters, and to run the write again."""

    def of_others(document: Json) -> None:
        document["partition-specs"][0]["fields"][0]["transform"] = "zorder[3]"
        document["partition-specs"].append({"spec-id": 1, "fields": []})
        document["default-spec-id"] = 1

    table_of(sink, LongType(), 7, version, IdentityTransform())
    edit_metadata(sink, of_others)
    sink = loaded_anew(sink)

    with pytest.raises(
        UnsupportedTableError, match=r"spec 0: its field 'p0' has the transform 'zorder\[3\]', which is not"
    ):
        sink.overwrite([{"id": 1, "amount": 9}], schema=LEFT, replace_where="id = 1")

    sink.commit(sink.write([{"id": 3, "amount": 3}], schema=LEFT))
    assert [(row["id"], row["amount"]) for row in read_by_tasks(loaded_anew(sink))] == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("other", [BucketTransform(4), TruncateTransform(1)], ids=str)
def test_several_fields_of_a_forgotten_column_are_kept(sink: Sink, other: Transform[Any, Any], version: str) -> None:
    """The type of one field's values would be taken for that of another's."""
    table_of(sink, StringType(), "EU", version, IdentityTransform(), other)
    edit_metadata(sink, forget_place)
    sink = loaded_anew(sink)

    rewrite(sink, min_input_files="1", rewrite_all="true")
    sink.overwrite([{"id": 1, "amount": 9}], schema=LEFT, replace_where="id = 1")

    check(sink, [(0, 0), (1, 9), (2, 2)])


@pytest.mark.parametrize("version", ["2", "3"])
def test_append_to_a_table_with_a_void_field_of_a_forgotten_column_is_read(sink: Sink, version: str) -> None:
    """An append would land in a manifest that no reader opens: a union of two nulls."""
    table_of(sink, StringType(), "EU", version, VoidTransform())
    edit_metadata(sink, forget_place)
    sink = loaded_anew(sink)

    sink.commit(sink.write([{"id": 3, "amount": 3}], schema=LEFT))

    check(sink, [(0, 0), (1, 1), (2, 2), (3, 3)])
    for manifest in Listing.of(sink).manifests:
        with AvroFile[ManifestEntry](sink.table().io.new_input(manifest.manifest_path)) as avro:
            assert '["null", "null"]' not in avro.header.meta["avro.schema"]


def test_append_to_a_table_with_a_void_field_of_a_column_without_values_is_read(sink: Sink) -> None:
    """An append would land in a manifest that no reader opens: a union of two nulls."""

    def of_no_type(document: Json) -> None:
        number = document["last-column-id"] = 10
        document["schemas"][0]["fields"].append({"id": number, "name": "x", "required": False, "type": "unknown"})
        document["partition-specs"][0]["fields"][0]["source-id"] = number

    table_of(sink, StringType(), None, "3", VoidTransform())
    edit_metadata(sink, of_no_type)
    sink = loaded_anew(sink)

    sink.commit(sink.write([{"id": 3, "amount": 3}], schema=LEFT))

    check(sink, [(0, 0), (1, 1), (2, 2), (3, 3)])
