"""One measurement of `bench_commit.py` or `bench_version_3.py`: JSON on stdin says what, a line of JSON is the result.

Runs in a process of its own and makes a table of its own, so that the number of snapshots is right. A table
with many snapshots is not made by many commits: one real commit gives the newest snapshot, and the older
ones are written into the metadata file in its likeness, before the file is registered in a SQLite catalog.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import CatalogSettings
from iceberg_ds.commit.retry import bring_in
from iceberg_ds.commit.snapshot_update import SnapshotUpdate
from iceberg_ds.commit.write_files import Added, WriteFiles
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.plan import BoundColumn, EpochId, FileSettings, OverwriteByFilter, Route, WriteIdentity
from iceberg_ds.reading.scan import SnapshotChoice, plan_scan
from iceberg_ds.snapshots.version_3 import VERSION_3, ManifestList, list_writer, read_list

_BRANCH = "main"
_ROWS_PER_FILE = 1_000_000
_KILOBYTE = 1024  # the unit of ru_maxrss on Linux
_PARTS = 10  # commits that bring the files of a table that is planned or loses a file
_METADATA_LOG = 100  # entries that Iceberg keeps by default
# An append writes no data file in its commit.
_NO_FILES = FileSettings(
    target_file_size_bytes=1, compression_codec="zstd", compression_level=None, metrics_properties={}
)
# Iceberg spec, "Reserved Field IDs": path and position in a position delete file.
_DELETED_PATH, _DELETED_POSITION = 2147483546, 2147483545
# The columns of the lineitem-like set, by type; each with a lower and an upper bound as a manifest holds it.
_COLUMNS: tuple[tuple[IcebergType, int, bytes, bytes], ...] = (
    (LongType(), 3, bytes(8), b"\x40\x42\x0f" + bytes(5)),
    (IntegerType(), 1, b"\x01\0\0\0", b"\x07\0\0\0"),
    (DoubleType(), 2, bytes(8), b"\0\0\0\0\0\0\x49\x40"),
    (DecimalType(12, 2), 2, b"\0", b"\x0a"),
    (StringType(), 5, b"about above accor", b"warhorses unusu"),
    (DateType(), 3, b"\x62\x1f\0\0", b"\x42\x2d\0\0"),
    (TimestamptzType(), 1, bytes(8), b"\0\0\x44\x3f\x4b\x5a\x03\0"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What to measure.

    Attributes:
        variant: Who commits.
        folder: New folder for catalog and tables.
        files: Files of the commit, or of the table.
        snapshots: Snapshots of the table before it.
        manifests: Manifests in the list of the newest of them.
        version: Format version of the table.
        work: `append` adds the files to the table. Else ours has brought them in several commits: `plan` plans a read
            of them, `drop` replaces one of them by none.
        deletes: Whether the files have deletes, as an upsert leaves them in each commit: a position delete file for
            all files in version 2, a deletion vector for each in version 3.
    """

    variant: Literal["ours", "stock"]
    folder: str
    files: int
    snapshots: int
    manifests: int
    version: TableVersion = 2
    work: Literal["append", "plan", "drop"] = "append"
    deletes: bool = False


def table_schema() -> Schema:
    """Return a schema with the columns of `_COLUMNS`."""
    types = [column[0] for column in _COLUMNS for _ in range(column[1])]
    fields = [NestedField(field_id=n, name=f"c{n}", field_type=kind) for n, kind in enumerate(types, start=1)]
    return Schema(*fields)


def made_up_files(count: int) -> list[DataFile]:
    """Return manifest entries of files that do not exist, each with the metrics of 17 columns.

    Neither side of the comparison opens data files.
    """
    bounds = [column[2:] for column in _COLUMNS for _ in range(column[1])]
    return [_made_up_file(number, bounds) for number in range(count)]


