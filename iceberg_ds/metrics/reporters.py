"""The reporters of a write by its options: the file, the log, and what users bring along."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import iscoroutinefunction
from pathlib import Path

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.delivery import NO_REPORTING, Reporter, Reporting, described
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.metrics.report_file import ReportWriter

logger = logging.getLogger(__name__)

LOG = "log"
# The group of entry points whose names `metrics-reporter` takes.
ENTRY_POINTS = "iceberg_ds.reporters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """Where reports on commits go.

    Attributes:
        file: Local file on the committing machine, or None.
        reporters: `log`, names of entry points, and functions as `module:function`.
        is_in_summary: Whether the summary of the snapshot tells what the tasks took.
    """

    file: str | None = None
    reporters: tuple[str, ...] = ()
    is_in_summary: bool = False


NO_REPORTS = ReportSettings()


@lru_cache(maxsize=64)
def reporting(settings: ReportSettings, rest: Reporter | None = None) -> Reporting:
    """Return the reporters, made once per process; each keeps its thread.

    Args:
        settings: Where reports go.
        rest: Sends a report to the catalog; None for a catalog that takes none.

    Raises:
        OptionError: There is no reporter of that name.
    """
    found: list[tuple[str, Reporter]] = [(name, _named(name)) for name in settings.reporters]
    if settings.file is not None:
        found.append((settings.file, ReportWriter(Path(settings.file))))
    if rest is not None:
        found.append(("the catalog", rest))
    if not found and not settings.is_in_summary:
        return NO_REPORTING
    return Reporting(found, is_in_summary=settings.is_in_summary)


def _named(name: str) -> Reporter:
    if name == LOG:
        return _log
    try:
        return _loaded(name)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # of any code of others: a module may call sys.exit
        raise OptionError(
            f"Cannot report to {name!r}: {described(problem)}. Option 'metrics-reporter' takes "
            f"'{LOG}', a function as module:function that the driver can import, or the name of an entry point of "
            f"group {ENTRY_POINTS}."
        ) from problem


def _loaded(name: str) -> Reporter:
    module, colon, function = name.partition(":")
    if colon:
        found: Callable[..., object] = getattr(import_module(module), function)
    else:
        points = entry_points(group=ENTRY_POINTS, name=name)
        if not points:
            raise LookupError("no installed package has an entry point of that name")
        found = next(iter(points)).load()
    if not callable(found):
        raise TypeError("it is not callable")
    if iscoroutinefunction(found) or iscoroutinefunction(type(found).__call__):
        raise TypeError("it is a coroutine function, and would never be awaited")
    return found


def _log(report: CommitReport) -> None:
    """Log a report; print it where no line of level INFO would be seen, as in the processes that Spark starts."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info("%s", report.to_json())
    else:
        print(report.to_json(), file=sys.stderr)  # noqa: T201  # what the user asked for
