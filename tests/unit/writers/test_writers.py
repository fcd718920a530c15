"""From batches to files: rolling, fan-out, memory, names, and nothing left behind by a failure."""

from __future__ import annotations

import errno
import itertools
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType
from support.tables.sink import NAME, SCHEMA, Row, Sink, arrow_batch, local, rows

from iceberg_ds.errors import DataFileError, IcebergSinkError, SchemaMismatchError
from iceberg_ds.plan import WritePlan
from iceberg_ds.writers import rolling, spill, task_writer
from iceberg_ds.writers import rolling as buffers
from iceberg_ds.writers import rolling as group_sizes
from iceberg_ds.writers.parquet import ParquetFile
from iceberg_ds.writers.rolling import RollingWriter
from iceberg_ds.writers.spill import SpillFile
from iceberg_ds.writers.task_writer import FanoutWriter, TaskAttempt, TaskWriter, write_task

ATTEMPT = TaskAttempt(partition_id=3, task_attempt_id=41)
PARTITIONED = StructType(
    [StructField("id", LongType()), StructField("p", LongType()), StructField("text", StringType())]
)
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


def plan_of(
    sink: Sink, schema: StructType = SCHEMA, spec: PartitionSpec | None = None, target: int | None = None
) -> WritePlan:
    """Return the plan of a write into a new table with that spec."""
    planned = sink.plan(schema, **({} if target is None else {"target_file_size_bytes": target}))
    return planned if spec is None else replace(planned, spec=spec)


def with_files(plan: WritePlan, **settings: Any) -> WritePlan:
    """Return the plan with these settings of its files changed."""
    return replace(plan, write=replace(plan.write, files=replace(plan.write.files, **settings)))


def rows_of(writer: TaskWriter) -> FanoutWriter:
    """Return the part of an unsorted writer that holds rows."""
    assert isinstance(writer._rows, FanoutWriter)
    return writer._rows


def random_texts(count: int, seed: int = 7) -> list[Row]:
    """Return rows of `SCHEMA` that hardly compress."""
    draw = random.Random(seed)  # noqa: S311  # the same rows every time
    return [{"id": number, "name": f"{draw.getrandbits(512):x}"} for number in range(count)]


def partitioned_rows(count: int, partitions: int, seed: int = 7) -> list[Row]:
    """Return rows of `PARTITIONED` over that many partitions."""
    draw = random.Random(seed)  # noqa: S311  # the same rows every time
    return [
        {"id": number, "p": number * 7919 % partitions, "text": f"{draw.getrandbits(512):x}"} for number in range(count)
    ]


