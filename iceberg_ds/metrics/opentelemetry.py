"""`OpenTelemetryReporter`: records each report by OpenTelemetry's API, as metrics and as one span.

The host owns the SDK: this module sets no provider, exporter or view, and without an SDK nothing is recorded. The API
is the extra `opentelemetry`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from iceberg_ds._version import __version__
from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.counters import Measurement, Measurer, encodable
from iceberg_ds.metrics.instruments import ATTRIBUTES, INSTRUMENTS, Instrument
from iceberg_ds.metrics.report import CommitReport

try:
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer_provider
except ImportError as _problem:  # told when it is needed: the names of this module are public
    _missing: ImportError | None = _problem
else:
    _missing = None

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider

SCOPE = "iceberg_ds"
SPAN = "iceberg.commit"


class OpenTelemetryReporter:
    """Records each report on a commit as metrics and as a span `iceberg.commit`; call it with a `CommitReport`.

    Hand it to `follow_reports` in the driver's process, which runs as long as the streams do. Each snapshot counts
    once, also if only a replay tells of it; a replay of a commit that this reporter knows of adds no rows. Metrics have
    the attributes table, branch, stream, operation and outcome, and never the id of a snapshot or a query. Any number
    of threads may call it.

    Args:
        meter_provider: Where metrics go; None for the global provider.
        tracer_provider: Where spans go; None for the global provider.

    Raises:
        OptionError: The extra `opentelemetry` is not installed.
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None
    ) -> None:
        if _missing is not None:
            raise OptionError(
                f"Cannot report by OpenTelemetry: its API is not installed ({_missing}). "
                "Install it here: pip install 'iceberg-ds[opentelemetry]'."
            ) from _missing
        meter = (meter_provider or get_meter_provider()).get_meter(SCOPE, __version__)
        self._tracer = (tracer_provider or get_tracer_provider()).get_tracer(SCOPE, __version__)
        self._records = {instrument.name: _made(meter, instrument) for instrument in INSTRUMENTS}
        self._measurer = Measurer()
        self._lock = threading.Lock()

    def __call__(self, report: CommitReport) -> None:
        """Record a report; one on the same commit a second time is left out."""
        with self._lock:
            counted, measurements = self._measurer.measure(report)
        if counted.is_repeated:
            return
        for measurement in measurements:
            self._record(measurement)
        if not counted.is_maintenance:
            self._trace(report)

    def remember(self, report: CommitReport) -> None:
        """Note a report that was recorded before, so that a replay of its commit does not count as the commit."""
        with self._lock:
            self._measurer.remember(report)

    def _record(self, measurement: Measurement) -> None:
        instrument = measurement.instrument
        labels = zip(instrument.labels, measurement.labels, strict=True)
        attributes = {ATTRIBUTES[label]: text for label, text in labels}
        self._records[instrument.name](measurement.value, attributes)

    def _trace(self, report: CommitReport) -> None:
        end_ns = report.at_ms * 1_000_000
        span = self._tracer.start_span(
            SPAN,
            kind=SpanKind.CLIENT,
            attributes=_span_attributes(report),
            start_time=max(0, end_ns - int(report.duration_ms * 1_000_000)),
        )
        if report.error is not None:
            span.set_attribute("error.type", encodable(report.error))
            span.set_status(Status(StatusCode.ERROR, encodable(report.error)))
        span.end(end_time=end_ns)


def _made(meter: Meter, instrument: Instrument) -> Callable[[float, dict[str, str]], None]:
    """Make the instrument, and return what records a value with attributes."""
    name, unit, doc = instrument.name, instrument.unit or "1", instrument.doc
    if instrument.kind == "counter":
        return meter.create_counter(name, unit, doc).add
    if instrument.kind == "gauge":
        return meter.create_gauge(name, unit, doc).set
    bounds = [bound / instrument.scale for bound in instrument.buckets]
    try:
        return meter.create_histogram(name, unit, doc, explicit_bucket_boundaries_advisory=bounds).record
    except TypeError:  # API 1.29 and older have no advice: a view of the host sets buckets
        return meter.create_histogram(name, unit, doc).record


def _span_attributes(report: CommitReport) -> dict[str, str | int]:
    found: dict[str, str | int | None] = {
        ATTRIBUTES["table"]: report.table,
        ATTRIBUTES["branch"]: report.branch,
        ATTRIBUTES["stream"]: report.stream,
        ATTRIBUTES["operation"]: report.operation,
        ATTRIBUTES["outcome"]: report.outcome,
        "iceberg.commit.attempts": report.attempts,
        "iceberg.commit.records.added": report.counts.get("added-records"),
        "iceberg.snapshot.id": report.snapshot_id,
        "iceberg.sink.query.id": report.query_id,
        "iceberg.sink.batch": report.number,
    }
    told = {name: value for name, value in found.items() if value is not None}
    return {name: encodable(value) if isinstance(value, str) else value for name, value in told.items()}
