"""Files without field ids that were added to a table, whose columns have names that its name mapping does not know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from support.tables.data_rewrites import rewrite
from support.tables.reading import read_by_tasks
from support.tables.sink import Sink

from iceberg_ds.errors import IcebergSinkError, UnsupportedTableError

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


def remap(sink: Sink, *fields: dict[str, object]) -> None:
    """Give the table another name mapping."""
    with sink.table().transaction() as change:
        change.set_properties({"schema.name-mapping.default": json.dumps(fields)})


def add_as(sink: Sink, path: Path, wanted: IcebergType, values: pa.Array) -> None:
    """Make a table with `id` and `x`, and add a file in which `x` has these values."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "x", wanted)))
    pq.write_table(pa.table({"id": IDS}), path)
    sink.table().add_files([f"file://{path}"])
    pq.write_table(pa.table({"id": IDS, "x": values}), path)


NUMBERS = pa.array([0, 1, 2])
IN_A_STRUCT = StructType(NestedField(3, "y", BooleanType()))
OTHER_TYPES = [
    (BooleanType(), NUMBERS, "'x' is int64, which cannot be read as boolean"),
    (FloatType(), NUMBERS.cast(pa.float64()), "'x' is double, which cannot be read as float"),
    (DateType(), NUMBERS.cast(pa.timestamp("us")), "'x' is timestamp"),
    (StringType(), NUMBERS, "'x' is int64, which cannot be read as string"),
    (LongType(), NUMBERS.cast(pa.string()), "'x' is string, which cannot be read as long"),
    (IN_A_STRUCT, NUMBERS, "'x' is int64, which cannot be read as struct"),
    (IN_A_STRUCT, pa.array([{"y": 1}] * 3), "'x.y' is int64"),
    (ListType(3, BooleanType()), NUMBERS, "'x' is int64, which cannot be read as list"),
    (ListType(3, BooleanType()), pa.array([[1]] * 3), "'x.element' is int64"),
    (
        MapType(3, StringType(), 4, BooleanType()),
        pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
        "'x.value' is int64",
    ),
]


@pytest.mark.parametrize(("wanted", "values", "said"), OTHER_TYPES, ids=[said for *_, said in OTHER_TYPES])
def test_column_of_another_type_is_refused_by_name(
    sink: Sink, tmp_path: Path, wanted: IcebergType, values: pa.Array, said: str
) -> None:
    """Arrow would make a truth of each number, a day of each time, and infinity of what is too large."""
    add_as(sink, tmp_path / "added.parquet", wanted, values)
    inside = [{"field-id": 3, "names": ["y", "element", "key"]}, {"field-id": 4, "names": ["value"]}]
    remap(sink, {"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["x"], "fields": inside})

    with pytest.raises(UnsupportedTableError, match=f"added.parquet .*its column for {said}"):
        read_by_tasks(sink)
    with pytest.raises(IcebergSinkError, match=f"added.parquet: its column for {said}"):
        rewrite(sink, rewrite_all="true")


def test_required_field_of_a_struct_that_no_name_tells_is_refused(sink: Sink, tmp_path: Path) -> None:
    """Nulls would be shown where there are none."""
    inside = StructType(NestedField(3, "k", LongType(), required=True), NestedField(4, "v", StringType()))
    add_as(sink, tmp_path / "added.parquet", inside, pa.array([{"k": 1, "v": "a"}] * 3))
    fields = [{"field-id": 4, "names": ["v"]}]
    remap(sink, {"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["x"], "fields": fields})

    with pytest.raises(UnsupportedTableError, match=r"added.parquet .*it has no column for 'x\.k', which is required"):
        read_by_tasks(sink)


def test_mapping_with_a_name_twice_is_refused(sink: Sink, tmp_path: Path) -> None:
    """One of two columns would be taken, and no one would know which."""
    add(sink, tmp_path, ("id", "region"))
    remap(sink, {"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["region", "id"]})

    with pytest.raises(UnsupportedTableError, match="has the name 'id' for more than one column"):
        read_by_tasks(sink)


def test_column_without_names_is_in_no_file(sink: Sink, tmp_path: Path) -> None:
    """Names are optional."""
    add(sink, tmp_path, ("id", "region"))
    remap(sink, {"field-id": 1}, {"field-id": 2, "names": ["region"]})

    assert read_by_tasks(sink) == [{"id": None, "region": region} for region in REGIONS]
