"""A repeated write whose rows are not those that landed: it is skipped all the same, and somebody is told."""

from __future__ import annotations

import json
import logging

import pytest
from support.checks.invariants import check_sound, unreferenced_files
from support.tables.sink import Sink, epoch, rows

from iceberg_ds.plan import EpochId

FIRST = epoch(0)


def replay(sink: Sink, caplog: pytest.LogCaptureFixture, *ids: int, of_epoch: EpochId = FIRST) -> list[str]:
    """Commit rows again that were committed before, and return the warnings."""
    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        result = sink.commit(sink.write(rows(*ids), of_epoch=of_epoch))
    assert result.was_replayed
    return [record.getMessage() for record in caplog.records]


def test_number_of_rows_is_recorded_with_the_epoch(sink: Sink) -> None:
    """Nothing could tell a repeated epoch from one of a source that was divided otherwise."""
    sink.commit(sink.write(rows(1, 2), rows(3), of_epoch=FIRST))

    assert json.loads(sink.table().properties[f"icebergsink.last-epoch.main.{FIRST.query_id}"])["record-count"] == 3


def test_repeated_epoch_with_other_rows_is_skipped_with_a_warning(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Rows that a copied checkpoint puts into another epoch would be missing, and nobody would know."""
    sink.append(1, 2, of_epoch=FIRST)

    (warning,) = replay(sink, caplog, 1, 2, 3)

    assert "committed with 2 rows, and now has 3" in warning
    assert "compare the table with the source" in warning
    assert sink.ids() == [1, 2]
    check_sound(sink.table())
    assert not unreferenced_files(sink.table())


def test_repeated_epoch_with_as_many_rows_is_no_cause_for_a_warning(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """Every restart would look like a loss."""
    sink.append(1, 2, of_epoch=FIRST)

    assert replay(sink, caplog, 1, 2) == []


def test_epoch_whose_number_of_rows_is_not_known_is_no_cause_for_a_warning(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """The first restart after a change from another sink would look like a loss."""
    sink.append(1, 2, of_epoch=FIRST)
    with sink.table().transaction() as change:
        change.remove_properties(f"icebergsink.last-epoch.main.{FIRST.query_id}")

    assert replay(sink, caplog, 1) == []
