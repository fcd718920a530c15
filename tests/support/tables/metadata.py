"""Small table metadata, built by hand: a history of snapshots without any file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_ds.plan import EpochId, FileSettings, Route, WriteIdentity

TABLE_UUID = UUID(int=1)
OUR_SNAPSHOT = 777
START_MS = 1_700_000_000_000
ID_AND_NAME = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One snapshot of a history.

    Attributes:
        snapshot_id: Its id.
        parent: Its parent's id.
        summary: What its summary holds beside the operation.
        sequence_number: Its sequence number, None for its place in the history.
    """

    snapshot_id: int
    parent: int | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    sequence_number: int | None = None


def line(*snapshot_ids: int, **summaries: Mapping[str, str]) -> list[Past]:
    """Return snapshots each of which follows the one before; `s7={...}` is the summary of snapshot 7."""
    parents = [None, *snapshot_ids[:-1]]
    return [
        Past(snapshot_id=number, parent=parent, summary=summaries.get(f"s{number}", {}))
        for number, parent in zip(snapshot_ids, parents, strict=True)
    ]


def after_expiry(*snapshot_ids: int) -> list[Past]:
    """Return such snapshots, whose ids are their sequence numbers, too; what came before them has expired."""
    first = Past(snapshot_id=snapshot_ids[0], parent=snapshot_ids[0] - 1)
    return [replace(past, sequence_number=past.snapshot_id) for past in [first, *line(*snapshot_ids)[1:]]]


def metadata_of(
    history: Sequence[Past] = (),
    *,
    properties: Mapping[str, str] | None = None,
    schemas: Sequence[Schema] = (ID_AND_NAME,),
    specs: Sequence[PartitionSpec] = (UNPARTITIONED_PARTITION_SPEC,),
    branches: Mapping[str, int] | None = None,
) -> TableMetadataV2:
    """Return a table with that history; branch `main` is at its last snapshot unless `branches` says otherwise."""
    heads = branches if branches is not None else ({"main": history[-1].snapshot_id} if history else {})
    snapshots = [_snapshot(past, past.sequence_number or place) for place, past in enumerate(history, start=1)]
    return TableMetadataV2(
        location="file:///nowhere/t",
        table_uuid=TABLE_UUID,
        last_column_id=max(schema.highest_field_id for schema in schemas),
        schemas=list(schemas),
        current_schema_id=schemas[-1].schema_id,
        partition_specs=list(specs),
        default_spec_id=specs[-1].spec_id,
        last_partition_id=1999,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
        properties=dict(properties or {}),
        snapshots=snapshots,
        current_snapshot_id=heads.get("main"),
        last_sequence_number=max((snapshot.sequence_number or 0 for snapshot in snapshots), default=0),
        last_updated_ms=START_MS + len(history),
        refs={
            name: SnapshotRef(snapshot_id=head, snapshot_ref_type=SnapshotRefType.BRANCH)
            for name, head in heads.items()
        },
    )


def _snapshot(past: Past, number: int) -> Snapshot:
    return Snapshot(
        snapshot_id=past.snapshot_id,
        parent_snapshot_id=past.parent,
        sequence_number=number,
        timestamp_ms=START_MS + number,
        manifest_list=f"file:///nowhere/t/metadata/snap-{past.snapshot_id}.avro",
        summary=Summary(**{"operation": Operation.APPEND, **past.summary}),
        schema_id=0,
    )


def identity(
    *, epoch: EpochId | None = None, branch: str = "main", table_uuid: UUID = TABLE_UUID, new_table: str | None = None
) -> WriteIdentity:
    """Return a write into that table, as snapshot `OUR_SNAPSHOT`."""
    return WriteIdentity(
        table="db.t",
        table_uuid=str(table_uuid),
        route=Route(branch=branch),
        operation_id="00000000-0000-0000-0000-000000000777",
        snapshot_id=OUR_SNAPSHOT,
        schema_id=0,
        files=FileSettings(
            target_file_size_bytes=1 << 29, compression_codec="zstd", compression_level=None, metrics_properties={}
        ),
        epoch=epoch,
        new_table=new_table,
    )
