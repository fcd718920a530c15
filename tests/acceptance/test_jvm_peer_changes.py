"""What Iceberg's own Spark runtime changes about a table, its partitioning and its columns, the sink follows."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer import Row
from support.tables.event_rows import EVENT, EVENT_COLUMNS, make_events, struct

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

SPEC_CHANGES = {
    "add": ["ADD PARTITION FIELD bucket(8, id)"],
    "drop": ["DROP PARTITION FIELD region"],
    "replace": ["REPLACE PARTITION FIELD days(ts) WITH hours(ts)"],
    "drop-all": ["DROP PARTITION FIELD days(ts)", "DROP PARTITION FIELD region"],
    "back-again": ["DROP PARTITION FIELD region", "ADD PARTITION FIELD region"],
    "several": [
        "ADD PARTITION FIELD truncate(2, s) AS start",
        "REPLACE PARTITION FIELD days(ts) WITH months(ts) AS month",
        "DROP PARTITION FIELD region",
    ],
}

# The columns that any of these partitions by.
SOURCES = struct(id=spark.LongType(), ts=spark.TimestampType(), s=spark.StringType(), region=spark.StringType())


@EXHAUSTIVE
@pytest.mark.parametrize(
    ("name", "version"),
    few(1, [*((name, 2) for name in SPEC_CHANGES), ("drop", 1), ("several", 1)]),
)
def test_partitioning_that_the_jvm_changed(shared: SharedCatalog, name: str, version: int) -> None:
    """Rows that are written after a table's partitioning has changed would be lost for other engines' queries."""
    properties = f"TBLPROPERTIES ('format-version' = '{version}')"
    shared.create_by_jvm(EVENT_COLUMNS, f"PARTITIONED BY (days(ts), region) {properties}")
    old, new, theirs = make_events(0), make_events(12), make_events(24)
    shared.append(old, EVENT)
    shared.alter(*SPEC_CHANGES[name])

    shared.append(new, EVENT)
    shared.append_by_jvm(theirs, EVENT)

    shared.check_rows([*old, *new, *theirs])
    shared.check_filters([*old, *new, *theirs], SOURCES)
    assert specs_by_snapshot(shared)[1:] == [{shared.table().spec().spec_id}] * 2


def specs_by_snapshot(shared: SharedCatalog) -> list[set[int]]:
    """Return the partition specs of the files that each snapshot has added, oldest first."""
    entries = shared.metadata("entries", "sequence_number, snapshot_id, data_file.spec_id", order="snapshot_id")
    specs: dict[int, set[int]] = {}
    for entry in entries:
        specs.setdefault(entry["snapshot_id"], set()).add(entry["spec_id"])
    return [specs[row["snapshot_id"]] for row in shared.metadata("snapshots", order="committed_at")]


PLACE = struct(city=spark.StringType(), zip=spark.IntegerType())
WIDE = struct(
    id=spark.LongType(),
    number=spark.IntegerType(),
    ratio=spark.FloatType(),
    price=spark.DecimalType(9, 2),
    name=spark.StringType(),
    place=PLACE,
    places=spark.ArrayType(PLACE),
    by_name=spark.MapType(spark.StringType(), PLACE),
)
WIDE_COLUMNS = ", ".join(f"{column.name} {column.dataType.simpleString()}" for column in WIDE)


def wide_rows(first: int) -> list[Row]:
    """Return rows of `WIDE`, one of them null but for its id; PyIceberg reads null lists of structs as empty ones."""
    place = {"city": "Ulm", "zip": 89073}
    full = {
        "number": -7,
        "ratio": 0.5,
        "price": decimal.Decimal("-12.34"),
        "name": "Ünïcödé",
        "place": place,
        "places": [place, None],
        "by_name": [("home", place), ("", None)],
    }
    nulls: Row = {**dict.fromkeys(WIDE.names), "id": first + 1, "places": [], "by_name": []}
    return [{"id": first, **full}, nulls, {"id": first + 2, **full}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the columns of `WIDE`.

    Attributes:
        statements: What follows ALTER TABLE.
        schema: The columns afterwards.
        convert: Makes of an old row what it is afterwards.
        fill: Makes of an old row one that is written afterwards; like `convert` unless given.
        partitioned_by: Partition fields of the table.
    """

    statements: list[str]
    schema: spark.StructType
    convert: Callable[[Row], Row]
    fill: Callable[[Row], Row] | None = None
    partitioned_by: str = ""