def _made_up_file(number: int, bounds: Sequence[tuple[bytes, bytes]]) -> DataFile:
    ids = range(1, len(bounds) + 1)
    # Each file has one value of the first column, so that a predicate finds it.
    bounds = [(number.to_bytes(8, "little"),) * 2, *bounds[1:]]
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///no/such/warehouse/db.db/t/data/{number % 8:05d}-{number}-{uuid.uuid4()}-00000.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=_ROWS_PER_FILE + number,
        file_size_in_bytes=30_000_000 + number,
        column_sizes={field_id: 1_500_000 + number + field_id for field_id in ids},
        value_counts=dict.fromkeys(ids, _ROWS_PER_FILE + number),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts=dict.fromkeys(range(5, 7), 0),
        lower_bounds=dict(zip(ids, (low for low, _ in bounds), strict=True)),
        upper_bounds=dict(zip(ids, (high for _, high in bounds), strict=True)),
        key_metadata=None,
        split_offsets=[4, 15_000_000 + number],
        equality_ids=None,
        sort_order_id=None,
    )
    data_file.spec_id = 0
    return data_file


def made_up_deletes(data_files: Sequence[DataFile], version: TableVersion) -> list[DataFile]:
    """Return manifest entries of deletes that do not exist, of a row of each data file, as a version has them."""
    path = f"file:///no/such/warehouse/db.db/t/data/{uuid.uuid4()}-deletes"
    if version < VERSION_3:
        paths = sorted(data_file.file_path for data_file in data_files)
        bounds = {_DELETED_PATH: (paths[0].encode(), paths[-1].encode()), _DELETED_POSITION: (bytes(8), bytes(8))}
        return [_made_up_delete(f"{path}.parquet", FileFormat.PARQUET, bounds, record_count=len(paths))]
    return [
        _made_up_delete(
            f"{path}.puffin",
            FileFormat.PUFFIN,
            {},
            record_count=1,
            referenced_data_file=data_file.file_path,
            content_offset=4 + 50 * number,
            content_size_in_bytes=50,
        )
        for number, data_file in enumerate(data_files)
    ]


def _made_up_delete(
    path: str, file_format: FileFormat, bounds: dict[int, tuple[bytes, bytes]], **fields: str | int
) -> DataFile:
    entry = DataFile.from_args(
        _table_format_version=2 if file_format is FileFormat.PARQUET else VERSION_3,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=file_format,
        partition=Record(),
        file_size_in_bytes=100_000,
        lower_bounds={field_id: low for field_id, (low, _) in bounds.items()} or None,
        upper_bounds={field_id: high for field_id, (_, high) in bounds.items()} or None,
        **fields,
    )
    entry.spec_id = 0
    return entry


def make_table(catalog: Catalog, name: str, snapshots: int, manifests: int, version: TableVersion = 2) -> None:
    """Create table `name` in namespace `bench` with so many snapshots, the newest with so many manifests."""
    seed = catalog.create_table(("bench", f"{name}_seed"), table_schema())
    commit_stock(catalog, ("bench", f"{name}_seed"), made_up_files(1), {})
    seed = catalog.load_table(("bench", f"{name}_seed"))
    content = json.loads(Path(_local(seed.metadata_location)).read_text())
    content["table-uuid"] = str(uuid.uuid4())
    head = content["snapshots"][-1]
    if version == VERSION_3:  # PyIceberg creates no such table
        rows = _ROWS_PER_FILE * manifests
        content |= {"format-version": VERSION_3, "next-row-id": rows}
        head |= {"first-row-id": 0, "added-rows": rows}
    head["manifest-list"] = _write_list(seed, content, manifests)
    _add_history(content, head, snapshots)
    path = f"{seed.location()}/metadata/{snapshots:05d}-{uuid.uuid4()}.metadata.json"
    Path(_local(path)).write_text(json.dumps(content))
    catalog.register_table(("bench", name), path)


def _local(location: str) -> str:
    return location.removeprefix("file://")


