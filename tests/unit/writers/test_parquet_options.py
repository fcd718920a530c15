"""What Arrow's writer is told, and the size of Bloom filters."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.plan import FileSettings
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.writers import parquet as parquet_options
from iceberg_ds.writers.parquet import (
    BLOOM_FILTERS,
    PAGE_ROW_LIMIT,
    bloom_filter_bytes,
    can_honour,
    filter_bytes,
    most_values,
    parquet_path,
    writer_options,
)

SCHEMA = Schema(
    NestedField(1, "a b", ice.LongType()),
    NestedField(2, "l", ice.ListType(element_id=3, element_type=ice.StructType(NestedField(4, "x", ice.LongType())))),
    NestedField(
        5,
        "m",
        ice.MapType(
            key_id=6,
            key_type=ice.StringType(),
            value_id=7,
            value_type=ice.ListType(element_id=8, element_type=ice.LongType()),
        ),
    ),
    NestedField(9, "s", ice.StructType(NestedField(10, "y", ice.StructType(NestedField(11, "z", ice.LongType()))))),
)
ARROW = file_shape(SCHEMA).schema
LEAVES = leaf_columns(SCHEMA, {})


def settings(**changes: object) -> FileSettings:
    """Return settings that differ in these from the simplest."""
    return FileSettings(
        target_file_size_bytes=1,
        compression_codec="zstd",
        compression_level=None,
        metrics_properties={},
        **changes,  # type: ignore[arg-type]
    )


def test_paths_are_those_of_arrows_own_files() -> None:
    """Options for columns inside others would be ignored."""
    sink = pa.BufferOutputStream()
    pq.write_table(ARROW.empty_table(), sink)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))

    paths = [parquet_path(ARROW, leaf.path) for leaf in LEAVES]

    assert paths == [footer.schema.column(number).path for number in range(len(LEAVES))]


@pytest.mark.parametrize("known", [set(), {PAGE_ROW_LIMIT}, {PAGE_ROW_LIMIT, BLOOM_FILTERS}])
def test_only_options_that_arrow_knows_are_given(monkeypatch: pytest.MonkeyPatch, known: set[str]) -> None:
    """With an older pyarrow, no file could be written."""
    monkeypatch.setattr(parquet_options, "can_honour", known.__contains__)
    asked = settings(page_row_limit=5, bloom_filter_fpp={1: 0.01})

    options = writer_options(asked, ARROW, LEAVES, None)

    assert options.keys() & {PAGE_ROW_LIMIT, BLOOM_FILTERS} == known
    assert options["data_page_size"] is None


def test_known_options_are_those_that_the_writer_takes() -> None:
    """A property would be passed over though this pyarrow could honour it."""
    assert not can_honour("no_such_option")
    assert can_honour("dictionary_pagesize_limit")


@given(max_bytes=st.integers(1, 2**28), fpp=st.floats(1e-6, 0.999))
def test_filter_for_the_most_values_is_as_large_as_allowed(max_bytes: int, fpp: float) -> None:
    """Filters would be larger than the table allows, or smaller than they could be."""
    size = filter_bytes(most_values(max_bytes, fpp), fpp)

    assert size <= max(32, max_bytes)
    assert size * 4 > min(max_bytes, 128 * 1024 * 1024) or most_values(max_bytes, fpp) == 2**31 - 1


@pytest.mark.parametrize(("ndv", "fpp", "size"), [(1, 0.01, 32), (1_000, 0.01, 2_048), (100_000, 0.01, 131_072)])
def test_size_of_a_filter_is_arrows(ndv: int, fpp: float, size: int) -> None:
    """The size of files would be estimated wrongly."""
    assert filter_bytes(ndv, fpp) == size


@pytest.mark.parametrize(
    ("ndv", "group_rows", "expected"),
    [({}, 1_000, 1_000), ({}, None, 3_000), ({1: 7}, 1_000, 7), ({1: 10**9}, None, 3_000), ({}, 0, 1)],
)
def test_filter_is_made_for_what_the_table_says_else_for_all_rows(
    monkeypatch: pytest.MonkeyPatch, ndv: dict[int, int], group_rows: int | None, expected: int
) -> None:
    """Small files would carry filters of a megabyte."""
    monkeypatch.setattr(parquet_options, "can_honour", lambda _: True)
    monkeypatch.setattr(parquet_options, "most_values", lambda *_: 3_000)
    asked = settings(bloom_filter_fpp={1: 0.01, 8: 0.02}, bloom_filter_ndv=ndv)

    filters = writer_options(asked, ARROW, LEAVES, group_rows)[BLOOM_FILTERS]

    assert isinstance(filters, dict)
    assert filters[ARROW.names[0]] == {"ndv": expected, "fpp": 0.01}
    assert filters["m.key_value.value.list.element"]["fpp"] == 0.02


@pytest.mark.skipif(not can_honour(BLOOM_FILTERS), reason="this pyarrow writes no Bloom filters")
@pytest.mark.parametrize(("rows", "ndv"), [(100, 100_000), (5_000, 5_000), (5_000, 10)])
def test_estimated_size_is_what_arrow_writes(rows: int, ndv: int) -> None:
    """Files with Bloom filters would be larger or smaller than asked for."""
    sizes = []
    for asked in (settings(), settings(bloom_filter_fpp={1: 0.01}, bloom_filter_ndv={1: ndv})):
        sink = pa.BufferOutputStream()
        schema = pa.schema([ARROW.field(0)])
        with pq.ParquetWriter(sink, schema, **writer_options(asked, schema, LEAVES[:1], None)) as writer:
            writer.write_table(pa.Table.from_arrays([pa.array(range(rows))], schema=schema))
        sizes.append(sink.tell())

    estimated = bloom_filter_bytes(asked, None, rows)

    assert estimated <= sizes[1] - sizes[0] <= estimated + 100
