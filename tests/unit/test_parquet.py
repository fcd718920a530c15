"""One Parquet file: its settings, its manifest entry and its removal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from iceberg_ds import parquet
from iceberg_ds.leaves import leaf_columns
from iceberg_ds.parquet import ParquetFile
from iceberg_ds.plan import FileSettings
from iceberg_ds.shape import file_shape

SCHEMA = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "d", ice.DoubleType()),
    NestedField(3, "n", ice.DecimalType(9, 2)),
)
ARROW = file_shape(SCHEMA).schema


def opened(path: Path, codec: str = "zstd", level: int | None = None) -> ParquetFile:
    """Return a new file of `SCHEMA`."""
    settings = FileSettings(
        target_file_size_bytes=1, compression_codec=codec, compression_level=level, metrics_properties={}
    )
    return ParquetFile(PyArrowFileIO(), f"file://{path}", ARROW, leaf_columns(SCHEMA, {}), settings)


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