def _write_list(seed: Table, content: dict[str, Any], manifests: int) -> str:
    """Write a manifest list with the only manifest of `seed`, so many times under other names."""
    snapshot = TableMetadataUtil.parse_obj(content).current_snapshot()
    if snapshot is None:
        raise RuntimeError("the seed has no snapshot")
    real = next(iter(read_list(seed.io, ManifestList.of(snapshot))))
    path = f"{seed.location()}/metadata/snap-{snapshot.snapshot_id}-1-{uuid.uuid4()}.avro"
    with list_writer(content["format-version"], seed.io.new_output(path), snapshot, "deflate") as writer:
        writer.add_manifests([_renamed(real, number) for number in range(manifests)])
    return path


def _renamed(real: ManifestFile, number: int) -> ManifestFile:
    manifest = ManifestFile(*(real[position] for position in range(len(real))))
    if number:
        manifest[0] = real.manifest_path.replace("-m0.avro", f"-{uuid.uuid4()}-m0.avro")
    return manifest


def _add_history(content: dict[str, Any], head: dict[str, Any], snapshots: int) -> None:
    """Put older snapshots before `head`, each a second apart, and number them all."""
    older = range(1, snapshots)
    ids = [*(10**18 + number for number in older), head["snapshot-id"]]
    newest = head["timestamp-ms"]
    history = []
    for number, snapshot_id in enumerate(ids, start=1):
        entry = {**head, "snapshot-id": snapshot_id, "sequence-number": number}
        entry["timestamp-ms"] = newest - 1000 * (snapshots - number)
        if number > 1:
            entry["parent-snapshot-id"] = ids[number - 2]
        if number < snapshots:
            entry["manifest-list"] = f"{content['location']}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
        history.append(entry)
    content["snapshots"] = history
    content["last-sequence-number"] = snapshots
    moments = [(entry["snapshot-id"], entry["timestamp-ms"]) for entry in history]
    content["snapshot-log"] = [{"snapshot-id": one, "timestamp-ms": moment} for one, moment in moments]
    content["metadata-log"] = [
        {"metadata-file": f"{content['location']}/metadata/{one}.metadata.json", "timestamp-ms": moment}
        for one, moment in moments[-_METADATA_LOG - 1 : -1]
    ]


def commit_stock(
    catalog: Catalog, identifier: tuple[str, str], files: Sequence[DataFile], properties: dict[str, str]
) -> None:
    """Load the table and append with PyIceberg as it comes."""
    with catalog.load_table(identifier).transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=properties)
        with update.fast_append() as append:
            for data_file in files:
                append.append_data_file(data_file)


def committer(case: Case, catalog: Catalog, client: CatalogClient) -> Callable[[str, Sequence[DataFile]], None]:
    """Return what loads a table and appends files to it, as `case.variant` does.

    Both record a streaming epoch in the snapshot. The query is new to the table, so ours looks for it
    through the whole history, and records it in a table property, too.
    """
    epoch = EpochId(query_id=str(uuid.uuid4()), epoch_id=0)
    if case.variant == "stock":
        marks = {"spark.sql.streaming.queryId": epoch.query_id, "spark.sql.streaming.epochId": "0"}
        return lambda name, files: commit_stock(catalog, ("bench", name), files, marks)

    def commit_ours(name: str, files: Sequence[DataFile]) -> None:
        _bring_in(client, identities[name], Added(tuple(files)))

    # The planner knows these before the rows are written; they are no part of the commit.
    identities = {name: _identity(catalog.load_table(("bench", name)), name, epoch) for name in ("warm", "t")}
    return commit_ours


def _bring_in(client: CatalogClient, identity: WriteIdentity, added: Added) -> None:
    files = WriteFiles(added, row_count=added.record_count)
    bring_in(SnapshotUpdate(client, identity, files, CommitMeter(identity)))


