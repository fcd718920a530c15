"""`Metrics`: sums, rates, windows, and what the command shows of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.metrics.reports import failed, replay_of, report, write

import iceberg_ds
from iceberg_ds.cli import main
from iceberg_ds.errors import OptionError
from iceberg_ds.metrics import metrics as module
from iceberg_ds.metrics.report import NO_TASKS, TaskFigures

NOW = int(time.time())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of reports that does not exist yet."""
    return tmp_path / "commits.jsonl"


def test_totals_are_the_sums_of_all_commits(path: Path) -> None:
    """A user would report other rows than the table has."""
    write(
        path,
        [
            report(1, attempts=3, conflicts=2, duration_ms=1000.0),
            report(2, rows=30, duration_ms=200.0, tasks=TaskFigures(tasks=1, rows=40)),
            replay_of(report(2, rows=30)),
            replay_of(report(3)),
            failed(attempts=5, conflicts=5),
            failed("unknown"),
            report(4, tasks=NO_TASKS),
        ],
    )
    found = iceberg_ds.Metrics(path).totals

    assert (found.records_written, found.bytes_written, found.files_created) == (60, 6000, 4)
    assert (found.commits_success, found.commits_failed, found.commits_replayed) == (4, 2, 2)
    assert (found.commit_retries, found.commit_conflicts) == (6, 7)
    assert (found.batches_flushed, found.batch_size_sum) == (2, 50)
    assert (found.batch_size_min, found.batch_size_max, found.avg_batch_size) == (10, 40, 25)
    assert found.avg_commit_latency_ms == pytest.approx((1000 + 200 + 400) / 3)
    assert found.success_rate == pytest.approx(4 / 6)
    assert found.commit_retry_rate == 1


def test_nothing_counted_is_none_and_not_0(path: Path) -> None:
    """An average of 0 ms, or a success rate of 0, would be shown for a stream that has not committed yet."""
    metrics = iceberg_ds.Metrics(path)
    found = metrics.totals

    assert (found.avg_commit_latency_ms, found.success_rate, found.records_per_second, found.batch_size_min) == (
        None,
    ) * 4
    assert metrics.reports() == metrics.tables == ()


def test_rates_are_per_second_from_the_first_start_to_the_last_end(path: Path) -> None:
    """Rows per second would be wrong by the time of a commit, or endless for one commit."""
    write(path, [report(1, at_ms=10_000, duration_ms=1000.0), report(2, at_ms=20_000)])
    found = iceberg_ds.Metrics(path).totals

    assert found.seconds == 11
    assert found.records_per_second == pytest.approx(20 / 11)
    assert found.bytes_per_second == pytest.approx(2000 / 11)


def test_window_has_the_commits_of_the_last_seconds_only(path: Path) -> None:
    """A stream that stopped would go on looking busy."""
    now = int(time.time())
    write(path, [report(number, at_ms=(now - age) * 1000) for number, age in ((1, 5000), (2, 300), (3, 0))])
    metrics = iceberg_ds.Metrics(path)

    assert [metrics.window(seconds).commits_success for seconds in (60, 600, 3600)] == [1, 2, 2]
    assert metrics.window(100).records_per_second == pytest.approx(0.1)


@pytest.mark.parametrize("seconds", [0, -1, 3601, float("nan")])
def test_window_that_is_not_kept_is_refused(path: Path, seconds: float) -> None:
    """A sum of the last day would be that of an hour."""
    with pytest.raises(OptionError, match="up to 3600 s"):
        iceberg_ds.Metrics(path).window(seconds)


