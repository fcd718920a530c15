"""Rows that tasks send because they have no plan for their table: the driver plans them and writes their files.

The driver writes what all tasks sent as one task of a write of its own, so that all that holds for a task holds here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql.types import StructType

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import EpochId
from iceberg_ds.planning.plan_write import WriteMode, plan_write
from iceberg_ds.spark.session_settings import in_zone_of_option
from iceberg_ds.writers.loose import on_driver
from iceberg_ds.writers.reporting import report_task


def plan_and_write(  # noqa: PLR0913  # most are given by name
    catalog: CatalogClient,
    options: SinkOptions,
    columns: StructType,
    batches: Iterable[pa.RecordBatch],
    table: Table | None,
    *,
    mode: WriteMode,
    epoch: EpochId | None,
) -> TaskCommit:
    """Plan a write of rows and write their files; return the message of its one task.

    Args:
        catalog: The catalog of the table.
        options: Options of the write, with its table.
        columns: The columns of the rows, as Spark has them.
        batches: The rows.
        table: The table, if it is there.
        mode: What the write does; rows of a new table must lie in the range that an overwrite replaces, too.
        epoch: The micro-batch, None for a batch.

    Raises:
        IcebergSinkError: As `plan_write`, and as a task of the write.
    """
    own = _creating(options) if table is None else _planned_before(options)
    plan = plan_write(catalog, own, columns, mode, is_stream=epoch is not None, table=table)
    return report_task(plan.in_epoch(epoch), in_zone_of_option(plan, batches), on_driver())


def _planned_before(options: SinkOptions) -> SinkOptions:
    """Return the options without limits that were looked at when the write was planned: its rows are there by now."""
    return replace(options, max_snapshots=None, max_small_files=None)


def _creating(options: SinkOptions) -> SinkOptions:
    """Return the options without those that speak of the snapshots and the columns of a table that is there."""
    none = SinkOptions()
    return replace(
        options, validate_from_snapshot_id=none.validate_from_snapshot_id, overwrite_schema=none.overwrite_schema
    )


def appending(options: SinkOptions) -> SinkOptions:
    """Return the options without those that say what of a table is replaced or dropped: its write knows it already."""
    none = SinkOptions()
    return replace(
        _planned_before(_creating(options)),
        drop_missing_columns=none.drop_missing_columns,
        overwrite_mode=none.overwrite_mode,
        replace_where=none.replace_where,
        isolation_level=none.isolation_level,
    )
