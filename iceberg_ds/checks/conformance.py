"""Tries on scratch tables whether a catalog keeps Iceberg's commit protocol, on which exactly-once rests.

What is tried stands in `trials`; here it is run, and what it comes to. Nothing is left behind. Runs on the
driver only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iceberg_ds.catalogs.client import CatalogClient
from iceberg_ds.checks.scratch import ScratchTables
from iceberg_ds.checks.trials import TRIALS, Trial
from iceberg_ds.errors import IcebergSinkError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceResult:
    """What one trial showed.

    Attributes:
        name: What was tried.
        passed: Whether the catalog did as the spec says; None if that could not be found out.
        seconds: How long it took.
        detail: What the catalog did.
        next_step: What to do about it, empty if nothing.
        is_needed: Rows are lost or doubled without it, whatever this package does.
    """

    name: str
    passed: bool | None
    seconds: float
    detail: str
    next_step: str = ""
    is_needed: bool = True


def check_conformance(
    catalog: CatalogClient, namespace: Sequence[str], *, another: Callable[[], CatalogClient] | None = None
) -> list[ConformanceResult]:
    """Try whether the catalog keeps the commit protocol, and say at the end whether exactly-once holds there.

    Args:
        catalog: The catalog.
        namespace: Where the scratch tables go. It is created, and removed again, if it is missing.
        another: Returns a further connection to the catalog, for trials that need several at once.

    Returns:
        A result for each trial, and a last one for all of them together.
    """
    results: list[ConformanceResult] = []
    with ScratchTables(catalog, namespace, another or catalog.another) as scratch:
        results += [_result(trial, scratch) for trial in TRIALS]
    if scratch.left_behind:
        left = ", ".join(scratch.left_behind)
        results.append(
            ConformanceResult(
                name="scratch tables are removed",
                passed=False,
                seconds=0.0,
                detail=f"left behind: {left}",
                next_step="Remove them by hand.",
                is_needed=False,
            )
        )
    return [*results, _conclusion(results)]


def _result(trial: Trial, scratch: ScratchTables) -> ConformanceResult:
    started = time.monotonic()
    try:
        problem = trial.run(scratch)
        passed, detail = problem is None, problem or "as the spec says"
    except Exception as error:  # every library below raises its own
        reason = str(error) if isinstance(error, IcebergSinkError) else scratch.catalog.describe(error)
        passed, detail = None, f"could not be tried: {reason}"
    seconds = time.monotonic() - started
    next_step = "" if passed else trial.without
    return ConformanceResult(
        name=trial.name,
        passed=passed,
        seconds=seconds,
        detail=detail,
        next_step=next_step,
        is_needed=trial.is_needed,
    )


def _conclusion(results: Sequence[ConformanceResult]) -> ConformanceResult:
    outcome = {result.name: result.passed for result in results}
    broken = [trial.name for trial in TRIALS if trial.is_needed and outcome[trial.name] is False]
    open_ones = [trial.name for trial in TRIALS if trial.is_needed and outcome[trial.name] is None]
    name, seconds = "rows land exactly once", sum(result.seconds for result in results)
    if broken:
        return ConformanceResult(
            name=name,
            passed=False,
            seconds=seconds,
            detail=f"not here: {'; '.join(broken)}",
            next_step="Use a single writer for each table at a time, or another catalog.",
        )
    if open_ones:
        return ConformanceResult(
            name=name,
            passed=None,
            seconds=seconds,
            detail=f"not known: {'; '.join(open_ones)}",
            next_step="Remove what kept these trials from being made, and check again.",
        )
    return ConformanceResult(name=name, passed=True, seconds=seconds, detail="with what this sink sends")
