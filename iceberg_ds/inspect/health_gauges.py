"""The figures of `table_health` as gauges of Prometheus, served for scrapes.

A scrape looks at the tables if the last look is old enough, so an endpoint that is not scraped costs nothing.
`prometheus_client` is an extra: it is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.health import TableHealth, WriterHealth
from iceberg_ds.inspect.watch import Look
from iceberg_ds.metrics.counters import is_name

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

PREFIX = "iceberg_table_health_"
UP = f"{PREFIX}up"
FINDINGS = f"{PREFIX}thresholds_exceeded"
WRITER_AGE = f"{PREFIX}writer_age_seconds"
WRITER_NUMBER = f"{PREFIX}writer_number"
WRITER_LAG = f"{PREFIX}writer_lag_seconds"
_TABLE = ("table", "branch")
_WRITER = (*_TABLE, "kind", "writer")
# Series of a table for its writers: each new label is kept by Prometheus, and anybody who writes may name writers.
MOST_WRITERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A gauge of a table.

    Attributes:
        name: Its name in Prometheus.
        doc: What it tells.
        value: Takes the value from a table's health; None for no series.
    """

    name: str
    doc: str
    value: Callable[[TableHealth], float | None]


def _gauge(name: str, doc: str, value: Callable[[TableHealth], float | None]) -> Gauge:
    return Gauge(name=f"{PREFIX}{name}", doc=doc, value=value)


GAUGES: tuple[Gauge, ...] = (
    _gauge("looked_at_timestamp_seconds", "Time of the look, since 1970.", lambda of: of.at_ms / 1000),
    _gauge("snapshots", "Snapshots in the table's metadata.", lambda of: of.snapshots),
    _gauge("metadata_bytes", "Size of the metadata file.", lambda of: of.metadata_bytes),
    _gauge("data_manifests", "Manifests of data files of the branch.", lambda of: of.data_manifests),
    _gauge("delete_manifests", "Manifests of delete files of the branch.", lambda of: of.delete_manifests),
    _gauge("data_files", "Data files of the branch.", lambda of: of.data_files),
    _gauge("small_files", "Data files below a quarter of the target size.", lambda of: of.small_files),
    _gauge("average_file_bytes", "Average size of data files.", lambda of: of.average_file_bytes),
    _gauge("delete_files", "Delete files and deletion vectors.", lambda of: of.delete_files),
    _gauge("equality_delete_files", "Equality delete files.", lambda of: of.equality_delete_files),
    _gauge("position_delete_files", "Position delete files, deletion vectors.", lambda of: of.position_delete_files),
    _gauge("equality_deletes", "Keys in equality delete files.", lambda of: of.equality_deletes),
    _gauge("position_deletes", "Positions in position delete files.", lambda of: of.position_deletes),
    _gauge("deletes_per_file", "Delete files for each data file.", lambda of: of.deletes_per_file),
    _gauge("rows", "Rows of the data files, deleted ones included.", lambda of: of.rows),
    _gauge("bytes", "Bytes of data and delete files.", lambda of: of.bytes),
    _gauge("last_commit_age_seconds", "Age of the branch's newest snapshot.", lambda of: of.last_commit_age_s),
    _gauge(
        "oldest_snapshot_age_seconds",
        "Age of the oldest snapshot that no branch or tag is at.",
        lambda of: of.oldest_snapshot_age_s,
    ),
    _gauge(
        "commits_since_rewrite",
        "Commits to the branch since data files were last rewritten.",
        lambda of: of.commits_since_rewrite,
    ),
    _gauge("lag_seconds", "Age of the newest row, by its event time.", lambda of: of.lag_s),
    _gauge(
        "commits_per_day",
        "Commits to the branch in a day at this pace.",
        lambda of: None if of.forecast is None else of.forecast.commits_per_day,
    ),
    _gauge(
        "files_per_day",
        "Files that commits to the branch add in a day.",
        lambda of: None if of.forecast is None else of.forecast.files_per_day,
    ),
    _gauge(
        "snapshots_per_day",
        "Snapshots that the table gets in a day.",
        lambda of: None if of.forecast is None else of.forecast.snapshots_per_day,
    ),
    _gauge(
        "metadata_growth_bytes_per_day",
        "Bytes by which the metadata file grows in a day while no snapshot expires.",
        lambda of: None if of.forecast is None else of.forecast.metadata_growth_bytes_per_day,
    ),
)
# What else is served, of other labels or of tables that cannot be looked at, too.
OTHERS = {
    UP: "Whether the table could be looked at.",
    FINDINGS: "Figures of the table that are above their thresholds.",
    WRITER_AGE: "Age of the writer's last commit.",
    WRITER_NUMBER: "Number of the writer's last micro-batch, or version of its last batch.",
    WRITER_LAG: "Age of the newest row of the writer's last commit, by its event time.",
}


