"""What options and table properties say about files: honoured, refused by name, or left out with a warning."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import NestedField
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import IDENTIFIER, NAME, Sink, local, rows, write_batches
from support.tables.sink import SCHEMA as SPARK_SCHEMA

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.options import file_settings as module
from iceberg_ds.options.file_settings import file_settings
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import FileSettings
from iceberg_ds.writers.parquet import BLOOM_FILTERS, can_honour

SCHEMA = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "flag", ice.BooleanType()),
    NestedField(3, "s", ice.StructType(NestedField(5, "x", ice.StringType()))),
    NestedField(4, "l", ice.ListType(element_id=6, element_type=ice.DoubleType())),
)
FILTERS = "write.parquet.bloom-filter-"


def metadata(properties: dict[str, str]) -> TableMetadata:
    """Return a table with these properties."""
    return new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", properties)


def settings(properties: dict[str, str], **options: Any) -> FileSettings:
    """Return how files of a table with these properties are written."""
    return file_settings(SinkOptions(table=IDENTIFIER, **options), metadata(properties), NAME)


def test_nothing_is_set_by_default() -> None:
    """Files of every table would differ from what Arrow writes best."""
    files = settings({})

    assert files.max_open_files == 16
    assert (files.row_group_size_bytes, files.page_size_bytes, files.page_row_limit) == (None, None, None)
    assert files.dictionary_size_bytes is None
    assert files.bloom_filter_fpp == {}


def test_option_bounds_the_open_files() -> None:
    """A user's limit would be ignored."""
    assert settings({}, max_open_files=7).max_open_files == 7


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("write.target-file-size-bytes", "target_file_size_bytes"),
        ("write.parquet.row-group-size-bytes", "row_group_size_bytes"),
        ("write.parquet.page-size-bytes", "page_size_bytes"),
        ("write.parquet.page-row-limit", "page_row_limit"),
        ("write.parquet.dict-size-bytes", "dictionary_size_bytes"),
        ("write.parquet.bloom-filter-max-bytes", "bloom_filter_max_bytes"),
    ],
)
def test_property_is_a_number_above_zero(key: str, attribute: str) -> None:
    """A table's setting would be ignored, or a wrong one would fail the tasks one after the other."""
    assert getattr(settings({key: "4096"}), attribute) == 4096
    for wrong in ("0", "-1", "1MB", "", "1.5", "²"):
        with pytest.raises(
            UnsupportedTableError, match=rf"Cannot write to db\.t: property {key} is '{wrong}', expected"
        ):
            settings({key: wrong})


def test_size_of_files_of_deletes_matters_to_writes_by_keys_alone() -> None:
    """A table's setting would be ignored, or a wrong one would stop appends that write no deletes."""
    key = "write.delete.target-file-size-bytes"

    assert settings({key: "4096"}, keys=("id",)).delete_file_size_bytes == 4096
    assert settings({}, keys=("id",)).delete_file_size_bytes == 64 * 1024 * 1024
    assert settings({key: "64 MB"}).delete_file_size_bytes == 64 * 1024 * 1024
    for wrong in ("0", "-1", "64 MB", "", "²"):
        with pytest.raises(UnsupportedTableError, match=rf"property {key} is '{wrong}', expected a number above 0"):
            settings({key: wrong}, keys=("id",))


def test_numbers_that_iceberg_could_not_read_are_refused() -> None:
    """Tasks would fail with an overflow, and so would other writers."""
    with pytest.raises(UnsupportedTableError, match=r"page-row-limit is '2147483648', expected 2147483647"):
        settings({"write.parquet.page-row-limit": "2147483648"})

    assert settings({"write.target-file-size-bytes": "9999999999"}).target_file_size_bytes == 9_999_999_999


def test_bloom_filters_are_by_field_id() -> None:
    """Columns that a table wants filters for would get none."""
    files = settings(
        {
            f"{FILTERS}enabled.column.id": "true",
            f"{FILTERS}enabled.column.s.x": "TRUE",
            f"{FILTERS}enabled.column.l.element": "true",
            f"{FILTERS}enabled.column.flag": "false",
            f"{FILTERS}fpp.column.s.x": "0.05",
            f"{FILTERS}ndv.column.s.x": "1000",
        }
    )

    assert files.bloom_filter_fpp == {1: 0.01, 5: 0.05, 6: 0.01}
    assert files.bloom_filter_ndv == {5: 1000}
    assert files.bloom_filter_max_bytes == 1024 * 1024


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("enabled.column.id", "yes", "true or false"),
        ("fpp.column.id", "1", "above 0 and below 1"),
        ("fpp.column.id", "0", "above 0 and below 1"),
        ("fpp.column.id", "nan", "above 0 and below 1"),
        ("fpp.column.id", "few", "above 0 and below 1"),
        ("ndv.column.id", "0", "above 0"),
        ("ndv.column.id", "many", "above 0"),
    ],
)
def test_wrong_bloom_filter_property_is_refused_by_name(key: str, text: str, expected: str) -> None:
    """A task would fail in the middle of the write."""
    with pytest.raises(UnsupportedTableError, match=rf"property {FILTERS}{key} is '{text}', expected .*{expected}"):
        settings({FILTERS + key: text})


