"""Files of a snapshot made by hand, for what decides by entries alone which deletes apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, LongType, StringType

from iceberg_ds.snapshots.live_files import LiveFile

KEY = 1
PATH_ID = 2147483546
NO_PARTITIONS, BY_REGION, BY_DAY, VOID = range(4)
SPECS: Mapping[int, PartitionSpec] = {
    NO_PARTITIONS: PartitionSpec(spec_id=NO_PARTITIONS),
    BY_REGION: PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=BY_REGION),
    BY_DAY: PartitionSpec(PartitionField(3, 1001, IdentityTransform(), "day"), spec_id=BY_DAY),
    VOID: PartitionSpec(PartitionField(2, 1000, VoidTransform(), "region"), spec_id=VOID),
}
TYPES: Mapping[int, IcebergType] = {KEY: LongType(), 2: StringType()}


def live(  # noqa: PLR0913  # most are given by name
    path: str,
    number: int,
    content: DataFileContent = DataFileContent.DATA,
    *,
    spec: int = NO_PARTITIONS,
    partition: tuple[Any, ...] = (),
    bounds: Mapping[int, tuple[bytes, bytes]] | None = None,
    sizes: Mapping[int, int] | None = None,
    by: tuple[int, ...] = (KEY,),
) -> LiveFile:
    """Return a file of a snapshot."""
    is_by_key = content is DataFileContent.EQUALITY_DELETES
    found = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=3,
        file_size_in_bytes=100,
        column_sizes=dict(sizes or {}),
        lower_bounds={number: low for number, (low, _) in (bounds or {}).items()},
        upper_bounds={number: high for number, (_, high) in (bounds or {}).items()},
        equality_ids=list(by) if is_by_key else None,
    )
    found.spec_id = spec
    return LiveFile(data_file=found, sequence_number=number)


def keys(path: str, number: int, **more: Any) -> LiveFile:
    """Return a file of deletes by key."""
    return live(path, number, DataFileContent.EQUALITY_DELETES, **more)


def positions(path: str, number: int, **more: Any) -> LiveFile:
    """Return a file of position deletes."""
    return live(path, number, DataFileContent.POSITION_DELETES, **more)
