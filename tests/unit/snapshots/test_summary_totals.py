"""What added files sum up to: the same words and figures as PyIceberg's own collector."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import SnapshotSummaryCollector
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from iceberg_ds.snapshots.snapshot import added_summary, totals_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "kind", StringType()), NestedField(3, "x", DoubleType())
)
SPECS = {
    0: PartitionSpec(spec_id=0),
    1: PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "b"),
        PartitionField(2, 1001, IdentityTransform(), "kind"),
        spec_id=1,
    ),
    2: PartitionSpec(PartitionField(3, 1002, IdentityTransform(), "x"), spec_id=2),
}
PARTITIONS: dict[int, Any] = {
    0: st.just(()),
    1: st.tuples(st.integers(0, 3), st.sampled_from(["a", "b/c", "", None])),
    2: st.tuples(st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])),
}


@st.composite
def data_files(draw: st.DrawFn) -> DataFile:
    """Return a data file of one of the specs."""
    spec_id = draw(st.sampled_from(sorted(SPECS)))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        partition=Record(*draw(PARTITIONS[spec_id])),
        record_count=draw(st.integers(0, 9)),
        file_size_in_bytes=draw(st.integers(1, 9)),
    )
    file.spec_id = spec_id
    return file


@given(parts=st.lists(st.lists(data_files(), max_size=6), max_size=4), limit=st.integers(0, 5))
def test_summary_is_that_of_pyiceberg_however_the_files_are_divided(parts: list[list[DataFile]], limit: int) -> None:
    """Totals, which each snapshot builds on, would depend on which task wrote what."""
    stock = SnapshotSummaryCollector(partition_summary_limit=limit)
    for file in (file for part in parts for file in part):
        stock.add_file(file, SCHEMA, SPECS[file.spec_id])

    totals = [totals_of(part, SPECS, SCHEMA) for part in parts]

    assert added_summary(totals, limit) == stock.build()
