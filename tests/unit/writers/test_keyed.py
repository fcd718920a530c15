"""From a change feed to the files of one task: rows that win, keys to delete, and what is said of them."""

from __future__ import annotations

import datetime as dt
import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType
from support.keys.change_feeds import SCHEMA, SENT, Row, feed, sent
from support.keys.writes import (
    BY_AMOUNT,
    BY_KEY,
    GLOBAL,
    LARGEST_FIRST,
    LAYOUTS,
    keyed_plan,
    keys_in,
    output_of,
    rows_in,
    stored,
    write,
)
from support.tables.sink import local

from iceberg_ds.cdc import task_changes
from iceberg_ds.cdc import task_changes as waiting
from iceberg_ds.cdc.dedup import Rank, decode_key_report
from iceberg_ds.cdc.keys import digest_keys
from iceberg_ds.errors import DataFileError, IcebergSinkError, SchemaMismatchError
from iceberg_ds.plan import ChangeFeed, WritePlan
from iceberg_ds.writers import rolling, spill, task_writer
from iceberg_ds.writers import rolling as buffers
from iceberg_ds.writers import rolling as group_sizes
from iceberg_ds.writers.keyed import KeyedFiles
from iceberg_ds.writers.parquet import ParquetFile
from iceberg_ds.writers.spill import SpillFile

MB = 1024 * 1024


def event(op: str, number: int, lsn: int = 0, region: str = "EU", **more: Any) -> Row:
    """Return an event of a key; its amount is its sequence."""
    return {"op": op, "id": number, "region": region, "amount": lsn, "lsn": lsn, **more}


def many_events(count: int = 3_000, keys: int = 1_200, seed: int = 7) -> list[Row]:
    """Return events of keys that mostly come several times; texts hardly compress."""
    draw = random.Random(seed)  # noqa: S311  # the same rows every time
    words = ["c", "u", "u", "+U", "d", "-U"]
    return [
        event(
            draw.choice(words),
            draw.randrange(keys),
            lsn,
            draw.choice(["EU", "US"]),
            digest=f"{draw.getrandbits(256):x}",
        )
        for lsn in range(count)
    ]


def batches(events: list[Row], size: int = 250) -> list[pa.RecordBatch]:
    """Return events in batches as Spark sends them."""
    return [sent(events[start : start + size]) for start in range(0, len(events), size)]


def last_of_each_key(events: list[Row]) -> dict[tuple[Any, ...], Row]:
    """Return what wins."""
    return {(row["id"], row["region"]): row for row in events}


def columns_of_table(row: Row) -> Row:
    """Return what is stored of an event."""
    return {field.name: row.get(field.name) for field in SCHEMA.fields}


def check(written: KeyedFiles, events: list[Row], plan: WritePlan) -> None:
    """Assert that the files have the winners, and that the key report tells of their rows one by one."""
    output, winners = output_of(written), last_of_each_key(events)
    rows = [row for file in output.files for row in file]
    kept = [columns_of_table(row) for row in winners.values() if row["op"] not in ("d", "-U")]
    assert sorted(rows, key=lambda row: row["amount"]) == sorted(kept, key=lambda row: row["amount"])
    assert output.deleted == winners.keys()
    assert [file.record_count for file in written.data_files] == [len(file) for file in output.files]

    table = pa.Table.from_pylist(rows, schema=pa.schema([SENT.field(name) for name in ("id", "region", "amount")]))
    assert written.keys.key_report is not None
    key_report = decode_key_report(written.keys.key_report)
    of_rows = key_report.slice(0, len(rows))
    assert of_rows["sequence_0"].to_pylist() == table["amount"].to_pylist()
    assert set(of_rows["rank"].to_pylist()) == {Rank.ROW}
    digests = digest_keys([table[name].combine_chunks() for name in ("id", "region")], seed_of(plan))
    assert of_rows["digest"].to_pylist() == digests.to_pylist()
    assert Rank.ROW not in key_report["rank"].to_pylist()[len(rows) :]
    assert len(key_report) == written.keys.count == len(winners)


