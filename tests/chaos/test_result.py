"""The result of a chaos run: its figures are those of the log, and nothing broken is called whole."""

from __future__ import annotations

import json
from pathlib import Path

from chaos.driver import failure_text
from chaos.events import Event, Fault, Kind, Log, tell
from chaos.orders import Order, lay, take, waits, withdraw
from chaos.result import Result, result_of
from chaos.verifier import Account, Verdict

_LOST = Verdict(
    accounts={"stream": Account(source=2, found=1, lost=1, doubled=0)},
    problems=("stream: 1 rows lost, 0 doubled",),
    snapshots=1,
    data_files=1,
    orphans=0,
)
_WHOLE = Verdict(accounts={}, problems=(), snapshots=1, data_files=1, orphans=0)


def _kill(at_s: float, stream: str = "stream", place: str = "COMMITTED") -> Event:
    return Event(
        kind=Kind.FAULT,
        fault=Fault.KILL_PYTHON,
        stream=stream,
        place=place,
        is_planned=True,
        role="committer",
        at_s=at_s,
    )


def _result(*events: Event, verdict: Verdict | None = _WHOLE, problems: tuple[str, ...] = ()) -> Result:
    return result_of(
        events,
        seed=1,
        catalog="sqlite",
        verdict=verdict,
        problems=problems,
        total_seconds=60,
        checked_by="all is well",
    )


def test_counts_kills_and_what_followed() -> None:
    """The report would tell of kills that were none, or of other outcomes."""
    result = _result(
        _kill(1),
        Event(kind=Kind.LANDED, stream="other", at_s=2),
        Event(kind=Kind.FAILED, stream="stream", text="CatalogError: away", at_s=3),
        Event(kind=Kind.SKIPPED, stream="stream", at_s=4),
        _kill(5, place="PLANNED"),
        Event(kind=Kind.LANDED, stream="stream", at_s=6),
        Event(kind=Kind.FAULT, fault=Fault.EXPIRY, at_s=7),
    )

    assert result.kills == 2
    assert result.places == {"COMMITTED": 1, "PLANNED": 1}
    assert result.outcomes == {
        "kill: recognised as landed before, after CatalogError": 1,
        "kill: the rows landed": 1,
    }
    assert result.epochs == {"other": 1, "stream": 1}


def test_broken_runs_are_not_called_whole() -> None:
    """A run that lost rows, or whose table cannot be read, would pass."""
    assert _result(_kill(1)).is_whole
    assert not _result(_kill(1), verdict=_LOST).is_whole
    assert not _result(_kill(1), verdict=None).is_whole
    assert not _result(_kill(1), problems=("a checkpoint was not refused",)).is_whole


def test_writes_both_files(tmp_path: Path) -> None:
    """Nothing of a run of an hour would be left."""
    _result(_kill(1), verdict=_LOST).write(tmp_path / "results" / "run")

    found = json.loads((tmp_path / "results" / "run.json").read_text())
    assert found["headline"] == "BROKEN: stream: 1 rows lost, 0 doubled"
    assert "| stream | 0 | 2 | 1 | 1 | 0 |" in (tmp_path / "results" / "run.md").read_text()


def test_log_keeps_what_was_told(tmp_path: Path) -> None:
    """Faults and outcomes would be missing, such as those of epoch 0."""
    told = Event(kind=Kind.LANDED, stream="stream", epoch=0, at_s=1.5)
    tell(tmp_path, told)
    with (tmp_path / "events.jsonl").open("a") as log:
        log.write('{"kind": "LAN')

    assert Log(tmp_path).read() == [told]


def test_order_strikes_once_and_at_its_step(tmp_path: Path) -> None:
    """One order would kill two processes, or the wrong one."""
    order = Order(number=1, fault=Fault.CLOCK, stream="stream-1", step="PLANNED", amount=61)
    lay(tmp_path, order)

    assert waits(tmp_path, "stream-1")
    assert not waits(tmp_path, "stream")
    assert take(tmp_path, "stream-1", "COMMITTED") is None
    assert take(tmp_path, "stream-1", "PLANNED") == order
    assert take(tmp_path, "stream-1", "PLANNED") is None


def test_withdrawn_order_does_not_strike(tmp_path: Path) -> None:
    """A fault would fall where only one other is tried."""
    lay(tmp_path, Order(number=1, fault=Fault.KILL_DRIVER, stream="stream", step="PLANNED"))

    assert withdraw(tmp_path, "stream")
    assert take(tmp_path, "stream", "PLANNED") is None


def test_names_the_errors_of_the_sink_first() -> None:
    """The report would tell Spark's frame around an error instead of the error."""
    ours = "pyspark.errors: ...\n  iceberg_ds.errors.CatalogError: Cannot load db.t.\n at org.apache"

    assert failure_text(ours) == "CatalogError: Cannot load db.t."
    assert failure_text("x\n Python worker exited unexpectedly (crashed)") == "Python worker exited unexpectedly"
    assert failure_text("[STREAM_FAILED] Query 1 terminated").startswith("STREAM_FAILED: ")
