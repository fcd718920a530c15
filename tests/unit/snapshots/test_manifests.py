"""Manifests: what PyIceberg's inner layout must be, and what its reader finds in ours."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, VoidTransform
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.keys.messages import equality_deletes
from support.tables.metadata import OUR_SNAPSHOT, identity
from support.tables.sink import Row, Sink, local, rows

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import TaskCommit
from iceberg_ds.snapshots import manifest_file
from iceberg_ds.snapshots.manifests import (
    copy_of,
    draft_added,
    live_entries,
    live_manifests,
    metadata_path,
    write_list,
    write_manifests,
)
from iceberg_ds.snapshots.snapshot import new_snapshot
from iceberg_ds.table.spark_types import iceberg_schema

IO: FileIO = LocalFileIO()


def files_of(messages: list[TaskCommit]) -> list[DataFile]:
    """Return the files that tasks report."""
    return [data_file for message in messages for data_file in message.data_files]


@pytest.fixture
def table(sink: Sink) -> Table:
    """Return a table with one snapshot."""
    sink.append(1)
    return sink.table()


def added_manifests(metadata: TableMetadata, data_files: list[DataFile]) -> list[ManifestFile]:
    """Write the manifests that add `data_files`."""
    return write_manifests(IO, metadata, draft_added(metadata, data_files, identity()), identity())


def next_snapshot(table: Table, name: str = "ours") -> Snapshot:
    """Return the snapshot that a write would add now."""
    path = metadata_path(table.metadata, f"snap-{name}.avro")
    return new_snapshot(table.metadata, identity(), Operation.APPEND, {}, path)


def test_positions_of_a_manifest_files_fields_are_the_known_ones() -> None:
    """A new PyIceberg would make every commit write nonsense. Spec: "Manifest Lists"."""
    names = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[2].fields]

    assert names == [
        "manifest_path",
        "manifest_length",
        "partition_spec_id",
        "content",
        "sequence_number",
        "min_sequence_number",
        "added_snapshot_id",
        "added_files_count",
        "existing_files_count",
        "deleted_files_count",
        "added_rows_count",
        "existing_rows_count",
        "deleted_rows_count",
        "partitions",
        "key_metadata",
    ]


def test_copy_of_a_manifest_file_is_independent_and_equal(table: Table) -> None:
    """A second attempt would carry the sequence number of the first."""
    (original,) = added_manifests(table.metadata, _one_file(table))

    copied = copy_of(original)
    copied[4] = 99

    assert isinstance(copied, ManifestFile)
    assert original.sequence_number == -1
    assert copied.manifest_path == original.manifest_path
    assert copied.added_rows_count == original.added_rows_count


def _one_file(table: Table) -> list[DataFile]:
    """Return the manifest entry of the table's file."""
    return [task.file for task in table.scan().plan_files()]


def test_manifest_is_read_by_pyiceberg(sink: Sink, table: Table) -> None:
    """Readers would not find the rows, or find wrong counts."""
    files = files_of(sink.write(rows(2, 3), rows(4)))

    (manifest,) = added_manifests(table.metadata, files)

    assert manifest.content is ManifestContent.DATA
    assert manifest.added_snapshot_id == OUR_SNAPSHOT
    assert (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count) == (2, 0, 0)
    assert (manifest.added_rows_count, manifest.existing_rows_count, manifest.deleted_rows_count) == (3, 0, 0)
    assert manifest.manifest_length == local(manifest.manifest_path).stat().st_size
    write_list(IO, table.metadata, next_snapshot(table), [manifest])
    listed = next(iter(read_manifest_list(IO.new_input(metadata_path(table.metadata, "snap-ours.avro")))))
    entries = listed.fetch_manifest_entry(IO)
    assert [entry.data_file.file_path for entry in entries] == [file.file_path for file in files]
    assert [entry.data_file.lower_bounds for entry in entries] == [file.lower_bounds for file in files]
    assert {entry.status for entry in entries} == {ManifestEntryStatus.ADDED}


def kept_manifests(table: Table) -> list[ManifestFile]:
    """Return the manifests of the branch's newest snapshot."""
    return live_manifests(IO, table.current_snapshot())


