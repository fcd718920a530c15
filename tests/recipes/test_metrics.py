"""The board and the alerts of `examples/metrics`, with a real Prometheus that watches streams which are killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.metered_committers import committer_run
from support.services.prometheus import promtool
from support.services.servers import REPOSITORY
from support.spark.metered_streams import MeteredRun, metered_run
from support.spark.process import wait_until

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1200)]

EXAMPLE = REPOSITORY / "examples" / "metrics"
PANELS = [
    panel for panel in json.loads((EXAMPLE / "grafana-dashboard.json").read_text())["panels"] if panel["type"] != "row"
]
KILLS = 6
FILES_A_ROUND = 8
SEED = 22
# What Grafana puts in the place of its variables: a time that holds some scrapes, and all tables, branches and streams.
VARIABLES = {"$__rate_interval": "10m", "$table": ".*", "$branch": ".*", "$stream": ".*"}
# Metrics that streams of appends which nobody maintains have no series of.
OF_OTHERS = ("_deletes_added_total", "_dvs_added_total", "iceberg_sink_maintenance_")
MANY_KILLS = 20
_OF_STREAM = 'table="db.t", branch="main", stream="s"'
_LAST_BATCH = f"iceberg_sink_last_micro_batch_timestamp_seconds{{{_OF_STREAM}}}"
_NEWEST_EVENT = f"iceberg_sink_newest_event_timestamp_seconds{{{_OF_STREAM}}}"
# Of each alert: series by the minute, from 0 on as Prometheus counts time in such tests; when it is quiet, and fires.
FIRED = [
    ("IcebergExporterDown", {'up{job="iceberg-ds", instance="i"}': "1x10 0x10"}, "14m", "17m"),
    ("IcebergNoCommit", {_LAST_BATCH: "0x60"}, "15m", "18m"),
    # One table, or its quarantine, gets no rows; the stream has others.
    ("IcebergNoCommit", {_LAST_BATCH: "0x60", _LAST_BATCH.replace("db.t", "db.u"): "0+60x30 1800x60"}, "40m", "48m"),
    ("IcebergRowsAreOld", {_NEWEST_EVENT: "0x60", _LAST_BATCH: "0+60x60"}, "19m", "22m"),
    (
        "IcebergRowsAreOld",
        {_NEWEST_EVENT: "0x60", _NEWEST_EVENT.replace("db.t", "db.u"): "0+60x30 1800x60", _LAST_BATCH: "0+60x60"},
        "40m",
        "53m",
    ),
    (
        "IcebergCommitsFail",
        {f'iceberg_sink_commits_total{{{_OF_STREAM}, outcome="failed"}}': "0x20 1x40"},
        "20m",
        "22m",
    ),
    # The first report of all is on a failure; 15 minutes later it is over.
    ("IcebergCommitsFail", {f'iceberg_sink_commits_total{{{_OF_STREAM}, outcome="conflict"}}': "1x60"}, "17m", "5m"),
    (
        "IcebergOutcomeUnknown",
        {f'iceberg_sink_commits_total{{{_OF_STREAM}, outcome="unknown"}}': "0x20 1x40"},
        "20m",
        "22m",
    ),
    (
        "IcebergManyConflicts",
        {
            f"iceberg_sink_conflicts_total{{{_OF_STREAM}}}": "0+9x60",
            f'iceberg_commit_attempts_total{{{_OF_STREAM}, operation="append"}}': "0+10x60",
        },
        "10m",
        "20m",
    ),
    ("IcebergFilesLeft", {f"iceberg_sink_files_left_total{{{_OF_STREAM}}}": "0x20 3x40"}, "20m", "22m"),
    (
        "IcebergManyDeletes",
        {
            'iceberg_table_delete_files{table="db.t", branch="main"}': "20x60",
            'iceberg_table_data_files{table="db.t", branch="main"}': "10x60",
        },
        "20m",
        "35m",
    ),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeteredRun]:
    """Return what is left after two streams were killed, with the Prometheus that watched them."""
    folder = tmp_path_factory.mktemp("metered")
    with metered_run(folder, KILLS, FILES_A_ROUND, SEED, EXAMPLE / "alerts.yml") as ended:
        yield ended


def test_prometheus_has_the_rows_files_commits_and_replays_of_the_tables(run: MeteredRun) -> None:
    """An operator's counters would drift from the table with every restart."""
    for stream in run.streams:
        matched = f'{{table="{stream.table}", branch="main", stream="{stream.name}"}}'
        of_table = f'{{table="{stream.table}", branch="main"}}'
        outcomes = {
            sample.labels["outcome"]: sample.value
            for sample in run.prometheus.last(f"iceberg_sink_commits_total{matched}")
        }
        files, rows = len(stream.warehouse.referenced(stream.table)), stream.warehouse.rows(stream.table).num_rows

        assert rows == stream.rows_in_source()
        assert run.prometheus.last_total(f"iceberg_commit_records_added_total{matched}") == rows
        assert run.prometheus.last_total(f"iceberg_commit_data_files_added_total{matched}") == files
        assert outcomes["committed"] == stream.snapshots()
        assert outcomes["replayed"] == run.replays[stream.name]
        assert {outcome for outcome, value in outcomes.items() if value} <= {"committed", "replayed", "empty"}
        assert run.prometheus.last_total(f"iceberg_table_records{of_table}") == rows
        assert run.prometheus.last_total(f"iceberg_table_data_files{of_table}") == files