def seed_of(plan: WritePlan) -> bytes:
    """Return the seed of a write's digests, as any task of it has it."""
    seeds: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "iceberg_ds.cdc.reader.digest_keys",
            lambda columns, seed: (seeds.append(seed), digest_keys(columns, seed))[1],
        )
        write(replace(plan, location=f"{plan.location}/seed"), [sent([event("c", 1)])], partition_id=99)
    return seeds[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_have_the_winners_and_the_report_tells_of_their_rows(tmp_path: Path, layout: str) -> None:
    """The commit would hide other rows than those that lost, and a key would be in the table twice."""
    events = many_events(400, 150)
    plan = keyed_plan(tmp_path, **LAYOUTS[layout])

    check(write(plan, batches(events)), events, plan)


@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - {"a file for each row"}))
def test_rows_that_go_over_the_disk_and_into_many_files_are_told_of_rightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Large tasks would hide other rows than small ones do."""
    monkeypatch.setattr(waiting, "EVENT_BYTES", 20_000)
    monkeypatch.setattr(waiting, "ROW_BYTES", 20_000)
    monkeypatch.setattr(spill, "RUN_BYTES", 30_000)
    monkeypatch.setattr(spill, "CHUNK_BYTES", 3_000)
    monkeypatch.setattr(spill, "_BATCH_BYTES", 3_000)
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 30_000)
    monkeypatch.setattr(task_writer, "SPLIT_BYTES", 10_000)
    monkeypatch.setattr(rolling, "LEAST_ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(group_sizes, "ROW_GROUP_BYTES", 6_000)
    chunks: list[int] = []
    original = SpillFile.write

    def spy(spill: SpillFile, rows: pa.RecordBatch) -> Any:
        chunks.append(rows.num_columns)
        return original(spill, rows)

    monkeypatch.setattr(SpillFile, "write", spy)
    events = many_events()
    few_open = {"max_open_files": 2, "target_file_size_bytes": 8_000, **LAYOUTS[layout]}
    plan = keyed_plan(tmp_path, **few_open)

    written = write(plan, batches(events))

    assert len(written.data_files) > 3
    assert plan.spec == BY_AMOUNT or any(len(file.split_offsets or []) > 1 for file in written.data_files)
    assert len(SCHEMA.fields) + 3 in chunks
    check(written, events, plan)


def test_rows_keep_the_order_in_which_they_came(tmp_path: Path) -> None:
    """Files would compress worse, and lose what sorting before gave them."""
    events = [event("c", number, lsn) for lsn, number in enumerate([5, 3, 9, 1, 3, 7])]

    (rows,) = rows_in(write(keyed_plan(tmp_path), batches(events, 2)).data_files)

    assert [row["id"] for row in rows] == [5, 9, 1, 3, 7]


def test_sorted_tables_get_sorted_files(tmp_path: Path) -> None:
    """Files would say that they are sorted and not be."""
    events = [event("c", number, number * 7919 % 101) for number in range(100)]

    (file,) = write(keyed_plan(tmp_path, sort_order=LARGEST_FIRST), batches(events, 30)).data_files

    amounts = [row["amount"] for row in rows_in([file])[0]]
    assert amounts == sorted(amounts, reverse=True)
    assert file.sort_order_id == LARGEST_FIRST.order_id


def test_a_delete_file_is_what_the_spec_says(tmp_path: Path) -> None:
    """Readers would not apply the deletes, or apply them to other columns."""
    plan = keyed_plan(tmp_path, sort_order=LARGEST_FIRST, metrics_properties={"write.metadata.metrics.default": "none"})

    written = write(plan, [sent([event("c", 4), event("d", -2), event("u", 9, region="US")])])
    (file,) = written.delete_files

    assert file.content == DataFileContent.EQUALITY_DELETES
    assert file.equality_ids == [1, 2]
    assert (file.spec_id, file.partition, file.sort_order_id) == (0, Record(), None)
    assert file.file_format == FileFormat.PARQUET
    assert file.record_count == 3
    assert file.file_size_in_bytes == local(file.file_path).stat().st_size
    assert local(file.file_path).name.startswith("00000-")
    assert local(file.file_path).name.endswith("-op-00000-deletes.parquet")
    assert file.value_counts == {1: 3, 2: 3}
    assert file.null_value_counts == {1: 0, 2: 0}
    bounds = [file.lower_bounds, file.upper_bounds]
    assert [from_bytes(LongType(), of[1]) for of in bounds] == [-2, 9]
    assert [from_bytes(StringType(), of[2]) for of in bounds] == ["EU", "US"]
    assert file.split_offsets == [4]
    footer = pq.read_metadata(local(file.file_path))
    fields = [footer.schema.column(number) for number in range(footer.num_columns)]
    assert [(field.path, field.max_definition_level) for field in fields] == [("id", 0), ("region", 0)]
    arrow = pq.read_schema(local(file.file_path))
    assert [field.metadata[b"PARQUET:field_id"] for field in arrow] == [b"1", b"2"]
    assert sorted(keys_in([file])) == [(-2, "EU"), (4, "EU"), (9, "US")]


def test_a_data_file_of_a_write_by_keys_is_one_of_rows(tmp_path: Path) -> None:
    """Hidden columns would be in the table's files, or its rows be taken for deletes."""
    written = write(keyed_plan(tmp_path), [sent([event("c", 4), event("d", 2)])])
    (file,) = written.data_files

    assert file.content == DataFileContent.DATA
    assert file.equality_ids is None
    assert pq.read_schema(local(file.file_path)).names == ["id", "region", "amount", "digest"]
    assert sorted(file.value_counts) == [1, 2, 3, 4]


