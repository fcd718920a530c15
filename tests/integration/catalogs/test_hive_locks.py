"""Hive's lock of a table: waited for, left behind by a writer that was killed, and lost with the connection."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType, UnlockRequest
from pyiceberg.catalog.hive import HiveCatalog
from support.services.servers import CatalogService
from support.tables.sink import Sink, paths_of, rows
from thrift.transport.TTransport import TTransportException

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.options.parse import parse_options


def sink(service: CatalogService, **properties: str) -> Sink:
    """Return what writes to a table that no other test uses; `_` in the name of a property stands for `-`."""
    more = {f"catalog.{key.replace('_', '-')}": value for key, value in properties.items()}
    options = parse_options({**service.options, **more, "table": f"locks.t{secrets.token_hex(6)}"})
    return Sink(catalog=connect(catalog_settings(options)), options=options)


@contextmanager
def lock_of_another(writer: Sink) -> Iterator[threading.Event]:
    """Hold the lock of the table until the event is set, or the block is left."""
    catalog = writer.catalog.another().raw
    assert isinstance(catalog, HiveCatalog)
    namespace, name = writer.options.table
    component = LockComponent(
        level=LockLevel.TABLE, type=LockType.EXCLUSIVE, dbname=namespace, tablename=name, isTransactional=True
    )
    free = threading.Event()
    with catalog._client as client:
        held = client.lock(LockRequest(component=[component], user="another", hostname="another")).lockid

    def release() -> None:
        free.wait(60)
        with catalog._client as client:
            client.unlock(UnlockRequest(lockid=held))

    releasing = threading.Thread(target=release)
    releasing.start()
    try:
        yield free
    finally:
        free.set()
        releasing.join()


def test_commit_waits_for_the_lock_of_another_writer(hive_metastore: CatalogService) -> None:
    """A write beside another one would fail."""
    writer = sink(hive_metastore)
    writer.append(1)

    with lock_of_another(writer) as free:
        threading.Timer(1, free.set).start()
        writer.append(2)

    assert writer.ids() == [1, 2]


def test_lock_that_nobody_gives_back_is_named_with_what_to_do(hive_metastore: CatalogService) -> None:
    """A user would not learn why no write goes through after a writer was killed."""
    writer = sink(hive_metastore, lock_check_retries="2")
    writer.append(1)
    with writer.table().transaction() as change:
        change.set_properties({"commit.retry.num-retries": "1"})
    messages = writer.write(rows(2))

    with (
        lock_of_another(writer),
        pytest.raises(
            CommitConflictError,
            match=r"Failed to acquire lock.*or was killed while it did.*hive\.txn\.timeout.*SHOW LOCKS",
        ),
    ):
        writer.commit(messages)

    assert writer.ids() == [1]
    for path in paths_of(messages):
        assert not writer.table().io.new_input(str(path).replace("s3:/", "s3://")).exists()


def test_commit_whose_connection_breaks_after_it_landed_is_found(
    hive_metastore: CatalogService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would be doubled, or their files deleted, although they are in the table."""
    writer = sink(hive_metastore)
    writer.append(1)
    unlock = Client.unlock
    broken: list[str] = []

    def unlock_and_break(client: Client, request: UnlockRequest) -> None:
        unlock(client, request)
        if not broken:
            broken.append("once")
            raise TTransportException(message="connection reset by peer")

    monkeypatch.setattr(Client, "unlock", unlock_and_break)

    writer.append(2)

    assert broken == ["once"]
    assert writer.ids() == [1, 2]
    assert len(writer.table().metadata.snapshots) == 2
