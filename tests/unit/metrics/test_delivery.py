"""Delivery: no reporter fails a commit or holds it up for long, and commits at once lose no report."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from support.exhaustive import EXHAUSTIVE
from support.metrics.reports import report

from iceberg_ds.metrics import delivery
from iceberg_ds.metrics.commit_meter import metered
from iceberg_ds.metrics.delivery import LIMIT_S, Reporting, described, waiting_once
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.plan import WriteIdentity


class Hanging:
    """A reporter that hangs until it is let go."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.taken: list[int | None] = []

    def __call__(self, one: CommitReport) -> None:
        """Take a report, in the end."""
        self.taken.append(one.snapshot_id)
        self.released.wait(30)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """Return a reporter that hangs until the end of the test."""
    reporter = Hanging()
    yield reporter
    reporter.released.set()


def seconds_of(reporting: Reporting, number: int) -> float:
    """Return how long a commit waits for its report."""
    began = time.monotonic()
    reporting.report(report(number))
    return time.monotonic() - began


def test_reporter_that_hangs_costs_one_wait_and_one_warning(hanging: Hanging, caplog: pytest.LogCaptureFixture) -> None:
    """A backend that is away would slow down each commit of a stream."""
    taken: list[CommitReport] = []
    reporting = Reporting([("slow", hanging), ("fast", taken.append)])
    waits = [seconds_of(reporting, number) for number in range(1, 5)]

    assert LIMIT_S <= waits[0] < LIMIT_S + 1
    assert max(waits[1:]) < LIMIT_S / 2
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "Reports on commits do not reach slow, and commits go on without"
    ]
    assert [one.snapshot_id for one in taken] == [1, 2, 3, 4]


def test_several_that_hang_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three backends that are away would hold a commit up for three times as long."""
    monkeypatch.setattr(delivery, "LIMIT_S", 0.3)
    reporters = [Hanging() for _ in range(3)]
    waited = seconds_of(Reporting([(str(number), one) for number, one in enumerate(reporters)]), 1)
    for one in reporters:
        one.released.set()

    assert 0.3 <= waited < 0.85


def test_reporter_that_takes_reports_slowly_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that takes a moment for each table would lose whole epochs of a write into several tables."""
    monkeypatch.setattr(delivery, "LIMIT_S", 0.3)
    taken: list[int | None] = []

    def slow(one: CommitReport) -> None:
        time.sleep(0.1)
        taken.append(one.snapshot_id)

    reporting = Reporting([("slow", slow)])
    for epoch in range(2):
        with delivery.waiting_once():
            for table in range(6):
                reporting.report(report(10 * epoch + table))
    deadline = time.monotonic() + 10
    while len(taken) < 12 and time.monotonic() < deadline:
        time.sleep(0.05)

    assert taken == [*range(6), *range(10, 16)]