class HealthCollector:
    """Gives the gauges to `prometheus_client`, which asks for them at each scrape.

    Args:
        look: Returns what the last look found.
    """

    def __init__(self, look: Callable[[], list[Look]]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        """Return no gauges: a registry that is told of none does not look at the tables when it starts."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of all tables."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415  # an extra

        looks = self._look()  # never raises
        up = GaugeMetricFamily(UP, OTHERS[UP], labels=_TABLE)
        findings = GaugeMetricFamily(FINDINGS, OTHERS[FINDINGS], labels=_TABLE)
        for look in looks:
            up.add_metric([look.table, look.branch], 0 if look.health is None else 1)
            if look.health is not None:
                findings.add_metric([look.table, look.branch], len(look.findings))
        yield from (up, findings)
        found = [look.health for look in looks if look.health is not None]
        for gauge in GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.doc, labels=_TABLE)
            for health in found:
                if (value := gauge.value(health)) is not None:
                    family.add_metric([health.table, health.branch], value)
            yield family
        for name, value_of in _OF_WRITERS.items():
            family = GaugeMetricFamily(name, OTHERS[name], labels=_WRITER)
            for health in found:
                for writer in _named_writers(health):
                    if (value := value_of(writer)) is not None:
                        family.add_metric([health.table, health.branch, writer.kind, writer.name], value)
            yield family


def _named_writers(health: TableHealth) -> list[WriterHealth]:
    """Return the writers that have a name, those with the newest commits, as far as they get series of their own.

    A query without a name has a new id for each checkpoint, and some applications take a new id for each run: their
    series would grow without end.
    """
    return [writer for writer in health.writers if _has_a_name(writer)][:MOST_WRITERS]


def _has_a_name(writer: WriterHealth) -> bool:
    return writer.kind == "stream" or (writer.kind == "application" and is_name(writer.name))


_OF_WRITERS: dict[str, Callable[[WriterHealth], float | None]] = {
    WRITER_AGE: lambda writer: writer.age_s,
    WRITER_NUMBER: lambda writer: writer.number,
    WRITER_LAG: lambda writer: writer.lag_s,
}


def health_registry(look: Callable[[], list[Look]]) -> CollectorRegistry:
    """Return a registry of `prometheus_client` that has these gauges alone.

    Raises:
        OptionError: `prometheus_client` is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  # an extra
    except ImportError:
        raise OptionError(
            "Cannot serve figures to Prometheus: package prometheus_client is not installed. Install it with "
            "pip install 'iceberg-ds[prometheus]'."
        ) from None
    registry = CollectorRegistry()
    registry.register(HealthCollector(look))
    return registry


def serve(look: Callable[[], list[Look]], port: int, address: str = "127.0.0.1") -> tuple[str, Callable[[], None]]:
    """Serve the gauges at `/metrics`, in a thread.

    Args:
        look: Returns what the last look found.
        port: Port to listen on; 0 for any free one.
        address: Address to listen on; `0.0.0.0` for all of the machine's. Whoever reaches it sees the names of tables,
            branches and writers, and numbers.

    Returns:
        The URL where Prometheus finds the gauges, and a function that ends serving.

    Raises:
        OptionError: `prometheus_client` is not installed, or the port or address cannot be had.
    """
    registry = health_registry(look)
    from prometheus_client import start_http_server  # noqa: PLC0415  # an extra

    try:
        server, thread = start_http_server(port, address, registry)
    except (OSError, ValueError) as error:  # the latter for an address that is no name of a host
        raise OptionError(
            f"Cannot serve on port {port} of {address}: {getattr(error, 'strerror', None) or error}. Give another "
            "port, such as 0 for any free one, or another address."
        ) from None

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{server.server_port}/metrics", end
