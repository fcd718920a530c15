"""Encodings of columns: chosen by what their values take, kept to the old ones on demand, never wrong."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from support.tables.sink import local

from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.plan import FileSettings, ParquetEncodings
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.writers import encodings
from iceberg_ds.writers.encodings import (
    DEFAULT_ENCODINGS,
    LEAST_GROUP_ROWS,
    LEAST_ROWS,
    ChosenEncodings,
    Encodings,
    choose_encodings,
)
from iceberg_ds.writers.parquet import ParquetFile, layout_options

CLASSIC = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
ROWS = 20_000
_draw = random.Random(7)  # noqa: S311  # the same rows every time

# Type and values of one column: `{name: (type, values)}`.
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "counted": (ice.LongType(), list(range(ROWS))),
    "random_long": (ice.LongType(), [_draw.getrandbits(63) for _ in range(ROWS)]),
    "random_int": (ice.IntegerType(), [_draw.randrange(10**6) for _ in range(ROWS)]),
    "flag": (ice.StringType(), [_draw.choice(["R", "A", "N"]) for _ in range(ROWS)]),
    "comment": (ice.StringType(), [f"{_draw.getrandbits(80):x}" for _ in range(ROWS)]),
    "path": (ice.StringType(), sorted(f"/data/{_draw.randrange(10**9):010d}/x" for _ in range(ROWS))),
    "bytes": (ice.BinaryType(), [_draw.randbytes(9) for _ in range(ROWS)]),
    "fixed": (ice.FixedType(5), [_draw.randbytes(5) for _ in range(ROWS)]),
    "uuid": (ice.UUIDType(), [uuid.UUID(bytes=_draw.randbytes(16)).bytes for _ in range(ROWS)]),
    "day": (ice.DateType(), [dt.date(2026, 1, 1) + dt.timedelta(days=_draw.randrange(400)) for _ in range(ROWS)]),
    "moment": (
        ice.TimestamptzType(),
        [dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=number) for number in range(ROWS)],
    ),
    "clock": (ice.TimeType(), [dt.time(number % 24, number % 60) for number in range(ROWS)]),
    "double": (ice.DoubleType(), [_draw.random() for _ in range(ROWS)]),
    "float": (ice.FloatType(), [float(_draw.randrange(7)) for _ in range(ROWS)]),
    "truth": (ice.BooleanType(), [_draw.random() < 0.5 for _ in range(ROWS)]),
    "small_decimal": (ice.DecimalType(9, 2), [decimal.Decimal(_draw.randrange(10**7)) / 100 for _ in range(ROWS)]),
    "decimal": (ice.DecimalType(18, 2), [decimal.Decimal(_draw.randrange(10**15)) / 100 for _ in range(ROWS)]),
    "large_decimal": (ice.DecimalType(38, 2), [decimal.Decimal(_draw.randrange(10**15)) / 100 for _ in range(ROWS)]),
}

_WORDS = [f"{_draw.getrandbits(200):x}" for _ in range(50)]
_WIDE = [_draw.getrandbits(63) for _ in range(50)]
# The same columns with values that never come again, that come again, and that are one.
UNLIKE: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    case: {"text": (ice.StringType(), texts), "long": (ice.LongType(), numbers)}
    for case, texts, numbers in (
        ("once", [f"{_draw.getrandbits(200):x}" for _ in range(ROWS)], list(range(ROWS))),
        ("again", [_draw.choice(_WORDS) for _ in range(ROWS)], [_draw.choice(_WIDE) for _ in range(ROWS)]),
        ("one", _WORDS[:1] * ROWS, _WIDE[:1] * ROWS),
    )
}


def shaped(columns: dict[str, tuple[Any, list[Any]]]) -> tuple[Schema, pa.Table]:
    """Return the columns as a table's schema and its rows, with a null in every eleventh row of the nullable."""
    fields = [NestedField(number, name, kind) for number, (name, (kind, _)) in enumerate(columns.items(), 1)]
    schema = Schema(*fields)
    arrow = file_shape(schema).schema
    arrays = []
    for field, (_, values) in zip(arrow, columns.values(), strict=True):
        sparse = [None if number % 11 == 0 else value for number, value in enumerate(values)]
        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        array = pa.array(sparse, storage)
        arrays.append(array if storage is field.type else pa.ExtensionArray.from_storage(field.type, array))
    return schema, pa.Table.from_arrays(arrays, schema=arrow)


def settings(parquet_encodings: ParquetEncodings = "auto", **others: Any) -> FileSettings:
    """Return how a file is written."""
    return FileSettings(
        target_file_size_bytes=1,
        compression_codec="zstd",
        compression_level=None,
        metrics_properties={},
        parquet_encodings=parquet_encodings,
        **others,
    )