def batches(data: list[Row], schema: StructType, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of `size`."""
    for start in range(0, len(data), size):
        yield arrow_batch(data[start : start + size], schema)


def read(files: tuple[DataFile, ...]) -> list[Row]:
    """Return the rows of the files, in their order."""
    return [row for file in files for row in pq.read_table(local(file.file_path), partitioning=None).to_pylist()]


def stored(plan: WritePlan) -> list[Path]:
    """Return all files below the table's location."""
    return [path for path in local(plan.location).rglob("*") if path.is_file() and path.suffix == ".parquet"]


def test_rows_are_written_in_their_order(sink: Sink) -> None:
    """Rows would be lost, doubled or shuffled."""
    data = random_texts(1000)

    files = write_task(plan_of(sink), batches(data, SCHEMA, 64), ATTEMPT)

    assert read(files) == data
    assert sum(file.record_count for file in files) == 1000


@pytest.mark.parametrize("given", [[], [0], [0, 0]])
def test_task_without_rows_writes_no_file(sink: Sink, given: list[int]) -> None:
    """Every idle task of every micro-batch would leave an empty file."""
    plan = plan_of(sink)
    empty = arrow_batch([], SCHEMA)

    assert write_task(plan, [empty for _ in given], ATTEMPT) == ()
    assert stored(plan) == []


def test_empty_batches_between_others_are_passed_over(sink: Sink) -> None:
    """A task would fail on a batch without rows."""
    empty = arrow_batch([], SCHEMA)

    files = write_task(plan_of(sink), [empty, arrow_batch(rows(1), SCHEMA), empty], ATTEMPT)

    assert read(files) == rows(1)


@pytest.mark.parametrize("batch_rows", [10, 1000, 100_000])
def test_files_roll_at_about_the_target_size(sink: Sink, batch_rows: int) -> None:
    """A table would get files of any size but the one that its user asked for."""
    target = 200_000
    data = random_texts(12_000)

    files = write_task(plan_of(sink, target=target), batches(data, SCHEMA, batch_rows), ATTEMPT)

    sizes = [file.file_size_in_bytes for file in files]
    assert len(sizes) > 3
    assert all(0.8 * target <= size <= 1.2 * target for size in sizes[:-1])
    assert sizes[-1] <= 1.2 * target
    assert read(files) == data


def test_compressible_rows_fill_files_of_the_target_size(sink: Sink) -> None:
    """Files would be many times smaller than asked for, because rows compress well."""
    target = 60_000
    draw = random.Random(7)  # noqa: S311  # the same rows every time
    data = [{"id": number, "name": f"{draw.randrange(10**6):06d} " + "padding " * 20} for number in range(60_000)]

    files = write_task(plan_of(sink, target=target), batches(data, SCHEMA, 5_000), ATTEMPT)

    assert len(files) > 2
    assert all(0.8 * target <= file.file_size_in_bytes <= 1.25 * target for file in files[:-1])


def test_target_below_one_row_gives_a_file_per_row(sink: Sink) -> None:
    """A tiny target would loop for ever."""
    files = write_task(plan_of(sink, target=1), [arrow_batch(rows(1, 2, 3), SCHEMA)], ATTEMPT)

    assert [file.record_count for file in files] == [1, 1, 1]


def test_names_carry_partition_attempt_write_and_counter(sink: Sink) -> None:
    """Files of a dead attempt could not be found, or two attempts would write one path."""
    plan = plan_of(sink, target=1)

    files = write_task(plan, [arrow_batch(rows(1, 2), SCHEMA)], ATTEMPT)

    assert [Path(file.file_path).name for file in files] == [
        f"00003-41-{plan.write.operation_id}-00000.parquet",
        f"00003-41-{plan.write.operation_id}-00001.parquet",
    ]


def test_two_attempts_of_one_task_share_no_path(sink: Sink) -> None:
    """A speculative attempt would overwrite the file that was committed."""
    plan = plan_of(sink)
    first = write_task(plan, [arrow_batch(rows(1), SCHEMA)], TaskAttempt(partition_id=0, task_attempt_id=1))
    second = write_task(plan, [arrow_batch(rows(1), SCHEMA)], TaskAttempt(partition_id=0, task_attempt_id=2))

    assert first[0].file_path != second[0].file_path


def test_each_partition_has_its_own_files_in_its_folder(sink: Sink) -> None:
    """Rows of different partitions would be mixed in one file, and queries would miss them."""
    data = partitioned_rows(300, 3)

    files = write_task(plan_of(sink, PARTITIONED, BY_P), batches(data, PARTITIONED, 50), ATTEMPT)

    assert sorted(list(file.partition) for file in files) == [[0], [1], [2]]
    for file in files:
        (partition,) = file.partition
        assert f"/p={partition}/" in file.file_path
        assert read((file,)) == [row for row in data if row["p"] == partition]


def test_each_partition_rolls_at_about_the_target_size(sink: Sink) -> None:
    """Partitioned tables would get files of any size but the one that was asked for."""
    target = 100_000
    data = partitioned_rows(6_000, 3)

    files = write_task(plan_of(sink, PARTITIONED, BY_P, target), batches(data, PARTITIONED, 500), ATTEMPT)

    for partition in range(3):
        own = [file for file in files if list(file.partition) == [partition]]
        assert len(own) > 1
        assert all(0.8 * target <= file.file_size_in_bytes <= 1.2 * target for file in own[:-1])
        assert read(tuple(own)) == [row for row in data if row["p"] == partition]


def test_buffers_stay_below_the_limit_with_many_partitions(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would run out of memory because its rows go to many partitions."""
    limit, portion = 200_000, 50_000
    monkeypatch.setattr(buffers, "BUFFER_BYTES", limit)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", portion)
    writer = TaskWriter(plan_of(sink, PARTITIONED, BY_P), ATTEMPT)
    data = partitioned_rows(6_000, 100)
    highest = 0

    for batch in batches(data, PARTITIONED, 200):
        writer.write(batch)
        highest = max(highest, writer._files.buffers.buffered_bytes + rows_of(writer)._waiting_bytes)
    files = writer.close()

    assert portion < highest <= limit + 2 * task_writer.MOST_PORTIONS * portion
    assert sorted(row["id"] for row in read(files)) == list(range(6_000))


def test_row_groups_stay_below_the_limit(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would hold a whole file in memory, and readers as well."""
    limit = 100_000
    monkeypatch.setattr(group_sizes, "ROW_GROUP_BYTES", limit)
    written: list[int] = []
    original = ParquetFile.write_row_group

    def spy(file: ParquetFile, group: list[pa.RecordBatch]) -> None:
        written.append(sum(batch.nbytes for batch in group))
        original(file, group)

    monkeypatch.setattr(ParquetFile, "write_row_group", spy)

    files = write_task(plan_of(sink), batches(random_texts(10_000), SCHEMA, 10_000), ATTEMPT)

    assert len(files) == 1
    assert len(written) > 5
    assert max(written) <= limit * 1.1
    assert sum(file.record_count for file in files) == 10_000


def test_open_files_stay_below_the_limit(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would run out of file handles, or of memory for connections, with many partitions."""
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 20_000)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 1_000)
    monkeypatch.setattr(rolling, "LEAST_ROW_GROUP_BYTES", 1)
    writer = TaskWriter(with_files(plan_of(sink, PARTITIONED, BY_P), max_open_files=3), ATTEMPT)
    data = partitioned_rows(3_000, 12)
    most = 0

    for batch in batches(data, PARTITIONED, 100):
        writer.write(batch)
        most = max(most, len(writer._files._open))
    files = writer.close()

    assert most == 3
    assert len(files) == 12
    assert sorted(row["id"] for row in read(files)) == list(range(3_000))
    assert all({row["p"] for row in read((file,))} == set(file.partition) for file in files)


def test_footers_of_open_files_stay_below_the_limit(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long task into many partitions would need ever more memory for the row groups of its open files."""
    monkeypatch.setattr(rolling, "MAX_OPEN_COLUMN_CHUNKS", 40)
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 20_000)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 1_000)
    monkeypatch.setattr(rolling, "LEAST_ROW_GROUP_BYTES", 1)
    writer = TaskWriter(plan_of(sink, PARTITIONED, BY_P), ATTEMPT)
    most = 0

    for batch in batches(partitioned_rows(3_000, 12), PARTITIONED, 100):
        writer.write(batch)
        most = max(most, sum(file.column_chunks for file in writer._files._open.values()))
    files = writer.close()

    assert 20 < most <= 40
    assert len(files) > 12
    assert sorted(row["id"] for row in read(files)) == list(range(3_000))


def with_small_buffers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a task have room for some 60 rows of `PARTITIONED`, and its temporary file in a new folder of `folder`."""
    (folder / "spark").mkdir()
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 10_000)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 3_000)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder / "spark"))


def handles(folder: Path) -> list[str]:
    """Return the files below a folder that this process has open, also those without a name."""
    links = [str(handle.readlink()) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
    return [link for link in links if link.startswith(f"{folder}/")]


@pytest.mark.parametrize("max_open_files", [2, 100])
@pytest.mark.parametrize("group_bytes", [2_000, 64 * 1024 * 1024], ids=["many row groups", "one row group"])
def test_scattered_rows_give_one_file_per_partition_in_their_order(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group_bytes: int, max_open_files: int
) -> None:
    """A partition would get another file, or another small row group, each time that memory is short."""
    with_small_buffers(monkeypatch, tmp_path)
    monkeypatch.setattr(group_sizes, "ROW_GROUP_BYTES", group_bytes)
    plan = with_files(plan_of(sink, PARTITIONED, BY_P), max_open_files=max_open_files)
    data = partitioned_rows(3_000, 7)

    files = write_task(plan, batches(data, PARTITIONED, 100), ATTEMPT)

    assert sorted(value for file in files for value in file.partition) == list(range(7))
    for file in files:
        assert read((file,)) == [row for row in data if [row["p"]] == list(file.partition)]
        assert (len(file.split_offsets or []) > 1) == (group_bytes == 2_000)
    assert handles(tmp_path / "spark") == []


@given(
    places=st.lists(st.integers(0, 5), min_size=1, max_size=300),
    files_limits=st.tuples(st.integers(1, 3), st.sampled_from([1, 2_000, 1_000_000])),
    limits=st.tuples(*(st.integers(100, 10_000) for _ in range(5))),
)
def test_no_row_is_lost_doubled_or_moved_whatever_the_limits(
    catalog_free_plan: WritePlan, places: list[int], files_limits: tuple[int, int], limits: tuple[int, ...]
) -> None:
    """Rows that wait on disk or in memory would be forgotten, written twice, or come before those that came first."""
    data = [{"id": number, "p": p, "text": "x" * (number % 90)} for number, p in enumerate(places)]
    plan = with_files(catalog_free_plan, max_open_files=files_limits[0], target_file_size_bytes=files_limits[1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_sizes, "ROW_GROUP_BYTES", limits[0])
        patch.setattr(rolling, "LEAST_ROW_GROUP_BYTES", limits[3])
        patch.setattr(rolling, "IDLE_BYTES", limits[4])
        patch.setattr(buffers, "BUFFER_BYTES", limits[1])
        patch.setattr(task_writer, "SPLIT_BYTES", limits[2])
        files = write_task(plan, batches(data, PARTITIONED, 37), ATTEMPT)

    for p in range(6):
        own = sorted((file for file in files if list(file.partition) == [p]), key=lambda file: file.file_path)
        assert read(tuple(own)) == [row for row in data if row["p"] == p]


def test_file_of_a_partition_without_further_rows_makes_room_for_another(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Clustered rows would fill the disk, because the files of complete partitions stay open."""
    with_small_buffers(monkeypatch, tmp_path)
    monkeypatch.setattr(group_sizes, "ROW_GROUP_BYTES", 2_000)
    monkeypatch.setattr(rolling, "IDLE_BYTES", 5_000)
    writer = TaskWriter(with_files(plan_of(sink, PARTITIONED, BY_P), max_open_files=2), ATTEMPT)
    data = [{"id": number, "p": number // 200, "text": "x" * 30} for number in range(1_000)]

    for batch in batches(data, PARTITIONED, 20):
        writer.write(batch)

    assert len(writer._files.finished) > 1
    assert sorted((*file.partition, file.record_count) for file in writer.close()) == [(p, 200) for p in range(5)]


@pytest.mark.parametrize("method", ["write", "read"])
def test_disk_that_fails_while_rows_wait_fails_the_task_and_leaves_nothing(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    """A task would succeed without the rows that waited, or leave files behind."""
    with_small_buffers(monkeypatch, tmp_path)
    plan = plan_of(sink, PARTITIONED, BY_P)
    original, calls = getattr(SpillFile, method), itertools.count()

    def fail(spill: Any, what: Any) -> Any:
        with spill._explained():
            if next(calls) == 4:
                raise OSError(errno.EIO, "Input/output error")
        return original(spill, what)

    monkeypatch.setattr(SpillFile, method, fail)

    with pytest.raises(
        DataFileError, match=rf"waiting for their row group cannot be kept in {tmp_path}/spark: .*output error"
    ):
        write_task(plan, batches(partitioned_rows(3_000, 7), PARTITIONED, 100), ATTEMPT)

    assert stored(plan) == []
    assert handles(tmp_path / "spark") == []


def test_nan_partition_is_one_file_for_all_batches(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch with a NaN would leave another small file, and another buffer."""
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 1)
    schema = StructType([StructField("id", LongType()), StructField("p", DoubleType())])
    data = [{"id": number, "p": float("nan")} for number in range(5)]

    files = write_task(plan_of(sink, schema, BY_P), batches(data, schema, 1), ATTEMPT)

    assert len(files) == 1


def test_columns_are_found_by_name_whatever_spark_sends(sink: Sink) -> None:
    """Values would go into another column."""
    given = StructType([StructField("NAME", StringType()), StructField("ID", LongType())])

    files = write_task(plan_of(sink), [arrow_batch([{"NAME": "x", "ID": 1}], given)], ATTEMPT)

    assert read(files) == [{"id": 1, "name": "x"}]


def test_files_carry_field_ids(sink: Sink) -> None:
    """Readers would find no column once one is renamed."""
    files = write_task(plan_of(sink), [arrow_batch(rows(1), SCHEMA)], ATTEMPT)

    schema = pq.read_schema(local(files[0].file_path))
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"2"]


def test_least_recently_used_file_is_finished_first(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that gets rows all the time would get a new file each time that another one begins."""
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 1)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 1)
    plan = with_files(plan_of(sink, PARTITIONED, BY_P), max_open_files=2)
    data = [{"id": number, "p": 0 if number % 2 else number, "text": ""} for number in range(1, 20)]

    files = write_task(plan, batches(data, PARTITIONED, 1), ATTEMPT)

    assert sorted(value for file in files for value in file.partition) == [0, *range(2, 20, 2)]


def test_file_that_must_be_finished_gets_the_rows_that_wait_for_it(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition would get another file for the rest of its rows."""
    monkeypatch.setattr(group_sizes, "ROW_GROUP_BYTES", 1_000)
    plan = with_files(plan_of(sink, PARTITIONED, BY_P), max_open_files=1)
    data = [{"id": number, "p": number // 150, "text": f"row {number}"} for number in range(300)]

    files = write_task(plan, batches(data, PARTITIONED, 300), ATTEMPT)

    assert [len(file.split_offsets or []) > 1 for file in files] == [True, True]


@given(
    sizes=st.lists(st.integers(1, 120), min_size=1, max_size=30),
    batch_rows=st.integers(1, 100),
    max_open_files=st.integers(1, 3),
    limits=st.tuples(st.integers(100, 5_000), st.integers(100, 20_000), st.integers(100, 5_000)),
)
# Complete partitions wait while the latest is the largest.
@example(sizes=[60, 60, 400, 10], batch_rows=2, max_open_files=1, limits=(20_000, 10_000, 100))
def test_clustered_rows_give_one_file_per_partition_whatever_the_limits(
    catalog_free_plan: WritePlan, sizes: list[int], batch_rows: int, max_open_files: int, limits: tuple[int, int, int]
) -> None:
    """Who clusters rows so that one open file is enough would get many small files all the same."""
    data = [{"id": 0, "p": p, "text": "x" * 30} for p, size in enumerate(sizes) for _ in range(size)]
    plan = with_files(catalog_free_plan, max_open_files=max_open_files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_sizes, "ROW_GROUP_BYTES", limits[0])
        patch.setattr(buffers, "BUFFER_BYTES", limits[1])
        patch.setattr(task_writer, "SPLIT_BYTES", limits[2])
        files = write_task(plan, batches(data, PARTITIONED, batch_rows), ATTEMPT)

    assert sorted((*file.partition, file.record_count) for file in files) == list(enumerate(sizes))


def test_only_open_file_is_kept_while_small_partitions_wait(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large partition would get two files, because smaller ones before it were not written yet."""
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 40_000)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 1_000)
    sizes = [60] * 9 + [1_000, 10]
    data = [{"id": 0, "p": p, "text": "x" * 30} for p, size in enumerate(sizes) for _ in range(size)]
    plan = with_files(plan_of(sink, PARTITIONED, BY_P, target=20_000), max_open_files=1)

    files = write_task(plan, batches(data, PARTITIONED, 10), ATTEMPT)

    assert sorted((*file.partition, file.record_count) for file in files) == list(enumerate(sizes))


@pytest.fixture
def catalog_free_plan(sink: Sink) -> WritePlan:
    """Return the plan of a write of `PARTITIONED` by `p`."""
    return plan_of(sink, PARTITIONED, BY_P)


BY_TEXT = SortOrder(
    SortField(3, TruncateTransform(2), SortDirection.DESC, NullOrder.NULLS_FIRST), SortField(1), order_id=7
)


def with_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sort spill after about 50 rows of `PARTITIONED`."""
    monkeypatch.setattr(spill, "RUN_BYTES", 8_000)
    monkeypatch.setattr(spill, "CHUNK_BYTES", 1_000)


def in_order(data: list[Row]) -> list[Row]:
    """Return the rows as `BY_TEXT` orders them."""
    by_id = sorted(data, key=lambda row: row["id"])
    by_text = sorted(by_id, key=lambda row: row["text"][:2] if row["text"] else "", reverse=True)
    return sorted(by_text, key=lambda row: row["text"] is not None)


@pytest.mark.parametrize("little_memory", [False, True])
@pytest.mark.parametrize("target", [None, 20_000])
def test_rows_are_sorted_by_the_plans_order(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, *, little_memory: bool, target: int | None
) -> None:
    """Readers would trust an order that is not there, or the user's wish for one would be ignored."""
    if little_memory:
        with_little_memory(monkeypatch)
    data = [{**row, "text": row["text"] if row["id"] % 9 else None} for row in partitioned_rows(1_000, 3)]
    plan = replace(plan_of(sink, PARTITIONED, target=target), sort_order=BY_TEXT)

    files = write_task(plan, batches(data, PARTITIONED, 30), ATTEMPT)

    assert (len(files) == 1) == (target is None)
    assert read(files) == in_order(data)
    assert {file.sort_order_id for file in files} == {7}


def test_sorted_rows_of_each_partition_are_in_order_and_in_one_file(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sorted table would get mixed partitions, or needlessly many files."""
    with_little_memory(monkeypatch)
    data = partitioned_rows(1_000, 10)
    plan = with_files(replace(plan_of(sink, PARTITIONED, BY_P), sort_order=BY_TEXT), max_open_files=1)

    files = write_task(plan, batches(data, PARTITIONED, 30), ATTEMPT)

    assert [list(file.partition) for file in files] == [[p] for p in range(10)]
    for p, file in enumerate(files):
        assert read((file,)) == in_order([row for row in data if row["p"] == p])


def test_sorted_rows_need_one_open_file_and_one_buffer(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sorted write into many partitions would take memory for each."""
    most_open, most_buffered = 0, 0
    original = RollingWriter.append

    def spy(writer: RollingWriter, rows: pa.RecordBatch) -> None:
        nonlocal most_open, most_buffered
        original(writer, rows)
        most_open = max(most_open, len(writer._files._open))
        most_buffered = max(most_buffered, writer._files.buffers.buffered_bytes - writer.buffered_bytes)

    monkeypatch.setattr(RollingWriter, "append", spy)
    monkeypatch.setattr(group_sizes, "ROW_GROUP_BYTES", 500)
    plan = replace(plan_of(sink, PARTITIONED, BY_P), sort_order=BY_TEXT)

    write_task(plan, batches(partitioned_rows(500, 20), PARTITIONED, 100), ATTEMPT)

    assert (most_open, most_buffered) == (1, 0)


@pytest.mark.parametrize("order", [None, UNSORTED_SORT_ORDER])
def test_rows_without_a_sort_order_stay_as_they_come(sink: Sink, order: SortOrder | None) -> None:
    """Files would claim an order that nobody asked for."""
    data = random_texts(100)

    files = write_task(replace(plan_of(sink), sort_order=order), batches(data, SCHEMA, 10), ATTEMPT)

    assert read(files) == data
    assert [file.sort_order_id for file in files] == [None]


@pytest.mark.parametrize("order", [None, SortOrder(SortField(1))], ids=["fanned out", "sorted"])
def test_zeros_of_either_sign_are_two_partitions(sink: Sink, order: SortOrder | None) -> None:
    """A reader that takes the column from the partition would find one zero instead of the other."""
    schema = StructType([StructField("id", LongType()), StructField("p", DoubleType())])
    data = [{"id": number, "p": (-0.0, 0.0)[number % 2]} for number in range(20)]
    plan = replace(plan_of(sink, schema, BY_P), sort_order=order)

    files = write_task(plan, batches(data, schema, 5), ATTEMPT)

    found = {str(file.partition[0]): [(row["id"], str(row["p"])) for row in read((file,))] for file in files}
    assert len(files) == 2
    assert found == {
        sign: [(number, sign) for number in range(20) if data[number]["p"].hex()[0] == first]
        for sign, first in (("-0.0", "-"), ("0.0", "0"))
    }


def test_empty_task_of_a_sorted_table_writes_no_file(sink: Sink) -> None:
    """Every idle task of every micro-batch would fail, or leave an empty file."""
    plan = replace(plan_of(sink), sort_order=SortOrder(SortField(1)))

    assert write_task(plan, [], ATTEMPT) == ()
    assert write_task(plan, [arrow_batch([], SCHEMA)], ATTEMPT) == ()


@pytest.mark.parametrize("failing_write", [0, 5, 40])
def test_full_disk_while_sorting_fails_the_task_and_leaves_nothing(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing_write: int
) -> None:
    """A task would leave files behind, and not tell which disk is full."""
    with_little_memory(monkeypatch)
    folder = tmp_path / "spark"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    original, writes = SpillFile.write, itertools.count()

    def fail(spill: Any, chunk: pa.RecordBatch) -> Any:
        with spill._explained():
            if next(writes) == failing_write:
                raise OSError(errno.ENOSPC, "No space left on device")
        return original(spill, chunk)

    monkeypatch.setattr(SpillFile, "write", fail)
    plan = replace(plan_of(sink, PARTITIONED, BY_P), sort_order=BY_TEXT)

    with pytest.raises(DataFileError, match=rf"Cannot write a data file of db\.t .*{folder}.*No space left on device"):
        write_task(plan, batches(partitioned_rows(1_000, 5), PARTITIONED, 30), ATTEMPT)

    assert stored(plan) == []
    assert list(folder.iterdir()) == []


def test_sorted_task_that_fails_while_it_writes_leaves_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and spilled rows of a failed task would stay."""
    with_little_memory(monkeypatch)
    plan = replace(plan_of(sink, PARTITIONED, BY_P), sort_order=BY_TEXT)
    writer = TaskWriter(plan, ATTEMPT)
    for rows_of_batch in batches(partitioned_rows(1_000, 5), PARTITIONED, 30):
        writer.write(rows_of_batch)
    original = RollingWriter.close

    def fail_on_last(rolling_writer: RollingWriter) -> None:
        if len(writer._files.finished) == 3:
            raise OSError("connection lost")
        original(rolling_writer)

    monkeypatch.setattr(RollingWriter, "close", fail_on_last)
    files_before = len(list(Path("/dev/fd").iterdir()))

    with pytest.raises(OSError, match="connection lost"):
        writer.close()
    writer.discard()

    assert stored(plan) == []
    assert len(list(Path("/dev/fd").iterdir())) < files_before  # the spilled rows are gone


class UpstreamError(RuntimeError):
    """The user's own code failed while it made rows."""


def failing(data: list[Row], schema: StructType, error: BaseException) -> Iterator[pa.RecordBatch]:
    """Yield some batches, then fail as the user's code or a killed task would."""
    yield from batches(data, schema, 100)
    raise error


@pytest.mark.parametrize("order", [None, SortOrder(SortField(1))], ids=["unsorted", "sorted"])
@pytest.mark.parametrize("spec", [None, BY_P], ids=["unpartitioned", "partitioned"])
def test_failing_task_leaves_no_file_open_or_finished(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, spec: PartitionSpec | None, order: SortOrder | None
) -> None:
    """Every failed task would leave files behind."""
    with_little_memory(monkeypatch)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 10_000)
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 10_000)
    plan = replace(plan_of(sink, PARTITIONED, spec, target=20_000), sort_order=order)

    with pytest.raises(DataFileError, match="UpstreamError: no more rows") as raised:
        write_task(plan, failing(partitioned_rows(2_000, 5), PARTITIONED, UpstreamError("no more rows")), ATTEMPT)

    assert NAME in str(raised.value)
    assert isinstance(raised.value.__cause__, UpstreamError)
    assert stored(plan) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr)
