"""Keys in memory, and the rows of files that have one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, LongType, StringType

from iceberg_ds.cdc.keys import digest_keys
from iceberg_ds.deletes import match as key_sets
from iceberg_ds.deletes import match as matching
from iceberg_ds.deletes.key_reader import ColumnReader, canonical
from iceberg_ds.deletes.match import KeySet, Matcher
from iceberg_ds.deletes.work import FileWork, KeyFile
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.io.local_io import LocalFileIO

IO = LocalFileIO()
LONG, TEXT = LongType(), StringType()
TYPES: dict[int, IcebergType] = {1: LONG, 2: TEXT}
NAMES = {1: "id", 2: "name"}


def field(number: int, name: str, kind: pa.DataType, **more: Any) -> pa.Field:
    """Return a column with its field id."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)}, **more)


def store(path: Path, rows: pa.Table, group_rows: int = 3) -> str:
    """Write a Parquet file with several row groups and return its path."""
    pq.write_table(rows, path, row_group_size=group_rows)
    return str(path)


def table(columns: dict[int, Sequence[Any]]) -> pa.Table:
    """Return columns of `TYPES`."""
    kinds = {1: pa.int64(), 2: pa.string()}
    arrays = [pa.array(values, kinds[number]) for number, values in columns.items()]
    return pa.Table.from_arrays(
        arrays, schema=pa.schema([field(number, NAMES[number], kinds[number]) for number in columns])
    )


def work(path: str, number: int, *keys: KeyFile) -> FileWork:
    """Return a data file to search."""
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    data_file.spec_id = 0
    return FileWork(data_file=data_file, sequence_number=number, keys=keys)


def key_file(path: str, number: int | None, *ids: int) -> KeyFile:
    """Return a file of keys."""
    return KeyFile(path=path, field_ids=ids or (1,), sequence_number=number)


def found(files: Sequence[FileWork], types: dict[int, IcebergType] | None = None) -> dict[str, list[int]]:
    """Return the positions that are found, by path."""
    return {path: found.positions.to_pylist() for path, found in Matcher(IO, types or TYPES).find(files).items()}


def test_rows_with_a_key_are_found_in_every_row_group(tmp_path: Path) -> None:
    """Deleted rows would come back, or others be lost."""
    data = store(tmp_path / "data", table({1: [5, 6, 7, 8, 5, 9, 5]}))
    keys = store(tmp_path / "keys", table({1: [5, 9, 100, 5]}))

    assert found([work(data, 1, key_file(keys, 2))]) == {data: [0, 4, 5, 6]}


def test_key_is_meant_for_older_files_only(tmp_path: Path) -> None:
    """A row that was written after its key was deleted would be lost."""
    paths = [store(tmp_path / f"data{number}", table({1: [1, 2, 3]})) for number in range(4)]
    old = key_file(store(tmp_path / "old", table({1: [1, 2]})), 2)
    new = key_file(store(tmp_path / "new", table({1: [2, 3]})), 3)
    files = [
        work(paths[0], 1, old, new),
        work(paths[1], 2, new),
        work(paths[2], 3),
        work(paths[3], 2**40, key_file(store(tmp_path / "any", table({1: [3]})), None)),
    ]

    assert found(files) == {paths[0]: [0, 1, 2], paths[1]: [1, 2], paths[3]: [2]}


def test_all_columns_must_be_equal(tmp_path: Path) -> None:
    """Rows that share half of a key would be lost."""
    data = store(tmp_path / "data", table({1: [1, 1, 2, 2], 2: ["a", "b", "a", "b"]}))
    keys = store(tmp_path / "keys", table({2: ["a", "b"], 1: [1, 2]}))

    assert found([work(data, 1, key_file(keys, 2, 1, 2))]) == {data: [0, 3]}


