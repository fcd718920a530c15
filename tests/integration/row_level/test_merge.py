"""`merge` through Spark, held against what its clauses say, row by row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE, examples
from support.spark.session import shared_session
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds import Delete, Insert, Update
from iceberg_ds.errors import OptionError, RefusedRowsError

Values = tuple[int | None, int | None, str | None]  # id, part, name
Pair = tuple[Values | None, Values | None]  # a row of the table and one of the source
TARGET, SOURCE = "id bigint, part int, name string", "id bigint, part int, name string"


@dataclass(frozen=True)
class Case:
    """A clause, and what it means: its condition, and the row afterwards, None if it goes."""

    clause: Any
    is_meant: Callable[[Pair], bool]
    row: Callable[[Any], Values | None]


def at_most_4(row: Values | None) -> bool:
    """Return whether the id is at most 4; an id that is null is not."""
    return row is not None and row[0] is not None and row[0] <= 4


ALL = "of any id"
MATCHED = (
    Case(Delete(), lambda _: True, lambda _: None),
    Case(Delete("source.name = 'b'"), lambda pair: pair[1][2] == "b", lambda _: None),
    Case(Update(), lambda _: True, lambda pair: pair[1]),
    Case(
        Update({"name": "concat(source.name, '!')", "part": "target.part + 1"}, "target.id <= 4"),
        lambda pair: at_most_4(pair[0]),
        lambda pair: (
            pair[0][0],
            None if pair[0][1] is None else pair[0][1] + 1,
            None if pair[1][2] is None else f"{pair[1][2]}!",
        ),
    ),
)
NOT_MATCHED = (
    Case(Insert(), lambda _: True, lambda pair: pair[1]),
    Case(Insert(condition="source.id <= 4"), lambda pair: at_most_4(pair[1]), lambda pair: pair[1]),
    Case(Insert({"id": "source.id", "part": "7"}), lambda _: True, lambda pair: (pair[1][0], 7, None)),
)
BY_SOURCE = (
    Case(Delete(), lambda _: True, lambda _: None),
    Case(Delete("target.id <= 4"), lambda pair: at_most_4(pair[0]), lambda _: None),
    Case(Update({"name": "'alone'"}), lambda _: True, lambda pair: (*pair[0][:2], "alone")),
)
ids, parts, names = st.none() | st.integers(0, 9), st.none() | st.integers(0, 2), st.sampled_from([None, "a", "b"])
rows = st.lists(st.tuples(ids, parts, names), max_size=8)


def clauses(cases: Sequence[Case]) -> st.SearchStrategy[list[Case]]:
    """Return some clauses; none but the last is without a condition."""
    found = st.lists(st.sampled_from(cases), max_size=2, unique_by=id)
    return found.filter(lambda some: all(case.clause.condition for case in some[:-1]))


@dataclass(frozen=True)
class Wanted:
    """What a merge has to do.

    Attributes:
        rows: The rows afterwards, each with how often it is there.
        changes: How many rows are inserted, updated and deleted.
        is_twice: Whether a row would be changed by two.
    """

    rows: Counter[Values]
    changes: tuple[int, int, int]
    is_twice: bool


def merged(table: Sequence[Values], source: Sequence[Values], cases: Mapping[str, Sequence[Case]]) -> Wanted:
    """Carry a merge out, row by row."""
    left = Counter[Values]()
    inserted = updated = deleted = 0
    matched = defaultdict[int, list[Values]](list)
    for number, row in enumerate(table):
        matched[number] = [other for other in source if row[0] is not None and row[0] == other[0]]
    is_twice = False
    for number, row in enumerate(table):
        pairs: list[Pair] = [(row, other) for other in matched[number]] or [(row, None)]
        of_kind = cases["matched" if matched[number] else "by source"]
        applied = [(case, pair) for pair in pairs if (case := next((c for c in of_kind if c.is_meant(pair)), None))]
        if not applied:
            left[row] += 1
            continue
        is_twice |= len(applied) > 1 and any(isinstance(case.clause, Update) for case in of_kind)
        case, pair = applied[0]
        after = case.row(pair)
        if after is None:
            deleted += 1
        else:
            left[after] += 1
            updated += 1
    known = {row[0] for row in table if row[0] is not None}
    for other in source:
        pair = (None, other)
        case = next((c for c in cases["not matched"] if c.is_meant(pair)), None)
        if (other[0] is None or other[0] not in known) and case is not None:
            after = case.row(pair)
            assert after is not None
            left[after] += 1
            inserted += 1
    return Wanted(rows=left, changes=(inserted, updated, deleted), is_twice=is_twice)


def contents(house: Warehouse) -> Counter[Values]:
    """Return the rows of the table, after a look at all of its metadata and files."""
    table = house.table()
    check_sound(table)
    check_clean(table)
    return Counter((row["id"], row["part"], row["name"]) for row in rows_of(table))


@settings(max_examples=examples(30), deadline=None)
@given(
    table=rows,
    source=rows,
    matched=clauses(MATCHED),
    not_matched=clauses(NOT_MATCHED),
    by_source=clauses(BY_SOURCE),
    mode=st.sampled_from(["merge-on-read", "copy-on-write"]),
    partition_by=st.sampled_from(["", "part"]),
)
def test_merge_does_what_its_clauses_say(  # noqa: PLR0913, PLR0917  # what Hypothesis chooses
    table: list[Values],
    source: list[Values],
    matched: list[Case],
    not_matched: list[Case],
    by_source: list[Case],
    mode: Any,
    partition_by: str,
) -> None:
    """A row would be lost, doubled, changed by another clause, or counted wrongly."""
    spark = shared_session("local[2]")
    cases = {"matched": matched, "not matched": not_matched, "by source": by_source}
    if not any(cases.values()):
        return
    wanted = merged(table, source, cases)
    with TemporaryDirectory() as folder:
        house = Warehouse(folder=Path(folder))
        house.append(spark.createDataFrame(table, TARGET).coalesce(1), partition_by=partition_by)

        def run() -> Any:
            return iceberg_ds.merge(
                spark,
                spark.createDataFrame(source, SOURCE),
                "db.t",
                on=["id"],
                when_matched=[case.clause for case in matched],
                when_not_matched=[case.clause for case in not_matched],
                when_not_matched_by_source=[case.clause for case in by_source],
                options=house.options,
                mode=mode,
            )

        if wanted.is_twice:
            with pytest.raises(RefusedRowsError, match="more than one row of the source"):
                run()
            assert contents(house) == Counter(table)
            return
        result = run()

        assert contents(house) == wanted.rows
        assert (result.inserted_rows, result.updated_rows, result.deleted_rows) == wanted.changes


def test_only_rows_that_are_changed_twice_are_refused(spark: SparkSession, house: Warehouse) -> None:
    """A source with several rows of a key, of which a condition chooses one, could not be merged."""
    house.append(spark.createDataFrame([(1, 0, "a"), (2, 0, "b")], TARGET))
    source = spark.createDataFrame([(1, 0, "old"), (1, 0, "new")], SOURCE)
    with pytest.raises(RefusedRowsError, match="more than one row of the source"):
        iceberg_ds.merge(spark, source, "db.t", on=["id"], when_matched=Update(), options=house.options)
    assert contents(house) == Counter([(1, 0, "a"), (2, 0, "b")])

    iceberg_ds.merge(
        spark, source, "db.t", on=["id"], when_matched=Update(condition="source.name = 'new'"), options=house.options
    )

    assert contents(house) == Counter([(1, 0, "new"), (2, 0, "b")])


def test_first_clause_whose_condition_is_true_counts(spark: SparkSession, house: Warehouse) -> None:
    """A later clause would win, or a row would get values of two."""
    house.append(spark.createDataFrame([(1, 0, "a"), (2, 0, "b"), (3, 0, "c")], TARGET))
    source = spark.createDataFrame([(1, 5, "x"), (2, 6, "y")], SOURCE)

    iceberg_ds.merge(
        spark,
        source,
        "db.t",
        on=["id"],
        when_matched=[Update({"name": "'first'"}, "target.id = 1"), Update({"part": "source.part"})],
        when_not_matched_by_source=[Update({"name": "'alone'"}, "target.id > 2"), Delete()],
        options=house.options,
    )

    assert contents(house) == Counter([(1, 0, "first"), (2, 6, "b"), (3, 0, "alone")])


@EXHAUSTIVE
def test_function_that_answers_otherwise_each_time_loses_no_row(spark: SparkSession, house: Warehouse) -> None:
    """Spark takes any function of Python for one that always answers the same, and computes a condition twice."""
    house.append(spark.range(200).selectExpr("id", "cast(0 AS int) AS part", "'a' AS name"))
    spark.udf.register("coin", lambda _: random() < 0.5, BooleanType())  # noqa: S311  # no secret

    iceberg_ds.merge(
        spark,
        iceberg_ds.read(spark, "db.t", options=house.options),
        "db.t",
        on=["id"],
        when_matched=Update({"part": "1"}, "coin(target.id)"),
        options=house.options,
    )

    assert sorted(row["id"] for row in rows_of(house.table())) == [*range(200)]


def test_source_may_be_a_read_of_the_table_itself(spark: SparkSession, house: Warehouse) -> None:
    """Columns of the two sides would be taken for one."""
    house.append(spark.createDataFrame([(1, 0, "a"), (2, 1, "b")], TARGET))
    source = iceberg_ds.read(spark, "db.t", options=house.options).where("id = 2")

    iceberg_ds.merge(
        spark,
        source,
        "db.t",
        on="target.id = source.id AND target.part = source.part",
        when_matched=Update({"name": "concat(target.name, source.name)"}),
        when_not_matched_by_source=Update({"name": "'none'"}),
        options=house.options,
    )

    assert contents(house) == Counter([(1, 0, "none"), (2, 1, "bb")])


def test_columns_of_odd_names_are_merged(spark: SparkSession, house: Warehouse) -> None:
    """A dot in a name would be taken for a field of a struct, a backtick for the end of the name, a blank for none."""
    own = "__row_level_clause int, __row_level_is_source int, target int"
    columns = f"`a.b` bigint, `c``d` string, `Case` int, {own}, ` ` int"
    house.append(spark.createDataFrame([(1, "x", 1, 4, 5, 6, 7)], columns))
    source = spark.createDataFrame([(1, "y", 2, 5, 6, 7, 8), (2, "z", 3, 6, 7, 8, 9)], columns)

    iceberg_ds.merge(
        spark, source, "db.t", on=["a.b"], when_matched=Update(), when_not_matched=Insert(), options=house.options
    )

    found = sorted(tuple(row.values()) for row in rows_of(house.table()))
    assert found == [(1, "y", 2, 5, 6, 7, 8), (2, "z", 3, 6, 7, 8, 9)]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "no clause is given"),
        ({"when_matched": "update"}, "when_matched has 'update', expected iceberg_ds.Update or iceberg_ds.Delete"),
        ({"when_not_matched": Update({"id": "1"})}, "when_not_matched has Update"),
        ({"when_matched": [Delete(), Update()]}, "clause 1 of when_matched has no condition"),
        ({"when_not_matched_by_source": Update()}, "an Update without assignments"),
        ({"when_matched": Update({"nme": "1"})}, "'nme' is no column that can be set"),
        ({"when_matched": Update({"name": "id"})}, "has no value here"),
        ({"when_matched": Delete("source.x = 1")}, "'source.x = 1' is no predicate on table and source"),
        ({"when_matched": Update(), "on": "id = 1"}, "'id = 1' is no predicate on table and source"),
        ({"when_matched": Update(), "on": []}, "on names no column"),
        ({"when_matched": Update(), "on": 5}, "on is 5, expected a predicate, or names of columns"),
        ({"when_matched": Delete(), "on": "target.id = source.id and"}, "is no predicate on table and source"),
        ({"when_matched": Delete("target.id = 1 or target.id = 2 and")}, "is no predicate on table and source"),
        # Columns of the side that has no row then: all of them would be null.
        ({"when_not_matched": Insert({"id": "target.id"})}, "'target.id' has no value here"),
        ({"when_not_matched": Insert({"id": "source.id"}, "target.id IS NULL")}, "is no predicate on table and source"),
        ({"when_not_matched_by_source": Update({"name": "source.name"})}, "'source.name' has no value here"),
        ({"when_not_matched_by_source": Delete("source.id IS NULL")}, "is no predicate on table and source"),
    ],
)
def test_wrong_merges_are_named(spark: SparkSession, house: Warehouse, arguments: dict[str, Any], error: str) -> None:
    """A job would fail with an error of Spark's, or do something else."""
    house.append(spark.createDataFrame([(1, 0, "a")], TARGET))
    source = spark.createDataFrame([(1, 0, "old")], SOURCE)

    with pytest.raises(OptionError, match=error):
        iceberg_ds.merge(spark, source, "db.t", **{"on": ["id"], **arguments}, options=house.options)

    assert contents(house) == Counter([(1, 0, "a")])


def test_source_without_a_column_is_named(spark: SparkSession, house: Warehouse) -> None:
    """Its values would become null."""
    house.append(spark.createDataFrame([(1, 0, "a")], TARGET))
    source: DataFrame = spark.createDataFrame([(1, 0)], "id bigint, part int")

    with pytest.raises(OptionError, match="it has no column 'name'"):
        iceberg_ds.merge(spark, source, "db.t", on=["id"], when_matched=Update(), options=house.options)