def prepare_work(case: Case, catalog: Catalog, client: CatalogClient) -> Callable[[], None]:
    """Bring the files of a case into table `t`, and return what plans a read of it or drops one of its files."""
    table = catalog.load_table(("bench", "t"))
    files = made_up_files(case.files)
    size = -(-case.files // _PARTS)
    for begin in range(0, case.files, size):
        part = tuple(files[begin : begin + size])
        deletes = tuple(made_up_deletes(part, case.version)) if case.deletes else ()
        _bring_in(client, _identity(table, "t", None), Added(part, delete_files=deletes))
    if case.work == "drop":
        overwrite = OverwriteByFilter(
            predicate=f"c1 = {case.files // 2}",
            case_sensitive=True,
            isolation_level="none",
            base_snapshot_id=None,
            columns=(BoundColumn(field_id=1, type="int64"),),
        )
        identity = replace(_identity(table, "t", None), overwrite=overwrite)
        return lambda: _bring_in(client, identity, Added(()))

    def plan() -> None:
        loaded = client.load_table(("bench", "t"))
        choice = SnapshotChoice()
        scan = plan_scan("t", loaded.metadata, loaded.io, choice, where=None, case_sensitive=True, time_zone=None)
        with_deletes = sum(bool(task.work.positions or task.work.vector) for task in scan.tasks)
        # The table's first file may lie between the paths that a position delete file is for.
        if len(scan.tasks) != case.files + 1 or with_deletes - case.files * case.deletes not in {0, 1}:
            raise RuntimeError(f"{case}: {len(scan.tasks)} files are read, {with_deletes} of them with deletes")

    return plan


def _identity(table: Table, name: str, epoch: EpochId | None) -> WriteIdentity:
    return WriteIdentity(
        table=f"bench.{name}",
        table_uuid=str(table.metadata.table_uuid),
        route=Route(branch=_BRANCH),
        operation_id=str(uuid.uuid4()),
        snapshot_id=uuid.uuid4().int >> 66,
        schema_id=table.schema().schema_id,
        files=_NO_FILES,
        epoch=epoch,
        new_table=None,
    )


def measure(case: Case) -> dict[str, float]:
    """Make the tables, commit once to warm up and once for the record, and check what is in the table."""
    Path(case.folder).mkdir(parents=True)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{case.folder}/catalog.db",
        "warehouse": f"file://{case.folder}",
    }
    catalog = load_catalog("bench", **properties)
    client = connect(CatalogSettings(name="bench", properties=tuple(properties.items())))
    catalog.create_namespace("bench")
    make_table(catalog, "warm", 2, 1, case.version)
    make_table(catalog, "t", case.snapshots, case.manifests, case.version)
    commit = committer(case, catalog, client)
    commit("warm", made_up_files(1))
    is_append = case.work == "append"
    work: Callable[[], None] = (
        partial(commit, "t", made_up_files(case.files)) if is_append else prepare_work(case, catalog, client)
    )
    gc.collect()
    peak_before = _peak_bytes()
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    peak = _peak_bytes()
    if case.work != "plan":
        check(catalog.load_table(("bench", "t")), case)
    return {"seconds": seconds, "peak_bytes": peak, "peak_before_bytes": peak_before}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE


def check(table: Table, case: Case) -> None:
    """Check that the commit added one snapshot with all files after the last one, or dropped one; no manifest is lost.

    Raises:
        RuntimeError: It did not.
    """
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        raise RuntimeError("the table has no snapshot")
    if case.work == "drop":
        if int(snapshot.summary["deleted-data-files"] or 0) != 1:
            raise RuntimeError(f"{case}: the table shows {snapshot.summary}")
        return
    found = (
        len(table.metadata.snapshots),
        snapshot.sequence_number,
        int(snapshot.summary["added-data-files"] or 0),
        len(snapshot.manifests(table.io)),
    )
    if found != (case.snapshots + 1, case.snapshots + 1, case.files, case.manifests + 1):
        raise RuntimeError(f"{case}: the table shows {found}")


if __name__ == "__main__":
    print(json.dumps(measure(Case(**json.load(sys.stdin)))))
