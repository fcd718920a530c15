"""Files that were written without Iceberg and added to a table: nothing but their names tells their columns.

PyIceberg's `add_files`, and Iceberg's procedures of that name, add them with a name mapping in the table's properties.
Whatever looks into such a file finds its columns by that; without it, or where it does not tell, it names the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from support.checks.invariants import check_sound, unreferenced_files
from support.keys.conversions import ENCODINGS, convert
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.publications import put as publish
from support.keys.upserts import SEQUENCED_SCHEMA, upsert, upsert_by_sequence, upsert_epoch
from support.tables.data_rewrites import rewrite
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import IcebergSinkError

EVENTS: list[Event] = [("U", 2, "US", 200, 5), ("D", 3, "EU", None, 5)]
ROWS = [{"id": number, "region": "EU", "amount": 10 * number} for number in (1, 2, 3)]
MAPPING = "schema.name-mapping.default"
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


@pytest.fixture
def added(sink: Sink, tmp_path: Path) -> Path:
    """Return a file of rows 1 to 3 that was added to the table."""
    return add(sink, tmp_path, KEYED_SCHEMA)


def add(sink: Sink, folder: Path, schema: Schema, spec: PartitionSpec | None = None) -> Path:
    """Make the table, and add a file with rows 1 to 3 in the columns that `ROWS` have."""
    sink.create(schema, spec or PartitionSpec())
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string(), nullable=False)]
    path = folder / "added.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS, pa.schema([*fields, pa.field("amount", pa.int64())])), path)
    sink.table().add_files([f"file://{path}"])
    assert MAPPING in sink.table().properties
    assert sink.rows() == [{**row, "lsn": None} if "lsn" in schema.column_names else row for row in ROWS]
    return path


def map_names(sink: Sink, **names: int) -> None:
    """Let the table's property name columns so, and nothing else; without names, drop it."""
    with sink.table().transaction() as change:
        if names:
            mapping = [{"field-id": number, "names": [name]} for name, number in names.items()]
            change.set_properties({MAPPING: json.dumps(mapping)})
        else:
            change.remove_properties(MAPPING)


def epoch_and_conversion(sink: Sink, encoding: RowEncoding) -> None:
    """Commit an epoch with deletes by keys, which reads nothing, and convert them."""
    sink.commit(keyed_tasks(plan_by_keys(sink), EVENTS))
    convert(sink, encoding)


def epoch_and_rewrite(sink: Sink) -> None:
    """Commit an epoch with deletes by keys, and apply them."""
    sink.commit(keyed_tasks(plan_by_keys(sink), EVENTS))
    rewrite(sink, min_input_files="1", rewrite_all="true", remove_dangling_deletes="true")


def replace_and_upsert(sink: Sink) -> None:
    """Write what stays of the file again, then the other row."""
    sink.overwrite([], schema=COLUMNS, replace_where="id = 3")
    upsert(sink, "position", EVENTS)


READERS: dict[str, Callable[[Sink], object]] = {
    **{f"upsert, {encoding}": lambda sink, by=encoding: upsert(sink, by, EVENTS) for encoding in ENCODINGS},
    **{f"conversion, {encoding}": lambda sink, by=encoding: epoch_and_conversion(sink, by) for encoding in ENCODINGS},
    "epoch": lambda sink: upsert_epoch(sink, 0, EVENTS),
    "publication": lambda sink: publish(sink, None, EVENTS),
    "rewrite": epoch_and_rewrite,
    "replace-where": replace_and_upsert,
}


@pytest.mark.parametrize("reader", READERS)
def test_rows_are_found_by_the_names_of_their_columns(sink: Sink, added: Path, reader: str) -> None:
    """A table of files from before Iceberg could not be changed without an engine on a JVM."""
    READERS[reader](sink)

    assert sorted(sink.rows(), key=itemgetter("id")) == [ROWS[0], {"id": 2, "region": "US", "amount": 200}]
    assert added.exists()
    check_sound(sink.table())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_ids_that_some_columns_have_count_in_searches_too(sink: Sink, added: Path, encoding: RowEncoding) -> None:
    """Keys would be looked for in another column than reads show: rows lost, and keys there twice."""
    id_here = {"PARQUET:field_id": "1"}
    columns = [pa.field("amount", pa.int64(), metadata=id_here), pa.field("region", pa.string())]
    rows = pa.table([[1, 2, 3], ["EU"] * 3, [10, 20, 30]], pa.schema([*columns, pa.field("id", pa.int64())]))
    pq.write_table(rows, added)
    map_names(sink, id=1, region=2, amount=3)

    upsert(sink, encoding, EVENTS)

    assert read_by_tasks(sink) == [
        {"id": 1, "region": "EU", "amount": None},
        {"id": 2, "region": "US", "amount": 200},
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_names_of_columns_count_beside_ids_of_others(sink: Sink, added: Path, encoding: RowEncoding) -> None:
    """A table that can be read could not be changed."""
    rows = pq.read_table(added)
    amount = pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "3"})
    pq.write_table(pa.Table.from_arrays(rows.columns, schema=rows.schema.set(2, amount)), added)

    upsert(sink, encoding, EVENTS)

    assert read_by_tasks(sink) == [ROWS[0], {"id": 2, "region": "US", "amount": 200}]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_of_every_kind_that_arrow_has_are_kept(
    sink: Sink, added: Path, encoding: RowEncoding, kind: pa.DataType
) -> None:
    """The footer of a file tells such kinds."""
    rows = pq.read_table(added)
    pq.write_table(rows.set_column(1, "region", pa.array(["a", "b", "c"]).cast(kind)), added)

    upsert(sink, encoding, EVENTS)

    assert [(row["id"], row["region"]) for row in read_by_tasks(sink)] == [(1, "a"), (2, "US")]