def test_killed_task_leaves_no_file_and_is_not_held_up(sink: Sink, error: BaseException) -> None:
    """A cancelled job would leave files behind, or not stop."""
    plan = plan_of(sink, target=2_000)

    with pytest.raises(type(error)):
        write_task(plan, failing(random_texts(500), SCHEMA, error), ATTEMPT)

    assert stored(plan) == []


def test_null_in_a_required_column_fails_the_task_and_leaves_no_file(sink: Sink) -> None:
    """Nulls would stand in a column that promises to have none."""
    required = StructType([StructField("id", LongType(), nullable=False)])
    nullable = StructType([StructField("id", LongType())])
    plan = sink.plan(required, use_nullable_query_schema=False, target_file_size_bytes=1)
    given = [arrow_batch([{"id": 1}, {"id": 2}], nullable), arrow_batch([{"id": None}], nullable)]

    with pytest.raises(SchemaMismatchError, match="'id', which is required"):
        write_task(plan, given, ATTEMPT)

    assert stored(plan) == []


def test_null_in_a_required_nested_field_fails_the_task_and_leaves_no_file(sink: Sink) -> None:
    """Nulls would stand in a nested field that promises to have none."""
    inner = StructField("x", LongType(), nullable=False)
    required = StructType([StructField("s", StructType([inner]))])
    nullable = StructType([StructField("s", StructType([StructField("x", LongType())]))])
    plan = sink.plan(required, use_nullable_query_schema=False)

    with pytest.raises(IcebergSinkError, match=r"'x' is declared non-nullable|'s\.x'"):
        write_task(plan, [arrow_batch([{"s": {"x": None}}], nullable)], ATTEMPT)

    assert stored(plan) == []