def test_commit_whose_process_was_killed_before_its_report_is_counted_by_its_replay(run: MeteredRun) -> None:
    """Rows that landed in a crash would be missing from the counters for ever."""
    first = run.streams[0]
    timed = run.prometheus.last_total(f'iceberg_commit_duration_seconds_count{{table="{first.table}"}}')

    assert run.replays[first.name] >= 1
    assert timed < first.snapshots()  # how long it took is not known of the killed one


def test_counters_go_on_when_drivers_and_the_exporter_are_killed(run: MeteredRun) -> None:
    """Rates would show a spike or a gap after each restart."""
    counters = ("iceberg_commit_records_added_total", "iceberg_sink_commits_total", "iceberg_sink_tasks_total")

    assert run.kills == KILLS
    assert run.prometheus.total('min_over_time(up{job="iceberg-ds"}[30m])') == 0  # the exporter was away
    wait_until(lambda: run.prometheus.total('up{job="iceberg-ds"}') == 1, "a scrape succeeds")
    for counter in counters:
        assert run.prometheus.query(f"resets({counter}[30m])")
        assert run.prometheus.total(f"resets({counter}[30m])") == 0


def test_prometheus_has_what_many_killed_committers_brought_into_their_tables(tmp_path: Path) -> None:
    """One of the moments at which a committer can be killed would make counters wrong."""
    with committer_run(tmp_path, MANY_KILLS, SEED) as run:
        for name, replays in run.replays.items():
            matched = f'{{table="db.{name}", branch="main", stream="{name}"}}'
            rows = run.warehouse.rows(f"db.{name}")
            commits = run.prometheus.last(f"iceberg_sink_commits_total{matched}")
            outcomes = {one.labels["outcome"]: one.value for one in commits if one.value}
            assert len(set(rows["id"].to_pylist())) == rows.num_rows
            assert run.prometheus.last_total(f"iceberg_commit_records_added_total{matched}") == rows.num_rows
            files = len(run.warehouse.referenced(f"db.{name}"))
            assert run.prometheus.last_total(f"iceberg_commit_data_files_added_total{matched}") == files
            assert replays >= 1
            assert outcomes == {"committed": len(run.warehouse.snapshots(f"db.{name}")), "replayed": replays}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_of_the_board_shows_something(run: MeteredRun, panel: dict[str, object]) -> None:
    """A panel would be empty, or show an error."""
    for target in panel["targets"]:  # type: ignore[attr-defined]  # JSON
        expression = target["expr"]
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)

        # A gauge has no value for as long as the latest scrape failed, as it may on a busy machine.
        wait_until(lambda: bool(run.prometheus.query("up == 1")), "a scrape succeeds")
        found = run.prometheus.query(expression)

        assert "$" not in expression.replace("$__", "")
        assert found or any(name in expression for name in OF_OTHERS), expression


def test_alerts_are_evaluated_and_only_that_of_old_rows_waits(run: MeteredRun) -> None:
    """An alert would never fire, or wake someone for nothing."""
    rules = {rule["name"]: rule for rule in run.prometheus.rules()}
    raised = {(alert["labels"]["alertname"], alert["labels"].get("stream")) for alert in run.prometheus.alerts()}

    assert len(rules) >= 7
    assert {name: rule["health"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    assert raised == {("IcebergRowsAreOld", "orders")}  # whose events are an hour old


@pytest.mark.parametrize(
    "arguments", [("rules", "alerts.yml"), ("config", "prometheus.yml")], ids=lambda names: names[0]
)
def test_promtool_accepts_the_examples(arguments: tuple[str, str]) -> None:
    """A user's Prometheus would not start with them."""
    what, name = arguments

    assert "SUCCESS" in promtool("check", what, EXAMPLE / name)


@pytest.mark.parametrize("case", FIRED, ids=lambda case: case[0])
def test_alert_fires_when_it_should_and_not_before(case: tuple[str, dict[str, str], str, str], tmp_path: Path) -> None:
    """Nobody would be woken up, or everybody every night."""
    name, series, quiet_at, fires_at = case
    rules = {
        "rule_files": [str(EXAMPLE / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": values} for key, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)',
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": fires}],
                    }
                    for at, fires in ((quiet_at, 0), (fires_at, 1))
                ],
            }
        ],
    }
    file = tmp_path / "test.json"
    file.write_text(json.dumps(rules))  # JSON is YAML

    assert "SUCCESS" in promtool("test", "rules", file)


def test_dashboard_is_provisioned_from_the_folder_that_the_page_names() -> None:
    """A user's Grafana would come up without the board."""
    page = (REPOSITORY / "docs" / "metrics" / "prometheus.md").read_text()
    provider = (EXAMPLE / "provisioning" / "dashboards" / "iceberg.yml").read_text()

    (path,) = [Path(line.split()[-1]) for line in provider.splitlines() if line.strip().startswith("path:")]
    assert str(path) in page