def choose(schema: Schema, rows: pa.Table, asked: FileSettings) -> Encodings:
    """Return what is chosen for the rows."""
    return choose_encodings(rows, leaf_columns(schema, {}), asked, layout_options(asked))


def of_task(chosen: ChosenEncodings, schema: Schema, rows: pa.Table, asked: FileSettings | None = None) -> Encodings:
    """Return the encodings of a row group of a task's file."""
    asked = asked or settings()
    return chosen.of(rows, leaf_columns(schema, {}), asked, layout_options(asked))


def write(path: Path, schema: Schema, rows: pa.Table, asked: FileSettings, chosen: Encodings) -> pq.ParquetFile:
    """Write the rows as one row group, and open the file."""
    leaves = leaf_columns(schema, {})
    file = ParquetFile(LocalFileIO(), f"file://{path}", rows.schema, leaves, asked, encodings=chosen)
    file.write_row_group(rows.to_batches())
    return pq.ParquetFile(local(file.close(Record(), spec_id=0).file_path))


def used(file: pq.ParquetFile) -> dict[str, set[str]]:
    """Return the encodings of each column chunk of the first row group."""
    group = file.metadata.row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    return {chunk.path_in_schema: set(chunk.encodings) for chunk in chunks}


@pytest.mark.parametrize("asked", ["auto", "classic"])
def test_values_of_every_type_come_back_as_they_were(tmp_path: Path, asked: ParquetEncodings) -> None:
    """Values would change, or become null, by the way in which they are stored."""
    schema, rows = shaped(COLUMNS)
    chosen = choose(schema, rows, settings(asked))

    file = write(tmp_path / "f.parquet", schema, rows, settings(asked), chosen)

    assert file.read().cast(rows.schema).equals(rows)


_KINDS = {
    "DELTA_BINARY_PACKED": ["counted", "random_long", "random_int", "day", "moment", "clock", "small_decimal"],
    "DELTA_LENGTH_BYTE_ARRAY": ["flag", "comment", "path", "bytes"],
    "BYTE_STREAM_SPLIT": ["double", "float"],
}


@pytest.mark.parametrize(("encoding", "name"), [(kind, name) for kind, names in _KINDS.items() for name in names])
def test_every_encoding_that_may_be_chosen_keeps_the_values(tmp_path: Path, encoding: str, name: str) -> None:
    """Values would change in a column for which this encoding happens to be the smallest."""
    schema, rows = shaped({name: COLUMNS[name]})

    chosen = Encodings(dictionary=(), others={name: encoding})
    file = write(tmp_path / "f.parquet", schema, rows, settings(), chosen)

    assert encoding in used(file)[name]
    assert file.read().cast(rows.schema).equals(rows)


def test_each_column_gets_what_suits_its_values(tmp_path: Path) -> None:
    """Files would be larger, and take longer to write, than they need."""
    schema, rows = shaped(COLUMNS)

    chosen = choose(schema, rows, settings())

    assert {"flag", "float"} <= set(chosen.dictionary or ())
    assert not {"random_long", "comment", "uuid", "double"} & set(chosen.dictionary or ())
    assert chosen.others["counted"] == chosen.others["moment"] == "DELTA_BINARY_PACKED"
    assert "truth" not in chosen.others
    sizes = [
        write(tmp_path / f"{number}.parquet", schema, rows, settings(), given).metadata.row_group(0).total_byte_size
        for number, given in enumerate((chosen, DEFAULT_ENCODINGS))
    ]
    assert sizes[0] < 0.9 * sizes[1]


def test_classic_files_have_nothing_but_dictionary_and_plain(tmp_path: Path) -> None:
    """Who asks for files that old readers read would get others."""
    schema, rows = shaped(COLUMNS)
    chosen = choose(schema, rows, settings("classic"))

    file = write(tmp_path / "f.parquet", schema, rows, settings("classic"), chosen)

    assert set().union(*used(file).values()) <= CLASSIC
    assert "RLE_DICTIONARY" in used(file)["flag"]
    assert "RLE_DICTIONARY" not in used(file)["comment"]


NESTED = Schema(
    NestedField(1, "tags", ice.ListType(element_id=4, element_type=ice.StringType())),
    NestedField(2, "s", ice.StructType(NestedField(5, "x", ice.LongType()), NestedField(6, "flag", ice.StringType()))),
    NestedField(3, "m", ice.MapType(key_id=7, key_type=ice.StringType(), value_id=8, value_type=ice.DoubleType())),
)