def changed(base: spark.StructType = WIDE, **columns: spark.DataType | None) -> spark.StructType:
    """Return the columns with others added or changed, and without those that are None."""
    types = {**{column.name: column.dataType for column in base}, **columns}
    return struct(**{name: data_type for name, data_type in types.items() if data_type is not None})


def having(**values: Any) -> Callable[[Row], Row]:
    """Return what sets columns of a row."""
    return lambda row: {**row, **values}


def without(*names: str) -> Callable[[Row], Row]:
    """Return what takes columns off a row."""
    return lambda row: {name: value for name, value in row.items() if name not in names}


def renamed(old: str, new: str) -> Callable[[Row], Row]:
    """Return what renames a column of a row, which keeps its place."""
    return lambda row: {new if name == old else name: value for name, value in row.items()}


def each_place(change: Callable[[Row], Row]) -> Callable[[Row], Row]:
    """Return what changes the places of a row, wherever they are nested."""

    def convert(row: Row) -> Row:
        return {
            **row,
            "place": row["place"] and change(row["place"]),
            "places": row["places"] and [place and change(place) for place in row["places"]],
            "by_name": row["by_name"] and [(key, place and change(place)) for key, place in row["by_name"]],
        }

    return convert


def with_places(place: spark.StructType) -> spark.StructType:
    """Return the columns with other fields in the places."""
    return changed(place=place, places=spark.ArrayType(place), by_name=spark.MapType(spark.StringType(), place))


def place_statements(pattern: str) -> list[str]:
    """Return a statement for each of the places, with their path at `{}`."""
    return [pattern.format(path) for path in ("place", "places.element", "by_name.value")]


