"""Metadata tables of files and partitions, from our own manifest reader, in the columns of Iceberg's Spark runtime.

PyIceberg's fail where a table has a column of type `uuid` or `variant`, or has lost a column that an old partition spec
used; they lose partitions whose field was renamed, and the delete files of format version 3. Values are in the types in
which reads show them. The driver holds all rows, so they are built column by column. Sources: Iceberg's Java library,
`BaseFilesTable`, `ManifestEntriesTable`, `PartitionsTable` and `MetricsUtil`; Iceberg spec, "Manifests".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DecimalType, FixedType, IcebergType, PrimitiveType, StringType, UUIDType
from pyiceberg.utils.decimal import unscaled_to_decimal

from iceberg_ds.expressions.metrics_evaluator import bound_value
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.reading.deleted_rows import positions_by_source
from iceberg_ds.reading.extras import partition_type, partition_values, partitions_of
from iceberg_ds.reading.scan import ScanPlan
from iceberg_ds.reading.spark_arrow import spark_values
from iceberg_ds.snapshots.manifests import all_entries, live_entries, live_manifests
from iceberg_ds.snapshots.version_3 import (
    VERSION_3,
    ManifestList,
    deletion_vector,
    first_row_id,
    read_list,
    referenced_data_file,
)
from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.names import FILE_PATH, POS
from iceberg_ds.table.nested_fields import at_any_depth
from iceberg_ds.table.partitioning import PartitionKey
from iceberg_ds.table.spark_types import UnreadTypeError, spark_type

_INT, _LONG, _TEXT, _BYTES = pa.int32(), pa.int64(), pa.string(), pa.binary()
_COUNTS, _BOUNDS = pa.map_(_INT, _LONG), pa.map_(_INT, _BYTES)
_TIME = pa.timestamp("us", tz="UTC")

_Column: TypeAlias = "tuple[pa.DataType, Callable[[DataFile], object]]"


def _pairs(of: Callable[[DataFile], Mapping[int, object] | None]) -> Callable[[DataFile], object]:
    """Return what finds a map of a file as pairs, in which form Arrow takes maps."""

    def find(file: DataFile) -> list[tuple[int, object]] | None:
        found = of(file)
        return None if found is None else list(found.items())

    return find


def _content_offset(file: DataFile) -> int | None:
    place = deletion_vector(file)
    return None if place is None else place[0]


def _content_size(file: DataFile) -> int | None:
    place = deletion_vector(file)
    return None if place is None else place[1]


# What stands before the partition of a file, and behind it.
_BEFORE: Mapping[str, _Column] = {
    "content": (_INT, lambda file: int(file.content)),
    "file_path": (_TEXT, attrgetter("file_path")),
    "file_format": (_TEXT, lambda file: file.file_format.value),
    "spec_id": (_INT, attrgetter("spec_id")),
}
_BEHIND: Mapping[str, _Column] = {
    "record_count": (_LONG, attrgetter("record_count")),
    "file_size_in_bytes": (_LONG, attrgetter("file_size_in_bytes")),
    "column_sizes": (_COUNTS, _pairs(attrgetter("column_sizes"))),
    "value_counts": (_COUNTS, _pairs(attrgetter("value_counts"))),
    "null_value_counts": (_COUNTS, _pairs(attrgetter("null_value_counts"))),
    "nan_value_counts": (_COUNTS, _pairs(attrgetter("nan_value_counts"))),
    "lower_bounds": (_BOUNDS, _pairs(attrgetter("lower_bounds"))),
    "upper_bounds": (_BOUNDS, _pairs(attrgetter("upper_bounds"))),
    "key_metadata": (_BYTES, attrgetter("key_metadata")),
    "split_offsets": (pa.list_(_LONG), attrgetter("split_offsets")),
    "equality_ids": (pa.list_(_INT), attrgetter("equality_ids")),
    "sort_order_id": (_INT, attrgetter("sort_order_id")),
    "first_row_id": (_LONG, first_row_id),
    "referenced_data_file": (_TEXT, referenced_data_file),
    "content_offset": (_LONG, _content_offset),
    "content_size_in_bytes": (_LONG, _content_size),
}
# Columns of `readable_metrics`, and where a file has them by field id.
_COUNTED = {
    "column_size": attrgetter("column_sizes"),
    "value_count": attrgetter("value_counts"),
    "null_value_count": attrgetter("null_value_counts"),
    "nan_value_count": attrgetter("nan_value_counts"),
}
_BOUNDED = {"lower_bound": attrgetter("lower_bounds"), "upper_bound": attrgetter("upper_bounds")}


def files_table(
    metadata: TableMetadata, io: FileIO, snapshots: Iterable[Snapshot], content: ManifestContent | None = None
) -> pa.Table:
    """Return the live files of some snapshots; a manifest that several of them list is read once.

    Args:
        metadata: The table.
        io: Opens the table's storage.
        snapshots: The snapshots.
        content: Whether data files or delete files are meant; None for both.
    """
    listed = in_parallel(partial(live_manifests, io), snapshots)
    manifests = {manifest.manifest_path: manifest for manifest in chain.from_iterable(listed)}
    wanted = [manifest for manifest in manifests.values() if content is None or manifest.content == content]
    files = [entry.data_file for entry in _entries(live_entries, io, wanted)]
    return pa.table({**_file_columns(metadata, files), **_readable_metrics(metadata.schema(), files)})


def entries_table(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> pa.Table:
    """Return the entries of all manifests of a snapshot, those of files that it removed among them."""
    manifests = [] if snapshot is None else list(read_list(io, ManifestList.of(snapshot)))
    entries = _entries(all_entries, io, manifests)
    files = [entry.data_file for entry in entries]
    described = _file_columns(metadata, files)
    return pa.table(
        {
            "status": pa.array([int(entry.status) for entry in entries], _INT),
            "snapshot_id": pa.array([entry.snapshot_id for entry in entries], _LONG),
            "sequence_number": pa.array([entry.sequence_number for entry in entries], _LONG),
            "file_sequence_number": pa.array([entry.file_sequence_number for entry in entries], _LONG),
            "data_file": pa.StructArray.from_arrays(list(described.values()), names=list(described)),
            **_readable_metrics(metadata.schema(), files),
        }
    )


def partitions_table(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> pa.Table:
    """Return what the live files of a snapshot hold by partition; a row at most of a table that never had partitions.

    Partitions of several specs that have the same values are one. It has the spec of the file that was added last.
    """
    kind, specs = partition_type(metadata), metadata.specs()
    known: dict[int | None, Snapshot] = {one.snapshot_id: one for one in metadata.snapshots}
    found: dict[PartitionKey, _Partition] = {}
    for entry in _entries(live_entries, io, live_manifests(io, snapshot)):
        values = partition_values(entry.data_file, specs)
        key = PartitionKey(values.get(one.field_id) for one in kind.fields)
        group = found.setdefault(key, _Partition(newest=entry.data_file))
        group.add(entry.data_file, added_by=known.get(entry.snapshot_id))
    groups = list(found.values())
    columns: dict[str, pa.Array] = {}
    if kind.fields:
        newest = [group.newest for group in groups]
        columns["partition"] = partitions_of(newest, kind, specs)
        columns["spec_id"] = pa.array([file.spec_id for file in newest], _INT)
    data, positions, equalities = (
        [group.totals.get(content, _Totals()) for group in groups]
        for content in (DataFileContent.DATA, DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES)
    )
    columns |= {
        "record_count": pa.array([total.records for total in data], _LONG),
        "file_count": pa.array([total.files for total in data], _INT),
        "total_data_file_size_in_bytes": pa.array([total.size_bytes for total in data], _LONG),
        "position_delete_record_count": pa.array([total.records for total in positions], _LONG),
        "position_delete_file_count": pa.array([total.files for total in positions], _INT),
        "equality_delete_record_count": pa.array([total.records for total in equalities], _LONG),
        "equality_delete_file_count": pa.array([total.files for total in equalities], _INT),
        "last_updated_at": pa.array([group.updated_us for group in groups], _LONG).cast(_TIME),
        "last_updated_snapshot_id": pa.array([group.updated_by for group in groups], _LONG),
    }
    return pa.table(columns)


def position_deletes_table(metadata: TableMetadata, io: FileIO, plan: ScanPlan) -> pa.Table:
    """Return the rows that are deleted by position, each with the delete file or deletion vector that deletes it.

    Args:
        metadata: The table.
        io: Opens the table's storage.
        plan: A read of all rows.

    Raises:
        DataFileError: A delete file is missing or damaged.
    """
    of_data = {task.work.path: task.data_file for task in plan.tasks}
    found = positions_by_source(io, plan.tasks)
    vectors = [None if isinstance(source, str) else source for _, source in found]
    # A deletion vector has the partition and the spec of its data file.
    deletes = [plan.deletes[source] if isinstance(source, str) else of_data[path] for path, source in found]
    paths = [source if isinstance(source, str) else source.path for _, source in found]
    kind = partition_type(metadata)
    described = {
        "partition": partitions_of(deletes, kind, metadata.specs()) if kind.fields else None,
        "spec_id": pa.array([file.spec_id for file in deletes], _INT),
        "delete_file_path": pa.array(paths, _TEXT),
    }
    if metadata.format_version >= VERSION_3:
        described["content_offset"] = pa.array([one and one.offset for one in vectors], _LONG)
        described["content_size_in_bytes"] = pa.array([one and one.length for one in vectors], _LONG)
    counted = [pa.repeat(pa.scalar(number, _LONG), len(positions)) for number, positions in enumerate(found.values())]
    rows = pa.chunked_array(counted, _LONG).combine_chunks()
    in_order = [chunk for positions in found.values() for chunk in positions.take(pc.sort_indices(positions)).chunks]
    return pa.table(
        {
            FILE_PATH.name: pa.array([path for path, _ in found], _TEXT).take(rows),
            POS.name: pa.chunked_array(in_order, _LONG).combine_chunks(),
            **{name: values.take(rows) for name, values in described.items() if values is not None},
        }
    )


def _entries(
    read: Callable[[FileIO, ManifestFile], list[ManifestEntry]], io: FileIO, manifests: Iterable[ManifestFile]
) -> list[ManifestEntry]:
    return list(chain.from_iterable(in_parallel(partial(read, io), manifests)))


def _file_columns(metadata: TableMetadata, files: Sequence[DataFile]) -> dict[str, pa.Array]:
    """Return all columns that describe a file, but its readable metrics; no partition if the table never had any."""
    kind = partition_type(metadata)
    partitions = {"partition": partitions_of(files, kind, metadata.specs())} if kind.fields else {}
    return {**_of_each(files, _BEFORE), **partitions, **_of_each(files, _BEHIND)}


def _of_each(files: Sequence[DataFile], columns: Mapping[str, _Column]) -> dict[str, pa.Array]:
    return {name: pa.array([value(file) for file in files], kind) for name, (kind, value) in columns.items()}


def _readable_metrics(schema: Schema, files: Sequence[DataFile]) -> dict[str, pa.Array]:
    """Return the column `readable_metrics`: a struct for each field without fields inside it, in the order of names.

    Fields without metrics, such as variants, and of types that Spark lacks are left out; so is a column without fields.
    """
    counts = {name: [dict(found(file) or {}) for file in files] for name, found in _COUNTED.items()}
    bounds = {name: [dict(found(file) or {}) for file in files] for name, found in _BOUNDED.items()}
    columns = {}
    for one in at_any_depth(schema.fields):
        kind, number = one.field_type, one.field_id
        if not _has_metrics(kind):
            continue
        metrics = {name: pa.array([of.get(number) for of in each], _LONG) for name, each in counts.items()}
        metrics |= {name: _bounds([of.get(number) for of in each], kind) for name, each in bounds.items()}
        columns[schema.find_column_name(number) or one.name] = _struct(metrics)
    return {"readable_metrics": _struct(dict(sorted(columns.items())))} if columns else {}


def _has_metrics(kind: IcebergType) -> bool:
    if not isinstance(kind, PrimitiveType) or not kind.is_primitive:
        return False
    try:
        spark_type(kind)
    except UnreadTypeError:
        return False
    return True


def _bounds(raw: Sequence[bytes | None], kind: IcebergType) -> pa.Array:
    # Bounds of a column of type `fixed` may be shorter than its values.
    stored = _BYTES if isinstance(kind, FixedType | UUIDType) else arrow_type(kind)
    return spark_values(pa.array([_bound(one, kind) for one in raw], stored), kind)


def _bound(raw: bytes | None, kind: IcebergType) -> object:
    """Return a bound as a physical value of the type."""
    if isinstance(kind, UUIDType):
        return raw
    value = bound_value(raw, kind)
    if value is None:
        return None
    if isinstance(kind, StringType):
        return value.decode(errors="replace")  # others cut texts where a character is not at its end
    return unscaled_to_decimal(value, kind.scale) if isinstance(kind, DecimalType) else value


def _struct(columns: Mapping[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """Files of one content, their records, and their bytes."""

    records: int = 0
    files: int = 0
    size_bytes: int = 0

    def and_of(self, file: DataFile) -> _Totals:
        return _Totals(
            records=self.records + file.record_count,
            files=self.files + 1,
            size_bytes=self.size_bytes + file.file_size_in_bytes,
        )


@dataclass(slots=True, kw_only=True)
class _Partition:
    """What is known of a partition so far.

    Attributes:
        newest: Its file that was added last.
        updated_us: When that file was added, in microseconds since the Unix epoch; None if its snapshot expired.
        updated_by: The snapshot that added it; None if it expired.
        totals: What it holds, by content.
    """

    newest: DataFile
    updated_us: int | None = None
    updated_by: int | None = None
    totals: dict[DataFileContent, _Totals] = field(default_factory=dict)

    def add(self, file: DataFile, added_by: Snapshot | None) -> None:
        """Take a file of the partition in.

        Args:
            file: The file.
            added_by: The snapshot that added it; None if it expired.
        """
        self.totals[file.content] = self.totals.get(file.content, _Totals()).and_of(file)
        if added_by is None:
            return
        added_us = 1000 * added_by.timestamp_ms
        if self.updated_us is None or added_us > self.updated_us:
            self.newest, self.updated_us, self.updated_by = file, added_us, added_by.snapshot_id
