"""OpenTelemetry: what a host's SDK receives of reports, and how reports are followed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from support.metrics.reports import failed, replay_of, report, write

import iceberg_ds
from iceberg_ds.errors import OptionError
from iceberg_ds.metrics import opentelemetry as module
from iceberg_ds.metrics.instruments import DURATION_BUCKETS_S, INSTRUMENTS
from iceberg_ds.metrics.report import CommitReport

RECORDS = "iceberg.commit.records.added"


class Sdk:
    """A host's SDK that keeps what it receives."""

    def __init__(self) -> None:
        self._reader, self._spans = InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.report = iceberg_ds.OpenTelemetryReporter(MeterProvider([self._reader]), tracers)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics by name."""
        data = self._reader.get_metrics_data()
        return {} if data is None else {one.name: one for one in data.resource_metrics[0].scope_metrics[0].metrics}

    def points(self, name: str) -> dict[frozenset[Any], Any]:
        """Return the values of the series of a metric."""
        found = self.metrics().get(name)
        points = [] if found is None else found.data.data_points
        return {frozenset(point.attributes.items()): getattr(point, "value", point) for point in points}

    def total(self, name: str) -> float:
        """Return the sum over the series of a metric."""
        return sum(self.points(name).values())

    def spans(self) -> Any:
        """Return the spans."""
        return self._spans.get_finished_spans()


@pytest.fixture
def sdk() -> Sdk:
    """Return an SDK."""
    return Sdk()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of reports that does not exist yet."""
    return tmp_path / "commits.jsonl"


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition, for at most 20 s."""
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_commit_is_recorded_under_icebergs_names_and_attributes(sdk: Sdk) -> None:
    """Dashboards for Iceberg's reporters would be empty."""
    sdk.report(report(1))
    sdk.report(report(2))
    labels = frozenset(
        {
            "iceberg.table.name": "db.t",
            "iceberg.branch.name": "main",
            "iceberg.sink.stream": "orders",
            "iceberg.operation": "append",
        }.items()
    )

    assert sdk.points(RECORDS) == {labels: 20}
    assert sdk.total("iceberg.commit.records.total") == 20
    [duration] = sdk.points("iceberg.commit.duration").values()
    assert (duration.count, duration.sum) == (2, 800)
    assert duration.explicit_bounds == tuple(bound * 1000 for bound in DURATION_BUCKETS_S)
    assert (sdk.metrics()["iceberg.commit.duration"].unit, sdk.metrics()[RECORDS].unit) == ("ms", "1")
    assert sdk.metrics().keys() <= {instrument.name for instrument in INSTRUMENTS}


def test_replays_count_as_in_prometheus(sdk: Sdk) -> None:
    """The two views of one stream would disagree after a crash."""
    for one in (report(1), replay_of(report(1)), replay_of(report(2)), report(1)):
        sdk.report(one)

    by_outcome = {
        dict(labels)["iceberg.sink.outcome"]: number for labels, number in sdk.points("iceberg.sink.commits").items()
    }
    assert {outcome: number for outcome, number in by_outcome.items() if number} == {"committed": 2, "replayed": 2}
    assert sdk.total(RECORDS) == 20
    assert len(sdk.spans()) == 3


def test_commit_is_one_span_with_the_times_of_the_report(sdk: Sdk) -> None:
    """A trace would show the commit when it was read, not when it was."""
    sdk.report(report(1))
    [span] = sdk.spans()

    assert (span.name, span.status.status_code) == ("iceberg.commit", StatusCode.UNSET)
    assert span.end_time == report(1).at_ms * 1_000_000
    assert span.end_time - span.start_time == 400_000_000
    assert span.attributes["iceberg.commit.records.added"] == 10
    assert span.attributes["iceberg.commit.attempts"] == 1
    assert span.attributes["iceberg.sink.outcome"] == "committed"


def test_failed_commit_is_a_span_with_the_class_of_the_error(sdk: Sdk) -> None:
    """A failed commit would look well in the trace."""
    sdk.report(failed())
    [span] = sdk.spans()

    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "CommitConflictError")
    assert span.attributes["error.type"] == "CommitConflictError"


