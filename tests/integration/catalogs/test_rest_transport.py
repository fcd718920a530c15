"""How requests to a REST catalog travel, seen from a server that records and breaks them."""

from __future__ import annotations

import email.utils
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.catalogs.rest_fake import TOKEN_PATH, Fault, RestFake, serve_rest_fake
from support.catalogs.rest_sinks import QUICK, sink_of
from support.services.tls_files import TlsFiles, make_tls_files
from support.tables.sink import NAME, epoch, rows

from iceberg_ds.errors import CatalogError

TABLE = "/namespaces/db/tables/t"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[RestFake]:
    """Return an empty catalog."""
    with serve_rest_fake(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Return certificates of an authority that nobody knows."""
    return make_tls_files(tmp_path_factory.mktemp("tls"))


def landed_snapshots(fake: RestFake) -> int:
    """Return how many snapshots the table has."""
    return len(fake.tables.load_table(NAME).metadata.snapshots)


@pytest.mark.parametrize("path", ["/v1/config", TOKEN_PATH])
def test_server_that_hangs_while_the_catalog_is_made_is_an_error(fake: RestFake, path: str) -> None:
    """A job would hang for ever before its first log line."""
    fake.faults = [Fault(method=method, path=path, hang_s=5) for method in ("GET", "POST")]
    started = time.monotonic()
    with pytest.raises(CatalogError, match=r"(?i)timed out"):
        sink_of(fake, credential="id:secret", **QUICK, **{"rest.client.max-retries": "0"})

    assert time.monotonic() - started < 4


def test_commit_whose_answer_never_comes_lands_once(fake: RestFake) -> None:
    """The rows would be there twice, or the job would hang."""
    sink = sink_of(fake, **QUICK)
    sink.append(1)
    fake.faults = [Fault(method="POST", path=TABLE, is_carried_out=True, hang_s=2)]

    sink.append(2, of_epoch=epoch(0))

    assert sink.ids() == [1, 2]
    assert len(fake.asked("POST", TABLE)) == 2


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="POST", path=TABLE, status=503, is_carried_out=True),
        Fault(method="POST", path=TABLE, status=502, is_carried_out=True),
        Fault(method="POST", path=TABLE, is_carried_out=True),
        Fault(method="POST", path=TABLE, sent=0.5),
    ],
    ids=["503", "502", "reset", "half an answer"],
)
def test_commit_that_may_have_landed_is_not_sent_again_blindly(
    fake: RestFake, waits: list[float], fault: Fault
) -> None:
    """A commit that landed would be sent again, and at best be refused."""
    sink = sink_of(fake)
    messages = sink.write(rows(1))
    fake.faults = [fault]

    sink.commit(messages)

    assert len(fake.asked("POST", TABLE)) == 1
    assert landed_snapshots(fake) == 1
    assert len(waits) == 1  # of the commit loop, before it looks


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="POST", path=TABLE, status=500),
        Fault(method="POST", path=TABLE, status=503),
        Fault(method="POST", path=TABLE),
    ],
    ids=["500", "503", "reset"],
)
def test_commit_that_did_not_land_is_tried_again_after_a_look(fake: RestFake, waits: list[float], fault: Fault) -> None:
    """A hiccup of the catalog would fail the job."""
    sink = sink_of(fake)
    sink.append(1)
    fake.faults = [fault]

    sink.append(2)

    assert sink.ids() == [1, 2]
    assert len(fake.asked("POST", TABLE)) == 3
    assert waits


def test_throttled_commit_waits_as_long_as_the_server_asks(fake: RestFake, waits: list[float]) -> None:
    """A busy catalog would be asked again at once, by every writer."""
    sink = sink_of(fake)
    sink.append(1)
    fake.faults = [Fault(method="POST", path=TABLE, status=429, headers={"Retry-After": "7"})]

    sink.append(2)

    assert waits == [7]
    assert sink.ids() == [1, 2]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_load_is_tried_again_where_the_server_is_busy(fake: RestFake, waits: list[float], status: int) -> None:
    """A restart of the catalog would fail every job that plans at that moment."""
    sink = sink_of(fake)
    sink.append(1)
    asked = len(fake.asked("GET", TABLE))
    fake.faults = [Fault(method="GET", path=TABLE, status=status) for _ in range(3)]

    sink.table()

    assert len(fake.asked("GET", TABLE)) == asked + 4
    assert waits == sorted(waits)


@pytest.mark.parametrize(("asked", "waited"), [("3", 3), ("3600", 60), ("date", 20)])
def test_wait_that_the_server_asks_for_is_kept_but_bounded(
    fake: RestFake, waits: list[float], asked: str, waited: float
) -> None:
    """A job would hammer a busy catalog, or sleep for hours."""
    sink = sink_of(fake)
    sink.append(1)
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    retry_after = date if asked == "date" else asked
    fake.faults = [Fault(method="GET", path=TABLE, status=503, headers={"Retry-After": retry_after})]

    sink.table()

    assert waits == [pytest.approx(waited, abs=2)]


@pytest.mark.parametrize(
    "fault",
    [Fault(method="GET", path=TABLE), Fault(method="GET", path=TABLE, sent=0.5)],
    ids=["reset", "half an answer"],
)
@pytest.mark.usefixtures("waits")
def test_load_over_a_broken_connection_is_tried_again(fake: RestFake, fault: Fault) -> None:
    """A broken connection would fail a job at its start."""
    sink = sink_of(fake)
    sink.append(1)
    fake.faults = [fault, fault]

    assert sink.ids() == [1]
    assert fake.faults == []


@pytest.mark.usefixtures("waits")
def test_token_request_is_tried_again(fake: RestFake) -> None:
    """A hiccup of the token server would fail every job that starts at that moment."""
    fake.credential = "id:secret"
    fake.faults = [
        Fault(method="POST", path=TOKEN_PATH, status=503),
        Fault(method="POST", path=TOKEN_PATH),
        Fault(method="POST", path=TOKEN_PATH, sent=0.5),
    ]

    sink = sink_of(fake, credential="id:secret")
    sink.append(1)

    assert fake.faults == []
    assert sink.ids() == [1]


def test_creation_of_a_table_is_not_sent_twice(fake: RestFake) -> None:
    """A table that a server creates at once could be there although the user is told that it failed, or twice."""
    sink = sink_of(fake)
    fake.faults = [Fault(method="POST", path="/namespaces/db/tables", status=503)]
    with pytest.raises(CatalogError, match="Cannot create table"):
        sink.plan()

    assert len(fake.asked("POST", "/namespaces/db/tables")) == 1


def test_number_of_retries_can_be_set(fake: RestFake, waits: list[float]) -> None:
    """A user could not trade patience for quick failure."""
    sink = sink_of(fake, **{"rest.client.max-retries": "0"})
    fake.faults = [Fault(method="GET", path=TABLE, status=503)]
    with pytest.raises(CatalogError, match="Cannot load table"):
        sink.table()

    assert waits == []


def test_server_that_closes_idle_connections_is_no_obstacle(fake: RestFake) -> None:
    """Every commit after a pause would fail at first, because its pooled connection is gone."""
    fake.idle_s = 0.5
    sink = sink_of(fake)
    sink.append(1)
    time.sleep(1)

    sink.append(2)

    assert sink.ids() == [1, 2]
    assert len(fake.asked("POST", TABLE)) == 2


def test_port_where_nobody_listens_is_named_soon(waits: list[float], tmp_path: Path) -> None:
    """A user with a wrong port would wait for minutes."""
    with serve_rest_fake(tmp_path) as fake:
        pass
    with pytest.raises(CatalogError, match="Connection refused"):
        sink_of(fake)

    assert 0 < sum(waits) < 2


def test_host_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """A job behind a firewall would hang for ever."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent, serve_rest_fake(tmp_path) as fake:
        fake.uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CatalogError, match=r"(?i)timed out"):
            sink_of(fake, **QUICK, **{"rest.client.max-retries": "0"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rest.client.max-retries", "-1"),
        ("rest.client.max-retries", "many"),
        ("rest.client.socket-timeout-ms", "0"),
        ("rest.client.connection-timeout-ms", "soon"),
    ],
)
def test_limit_that_is_no_number_is_refused(fake: RestFake, name: str, value: str) -> None:
    """A misspelt limit would be another one than the user believes."""
    with pytest.raises(CatalogError, match=f"{name} is '{value}'"):
        sink_of(fake, **{name: value})


