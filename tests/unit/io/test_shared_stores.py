"""Which storage of a process shares a connection, and for how long."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from iceberg_ds.io import stores
from iceberg_ds.io.files import ObjectIO
from iceberg_ds.io.s3_io import s3_store
from iceberg_ds.io.stores import StoreFileIO

OWNER = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "owner", "s3.secret-access-key": "x"}
GCS = {"gcs.project-id": "p", "gcs.oauth2.token": "anon", "gcs.service.host": "http://127.0.0.1:1"}
MARK = {"icebergsink.last-epoch.main.q": "7"}  # of a table, whose properties come with its storage
VENDED = {
    "s3.session-token-expires-at-ms": "1",
    "client.refresh-credentials-enabled": "true",
    "client.refresh-credentials-endpoint": "http://127.0.0.1:1/credentials",
}


@pytest.fixture(autouse=True)
def _own_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_shared", {})


def store_of(properties: dict[str, str], location: str = "s3://bucket/key") -> object:
    """Return the store of storage that is opened with these properties."""
    file_io = ObjectIO(properties).store_of(location)
    assert isinstance(file_io, StoreFileIO)
    return file_io._store(location)


def test_storage_that_is_opened_anew_takes_the_connection_that_is_there() -> None:
    """Each load and each commit would connect, which takes longer than its requests."""
    assert store_of(OWNER) is store_of({**OWNER, **MARK})
    assert store_of(GCS, "gs://bucket/key") is store_of({**GCS, **MARK}, "gs://bucket/key")


@pytest.mark.parametrize(
    "other",
    [
        {"s3.access-key-id": "somebody"},
        {"s3.session-token": "another"},
        {"s3.endpoint": "http://127.0.0.1:2"},
        {"s3.region": "eu-north-1"},
        {"client.assume-role.arn": "arn:aws:iam::123456789012:role/writer"},
    ],
)
def test_other_properties_have_a_connection_of_their_own(other: dict[str, str]) -> None:
    """Requests would be made with the credentials of another table, or those that have ended."""
    assert store_of(OWNER) is not store_of({**OWNER, **other})


def test_other_environment_has_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests would be made with the credentials that the environment had before."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    before = s3_store({})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")

    assert s3_store({}) is not before


def test_connection_is_made_anew_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile's new credentials would never be read."""
    before = s3_store(OWNER)
    later_s = time.monotonic() + 61
    monkeypatch.setattr("iceberg_ds.io.stores.time.monotonic", lambda: later_s)

    assert s3_store(OWNER) is not before
    assert len(stores._shared) == 1


def test_forked_process_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would write to one connection."""
    before = s3_store(OWNER)
    monkeypatch.setattr(stores.os, "getpid", lambda: -1)

    assert s3_store(OWNER) is not before


def test_renewed_credentials_are_of_one_storage_alone() -> None:
    """Vended credentials of one table would open another one."""
    assert store_of({**OWNER, **VENDED}) is not store_of({**OWNER, **VENDED})


def test_threads_get_one_connection() -> None:
    """Threads that begin at once would make one each."""
    with ThreadPoolExecutor(8) as pool:
        found = {id(store) for store in pool.map(lambda _: s3_store(OWNER), range(8))}

    assert len(found) == 1
