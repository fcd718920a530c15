"""One Parquet file: its settings, its manifest entry and its removal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.plan import FileSettings
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.writers import parquet
from iceberg_ds.writers.parquet import BLOOM_FILTERS, PAGE_ROW_LIMIT, ParquetFile, can_honour

SCHEMA = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "d", ice.DoubleType()),
    NestedField(3, "n", ice.DecimalType(9, 2)),
)
ARROW = file_shape(SCHEMA).schema


def opened(
    path: Path, codec: str = "zstd", level: int | None = None, schema: Schema = SCHEMA, **settings: Any
) -> ParquetFile:
    """Return a new file."""
    files = FileSettings(
        target_file_size_bytes=1, compression_codec=codec, compression_level=level, metrics_properties={}, **settings
    )
    arrow = file_shape(schema).schema
    return ParquetFile(LocalFileIO(), f"file://{path}", arrow, leaf_columns(schema, {}), files)


def batch(*ids: int) -> pa.RecordBatch:
    """Return rows with these ids."""
    return pa.RecordBatch.from_pylist([{"id": number, "d": float("nan")} for number in ids], schema=ARROW)


def test_manifest_entry_tells_what_the_file_holds(tmp_path: Path) -> None:
    """Readers would look for rows that are not there, or read past the end."""
    file = opened(tmp_path / "f.parquet")
    file.write_row_group([batch(1, 2), batch(3)])
    file.write_row_group([batch(4)])

    entry = file.close(Record(7), spec_id=3)

    assert entry.content is DataFileContent.DATA
    assert entry.file_format is FileFormat.PARQUET
    assert entry.file_path == f"file://{tmp_path}/f.parquet"
    assert entry.file_size_in_bytes == (tmp_path / "f.parquet").stat().st_size
    assert entry.record_count == 4
    assert entry.nan_value_counts == {2: 4}
    assert list(entry.partition) == [7]
    assert entry.spec_id == 3
    assert entry.sort_order_id is None


def test_batches_of_one_call_are_one_row_group(tmp_path: Path) -> None:
    """Many small batches would become many small row groups, which are slow to read."""
    file = opened(tmp_path / "f.parquet")
    file.write_row_group([batch(number) for number in range(50)])
    entry = file.close(Record(), spec_id=0)

    assert pq.read_metadata(tmp_path / "f.parquet").num_row_groups == 1
    assert len(entry.split_offsets or []) == 1


@pytest.mark.parametrize(
    ("codec", "in_file"),
    [
        ("zstd", "ZSTD"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("lz4", "LZ4"),
        ("brotli", "BROTLI"),
        ("uncompressed", "UNCOMPRESSED"),
    ],
)
def test_codec_is_the_one_that_was_asked_for(tmp_path: Path, codec: str, in_file: str) -> None:
    """A user's choice of compression would be ignored."""
    file = opened(tmp_path / "f.parquet", codec)
    file.write_row_group([batch(1)])
    file.close(Record(), spec_id=0)

    assert pq.read_metadata(tmp_path / "f.parquet").row_group(0).column(0).compression == in_file
    assert pq.read_table(tmp_path / "f.parquet")["id"].to_pylist() == [1]


def test_level_makes_a_difference(tmp_path: Path) -> None:
    """A user's compression level would be ignored."""
    data = pa.RecordBatch.from_pylist([{"id": number * number % 9973} for number in range(20_000)], schema=ARROW)
    sizes = []
    for level in (1, 19):
        file = opened(tmp_path / f"{level}.parquet", "zstd", level)
        file.write_row_group([data])
        sizes.append(file.close(Record(), spec_id=0).file_size_in_bytes)

    assert sizes[0] > sizes[1]


def test_small_decimals_are_stored_as_integers(tmp_path: Path) -> None:
    """Files would be larger, and differ from what Iceberg's writers do."""
    file = opened(tmp_path / "f.parquet")
    file.write_row_group([batch(1)])
    file.close(Record(), spec_id=0)

    assert pq.ParquetFile(tmp_path / "f.parquet").schema.column(2).physical_type == "INT32"


def test_entry_names_the_sort_order_of_the_rows(tmp_path: Path) -> None:
    """Readers could not make use of the order."""
    file = opened(tmp_path / "f.parquet")
    file.write_row_group([batch(1)])

    assert file.close(Record(), spec_id=0, sort_order_id=5).sort_order_id == 5


def test_lz4_is_the_one_that_other_readers_read(tmp_path: Path) -> None:
    """Other readers could not open the file: Hadoop's own LZ4 is another format."""
    file = opened(tmp_path / "f.parquet", "lz4", schema=Schema(NestedField(1, "id", ice.LongType())))
    file.write_row_group([pa.RecordBatch.from_pydict({"id": pa.array([1])})])
    file.close(Record(), spec_id=0)

    # Parquet's footer: the path ["id"], then the codec, where 5 is LZ4 and 7 is LZ4_RAW (twice that, in zigzag).
    assert b"\x19\x18\x02id\x15\x0e" in (tmp_path / "f.parquet").read_bytes()


def write_ids(path: Path, rows: int = 50_000, **settings: Any) -> pq.ParquetFile:
    """Write ids that hardly compress, all different, as one row group; return the file."""
    ids = pa.array([number * 2_654_435_761 % 2**32 for number in range(rows)], pa.int64())
    file = opened(path, "uncompressed", schema=Schema(NestedField(1, "id", ice.LongType())), **settings)
    file.write_row_group([pa.RecordBatch.from_arrays([ids], names=["id"])])
    file.close(Record(), spec_id=0)
    return pq.ParquetFile(path)


