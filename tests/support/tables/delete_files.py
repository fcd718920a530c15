"""Row-level deletes as another engine commits them: files that say which rows of other files do not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId
from pyiceberg.typedef import Record
from support.tables.metadata import identity
from support.tables.sink import Sink, local

from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.manifests import ManifestDraft, live_manifests, metadata_path, write_list, write_manifests
from iceberg_ds.snapshots.snapshot import Change, change_summary, move_branch, new_snapshot

_numbers = count(1)
# Reserved field ids (spec, "Position Delete Files").
_FILE_PATH, _POS = 2147483546, 2147483545
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_FILE_PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POS)}),
    ]
)


def delete_positions(
    sink: Sink, path: str, positions: Sequence[int], branch: str = "main", *, beside: str | None = None
) -> int:
    """Delete rows of a data file by their positions in it, and return the id of the snapshot.

    Args:
        sink: The table.
        path: The data file.
        positions: The rows.
        branch: The branch.
        beside: A data file in whose partition the delete file is to stand; None for the one at `path`.
    """
    rows = pa.table([[path] * len(positions), sorted(positions)], schema=_POSITIONS)
    (of,) = [entry.data_file for entry in entries(sink, branch) if entry.data_file.file_path == (beside or path)]
    return _commit(sink, rows, of, branch)


def delete_ids(sink: Sink, *ids: int, branch: str = "main") -> int:
    """Delete rows by the values of column `id`, the table's first, and return the id of the snapshot."""
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    of = entries(sink, branch)[0].data_file
    rows = pa.table([list(ids)], schema=pa.schema([field]))
    return _commit(sink, rows, of, branch)


def delete_equal(
    sink: Sink, rows: pa.Table, ids: Sequence[int], of: DataFile | None = None, branch: str = "main"
) -> int:
    """Delete rows that are equal in the columns with these ids, and return the id of the snapshot.

    Args:
        sink: The table.
        rows: The keys; their schema says the field ids.
        ids: The columns to compare.
        of: A file of the partition that is meant; None for the first one's.
        branch: The branch.
    """
    return _commit(sink, rows, of or entries(sink, branch)[0].data_file, branch, ids)


def with_ids(rows: pa.Table, **ids: int) -> pa.Table:
    """Return the rows with field ids, by the names of their columns."""
    fields = [field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def add_in_partition(sink: Sink, path: Path, partition: Mapping[str, object], rows: int) -> int:
    """Add a data file as it is to a partition of the table's spec, without metrics, and return the snapshot's id."""
    metadata = sink.table().metadata
    values = Record(*(partition[field.name] for field in metadata.spec().fields))
    file = DataFile.from_args(
        3,
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=values,
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = metadata.default_spec_id
    return commit_file(sink, file, "main")


def add_again(sink: Sink, file: DataFile) -> int:
    """Add a data file that the table has already, and return the id of the snapshot."""
    return commit_file(sink, file, "main")


def entries(sink: Sink, branch: str = "main", *, live: bool = True) -> list[ManifestEntry]:
    """Return the manifest entries of the branch's newest snapshot, those of delete files included."""
    table = sink.table()
    snapshot = table.snapshot_by_name(branch)
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    return [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=live)]


def _commit(sink: Sink, rows: pa.Table, of: DataFile, branch: str, ids: Sequence[int] = (1,)) -> int:
    """Commit a file with these deletes, in the partition of `of`."""
    table = sink.table()
    is_by_position = rows.schema == _POSITIONS
    # Readers tell by equal bounds that all positions are of one file.
    bounds = {_FILE_PATH: rows["file_path"][0].as_py().encode()} if is_by_position else {}
    metadata, number = table.metadata, next(_numbers)
    path = f"{metadata.location}/data/deletes-{number}.parquet"
    pq.write_table(rows, local(path))
    delete_file = DataFile.from_args(
        3,
        content=DataFileContent.POSITION_DELETES if is_by_position else DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=local(path).stat().st_size,
        lower_bounds=bounds,
        upper_bounds=bounds,
        equality_ids=None if is_by_position else list(ids),
    )
    delete_file.spec_id = of.spec_id
    return commit_file(sink, delete_file, branch)


def commit_file(sink: Sink, file: DataFile, branch: str) -> int:
    """Commit a file that another writer has written."""
    table, number = sink.table(), next(_numbers)
    metadata = table.metadata
    write = _identity(number, branch)
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=write.snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )
    draft = ManifestDraft(
        path=metadata_path(metadata, f"deletes-{number}.avro"),
        spec_id=file.spec_id,
        entries=(entry,),
        content=ManifestContent.DATA if file.content == DataFileContent.DATA else ManifestContent.DELETES,
    )
    manifests = [
        *write_manifests(table.io, metadata, [draft], write),
        *live_manifests(table.io, table.snapshot_by_name(branch)),
    ]
    return _commit_manifests(sink, write, Change(added=[file]), manifests)


def take_deletes_back(sink: Sink, branch: str = "main") -> int:
    """Commit a snapshot without any delete file, so that all rows are visible again, and return its id."""
    table = sink.table()
    deletes = [entry.data_file for entry in entries(sink, branch) if entry.data_file.content != DataFileContent.DATA]
    listed = live_manifests(table.io, table.snapshot_by_name(branch))
    manifests = [one for one in listed if one.content == ManifestContent.DATA]
    return _commit_manifests(sink, _identity(next(_numbers), branch), Change(added=(), removed=deletes), manifests)


def _commit_manifests(sink: Sink, write: WriteIdentity, change: Change, manifests: Sequence[ManifestFile]) -> int:
    """Commit a snapshot with these manifests."""
    table, branch = sink.table(), write.route.branch
    metadata, before = table.metadata, table.snapshot_by_name(branch)
    is_append = not change.removed and all(file.content == DataFileContent.DATA for file in change.added)
    path = metadata_path(metadata, f"snap-{write.operation_id}.avro")
    operation = Operation.APPEND if is_append else Operation.OVERWRITE
    snapshot = new_snapshot(metadata, write, operation, change_summary(metadata, change), path, manifests)
    write_list(table.io, metadata, snapshot, manifests)
    sink.catalog.send(
        table,
        (AssertRefSnapshotId(ref=branch, snapshot_id=before.snapshot_id if before else None),),
        (AddSnapshotUpdate(snapshot=snapshot), move_branch(metadata, branch, snapshot.snapshot_id)),
    )
    return snapshot.snapshot_id


def _identity(number: int, branch: str) -> WriteIdentity:
    write = identity(branch=branch)
    return WriteIdentity(
        table=write.table,
        table_uuid=write.table_uuid,
        route=write.route,
        operation_id=f"deletes-{number}",
        snapshot_id=10_000 + number,
        schema_id=0,
        files=write.files,
    )