@pytest.mark.parametrize("asked", ["auto", "classic"])
def test_nested_leaves_get_encodings_of_their_own(tmp_path: Path, asked: ParquetEncodings) -> None:
    """Nested columns would be left as they are, or the choice would be another column's."""
    data = [
        None
        if number % 13 == 0
        else {
            "tags": None if number % 7 == 0 else [f"{number:09d}" for _ in range(number % 3)],
            "s": None if number % 5 == 0 else {"x": number, "flag": "AB"[number % 2]},
            "m": {_draw.choice(["k", "l", "m"]): number * 1.5},
        }
        for number in range(5_000)
    ]
    rows = pa.Table.from_pylist([row or {} for row in data], schema=file_shape(NESTED).schema)
    chosen = choose(NESTED, rows, settings(asked))

    file = write(tmp_path / "f.parquet", NESTED, rows, settings(asked), chosen)

    assert file.read().cast(rows.schema).equals(rows)
    assert {"s.flag", "m.key_value.key"} <= set(chosen.dictionary or ())
    assert ("DELTA_BINARY_PACKED" in used(file)["s.x"]) == (asked == "auto")


def test_dictionary_is_judged_by_the_whole_row_group() -> None:
    """Columns with some thousand values would be stored plain, because a sample hardly shows that they come again."""
    values = [_draw.randrange(5_000) * 2_654_435_761 for _ in range(200_000)]
    schema, rows = shaped({"repeated": (ice.LongType(), values)})

    assert choose(schema, rows, settings()).dictionary == ("repeated",)
    assert choose(schema, rows.slice(0, 2_000), settings()).dictionary == ()


def test_dictionary_that_would_be_given_up_is_not_begun() -> None:
    """Time would go into a dictionary that grows too large on the way."""
    values = [f"{_draw.randrange(4_000):0100d}" for _ in range(100_000)]
    schema, rows = shaped({"text": (ice.StringType(), values)})

    assert choose(schema, rows, settings()).dictionary == ("text",)
    assert choose(schema, rows, settings(dictionary_size_bytes=10_000)).dictionary == ()


def test_few_rows_are_not_worth_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every small micro-batch would take several times as long to write."""
    schema, rows = shaped(COLUMNS)
    monkeypatch.setattr(encodings, "_Sample", None)

    assert of_task(ChosenEncodings(), schema, rows.slice(0, LEAST_ROWS - 1)) == DEFAULT_ENCODINGS


def test_many_small_files_are_worth_a_choice() -> None:
    """A task into a thousand partitions would write a fourth more bytes, and dictionaries that nobody needs."""
    schema, rows = shaped(COLUMNS)
    chosen = ChosenEncodings()
    found = [of_task(chosen, schema, rows.slice(number * 400, 400)) for number in range(4)]

    assert found[:2] == [DEFAULT_ENCODINGS] * 2
    assert found[2] == found[3] == choose(schema, rows.slice(800, 400), settings())
    assert of_task(chosen, schema, rows.slice(0, 300)) == found[2]  # of the same magnitude
    assert of_task(chosen, schema, rows.slice(0, 150)) == DEFAULT_ENCODINGS  # of another one, whose choice is its own


def test_very_few_rows_tell_nothing_of_others() -> None:
    """A few rows of one partition would decide how all others are stored."""
    schema, rows = shaped(COLUMNS)
    chosen, few = ChosenEncodings(), rows.slice(0, LEAST_GROUP_ROWS - 1)

    assert {of_task(chosen, schema, few) == DEFAULT_ENCODINGS for _ in range(40)} == {True}


def test_choice_holds_for_another_table_with_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task into a hundred tables would take half of its time for a hundred choices."""
    schema, rows = shaped(COLUMNS)
    chosen = ChosenEncodings()
    first = of_task(chosen, schema, rows)
    monkeypatch.setattr(encodings, "_Sample", None)
    other = Schema(*(NestedField(field.field_id + 100, field.name, field.field_type) for field in schema.fields))

    assert first != DEFAULT_ENCODINGS
    assert of_task(chosen, other, rows.cast(file_shape(other).schema)) == first


def test_table_without_values_in_a_column_does_not_choose_for_others() -> None:
    """Tables whose rows have values in other columns would be stored as if there were none."""
    schema, rows = shaped({"counted": COLUMNS["counted"], "flag": COLUMNS["flag"]})
    without = rows.set_column(0, rows.schema.field(0), pa.nulls(ROWS, rows.schema.field(0).type))
    chosen = ChosenEncodings()

    assert of_task(chosen, schema, without).of("counted") == "RLE_DICTIONARY"  # values may follow in the same file
    assert of_task(chosen, schema, rows) == choose(schema, rows, settings())
    assert of_task(chosen, schema, without).of("flag") == choose(schema, rows, settings()).of("flag")
    assert choose(schema, rows, settings()).others["counted"] == "DELTA_BINARY_PACKED"