def pages(path: Path) -> int:
    """Return how many page headers of plain or dictionary pages are in the file."""
    # A data page's header begins with its type (0) and its sizes, and names encoding and level encodings at its end.
    return len(re.findall(rb"\x15[\x00\x10]\x15\x06\x15\x06", path.read_bytes()))


def test_page_size_is_the_tables(tmp_path: Path) -> None:
    """A table's page size would be ignored, and readers would read more than they need."""
    write_ids(tmp_path / "default.parquet", dictionary_size_bytes=1)
    write_ids(tmp_path / "small.parquet", dictionary_size_bytes=1, page_size_bytes=16 * 1024)

    assert pages(tmp_path / "small.parquet") > 15 + pages(tmp_path / "default.parquet")


@pytest.mark.skipif(not can_honour(PAGE_ROW_LIMIT), reason="this pyarrow has no limit of rows")
def test_rows_of_a_page_are_the_tables(tmp_path: Path) -> None:
    """A table's page row limit would be ignored."""
    write_ids(tmp_path / "default.parquet", dictionary_size_bytes=1)
    write_ids(tmp_path / "small.parquet", dictionary_size_bytes=1, page_row_limit=2_000)

    assert pages(tmp_path / "small.parquet") >= 20 + pages(tmp_path / "default.parquet")


def test_dictionary_size_is_the_tables(tmp_path: Path) -> None:
    """A table's dictionary size would be ignored."""
    small = write_ids(tmp_path / "small.parquet", dictionary_size_bytes=1_000)
    large = write_ids(tmp_path / "large.parquet", dictionary_size_bytes=10_000_000)

    sizes = [first_chunk(file).data_page_offset - first_chunk(file).dictionary_page_offset for file in (small, large)]
    assert sizes[0] < 50_000
    assert sizes[1] > 399_000


def first_chunk(file: pq.ParquetFile) -> Any:
    """Return the footer's entry of the first column in the first row group."""
    return file.metadata.row_group(0).column(0)


filtered = pytest.mark.skipif(not can_honour(BLOOM_FILTERS), reason="this pyarrow writes no Bloom filters")


@filtered
def test_bloom_filter_has_the_values(tmp_path: Path) -> None:
    """A table that asks for Bloom filters would get none, or empty ones that hide its rows."""
    path = tmp_path / "f.parquet"
    file = opened(path, bloom_filter_fpp={1: 0.01}, bloom_filter_ndv={1: 1_000})
    file.write_row_group([batch(*range(1_000))])
    rows = file.row_bytes
    file.close(Record(), spec_id=0)

    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little")
    filters = content[rows : -8 - footer]
    assert 2048 <= len(filters) <= 2048 + 50
    assert 5_000 < sum(byte.bit_count() for byte in filters) < 8_100  # 1,000 values set 8 bits each, some the same


NESTED = Schema(
    NestedField(1, "a b", ice.LongType()),
    NestedField(2, "l", ice.ListType(element_id=3, element_type=ice.LongType())),
    NestedField(4, "m", ice.MapType(key_id=5, key_type=ice.StringType(), value_id=6, value_type=ice.LongType())),
    NestedField(7, "s", ice.StructType(NestedField(8, "x", ice.LongType()))),
)


@filtered
@pytest.mark.parametrize("field_id", [1, 3, 5, 6, 8])
def test_bloom_filter_of_any_column_is_written(tmp_path: Path, field_id: int) -> None:
    """Columns inside others, or with rare characters, would get no Bloom filter."""
    schema = file_shape(NESTED).schema
    rows = pa.RecordBatch.from_pylist([{schema.names[0]: 1, "l": [1], "m": [("k", 1)], "s": {"x": 1}}], schema=schema)
    sizes = []
    for fpp in ({}, {field_id: 0.01}):
        file = opened(tmp_path / "f.parquet", schema=NESTED, bloom_filter_fpp=fpp)
        file.write_row_group([rows])
        sizes.append(file.close(Record(), spec_id=0).file_size_in_bytes)

    assert sizes[1] >= sizes[0] + 32


@pytest.mark.parametrize("row_groups", [0, 1])
def test_discarded_file_is_gone(tmp_path: Path, row_groups: int) -> None:
    """Failed tasks would leave files behind."""
    file = opened(tmp_path / "f.parquet")
    for _ in range(row_groups):
        file.write_row_group([batch(1)])

    file.discard()

    assert list(tmp_path.iterdir()) == []


def test_file_that_was_closed_can_be_discarded(tmp_path: Path) -> None:
    """A task that fails after its first file would leave it behind."""
    file = opened(tmp_path / "f.parquet")
    file.write_row_group([batch(1)])
    file.close(Record(), spec_id=0)

    file.discard()

    assert list(tmp_path.iterdir()) == []


def test_file_whose_writer_cannot_begin_is_closed_and_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open stream to an object store would hang the process at its exit, and leave a file."""
    streams: list[Any] = []

    def refuse(stream: Any, *_: Any, **__: Any) -> None:
        streams.append(stream)
        raise OSError("no such codec in this build")

    monkeypatch.setattr(parquet.pq, "ParquetWriter", refuse)

    with pytest.raises(OSError, match="no such codec"):
        opened(tmp_path / "f.parquet")

    assert streams[0].closed
    assert list(tmp_path.iterdir()) == []