def test_null_is_a_key_like_any_other(tmp_path: Path) -> None:
    """Rows without a value would stay, or all of them be lost."""
    data = store(tmp_path / "data", table({1: [None, 0, None, 1], 2: ["a", "a", None, None]}))
    keys = {
        "id": key_file(store(tmp_path / "id", table({1: [None]})), 2),
        "pair": key_file(store(tmp_path / "pair", table({1: [None, 1], 2: ["a", None]})), 2, 1, 2),
        "none": key_file(store(tmp_path / "none", table({1: [0]})), 2),
        "empty": key_file(store(tmp_path / "empty", table({1: [], 2: []})), 2, 1, 2),
    }

    assert found([work(data, 1, keys["id"])]) == {data: [0, 2]}
    assert found([work(data, 1, keys["pair"])]) == {data: [0, 3]}
    assert found([work(data, 1, keys["none"])]) == {data: [1]}
    assert found([work(data, 1, keys["empty"])]) == {}


def test_deletes_by_different_columns_all_count(tmp_path: Path) -> None:
    """Rows would stay that are deleted by another column."""
    data = store(tmp_path / "data", table({1: [1, 2, 3, 4], 2: ["a", "b", "c", "d"]}))
    by_id = key_file(store(tmp_path / "id", table({1: [1, 2]})), 2)
    by_name = key_file(store(tmp_path / "name", table({2: ["b", "d"]})), 2, 2)

    assert found([work(data, 1, by_id, by_name)]) == {data: [0, 1, 3]}


def test_field_of_a_struct_is_null_where_the_struct_is(tmp_path: Path) -> None:
    """Rows whose struct is missing would have the key of another row."""
    inner = [field(1, "id", pa.int64())]
    top = field(9, "of", pa.struct(inner))
    data = store(
        tmp_path / "data",
        pa.Table.from_arrays([pa.array([{"id": 1}, None, {"id": None}, {"id": 2}], top.type)], schema=pa.schema([top])),
    )
    keys = store(
        tmp_path / "keys", pa.Table.from_arrays([pa.array([{"id": 1}, None], top.type)], schema=pa.schema([top]))
    )

    assert found([work(data, 1, key_file(keys, 2))], {1: LONG}) == {data: [0, 1, 2]}


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    """A column that was renamed, or that has a dot in its name, would be taken for another."""
    schema = pa.schema(
        [
            field(2, "id", pa.string()),
            field(8, "a", pa.struct([field(9, "b", pa.int64())])),
            field(1, "a.b", pa.int32()),
        ]
    )
    rows = pa.Table.from_arrays(
        [pa.array(["x", "y"]), pa.array([{"b": 7}, {"b": 8}], schema[1].type), pa.array([1, 7], pa.int32())],
        schema=schema,
    )
    data = store(tmp_path / "data", rows)
    keys = store(tmp_path / "keys", table({1: [7]}))

    assert found([work(data, 1, key_file(keys, 2))]) == {data: [1]}


def test_column_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    """Rows from before the column was added would not be found."""
    data = store(tmp_path / "data", table({2: ["a", "b", "c", "d"]}))
    nulls = key_file(store(tmp_path / "nulls", table({1: [None]})), 2)
    pair = key_file(store(tmp_path / "pair", table({1: [None, 1], 2: ["b", "c"]})), 2, 1, 2)
    number = key_file(store(tmp_path / "number", table({1: [1]})), 2)

    assert found([work(data, 1, nulls)]) == {data: [0, 1, 2, 3]}
    assert found([work(data, 1, pair)]) == {data: [1]}
    assert found([work(data, 1, number)]) == {}


def test_file_without_field_ids_is_refused(tmp_path: Path) -> None:
    """Its column would count as missing, and its rows stay."""
    data = store(tmp_path / "data", pa.table({"id": [1]}))
    keys = store(tmp_path / "keys", table({1: [1]}))

    with pytest.raises(UnsupportedTableError, match="does not say which column has field id 1"):
        found([work(data, 1, key_file(keys, 2))])


def test_column_of_another_type_is_refused(tmp_path: Path) -> None:
    """The error would come from Arrow and not say which file it is."""
    data = store(tmp_path / "data", pa.table({"id": ["a"]}).cast(pa.schema([field(1, "id", pa.string())])))
    keys = store(tmp_path / "keys", table({1: [1]}))

    with pytest.raises(
        UnsupportedTableError, match="its column id is string, which cannot be read as the table's long"
    ):
        found([work(data, 1, key_file(keys, 2))])