@pytest.mark.parametrize("kept", ["s", "tags"])
def test_nested_columns_that_get_values_later_are_decided_on_then(kept: str) -> None:
    """Structs without values, or empty lists, in the first file would have all others stored as if there were none."""
    data = [{"tags": [f"{number:09d}"], "s": {"x": number, "flag": "AB"[number % 2]}} for number in range(5_000)]
    rows = pa.Table.from_pylist(data, schema=file_shape(NESTED).schema)
    without = {"tags": [], "s": {"x": None, "flag": None}}
    first = pa.Table.from_pylist([{**without, kept: row[kept]} for row in data], schema=rows.schema)
    chosen = ChosenEncodings()
    of_task(chosen, NESTED, first)

    then, whole = of_task(chosen, NESTED, rows), choose(NESTED, rows, settings())

    assert then.others == whole.others
    assert then.others["s.x"] == "DELTA_BINARY_PACKED"
    assert then.of("s.flag") == whole.of("s.flag")
    assert then.of("m.key_value.key") == "RLE_DICTIONARY"  # values may follow in the same file


@pytest.mark.parametrize("first", UNLIKE)
@pytest.mark.parametrize("then", UNLIKE)
def test_table_with_other_values_gets_encodings_of_its_own(first: str, then: str) -> None:
    """A table of words that come again would be stored at many times its size, because another one's never do."""
    schema, rows = shaped(UNLIKE[first])
    _, others = shaped(UNLIKE[then])
    chosen = ChosenEncodings()
    of_task(chosen, schema, rows)

    assert of_task(chosen, schema, others) == choose(schema, others, settings())


def test_groups_that_are_too_small_are_not_remembered() -> None:
    """A task into thousands of tables with a few rows each would need more and more memory."""
    schema, rows = shaped(COLUMNS)
    chosen = ChosenEncodings()
    for _ in range(3):
        of_task(chosen, schema, rows.slice(0, LEAST_GROUP_ROWS - 1))

    assert vars(chosen) == vars(ChosenEncodings())


def test_each_column_is_tried_once_however_many_tables_lack_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task into tables that each fill other columns would take longer for its choices than for its rows."""
    names = [f"c{number}" for number in range(6)]
    schema, rows = shaped(dict.fromkeys(names, COLUMNS["counted"]))
    tried = Counter[str]()

    def counting(part: pa.Table, *others: Any) -> Encodings:
        tried.update(part.column_names)
        return choose_encodings(part, *others)

    monkeypatch.setattr(encodings, "choose_encodings", counting)
    chosen = ChosenEncodings()
    for number in range(2 ** len(names)):
        sparse = rows
        for place, name in enumerate(names):
            if not number >> place & 1:
                sparse = sparse.set_column(place, rows.schema.field(name), pa.nulls(ROWS, pa.int64()))
        of_task(chosen, schema, sparse)

    assert tried == dict.fromkeys(names, 1)


@pytest.mark.parametrize(
    "asked", [settings("classic"), settings(dictionary_size_bytes=10), settings(page_size_bytes=1000)]
)
def test_choice_holds_only_for_files_that_are_written_alike(asked: FileSettings) -> None:
    """A table for old readers would get encodings that were chosen for a table for new ones."""
    schema, rows = shaped(COLUMNS)
    chosen = ChosenEncodings()
    of_task(chosen, schema, rows)

    assert of_task(chosen, schema, rows, asked) == choose(schema, rows, asked)
    assert of_task(chosen, schema, rows, settings()) == choose(schema, rows, settings())


@given(
    values=st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=40),
    texts=st.lists(st.one_of(st.none(), st.text(max_size=20)), min_size=1, max_size=40),
    asked=st.sampled_from(["auto", "classic"]),
)
def test_any_values_come_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None], texts: list[str | None], asked: ParquetEncodings
) -> None:
    """Some value at the end of its range would change."""
    longs = pa.array([values[number % len(values)] for number in range(1_000)], pa.int64())
    strings = pa.array([texts[number % len(texts)] for number in range(1_000)], pa.string())
    schema = Schema(NestedField(1, "number", ice.LongType()), NestedField(2, "text", ice.StringType()))
    rows = pa.Table.from_arrays([longs, strings], schema=file_shape(schema).schema)
    chosen = choose(schema, rows, settings(asked))

    path = tmp_path_factory.mktemp("any") / "f.parquet"
    file = write(path, schema, rows, settings(asked), chosen)

    assert file.read().cast(rows.schema).equals(rows)