def test_requests_say_who_sends_them(fake: RestFake) -> None:
    """Whoever runs the catalog could not tell this sink's requests from others."""
    sink_of(fake)

    assert fake.recorded[0].headers["user-agent"].startswith("iceberg-ds/")


def test_private_authority_is_trusted_if_it_is_named(
    tmp_path: Path, tls: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog behind a company's own certificates could not be used, or only without verification."""
    # Set by many companies for all programs; it must not win over the property.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tls.client))
    with serve_rest_fake(tmp_path, tls=tls) as fake:
        sink = sink_of(fake, ssl__cabundle=str(tls.authority), credential="id:secret")
        sink.append(1)

        assert sink.ids() == [1]


def test_unknown_authority_is_refused_and_named(tmp_path: Path, tls: TlsFiles, waits: list[float]) -> None:
    """Whoever sits between the two could read the credentials; and a user would not know what is wrong."""
    with (
        serve_rest_fake(tmp_path, tls=tls) as fake,
        pytest.raises(CatalogError, match=r"CERTIFICATE_VERIFY_FAILED.*ssl\.cabundle"),
    ):
        sink_of(fake, credential="id:secret")

    assert fake.recorded == []
    assert waits == []


def test_client_certificate_is_shown(tmp_path: Path, tls: TlsFiles) -> None:
    """A catalog that asks for client certificates could not be used."""
    with serve_rest_fake(tmp_path, tls=tls, wants_client=True) as fake:
        shown = {"ssl.client.cert": str(tls.client), "ssl.client.key": str(tls.client_key)}
        sink = sink_of(fake, **{"ssl.cabundle": str(tls.authority), **shown})
        sink.append(1)

        assert sink.ids() == [1]
        with pytest.raises(CatalogError, match="Cannot connect"):
            sink_of(fake, **{"ssl.cabundle": str(tls.authority)})
