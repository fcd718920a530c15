"""Which storage of a process shares a client, and for how long."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from iceberg_ds.io import s3_client as clients
from iceberg_ds.io.files import ObjectIO
from iceberg_ds.io.s3_client import s3_client
from iceberg_ds.io.s3_io import S3FileIO
from iceberg_ds.io.s3_settings import S3Settings, s3_settings

OWNER = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "owner", "s3.secret-access-key": "x"}
SETTINGS = s3_settings(OWNER)


@pytest.fixture(autouse=True)
def _own_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_clients", {})


def client_of(properties: dict[str, str]) -> object:
    """Return the client of storage that is opened with these properties."""
    file_io = ObjectIO(properties).store_of("s3://bucket/key")
    assert isinstance(file_io, S3FileIO)
    return file_io._current_store("s3://bucket/key").client


def test_storage_that_is_opened_anew_takes_the_client_that_is_there() -> None:
    """Each load and each commit would make clients and connections, which takes longer than its requests."""
    mark = {"icebergsink.last-epoch.main.q": "7"}  # of a table, whose properties come with its storage

    assert client_of(OWNER) is client_of({**OWNER, **mark})


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
def test_other_properties_have_a_client_of_their_own(other: dict[str, str]) -> None:
    """Requests would be made with the credentials of another table, or those that have ended."""
    assert client_of(OWNER) is not client_of({**OWNER, **other})


def test_other_environment_has_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests would be made with the credentials that the environment had before."""
    settings = S3Settings(endpoint="http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    before = s3_client(settings)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")

    assert s3_client(settings) is not before


def test_client_is_made_anew_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile's new credentials would never be read."""
    before = s3_client(SETTINGS)
    monkeypatch.setattr(clients, "_SHARED_FOR_S", -1)

    assert s3_client(SETTINGS) is not before
    assert len(clients._clients) == 1


def test_forked_process_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would write to one connection."""
    before = s3_client(SETTINGS)
    monkeypatch.setattr(clients.os, "getpid", lambda: -1)

    assert s3_client(SETTINGS) is not before


def test_renewed_credentials_are_of_one_storage_alone() -> None:
    """Vended credentials of one table would open another one."""

    def renew() -> dict[str, str]:
        raise NotImplementedError

    assert s3_client(SETTINGS, renew) is not s3_client(SETTINGS, renew)


def test_threads_get_one_client() -> None:
    """Threads that begin at once would make one each."""
    with ThreadPoolExecutor(8) as pool:
        found = {id(client) for client in pool.map(lambda _: s3_client(SETTINGS), range(8))}

    assert len(found) == 1
