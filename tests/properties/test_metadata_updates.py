"""Random commits, applied and written by PyIceberg and by us: the same table, and the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import update as pyiceberg_updates
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from support.tables.metadata import ID_AND_NAME, START_MS, line, metadata_of

from iceberg_ds.catalog import own_storage
from iceberg_ds.catalog.metadata_files import MetadataFiles
from iceberg_ds.catalog.own_storage import updated_metadata
from iceberg_ds.io.local_io import LocalFileIO

NOW_MS = START_MS + 10**9
IO = LocalFileIO()
TEXTS = st.text(max_size=8) | st.sampled_from(['"snapshots":[]', '"snapshot-log":[]', "\\", "ä\u2028\x00"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "branch", "rollback", "set", "remove", "schema", "spec", "expire", "drop branch", "read anew"]
        ),
        TEXTS,
        st.integers(0, 10**6),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pyiceberg_updates, own_storage):
        monkeypatch.setattr(module, "datetime_to_millis", lambda _: NOW_MS)


def request(metadata: TableMetadata, kind: str, text: str, number: int) -> Sequence[TableUpdate]:
    """Return the updates of one commit to the table, none if that commit does not fit it."""
    ids = [snapshot.snapshot_id for snapshot in metadata.snapshots]
    updates: Sequence[TableUpdate] = []
    match kind:
        case "append":
            updates = _snapshot(metadata, "main", text, number)
        case "branch":
            updates = _snapshot(metadata, "audit", text, number)
        case "rollback" if ids:
            back = ids[number % len(ids)]
            updates = [SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=back)]
        case "set":
            values = {"a": text, "write.metadata.previous-versions-max": str(number % 4)}
            updates = [SetPropertiesUpdate(updates=values)]
        case "remove" if "a" in metadata.properties:
            updates = [RemovePropertiesUpdate(removals=["a"])]
        case "schema":
            column = NestedField(metadata.last_column_id + 1, f"c{metadata.last_column_id}", LongType(), doc=text)
            schema = Schema(*metadata.schema().fields, column, schema_id=len(metadata.schemas))
            updates = [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]
        case "spec":
            field = PartitionField(1, 2000 + len(metadata.partition_specs), IdentityTransform(), f"p{number}")
            spec = PartitionSpec(field, spec_id=len(metadata.partition_specs))
            updates = [AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)]
        case "expire":
            heads = {ref.snapshot_id for ref in metadata.refs.values()}
            old = [one for one in ids if one not in heads][: number % 3]
            updates = [RemoveSnapshotsUpdate(snapshot_ids=old)] if old else []
        case "drop branch" if "audit" in metadata.refs:
            updates = [RemoveSnapshotRefUpdate(ref_name="audit")]
    return updates


def _snapshot(metadata: TableMetadata, branch: str, text: str, number: int) -> Sequence[TableUpdate]:
    ref = metadata.refs.get(branch) or metadata.refs.get("main")
    snapshot = Snapshot(
        snapshot_id=uuid4().int >> 66,
        parent_snapshot_id=ref.snapshot_id if ref else None,
        sequence_number=metadata.next_sequence_number(),
        timestamp_ms=START_MS + number,
        manifest_list=f"file:///nowhere/{text}",
        summary=Summary(operation=Operation.APPEND, note=text),
        schema_id=metadata.current_schema_id,
    )
    moved = SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id)
    return [AddSnapshotUpdate(snapshot=snapshot), moved, SetPropertiesUpdate(updates={"last": text})]


def _as_java(metadata: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return a table with the history that Java leaves where snapshots expire: parents stay named, the log is cut."""
    kept = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    gone = {snapshot.snapshot_id for snapshot in before.snapshots} - kept
    if not gone:
        return metadata
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in before.snapshots}
    snapshots = [
        snapshot.model_copy(update={"parent_snapshot_id": parents[snapshot.snapshot_id]})
        for snapshot in metadata.snapshots
    ]
    log = list(before.snapshot_log)
    while any(entry.snapshot_id in gone for entry in log):
        log.pop(0)
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": log})


@given(history=st.integers(0, 4), steps=STEPS)
def test_commits_make_the_same_table_and_the_same_bytes_as_pyicebergs(
    history: int, steps: list[tuple[str, str, int]]
) -> None:
    """A table would lose snapshots, properties or its log by a commit that was to be fast."""
    files, planner = MetadataFiles(), MetadataFiles()
    metadata: TableMetadata = metadata_of(line(*range(1, history + 1)) if history else (), schemas=(ID_AND_NAME,))
    with TemporaryDirectory() as folder, files.at_hand():
        path = None
        for kind, text, number in steps:
            if kind == "read anew" and path is not None:
                metadata = MetadataFiles().read(IO.new_input(path))
            before = metadata.model_dump_json()
            updates = tuple(request(metadata, kind, text, number))
            expected = _as_java(update_table_metadata(metadata, updates, metadata_location=path), metadata)
            made = updated_metadata(metadata, updates, metadata_location=path)
            path = f"file://{folder}/00001-{uuid4()}.metadata.json"
            files.write(made, IO.new_output(path), overwrite=False)

            assert metadata.model_dump_json() == before
            assert made == expected
            content = Path(path.removeprefix("file://")).read_text()
            assert content == expected.model_dump_json()
            metadata = files.read(IO.new_input(path))
            assert metadata == TableMetadataUtil.parse_raw(content)
            assert planner.read(IO.new_input(path)) == metadata


def test_update_that_does_not_fit_is_refused_as_pyiceberg_refuses_it() -> None:
    """A commit that would break the table would be written."""
    unknown = (SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=7),)

    with MetadataFiles().at_hand(), pytest.raises(ValueError, match="unknown snapshot 7"):
        updated_metadata(metadata_of(line(1)), unknown)