def test_key_of_another_type_is_refused(sink: Sink, added: Path) -> None:
    """Arrow would make keys of what is none."""
    pq.write_table(pq.read_table(added).set_column(0, "id", pa.array(["1", "2", "3"])), added)

    with pytest.raises(IcebergSinkError, match=rf"{added.name}: its column id is string, which cannot be read as the"):
        upsert(sink, "position", EVENTS)


def test_column_may_stand_in_the_partition_alone(sink: Sink, tmp_path: Path) -> None:
    """Rows would be looked for by nulls: such files are those of Hive, whose folders have the values."""
    added = add(sink, tmp_path, KEYED_SCHEMA, BY_REGION)
    pq.write_table(pq.read_table(added).drop_columns(["region"]), added)

    upsert(sink, "copy-on-write", [("U", 2, "EU", 200, 5)])

    regions = {(row["id"], row["region"], row["amount"]) for row in sink.rows()}
    assert regions == {(1, "EU", 10), (2, "EU", 200), (3, "EU", 30)}


@pytest.mark.parametrize("reader", READERS)
def test_without_a_name_mapping_it_is_refused(sink: Sink, added: Path, reader: str) -> None:
    """Keys read as nulls are found nowhere: old rows would stay beside new ones, or all of a file's values be lost."""
    map_names(sink)

    with pytest.raises(IcebergSinkError, match=rf"{added.name}(:| again).*field id"):
        READERS[reader](sink)

    first = sink.table().metadata.snapshots[0].snapshot_id
    map_names(sink, id=1, region=2, amount=3)
    assert sink.table().scan(row_filter="id < 100", snapshot_id=first).to_arrow().to_pylist() == ROWS
    assert unreferenced_files(sink.table()) == set()


@pytest.mark.parametrize("reader", READERS)
def test_key_that_no_name_tells_is_not_taken_for_null(sink: Sink, added: Path, reader: str) -> None:
    """Old rows would stay beside new ones, and all keys of the file be lost where it is written again."""
    map_names(sink, other=1, region=2, amount=3)

    with pytest.raises(IcebergSinkError, match=rf"{added.name}(:| again).*(field id 1|no column for 'id')"):
        READERS[reader](sink)

    map_names(sink, id=1, region=2, amount=3)
    assert unreferenced_files(sink.table()) == set()


def test_mapping_that_is_none_is_named(sink: Sink, added: Path) -> None:
    """A user would see how JSON is malformed, and not where it stands."""
    with sink.table().transaction() as change:
        change.set_properties({MAPPING: "none"})

    with pytest.raises(IcebergSinkError, match=f"property {MAPPING} is no name mapping"):
        upsert(sink, "position", EVENTS)
    assert added.exists()


def test_late_rows_are_not_held_against_a_file_without_the_sequence(sink: Sink, tmp_path: Path) -> None:
    """A late row would win over one whose sequence was read as null; written anew, the file says that it has none."""
    added = add(sink, tmp_path, SEQUENCED_SCHEMA)

    with pytest.raises(IcebergSinkError, match=rf"{added.name}: .* field id 4,.* iceberg_ds\.rewrite_data_files first"):
        upsert_by_sequence(sink, EVENTS)
    assert len(sink.rows()) == len(ROWS)

    rewrite(sink, min_input_files="1", rewrite_all="true")
    upsert_by_sequence(sink, EVENTS)
    assert sorted(row["amount"] for row in sink.rows()) == [10, 200]


def test_index_of_keys_follows_the_mapping(sink: Sink, tmp_path: Path) -> None:
    """Rows would be found by the values of the column that had the key's name before."""
    added = add(sink, tmp_path, KEYED_SCHEMA)
    rows = [{"id": number, "region": "EU", "amount": number % 3 + 1} for number in (1, 2, 3)]
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(added)), added)
    upsert_epoch(sink, 0, [("U", 2, "EU", 2, 5)])
    map_names(sink, amount=1, region=2, id=3)

    upsert_epoch(sink, 1, [("U", 1, "US", 5, 6)])

    assert {(row["id"], row["amount"]) for row in sink.rows()} == {(2, 1), (2, 2), (1, 5)}


def test_keys_of_such_a_file_are_proven_unique_by_their_names(sink: Sink, added: Path) -> None:
    """Keys that are there twice would be proven to be there once, or a sound table not be proven so."""
    options = {"warehouse": str(sink.options.warehouse)}
    assert iceberg_ds.verify(NAME, options=options, deep=True, unique_keys=True).ok
    map_names(sink)

    result = iceberg_ds.verify(NAME, options=options, deep=True, unique_keys=True)

    assert not result.ok
    assert f"{added.name}: it does not say which column has field id 1" in str(result)


def test_files_beside_it_and_whole_files_are_written(sink: Sink, added: Path) -> None:
    """A table with such a file could not be written at all."""
    map_names(sink)
    sink.commit(sink.write([{"id": 4, "region": "US", "amount": 4}], schema=COLUMNS))
    sink.overwrite([], schema=COLUMNS, replace_where="id = 4")
    map_names(sink, id=1, region=2, amount=3)
    assert sink.rows() == ROWS
    map_names(sink)

    sink.overwrite([], schema=COLUMNS, replace_where="id < 4")

    assert sink.rows() == []
    assert added.exists()
