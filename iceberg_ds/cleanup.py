"""The only place that deletes files, and only with a stated proof that no table refers to them.

A file that cannot be deleted is logged with its path and left: an unreferenced file costs space, a
missing one breaks the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum

from pyiceberg.io import FileIO

logger = logging.getLogger(__name__)


class Proof(Enum):
    """Why no table can refer to a file, now or later."""

    TASK_FAILED = "the task attempt that wrote it sends no message"
    NEVER_SENT = "no commit that names it was ever sent to the catalog"
    REFUSED = "every commit that names it was refused, and the table's history shows none of them"
    SUPERSEDED = "the landed snapshot refers to another file in its place"


def delete_files(io: FileIO, paths: Iterable[str], proof: Proof) -> int:
    """Delete the files and return how many could not be deleted.

    Args:
        io: Opens the storage that they are in.
        paths: Full locations; one that does not exist counts as deleted.
        proof: Why nothing refers to them; it is logged.
    """
    left = 0
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except Exception as error:  # whatever a storage library raises, the caller has its own outcome to report
            left += 1
            logger.warning("Left behind %s, which no table refers to (%s): %s", path, proof.value, error)
        else:
            logger.debug("Deleted %s: %s", path, proof.value)
    return left
