"""Shows the metrics to Prometheus, by its own client: on a port, through a registry of the host, or by a gateway.

The client is the extra `prometheus`. A scrape reads what is new in the files and never fails: what cannot be read is
counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.counters import Counters
from iceberg_ds.metrics.follow import Files, FollowedCounters
from iceberg_ds.metrics.instruments import INSTRUMENTS, Instrument
from iceberg_ds.secrets import mask_properties, mask_text

try:
    from prometheus_client import CollectorRegistry, generate_latest, push_to_gateway, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import basic_auth_handler
    from prometheus_client.utils import floatToGoString
except ImportError as _problem:  # told when it is needed: the names of this module are public
    _missing: ImportError | None = _problem
else:
    _missing = None

if TYPE_CHECKING:
    from prometheus_client import Metric

DEFAULT_PORT = 9109
_MALFORMED = ("iceberg_sink_reports_malformed", "Lines in files of reports that are no report and were left out.")
_UNREADABLE = ("iceberg_sink_reports_unreadable", "Times that a file of reports could not be read.")


class MetricsCollector:
    """Collects the metrics of files of reports for a registry of `prometheus_client`; see `metrics_collector`.

    Args:
        file: The path of option `metrics-file`, or those of several streams.

    Raises:
        OptionError: There is no file.
    """

    def __init__(self, file: Files) -> None:
        _require_client()
        self._counters = FollowedCounters(file)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, after all that is new in the files has been counted."""
        with self._counters.current() as counters:
            found = [*metric_families(counters), *self._own()]
        yield from found

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values, by whose names a registry refuses a second collector."""
        yield from metric_families(Counters())
        yield from self._own()

    def close(self) -> None:
        """Close the files."""
        self._counters.close()

    def _own(self) -> Iterator[Metric]:
        yield CounterMetricFamily(*_MALFORMED, value=self._counters.malformed)
        yield CounterMetricFamily(*_UNREADABLE, value=self._counters.unreadable)


class MetricsServer:
    """Serves metrics to Prometheus until it is closed; see `serve_metrics`. Closes itself at the end of `with`.

    Attributes:
        address: Address that it listens on.
        port: Port that it listens on.
        url: Where Prometheus finds the metrics.
    """

    def __init__(self, collector: MetricsCollector, port: int, address: str) -> None:
        self.address = address
        self._collector = collector
        registry = _registry(collector)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError, ValueError) as problem:  # the latter for an address that is no name of a host
            collector.close()
            raise OptionError(
                f"Cannot serve metrics on {address}:{port}: {problem}. Choose another port, such as 0 for any free "
                "one, or another address."
            ) from problem
        self.port = int(self._server.server_port)

    @property
    def url(self) -> str:
        """Where Prometheus finds the metrics."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving and free the port; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._collector.close()

    def __enter__(self) -> MetricsServer:  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def metrics_collector(file: Files) -> MetricsCollector:
    """Return a collector that a host registers in a registry of its own: `REGISTRY.register(metrics_collector(file))`.

    Args:
        file: The path of option `metrics-file`, or those of several streams. It need not exist yet.

    Returns:
        The collector. Each scrape reads once what is new; it raises nothing.

    Raises:
        OptionError: There is no file, or the extra `prometheus` is not installed.
    """
    return MetricsCollector(file)


def serve_metrics(file: Files, port: int = DEFAULT_PORT, *, address: str = "127.0.0.1") -> MetricsServer:
    """Serve the metrics of all commits that the file tells of, to Prometheus, from a thread of this process.

    Args:
        file: The path of option `metrics-file`, or those of several streams. It need not exist yet.
        port: Port to listen on; 0 for any free one, which `port` of the result tells.
        address: Address to listen on; `0.0.0.0` for all of the machine's. Whoever reaches it sees the names of tables,
            branches and streams, and numbers.

    Returns:
        The server, which runs until it is closed, or the process ends.

    Raises:
        OptionError: There is no file, the port is in use, or the extra `prometheus` is not installed.
    """
    return MetricsServer(MetricsCollector(file), port, address)


def push_metrics(file: Files, gateway: str, *, job: str = "iceberg-ds", timeout_s: float = 30.0) -> None:
    """Push the metrics of all commits that the file tells of to a Prometheus Pushgateway, as after a batch job.

    They take the place of what the job pushed before.

    Args:
        file: The path of option `metrics-file`, or those of several streams.
        gateway: Address of the gateway, such as `http://localhost:9091`; `http://user:password@host` sends both.
        job: Name of the job, which groups metrics at the gateway.
        timeout_s: Seconds after which the gateway counts as not reached.

    Raises:
        OptionError: There is no file, the gateway does not take the metrics, or the extra `prometheus` is not
            installed.
    """
    collector = MetricsCollector(file)
    scheme, mark, rest = gateway.rpartition("://")
    authority, slash, path = rest.partition("/")
    login, _, host = authority.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))

    try:
        place = f"{scheme}{mark}{host}{slash}{path}"
        push_to_gateway(
            place,
            job=job,
            registry=_registry(collector),
            timeout=timeout_s,
            handler=partial(basic_auth_handler, username=user or None, password=password),
        )
    except Exception as problem:  # of the client, of HTTP and of addresses, which have no common root
        address = {"url": gateway}  # which may lack its scheme
        raise OptionError(
            f"Cannot push metrics of job '{job}' to {mask_properties(address)['url']}: "
            f"{mask_text(str(problem), address)}. Check the address of the gateway."
        ) from problem
    finally:
        collector.close()


def exposition(counters: Counters) -> str:
    """Return the metrics in Prometheus' text format."""
    _require_client()
    text: bytes = generate_latest(_registry(_Fixed(counters)))
    return text.decode()


def _require_client() -> None:
    if _missing is not None:
        raise OptionError(
            f"Cannot show metrics to Prometheus: its client is not installed ({_missing}). "
            "Install it here: pip install 'iceberg-ds[prometheus]'."
        ) from _missing


def _registry(collector: MetricsCollector | _Fixed) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


class _Fixed:
    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        return metric_families(self._counters)


def metric_families(counters: Counters) -> Iterator[Metric]:
    """Yield each metric with the values of its series."""
    return (_family(instrument, counters) for instrument in INSTRUMENTS)


def _family(instrument: Instrument, counters: Counters) -> Metric:
    name, doc, labels = instrument.prometheus, instrument.doc, instrument.labels
    if instrument.kind == "histogram":
        histogram = HistogramMetricFamily(name, doc, labels=labels)
        for values, found in counters.distributions(instrument).items():
            bounds = [*map(floatToGoString, found.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(found.counts), strict=True))
            histogram.add_metric(values, buckets, found.total)
        return histogram
    family = (CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily)(name, doc, labels=labels)
    for values, value in counters.values(instrument).items():
        family.add_metric(values, value * instrument.scale)
    return family
