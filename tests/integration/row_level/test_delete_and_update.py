"""`delete_from` and `update` through Spark: the rows that are left, what is read for it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimeType
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import listed, rows_of
from support.exhaustive import EXHAUSTIVE, each_value, few
from support.spark.tables import Warehouse
from support.tables.changes_by_others import head_of, set_branch
from support.tables.delete_files import delete_ids
from support.tables.sink import Sink, embedded_options

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import DataFileError, IcebergSinkError, OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.reading import read as reading
from iceberg_ds.row_level import operation

Row = dict[str, Any]
MODES = ("merge-on-read", "copy-on-write")
COUNT = 40


def people(spark: SparkSession, count: int = COUNT) -> DataFrame:
    """Return rows in two tasks, some without a name."""
    return spark.range(0, count, 1, 2).selectExpr(
        "id",
        "cast(id % 4 AS int) AS part",
        "CASE WHEN id % 5 > 0 THEN concat('n', id) END AS name",
        "id * 10 AS amount",
    )


def expected(change: Callable[[Row], Row | None], count: int = COUNT) -> list[Row]:
    """Return the rows of `people` after a change of each; None for rows that go."""
    rows: list[Row] = [
        {"id": number, "part": number % 4, "name": f"n{number}" if number % 5 else None, "amount": number * 10}
        for number in range(count)
    ]
    return [changed for row in rows if (changed := change(row)) is not None]


def found(house: Warehouse) -> list[Row]:
    """Return the rows of the table, after a look at all of its metadata and files."""
    table = house.table()
    check_sound(table)
    check_clean(table)
    return sorted(rows_of(table), key=lambda row: row["id"])


def sink_of(house: Warehouse) -> Sink:
    """Return the table without Spark."""
    options = embedded_options(house.folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def make(house: Warehouse, *fields: NestedField) -> None:
    """Make a table as another engine may."""
    house.catalog().create_namespace("db")
    house.catalog().create_table("db.t", Schema(*fields))


PREDICATES: dict[str, tuple[str, Callable[[Row], bool | None]]] = {
    "some rows of all files": ("id % 3 = 0", lambda row: row["id"] % 3 == 0),
    "rows for which it is true, and not null": ("name <> 'n6'", lambda row: row["name"] not in (None, "n6")),
    "whole files by their partition": ("part = 2", lambda row: row["part"] == 2),
    "whole files by their metrics": ("id >= 20", lambda row: row["id"] >= 20),
    "what Spark alone understands": (
        "length(name) = 2 AND rlike(name, '[3-7]')",
        lambda row: row["id"] in {3, 4, 6, 7},
    ),
    "what Spark alone casts": (
        "name LIKE 'n%' AND id LIKE '%7'",
        lambda row: bool(row["name"]) and row["id"] % 10 == 7,
    ),
    "all rows": ("true", lambda _: True),
    "no row": ("id < 0", lambda _: False),
}


@pytest.mark.parametrize(("case", "mode", "partition_by"), each_value([*PREDICATES], MODES, ("", "part")))
def test_rows_of_a_predicate_are_deleted(
    spark: SparkSession, house: Warehouse, case: str, mode: Any, partition_by: str
) -> None:
    """Other rows would go, or rows of the predicate would stay."""
    where, is_gone = PREDICATES[case]
    house.append(people(spark), partition_by=partition_by)

    result = iceberg_ds.delete_from("db.t", where, spark, options=house.options, mode=mode)

    assert found(house) == expected(lambda row: None if is_gone(row) else row)
    assert result.deleted_rows == COUNT - len(found(house))
    assert (result.inserted_rows, result.updated_rows, result.data_files) == (0, 0, 0)
    assert (result.snapshot_id is None) == (result.deleted_rows == 0)
    if mode == "copy-on-write":
        assert listed(house.table())[DataFileContent.POSITION_DELETES] == []
        assert sorted(row["id"] for row in house.rows().to_pylist()) == [row["id"] for row in found(house)]


def test_tasks_take_rows_out_of_many_files(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one file would be hidden in another, or be left where they are."""
    monkeypatch.setattr(operation, "_FEW_FILES", 0)
    house.append(people(spark), partition_by="part, truncate(3, id)")

    result = iceberg_ds.update(
        "db.t", {"amount": "amount + 1"}, where="id % 5 > 1", spark=spark, options=house.options, mode="merge-on-read"
    )

    assert result.updated_rows == COUNT * 3 // 5
    assert found(house) == expected(lambda row: {**row, "amount": row["amount"] + (row["id"] % 5 > 1)})


