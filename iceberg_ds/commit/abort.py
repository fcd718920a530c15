"""Cleans up after a write that Spark gives up, by the rules of the commit protocol.

Spark calls this in a process that does not know what a commit did, with the messages of the tasks that
succeeded: with one missing no commit ever began; with all there, a commit was tried and failed or died.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.write_files import Added
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.messages import TaskCommit, reported_commits
from iceberg_ds.table.names import parse_identifier

logger = logging.getLogger(__name__)


def abort_write(catalog: CatalogClient, messages: Sequence[object]) -> None:
    """Delete the reported files if it is certain that no commit began; else leave and log them.

    Args:
        catalog: The catalog of the table.
        messages: What Spark hands to `abort`: a message per task, None for those that failed.

    Raises:
        CatalogError: The catalog could not be reached; nothing was deleted.
    """
    fault_point(FaultPoint.ABORT_BEGUN)
    commits = reported_commits(messages)
    if not commits:
        return
    write = commits[0].write
    identifier = parse_identifier(write.table)
    if len(commits) < len(messages):
        left = delete_reported_files(catalog, commits)
        reported = Added.of(commits).file_count
        logger.info("Gave up %s before any commit: it had %d files, and %d could not be deleted", write, reported, left)
        return
    table = catalog.find_table(identifier)
    if table is not None and table.metadata.snapshot_by_id(write.snapshot_id) is not None:
        logger.warning("Spark gave up %s after it had landed as snapshot %d", write, write.snapshot_id)
    else:
        # The commit has deleted them if it could prove that it failed; a request may still be under way.
        logger.warning("Spark gave up %s in its commit; files with this id in their names may be left behind", write)


def delete_reported_files(catalog: CatalogClient, commits: Sequence[TaskCommit]) -> int:
    """Delete the files of a write of which no commit was ever sent; return how many could not be deleted.

    Raises:
        CatalogError: The catalog could not be reached; nothing was deleted.
    """
    added = Added.of(commits)
    path = added.any_path()
    if path is None:
        return 0
    io = catalog.file_io(parse_identifier(commits[0].write.table), path)
    return delete_files(io, added.every_path(io), Proof.NEVER_SENT)
