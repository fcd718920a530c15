"""Tables whose history makes commits slow are told of, with figures and the next step; others are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.inspect.checklist import Check
from iceberg_ds.snapshots import growth

LENGTH = "length of history"


@pytest.fixture(autouse=True)
def _nothing_told() -> Iterator[None]:
    """Forget which tables were told of before and after."""
    growth._told.clear()
    yield
    growth._told.clear()


def allow(monkeypatch: pytest.MonkeyPatch, *, snapshots: int = 10**6, manifests: int = 10**6) -> None:
    """Let a history be long from so many snapshots or manifests on."""
    monkeypatch.setattr(growth, "MANY_SNAPSHOTS", snapshots)
    monkeypatch.setattr(growth, "MANY_MANIFESTS", manifests)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings that tell of the history."""
    return [record.getMessage() for record in caplog.records if "slowed down" in record.getMessage()]


@pytest.mark.parametrize("many", [{"snapshots": 3}, {"manifests": 3}], ids=["snapshots", "manifests"])
def test_commit_warns_once_with_figures_and_next_step(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, many: dict[str, int]
) -> None:
    """A stream would get slower for months and nobody would know why; or each epoch would fill the log."""
    allow(monkeypatch, **many)

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        for number in range(2):
            sink.append(number)
        assert warnings(caplog) == []
        for number in range(2, 5):
            sink.append(number)

    (warning,) = warnings(caplog)
    assert "Commits to db.t" in warning
    assert "3 snapshots, 3 manifests in the branch; the table was loaded in" in warning
    assert "expire-snapshots" in warning


def verified(sink: Sink) -> Check:
    """Return what `verify` says of the length of the history."""
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)})
    assert result.ok
    return next(check for check in result.checks if check.name == LENGTH)


def checked(sink: Sink) -> Check:
    """Return what `check` says of it."""
    result = iceberg_ds.check(NAME, options={"warehouse": str(sink.options.warehouse)})
    assert result.ok
    return next(check for check in result.checks if check.name == LENGTH)


@pytest.mark.parametrize("ask", [verified, checked])
def test_check_and_verify_tell_the_figures_and_warn_if_they_are_large(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, ask: object
) -> None:
    """A user who looks for the reason of slow commits would not find it; or a sound table would count as broken."""
    assert callable(ask)
    for number in range(3):
        sink.append(number)

    short = ask(sink)
    allow(monkeypatch, snapshots=3)
    long = ask(sink)

    assert (short.outcome, long.outcome) == ("ok", "warning")
    assert "3 snapshots in a metadata file of 0.0 MB, 3 manifests in the branch" in short.detail
    assert short.next_step == ""
    assert "slowed down" in long.detail
    assert "expire-snapshots" in long.next_step