def test_reporter_that_has_caught_up_gets_reports_again(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one slow moment a backend would get nothing until the restart."""
    monkeypatch.setattr(delivery, "LIMIT_S", 0.1)
    reporting = Reporting([("slow", hanging)])
    reporting.report(report(1))
    reporting.report(report(2))
    hanging.released.set()
    deadline = time.monotonic() + 10
    number = 3
    while len(hanging.taken) < 2 and time.monotonic() < deadline:
        reporting.report(report(number))

    assert hanging.taken[:2] == [1, 3]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_a_reporter_raises_is_logged_once(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """A defect in a user's reporter would fail commits, or fill the log."""
    taken: list[CommitReport] = []

    def broken(_: CommitReport) -> None:
        raise error("https://user:sesame@host")

    reporting = Reporting([("broken", broken), ("other", taken.append)])
    with caplog.at_level(logging.WARNING):
        for number in range(1, 4):
            reporting.report(report(number))

    assert len(taken) == 3
    assert len(caplog.records) == 1
    assert "sesame" not in caplog.text


def test_commits_at_once_lose_no_report() -> None:
    """Two streams of one process that commit at the same moment would lose a report, and its rows, for ever."""
    taken: list[int | None] = []

    def slow(one: CommitReport) -> None:
        time.sleep(0.005)
        taken.append(one.snapshot_id)

    reporting = Reporting([("slow", slow)])
    threads = [threading.Thread(target=reporting.report, args=(report(number),)) for number in range(1, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(number or 0 for number in taken) == list(range(1, 25))


def test_report_that_cannot_be_made_fails_no_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A snapshot's summary that another writer left would fail a commit that is in the table."""

    def broken(*_: object) -> CommitReport:
        raise ValueError("no number")

    monkeypatch.setattr("iceberg_ds.metrics.commit_meter.CommitMeter.report", broken)
    write = object.__new__(WriteIdentity)
    with metered(Reporting(), write):
        pass
    with pytest.raises(LookupError, match="of the commit"), metered(Reporting(), write):
        raise LookupError("of the commit")

    assert [record.getMessage() for record in caplog.records] == ["A commit is not reported"] * 2


def test_error_without_a_text_holds_up_no_commit(caplog: pytest.LogCaptureFixture) -> None:
    """Each commit would wait a second for a thread that has died."""

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError

    def broken(_: CommitReport) -> None:
        raise UnprintableError

    reporting = Reporting([("broken", broken)])

    assert max(seconds_of(reporting, number) for number in (1, 2)) < LIMIT_S / 2
    assert "UnprintableError" in caplog.text


@pytest.mark.parametrize("text", ["<html>" + "pass=" * 400_000, "a://" * 500_000, "x" * 20_000_000])
def test_long_text_of_an_error_holds_up_no_commit(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """A server that answers with a page would stop all commits of the process while secrets are looked for in it."""

    def broken(_: CommitReport) -> None:
        raise ValueError(text)

    assert seconds_of(Reporting([("broken", broken)]), 1) < LIMIT_S
    assert len(caplog.text) < 4_000


def test_thread_without_reports_ends_and_another_takes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that names a file for each day or table would keep a thread for each, for ever."""
    monkeypatch.setattr(delivery, "_IDLE_S", 0.05)
    threads: list[threading.Thread] = []
    reporting = Reporting([("one", lambda _: threads.append(threading.current_thread()))])
    for number in (1, 2):
        reporting.report(report(number))
        threads[-1].join(10)
        assert not threads[-1].is_alive()

    assert len(threads) == 2


def test_no_report_is_lost_while_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that comes as its thread ends would stay where it is, and its commit wait a second."""
    monkeypatch.setattr(delivery, "_IDLE_S", 0.0005)
    taken: list[int | None] = []
    reporting = Reporting([("one", lambda one: taken.append(one.snapshot_id))])
    for number in range(1, 300):
        reporting.report(report(number))
        time.sleep(number % 5 * 0.0002)

    assert taken == list(range(1, 300))


@EXHAUSTIVE
def test_report_to_the_log_is_printed_where_no_log_is_kept() -> None:
    """Who asks for a line in the log would see none: Spark's own Python processes keep no log."""
    code = "from support.metrics.reports import report; from iceberg_ds.metrics.reporters import _log; _log(report(1))"
    found_in = os.pathsep.join(filter(None, sys.path))
    lines = [
        subprocess.run(
            [sys.executable, "-c", f"import logging; {configure}{code}"],
            env={**os.environ, "PYTHONPATH": found_in},
            capture_output=True,
            text=True,
            check=True,
        ).stderr
        for configure in (
            "",
            "logging.basicConfig(level='INFO', format='kept %(message)s'); ",
            "logging.basicConfig();",
        )
    ]

    line = f"{report(1).to_json()}\n"
    assert lines == [line, f"kept {line}", line]


def test_reports_on_the_tables_of_one_commit_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reporter that takes its time would hold an epoch of many tables up for each of them."""
    monkeypatch.setattr(delivery, "LIMIT_S", 0.3)
    taken: list[CommitReport] = []
    reporting = Reporting([("slow", lambda one: (time.sleep(0.2), taken.append(one)))])
    began = time.monotonic()
    with waiting_once():
        for number in range(1, 13):
            with metered(reporting), waiting_once():
                reporting.report(report(number))
        assert time.monotonic() - began < 0.2
    waited = time.monotonic() - began

    assert 0.3 <= waited < 1.2
    deadline = time.monotonic() + 10
    while len(taken) < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [one.snapshot_id for one in taken] == list(range(1, 13))


@pytest.mark.parametrize("password", ["hunter2-secret", "hunter2 with blanks"])
@pytest.mark.parametrize("before", range(1_930, 2_000, 8))
def test_address_that_is_cut_off_shows_no_password(before: int, password: str) -> None:
    """The log would show the password of a user whose address stands where a long text ends."""
    shown = described(RuntimeError(f"{'x' * before} cannot reach https://user:{password}@host/db {'y' * 500}"))

    assert "hunter2" not in shown
    assert shown.startswith("RuntimeError: xxx")


def test_process_that_is_forked_while_a_reporter_is_late_reports_anew(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reports of the child would be missing, without a word."""
    monkeypatch.setattr(delivery, "LIMIT_S", 0.1)
    parent = os.getpid()
    read, write = os.pipe()

    def late_in_the_parent(one: CommitReport) -> None:
        if os.getpid() == parent:
            hanging(one)
        else:
            os.write(write, b"reported")

    reporting = Reporting([("late", late_in_the_parent)])
    reporting.report(report(1))
    if (child := os.fork()) == 0:
        reporting.report(report(2))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)

    assert os.read(read, 100) == b"reported"
    os.close(read)