def test_entries_inherit_the_sequence_number_of_the_commit(sink: Sink, table: Table) -> None:
    """Later deletes would not apply to the rows, or earlier ones would."""
    (manifest,) = added_manifests(table.metadata, files_of(sink.write(rows(2))))
    snapshot = next_snapshot(table)

    write_list(IO, table.metadata, snapshot, [manifest, *kept_manifests(table)])

    ours, kept = read_manifest_list(IO.new_input(snapshot.manifest_list))
    assert (ours.sequence_number, ours.min_sequence_number) == (2, 2)
    assert (kept.sequence_number, kept.min_sequence_number) == (1, 1)
    (entry,) = ours.fetch_manifest_entry(IO)
    assert (entry.sequence_number, entry.file_sequence_number, entry.snapshot_id) == (2, 2, OUR_SNAPSHOT)


def test_manifests_of_a_failed_attempt_get_the_sequence_number_of_the_next(sink: Sink, table: Table) -> None:
    """Deletes of a commit in between would not apply in the right order, and rows would reappear."""
    added = added_manifests(table.metadata, files_of(sink.write(rows(2))))
    write_list(IO, table.metadata, next_snapshot(table, "first"), added)
    sink.append(3)
    later = sink.table()
    second = next_snapshot(later, "second")

    write_list(IO, later.metadata, second, [*added, *kept_manifests(later)])

    ours, *kept = read_manifest_list(IO.new_input(second.manifest_list))
    assert (ours.sequence_number, ours.min_sequence_number) == (3, 3)
    assert [manifest.sequence_number for manifest in kept] == [2, 1]
    assert added[0].sequence_number == -1


def test_list_keeps_the_manifests_of_the_parent(sink: Sink, table: Table) -> None:
    """Rows of earlier commits would vanish."""
    before = {listed.manifest_path for listed in table.metadata.snapshots[-1].manifests(IO)}
    added = added_manifests(table.metadata, files_of(sink.write(rows(2))))
    snapshot = next_snapshot(table)

    write_list(IO, table.metadata, snapshot, [*added, *kept_manifests(table)])

    assert {listed.manifest_path for listed in snapshot.manifests(IO)} == before | {added[0].manifest_path}


