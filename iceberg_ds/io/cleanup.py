"""The only place that deletes files, and only with a stated proof that no table refers to them.

docs/verify.md says who may delete which files, and on which proof. A file that cannot be deleted is logged with its
path and left: an unreferenced file costs space, a missing file breaks the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum

from pyiceberg.io import FileIO

from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.stores import DeletesMany
from iceberg_ds.secrets import mask_text

logger = logging.getLogger(__name__)


class Proof(Enum):
    """Why no table can refer to a file, now or later."""

    TASK_FAILED = "the task attempt that wrote it sends no message"
    NEVER_SENT = "no commit that names it was ever sent to the catalog"
    REFUSED = "every commit that names it was refused, and the table's history shows none of them"
    DROPPED = "the table was made for a moment and is dropped"
    SUPERSEDED = "the landed snapshot refers to another file in its place"
    EXPIRED = "only removed snapshots refer to it, and two loads of the table after their removal show no other"
    UNREFERENCED = "two loads of the table show nothing that refers to it, and it is older than any running write"


def delete_files(io: FileIO, paths: Iterable[str], proof: Proof) -> int:
    """Delete the files and return how many could not be deleted.

    Args:
        io: Opens the storage of the files.
        paths: Full locations; a file that does not exist counts as deleted.
        proof: Why no table refers to the files; it is logged.
    """
    every_path = list(paths)
    if every_path:
        fault_point(FaultPoint.CLEANING_UP)
    problems = _delete_at_once(io, every_path) if len(every_path) > 1 else None
    if problems is None:
        problems = _delete_one_by_one(io, every_path)
    for path in every_path:
        if path in problems:
            reason = mask_text(problems[path], io.properties)
            logger.warning("Left behind %s, which no table refers to (%s): %s", path, proof.value, reason)
        else:
            logger.debug("Deleted %s: %s", path, proof.value)
    return len(problems)


def _delete_at_once(io: FileIO, paths: list[str]) -> dict[str, str] | None:
    """Return the reason for each file that could not be deleted, or None if the store cannot delete many at once."""
    if not isinstance(io, DeletesMany):
        return None
    try:
        return io.delete_many(paths)
    except Exception as error:  # not every store with S3's interface knows this request
        logger.debug("Cannot delete %d files at once: %s", len(paths), mask_text(str(error), io.properties))
        return None


def _delete_one_by_one(io: FileIO, paths: list[str]) -> dict[str, str]:
    problems = {}
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except Exception as error:  # the caller has its own outcome to report
            problems[path] = str(error)
    return problems
