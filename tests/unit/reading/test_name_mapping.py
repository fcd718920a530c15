"""Files without field ids that were added to a table, whose columns have names that its name mapping does not know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType
from support.tables.data_rewrites import rewrite
from support.tables.reading import read_by_tasks
from support.tables.sink import Sink

from iceberg_ds.errors import UnsupportedTableError

IDS = [0, 1, 2]
REGIONS = ["EU", "US", None]


def add(sink: Sink, folder: Path, names: tuple[str, str], *, is_required: bool = False) -> None:
    """Make a table with `id` and `region`, and add a file with three rows, whose columns then get these names."""
    sink.create(Schema(NestedField(1, "id", LongType(), required=is_required), NestedField(2, "region", StringType())))
    path = folder / "added.parquet"
    columns = [pa.field("id", pa.int64(), nullable=not is_required), pa.field("region", pa.string())]
    rows = pa.table([pa.array(IDS), pa.array(REGIONS)], schema=pa.schema(columns))
    pq.write_table(rows, path)
    sink.table().add_files([f"file://{path}"])
    pq.write_table(rows.rename_columns(names), path)


@pytest.mark.parametrize("names", [("ID", "Region"), ("other", "more")])
def test_rows_of_a_file_without_any_known_column_are_there(sink: Sink, tmp_path: Path, names: tuple[str, str]) -> None:
    """A read would show no row of the file, and say nothing."""
    add(sink, tmp_path, names)

    assert read_by_tasks(sink) == [{"id": None, "region": None}] * 3
    assert read_by_tasks(sink, columns="region") == [{"region": None}] * 3
    assert [row["_pos"] for row in read_by_tasks(sink, columns="_pos")] == [0, 1, 2]


def test_known_columns_are_read_and_others_are_null(sink: Sink, tmp_path: Path) -> None:
    """The values would stand in the wrong rows, or the rows be lost."""
    add(sink, tmp_path, ("ID", "region"))

    assert read_by_tasks(sink) == [{"id": None, "region": region} for region in REGIONS]
    assert read_by_tasks(sink, columns="id") == [{"id": None}] * 3


def test_all_names_of_the_mapping_count(sink: Sink, tmp_path: Path) -> None:
    """The error says to add the name."""
    add(sink, tmp_path, ("ID", "region"), is_required=True)
    mapping = [{"field-id": 1, "names": ["id", "ID"]}, {"field-id": 2, "names": ["region"]}]
    with sink.table().transaction() as change:
        change.set_properties({"schema.name-mapping.default": json.dumps(mapping)})

    assert read_by_tasks(sink) == [
        {"id": number, "region": region} for number, region in zip(IDS, REGIONS, strict=True)
    ]


@pytest.mark.parametrize("names", [("ID", "Region"), ("ID", "region")])
def test_file_without_a_required_column_is_refused(sink: Sink, tmp_path: Path, names: tuple[str, str]) -> None:
    """Nulls would be shown in a column that has none."""
    add(sink, tmp_path, names, is_required=True)

    with pytest.raises(UnsupportedTableError, match=r"added.parquet .*it has no column for 'id', which is required"):
        read_by_tasks(sink)


ITEM = pa.struct([("text", pa.string()), ("code", pa.int64())])
LISTS = [[{"text": "a", "code": 1}, None], None, [{"text": None, "code": 2}, {"text": "b", "code": 3}]]


@pytest.mark.parametrize(
    "kind",
    [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda item: pa.list_(item, 2)],
    ids=["list", "large_list", "list_view", "large_list_view", "fixed_size_list"],
)
def test_every_kind_of_lists_that_arrow_has_is_looked_into(
    sink: Sink, tmp_path: Path, kind: Callable[[pa.DataType], pa.DataType]
) -> None:
    """Polars writes large lists: all in them would become null, for ever at the next compaction."""
    parts = (NestedField(4, "code", LongType()), NestedField(5, "text", StringType()))
    lists = ListType(3, StructType(*parts), element_required=False)
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "lists", lists)))
    path = tmp_path / "added.parquet"
    pq.write_table(pa.table({"id": IDS, "lists": pa.array(LISTS, pa.list_(ITEM))}), path)
    sink.table().add_files([f"file://{path}"])
    rows = pa.table({"id": IDS, "lists": pa.array(LISTS, kind(ITEM))})
    pq.write_table(rows, path)

    assert read_by_tasks(sink) == rows.to_pylist()
    rewrite(sink, rewrite_all="true")
    assert read_by_tasks(sink) == rows.to_pylist()


def test_columns_with_ids_keep_them_beside_others(sink: Sink, tmp_path: Path) -> None:
    """A column would be taken for another one, which has its name now."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "region", StringType())))
    path = tmp_path / "added.parquet"
    pq.write_table(pa.table({"id": IDS, "region": REGIONS}), path)
    sink.table().add_files([f"file://{path}"])
    moved = pa.field("region", pa.int64(), metadata={"PARQUET:field_id": "1"})
    others = [pa.field("id", pa.int64()), pa.field("text", pa.string())]
    rows = pa.table([pa.array(IDS), pa.array([7, 8, 9]), pa.array(REGIONS)], pa.schema([moved, *others]))
    pq.write_table(rows, path)
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["region", "text"]}]
    with sink.table().transaction() as change:
        change.set_properties({"schema.name-mapping.default": json.dumps(mapping)})

    assert read_by_tasks(sink) == [
        {"id": number, "region": region} for number, region in zip(IDS, REGIONS, strict=True)
    ]