def test_keys_are_deleted_in_the_order_in_which_they_were_named(tmp_path: Path) -> None:
    """The ids would not fit the columns."""
    plan = keyed_plan(tmp_path, feed(key_ids=(2, 1)))

    (file,) = write(plan, [sent([event("c", 4)])]).delete_files

    assert file.equality_ids == [2, 1]
    assert pq.read_schema(local(file.file_path)).names == ["region", "id"]


def test_columns_with_names_that_avro_lacks_are_keys(tmp_path: Path) -> None:
    """Writes by such keys would fail, or name the column otherwise than its data files do."""
    schema = Schema(NestedField(7, "order id", LongType(), required=True), NestedField(9, "digest", StringType()))
    plan = keyed_plan(tmp_path, ChangeFeed(key_ids=(7,)), schema=schema)

    written = write(plan, [pa.record_batch({"digest": ["x"], "order id": [5]})])

    assert keys_in(written.delete_files) == [(5,)]
    names = [pq.read_schema(local(of[0].file_path)).names for of in (written.data_files, written.delete_files)]
    assert names == [["order_x20id", "digest"], ["order_x20id"]]


def test_deletes_of_keys_that_say_the_partition_lie_in_it(tmp_path: Path) -> None:
    """Readers would not find the deletes of a row."""
    events = [event("c", number) for number in range(40)]

    written = write(keyed_plan(tmp_path, **LAYOUTS["partitioned by key"]), batches(events))

    assert len(written.delete_files) == len(written.data_files) == 3
    deleted = {tuple(file.partition): sorted(keys_in([file])) for file in written.delete_files}
    rows = rows_in(written.data_files)
    stored_there = [sorted((row["id"], row["region"]) for row in of_file) for of_file in rows]
    partitions = [tuple(file.partition) for file in written.data_files]
    assert deleted == dict(zip(partitions, stored_there, strict=True))
    assert {file.spec_id for file in written.delete_files} == {BY_KEY.spec_id}
    assert all("/id_bucket=" in file.file_path for file in written.delete_files)


def test_other_deletes_reach_the_whole_table(tmp_path: Path) -> None:
    """A row that moves to another partition would stay in the old one as well."""
    events = [event("c", number, number) for number in range(40)]

    written = write(keyed_plan(tmp_path, **LAYOUTS["partitioned by another column"]), batches(events))

    (file,) = written.delete_files
    assert (file.spec_id, file.partition) == (GLOBAL.spec_id, Record())
    assert len(written.data_files) == 8
    assert {file.spec_id for file in written.data_files} == {BY_AMOUNT.spec_id}


def test_partition_fields_that_were_dropped_are_null(tmp_path: Path) -> None:
    """A table with a dropped partition field could not be written by keys."""
    spec = PartitionSpec(
        PartitionField(88, 1000, VoidTransform(), "gone"),
        PartitionField(3, 1001, VoidTransform(), "amount"),
        *(field.model_copy(update={"field_id": 1002}) for field in BY_KEY.fields),
        spec_id=3,
    )

    written = write(keyed_plan(tmp_path, spec=spec, delete_spec=spec), [sent([event("d", 4)])])

    (file,) = written.delete_files
    assert tuple(file.partition)[:2] == (None, None)
    assert len(tuple(file.partition)) == 3


