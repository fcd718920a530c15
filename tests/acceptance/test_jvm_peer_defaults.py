"""Default values of columns: the sink writes and reads what the runtime reads."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.types import LongType, NestedField, StructType
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.spark.session import shared_session
from support.tables.changes_by_others import set_columns
from support.tables.data_rewrites import rewrite
from support.tables.defaults import DEFAULTS, add_columns, columns, row_of
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME, Row

import iceberg_ds

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

ID = spark.StructType().add("id", "long")

# Of rows 1 to 3 from before the columns, and row 4 that was written without them.
FILTERS = {
    "c1 = -7": [1, 2, 3],
    "c1 = 0": [4],
    "c9 IS NULL": [],
    "c9 = ''": [4],
    "c2 > 0 AND id > 1": [2, 3],
    "c6 < DATE '2000-01-01'": [4],
}


def ids(*numbers: int) -> list[Row]:
    """Return rows that have ids alone."""
    return [{"id": number} for number in numbers]


def check(shared: SharedCatalog, expected: list[dict[str, Any]]) -> None:
    """Assert that the runtime and both readers of ours find these rows, and find them by their values."""
    wanted = sorted((tuple(row.values()) for row in expected), key=lambda row: row[0])
    names = list(expected[0])
    by_jvm = shared.jvm.sql(f"SELECT {', '.join(names)} FROM {NAME} ORDER BY id")  # noqa: S608
    assert [tuple(row.values()) for row in by_jvm] == wanted
    by_tasks = read_by_tasks(shared.sink(), columns=", ".join(names))
    assert sorted((tuple(row.values()) for row in by_tasks), key=lambda row: row[0]) == wanted
    assert by_spark(shared, names) == wanted


def by_spark(shared: SharedCatalog, names: list[str], where: str | None = None) -> list[tuple[Any, ...]]:
    """Return what Spark's Parquet reader finds, ordered by id."""
    read = iceberg_ds.read(
        shared_session("local[2]"),
        NAME,
        options={"warehouse": str(shared.folder)},
        columns=names,
        where=where,
        reader="spark",
    )
    return sorted((tuple(row.values()) for row in read.toArrow().to_pylist()), key=lambda row: row[0])


@pytest.fixture
def with_old_rows(shared: SharedCatalog) -> SharedCatalog:
    """Return a table of version 3 with rows from before the columns came that have defaults."""
    shared.append(ids(1, 2, 3), ID, format_version="3")
    add_columns(shared.sink(), *columns())
    return shared


@pytest.mark.exhaustive
def test_rows_from_before_a_column_have_its_default(with_old_rows: SharedCatalog) -> None:
    """They would be null, or change when their files are written again."""
    shared = with_old_rows
    check(shared, [row_of(number, 0) for number in (1, 2, 3)])

    shared.append(ids(4), ID)
    check(shared, [*(row_of(number, 0) for number in (1, 2, 3)), row_of(4, 1)])
    for where, expected in FILTERS.items():
        assert [number for (number,) in by_spark(shared, ["id"], where)] == expected, where
        assert [row["id"] for row in read_by_tasks(shared.sink(), columns="id", where=where)] == expected, where

    rewrite(shared.sink(), rewrite_all="true")
    check(shared, [*(row_of(number, 0) for number in (1, 2, 3)), row_of(4, 1)])

    shared.overwrite(ids(2), ID, replace_where="id = 2")
    check(shared, [row_of(1, 0), row_of(2, 1), row_of(3, 0), row_of(4, 1)])


@pytest.mark.exhaustive
def test_nulls_that_are_written_stay_nulls(with_old_rows: SharedCatalog) -> None:
    """A null would become a default, in files that have the column."""
    nothing: dict[str, Any] = {"id": 7, **dict.fromkeys(f"c{number}" for number in range(len(DEFAULTS)))}
    with_old_rows.append([nothing], spark.StructType().add("id", "long").add("c0", "void").add("c1", "void"))
    found = {row["id"]: row for row in read_by_tasks(with_old_rows.sink())}

    assert found[7] == {**row_of(7, 1), "c0": None, "c1": None}
    check(with_old_rows, [*(row_of(number, 0) for number in (1, 2, 3)), found[7]])


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_that_change_keep_the_defaults_of_other_columns(with_old_rows: SharedCatalog, mode: Any) -> None:
    """An update would make null of a value, or an insert leave out a default."""
    shared, session = with_old_rows, shared_session("local[2]")
    options = {"warehouse": str(shared.folder)}

    iceberg_ds.update(NAME, {"c1": "c1 - 1"}, "id = 2 AND c1 = -7", session, options=options, mode=mode)
    check(shared, [row_of(1, 0), {**row_of(2, 0), "c1": -8}, row_of(3, 0)])

    source = session.createDataFrame([(3,), (9,)], "id long")
    iceberg_ds.merge(
        session,
        source,
        NAME,
        options=options,
        on=["id"],
        when_matched=[iceberg_ds.Update({"c1": "0"})],
        when_not_matched=iceberg_ds.Insert({"id": "source.id", "c2": "null"}),
        mode=mode,
    )
    iceberg_ds.delete_from(NAME, "c1 = -7", session, options=options, mode=mode)

    check(shared, [{**row_of(2, 0), "c1": -8}, {**row_of(3, 0), "c1": 0}, {**row_of(9, 1), "c2": None}])


@pytest.mark.exhaustive
def test_row_of_a_key_gets_write_defaults(with_old_rows: SharedCatalog) -> None:
    """A feed that does not know a column would write null into it."""
    shared = with_old_rows
    session = shared_session("local[2]")

    iceberg_ds.upsert(
        session.createDataFrame([(3,), (9,)], "id long"), NAME, keys="id", options={"warehouse": str(shared.folder)}
    )

    check(shared, [row_of(1, 0), row_of(2, 0), row_of(3, 1), row_of(9, 1)])


@pytest.mark.exhaustive
def test_required_column_and_fields_of_structs(shared: SharedCatalog) -> None:
    """A DataFrame without a required column that has a default would be refused, or nested fields be null."""
    table = spark.StructType().add("id", "long").add("s", spark.StructType().add("first", "long"))
    shared.append([{"id": 1, "s": {"first": 3}}, {"id": 2, "s": None}], table, format_version="3")
    own, struct = shared.sink().table().schema().fields
    inside = NestedField(40, "inside", LongType(), initial_default=5, write_default=6)
    wider = struct.model_copy(update={"field_type": StructType(*struct.field_type.fields, inside)})
    needed = NestedField(41, "needed", LongType(), required=True, initial_default=7, write_default=8)
    set_columns(shared.sink(), own, wider, needed)
    shared.append([{"id": 3, "s": {"first": 4}}, {"id": 4, "s": None}], table)

    expected = [
        {"id": 1, "s": {"first": 3, "inside": 5}, "needed": 7},
        {"id": 2, "s": None, "needed": 7},
        {"id": 3, "s": {"first": 4, "inside": 6}, "needed": 8},
        {"id": 4, "s": None, "needed": 8},
    ]
    assert shared.jvm.sql(f"SELECT * FROM {NAME} ORDER BY id") == expected  # noqa: S608
    assert read_by_tasks(shared.sink()) == expected
    read = iceberg_ds.read(shared_session("local[2]"), NAME, options={"warehouse": str(shared.folder)})
    assert [row.asDict(recursive=True) for row in read.orderBy("id").collect()] == expected
