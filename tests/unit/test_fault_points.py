"""The steps of a write, as whoever listens hears them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.tables.sink import Sink

from iceberg_ds.fault_points import FaultPoint, fault_point, listen


@pytest.fixture
def heard() -> Iterator[list[FaultPoint]]:
    """Return the steps that are reached from now on."""
    steps: list[FaultPoint] = []
    listen(steps.append)
    yield steps
    listen(None)


def test_write_comes_by_its_steps_in_order(sink: Sink, heard: list[FaultPoint]) -> None:
    """Fault tests would strike at other moments than they say, or at none."""
    sink.append(1)

    assert heard == [
        FaultPoint.FILE_OPENED,
        FaultPoint.FILE_CLOSED,
        FaultPoint.COMMIT_BEGUN,
        FaultPoint.TABLE_LOADED,
        FaultPoint.MANIFESTS_WRITTEN,
        FaultPoint.REQUEST_ANSWERED,
        FaultPoint.COMMITTED,
    ]


def test_nobody_needs_to_listen(heard: list[FaultPoint]) -> None:
    """A listener of one test would act in others."""
    listen(None)

    fault_point(FaultPoint.PLANNED)

    assert heard == []