def test_many_entries_share_an_avro_block(sink: Sink, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests would be four times as large, and commits of many files slow."""
    monkeypatch.setattr(manifest_file, "_BLOCK_ENTRIES", 4)
    (file,) = files_of(sink.write(rows(2)))
    blocks: list[int] = []
    original = manifest_file.AvroWriter.write_block

    def spy(self: object, objects: list[ManifestEntry]) -> None:
        blocks.append(len(objects))
        original(self, objects)  # type: ignore[arg-type]  # the method's own self

    monkeypatch.setattr(manifest_file.AvroWriter, "write_block", spy)

    (manifest,) = added_manifests(table.metadata, [file] * 10)

    assert blocks == [4, 4, 2]
    assert manifest.added_files_count == 10
    assert len(manifest.fetch_manifest_entry(IO)) == 10


def test_files_of_two_specs_go_into_two_manifests(sink: Sink, table: Table) -> None:
    """Point look-ups would miss rows, because files would be read under another partitioning."""
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(16), "bucket")
    evolved = sink.table()
    partitioned = files_of(sink.write(rows(2, 3)))
    old_plan = replace(sink.plan(), spec=PartitionSpec(spec_id=0))
    unpartitioned = files_of(sink.write(rows(4), plan=old_plan))

    written = added_manifests(evolved.metadata, [*partitioned, *unpartitioned])

    assert [manifest.partition_spec_id for manifest in written] == [0, 1]
    assert len({manifest.manifest_path for manifest in written}) == 2
    assert [manifest.added_files_count for manifest in written] == [1, len(partitioned)]
    assert [len(manifest.partitions or []) for manifest in written] == [0, 1]
    for manifest in written:
        assert {entry.data_file.spec_id for entry in manifest.fetch_manifest_entry(IO)} == {manifest.partition_spec_id}


def test_partition_summaries_hold_the_values_of_the_files(sink: Sink, table: Table) -> None:
    """Queries would skip manifests that hold their rows."""
    with table.update_spec() as update:
        update.add_identity("name")
    data = [{"id": 1, "name": "b"}, {"id": 2, "name": "d"}, {"id": 3, "name": None}]

    (manifest,) = added_manifests(sink.table().metadata, files_of(sink.write(data)))

    (summary,) = manifest.partitions or []
    assert (summary.contains_null, summary.lower_bound, summary.upper_bound) == (True, b"b", b"d")


def test_manifest_of_deletes_is_one_of_deletes(sink: Sink, table: Table) -> None:
    """Readers would take deletes for rows; Iceberg's Java library could not read the table at all."""
    data_files = files_of(sink.write(rows(2)))
    deletes = [equality_deletes(data_file, (1,)) for data_file in data_files]
    drafts = draft_added(table.metadata, deletes, identity(), "d", ManifestContent.DELETES)

    (manifest,) = write_manifests(IO, table.metadata, drafts, identity())

    assert manifest.content == ManifestContent.DELETES
    with AvroFile[ManifestEntry](IO.new_input(manifest.manifest_path)) as avro:
        assert avro.header.meta["content"] == "deletes"
        schema = json.loads(avro.header.meta["avro.schema"])
    (data_file,) = [field["type"] for field in schema["fields"] if field["name"] == "data_file"]
    (ids,) = [field["type"] for field in data_file["fields"] if field["name"] == "equality_ids"]
    assert ids[1]["items"] == "int"  # spec, "Manifests": list<136: int>
    (entry,) = manifest.fetch_manifest_entry(IO)
    (ours,) = live_entries(IO, manifest)
    assert entry.data_file.equality_ids == ours.data_file.equality_ids == [1]


def test_header_names_schema_spec_and_version(sink: Sink, table: Table) -> None:
    """Other engines would not know how to read the manifest. Spec: "Manifests"."""
    (manifest,) = added_manifests(table.metadata, files_of(sink.write(rows(2))))

    with AvroFile[ManifestEntry](IO.new_input(manifest.manifest_path)) as avro:
        header = avro.header.meta
    assert header["format-version"] == "2"
    assert header["content"] == "data"
    assert header["partition-spec-id"] == "0"
    assert header["partition-spec"] == "[]"
    assert '"name":"id"' in header["schema"]


@pytest.mark.parametrize(
    ("setting", "codec"),
    [
        (None, "deflate"),
        ("gzip", "deflate"),
        ("zstd", "zstandard"),
        ("uncompressed", "null"),
        ("snappy", "deflate"),
        ("GZIP", "deflate"),
        ("ZSTD", "zstandard"),
    ],
)
def test_codec_is_the_tables_own_or_one_that_needs_nothing_installed(
    sink: Sink, table: Table, setting: str | None, codec: str
) -> None:
    """A commit would fail because a library is missing, or ignore the table's setting."""
    properties = {} if setting is None else {"write.avro.compression-codec": setting}
    metadata = table.metadata.model_copy(update={"properties": properties})

    (manifest,) = added_manifests(metadata, files_of(sink.write(rows(2))))

    with AvroFile[ManifestEntry](IO.new_input(manifest.manifest_path)) as avro:
        assert avro.header.meta["avro.codec"] == codec
    assert len(manifest.fetch_manifest_entry(IO)) == 1


def test_metadata_goes_where_the_table_wants_it(table: Table) -> None:
    """Metadata would be written where its user did not want it."""
    moved = table.metadata.model_copy(update={"properties": {"write.metadata.path": "file:///elsewhere"}})

    assert metadata_path(table.metadata, "x.avro") == f"{table.metadata.location}/metadata/x.avro"
    assert metadata_path(moved, "x.avro") == "file:///elsewhere/x.avro"


REQUIRED_SOURCES = {
    "void transform": (StructType([StructField("id", LongType(), nullable=False)]), "id", VoidTransform(), {"id": 1}),
    "required field of a null struct": (
        StructType([StructField("s", StructType([StructField("x", StringType(), nullable=False)]))]),
        "s.x",
        IdentityTransform(),
        {"s": None},
    ),
}


@pytest.mark.parametrize(
    ("schema", "source", "transform", "row"), REQUIRED_SOURCES.values(), ids=REQUIRED_SOURCES.keys()
)
@pytest.mark.parametrize("format_version", ["1", "2"])
def test_null_partition_value_of_a_required_source_is_written(  # noqa: PLR0913  # one case of a table
    sink: Sink, *, format_version: str, schema: StructType, source: str, transform: Transform[Any, Any], row: Row
) -> None:
    """Tables whose partition field was dropped, or lies in a struct that may be null, could not be written."""
    columns = iceberg_schema(schema)
    spec = PartitionSpec(PartitionField(columns.find_field(source).field_id, 1000, transform, "part"))
    sink.catalog._catalog.create_namespace("db")
    sink.catalog._catalog.create_table(
        ("db", "t"), columns, partition_spec=spec, properties={"format-version": format_version}
    )

    (manifest,) = added_manifests(sink.table().metadata, files_of(sink.write([row], schema=schema)))

    (entry,) = manifest.fetch_manifest_entry(IO)
    assert list(entry.data_file.partition) == [None]
