"""The report on a run of maintenance: what it did, how long it took, and how it ended; beside those on its commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from iceberg_ds.metrics.delivery import Reporting
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.snapshots.refs import MAIN_BRANCH

_Result = TypeVar("_Result")
_COUNT = "_count"


@contextmanager
def reported(
    reporting: Reporting, operation: str, table: str, branch: str | None = None
) -> Iterator[Callable[[_Result], _Result]]:
    """Hand out the report on a run of maintenance in the block, unless it changed nothing or only told what it would.

    Args:
        reporting: Where reports go.
        operation: Name of the function, such as `rewrite_data_files`.
        table: Identifier of the table.
        branch: The branch; None for `main`.

    Yields:
        What notes the result of the run, and returns it.
    """
    began = time.monotonic()
    results: list[Any] = []

    def note(result: _Result) -> _Result:
        if not getattr(result, "dry_run", False):
            results.append(result)
        return result

    failure: BaseException | None = None
    try:
        yield note
    except BaseException as problem:
        failure = problem
        raise
    finally:
        counts = {name: count for result in results for name, count in counts_of(result).items()}
        if failure is not None or any(counts.values()):
            reporting.report(
                CommitReport(
                    table=table,
                    table_uuid="",
                    branch=branch or MAIN_BRANCH,
                    outcome="maintained",
                    at_ms=time.time_ns() // 1_000_000,
                    duration_ms=(time.monotonic() - began) * 1000,
                    operation=operation,
                    error=None if failure is None else type(failure).__name__,
                    counts=counts,
                    files_left=sum(getattr(result, "left_files", 0) for result in results),
                )
            )


def counts_of(result: Any) -> dict[str, int]:  # noqa: ANN401  # of any of the functions
    """Return the counts of a result by their names without `_count`; for an expiry that of the snapshots, too."""
    counts = {
        one.name.removesuffix(_COUNT).replace("_", "-"): getattr(result, one.name)
        for one in fields(result)
        if one.name.endswith(_COUNT)
    }
    return (
        counts if "deleted-manifest-lists" not in counts else {**counts, "expired-snapshots": len(result.snapshot_ids)}
    )