def test_delete_files_have_a_size_of_their_own(tmp_path: Path) -> None:
    """A table's property would be ignored, and the size of data files taken."""
    events = [event("d", number, region=row["digest"]) for number, row in enumerate(many_events())]
    plan = keyed_plan(tmp_path, delete_file_size_bytes=30_000, target_file_size_bytes=1)

    files = write(plan, batches(events)).delete_files

    assert len(files) > 3
    assert all(20_000 < file.file_size_in_bytes < 40_000 for file in files[:-1])
    assert len(keys_in(files)) == len(set(keys_in(files))) == len(events)


def test_delete_files_have_no_bloom_filters(tmp_path: Path) -> None:
    """Every delete file would be larger for nothing: readers load it whole."""
    events = [event("d", number) for number in range(1000)]
    plain = write(keyed_plan(tmp_path / "a"), batches(events)).delete_files
    asked = write(keyed_plan(tmp_path / "b", bloom_filter_fpp={1: 0.01}), batches(events)).delete_files

    assert asked[0].file_size_in_bytes == plain[0].file_size_in_bytes


def test_nothing_to_delete_is_no_file(tmp_path: Path) -> None:
    """An epoch of new keys would slow every reader down."""
    written = write(keyed_plan(tmp_path, feed(trusts_inserts=True)), [sent([event("c", 1), event("I", 2)])])

    assert written.delete_files == ()
    assert [len(rows) for rows in rows_in(written.data_files)] == [2]


def test_deletes_alone_make_no_data_file(tmp_path: Path) -> None:
    """Every epoch of deletes would leave empty files."""
    written = write(keyed_plan(tmp_path, **LAYOUTS["partitioned by key"]), [sent([event("d", 1), event("-U", 1)])])

    assert written.data_files == ()
    assert keys_in(written.delete_files) == [(1, "EU")]


@pytest.mark.parametrize("given", [[], [0], [0, 0]])
def test_a_task_without_rows_writes_nothing_and_says_so(tmp_path: Path, given: list[int]) -> None:
    """The commit would take the task for one that failed, or get empty files."""
    written = write(keyed_plan(tmp_path), [sent([]) for _ in given])

    assert (written.data_files, written.delete_files) == ((), ())
    assert (written.keys.count, written.keys.modulus) == (0, 0)
    assert stored(tmp_path) == []


def test_rows_that_are_refused_are_told_of_and_not_written(tmp_path: Path) -> None:
    """Rows that no delete ever finds would be in the table."""
    rows = [event("c", 1), event("t", 2), {"op": "c", "id": None, "region": "EU", "amount": 1}]

    written = write(keyed_plan(tmp_path), [sent(rows)])

    assert written.keys.null_keys.count == 1
    assert written.keys.unknown_operations == {"'t'": 1}
    assert keys_in(written.delete_files) == [(1, "EU")]