def test_no_metric_has_the_id_of_a_snapshot_or_a_query(sdk: Sdk) -> None:
    """Each commit would make series of its own, which backends charge for."""
    sdk.report(report(4711, query_id="the-query", number=3))
    attributes = {
        str(part) for name in sdk.metrics() for labels in sdk.points(name) for pair in labels for part in pair
    }

    assert not attributes & {"4711", "the-query", "3"}


def test_without_an_sdk_nothing_happens() -> None:
    """A host without OpenTelemetry would fail at its first commit."""
    iceberg_ds.OpenTelemetryReporter()(report(1))


def test_missing_api_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would not know what to install."""
    monkeypatch.setattr(module, "_missing", ImportError("No module named 'opentelemetry'"))

    with pytest.raises(OptionError, match=r"pip install 'iceberg-ds\[opentelemetry\]'"):
        iceberg_ds.OpenTelemetryReporter()


def test_follower_hands_over_new_reports_and_at_the_end_what_is_left(path: Path) -> None:
    """The last commits of a driver would never reach its backend."""
    write(path, [report(1)])
    found: list[CommitReport] = []
    with iceberg_ds.follow_reports(path, found.append, interval_s=0.01):
        write(path, [report(2)])
        wait_until(lambda: bool(found))
    follower = iceberg_ds.follow_reports(path, found.append, interval_s=1000)
    write(path, [report(3)])
    follower.close()
    follower.close()

    assert found == [report(2), report(3)]


def test_follower_hands_over_what_is_there_if_asked(path: Path) -> None:
    """A user could not load a backend with what was kept."""
    found: list[CommitReport] = []
    write(path, [report(1), report(2)])
    iceberg_ds.follow_reports(path, found.append, from_start=True).close()

    assert found == [report(1), report(2)]


def test_error_of_a_reporter_is_logged_once_and_ends_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One bad moment of a backend would end the metrics of a driver that runs for weeks."""
    found = []

    def take(one: CommitReport) -> None:
        found.append(one.snapshot_id)
        raise RuntimeError("https://user:sesame@host is away")

    with caplog.at_level(logging.WARNING), iceberg_ds.follow_reports(path, take):
        write(path, map(report, range(1, 4)))

    assert found == [1, 2, 3]
    [record] = caplog.records
    assert "RuntimeError" in record.getMessage()
    assert "sesame" not in record.getMessage()


def test_replay_of_a_commit_from_before_the_start_adds_no_rows(path: Path, sdk: Sdk) -> None:
    """A driver that restarts would count the rows of its last batch again."""
    write(path, [report(1)])
    with iceberg_ds.follow_reports(path, sdk.report):
        write(path, [replay_of(report(1)), report(2)])

    assert sdk.total(RECORDS) == 10


def test_follower_is_no_reason_to_stay_alive(path: Path) -> None:
    """A driver would never end."""
    with iceberg_ds.follow_reports(path, print):
        [thread] = [one for one in threading.enumerate() if one.name == "iceberg-ds-follow-reports"]
        assert thread.daemon


@pytest.mark.parametrize("interval_s", [0, -1, float("nan"), float("inf")])
def test_interval_that_is_none_is_refused(path: Path, interval_s: float) -> None:
    """A thread would use a whole core."""
    with pytest.raises(OptionError, match="seconds above 0"):
        iceberg_ds.follow_reports(path, print, interval_s=interval_s)


def test_follower_with_a_position_goes_on_where_it_was(path: Path, tmp_path: Path) -> None:
    """What was written while the driver was dead would be lost for good."""
    write(path, [report(1)])
    found: list[CommitReport] = []
    position = tmp_path / "position"
    iceberg_ds.follow_reports(path, found.append, position=position).close()
    for number in (2, 3):
        write(path, [report(number)])
        iceberg_ds.follow_reports(path, found.append, position=position).close()

    assert found == [report(2), report(3)]


def test_follower_survives_all_that_a_reporter_raises(path: Path) -> None:
    """An error without a text, or an exit, would end the metrics of a driver."""
    found: list[int | None] = []

    class Unprintable(SystemExit):
        def __str__(self) -> str:
            raise ValueError

    def take(one: CommitReport) -> None:
        found.append(one.snapshot_id)
        raise Unprintable

    with iceberg_ds.follow_reports(path, take):
        write(path, map(report, range(1, 4)))

    assert found == [1, 2, 3]
