"""Prometheus' view: its own parser reads the sums back, and no scrape fails."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families
from support.metrics.reports import failed, replay_of, report, write

import iceberg_ds
from iceberg_ds.errors import OptionError
from iceberg_ds.metrics import prometheus
from iceberg_ds.metrics.counters import Counters
from iceberg_ds.metrics.instruments import INSTRUMENTS
from iceberg_ds.metrics.report_file import ReportWriter

MALFORMED = "iceberg_sink_reports_malformed_total"
HOSTILE = 'a"b\\c\nd{x="1"} 5 é'
REPORTS = (
    report(1),
    replay_of(report(2)),
    failed(),
    report(3, stream=HOSTILE, duration_ms=700.0),
    replay_of(report(1)),
)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the value of each series."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    """Return the value of the one series with these labels, among others."""
    [found] = [
        at for (one, having), at in samples(text).items() if one == name and labels.items() <= dict(having).items()
    ]
    return found


def scrape(collector: prometheus.MetricsCollector) -> str:
    """Return what a scrape shows."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of reports that does not exist yet."""
    return tmp_path / "commits.jsonl"


def test_parsed_text_equals_the_sums(path: Path) -> None:
    """Prometheus would store other numbers than the reports tell."""
    write(path, REPORTS)
    counters = Counters()
    for one in REPORTS:
        counters.take(one)
    expected: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for instrument in INSTRUMENTS:
        suffix = "_total" if instrument.kind == "counter" else ""
        for texts, number in counters.values(instrument).items():
            labels = frozenset(zip(instrument.labels, texts, strict=True))
            expected[instrument.prometheus + suffix, labels] = number * instrument.scale
        for texts, found in counters.distributions(instrument).items():
            named = dict(zip(instrument.labels, texts, strict=True))
            labels, below = frozenset(named.items()), 0
            expected[f"{instrument.prometheus}_sum", labels] = found.total
            expected[f"{instrument.prometheus}_count", labels] = found.count
            for bound, number in zip([*found.bounds, float("inf")], found.counts, strict=True):
                below += number
                expected[f"{instrument.prometheus}_bucket", labels | {("le", _le(bound))}] = below
    read = {
        key: one
        for key, one in samples(scrape(prometheus.metrics_collector(path))).items()
        if "_reports_" not in key[0]
    }

    assert read == expected
    assert len(read) > 100


def _le(bound: float) -> str:
    return "+Inf" if bound == float("inf") else {1e6: "1e+06", 1e7: "1e+07", 1e8: "1e+08"}.get(bound, str(float(bound)))


def test_open_metrics_parser_accepts_names_units_and_histograms(path: Path) -> None:
    """Prometheus asks for this format first, and drops a whole scrape that breaks its rules."""
    write(path, REPORTS)
    registry = CollectorRegistry()
    registry.register(prometheus.metrics_collector(path))

    families = list(parse_open_metrics(generate_open_metrics(registry).decode()))

    assert {family.name for family in families} >= {instrument.prometheus for instrument in INSTRUMENTS}


def test_each_scrape_shows_what_is_new_and_counters_only_grow(path: Path) -> None:
    """A dashboard would stand still, or jump at each scrape."""
    collector = prometheus.metrics_collector(path)
    found = []
    for number in range(1, 4):
        write(path, [report(number)])
        found.append(value(scrape(collector), "iceberg_commit_records_added_total"))

    assert found == [10, 20, 30]


def test_missing_malformed_and_unreadable_files_fail_no_scrape(path: Path) -> None:
    """One broken file would hide all streams."""
    write(path, [report(1)])
    with path.open("ab") as file:
        file.write(b"junk\n\xff\n" + report(2).to_json()[:30].encode())
    collector = prometheus.metrics_collector([path, path.parent / "missing", path.parent])
    text = scrape(collector)

    assert value(text, "iceberg_commit_records_added_total") == 10
    assert value(text, MALFORMED) == 2
    assert value(text, "iceberg_sink_reports_unreadable_total") >= 1


def test_half_a_character_in_a_name_fails_no_scrape(path: Path) -> None:
    """A line that JSON allows, and no text can show, would end all metrics."""
    write(path, [report(1, table="\ud800")])

    assert value(scrape(prometheus.metrics_collector(path)), "iceberg_table_records", table="?") == 10


def test_file_and_the_one_before_it_are_read_once(path: Path) -> None:
    """Whoever gives `commits.jsonl*` would count the older file twice."""
    write(path.with_name("commits.jsonl.1"), [failed()])
    write(path, [report(1)])
    given = [path, path.with_name("commits.jsonl.1"), str(path), path.parent / "." / path.name]

    assert value(scrape(prometheus.metrics_collector(given)), "iceberg_sink_commits_total", outcome="conflict") == 1


def test_streams_with_files_of_their_own_are_summed_up(path: Path) -> None:
    """Of several streams only one would be seen."""
    other = path.with_name("other.jsonl")
    write(path, [report(1)])
    write(other, [report(2, stream="clicks")])

    assert value(scrape(prometheus.metrics_collector([path, other])), "iceberg_table_records") == 20


