"""A real Prometheus, which `make recipes` builds with its promtool, and the exporter that it scrapes."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from support.services.server_process import HOST, Server, free_port
from support.services.servers import REPOSITORY, make_servers

# A scrape may take so long; one that takes longer counts as failed, and Prometheus shows no value until the next.
SCRAPE_INTERVAL_MS = 2000
_TIMEOUT_S = 30
# The command `iceberg-ds` of this checkout.
_COMMAND = (sys.executable, "-c", "from iceberg_ds.cli import main; main()")


@cache
def install_prometheus() -> Path:
    """Make Prometheus unless it is there, and return the folder of its programs.

    Raises:
        ServerError: It could not be made.
    """
    return make_servers("prometheus_services.py", REPOSITORY / ".recipes" / "prometheus") / "bin"


class QueryError(RuntimeError):
    """Prometheus refuses a query; its answer is in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of an answer.

    Attributes:
        labels: The labels of its series.
        value: The value.
    """

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running Prometheus.

    Attributes:
        port: Its port on loopback.
    """

    port: int

    def query(self, expression: str) -> list[Sample]:
        """Return the values of an expression now.

        Raises:
            QueryError: Prometheus refuses the expression.
        """
        found = self._ask("query", query=expression)["result"]
        return [Sample(labels=one["metric"], value=float(one["value"][1])) for one in found]

    def total(self, expression: str) -> float:
        """Return the sum of the values of an expression; 0 without any."""
        return sum(sample.value for sample in self.query(expression))

    def last(self, selector: str) -> list[Sample]:
        """Return the last values of the series of a selector, also if the latest scrape failed."""
        return self.query(f"last_over_time({selector}[10m])")

    def last_total(self, selector: str) -> float:
        """Return the sum of the last values of the series of a selector; 0 without any."""
        return sum(sample.value for sample in self.last(selector))

    def query_range(self, expression: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression over a time, as Prometheus' answer has them.

        Raises:
            QueryError: Prometheus refuses the expression.
        """
        found: list[dict[str, Any]] = self._ask(
            "query_range", query=expression, start=str(start), end=str(end), step=str(step_s)
        )["result"]
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are pending or firing."""
        found: list[dict[str, Any]] = self._ask("alerts")["alerts"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with their health."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        address = f"http://{HOST}:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
                told: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise QueryError(f"{parameters}: {refused.read().decode(errors='replace')}") from refused
        return told


@contextmanager
def serve_prometheus(folder: Path, exporter: int, rules: Path | None = None) -> Iterator[Prometheus]:
    """Serve a Prometheus that scrapes what listens at a port of loopback, every two seconds.

    Args:
        folder: For its data, settings and log.
        exporter: The port to scrape; nothing need listen yet.
        rules: A file of rules, None for none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "prometheus.json"  # JSON is YAML
    settings.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": f"{SCRAPE_INTERVAL_MS}ms", "evaluation_interval": "1s"},
                "rule_files": [] if rules is None else [str(rules)],
                "scrape_configs": [
                    {"job_name": "iceberg-ds", "static_configs": [{"targets": [f"{HOST}:{exporter}"]}]},
                ],
            }
        )
    )
    port = free_port()
    server = Server(
        name="Prometheus",
        command=[
            install_prometheus() / "prometheus",
            f"--config.file={settings}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={HOST}:{port}",
        ],
        log=folder / "prometheus.log",
        is_ready=lambda: _is_ready(port),
    )
    with server.running():
        yield Prometheus(port=port)


@contextmanager
def serve_exporter(file: Path, port: int, log: Path) -> Iterator[None]:
    """Run the exporter of a file of reports as a user would; it is killed in the end."""
    command = [*_COMMAND, "metrics", file, "--serve", str(port)]
    server = Server(
        name="The exporter",
        command=command,
        log=log,
        is_ready=lambda: bool(_scrape(port)),
        stop_signal="SIGKILL",
    )
    with server.running():
        yield


def _scrape(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text


def promtool(*arguments: str | Path) -> str:
    """Run promtool and return what it prints.

    Raises:
        AssertionError: It failed; what it printed is in the text.
    """
    command = [str(install_prometheus() / "promtool"), *map(str, arguments)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/-/ready", timeout=_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
