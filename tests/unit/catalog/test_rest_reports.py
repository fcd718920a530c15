"""Reports on commits that a REST catalog takes, seen from a server that records and breaks them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from support.catalogs.rest_fake import Fault, RestFake, serve_rest_fake
from support.catalogs.rest_sinks import sink_of
from support.tables.sink import epoch

from iceberg_ds.metrics.delivery import LIMIT_S

METRICS = "/namespaces/db/tables/t/metrics"
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
]
TAKES_REPORTS = [*ENDPOINTS, "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[RestFake]:
    """Return an empty catalog that takes reports."""
    with serve_rest_fake(tmp_path) as server:
        server.endpoints = TAKES_REPORTS
        yield server


def test_server_gets_the_report_in_the_form_of_the_spec(fake: RestFake) -> None:
    """A catalog that watches its tables would not see our commits as it sees those of Java."""
    sink = sink_of(fake)
    result = sink.append(1, 2, 3)

    (request,) = fake.asked("POST", METRICS)
    body = json.loads(request.body)
    assert body["report-type"] == "commit-report"
    assert (body["table-name"], body["operation"]) == ("db.t", "append")
    assert (body["snapshot-id"], body["sequence-number"]) == (result.snapshot_id, 1)
    assert body["metrics"]["added-records"] == {"unit": "count", "value": 3}
    assert body["metrics"]["added-files-size-bytes"]["unit"] == "bytes"
    assert body["metrics"]["attempts"] == {"unit": "count", "value": 1}
    duration = body["metrics"]["total-duration"]
    assert (duration["count"], duration["time-unit"]) == (1, "nanoseconds")
    assert duration["total-duration"] > 1000


def test_replay_sends_no_second_report(fake: RestFake) -> None:
    """The catalog would count a commit twice."""
    sink = sink_of(fake)
    sink.append(1, of_epoch=epoch(0))
    sink.append(1, of_epoch=epoch(0))

    assert len(fake.asked("POST", METRICS)) == 1


@pytest.mark.parametrize(
    ("endpoints", "properties"),
    [(ENDPOINTS, {}), (None, {}), (TAKES_REPORTS, {"rest-metrics-reporting-enabled": "false"})],
)
def test_server_that_takes_none_or_a_user_who_wants_none_gets_none(
    tmp_path: Path, endpoints: list[str] | None, properties: dict[str, str]
) -> None:
    """Each commit would cost a request that is refused."""
    with serve_rest_fake(tmp_path) as server:
        server.endpoints = endpoints
        sink_of(server, **properties).append(1)

        assert not server.asked("POST", METRICS)


def test_server_that_refuses_or_hangs_fails_no_commit(fake: RestFake, caplog: pytest.LogCaptureFixture) -> None:
    """Rows would be lost for a metric."""
    sink = sink_of(fake)
    fake.faults = [Fault(method="POST", path=METRICS, status=500), Fault(method="POST", path=METRICS, hang_s=4)]
    started = time.monotonic()

    for number in range(4):
        sink.append(number)

    assert sink.ids() == [0, 1, 2, 3]
    assert time.monotonic() - started < LIMIT_S + 3
    assert [m for m in caplog.messages if "Reports on commits do not reach the catalog" in m]
    assert len([m for m in caplog.messages if "Reports on commits" in m]) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_report_follows_no_server_elsewhere(
    fake: RestFake, tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Another host would get the headers that the user set for the catalog, keys among them."""
    (tmp_path / "other").mkdir()
    with serve_rest_fake(tmp_path / "other") as other:
        address = {"Location": f"{other.uri}/elsewhere?token=hidden-2"}
        fake.faults = [Fault(method="POST", path=METRICS, status=status, headers=address)]
        sink = sink_of(fake, header__X_Api_Key="hidden-1")
        sink.append(1)

        assert other.recorded == []
    assert sink.ids() == [1]
    assert f"status {status}, and reports follow no redirect" in caplog.text
    assert "hidden" not in caplog.text


def test_answer_with_the_token_in_it_shows_none(
    fake: RestFake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of each driver would show the token of a server that repeats it in its errors."""
    reasons = {**BaseHTTPRequestHandler.responses, 500: ("Caller zxcvbnm0123456789 may not", "")}
    monkeypatch.setattr(BaseHTTPRequestHandler, "responses", reasons)
    fake.faults = [Fault(method="POST", path=METRICS, status=500)]
    sink_of(fake, token="zxcvbnm0123456789").append(1)  # noqa: S106  # no real one

    assert "Reports on commits do not reach the catalog" in caplog.text
    assert "Caller *** may not" in caplog.text
    assert "zxcvbnm" not in caplog.text