def test_whole_files_go_without_a_job(spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleting a partition would read it."""
    house.append(people(spark), partition_by="part")
    monkeypatch.setattr(operation, "run_job", lambda *_: pytest.fail("a job of Spark ran"))

    result = iceberg_ds.delete_from("db.t", "part IN (1, 2)", spark, options=house.options)

    assert (result.removed_files, result.deleted_rows) == (2, COUNT // 2)
    assert found(house) == expected(lambda row: None if row["part"] in {1, 2} else row)
    summary = house.table().current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary.operation.value == "delete"


@pytest.mark.parametrize("mode", few(1, MODES))
def test_changes_follow_each_other(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """A row that was hidden before would come back, or be counted again, in files with deletes of both kinds."""
    house.append(people(spark, 20))
    delete_ids(sink_of(house), 7)

    for number in (3, 4, 11):
        iceberg_ds.delete_from("db.t", f"id = {number}", spark, options=house.options, mode=mode)
    again = iceberg_ds.delete_from("db.t", "id IN (3, 7)", spark, options=house.options, mode=mode)
    result = iceberg_ds.update("db.t", {"part": "9"}, where="id < 12", spark=spark, options=house.options, mode=mode)

    assert again.snapshot_id is None
    assert result.updated_rows == 8
    gone = {3, 4, 7, 11}
    assert found(house) == expected(
        lambda row: None if row["id"] in gone else {**row, "part": 9 if row["id"] < 12 else row["part"]}, 20
    )


@pytest.mark.parametrize("mode", MODES)
def test_rows_get_new_values(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """Columns that are not set would change, or rows that the predicate leaves out."""
    house.append(people(spark), partition_by="part")

    result = iceberg_ds.update(
        "db.t",
        {"NAME": "concat('was ', name)", "amount": "amount + id", "part": "CASE WHEN id < 30 THEN 7 ELSE part END"},
        where="id >= 25",
        spark=spark,
        options=house.options,
        mode=mode,
    )

    def changed(row: Row) -> Row:
        if row["id"] < 25:
            return row
        name = None if row["name"] is None else f"was {row['name']}"
        part = 7 if row["id"] < 30 else row["part"]
        return {**row, "name": name, "amount": row["amount"] + row["id"], "part": part}

    assert found(house) == expected(changed)
    assert (result.updated_rows, result.deleted_rows, result.inserted_rows) == (15, 0, 0)


def test_values_of_all_types_stay_as_they_are(spark: SparkSession, house: Warehouse) -> None:
    """A row whose other column is set would come back with a time, a number or a struct that is not the same."""
    frame = spark.range(0, 12, 1, 1).selectExpr(
        "id",
        "cast(id AS double) / 7 AS ratio",
        "cast(id AS float) / 7 AS small",
        "timestamp_seconds(id * 3600.25) AS at",
        "cast(timestamp_seconds(id * 3600) AS timestamp_ntz) AS local",
        "date_add(date '1500-11-01', cast(id AS int)) AS day",
        "cast(id / 3 AS decimal(20, 9)) AS price",
        "named_struct('x', id, 'inner', named_struct('y', array(id, null), 'z', 'zz')) AS nested",
        "map(concat('k', id), named_struct('a', id)) AS pairs",
        "CASE WHEN id % 3 = 0 THEN NULL ELSE id % 2 = 0 END AS flag",
        "cast(concat('b', id) AS binary) AS raw",
        "CASE WHEN id % 2 = 0 THEN named_struct('a', 1, 'b', 'old') END AS part",
    )
    house.append(frame)
    before = found(house)

    iceberg_ds.update(
        "db.t", {"nested.inner.z": "'new'", "part.b": "concat('p', id)"}, spark=spark, options=house.options
    )

    for row in before:
        row["nested"]["inner"]["z"] = "new"
        row["part"] = {"a": None if row["part"] is None else 1, "b": f"p{row['id']}"}
    assert found(house) == before


@pytest.mark.parametrize("is_ansi", [True, False])
@EXHAUSTIVE
def test_value_that_does_not_fit_is_no_null(spark: SparkSession, house: Warehouse, *, is_ansi: bool) -> None:
    """A number would become null or another one, as sessions without ANSI mode cast it."""
    house.append(people(spark))
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(is_ansi).lower())
    try:
        with pytest.raises(DataFileError, match="'id \\* 100000000' does not fit column 'part'"):
            iceberg_ds.update("db.t", {"part": "id * 100000000"}, spark=spark, options=house.options)
        result = iceberg_ds.update("db.t", {"part": "id * 100000"}, spark=spark, options=house.options)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))

    assert result.updated_rows == COUNT
    assert found(house) == expected(lambda row: {**row, "part": row["id"] * 100_000})


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("at = '10:00'", set[int]()),
        ("at <> '10:00'", {1, 2, 3}),
        ("at = '10:00:00.000000'", {1, 2}),
    ],
)
@EXHAUSTIVE
def test_times_are_compared_as_spark_compares_them(
    spark: SparkSession, house: Warehouse, where: str, gone: set[int]
) -> None:
    """Whether a row goes would depend on which rows its file has: in some files alone metrics would decide."""
    make(house, NestedField(1, "id", LongType()), NestedField(2, "at", TimeType()))
    for rows in ([(1, 10)], [(2, 10), (3, 11)]):
        ids, hours = zip(*rows, strict=True)
        house.table().append(
            pa.table({"id": pa.array(ids, pa.int64()), "at": pa.array([time(hour) for hour in hours], pa.time64("us"))})
        )
    visible = iceberg_ds.read(spark, "db.t", options=house.options, where=where).collect()

    iceberg_ds.delete_from("db.t", where, spark, options=house.options)

    assert {row["id"] for row in visible} == gone
    assert {row["id"] for row in found(house)} == {1, 2, 3} - gone


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ({}, "assignments names no column"),
        ({"nme": "'x'"}, "'nme' is no column that can be set: there is no 'nme'"),
        ({"name.x": "1"}, "there is no 'x'"),
        ({"name": "'x'", "NAME": "'y'"}, "is set twice"),
        ({"part": "'x'"}, r"column 'part' is int, and \"'x'\" is string"),
        ({"part": "named_struct('a', 1)"}, "which is not stored in it without being asked"),
        ({"part": "nothing + 1"}, "has no value here"),
        ({"part": "1 +"}, "has no value here"),
        ({"part": "part as other"}, "has no value here"),
        ({"part": None}, "'part' is set to None, expected an expression in Spark's SQL, such as 'NULL'"),
        ({"name": "explode(array('a', 'b'))"}, "has no value here.*GENERATOR"),
        ({"part": "max(part)"}, "Spark does not take what rows become"),
        (["part"], "assignments is .*, expected a mapping"),
    ],
)
def test_wrong_assignments_are_named(
    spark: SparkSession, house: Warehouse, assignments: dict[str, str], error: str
) -> None:
    """A job would fail with an error of Spark's, or another column would be set."""
    house.append(people(spark, 2))

    with pytest.raises(OptionError, match=error):
        iceberg_ds.update("db.t", assignments, spark=spark, options=house.options)

    assert found(house) == expected(lambda row: row, 2)


@pytest.mark.parametrize("where", ["id < 5 and", "id < 5 or", "id < 5 keep", "id < 5 and -- and id = 4", "(id < 5"])
def test_predicate_that_was_cut_off_changes_nothing(spark: SparkSession, house: Warehouse, where: str) -> None:
    """Spark takes its last word for a name: all rows of its first half would be deleted."""
    house.append(people(spark))
    calls = {
        "delete rows of": lambda: iceberg_ds.delete_from("db.t", where, spark, options=house.options),
        "update": lambda: iceberg_ds.update("db.t", {"part": "5"}, where, spark, options=house.options),
        "read": lambda: iceberg_ds.read(spark, "db.t", where=where, options=house.options),
    }
    for action, call in calls.items():
        with pytest.raises(OptionError, match=f"Cannot {action} db.t: where is no predicate on its columns"):
            call()
    with pytest.raises(OptionError, match="where is True, expected a text or None"):
        iceberg_ds.update("db.t", {"part": "5"}, True, spark, options=house.options)  # type: ignore[arg-type]  # noqa: FBT003

    assert found(house) == expected(lambda row: row)


def test_required_column_is_not_set_to_null(spark: SparkSession, house: Warehouse) -> None:
    """Readers would meet a null where there can be none."""
    make(
        house,
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "part", IntegerType()),
        NestedField(3, "name", StringType()),
        NestedField(4, "amount", LongType()),
    )
    house.append(people(spark, 2))

    with pytest.raises(SchemaMismatchError, match="id"):
        iceberg_ds.update("db.t", {"id": "CASE WHEN id > 0 THEN id END"}, spark=spark, options=house.options)

    assert found(house) == expected(lambda row: row, 2)