def test_scrapes_at_once_count_each_report_once(path: Path) -> None:
    """Two Prometheus servers that scrape at once would see rows twice, or an error."""
    collector, writer, texts = prometheus.metrics_collector(path), ReportWriter(path), []
    threads = [threading.Thread(target=lambda: texts.extend(scrape(collector) for _ in range(15))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 60):
        writer(report(number))
    for thread in threads:
        thread.join()

    assert len(texts) == 45
    assert value(scrape(collector), "iceberg_commit_records_added_total") == 590


def test_registry_refuses_a_second_collector(path: Path) -> None:
    """A host that registers twice would show each series twice, which Prometheus drops with all others."""
    registry = CollectorRegistry()
    registry.register(iceberg_ds.metrics_collector(path))

    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(iceberg_ds.metrics_collector(path))


def test_server_serves_on_a_free_port_until_it_is_closed(path: Path) -> None:
    """A user could not scrape, or a test could not start two; a closed one would keep its port."""
    write(path, [report(1)])
    with iceberg_ds.serve_metrics(path, 0) as server:
        text = urllib.request.urlopen(server.url).read().decode()  # noqa: S310  # our own
        port = server.port
    server.close()

    assert value(text, "iceberg_commit_records_added_total") == 10
    iceberg_ds.serve_metrics(path, port).close()


def test_port_in_use_is_an_error_that_says_so(path: Path) -> None:
    """A second driver on the machine would fail with an error that names no port."""
    with (
        iceberg_ds.serve_metrics(path, 0) as server,
        pytest.raises(OptionError, match=rf"{server.port}.*in use.*another"),
    ):
        iceberg_ds.serve_metrics(path, server.port)


@pytest.mark.parametrize("address", ["a..b", f"{'x' * 300}.com", "a\0b", "256.1.1.1"])
def test_address_that_is_none_is_an_error_that_says_so(path: Path, address: str) -> None:
    """A user who mistypes an address would see an error of Python."""
    with pytest.raises(OptionError, match=r"Cannot serve metrics on .*another address"):
        iceberg_ds.serve_metrics(path, 0, address=address)


@pytest.mark.parametrize("file", [[], ""])
def test_no_file_is_an_error(file: list[str] | str) -> None:
    """A wrong variable would be served as metrics that stay empty."""
    with pytest.raises(OptionError, match="no file is given"):
        iceberg_ds.metrics_collector(file)


def test_missing_client_is_an_error_that_names_the_extra(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would not know what to install."""
    monkeypatch.setattr(prometheus, "_missing", ImportError("No module named 'prometheus_client'"))

    for call in (
        iceberg_ds.serve_metrics,
        iceberg_ds.metrics_collector,
        lambda file: iceberg_ds.Metrics(file).to_prometheus(),
    ):
        with pytest.raises(OptionError, match=r"pip install 'iceberg-ds\[prometheus\]'"):
            call(path)


class Gateway(BaseHTTPRequestHandler):
    """Takes what is pushed."""

    taken: tuple[str, str] = ("", "")
    login: str | None = None

    def do_PUT(self) -> None:  # http.server's
        """Take metrics."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        type(self).taken, type(self).login = (self.path, body), self.headers["Authorization"]
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_metrics_are_pushed_to_a_gateway_under_the_job(path: Path) -> None:
    """A batch job that ends before any scrape would never be seen."""
    write(path, [report(1)])
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        iceberg_ds.push_metrics(path, f"http://127.0.0.1:{server.server_port}", job="nightly")

    assert Gateway.taken[0] == "/metrics/job/nightly"
    assert value(Gateway.taken[1], "iceberg_commit_records_added_total") == 10


@pytest.mark.parametrize(("login", "sent"), [("", None), ("user:p%40ss@", "Basic dXNlcjpwQHNz")])
def test_login_in_the_address_of_a_gateway_is_sent(path: Path, login: str, sent: str | None) -> None:
    """A gateway behind a proxy with passwords could never be reached."""
    write(path, [report(1)])
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        iceberg_ds.push_metrics(path, f"http://{login}127.0.0.1:{server.server_port}/below")

    assert (Gateway.taken[0], Gateway.login) == ("/below/metrics/job/iceberg-ds", sent)


@pytest.mark.parametrize(
    "gateway",
    [
        "http://user:sesame@127.0.0.1:1",
        "user:sesame@127.0.0.1:1",
        "user:sesame@127.0.0.1:1/x",
        "127.0.0.1:1",
        "no such://place",
    ],
)
def test_gateway_that_cannot_be_reached_is_an_error_without_its_password(path: Path, gateway: str) -> None:
    """A job's log would show the password, or an error that does not say what failed."""
    with pytest.raises(OptionError, match="Cannot push metrics of job 'iceberg-ds'") as told:
        iceberg_ds.push_metrics(path, gateway)

    assert "sesame" not in str(told.value)