def test_what_is_not_reported_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with many keys would keep what nobody asks for in memory."""
    monkeypatch.setattr(task_changes, "MAX_REPORTED_KEYS", 10)
    widths: set[int] = set()
    original = ParquetFile.write_row_group

    def spy(file: ParquetFile, rows: list[pa.RecordBatch]) -> None:
        widths.update(batch.num_columns for batch in rows)
        original(file, rows)

    monkeypatch.setattr(ParquetFile, "write_row_group", spy)

    written = write(keyed_plan(tmp_path), [sent([event("c", number) for number in range(11)])])

    assert written.keys.key_report is None
    assert written.keys.count == 11
    assert widths == {2, 4}


def big_batches(number: int, rows: int = 2_000) -> Iterator[pa.RecordBatch]:
    """Yield batches of 0.7 MB each, in random order of the keys."""
    text = pa.array(["some text that has some length, and then some more of it, to be as wide as rows are" * 3] * rows)
    for start in range(number):
        ids = pa.array([(row * 7919 + start) * 31 for row in range(rows)], pa.int64())
        yield pa.record_batch(
            [
                pa.array(["u"] * rows),
                ids,
                pa.array(["EU"] * rows),
                pa.array([start] * rows, pa.int32()),
                text,
                pa.array(range(rows), pa.int64()),
                pa.nulls(rows, pa.float64()),
            ],
            schema=SENT,
        )


@pytest.mark.parametrize("reported", [1_000, 1_000_000])
@pytest.mark.parametrize("layout", ["plain", "partitioned by key", "sorted"])
def test_memory_does_not_grow_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, reported: int
) -> None:
    """A large task would be killed for its memory."""
    for module, names in {
        waiting: ("EVENT_BYTES", "ROW_BYTES"),
        spill: ("RUN_BYTES",),
        buffers: ("BUFFER_BYTES",),
        task_writer: ("SPLIT_BYTES",),
        rolling: ("LEAST_ROW_GROUP_BYTES",),
        group_sizes: ("ROW_GROUP_BYTES",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, MB)
    monkeypatch.setattr(spill, "CHUNK_BYTES", MB // 16)
    monkeypatch.setattr(spill, "_BATCH_BYTES", MB // 16)
    monkeypatch.setattr(task_changes, "MAX_REPORTED_KEYS", reported)
    seen: list[int] = []
    original = ParquetFile.write_row_group

    def spy(file: ParquetFile, rows: list[pa.RecordBatch]) -> None:
        seen.append(pa.total_allocated_bytes())
        original(file, rows)

    def watched(number: int) -> Iterator[pa.RecordBatch]:
        for batch in big_batches(number):
            seen.append(pa.total_allocated_bytes())
            yield batch

    monkeypatch.setattr(ParquetFile, "write_row_group", spy)
    peaks = []
    for number in (15, 60):
        seen.clear()
        before = pa.total_allocated_bytes()
        written = write(keyed_plan(tmp_path / str(number), **LAYOUTS[layout]), watched(number))
        assert sum(file.record_count for file in written.data_files) == written.keys.count
        peaks.append(max(seen) - before)

    key_report = 0 if written.keys.key_report is None else 40 * written.keys.count
    assert peaks[1] < peaks[0] + 3 * MB + key_report  # of 31 MB more rows


def test_deletes_are_written_before_the_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers of both would be in memory at once."""
    closed: list[str] = []
    original = ParquetFile.close

    def spy(file: ParquetFile, *values: Any) -> Any:
        closed.append(file.path.rpartition("-")[2])
        return original(file, *values)

    monkeypatch.setattr(ParquetFile, "close", spy)

    write(keyed_plan(tmp_path, **LAYOUTS["partitioned by key"]), [sent([event("c", number) for number in range(9)])])

    assert closed == ["deletes.parquet"] * 3 + ["00000.parquet", "00001.parquet", "00002.parquet"]


