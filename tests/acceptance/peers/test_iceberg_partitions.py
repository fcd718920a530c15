"""apache/iceberg, Spark: the suites of partition values."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from support.peer.cases import DIFFERS, ICEBERG
from support.peer.tables import PeerTable, columns, simple

from iceberg_ds.errors import OptionError

PRIMITIVES = columns(
    id="long",
    b="boolean",
    i="integer",
    l="long",
    f="float",
    d="double",
    date="date",
    ts="timestamp",
    s="string",
    bytes="binary",
    dec_9_0="decimal(9,0)",
    dec_11_2="decimal(11,2)",
    dec_38_10="decimal(38,10)",
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "b": True,
        "i": -7,
        "l": 1 << 60,
        "f": 0.5,
        "d": -math.pi,
        "date": date(1969, 12, 31),
        "ts": datetime(2026, 3, 1, 4, 5, 6, 789012, tzinfo=timezone.utc),
        "s": "a/b c=d%",
        "bytes": b"\x00\xff/",
        "dec_9_0": Decimal(123456789),
        "dec_11_2": Decimal("-123456789.01"),
        "dec_38_10": Decimal("1234567890123456789012345678.0123456789"),
    },
    {
        "id": 2,
        "b": False,
        "i": 0,
        "l": -(1 << 60),
        "f": -0.25,
        "d": 1e300,
        "date": date(2026, 11, 23),
        "ts": datetime(1960, 1, 1, tzinfo=timezone.utc),
        "s": "",
        "bytes": b"",
        "dec_9_0": Decimal(-1),
        "dec_11_2": Decimal("0.00"),
        "dec_38_10": Decimal("0E-10"),
    },
]


def partition_values(table: PeerTable) -> list[Any]:
    """Return the value of the first partition field of each data file."""
    return [file.partition[0] for file in table.files()]


@ICEBERG.case("TestPartitionValues.testNullPartitionValue")
def test_null_is_a_partition_of_its_own(table: PeerTable) -> None:
    """Rows without a value in the partition column would be lost, or read back with one."""
    data = simple((1, "a"), (2, "b"), (3, "c"), (4, None))

    table.append(data, partition_by="data")

    assert table.rows() == data
    assert sorted(partition_values(table), key=str) == [None, "a", "b", "c"]


@ICEBERG.case("TestPartitionValues.testReorderedColumns")
def test_columns_in_another_order_than_the_partitioned_tables(table: PeerTable) -> None:
    """Values would land in the wrong column."""
    table.append(simple((0, "z")), partition_by="data")

    table.append(simple((1, "a"), (2, "b")), schema=columns(data="string", id="integer"), check_ordering="false")

    assert table.rows() == simple((0, "z"), (1, "a"), (2, "b"))


@ICEBERG.case(
    "TestPartitionValues.testReorderedColumnsNoNullability",
    verdict=DIFFERS(
        "`check-nullability=false` is refused: a null in a required column would break the table for its readers",
        see="coming-from/iceberg-runtime.md",
    ),
)
def test_nullability_is_always_checked(table: PeerTable) -> None:
    """A null would get into a required column, and readers would fail."""
    table.append(simple((0, "z")), partition_by="data")

    with pytest.raises(OptionError, match=r"check-nullability"):
        table.append(simple((1, "a")), schema=columns(data="string", id="integer"), check_nullability="false")


@ICEBERG.case("TestPartitionValues.testPartitionValueTypes")
@pytest.mark.parametrize("column", [name for name in PRIMITIVES.names if name != "id"])
def test_identity_partitions_of_each_type(table: PeerTable, column: str) -> None:
    """Rows would be filed under another value than they have, or read back with it."""
    table.append(ROWS, schema=PRIMITIVES, partition_by=column)

    assert table.rows() == ROWS
    assert len(table.files()) == 2


@ICEBERG.case("TestPartitionValues.testNestedPartitionValues")
@pytest.mark.parametrize("column", [name for name in PRIMITIVES.names if name != "id"])
def test_identity_partitions_of_fields_of_structs(table: PeerTable, column: str) -> None:
    """A table partitioned by a field of a struct could not be written, or lose rows."""
    nested = columns(nested=PRIMITIVES)
    data = [{"nested": row} for row in ROWS]

    table.append(data, schema=nested, partition_by=f"nested.{column}")

    assert sorted(table.rows(), key=lambda row: row["nested"]["id"]) == data
    assert len(table.files()) == 2


@ICEBERG.case("TestPartitionValues.testPartitionedByNestedString")
def test_partition_by_a_text_within_a_struct(table: PeerTable) -> None:
    """The path of the file could not be made from a text that lies deeper."""
    nested = columns(struct=columns(string="string"))

    table.append([{"struct": {"string": "nested_string_value"}}], schema=nested, partition_by="struct.string")

    assert table.rows() == [{"struct": {"string": "nested_string_value"}}]
    assert partition_values(table) == ["nested_string_value"]


@ICEBERG.case("TestPartitionValues.testReadPartitionColumn")
def test_partition_column_alone_can_be_read(table: PeerTable) -> None:
    """A reader that asks for the partition column only would get other values."""
    nested = columns(id="long", struct=columns(innerid="long", innername="string"))
    data = [{"id": i, "struct": {"innerid": i, "innername": f"name {i}"}} for i in range(5)]

    table.append(data, schema=nested, partition_by="struct.innername")

    found = table.rows(selected_fields=("struct.innername",))
    assert found == [{"struct": {"innername": f"name {i}"}} for i in range(5)]
    assert sorted(partition_values(table)) == [f"name {i}" for i in range(5)]
