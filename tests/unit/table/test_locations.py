"""`FilePaths`: where new files go, and what they are called."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_ds.table.locations import FilePaths, data_locations

ID = NestedField(1, "id", LongType(), required=False)
REGION = NestedField(2, "region", StringType(), required=False)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=1)
PLAIN = {"write.object-storage.enabled": "false"}


def paths(*columns: NestedField, are_deletes: bool = False) -> FilePaths:
    """Return the paths of an attempt's files in a table with these columns."""
    places = data_locations("s3://lake/t", PLAIN, provider=None)
    return FilePaths(places, Schema(*columns), "00003-7-write", are_deletes=are_deletes)


@pytest.mark.parametrize(("are_deletes", "end"), [(False, ".parquet"), (True, "-deletes.parquet")])
def test_files_are_numbered_over_all_partitions(are_deletes: bool, end: str) -> None:  # noqa: FBT001  # a case
    """A file would take the place of another one, or a search by its name would miss it."""
    found = paths(ID, REGION, are_deletes=are_deletes)

    assert found.next(BY_REGION, Record("EU")) == f"s3://lake/t/data/region=EU/00003-7-write-00000{end}"
    assert found.next(BY_REGION, Record("US")) == f"s3://lake/t/data/region=US/00003-7-write-00001{end}"
    assert found.next(UNPARTITIONED_PARTITION_SPEC, Record()) == f"s3://lake/t/data/00003-7-write-00002{end}"


def test_partition_of_a_column_that_is_gone_has_no_folder() -> None:
    """Rows of an old partition spec could not be written again."""
    assert paths(ID).next(BY_REGION, Record("EU")) == "s3://lake/t/data/00003-7-write-00000.parquet"


def test_void_field_needs_no_column() -> None:
    """Files of a table that dropped a partition field would lie beside the folders of the others."""
    void = PartitionField(2, 1000, VoidTransform(), "region")
    by_id = PartitionSpec(PartitionField(1, 1001, IdentityTransform(), "id"), void, spec_id=2)

    assert paths(ID).next(by_id, Record(5, None)) == "s3://lake/t/data/id=5/region=null/00003-7-write-00000.parquet"