@pytest.mark.parametrize("failing", range(6))
def test_a_task_that_fails_leaves_files_of_neither_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Files that no table refers to would pile up with every failed attempt."""
    calls = 0
    original = ParquetFile.write_row_group

    def fail(file: ParquetFile, rows: list[pa.RecordBatch]) -> None:
        nonlocal calls
        calls += 1
        if calls == failing + 1:
            raise OSError(errno.EIO, "the disk is gone")
        original(file, rows)

    monkeypatch.setattr(ParquetFile, "write_row_group", fail)
    plan = keyed_plan(tmp_path, **LAYOUTS["partitioned by key"])

    with pytest.raises(DataFileError, match="the disk is gone"):
        write(plan, [sent([event("c", number) for number in range(9)])])

    assert calls == failing + 1
    assert stored(tmp_path) == []


@pytest.mark.parametrize("written_before", [0, 2])
def test_a_full_local_disk_fails_the_task_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_before: int
) -> None:
    """Rows that could not be kept would be missing in the table."""
    monkeypatch.setattr(waiting, "EVENT_BYTES", 0)
    monkeypatch.setattr(waiting, "ROW_BYTES", 0)
    original, calls = SpillFile.write, iter(range(99))

    def full(spill: SpillFile, rows: pa.RecordBatch) -> Any:
        if next(calls) == written_before:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(spill, rows)

    monkeypatch.setattr(SpillFile, "write", full)

    with pytest.raises(DataFileError, match="No space left"):
        write(keyed_plan(tmp_path), [sent([event("c", number)]) for number in range(9)])

    assert stored(tmp_path) == []


def test_a_null_that_the_table_forbids_names_the_column(tmp_path: Path) -> None:
    """The table would break for its readers, or nobody would know why the task fails."""
    row = event("u", 1, amount=None)

    with pytest.raises(SchemaMismatchError, match="'amount'"):
        write(keyed_plan(tmp_path), [sent([event("u", 2)]), sent([row])])

    assert stored(tmp_path) == []


def test_a_plan_without_keys_is_refused(tmp_path: Path) -> None:
    """Rows would be appended that should replace others."""
    with pytest.raises(IcebergSinkError, match="names none"):
        write(replace(keyed_plan(tmp_path), delete_spec=None), [])


def test_two_attempts_of_a_task_share_no_path(tmp_path: Path) -> None:
    """An attempt that is given up would delete the files of the one that counts."""
    plan = keyed_plan(tmp_path)

    both = [write(plan, [sent([event("c", 1)])]) for _ in range(2)]

    paths = [file.file_path for of in both for file in (*of.data_files, *of.delete_files)]
    assert len(set(paths)) == 4


def test_digests_are_the_same_in_all_tasks_of_a_write_and_others_in_the_next(tmp_path: Path) -> None:
    """Keys that several tasks have would not be found, or somebody could prepare keys that collide."""
    plan = keyed_plan(tmp_path)
    plans = [plan, plan, replace(plan, write=replace(plan.write, operation_id="another"))]

    written = [write(of, [sent([event("c", 1)])], number) for number, of in enumerate(plans)]

    same, again, other = (decode_key_report(of.keys.key_report or b"")["digest"].to_pylist() for of in written)
    assert same == again != other


@pytest.mark.parametrize("name", ["high", "low", "sequence_0", "rank", "number", "is_known", "key_0"])
@pytest.mark.parametrize("sequence", [(), (NestedField(9, "lsn", LongType()),)], ids=["no sequence", "sequence"])
def test_key_may_have_any_name(tmp_path: Path, name: str, sequence: tuple[NestedField, ...]) -> None:
    """Every write by a column that is called as what tasks note down themselves would fail."""
    schema = Schema(NestedField(1, name, LongType(), required=True), NestedField(2, "high_", LongType()))
    plan = keyed_plan(tmp_path, ChangeFeed(key_ids=(1,), sequence=sequence), schema=schema)
    batch = pa.record_batch({name: [7, 8, 7], "high_": [1, 2, 3], "lsn": [1, 2, 3]}).cast(
        pa.schema([(column, pa.int64()) for column in (name, "high_", "lsn")])
    )

    written = write(plan, [batch.slice(0 if sequence else 1)])

    (rows,) = rows_in(written.data_files, schema)
    assert sorted(row[name] for row in rows) == [7, 8]
    assert sorted(keys_in(written.delete_files)) == [(7,), (8,)]


FRAME = Schema(
    NestedField(1, "gone", IntegerType(), required=True),
    NestedField(2, "id", LongType()),
    NestedField(3, "At", TimestamptzType()),
    NestedField(4, "region", StringType()),
)


@pytest.mark.parametrize("predicate", ["gone = 1", "at < '2026-01-02 00:00:00+00:00'", "GONE IN (1, 2)"])
def test_rows_that_satisfy_the_predicate_are_deletes(tmp_path: Path, predicate: str) -> None:
    """Rows that the source marks as deleted would be written: in another zone or width, and where columns differ."""
    schema = Schema(*(NestedField(field.field_id, field.name, field.field_type) for field in FRAME.fields[1:2]))
    plan = keyed_plan(tmp_path, ChangeFeed(key_ids=(2,), delete_when=predicate), schema=required(schema), frame=FRAME)
    times = [dt.datetime(2026, 1, day, tzinfo=dt.timezone.utc) for day in (1, 2)]
    batch = pa.record_batch(
        {
            "gone": pa.array([1, None], pa.int8()),
            "id": pa.array([7, 8], pa.int64()),
            "At": pa.array(times, pa.timestamp("us", "Asia/Tokyo")),
            "region": pa.array([None, "EU"]),
        }
    )

    written = write(plan, [batch])

    assert [row["id"] for row in rows_in(written.data_files, schema)[0]] == [8]
    assert sorted(keys_in(written.delete_files)) == [(7,), (8,)]


def required(schema: Schema) -> Schema:
    """Return the schema with all columns required."""
    return Schema(*(field.model_copy(update={"required": True}) for field in schema.fields))