def test_tables_of_version_1_are_written_again(spark: SparkSession, house: Warehouse) -> None:
    """Position deletes, which version 1 does not know, would be added."""
    house.append(people(spark), format_version="1")

    with pytest.raises(OptionError, match="format version is 1"):
        iceberg_ds.delete_from("db.t", "id = 3", spark, options=house.options, mode="merge-on-read")
    iceberg_ds.delete_from("db.t", "id = 3", spark, options=house.options)

    assert found(house) == expected(lambda row: None if row["id"] == 3 else row)


def test_properties_of_the_table_choose(spark: SparkSession, house: Warehouse) -> None:
    """A table that its owner keeps free of deletes would get some."""
    house.append(people(spark, 4))
    with house.table().transaction() as change:
        change.set_properties({"write.delete.mode": "COPY-ON-WRITE", "write.merge.isolation-level": "none"})

    iceberg_ds.delete_from("db.t", "id = 1", spark, options=house.options)
    assert listed(house.table())[DataFileContent.POSITION_DELETES] == []
    iceberg_ds.update("db.t", {"part": "5"}, where="id = 2", spark=spark, options=house.options)

    assert listed(house.table())[DataFileContent.POSITION_DELETES] != []
    assert [row["id"] for row in found(house)] == [0, 2, 3]
    with pytest.raises(OptionError, match="isolation-level is 'none', expected serializable or"):
        iceberg_ds.merge(
            spark, people(spark), "db.t", on=["id"], when_matched=iceberg_ds.Delete(), options=house.options
        )


