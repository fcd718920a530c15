"""Reads the rows of a data file, batch by batch.

Rests on PyIceberg's inner parts (contract tests hold them), because its public scan takes all rows of a file into
memory before it returns the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_all_delete_files, _task_to_record_batches
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType


def read_rows(metadata: TableMetadata, io: FileIO, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, without those that are deleted by position.

    Args:
        metadata: The table, whose columns the batches have in its order.
        io: Opens the table's storage.
        task: The file, and the position deletes that apply to it.
    """
    schema = metadata.schema()
    own_values = {
        field_id for field_id in schema.field_ids if not isinstance(schema.find_type(field_id), ListType | MapType)
    }
    return _task_to_record_batches(
        io,
        task,
        bound_row_filter=AlwaysTrue(),
        projected_schema=schema,
        table_schema=schema,
        projected_field_ids=own_values,
        positional_deletes=_read_all_delete_files(io, [task]).get(task.file.file_path),
        case_sensitive=True,
        name_mapping=metadata.name_mapping(),
        partition_spec=metadata.specs().get(task.file.spec_id),
        format_version=metadata.format_version,
    )
