"""What is particular to a REST catalog, against Iceberg's own reference server; the rest is in `test_every_catalog`."""

from __future__ import annotations

import uuid

import pytest
from support.catalogs.rest_sinks import rest_sink
from support.services.servers import CatalogService
from support.tables.changes_by_others import set_branch
from support.tables.expiry import expired_by
from support.tables.sink import Sink, epoch, rows


@pytest.fixture
def sink(rest_catalog: CatalogService) -> Sink:
    """Return what writes to a table that does not exist yet, as a client that has to fetch a token."""
    properties = {**rest_catalog.properties, "credential": "writer:s3cr3t", "scope": "catalog"}
    return rest_sink(properties, table=f"rest_{uuid.uuid4().hex[:8]}.inner.t")


def test_client_credentials_flow_writes_and_replays(sink: Sink) -> None:
    """No catalog with OAuth2 could be used, or a replayed epoch would be there twice."""
    sink.append(1, of_epoch=epoch(0))
    sink.append(2, of_epoch=epoch(1))
    sink.append(2, of_epoch=epoch(1))

    assert sink.ids() == [1, 2]


def test_table_comes_into_being_with_its_first_rows(sink: Sink) -> None:
    """Readers would see an empty table while the first rows are written."""
    plan = sink.plan()

    assert plan.write.new_table is not None
    assert sink.catalog.find_table(sink.options.table) is None

    sink.append(1)

    assert len(sink.table().metadata.snapshots) == 1
    assert len(sink.table().metadata.metadata_log) == 0


def test_snapshots_expire_with_their_files(sink: Sink) -> None:
    """On a server, the request, or the object store, would be another one than that of a catalog here."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    sink.overwrite(rows(9))
    set_branch(sink, "old", sink.table().metadata.snapshots[1].snapshot_id)
    before = sink.table().metadata.snapshots

    result = expired_by(sink)

    after = sink.table().metadata
    assert len(result.snapshot_ids) == 2
    assert result.left_files == 0
    assert (result.deleted_data_files_count, result.deleted_manifest_lists_count) == (1, 2)
    assert {one.snapshot_id for one in after.snapshots} == {before[1].snapshot_id, before[3].snapshot_id}
    assert after.snapshots[-1].parent_snapshot_id == before[2].snapshot_id
    assert sink.append(2, of_epoch=epoch(2)).was_replayed
    assert sink.ids() == [9]
    assert [row["id"] for row in sink.rows_of("old")] == [0, 1]
    sink.append(10, of_epoch=epoch(3))
    expired_by(sink, clean_expired_metadata=True)
    assert sink.ids() == [9, 10]
