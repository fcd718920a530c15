"""Files of the size that was asked for, whatever the codec, the rows and the way they are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from support.tables.sink import local

from iceberg_ds.plan import FileSettings, Route, WriteIdentity, WritePlan
from iceberg_ds.writers import rolling
from iceberg_ds.writers.parquet import BLOOM_FILTERS, can_honour
from iceberg_ds.writers.rolling import GroupSizes
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

MB = 1024 * 1024
CODECS = ["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"]
SCHEMA = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "p", ice.LongType()),
    NestedField(3, "text", ice.StringType()),
    NestedField(4, "x", ice.DoubleType()),
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
BY_ID = SortOrder(SortField(1, IdentityTransform()))


def plan(
    folder: Path, codec: str = "zstd", *, partitioned: bool = False, in_order: bool = False, **files: Any
) -> WritePlan:
    """Return the plan of a write of `SCHEMA`."""
    files = {"target_file_size_bytes": MB, "compression_level": 1 if codec in {"gzip", "brotli"} else None, **files}
    return WritePlan(
        write=WriteIdentity(
            table="db.t",
            table_uuid="",
            route=Route(branch="main"),
            operation_id="op",
            snapshot_id=1,
            schema_id=0,
            files=FileSettings(compression_codec=codec, metrics_properties={}, **files),
        ),
        schema=SCHEMA,
        spec=BY_P if partitioned else PartitionSpec(),
        sort_order=BY_ID if in_order else None,
        location=f"file://{folder}",
        properties={},
        io_properties={},
    )


def write(planned: WritePlan, rows: list[pa.RecordBatch]) -> tuple[DataFile, ...]:
    """Write the rows in one task."""
    return write_task(planned, rows, TaskAttempt(partition_id=0, task_attempt_id=0))


@cache
def incompressible(batches: int = 10, rows: int = 10_000) -> list[pa.RecordBatch]:
    """Return random rows in two partitions, 6 MB of them."""
    draw = random.Random(7)  # noqa: S311  # the same rows every time

    def numbers() -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(draw.randbytes(8 * rows))])

    def texts() -> pa.Array:
        offsets = pa.array(range(0, 36 * rows + 1, 36), pa.int32()).buffers()[1]
        return pa.StringArray.from_buffers(rows, offsets, pa.py_buffer(draw.randbytes(18 * rows).hex().encode()))

    return [batch(numbers(), texts(), numbers().view(pa.float64())) for _ in range(batches)]


@cache
def compressible(batches: int = 30, rows: int = 20_000) -> list[pa.RecordBatch]:
    """Return rows in two partitions that become an eighth with zstd, 44 MB of them."""
    draw = random.Random(7)  # noqa: S311  # the same rows every time
    texts = pa.array(
        [f"order {draw.randrange(5000)} of customer {draw.randrange(300)}, to deliver" for _ in range(rows)]
    )

    def numbers(start: int) -> pa.Array:
        return pa.array([number * 7919 % 1_000_003 for number in range(start, start + rows)], pa.int64())

    shuffled = [pa.array(draw.sample(range(rows), rows)) for _ in range(batches)]
    hundredths = pa.array([float(number % 100) for number in range(rows)])
    return [batch(numbers(rows * number), texts.take(order), hundredths) for number, order in enumerate(shuffled)]


def batch(ids: pa.Array, texts: pa.Array, numbers: pa.Array) -> pa.RecordBatch:
    """Return rows of `SCHEMA`, alternately in two partitions."""
    partitions = pa.array([row % 2 for row in range(len(ids))], pa.int64())
    return pa.RecordBatch.from_arrays([ids, partitions, texts, numbers], names=["id", "p", "text", "x"])


def full_files(files: tuple[DataFile, ...]) -> list[DataFile]:
    """Return all files but the last of each partition."""
    by_partition: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        by_partition.setdefault(tuple(file.partition), []).append(file)
    return [file for own in by_partition.values() for file in own[:-1]]


def check_sizes(files: tuple[DataFile, ...], target: int = MB) -> None:
    """Assert that there are full files, that these have the target size, and that no other is larger."""
    sizes = [file.file_size_in_bytes / target for file in full_files(files)]
    assert sizes
    assert 0.9 <= min(sizes) <= max(sizes) <= 1.1, sizes
    assert all(file.file_size_in_bytes <= 1.1 * target for file in files)


WAYS = {
    "plain": {},
    "partitioned": {"partitioned": True},
    "sorted": {"in_order": True},
    "partitioned and sorted": {"partitioned": True, "in_order": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("group_bytes", [MB // 3, 64 * MB], ids=["many groups", "few groups"])
@pytest.mark.parametrize("data", [compressible, incompressible])
def test_files_have_the_target_size_however_rows_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Any, group_bytes: int, way: str
) -> None:
    """A table would get files of any size but the one that its user asked for."""
    monkeypatch.setattr(rolling, "ROW_GROUP_BYTES", group_bytes)

    files = write(plan(tmp_path, **WAYS[way]), data())

    check_sizes(files)
    assert sum(file.record_count for file in files) == sum(rows.num_rows for rows in data())


@pytest.mark.parametrize("way", ["plain", "partitioned and sorted"])
@pytest.mark.parametrize("data", [compressible, incompressible])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_files_have_the_target_size_with_every_codec(tmp_path: Path, codec: str, data: Any, way: str) -> None:
    """The size would be right with the codec alone that it was tried with."""
    check_sizes(write(plan(tmp_path, codec, **WAYS[way]), data()))


DOCUMENTS = Schema(
    NestedField(1, "doc", ice.StringType()),
    *(NestedField(number, f"b{number}", ice.BooleanType()) for number in (2, 3, 4)),
)


def documents(*lengths: int | None) -> pa.RecordBatch:
    """Return rows of `DOCUMENTS` with texts of these lengths, and bits, which take less than a byte a row."""
    texts = pa.array([None if length is None else "x" * length for length in lengths])
    return pa.RecordBatch.from_arrays([texts, *[pa.array([True] * len(lengths))] * 3], names=DOCUMENTS.column_names)


@pytest.mark.parametrize("way", ["plain", "sorted"])
@pytest.mark.parametrize("group_bytes", [None, 1_000], ids=["default", "as the table says"])
def test_last_row_of_a_batch_is_written_whatever_the_bytes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_bytes: int | None, way: str
) -> None:
    """The last row would be dropped in silence: sizes of slices are rounded up, and left nothing for it."""
    monkeypatch.setattr(rolling, "ROW_GROUP_BYTES", 4_000)
    settings = {"target_file_size_bytes": 512 * MB, "row_group_size_bytes": group_bytes}
    planned = replace(plan(tmp_path, **WAYS[way], **settings), schema=DOCUMENTS)

    files = write(planned, [documents(5_000, 5_000, None)])

    assert sum(file.record_count for file in files) == 3


@pytest.mark.parametrize("order", [[1, 2, 3], [2, 1, 3], [1, 3, 2]])
def test_columns_of_type_unknown_are_left_out_of_files(tmp_path: Path, order: list[int]) -> None:
    """Readers would find a column that the spec keeps out, or metrics of another column under its name."""
    kinds = {1: ice.UnknownType(), 2: ice.DoubleType(), 3: ice.StringType()}
    schema = Schema(*(NestedField(number, f"c{number}", kinds[number], required=False) for number in order))
    columns = {1: pa.nulls(3), 2: pa.array([1.5, float("nan"), None]), 3: pa.array(["a", "b", "b"])}
    sent = pa.RecordBatch.from_arrays([columns[number] for number in order], names=[f"c{number}" for number in order])

    (file,) = write(replace(plan(tmp_path), schema=schema), [sent])

    assert pq.read_schema(local(file.file_path)).names == [f"c{number}" for number in order if number != 1]
    assert (file.value_counts, file.null_value_counts) == ({2: 3, 3: 3}, {2: 1, 3: 0})
    assert (file.nan_value_counts, file.lower_bounds[3]) == ({2: 1}, b"a")


@pytest.mark.parametrize("target", [2 * MB, 4 * MB])
def test_larger_targets_are_met_as_well(tmp_path: Path, target: int) -> None:
    """The size would be right by chance alone."""
    check_sizes(write(plan(tmp_path, target_file_size_bytes=target), incompressible(25)), target)


def test_known_compression_makes_few_row_groups(tmp_path: Path) -> None:
    """Files would have a row of ever smaller row groups, which are slow to read."""
    files = full_files(write(plan(tmp_path, "snappy"), incompressible()))

    assert len(files) > 2
    assert all(len(file.split_offsets or []) <= 2 for file in files[1:])


def test_files_stay_near_the_target_when_rows_come_to_compress_less(tmp_path: Path) -> None:
    """A file that begins with rows that compress well would become many times too large."""
    changing = [rows for pair in zip(compressible()[:10], incompressible(), strict=True) for rows in pair]

    files = write(plan(tmp_path), changing)

    assert len(files) > 3
    assert all(file.file_size_in_bytes <= 1.5 * MB for file in files)


def wide(columns: int, rows: int) -> tuple[Schema, pa.RecordBatch]:
    """Return random rows of many columns."""
    draw = random.Random(7)  # noqa: S311  # the same rows every time
    schema = Schema(*(NestedField(number, f"c{number}", ice.LongType()) for number in range(1, columns + 1)))
    values = [
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(draw.randbytes(8 * rows))]) for _ in range(columns)
    ]
    return schema, pa.RecordBatch.from_arrays(values, names=[f"c{number}" for number in range(1, columns + 1)])


def test_footer_counts_for_the_size(tmp_path: Path) -> None:
    """Files of a wide table would be larger than asked for by their footers."""
    schema, rows = wide(500, 1_500)
    planned = replace(plan(tmp_path), schema=schema)

    check_sizes(write(planned, [rows]))


@pytest.mark.skipif(not can_honour(BLOOM_FILTERS), reason="this pyarrow writes no Bloom filters")
def test_bloom_filters_count_for_the_size(tmp_path: Path) -> None:
    """Files with Bloom filters would be larger than asked for."""
    check_sizes(write(plan(tmp_path, bloom_filter_fpp={1: 0.01}, bloom_filter_max_bytes=MB // 32), incompressible()))


@pytest.mark.parametrize("data", [compressible, incompressible])
def test_row_groups_have_the_compressed_size_that_the_table_says(tmp_path: Path, data: Any) -> None:
    """A table's row group size would be ignored."""
    size = MB // 4
    # Else the compressible rows become less than a quarter, and a row group has four times its size in memory at most.
    settings = {"row_group_size_bytes": size, "parquet_encodings": "classic"}
    files = write(plan(tmp_path, "snappy", target_file_size_bytes=64 * MB, **settings), data())

    groups = [group for file in files for group in sizes_of_groups(file)]
    assert len(groups) > 8
    assert all(0.8 * size <= group <= 1.2 * size for group in groups[2:-1])


