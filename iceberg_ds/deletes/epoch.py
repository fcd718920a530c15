"""Commits a micro-batch by keys in one snapshot that every reader can read at once: no equality delete is in it.

The tasks write the rows, and files of the keys to look for, as those of an upsert do. The commit, which has no Spark,
looks the keys up in an index on the driver's disk, hides the old rows by position, and adds the new ones. Other writers
may change the table at any time: each attempt to commit looks at what it lists by then (`search`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.commit.retry import find_patiently
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite, giving_up
from iceberg_ds.deletes.upsert import UpsertCommit
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.messages import complete_commits
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WriteIdentity, WritePlan
from iceberg_ds.table.names import parse_identifier


def commit_epoch(
    catalog: CatalogClient, options: SinkOptions, messages: Sequence[object], *, epoch_id: int | None
) -> CommitResult:
    """Commit what the tasks of a micro-batch report, in the place of the table's rows with the same keys.

    Args:
        catalog: The catalog of the table.
        options: The options of the write.
        messages: What Spark hands to `commit`: a message for each task.
        epoch_id: The micro-batch that Spark commits.

    Raises:
        IcebergSinkError: As `commit_write` and `upsert`.
    """
    commits = complete_commits(messages, epoch_id=epoch_id)
    write = commits[0].write
    with giving_up(catalog, [TableWrite(commits=commits)]):
        table = find_patiently(catalog, parse_identifier(write.table))
        plan = _plan(catalog, write, table)
    upsert = UpsertCommit(catalog, plan, "position", None, options, has_index=True)
    return upsert.commit(commits, epoch_id=epoch_id, table=table)


def _plan(catalog: CatalogClient, write: WriteIdentity, table: Table | None) -> WritePlan:
    """Return the plan of files that hide rows, with storage opened as it is now."""
    if table is not None:
        return WritePlan.into(table.metadata, write, catalog.plan_properties(table))
    if write.new_table is None:
        raise CommitConflictError(
            f"Cannot commit {write}, nothing was committed: the table was dropped or renamed before its rows were "
            "committed. Run the write again."
        )
    return WritePlan.into(planned_metadata(write.new_table), write, catalog.io_properties)
