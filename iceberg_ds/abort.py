"""Cleans up after a write that Spark gives up, by the rules of the commit protocol.

Spark calls this in a process that does not know what a commit did, with the messages of the tasks that
succeeded: with one missing no commit ever began; with all there, a commit was tried and failed or died.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from iceberg_ds.catalog import CatalogClient
from iceberg_ds.cleanup import Proof, delete_files
from iceberg_ds.messages import reported_commits

logger = logging.getLogger(__name__)


def abort_write(catalog: CatalogClient, messages: Sequence[object]) -> None:
    """Delete the reported files if it is certain that no commit began; else leave and log them.

    Args:
        catalog: The catalog of the table.
        messages: What Spark hands to `abort`: a message per task, None for those that failed.

    Raises:
        CatalogError: The catalog could not be reached; nothing was deleted.
    """
    commits = reported_commits(messages)
    if not commits:
        return
    write = commits[0].write
    identifier = write.table.split(".")
    if len(commits) < len(messages):
        paths = [data_file.file_path for commit in commits for data_file in commit.data_files]
        left = delete_files(catalog.file_io(identifier, paths[0]), paths, Proof.NEVER_SENT) if paths else 0
        logger.info("Gave up %s before any commit: deleted %d files", write, len(paths) - left)
        return
    table = catalog.find_table(identifier)
    if table is not None and table.metadata.snapshot_by_id(write.snapshot_id) is not None:
        logger.warning("Spark gave up %s after it had landed as snapshot %d", write, write.snapshot_id)
    else:
        # The commit has deleted them if it could prove that it failed; a request may still be under way.
        logger.warning("Spark gave up %s in its commit; files with this id in their names may be left behind", write)