def test_row_groups_may_be_larger_than_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that asks for large row groups would get the default ones."""
    monkeypatch.setattr(rolling, "ROW_GROUP_BYTES", MB // 8)
    asked = plan(tmp_path, "snappy", target_file_size_bytes=64 * MB, row_group_size_bytes=MB)

    (file,) = write(asked, incompressible())

    assert max(sizes_of_groups(file)) >= 0.9 * MB


def sizes_of_groups(file: DataFile) -> Iterator[int]:
    """Yield the compressed size of each row group."""
    footer = pq.read_metadata(local(file.file_path))
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield sum(group.column(column).total_compressed_size for column in range(footer.num_columns))


def test_memory_for_a_row_group_is_bounded_however_well_it_compresses() -> None:
    """A table that asks for large row groups would take gigabytes of memory for constant columns."""
    sizes = GroupSizes(target=1_000_000, group_size=1_000)

    for _ in range(5):
        arrow_bytes = sizes.next_group(written=1)
        sizes.note(arrow_bytes, written=1)

    assert arrow_bytes == 4_000


def test_first_row_group_of_a_file_leaves_room_for_a_surprise() -> None:
    """A file would be too large as soon as its rows compress less than those of the file before."""
    sizes = GroupSizes(target=1_000, group_size=None)

    assert sizes.next_group(written=0) == 600
    for _ in range(3):
        sizes.note(arrow_bytes=2_000, written=500)
    assert sizes.next_group(written=0) == 2_400
    assert sizes.next_group(written=500) == 2_000  # known by now
    sizes.note(arrow_bytes=500, written=450)
    assert sizes.next_group(written=500) == 333  # no longer
    assert sizes.next_group(written=950) == 55  # little is missing


def test_small_row_groups_teach_nothing() -> None:
    """Leftovers, which hardly compress, would spoil the estimate for the next file."""
    sizes = GroupSizes(target=1_000_000, group_size=None)
    sizes.note(arrow_bytes=2_000_000, written=500_000)

    sizes.note(arrow_bytes=100, written=100)

    assert sizes.next_group(written=0) == 2_400_000


def test_what_a_row_group_takes_beside_its_rows_is_left_room_for() -> None:
    """Files would be too large by the Bloom filters of their last row group."""
    sizes = GroupSizes(target=1_000, group_size=None)
    for _ in range(3):
        sizes.note(arrow_bytes=500, written=250, overhead=80)

    assert sizes.next_group(written=500) == 2 * (500 - 80)
    assert sizes.is_full(written=930)  # 1,010 with one row more
    assert not sizes.is_full(written=890)
