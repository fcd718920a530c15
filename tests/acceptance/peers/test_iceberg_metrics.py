"""apache/iceberg, Spark and core: the suites of the metrics that files have, by which readers skip them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import BinaryType, PrimitiveType, StringType
from support.peer.cases import ICEBERG
from support.peer.tables import PeerTable, array, columns, mapping, simple

from iceberg_ds.errors import OptionError

DATA = simple((1, "first value of all"), (2, None), (3, "third"))
MODE = "table-property.write.metadata.metrics.default"
COLUMN = "table-property.write.metadata.metrics.column"
NAN = float("nan")


def metrics(table: PeerTable) -> dict[str, dict[str, Any]]:
    """Return values, nulls, NaNs, lower and upper bounds of the only file by column, without what is not there."""
    (file,) = table.files()
    schema = table.load().schema()
    found: dict[str, dict[str, Any]] = {}
    counts = {"values": file.value_counts, "nulls": file.null_value_counts, "nans": file.nan_value_counts}
    for kind, by_id in counts.items():
        for field_id, count in dict(by_id or {}).items():
            found.setdefault(schema.find_column_name(field_id) or "", {})[kind] = count
    for kind, bounds in {"lower": file.lower_bounds, "upper": file.upper_bounds}.items():
        for field_id, bound in dict(bounds or {}).items():
            of_type = schema.find_type(field_id)
            assert isinstance(of_type, PrimitiveType)
            found.setdefault(schema.find_column_name(field_id) or "", {})[kind] = from_bytes(of_type, bound)
    return found


@ICEBERG.case("TestWriteMetricsConfig.testFullMetricsCollectionForParquet", "TestMetrics.testFullMetricsMode")
def test_full_metrics(table: PeerTable) -> None:
    """Readers could not skip files by long texts."""
    table.append(DATA, options={MODE: "full"})

    assert metrics(table) == {
        "id": {"values": 3, "nulls": 0, "lower": 1, "upper": 3},
        "data": {"values": 3, "nulls": 1, "lower": "first value of all", "upper": "third"},
    }


@ICEBERG.case("TestWriteMetricsConfig.testCountMetricsCollectionForParquet", "TestMetrics.testCountsMetricsMode")
def test_counts_alone(table: PeerTable) -> None:
    """Manifests would show values that the table does not want in them."""
    table.append(DATA, options={MODE: "counts"})

    assert metrics(table) == {"id": {"values": 3, "nulls": 0}, "data": {"values": 3, "nulls": 1}}


@ICEBERG.case("TestWriteMetricsConfig.testNoMetricsCollectionForParquet", "TestMetrics.testNoneMetricsMode")
def test_no_metrics(table: PeerTable) -> None:
    """Manifests would be larger than the table asks for."""
    table.append(DATA, options={MODE: "none"})

    assert metrics(table) == {}
    assert table.files()[0].record_count == 3


@ICEBERG.case("TestWriteMetricsConfig.testCustomMetricCollectionForParquet")
def test_metrics_of_one_column(table: PeerTable) -> None:
    """The column that readers filter by would have no bounds."""
    table.append(DATA, options={MODE: "counts", f"{COLUMN}.id": "full"})

    assert metrics(table) == {
        "id": {"values": 3, "nulls": 0, "lower": 1, "upper": 3},
        "data": {"values": 3, "nulls": 1},
    }


@ICEBERG.case("TestWriteMetricsConfig.testBadCustomMetricCollectionForParquet")
def test_metrics_of_a_column_that_is_not_there(table: PeerTable) -> None:
    """The table would be created, and the runtime could not change it any more."""
    with pytest.raises(OptionError, match=r"'?ids'?"):
        table.append(DATA, options={MODE: "counts", f"{COLUMN}.ids": "full"})

    assert not table.exists()


NESTED = columns(longCol="long", strCol="string", record=columns(id="long", data="string"))


@ICEBERG.case(
    "TestWriteMetricsConfig.testCustomMetricCollectionForNestedParquet",
    "TestMetrics.testMetricsModeForNestedStructFields",
)
def test_metrics_of_fields_of_structs(table: PeerTable) -> None:
    """Fields of structs would have no bounds, or those of another one."""
    modes = {MODE: "none", f"{COLUMN}.longCol": "counts", f"{COLUMN}.record.id": "full"}
    data = [{"longCol": 1, "strCol": "p", "record": {"id": 7, "data": "value"}}]

    table.append(data, schema=NESTED, options={**modes, f"{COLUMN}.record.data": "truncate(2)"}, partition_by="strCol")

    assert metrics(table) == {
        "longCol": {"values": 1, "nulls": 0},
        "record.id": {"values": 1, "nulls": 0, "lower": 7, "upper": 7},
        "record.data": {"values": 1, "nulls": 0, "lower": "va", "upper": "vb"},
    }


@ICEBERG.case("TestMetrics.testMetricsForTopLevelFields", "TestMetrics.testMetricsForRepeatedValues")
def test_metrics_of_repeated_values(table: PeerTable) -> None:
    """Bounds would leave out values, and readers skip files that have rows for them."""
    schema = columns(i="integer", l="long", b="boolean", s="string", y="binary", d="date")
    one = {"i": 3, "l": -1, "b": True, "s": "x", "y": b"\x01", "d": None}
    two = {"i": -(2**31), "l": 2**62, "b": False, "s": "", "y": b"\xff", "d": None}

    table.append([one, two, one], schema=schema)

    found = metrics(table)
    assert (found["i"]["lower"], found["i"]["upper"]) == (-(2**31), 3)
    assert (found["l"]["lower"], found["l"]["upper"]) == (-1, 2**62)
    assert (found["b"]["lower"], found["b"]["upper"]) == (False, True)
    assert (found["s"]["lower"], found["s"]["upper"]) == ("", "x")
    assert (found["y"]["lower"], found["y"]["upper"]) == (b"\x01", b"\xff")
    assert found["d"] == {"values": 3, "nulls": 3}


@ICEBERG.case("TestMetrics.testMetricsForDecimals")
@pytest.mark.parametrize(("precision", "scale"), [(4, 2), (14, 2), (22, 2)])
def test_metrics_of_decimals(table: PeerTable, precision: int, scale: int) -> None:
    """Bounds of decimals would be read with another scale."""
    low, high = Decimal("-2.55"), Decimal("4.75")

    table.append([{"d": high}, {"d": low}], schema=columns(d=f"decimal({precision},{scale})"))

    assert metrics(table)["d"] == {"values": 2, "nulls": 0, "lower": low, "upper": high}


@ICEBERG.case(
    "TestMetrics.testMetricsForNestedStructFields", "TestMetrics.testMetricsForNestedStructFieldsWithMultipleRowGroup"
)
def test_metrics_of_nested_fields(table: PeerTable) -> None:
    """Bounds of nested fields would be of some row groups alone."""
    schema = columns(id="long", s=columns(x="long", inner=columns(y="string")))
    data = [{"id": n, "s": {"x": -n, "inner": {"y": f"{n:05}"}} if n % 2 else None} for n in range(1, 400)]

    table.append(data, schema=schema, options={"table-property.write.parquet.row-group-size-bytes": "1024"})

    found = metrics(table)
    assert found["s.x"] == {"values": 399, "nulls": 199, "lower": -399, "upper": -1}
    assert (found["s.inner.y"]["lower"], found["s.inner.y"]["upper"]) == ("00001", "00399")


@ICEBERG.case("TestMetrics.testMetricsForListAndMapElements")
def test_lists_and_maps_have_no_bounds(table: PeerTable) -> None:
    """Readers would skip files by bounds that do not speak of rows."""
    schema = columns(l=array("long"), m=mapping("string", "long"))

    table.append([{"l": [1, 2], "m": [("a", 1)]}], schema=schema)

    assert [kind for found in metrics(table).values() for kind in found if kind in ("lower", "upper")] == []


@ICEBERG.case("TestMetrics.testMetricsForNullColumns")
def test_metrics_of_columns_of_nulls(table: PeerTable) -> None:
    """Readers would look into files that have nothing for them."""
    table.append([{"i": None}, {"i": None}], schema=columns(i="integer"))

    assert metrics(table) == {"i": {"values": 2, "nulls": 2}}


@ICEBERG.case("TestMetrics.testMetricsForNaNColumns")
@pytest.mark.parametrize("kind", ["float", "double"])
def test_metrics_of_columns_of_nans(table: PeerTable, kind: str) -> None:
    """NaN would be a bound, which compares with nothing."""
    table.append([{"f": NAN}, {"f": NAN}], schema=columns(f=kind))

    assert metrics(table) == {"f": {"values": 2, "nulls": 0, "nans": 2}}


@ICEBERG.case(
    "TestMetrics.testColumnBoundsWithNaNValueAtFront",
    "TestMetrics.testColumnBoundsWithNaNValueInMiddle",
    "TestMetrics.testColumnBoundsWithNaNValueAtEnd",
)
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_nans_leave_the_bounds_of_numbers(table: PeerTable, kind: str, position: int) -> None:
    """One NaN would take the bounds of a whole file, or be one."""
    values = [1.5, math.inf]
    values.insert(position, NAN)

    table.append([{"f": value} for value in values], schema=columns(f=kind))

    assert metrics(table) == {"f": {"values": 3, "nulls": 0, "nans": 1, "lower": 1.5, "upper": math.inf}}


@ICEBERG.case("TestMetrics.testMetricsForTopLevelWithMultipleRowGroup")
def test_metrics_of_many_row_groups(table: PeerTable) -> None:
    """Bounds would be those of the last row group."""
    data = [{"id": (n * 7919) % 5000} for n in range(5000)]

    table.append(data, schema=columns(id="long"), options={"table-property.write.parquet.row-group-size-bytes": "1024"})

    assert metrics(table)["id"] == {"values": 5000, "nulls": 0, "lower": 0, "upper": 4999}
    assert len(table.files()[0].split_offsets or []) > 1


@ICEBERG.case("TestMetrics.testTruncateStringMetricsMode", "TestMetricsTruncation.testTruncateStringMax")
@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("abcdefghijk", "abcdefghij", "abcdefghik"),
        ("äöüäöüäöüäöü", "äöüäöüäöüä", "äöüäöüäöüå"),
        ("short", "short", "short"),
        ("\U0010ffff" * 11, "\U0010ffff" * 10, None),
        ("\ud7ff" * 11, "\ud7ff" * 10, "\ud7ff" * 9 + "\ue000"),
    ],
)
def test_bounds_of_texts_are_truncated(table: PeerTable, text: str, lower: str, upper: str | None) -> None:
    """Long texts would fill manifests, or their upper bound lie below them."""
    table.append([{"s": text}], schema=columns(s="string"), options={MODE: "truncate(10)"})

    found = metrics(table)["s"]
    assert isinstance(table.load().schema().find_type("s"), StringType)
    assert (found["lower"], found.get("upper")) == (lower, upper)


@ICEBERG.case("TestMetrics.testTruncateBinaryMetricsMode", "TestMetricsTruncation.testTruncateBinaryMax")
@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        (b"\x0a\x0b\x0c", b"\x0a\x0b", b"\x0a\x0c"),
        (b"\x0a\xff\x0c", b"\x0a\xff", b"\x0b"),
        (b"\xff" * 3, b"\xff\xff", None),
    ],
)
def test_bounds_of_bytes_are_truncated(table: PeerTable, value: bytes, lower: bytes, upper: bytes | None) -> None:
    """Bytes would fill manifests, or their upper bound lie below them."""
    table.append([{"b": value}], schema=columns(b="binary"), options={MODE: "truncate(2)"})

    found = metrics(table)["b"]
    assert isinstance(table.load().schema().find_type("b"), BinaryType)
    assert (found["lower"], found.get("upper")) == (lower, upper)


@ICEBERG.case("TestMetricsModes.testInvalidColumnModeValue", "TestMetricsModes.testInvalidDefaultColumnModeValue")
@pytest.mark.parametrize("key", [MODE, f"{COLUMN}.id"])
def test_unknown_metrics_modes(table: PeerTable, key: str) -> None:
    """A table would be created whose metrics are none that its owner asked for."""
    with pytest.raises(OptionError, match=r"'?fuull'?"):
        table.append(DATA, options={key: "fuull"})


@ICEBERG.case("TestMetricsModes.testMetricsConfigInferredDefaultModeLimit")
def test_columns_beyond_the_limit_have_no_metrics(table: PeerTable) -> None:
    """Manifests of wide tables would grow without end."""
    schema = columns(a="long", b="long", c="long")
    limit = {"table-property.write.metadata.metrics.max-inferred-column-defaults": "2"}

    table.append([{"a": 1, "b": 2, "c": 3}], schema=schema, options=limit)

    assert sorted(metrics(table)) == ["a", "b"]


@ICEBERG.case("TestMetricsModes.testMetricsConfigNestedTypesStructs")
def test_columns_at_the_top_have_metrics_before_nested_ones(table: PeerTable) -> None:
    """A wide struct would take all the metrics, and the columns that readers filter by would have none."""
    schema = columns(s=columns(x="long", y="long", z="long"), id="long")
    limit = {"table-property.write.metadata.metrics.max-inferred-column-defaults": "2"}

    table.append([{"s": {"x": 1, "y": 2, "z": 3}, "id": 4}], schema=schema, options=limit)

    assert sorted(metrics(table)) == ["id", "s.x"]


@ICEBERG.case("TestMetricsModes.testMetricsConfigSortedColsDefault", "TestMetrics.testSortedColumnMetrics")
def test_columns_of_the_sort_order_keep_bounds(table: PeerTable) -> None:
    """The columns that a table is sorted by would not let readers skip files."""
    schema = columns(a="long", b="string")

    table.append([{"a": 1, "b": "x"}], schema=schema, sort_by="b", options={MODE: "counts"})

    assert metrics(table) == {
        "a": {"values": 1, "nulls": 0},
        "b": {"values": 1, "nulls": 0, "lower": "x", "upper": "x"},
    }
