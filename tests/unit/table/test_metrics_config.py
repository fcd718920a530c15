"""Which columns a file has, and what is kept of each one's metrics."""

from __future__ import annotations

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import NestedField

from iceberg_ds.table.metrics_config import MetricsMode, leaf_columns, parse_mode

PREFIX = "write.metadata.metrics."
NONE = MetricsMode(counts=False, bounds=False)
COUNTS = MetricsMode(counts=True, bounds=False)
FULL = MetricsMode(counts=True, bounds=True)
TRUNCATE_16 = MetricsMode(counts=True, bounds=True, length=16)

NESTED = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(
        2,
        "s",
        ice.StructType(NestedField(3, "x", ice.StringType()), NestedField(4, "l", ice.ListType(5, ice.IntegerType()))),
    ),
    NestedField(6, "m", ice.MapType(7, ice.StringType(), 8, ice.StructType(NestedField(9, "y", ice.DoubleType())))),
)


def wide(columns: int) -> Schema:
    """Return a schema of that many columns, with ids from 1."""
    return Schema(*(NestedField(number, f"c{number}", ice.LongType()) for number in range(1, columns + 1)))


def modes(schema: Schema, **properties: str) -> list[MetricsMode]:
    """Return the modes of all columns under these properties, without their prefix."""
    return [
        leaf.mode
        for leaf in leaf_columns(schema, {PREFIX + key.replace("_", "-"): text for key, text in properties.items()})
    ]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", NONE),
        ("counts", COUNTS),
        ("full", FULL),
        ("truncate(16)", TRUNCATE_16),
        (" Truncate(3) ", MetricsMode(counts=True, bounds=True, length=3)),
        ("FULL", FULL),
    ],
)
def test_mode_is_read_as_iceberg_spells_it(text: str, mode: MetricsMode) -> None:
    """A table's metrics setting would be ignored."""
    assert parse_mode(text) == mode


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "truncate(x)", "all"])
def test_unknown_mode_is_refused_by_name(text: str) -> None:
    """A misspelt metrics setting would be ignored."""
    with pytest.raises(ValueError, match="none of none, counts, truncate"):
        parse_mode(text)


def test_leaves_stand_in_the_order_of_the_file() -> None:
    """Every column would get the metrics of another one."""
    leaves = leaf_columns(NESTED, {})

    assert [leaf.field_id for leaf in leaves] == [1, 3, 5, 7, 9]
    assert [leaf.is_repeated for leaf in leaves] == [False, False, True, True, True]


def test_default_mode_is_truncate_16() -> None:
    """Manifests would grow with the length of the strings."""
    assert modes(NESTED) == [TRUNCATE_16] * 5


def test_only_the_first_100_columns_have_metrics_by_default() -> None:
    """Manifests of wide tables would grow without limit."""
    assert modes(wide(102)) == [TRUNCATE_16] * 100 + [NONE] * 2


def test_limit_of_columns_is_a_property() -> None:
    """A user could not keep metrics of a wide table's later columns."""
    assert modes(wide(4), max_inferred_column_defaults="2") == [TRUNCATE_16] * 2 + [NONE] * 2


def test_columns_at_the_top_come_before_nested_ones_that_stand_first() -> None:
    """A wide struct would take all the metrics, and the columns that readers filter by would have none."""
    inner = ice.StructType(*(NestedField(number, f"x{number}", ice.LongType()) for number in range(10, 15)))
    schema = Schema(
        NestedField(1, "s", inner), NestedField(2, "id", ice.LongType()), NestedField(3, "t", ice.LongType())
    )

    result = leaf_columns(schema, {f"{PREFIX}max-inferred-column-defaults": "3"})

    assert [leaf.field_id for leaf in result if leaf.mode != NONE] == [10, 2, 3]


def test_explicit_default_counts_for_all_columns() -> None:
    """A user who asks for metrics of all columns would get those of the first 100."""
    assert modes(wide(102), default="counts") == [COUNTS] * 102


def test_column_setting_wins() -> None:
    """A user could not exempt one column, or keep the metrics of a late one."""
    schema = wide(102)

    result = leaf_columns(schema, {f"{PREFIX}column.c1": "none", f"{PREFIX}column.c102": "full"})

    assert [result[0].mode, result[1].mode, result[100].mode, result[101].mode] == [NONE, TRUNCATE_16, NONE, FULL]


def test_column_setting_reaches_nested_fields_by_full_name() -> None:
    """A user could not exempt a nested field."""
    result = leaf_columns(NESTED, {f"{PREFIX}column.s.x": "none", f"{PREFIX}column.m.value.y": "counts"})

    assert {leaf.field_id: leaf.mode for leaf in result if leaf.mode != TRUNCATE_16} == {3: NONE, 9: COUNTS}


@pytest.mark.parametrize(
    ("properties", "modes_of_columns"),
    [
        ({f"{PREFIX}default": "counts"}, [COUNTS, TRUNCATE_16, TRUNCATE_16, COUNTS]),
        ({f"{PREFIX}default": "none"}, [NONE, TRUNCATE_16, TRUNCATE_16, NONE]),
        ({f"{PREFIX}default": "full"}, [FULL] * 4),
        ({f"{PREFIX}max-inferred-column-defaults": "1"}, [TRUNCATE_16] * 3 + [NONE]),
        ({f"{PREFIX}default": "counts", f"{PREFIX}column.c2": "none"}, [COUNTS, NONE, TRUNCATE_16, COUNTS]),
    ],
)
def test_columns_that_rows_are_sorted_by_keep_bounds(
    properties: dict[str, str], modes_of_columns: list[MetricsMode]
) -> None:
    """Readers could not skip files by the columns that a table is sorted by, as with Iceberg's own writers."""
    order = SortOrder(
        SortField(source_id=2, transform=IdentityTransform()),
        SortField(source_id=3, transform=TruncateTransform(8)),
        SortField(source_id=4, transform=BucketTransform(8)),
    )

    assert [leaf.mode for leaf in leaf_columns(wide(4), properties, order)] == modes_of_columns


def test_number_of_columns_beyond_what_java_reads_is_refused_by_name() -> None:
    """The write would be refused for a reason that names no property."""
    key = f"{PREFIX}max-inferred-column-defaults"

    with pytest.raises(ValueError, match=f"property {key} is '99999999999999999999': expected 2147483647 at most"):
        leaf_columns(NESTED, {key: "99999999999999999999"})


@pytest.mark.parametrize("key", ["default", "column.id", "max-inferred-column-defaults"])
def test_malformed_property_is_refused(key: str) -> None:
    """A misspelt metrics setting would be ignored."""
    with pytest.raises(ValueError, match="bogus"):
        leaf_columns(NESTED, {PREFIX + key: "bogus"})