def test_branches_change_alone(spark: SparkSession, house: Warehouse) -> None:
    """Readers of main would see what was tried on a branch."""
    house.append(people(spark, 4))
    set_branch(sink_of(house), "trial", head_of(sink_of(house)))

    iceberg_ds.delete_from("db.t", "id = 1", spark, options=house.options, branch="trial")
    result = iceberg_ds.update(
        "db.t", {"name": "'t'"}, where="id < 3", spark=spark, options=house.options, branch="trial"
    )

    assert result.updated_rows == 2
    assert [row["id"] for row in rows_of(house.table(), "trial") if row["name"] == "t"] == [0, 2]
    assert found(house) == expected(lambda row: row, 4)
    with pytest.raises(OptionError, match="no branch 'other'"):
        iceberg_ds.delete_from("db.t", "id = 1", spark, options=house.options, branch="other")


def test_repeated_version_changes_nothing(spark: SparkSession, house: Warehouse) -> None:
    """A job that is run again would add to a value twice."""
    house.append(people(spark, 4))
    options = {**house.options, "txn-app-id": "raise", "txn-version": "7"}

    first = iceberg_ds.update("db.t", {"amount": "amount + 1"}, spark=spark, options=options)
    again = iceberg_ds.update("db.t", {"amount": "amount + 1"}, spark=spark, options=options)

    assert (first.updated_rows, again.was_replayed, again.updated_rows) == (4, True, 0)
    assert found(house) == expected(lambda row: {**row, "amount": row["amount"] + 1}, 4)


