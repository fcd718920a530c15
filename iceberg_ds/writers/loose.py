"""Rows of tables that a task has no plan for, such as new ones: a task sends them in its message.

A task has neither the credentials of the catalog nor a place for such files, so the driver plans and writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from iceberg_ds.errors import DataFileError
from iceberg_ds.messages import LooseRows
from iceberg_ds.writers.task_writer import TaskAttempt

# The most bytes, in memory, of such rows in the message of a task, because the driver has all messages at once.
MOST_LOOSE_BYTES = 64 * 1024 * 1024

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def on_driver(partition_id: int = 0) -> TaskAttempt:
    """Return the attempt by which the driver writes rows; it is no attempt of a Spark task."""
    return TaskAttempt(partition_id=partition_id, task_attempt_id=0)


def loose_rows(table: str, columns: str, batches: Sequence[pa.RecordBatch]) -> LooseRows:
    """Return rows as a task sends them.

    Args:
        table: Identifier of the table.
        columns: The columns of the rows, as the JSON of a Spark `StructType`.
        batches: The rows, with these columns; at least one row.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=_COMPRESSED) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return LooseRows(
        table=table,
        columns=columns,
        record_count=sum(batch.num_rows for batch in batches),
        arrow_stream=sink.getvalue().to_pybytes(),
    )


def batches_of(parts: Sequence[LooseRows]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one table that tasks sent."""
    for part in parts:
        yield from pa.ipc.open_stream(part.arrow_stream)


def too_many_loose(tables: Sequence[str]) -> DataFileError:
    """Return the error of a task with more such rows than it may send."""
    named = ", ".join(tables[:5]) + (f" and {len(tables) - 5} more" if len(tables) > 5 else "")  # noqa: PLR2004
    return DataFileError(
        f"Cannot write to {named}: a task has more than {MOST_LOOSE_BYTES // 2**20} MiB of rows of tables that did not "
        "exist, or lacked columns, when the write was planned; only the driver can change that, and it gets such rows "
        "in messages. Nothing was committed. Create the tables first, with CREATE TABLE or a write of a few rows, or "
        "write fewer rows at once."
    )
