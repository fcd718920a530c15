"""Random rows written in every way: each is in one file, once, however large it is and however small row groups are."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DoubleType, LongType, NestedField, StringType
from support.tables.sink import local

from iceberg_ds.plan import FileSettings, Route, WriteIdentity, WritePlan
from iceberg_ds.writers import rolling, spill, task_writer
from iceberg_ds.writers import rolling as buffers
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

_folders = itertools.count()
_KB = 1024
# Lengths of texts, None for null: what a row takes in memory spans five orders of magnitude.
_LENGTHS = (None, None, 0, 1, 40, 700, 20_000)
_TASKS = 12
_PARTITIONS = (None, 0.0, -0.0, float("nan"), 1.5, 2.5, 3.5)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A write of many tasks, because most of what can go wrong does so where the rows of a task end.

    Attributes:
        seed: Of the rows' values.
        most_rows: How many rows a batch has at most.
        booleans: How many columns of bits there are, each of which a slice rounds up to bytes.
        is_partitioned: Whether rows go to the partitions of column `p`.
        is_sorted: Whether they are in the order of column `text`.
        files: Settings of the files.
        buffer_bytes: Arrow bytes in all buffers at most, if row groups are not larger.
        run_bytes: Arrow bytes that are sorted at once.
    """

    seed: int
    most_rows: int
    booleans: int
    is_partitioned: bool
    is_sorted: bool
    files: dict[str, Any]
    buffer_bytes: int
    run_bytes: int

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        bits = [NestedField(number, f"b{number}", BooleanType()) for number in range(4, 4 + self.booleans)]
        return Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "p", DoubleType()),
            NestedField(3, "text", StringType()),
            *bits,
        )

    def tasks(self) -> list[list[pa.RecordBatch]]:
        """Return the batches of each task; every row has another id."""
        draw = random.Random(self.seed)  # noqa: S311  # the same rows every time
        numbers = itertools.count()
        return [
            [self._batch(draw, numbers, draw.randint(0, self.most_rows)) for _ in range(draw.randint(1, 3))]
            for _ in range(_TASKS)
        ]

    def _batch(self, draw: random.Random, numbers: itertools.count[int], count: int) -> pa.RecordBatch:
        lengths = [draw.choice(_LENGTHS) for _ in range(count)]
        columns = [
            pa.array([next(numbers) for _ in range(count)], pa.int64()),
            pa.array([draw.choice(_PARTITIONS) for _ in range(count)], pa.float64()),
            pa.array([None if length is None else chr(97 + length % 26) * length for length in lengths], pa.string()),
            *(
                pa.array([draw.choice((None, True, False)) for _ in range(count)], pa.bool_())
                for _ in range(self.booleans)
            ),
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(self.schema.column_names))

    def plan(self, folder: Path) -> WritePlan:
        """Return the plan of the write."""
        by_p = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
        return WritePlan(
            write=WriteIdentity(
                table="db.t",
                table_uuid="",
                route=Route(branch="main"),
                operation_id="op",
                snapshot_id=1,
                schema_id=0,
                files=FileSettings(
                    compression_codec="zstd", compression_level=None, metrics_properties={}, **self.files
                ),
            ),
            schema=self.schema,
            spec=by_p if self.is_partitioned else PartitionSpec(),
            sort_order=SortOrder(SortField(3, IdentityTransform())) if self.is_sorted else None,
            location=f"file://{folder}",
            properties={},
            io_properties={},
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a write: few rows or thousands, row groups of a few bytes or of many rows."""
    return Case(
        seed=draw(st.integers(0, 2**32)),
        most_rows=draw(st.sampled_from([3, 9, 40])),
        booleans=draw(st.integers(0, 9)),
        is_partitioned=draw(st.booleans()),
        is_sorted=draw(st.booleans()),
        files={
            "target_file_size_bytes": draw(st.sampled_from([200, 4 * _KB, 64 * _KB, 512 * _KB * _KB])),
            "row_group_size_bytes": draw(st.sampled_from([None, 1, 100, 1_000, 20_000])),
            "max_open_files": draw(st.sampled_from([1, 2, 100])),
        },
        buffer_bytes=draw(st.sampled_from([1, 10 * _KB, 64 * _KB * _KB])),
        run_bytes=draw(st.sampled_from([_KB, 64 * _KB, 64 * _KB * _KB])),
    )


@given(case=cases())
def test_every_row_is_in_one_file(tmp_path: Path, case: Case) -> None:
    """Rows would be dropped in silence, or come twice, depending on how many bytes their neighbours have."""
    plan, tasks = case.plan(tmp_path / str(next(_folders))), case.tasks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "BUFFER_BYTES", case.buffer_bytes)
        patch.setattr(rolling, "LEAST_ROW_GROUP_BYTES", case.buffer_bytes)
        patch.setattr(rolling, "IDLE_BYTES", 10 * case.buffer_bytes)
        patch.setattr(task_writer, "SPLIT_BYTES", case.buffer_bytes)
        patch.setattr(spill, "RUN_BYTES", case.run_bytes)
        patch.setattr(spill, "CHUNK_BYTES", max(1, case.run_bytes // 8))
        files = [
            write_task(plan, batches, TaskAttempt(partition_id=number, task_attempt_id=0))
            for number, batches in enumerate(tasks)
        ]

    for batches, written in zip(tasks, files, strict=True):
        sent = [pa.Table.from_batches([batch]) for batch in batches]
        assert _rows([pq.read_table(local(file.file_path)) for file in written]) == _rows(sent)
        assert sum(file.record_count for file in written) == sum(batch.num_rows for batch in batches)


def _rows(tables: list[pa.Table]) -> list[str]:
    """Return the rows in order, in a form in which NaN is equal to itself and zeros of either sign are not equal."""
    return sorted(repr(tuple(row.values())) for table in tables for row in table.to_pylist())
