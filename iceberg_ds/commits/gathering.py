"""The rows that tasks handed over, on their way into data files that the committer writes for all of them.

They become files by the very code that tasks write with, so that sort orders, partitions, sizes and metrics are the
same. Nothing is written before the table was loaded and looked at, so the replay of an epoch writes nothing; and
what is written counts as a file of the write from then on, with the same rules for when it may be deleted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from iceberg_ds.catalogs.client import CatalogClient
from iceberg_ds.errors import CommitMessageError
from iceberg_ds.messages import HandedOverRows, TaskCommit, WriteIdentity
from iceberg_ds.plan import WritePlan
from iceberg_ds.table_properties import write_properties
from iceberg_ds.writing.writers import TaskAttempt, TaskWriter, discarding


class GatheredRows:
    """The rows of one write that no task has written.

    Args:
        catalog: The catalog of the table.
        write: The write.
        commits: What its tasks report.
    """

    def __init__(self, catalog: CatalogClient, write: WriteIdentity, commits: Sequence[TaskCommit]) -> None:
        self._catalog = catalog
        self._write = write
        self._parts = [commit.rows for commit in commits if commit.rows is not None]
        # No task has this number, so no task's file has such a name.
        self._partition_id = len(commits)
        self._tries = itertools.count()
        self._is_written = not self._parts

    @property
    def record_count(self) -> int:
        """How many rows there are."""
        return sum(part.record_count for part in self._parts)

    @property
    def spec_ids(self) -> set[int]:
        """Their partition specs."""
        return {part.spec_id for part in self._parts}

    def write_once(self, table: Table, *, is_new: bool) -> tuple[DataFile, ...]:
        """Write the rows, unless that was done before, and return the new files.

        Args:
            table: The table as the commit has just loaded it.
            is_new: Whether the commit creates it.

        Raises:
            DataFileError: They could not be written, and no file is left of them, or its path was logged.
            CommitMessageError: They do not have the columns of the table.
        """
        if self._is_written:
            return ()
        plan = _plan(self._catalog, table, self._write, self._parts[0], is_new=is_new)
        writer = TaskWriter(plan, TaskAttempt(partition_id=self._partition_id, task_attempt_id=next(self._tries)))
        with discarding(writer, plan):
            for rows in self._batches(writer.file_schema):
                writer.write_conformed(rows)
            data_files = writer.close()
        self._is_written = True
        return data_files

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            rows = pa.ipc.open_stream(part.arrow_stream).read_all()
            if rows.schema != schema or rows.num_rows != part.record_count:
                raise CommitMessageError(
                    f"Cannot commit {self._write}, nothing was committed: {rows.num_rows} rows that a task handed over "
                    f"have the columns {rows.schema.names}, and {part.record_count} were to have {schema.names}."
                )
            yield from rows.to_batches()


def _plan(
    catalog: CatalogClient, table: Table, write: WriteIdentity, part: HandedOverRows, *, is_new: bool
) -> WritePlan:
    """Return the plan that the tasks had, with storage opened as it is now."""
    metadata = table.metadata
    # Another writer may have created the table first, as the same one: the ids are those that were planned.
    planned = metadata if write.new_table is None else TableMetadataUtil.parse_raw(write.new_table)
    schema = write.schema_change.schema if write.schema_change else planned.schema_by_id(write.schema_id)
    return WritePlan(
        table=write.table,
        table_uuid=write.table_uuid,
        route=write.route,
        schema=schema or planned.schema(),
        spec=planned.specs()[part.spec_id],
        sort_order=None if part.sort_order_id is None else planned.sort_order_by_id(part.sort_order_id),
        location=metadata.location,
        properties=write_properties(metadata.properties),
        io_properties=catalog.io_properties if is_new else catalog.plan_properties(table),
        operation_id=write.operation_id,
        snapshot_id=write.snapshot_id,
        files=write.files,
        location_provider=write.location_provider,
    )
