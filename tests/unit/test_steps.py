"""The steps of a write, as whoever listens hears them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.tables import Sink

from iceberg_ds.steps import Step, listen, reach


@pytest.fixture
def heard() -> Iterator[list[Step]]:
    """Return the steps that are reached from now on."""
    steps: list[Step] = []
    listen(steps.append)
    yield steps
    listen(None)


def test_write_comes_by_its_steps_in_order(sink: Sink, heard: list[Step]) -> None:
    """Fault tests would strike at other moments than they say, or at none."""
    sink.append(1)

    assert heard == [
        Step.FILE_OPENED,
        Step.FILE_CLOSED,
        Step.COMMIT_BEGUN,
        Step.TABLE_LOADED,
        Step.MANIFESTS_WRITTEN,
        Step.REQUEST_ANSWERED,
        Step.LANDED,
    ]


def test_nobody_needs_to_listen(heard: list[Step]) -> None:
    """A listener of one test would act in others."""
    listen(None)

    reach(Step.PLANNED)

    assert heard == []
