"""The marks of variants in a Parquet file: they are there, and nothing else has changed."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.table.variant import VARIANT
from iceberg_ds.writers.parquet_footer import MarkedOutput, with_variants


def field(name: str, number: int, kind: pa.DataType) -> pa.Field:
    """Return a column with a field id."""
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number).encode()})


OTHERS = [
    field(name, 100 + number, kind)
    for number, (name, kind) in enumerate(
        {
            "flag": pa.bool_(),
            "price": pa.decimal128(9, 2),
            "at": pa.timestamp("us", tz="UTC"),
            "day": pa.date32(),
            "time": pa.time64("us"),
            "text": pa.string(),
            "id": pa.uuid(),
            "half": pa.float16(),
            "small": pa.int8(),
            "list": pa.list_(field("element", 120, pa.string())),
            "map": pa.map_(
                field("key", 121, pa.string()).with_nullable(nullable=False), field("value", 122, pa.int32())
            ),
        }.items()
    )
]
DEEP = pa.struct([field("v", 11, VARIANT), field("l", 12, pa.list_(field("element", 13, VARIANT)))])
VARIANTS = {10, 11, 13}
SCHEMA = pa.schema([*OTHERS, field("v", 10, VARIANT), field("s", 14, DEEP), field("like", 15, VARIANT)])
VALUE = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}
ROWS = [
    {"v": VALUE, "s": {"v": VALUE, "l": [VALUE, VALUE]}, "like": VALUE, "text": "a", "map": [("k", 1)]},
    {"v": None, "s": None, "like": None, "flag": True, "list": []},
    {"v": VALUE, "s": {"v": None, "l": None}, "like": VALUE},
]


def file_of(schema: pa.Schema, rows: list[dict[str, Any]], variants: set[int], **options: Any) -> bytes:
    """Return a file with marks."""
    out = io.BytesIO()
    marked = MarkedOutput(out, variants)
    with pq.ParquetWriter(marked, schema, **options) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.write_table(pa.Table.from_pylist(rows, schema))
        marked.hold()
    assert marked.tell() > out.tell() > 0  # only the end of the file is held back
    marked.release()
    assert marked.tell() == len(out.getvalue())
    return out.getvalue()


def plain(schema: pa.Schema, rows: list[dict[str, Any]], **options: Any) -> bytes:
    """Return the file that Arrow writes."""
    out = io.BytesIO()
    with pq.ParquetWriter(out, schema, **options) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.write_table(pa.Table.from_pylist(rows, schema))
    return out.getvalue()


def described(content: bytes) -> tuple[list[str], dict[str, Any], Any]:
    """Return the schema line by line, the row groups, and the rows."""
    file = pq.ParquetFile(io.BytesIO(content))
    footer = file.metadata.to_dict()
    del footer["serialized_size"]
    return str(file.schema).splitlines()[1:], footer, file.read().to_pylist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"write_page_index": True, "bloom_filter_options": {"text": {"ndv": 10, "fpp": 0.1}}},
        {"compression": "NONE", "store_schema": True, "write_page_checksum": True, "version": "1.0"},
    ],
    ids=["default", "with indexes", "old"],
)
def test_variants_are_marked_and_nothing_else_is_changed(options: dict[str, Any]) -> None:
    """Readers would not open the file, or find other columns, statistics or rows."""
    before, after = plain(SCHEMA, ROWS, **options), file_of(SCHEMA, ROWS, VARIANTS, **options)
    length = struct.unpack("<I", before[-8:-4])[0]
    assert after[: len(before) - 8 - length] == before[: len(before) - 8 - length]

    lines, footer, rows = described(before)
    marked, footer_after, rows_after = described(after)

    assert rows_after == rows
    assert [(row["v"], row["s"]) for row in rows_after] == [(row["v"], row["s"]) for row in ROWS + ROWS]
    assert footer_after == footer
    assert [line for line in marked if "Variant" not in line] == [
        line for line, now in zip(lines, marked, strict=True) if "Variant" not in now
    ]
    assert [line.split("field_id=")[1].split()[0] for line in marked if "Variant(1)" in line] == ["10", "11", "13"]


def test_file_without_rows_is_marked() -> None:
    """An empty file ends as others do."""
    out = io.BytesIO()
    marked = MarkedOutput(out, VARIANTS)
    with pq.ParquetWriter(marked, SCHEMA):
        marked.hold()
    marked.release()

    assert str(pq.ParquetFile(io.BytesIO(out.getvalue())).schema).count("Variant(1)") == 3


@given(numbers=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=40, unique=True), data=st.data())
def test_any_columns_are_told_apart_by_their_ids(numbers: list[int], data: st.DataObject) -> None:
    """A mark would be on another column, or numbers of several bytes be read wrongly."""
    chosen = data.draw(st.sets(st.sampled_from(numbers)))
    schema = pa.schema([field(f"{'é' * (number % 70)}{number}", number, VARIANT) for number in numbers])
    out = io.BytesIO()
    pq.ParquetWriter(out, schema).close()
    raw = out.getvalue()
    length = struct.unpack("<I", raw[-8:-4])[0]
    footer = with_variants(raw[-8 - length : -8], chosen)

    lines = str(pq.ParquetFile(io.BytesIO(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")).schema)
    found = {int(line.split("field_id=")[1].split()[0]) for line in lines.splitlines() if "Variant(1)" in line}
    assert found == chosen


def test_what_is_no_footer_is_refused() -> None:
    """A file would be closed with a footer that nobody can read."""
    with pytest.raises((ValueError, KeyError, IndexError)):
        with_variants(b"\x15\x02\x1b\x00\x00", {1})