def test_python_tasks_read_where_spark_cannot(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables where Spark has no filesystem could not be changed, or rows in whole files would count twice."""
    house.append(people(spark), partition_by="part")
    monkeypatch.setattr(reading, "_why_not_spark", lambda *_: "of a test")

    deleted = iceberg_ds.delete_from("db.t", "part = 1 OR id = 2", spark, options=house.options)
    updated = iceberg_ds.update("db.t", {"name": "'x'"}, where="id < 8", spark=spark, options=house.options)

    assert (deleted.deleted_rows, deleted.removed_files, updated.updated_rows) == (11, 1, 5)
    assert found(house) == expected(
        lambda row: (
            None if row["part"] == 1 or row["id"] == 2 else {**row, "name": "x" if row["id"] < 8 else row["name"]}
        )
    )


@pytest.mark.parametrize(
    ("options", "arguments", "error"),
    [
        ({"keys": "id"}, {}, "option 'keys' would not count here"),
        ({"route-by": "x"}, {}, "option 'route-by' would not count here"),
        ({"replace-where": "x"}, {}, "option 'replace-where' would not count here"),
        ({}, {"mode": "merge"}, "mode is 'merge', expected merge-on-read or copy-on-write"),
        ({}, {"isolation_level": "none"}, "isolation_level is 'none', expected serializable or snapshot"),
        ({}, {"where": "id ="}, "where is no predicate"),
        ({}, {"where": None}, "where is None, expected a predicate; 'true' deletes all rows"),
        ({}, {"where": "idd = 1"}, "where is no predicate"),
    ],
)
def test_wrong_options_are_named(
    spark: SparkSession, house: Warehouse, options: dict[str, str], arguments: dict[str, Any], error: str
) -> None:
    """An option would be passed over, and rows would go that it was to keep."""
    house.append(people(spark, 2))

    with pytest.raises(OptionError, match=error):
        iceberg_ds.delete_from(
            "db.t", spark=spark, **{"where": "true", **arguments}, options={**house.options, **options}
        )

    assert found(house) == expected(lambda row: row, 2)


def test_table_with_a_column_of_a_places_name_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """Values of that column would be taken for places of rows."""
    make(house, NestedField(1, "id", LongType()), NestedField(2, "_file", StringType()))

    with pytest.raises(UnsupportedTableError, match="column '_file'"):
        iceberg_ds.delete_from("db.t", "id = 1", spark, options=house.options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", ["resolve", "commit_tables"])
def test_failure_leaves_no_file(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch, mode: Any, step: str
) -> None:
    """Files that no table refers to would be left, or rows would be lost."""
    house.append(people(spark), partition_by="part")

    def fail(*_: Any, **__: Any) -> None:
        raise DataFileError("of a test")

    if step == "commit_tables":
        monkeypatch.setattr("iceberg_ds.commit.epoch_part.begin_commit", fail)
        monkeypatch.setattr("iceberg_ds.commit.together.commit_to_branch", fail)
    else:
        monkeypatch.setattr(operation, step, fail)
    with pytest.raises(IcebergSinkError, match="of a test"):
        iceberg_ds.update("db.t", {"amount": "0"}, where="id > 5", spark=spark, options=house.options, mode=mode)

    rows = rows_of(house.table())
    assert sorted(rows, key=lambda row: row["id"]) == expected(lambda row: row)
    if step == "resolve":
        check_clean(house.table())
