"""Reports on commits that a REST catalog takes, seen from a server that records and breaks them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
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