def test_storage_that_refuses_is_reported_with_table_and_place(sink: Sink) -> None:
    """A user would not learn what could not be written, and where."""
    plan = plan_of(sink)
    folder = local(plan.location)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file where the table's folder should be")

    with pytest.raises(DataFileError, match=r"Cannot write a data file of db\.t below file://"):
        write_task(plan, [arrow_batch(rows(1), SCHEMA)], ATTEMPT)


def test_discarding_goes_on_after_a_file_that_cannot_be_closed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad file would make a failed task leave all the others behind."""
    plan = plan_of(sink, PARTITIONED, BY_P)
    writer = TaskWriter(plan, ATTEMPT)
    for batch in batches(partitioned_rows(100, 4), PARTITIONED, 50):
        writer.write(batch)
    original = RollingWriter.close

    def fail_on_last(rolling: RollingWriter) -> None:
        if len(writer._files.finished) == 3:
            raise OSError("disk full")
        original(rolling)

    monkeypatch.setattr(RollingWriter, "close", fail_on_last)

    with pytest.raises(OSError, match="disk full"):
        writer.close()
    writer.discard()

    assert stored(plan) == []


def test_table_properties_decide_where_files_go(sink: Sink) -> None:
    """Data would be written where its user did not want it."""

    def with_properties(properties: Mapping[str, Any]) -> WritePlan:
        return replace(plan_of(sink), properties=properties)

    elsewhere = f"{plan_of(sink).location}/elsewhere"
    moved = write_task(with_properties({"write.data.path": elsewhere}), [arrow_batch(rows(1), SCHEMA)], ATTEMPT)
    hashed = write_task(
        with_properties({"write.object-storage.enabled": "true"}), [arrow_batch(rows(1), SCHEMA)], ATTEMPT
    )

    assert moved[0].file_path.startswith(elsewhere + "/")
    assert re.search(r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/", hashed[0].file_path)