def test_memory_of_windows_and_reports_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook that runs for weeks, or a clock that is ahead, would fill the memory."""
    monkeypatch.setattr(module, "LONGEST_WINDOW_S", 10)
    monkeypatch.setattr(module, "REPORTS_KEPT", 5)
    write(path, [report(n, at_ms=(NOW + n * 1000) * 1000) for n in range(1, 100)])
    metrics = iceberg_ds.Metrics(path)

    assert [one.snapshot_id for one in metrics.reports(50)] == [95, 96, 97, 98, 99]
    assert len(metrics._by_second) <= 20


def test_reset_begins_anew_and_loses_no_commit(path: Path) -> None:
    """What a user ships per minute would not add up to the whole."""
    metrics = iceberg_ds.Metrics(path)
    found = []
    for number in range(1, 5):
        write(path, [report(number)])
        found.append(metrics.snapshot_and_reset().records_written)

    assert found == [10] * 4
    assert metrics.totals.records_written == 0
    assert "iceberg_commit_records_added_total" in metrics.to_prometheus()
    assert "} 40.0" in metrics.to_prometheus()  # a counter never goes back


def test_tables_are_told_apart_with_their_last_success_and_error(path: Path) -> None:
    """A user could not see which stream fails."""
    write(path, [report(1), report(1, table="db.u", table_uuid="u"), failed(table="db.u", table_uuid="u")])
    first, second = iceberg_ds.Metrics(path).tables

    assert (first.table, first.last_error, first.metrics.commits_failed) == ("db.t", None, 0)
    assert (second.table, second.last_error, second.metrics.commits_failed) == ("db.u", "CommitConflictError", 1)
    assert second.last_success_ms == report(1).at_ms


def test_last_reports_come_newest_last(path: Path) -> None:
    """A user would see old commits as the last ones."""
    write(path, map(report, range(1, 6)))

    assert iceberg_ds.Metrics(path).reports(2) == (report(4), report(5))
    assert iceberg_ds.Metrics(path).reports(0) == ()


def test_command_prints_a_table_and_json_of_the_same_sums(path: Path) -> None:
    """An operator without Python would see nothing."""
    write(path, [report(1, table="db.[red]x"), failed()])
    with path.open("a") as file:
        file.write("junk\n")
    shown = CliRunner().invoke(main, ["metrics", str(path)])
    told = CliRunner().invoke(main, ["metrics", str(path), "--json"])

    assert shown.exit_code == told.exit_code == 0
    assert "db.[red]x" in shown.output
    assert "CommitConflictError" in shown.output
    assert "left out: 1" in shown.output
    assert json.loads(told.output) == json.loads(iceberg_ds.Metrics(path).to_json())
    assert json.loads(told.output)["totals"]["records_written"] == 10


@pytest.mark.parametrize(
    "options", [["--serve", "0", "--json"], ["--serve", "0", "--push", "http://x"], ["--serve", "-1"]]
)
def test_command_refuses_what_does_not_go_together(path: Path, options: list[str]) -> None:
    """A script would wait for ever for JSON."""
    assert CliRunner().invoke(main, ["metrics", str(path), *options]).exit_code == 2


def test_command_serves_until_it_is_interrupted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C would show a traceback, or leave the port taken."""

    class Interrupted:
        def wait(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("iceberg_ds.cli.threading.Event", Interrupted)
    monkeypatch.setattr("iceberg_ds.metrics.prometheus.start_http_server", _Served)
    result = CliRunner().invoke(main, ["metrics", str(path), "--serve", "9109"])

    assert result.exit_code == 0, result.output
    assert "http://127.0.0.1:9109/metrics" in result.output
    assert _Served.calls == ["shutdown", "server_close", "join"]


class _Served:
    """In place of a server and its thread."""

    calls: list[str] = []  # noqa: RUF012  # of the one instance
    server_port = 9109

    def __init__(self, *_: object) -> None:
        self.calls.clear()

    def __iter__(self) -> object:
        return iter((self, self))

    def __getattr__(self, name: str) -> object:
        return lambda: self.calls.append(name)


def test_names_that_a_terminal_would_obey_are_shown_with_escapes(path: Path) -> None:
    """A name could write over the screen of an operator, or end the command."""
    write(path, [report(1, table="db.\x1b[2J\ud800")])
    shown = CliRunner().invoke(main, ["metrics", str(path)], terminal_width=300)

    assert shown.exit_code == 0, shown.output
    assert "\x1b[2J" not in shown.output
    assert "\\x1b[2J?" in shown.output


def test_clock_that_was_ahead_is_in_no_later_window(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that stopped would go on looking busy, for as long as a clock was ahead."""
    write(path, [report(1, at_ms=(NOW + 1800) * 1000)])
    metrics, now = iceberg_ds.Metrics(path), [NOW + 0.5]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    found = []
    for later in (0, 60, -60):  # at last this machine's clock is set back
        now[0] = NOW + later + 0.5
        found.append(metrics.window(10).records_written)

    assert found == [10, 0, 0]


def test_last_success_after_a_clock_was_ahead_is_that_of_the_next_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream would seem to have succeeded in the future, until then."""
    write(path, [report(1, at_ms=(NOW + 3600) * 1000)])
    now = [NOW + 3600.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    metrics = iceberg_ds.Metrics(path)
    assert metrics.tables[0].last_success_ms == (NOW + 3600) * 1000
    now[0] = NOW + 60.0
    write(path, [report(2, at_ms=NOW * 1000)])

    assert metrics.tables[0].last_success_ms == NOW * 1000


def test_command_fails_if_a_file_cannot_be_read(path: Path) -> None:
    """A script would take the zeros of a mistyped path for a stream that writes nothing."""
    path.mkdir()

    result = CliRunner().invoke(main, ["metrics", str(path), "--json"])

    assert result.exit_code == 1
    assert "could not be read" in result.output
    assert iceberg_ds.Metrics(path).unreadable > 0
