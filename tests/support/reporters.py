"""A reporter that option `metrics-reporter` can name."""

from __future__ import annotations

from iceberg_ds.metrics.report import CommitReport

kept: list[CommitReport] = []


def keep(report: CommitReport) -> None:
    """Keep the report."""
    kept.append(report)


async def late(_: CommitReport) -> None:
    """Take no report: nobody awaits it."""