@pytest.mark.parametrize("column", ["flag", "s", "l", "dropped"])
def test_column_that_can_have_no_bloom_filter_is_passed_over_with_a_warning(
    column: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A table could not be written any more once such a column is dropped."""
    keys = {f"{FILTERS}enabled.column.{column}": "true", f"{FILTERS}ndv.column.{column}": "5"}
    with caplog.at_level(logging.WARNING):
        files = settings(keys)

    assert files.bloom_filter_fpp == {}
    assert f"columns {column} get the Bloom filters that properties {FILTERS}enabled.column.* of db.t" in caplog.text


def test_property_that_this_pyarrow_cannot_honour_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user would wonder why files are laid out differently, or a table could not be written with an older pyarrow."""
    monkeypatch.setattr(module, "can_honour", lambda _: False)
    keys = {"write.parquet.page-row-limit": "10", f"{FILTERS}enabled.column.id": "true"}
    with caplog.at_level(logging.WARNING):
        settings(keys)
        settings({})

    (record,) = caplog.records
    assert "without regard to its properties write.parquet.page-row-limit, " in record.getMessage()
    assert f"{FILTERS}enabled.column.*: pyarrow {pa.__version__} cannot honour them" in record.getMessage()


def test_property_that_can_be_honoured_is_no_cause_for_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs would fill with warnings about nothing."""
    monkeypatch.setattr(module, "can_honour", lambda _: True)
    with caplog.at_level(logging.WARNING):
        settings({"write.parquet.page-row-limit": "10", f"{FILTERS}enabled.column.id": "true"})

    assert caplog.records == []


def written(sink: Sink, properties: dict[str, str]) -> DataFile:
    """Return the one file of a write into a new table with these properties."""
    sink.catalog._catalog.create_namespace("db")
    sink.catalog._catalog.create_table(IDENTIFIER, ID_AND_NAME, properties=properties)
    (file,) = write_batches(sink.plan(), rows(*range(5_000)), SPARK_SCHEMA)
    return file


def footer_of(file: DataFile) -> pq.FileMetaData:
    """Return the footer of a file."""
    return pq.read_metadata(local(file.file_path))


def test_row_group_size_of_the_table_reaches_its_files(sink: Sink) -> None:
    """A table's setting would be read and then forgotten."""
    assert footer_of(written(sink, {"write.parquet.row-group-size-bytes": "8000"})).num_row_groups > 3


@pytest.mark.skipif(not can_honour(BLOOM_FILTERS), reason="this pyarrow writes no Bloom filters")
def test_bloom_filter_of_the_table_reaches_its_files(sink: Sink) -> None:
    """A table's filters would be missing, and lookups by key be slow."""
    file = written(sink, {f"{FILTERS}enabled.column.name": "true", f"{FILTERS}fpp.column.name": "0.001"})

    content = local(file.file_path).read_bytes()
    group = footer_of(file).row_group(0)
    rows_end = 4 + sum(group.column(column).total_compressed_size for column in range(2))
    filters = len(content) - 8 - int.from_bytes(content[-8:-4], "little") - rows_end
    assert 16_384 <= filters <= 16_384 + 50  # what 5,000 values need for one false positive in 1,000


def test_metrics_modes_of_the_table_reach_its_manifests(sink: Sink) -> None:
    """A table's metrics settings would be ignored, and its manifests be larger than its user wants."""
    file = written(
        sink,
        {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.name": "truncate(3)"},
    )

    assert (file.lower_bounds, file.upper_bounds) == ({2: b"row"}, {2: b"rox"})
    assert file.value_counts == {1: 5_000, 2: 5_000}


@pytest.mark.parametrize(
    ("properties", "path"),
    [
        ({}, r"/data/[^/]+\.parquet"),
        ({"write.object-storage.enabled": "true"}, r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/[^/]+\.parquet"),
        (
            {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"},
            r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}-[^/]+\.parquet",
        ),
    ],
)
def test_layout_of_the_table_is_that_of_its_files(sink: Sink, properties: dict[str, str], path: str) -> None:
    """Object stores would slow down, because all files have the same prefix."""
    assert re.search(path + "$", written(sink, properties).file_path)


def test_files_are_where_the_table_wants_its_data(sink: Sink, tmp_path: Path) -> None:
    """Data would be written where its user did not want it."""
    place = f"file://{tmp_path}/elsewhere"

    assert written(sink, {"write.data.path": place}).file_path.startswith(f"{place}/")
