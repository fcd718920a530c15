"""The only place that deletes files of tables, and only with a stated proof that no table refers to them.

docs/verify.md says who may delete which files, and on which proof. A file that cannot be deleted is logged with its
path and left: an unreferenced file costs space, a missing file breaks the table.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from itertools import islice
from typing import TypeAlias

from pyiceberg.io import FileIO, OutputStream

from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.stores import DeletesMany, DiscardableStream
from iceberg_ds.secrets import mask_text

logger = logging.getLogger(__name__)

# How many files one request deletes, where a store deletes several at once.
_BULK = 1000
# Calls a function with each of the items, and yields what it returns, in their order.
_Each: TypeAlias = Callable[..., Iterator[dict[str, str] | None]]


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
    return sum(not gone for _, gone in delete_in_portions(io, paths, proof))


def delete_in_portions(
    io: FileIO, paths: Iterable[str], proof: Proof, at_once: int | None = None
) -> Iterator[tuple[str, bool]]:
    """Delete the files of a stream and yield each with whether it is gone; in memory is a portion of them.

    Args:
        io: Opens the storage of the files.
        paths: Full locations; a file that does not exist counts as deleted.
        proof: Why no table refers to the files; it is logged.
        at_once: How many requests are under way at once; None for one.
    """
    remaining, workers = iter(paths), at_once or 1
    with ThreadPoolExecutor(workers, thread_name_prefix="iceberg-ds-delete") as pool:
        each: _Each = pool.map if workers > 1 else map
        while portion := list(islice(remaining, _BULK * workers)):
            fault_point(FaultPoint.CLEANING_UP)
            problems = _delete(io, portion, each)
            for path in portion:
                if path in problems:
                    reason = mask_text(problems[path], io.properties)
                    logger.warning("Left behind %s, which no table refers to (%s): %s", path, proof.value, reason)
                else:
                    logger.debug("Deleted %s: %s", path, proof.value)
            yield from ((path, path not in problems) for path in portion)


def discard_output(
    io: FileIO, path: str, stream: OutputStream, before_close: Callable[[], object] = lambda: None
) -> None:
    """Close and delete a file that is being written, in any state.

    Args:
        io: Opens the storage of the file.
        path: Its full location; nothing refers to the file yet.
        stream: The stream into it.
        before_close: Ends what writes into the stream; it may raise.
    """
    is_discarded = isinstance(stream, DiscardableStream)
    if isinstance(stream, DiscardableStream):  # before anything closes it, which would make the file appear
        stream.discard()
    # An open Arrow stream to an object store would hang the interpreter at exit.
    with contextlib.suppress(Exception):
        before_close()
    with contextlib.suppress(Exception):
        stream.close()
    if not is_discarded:
        delete_files(io, [path], Proof.TASK_FAILED)


def _delete(io: FileIO, paths: list[str], each: _Each) -> dict[str, str]:
    """Delete the files, many at once if the store can; return the reason for each that could not be deleted."""
    problems: dict[str, str] = {}
    left: list[str] = []
    parts = [paths[first : first + _BULK] for first in range(0, len(paths), _BULK)]
    for part, found in zip(parts, each(lambda part: _delete_at_once(io, part), parts), strict=True):
        if found is None:
            left += part
        else:
            problems |= found
    for found in each(lambda path: _delete_one(io, path), left):
        problems |= found or {}
    return problems


def _delete_at_once(io: FileIO, paths: list[str]) -> dict[str, str] | None:
    """Return the reason for each file that could not be deleted, or None if the store cannot delete many at once."""
    if len(paths) == 1 or not isinstance(io, DeletesMany):
        return None
    try:
        return io.delete_many(paths)
    except Exception as error:  # not every store with S3's interface knows this request
        logger.debug("Cannot delete %d files at once: %s", len(paths), mask_text(str(error), io.properties))
        return None


def _delete_one(io: FileIO, path: str) -> dict[str, str]:
    try:
        io.delete(path)
    except FileNotFoundError:
        return {}
    except Exception as error:  # the caller has its own outcome to report
        return {path: str(error)}
    return {}
