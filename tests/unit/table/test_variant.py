"""Variants in Arrow, and what PyIceberg makes of their type."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import BinaryType, ListType, LongType, MapType, NestedField, StringType, StructType

from iceberg_ds.catalog.pyiceberg_patches import know_variants
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.planning.version_3 import why_not_upgraded
from iceberg_ds.table.name_mapping import has_field_ids
from iceberg_ds.table.variant import (
    SPARK_VARIANT,
    VARIANT,
    VariantType,
    as_variants,
    holds_variant,
    is_variant,
    knowing_variants,
    variant_ids,
    why_not_opened,
)

V = VariantType()
SCHEMA = Schema(
    NestedField(1, "v", V, required=False),
    NestedField(2, "l", ListType(element_id=3, element_type=V, element_required=False), required=False),
    NestedField(4, "m", MapType(5, StringType(), 6, V, value_required=False), required=False),
    NestedField(7, "s", StructType(NestedField(8, "v", V, required=True), NestedField(9, "n", LongType()))),
)
TWO = [{"metadata": b"\x01\x00\x00", "value": b"\x0c\x05"}, None]


def sent(values: list[object]) -> pa.Array:
    """Return variants as Spark sends them."""
    return pa.array(values, SPARK_VARIANT)


def test_schema_with_variants_is_written_and_parsed() -> None:
    """A table with one could not be loaded, wherever the variant is."""
    know_variants()
    know_variants()

    text = SCHEMA.model_dump_json()
    assert text.count('"variant"') == 4
    with knowing_variants():
        assert Schema.model_validate_json(text) == SCHEMA
        assert Schema.model_validate(SCHEMA.model_dump()) == SCHEMA
    with pytest.raises(ValueError, match="Unsupported field type: 'variant'"):  # as without the sink
        Schema.model_validate_json(text)
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA  # noqa: S301  # our own
    assert SCHEMA.find_type(8) == V
    assert str(V) == "variant"
    with pytest.raises(ValueError, match="Type not recognized: varianty"):
        ListType(**{"element-id": 1, "element": "varianty", "element-required": False})


def test_variants_are_found_at_any_depth() -> None:
    """Their columns would be neither marked nor refused."""
    assert variant_ids(SCHEMA) == {1, 3, 6, 8}
    assert [holds_variant(field.field_type) for field in SCHEMA.fields] == [True] * 4
    assert not holds_variant(StructType(NestedField(9, "n", LongType())))


def test_variants_are_transformed_by_nothing() -> None:
    """Rows would be partitioned or sorted by bytes that mean nothing."""
    assert not any(one.can_transform(V) for one in (IdentityTransform(), BucketTransform(4), TruncateTransform(4)))
    assert VoidTransform().can_transform(V)
    with pytest.raises(ValueError, match="not a primitive type"):
        Schema(NestedField(1, "v", V, required=True), identifier_field_ids=[1])


def test_parts_change_their_order_alone() -> None:
    """The bytes of one would be read as the other, or a null as a value."""
    written = as_variants(sent(TWO))
    assert written.type.equals(VARIANT, check_metadata=True)
    assert written.to_pylist() == TWO
    assert as_variants(written, SPARK_VARIANT).equals(sent(TWO))
    assert as_variants(sent([*TWO, *TWO]).slice(1, 2)).to_pylist() == [None, TWO[0]]
    assert as_variants(pa.nulls(2)).to_pylist() == [None, None]
    assert as_variants(sent([])).to_pylist() == []


def test_null_variants_have_parts_that_are_not_null() -> None:
    """Parquet has the parts required: a null in one cannot be written."""
    parts = [pa.array([b"\x0c\x05", None], pa.binary()), pa.array([b"\x01\x00\x00", None], pa.binary())]
    found = as_variants(pa.StructArray.from_arrays(parts, names=["value", "metadata"], mask=pa.array([False, True])))

    assert [found.field(part).null_count for part in range(2)] == [0, 0]
    out = pa.BufferOutputStream()
    pq.write_table(pa.table([found], schema=pa.schema([pa.field("v", VARIANT)])), out)
    assert pq.read_table(pa.BufferReader(out.getvalue()))["v"].to_pylist() == TWO


_STORED = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])


def test_variant_without_its_value_is_the_null_of_variants() -> None:
    """A compaction would write bytes that are no variant, and nobody could read the column any more."""
    lacking = {"metadata": b"\x01\x00\x00", "value": None}
    without = [lacking, {"metadata": None, "value": None}, *TWO]

    for kind in (VARIANT, SPARK_VARIANT):
        found = as_variants(pa.array(without, _STORED), kind)
        assert found.to_pylist() == [{**lacking, "value": b"\x00"}, None, *TWO]
        assert [found.field(part).null_count for part in range(2)] == [0, 0]
        assert as_variants(pa.array(without, _STORED).slice(1, 2), kind).to_pylist() == [None, TWO[0]]
        lacks_all = pa.array([lacking, lacking], _STORED)
        assert as_variants(lacks_all, kind).null_count == 0
        hidden = pa.StructArray.from_arrays(lacks_all.flatten(), fields=list(_STORED), mask=pa.array([True, False]))
        assert as_variants(hidden, kind).is_null().to_pylist() == [True, False]


def test_variant_without_metadata_is_refused() -> None:
    """A compaction would write bytes that are no variant, and nobody could read the column any more."""
    without = pa.array([*TWO, {"metadata": None, "value": b"\x0c\x05"}], _STORED)

    with pytest.raises(UnsupportedTableError, match="a value without metadata, which would say what it means"):
        as_variants(without)


def test_struct_of_the_table_with_these_names_is_no_variant() -> None:
    """Its fields would lose their ids."""
    ids = [{b"PARQUET:field_id": str(number).encode()} for number in (2, 3)]
    like = pa.struct([part.with_metadata(one) for part, one in zip(VARIANT, ids, strict=True)])
    assert is_variant(VARIANT)
    assert not is_variant(like)
    assert not is_variant(pa.struct([]))
    one, other = ({b"PARQUET:field_id": number} for number in (b"1", b"4"))
    inside = [NestedField(2, "metadata", BinaryType()), NestedField(3, "value", BinaryType())]
    schema = Schema(NestedField(1, "s", StructType(*inside)), NestedField(4, "v", VariantType()))
    both = pa.schema([pa.field("v", VARIANT, metadata=other), pa.field("s", like, metadata=one)])
    assert has_field_ids(both, schema)
    for kind in (pa.struct([like.field(0), VARIANT.field(1)]), VARIANT):
        assert not has_field_ids(pa.schema([pa.field("s", kind, metadata=one)]), schema)
        in_list = pa.list_(pa.field("element", kind, metadata=one))
        assert not has_field_ids(pa.schema([pa.field("l", in_list, metadata=other)]), schema)
    assert not has_field_ids(pa.schema([pa.field("v", VARIANT)]), schema)


@pytest.mark.parametrize("parts", [("metadata", "value", "typed_value"), ("metadata", "typed_value")])
def test_shredded_variants_are_refused(parts: tuple[str, ...]) -> None:
    """A part of each value would be missing."""
    kind = pa.struct([pa.field(part, pa.int64() if part == "typed_value" else pa.binary()) for part in parts])
    with pytest.raises(UnsupportedTableError, match=r"shredded.*reader=spark"):
        as_variants(pa.nulls(1, kind))
    assert has_field_ids(pa.schema([pa.field("v", kind, metadata={b"PARQUET:field_id": b"1"})]), Schema())


def test_versions_of_pyarrow_that_open_no_file_with_variants_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would be written that the next upsert, compaction or read cannot open."""
    assert why_not_opened() is None
    assert why_not_upgraded(SCHEMA) == []
    monkeypatch.setattr(pa, "__version__", "21.0.0")

    assert why_not_opened() == "PyArrow 21.0.0 opens no file with variants: install 22 or newer"
    assert why_not_upgraded(SCHEMA) == [
        "column 'v' is of type variant, and PyArrow 21.0.0 opens no file with variants: install 22 or newer"
    ]
