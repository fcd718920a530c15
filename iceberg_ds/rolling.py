"""The files of one task: of each table partition one after the other, each of about the target size.

Rows wait until they make a row group. How large a row group becomes is estimated from those before it,
with care: an estimate that turns out too low would make the file too large, one that is too high
only costs another row group. Knows neither Spark nor the catalog.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.locations import load_location_provider

from iceberg_ds.cleanup import Proof, delete_files
from iceberg_ds.leaves import leaf_columns
from iceberg_ds.parquet import ParquetFile
from iceberg_ds.partitioning import PartitionKey, PartitionPath
from iceberg_ds.plan import WritePlan
from iceberg_ds.storage import file_io

# Arrow bytes of one row group at most, unless the table says how large one is; compressed it is a third or less.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Arrow bytes of one row group at most for each byte of the size that the table says.
MOST_EXPANSION = 4
# Column chunks in the footers of all open files at most: a footer stays in memory until its file is finished,
# at about 2 kB a chunk.
MAX_OPEN_COLUMN_CHUNKS = 40_000
# A file that is this close to its target size is full: the next row group would be tiny.
FULL_AT = 0.97
# The share of what is missing that a row group may take while its size is a guess.
CAREFUL = 0.6
# What is missing to the target size is filled up at once if it is no more than this share of it.
NEAR = 0.1
# Row groups that compress as alike as this tell how the next one will.
STEADY = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """Which attempt of which task writes.

    Attributes:
        partition_id: Number of the DataFrame's partition, from 0.
        task_attempt_id: Unique among all attempts of all tasks of the Spark application.
    """

    partition_id: int
    task_attempt_id: int
