"""The values that the driver decides and ships: `WritePlan` for the tasks, `EpochId` for a micro-batch.

Frozen, picklable, a few kilobytes, no live handle and no credential of a catalog. Imports nothing of
the package but other values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochId:
    """One micro-batch of one streaming query.

    Attributes:
        query_id: Spark's query id: lasts as long as the checkpoint.
        epoch_id: Number of the micro-batch, from 0.
        run_id: Spark's run id: every start of the query has its own. None if Spark does not tell it.
    """

    query_id: str
    epoch_id: int
    run_id: str | None = None

    def __str__(self) -> str:
        return f"query {self.query_id}, epoch {self.epoch_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """How data files are written.

    Attributes:
        target_file_size_bytes: Compressed size at which the next file is begun.
        compression_codec: Iceberg's name of the codec, such as `zstd`.
        compression_level: None means the codec's own default.
        metrics_properties: The table's `write.metadata.metrics.*` properties.
    """

    target_file_size_bytes: int
    compression_codec: str
    compression_level: int | None
    metrics_properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Everything that the tasks of one write are told.

    Attributes:
        table: Identifier of the table, levels separated by dots.
        table_uuid: The table that was planned for; a commit into another one is refused.
        branch: Branch that the snapshot is added to.
        schema: Schema that the files are written with.
        spec: Partition spec that the files are written with.
        location: Location of the table.
        properties: The table's properties that decide where data files go (`write.*`).
        io_properties: What opens storage, without any credential of a catalog.
        operation_id: Part of the name of every file of this write.
        snapshot_id: Id of the snapshot that the commit will add, fixed before any attempt.
        files: How data files are written.
        new_table: Metadata (JSON) of the table that the commit creates, None when it exists.
    """

    table: str
    table_uuid: str
    branch: str
    schema: Schema
    spec: PartitionSpec
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    operation_id: str
    snapshot_id: int
    files: FileSettings
    new_table: str | None = None