COLUMN_CHANGES = {
    "add": Change(
        statements=["ADD COLUMN extra STRING", "ADD COLUMN first DOUBLE FIRST", "ADD COLUMN flag BOOLEAN AFTER id"],
        schema=changed(extra=spark.StringType(), first=spark.DoubleType(), flag=spark.BooleanType()),
        convert=having(extra=None, first=None, flag=None),
        fill=having(extra="new", first=-0.0, flag=True),
    ),
    "add-nested": Change(
        statements=place_statements("ADD COLUMN {}.country STRING"),
        schema=with_places(changed(PLACE, country=spark.StringType())),
        convert=each_place(having(country=None)),
        fill=each_place(having(country="DE")),
    ),
    "rename": Change(
        statements=["RENAME COLUMN name TO title"],
        schema=changed(name=None, title=spark.StringType()),
        convert=renamed("name", "title"),
    ),
    "rename-nested": Change(
        statements=place_statements("RENAME COLUMN {}.city TO town"),
        schema=with_places(struct(zip=spark.IntegerType(), town=spark.StringType())),
        convert=each_place(renamed("city", "town")),
    ),
    "promote": Change(
        statements=[
            "ALTER COLUMN number TYPE BIGINT",
            "ALTER COLUMN ratio TYPE DOUBLE",
            "ALTER COLUMN price TYPE DECIMAL(20, 2)",
        ],
        schema=changed(number=spark.LongType(), ratio=spark.DoubleType(), price=spark.DecimalType(20, 2)),
        convert=having(),
        fill=having(number=2**40, ratio=0.1, price=decimal.Decimal(10**17).quantize(decimal.Decimal("0.01"))),
    ),
    "promote-nested": Change(
        statements=place_statements("ALTER COLUMN {}.zip TYPE BIGINT"),
        schema=with_places(changed(PLACE, zip=spark.LongType())),
        convert=having(),
        fill=each_place(having(zip=2**40)),
    ),
    "reorder": Change(
        statements=["ALTER COLUMN name FIRST", "ALTER COLUMN number AFTER price", "ALTER COLUMN place.zip FIRST"],
        schema=WIDE,
        convert=having(),
    ),
    "drop": Change(
        statements=["DROP COLUMN name", *place_statements("DROP COLUMN {}.city")],
        schema=changed(with_places(struct(zip=spark.IntegerType())), name=None),
        convert=lambda row: without("name")(each_place(without("city"))(row)),
    ),
    "drop-and-add-again": Change(
        statements=["DROP COLUMN name", "ADD COLUMN name STRING"],
        schema=WIDE,
        convert=having(name=None),
        fill=having(name="new"),
    ),
    "name-of-another": Change(
        statements=["RENAME COLUMN name TO title", "ADD COLUMN name BIGINT"],
        schema=changed(name=spark.LongType(), title=spark.StringType()),
        convert=lambda row: {**row, "title": row["name"], "name": None},
        fill=having(title="new", name=7),
    ),
    "rename-partition-source": Change(
        statements=["RENAME COLUMN name TO title"],
        schema=changed(name=None, title=spark.StringType()),
        convert=renamed("name", "title"),
        partitioned_by="name, truncate(2, name)",
    ),
    "promote-partition-source": Change(
        statements=["ALTER COLUMN number TYPE BIGINT", "ALTER COLUMN price TYPE DECIMAL(18, 2)"],
        schema=changed(number=spark.LongType(), price=spark.DecimalType(18, 2)),
        convert=having(),
        fill=having(number=2**40, price=decimal.Decimal("9999999999.99")),
        partitioned_by="number, bucket(4, number), truncate(10, number), bucket(4, price), price",
    ),
    "drop-partition-source": Change(
        statements=["DROP PARTITION FIELD name", "DROP COLUMN name"],
        schema=changed(name=None),
        convert=without("name"),
        partitioned_by="name, bucket(4, id)",
    ),
}


@EXHAUSTIVE
@pytest.mark.parametrize("change", COLUMN_CHANGES.values(), ids=COLUMN_CHANGES.keys())
def test_columns_that_the_jvm_changed(shared: SharedCatalog, change: Change) -> None:
    """Values would come up in other columns, or not at all, after a table's columns have changed."""
    partitioning = change.partitioned_by and f"PARTITIONED BY ({change.partitioned_by})"
    shared.create_by_jvm(WIDE_COLUMNS, partitioning)
    fill = change.fill or change.convert
    old = wide_rows(0)
    ours, theirs = ([fill(row) for row in wide_rows(first)] for first in (10, 20))
    shared.append(old, WIDE)
    shared.alter(*change.statements)

    shared.append(ours, change.schema)
    shared.append_by_jvm(theirs, change.schema)

    rows = [*map(change.convert, old), *ours, *theirs]
    shared.check_rows(rows)
    shared.check_filters(rows, change.schema)


@EXHAUSTIVE
def test_source_of_a_former_partition_field_is_dropped_in_version_1(shared: SharedCatalog) -> None:
    """A table could never be written again; the peer itself fails with "Cannot build accessor for field"."""
    shared.create_by_jvm(WIDE_COLUMNS, "PARTITIONED BY (name, bucket(4, id)) TBLPROPERTIES ('format-version' = '1')")
    shared.append(wide_rows(0), WIDE)
    shared.alter("DROP PARTITION FIELD name", "DROP COLUMN name")

    shared.append([without("name")(row) for row in wide_rows(10)], changed(name=None))

    rows = [without("name")(row) for row in [*wide_rows(0), *wide_rows(10)]]
    shared.check_rows(rows)
    shared.check_filters(rows, changed(name=None))