def test_only_the_columns_in_question_are_read(tmp_path: Path) -> None:
    """Whole tables would be read for a few deletes."""
    wide = table({1: range(100), 2: [f"{number} {number * 7919 % 104729}" * 20 for number in range(100)]})
    path = store(tmp_path / "data", wide, group_rows=50)
    reader = ColumnReader(IO, path, {1: LONG})

    batches = list(reader.batches())

    groups = [pq.ParquetFile(path).metadata.row_group(group) for group in range(2)]
    assert reader.read_bytes == sum(group.column(0).total_compressed_size for group in groups)
    assert [column.to_pylist() for column in batches[0].columns] == [list(range(100))]


def test_memory_is_bounded_whatever_the_number_of_keys_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task would run out of memory, or lose what is on the border of two portions."""
    monkeypatch.setattr(key_sets, "SET_ROWS", 7)
    monkeypatch.setattr(matching, "LOOKUP_BYTES", 100)
    monkeypatch.setattr("iceberg_ds.deletes.key_reader._BATCH_ROWS", 4)
    sizes: list[int] = []
    make = KeySet.__init__

    def noting(self: KeySet, columns: Sequence[pa.Array], numbers: pa.Array) -> None:
        sizes.append(len(numbers))
        make(self, columns, numbers)

    monkeypatch.setattr(KeySet, "__init__", noting)
    paths = [store(tmp_path / f"data{n}", table({1: range(n, 100, 3)}), 5) for n in range(3)]
    keys = key_file(store(tmp_path / "keys", table({1: range(0, 100, 5)})), 2)

    assert found([work(path, 1, keys) for path in paths]) == {
        path: [place for place, value in enumerate(range(n, 100, 3)) if value % 5 == 0] for n, path in enumerate(paths)
    }
    assert max(sizes) <= 8
    assert sum(sizes) == 20


@pytest.mark.parametrize("kept_bits", [0, 1])
def test_keys_whose_digests_meet_are_told_apart(monkeypatch: pytest.MonkeyPatch, kept_bits: int) -> None:
    """A row would be hidden by the number of another key, or by a key that it does not have."""
    real = digest_keys

    def meeting(columns: Sequence[pa.Array], seed: bytes) -> pa.Array:
        return pc.bit_wise_and(real(columns, seed), pa.scalar(kept_bits, pa.uint64()))

    monkeypatch.setattr(key_sets, "digest_keys", meeting)
    columns = [canonical(pa.array(["a", "b", "c", None]), TEXT)]
    keys = KeySet(columns, pa.array([1, 5, 3, 2], pa.int64()))
    rows = [canonical(pa.array(["c", "b", "z", "a", None, "", "b"]), TEXT)]

    hits = keys.find(keys.digests(rows), rows, pa.repeat(pa.scalar(1, pa.int64()), 7))

    assert len(keys) == 4
    assert hits.places.to_pylist() == [0, 1, 4, 6]
    assert hits.incoming.to_pylist() == [2, 1, 3, 1]


values = st.tuples(
    st.one_of(st.none(), st.integers(-2, 2)), st.one_of(st.none(), st.sampled_from(["", "a", "b" * 200]))
)


@settings(max_examples=60)
@given(rows=st.lists(values), keys=st.lists(st.tuples(values, st.integers(0, 4))), number=st.integers(0, 4))
def test_found_is_what_a_plain_comparison_finds(rows: Any, keys: Any, number: int) -> None:
    """Some combination of nulls, repeated keys and numbers would lose a row, or bring one back."""
    columns = [canonical(pa.array([row[part] for row in rows], kind), of) for part, kind, of in PARTS]
    key_columns = [canonical(pa.array([key[part] for key, _ in keys], kind), of) for part, kind, of in PARTS]
    key_set = KeySet(key_columns, pa.array([of for _, of in keys], pa.int64()))

    hits = key_set.find(key_set.digests(columns), columns, pa.repeat(pa.scalar(number, pa.int64()), len(rows)))

    assert hits.places.to_pylist() == [
        place for place, row in enumerate(rows) if any(key == row and of > number for key, of in keys)
    ]


PARTS = [(0, pa.int64(), LONG), (1, pa.string(), TEXT)]
