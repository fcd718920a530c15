"""Batches of Delta's `DeltaSuite`: appends, overwrites, ranges and partitions that are replaced."""

from __future__ import annotations

import pytest
from support.peer.cases import DELTA, DIFFERS
from support.peer.frames import BOOLEAN, INT, LONG, STRING, Frame, found, frame, names, ordered, save
from support.peer.tables import PeerTable

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError

DYNAMIC = {"partitionOverwriteMode": "dynamic"}
BY_PART = {"partition-by": "part"}
BY_ODD = {"partition-by": "is_odd"}


def values(*numbers: int) -> Frame:
    """Return rows of one column."""
    return frame({"value": INT}, *((number,) for number in numbers))


def parted(*numbers: int, part: str = "part") -> Frame:
    """Return rows with the rest of their numbers by 2."""
    return frame({"value": INT, part: INT}, *((number, number % 2) for number in numbers))


def odds(*numbers: int) -> Frame:
    """Return rows with whether their numbers are odd."""
    return frame({"value": INT, "is_odd": BOOLEAN}, *((number, number % 2 != 0) for number in numbers))


def numbers_of(table: PeerTable) -> list[int]:
    """Return the first column of the table."""
    return [row[0] for row in found(table)]


@DELTA.case("DeltaSuite.append then read")
def test_each_append_adds_its_rows(table: PeerTable) -> None:
    """Rows of an earlier append would be gone."""
    for numbers in ((1,), (2, 3), (4, 5, 6)):
        save(table, values(*numbers))

    assert numbers_of(table) == [1, 2, 3, 4, 5, 6]


@DELTA.case("DeltaSuite.partitioned append - nulls")
def test_null_gets_a_partition_of_its_own(table: PeerTable) -> None:
    """Rows without a partition's value would be lost or in another partition."""
    save(table, frame({"value": INT, "is_odd": BOOLEAN}, (1, True), (None, None)), options=BY_ODD)

    assert found(table) == [(None, None), (1, True)]
    assert table.load().scan(row_filter="is_odd is null").to_arrow().num_rows == 1
    assert len(list(table.load().scan(row_filter="is_odd = true").plan_files())) == 1


@DELTA.case("DeltaSuite.append table to itself")
def test_table_is_appended_to_itself(table: PeerTable) -> None:
    """Rows that were read from the table would be lost as it is written."""
    save(table, values(1, 2, 3))
    save(table, values(*numbers_of(table)))

    assert numbers_of(table) == [1, 1, 2, 2, 3, 3]


@DELTA.case("DeltaSuite.batch write: append, overwrite")
def test_overwrite_replaces_all_rows(table: PeerTable) -> None:
    """Old rows would stay beside the new ones."""
    save(table, values(1, 2, 3))
    save(table, values(4, 5, 6), "overwrite")

    assert numbers_of(table) == [4, 5, 6]


@DELTA.case("DeltaSuite.write via data source API when the directory doesn't exist")
def test_first_write_creates_the_table(table: PeerTable) -> None:
    """A user would have to create each table beforehand."""
    save(table, values(1, 2, 3))

    assert names(table) == ["value"]
    assert numbers_of(table) == [1, 2, 3]


@DELTA.case("DeltaSuite.support partitioning with batch data source API - append")
def test_new_table_is_partitioned_by_several_columns(table: PeerTable) -> None:
    """Readers would have to read all files for one value."""
    rows = [(number, number % 4, number % 8) for number in range(100)]
    save(table, frame({"id": LONG, "by4": LONG, "by8": LONG}, *rows), options={"partition-by": "by4, by8"})

    files = list(table.load().scan().plan_files())
    assert {tuple(task.file.partition) for task in files} == {(number % 4, number) for number in range(8)}
    assert found(table) == rows


@DELTA.case("DeltaSuite.support partitioning with batch data source API - overwrite")
def test_overwrite_brings_a_column_more(table: PeerTable) -> None:
    """An overwrite with a new column would need a new table."""
    save(table, frame({"id": LONG, "by4": LONG}, *((n, n % 4) for n in range(20))), options={"partition-by": "by4"})
    rows = [(number, number % 4, number % 8) for number in range(101, 120)]
    save(table, frame({"id": LONG, "by4": LONG, "by8": LONG}, *rows), "overwrite", {"mergeSchema": "true"})

    assert found(table) == rows
    assert [field.name for field in table.load().spec().fields] == ["by4"]


@DELTA.case(
    "DeltaSuite.missing partition columns",
    verdict=DIFFERS(
        "an optional column that the DataFrame lacks gets nulls, the one that partitions the table, too",
        see="columns.md",
    ),
)
def test_missing_partition_column_goes_to_the_partition_of_null(table: PeerTable) -> None:
    """Rows would land in a partition that they do not belong to."""
    save(table, parted(1, 2, 3), options=BY_PART)
    save(table, values(4))

    assert found(table) == ordered((1, 1), (2, 0), (3, 1), (4, None))


@DELTA.case("DeltaSuite.throw exception when users are trying to write in batch with different partitioning")
def test_append_with_another_partitioning_is_refused(table: PeerTable) -> None:
    """Files would be laid out otherwise than the user asked for."""
    columns = {"id": LONG, "by4": LONG, "by8": LONG}
    save(table, frame(columns, (1, 1, 1)), options={"partition-by": "by4, by8"})

    with pytest.raises(OptionError, match="partition-by"):
        save(table, frame(columns, (2, 2, 2)), options={"partition-by": "by4"})

    assert found(table) == [(1, 1, 1)]


@DELTA.case("DeltaSuite.overwrite and replaceWhere should check partitioning compatibility")
def test_range_with_another_partitioning_is_refused(table: PeerTable) -> None:
    """A range would be replaced in a layout that the table does not have."""
    save(table, frame({"id": LONG, "by4": LONG}, (1, 1)), options={"partition-by": "by4"})

    with pytest.raises(OptionError, match="partition-by"):
        save(
            table,
            frame({"id": LONG, "by4": LONG}, (2, 2)),
            "overwrite",
            {"partition-by": "by4, id", "replaceWhere": "by4 > 0"},
        )

    assert found(table) == [(1, 1)]


@DELTA.case(
    "DeltaSuite.support removing partitioning",
    verdict=DIFFERS(
        "overwriteSchema leaves the partitioning; an empty partition-by with evolve-partitioning=true removes it",
        see="coming-from/delta.md",
    ),
)
def test_partitioning_is_removed_if_asked_for(table: PeerTable) -> None:
    """A table would keep a layout that its owner no longer wants, or lose one that nobody spoke of."""
    save(table, parted(1, 2, 3), options=BY_PART)
    save(table, parted(4), "overwrite", {"overwriteSchema": "true"})
    kept = table.load().spec().is_unpartitioned()
    save(table, parted(5), "overwrite", {"partition-by": "", "evolve-partitioning": "true"})

    assert not kept
    assert table.load().spec().is_unpartitioned()
    assert numbers_of(table) == [5]


@DELTA.case(
    "DeltaSuite.columns with commas as partition columns",
    verdict=DIFFERS("a partition column may have any name: it stands in backticks", see="coming-from/delta.md"),
)
def test_column_with_a_comma_partitions_the_table(table: PeerTable) -> None:
    """A table with such a column could not be partitioned by it."""
    save(table, parted(1, 2, 3, part="by,2"), options={"partition-by": "`by,2`"})

    assert found(table) == [(1, 1), (2, 0), (3, 1)]
    assert table.load().scan(row_filter="value > 0").to_arrow().num_rows == 3
    assert len(table.load().spec().fields) == 1


@DELTA.case(
    "DeltaSuite.can't write out with all columns being partition columns",
    verdict=DIFFERS(
        "a table may be partitioned by all of its columns: Iceberg's files hold them, too",
        see="coming-from/delta.md",
    ),
)
def test_all_columns_may_be_partition_columns(table: PeerTable) -> None:
    """A table that Iceberg allows could not be written."""
    save(table, frame({"id": LONG, "by4": LONG}, (1, 1), (5, 1)), options={"partition-by": "by4, id"})

    assert found(table) == [(1, 1), (5, 1)]


@DELTA.case("DeltaSuite.incompatible schema merging throws errors")
def test_number_into_a_column_of_texts_is_refused(table: PeerTable) -> None:
    """Numbers would become texts without a word."""
    save(table, frame({"id": LONG, "value": STRING}, (1, "3")))

    with pytest.raises(SchemaMismatchError, match="value"):
        save(table, frame({"id": LONG, "value": LONG}, (2, 6)))

    assert found(table) == [(1, "3")]


@DELTA.case("DeltaSuite.can't create zero-column table with a write")
def test_table_without_columns_is_refused(table: PeerTable) -> None:
    """Rows without columns would be dropped in silence."""
    with pytest.raises(SchemaMismatchError, match="column"):
        save(table, frame({}))


# Ranges.


@DELTA.case("DeltaSuite.valid replaceWhere")
@pytest.mark.parametrize("layout", [{}, BY_ODD], ids=["unpartitioned", "partitioned"])
def test_rows_of_a_range_are_replaced(table: PeerTable, layout: dict[str, str]) -> None:
    """Rows outside of the range would be lost, or those inside stay."""

    def with_even(*numbers: int) -> Frame:
        columns = {"value": INT, "is_odd": BOOLEAN, "is_even": BOOLEAN}
        return frame(columns, *((n, n % 2 != 0, n % 2 == 0) for n in numbers))

    def replace(predicate: str, *numbers: int) -> list[int]:
        save(table, with_even(*numbers), "overwrite", {"replaceWhere": predicate})
        return numbers_of(table)

    save(table, with_even(1, 2, 3, 4), options=layout)

    assert replace("is_odd = true", 5, 7) == [2, 4, 5, 7]
    assert replace("is_even = true", 6, 8) == [5, 6, 7, 8]
    assert replace("1 = 1", 10, 12) == [10, 12]


@DELTA.case(
    "DeltaSuite.valid replaceWhere, of a condition that is false",
    verdict=DIFFERS(
        "all rows written must satisfy the predicate, so that a repeated write replaces its own rows",
        see="coming-from/delta.md",
    ),
)
def test_rows_that_a_false_predicate_excludes_are_refused(table: PeerTable) -> None:
    """A write that is run again would double its rows."""
    save(table, odds(1, 2))

    with pytest.raises(RefusedRowsError, match="do not satisfy replace-where"):
        save(table, odds(10), "overwrite", {"replaceWhere": "1 = 2"})

    assert numbers_of(table) == [1, 2]


@DELTA.case("DeltaSuite.invalid replaceWhere, of rows outside of a range of partitions")
def test_row_outside_of_the_range_is_refused(table: PeerTable) -> None:
    """A row would come into a range that nobody replaced."""
    save(table, odds(1, 2, 3, 4), options=BY_ODD)

    with pytest.raises(RefusedRowsError, match="is_odd"):
        save(table, odds(6), "overwrite", {"replaceWhere": "is_odd = true"})

    assert numbers_of(table) == [1, 2, 3, 4]


@DELTA.case("DeltaSuite.invalid replaceWhere, of rows outside of a range of values")
def test_row_outside_of_a_range_of_values_is_refused(table: PeerTable) -> None:
    """A row would come into a range that nobody replaced."""
    save(table, odds(1, 2, 3, 4), options=BY_ODD)

    with pytest.raises(RefusedRowsError, match="value"):
        save(table, odds(6), "overwrite", {"replaceWhere": "value = 1"})

    assert numbers_of(table) == [1, 2, 3, 4]


@DELTA.case("DeltaSuite.invalid replaceWhere, of a column that is not there")
def test_predicate_over_a_missing_column_is_refused(table: PeerTable) -> None:
    """Another range than the one that was meant would be replaced."""
    save(table, odds(1, 2, 3, 4), options=BY_ODD)

    with pytest.raises(OptionError, match="not_a_column"):
        save(table, odds(6), "overwrite", {"replaceWhere": "not_a_column = true"})


@DELTA.case("DeltaSuite.invalid replaceWhere, of an empty predicate")
def test_empty_predicate_is_refused(table: PeerTable) -> None:
    """All rows would be replaced where a range was meant."""
    with pytest.raises(OptionError, match="replace-where"):
        save(table, odds(6), "overwrite", {"replaceWhere": ""})


@DELTA.case(
    "DeltaSuite.invalid replaceWhere, of partition columns alone",
    verdict=DIFFERS("optional columns that the DataFrame lacks get nulls", see="columns.md"),
)
def test_range_is_replaced_by_rows_of_the_partition_column_alone(table: PeerTable) -> None:
    """A user would wonder why a column that may be null has to be there."""
    save(table, odds(1, 2), options=BY_ODD)
    save(table, frame({"is_odd": BOOLEAN}, (True,)), "overwrite", {"replaceWhere": "is_odd = true"})

    assert found(table) == ordered((None, True), (2, False))


@DELTA.case(
    "DeltaSuite.replaceWhere with rearrangeOnly",
    verdict=DIFFERS(
        "dataChange=false is refused: rows that are written are a change",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
def test_range_that_is_no_change_is_refused(table: PeerTable) -> None:
    """Readers of changes would miss rows that are new."""
    save(table, odds(1, 2), options=BY_ODD)

    with pytest.raises(OptionError, match="dataChange"):
        save(table, odds(9), "overwrite", {"replaceWhere": "is_odd = true", "dataChange": "false"})


@DELTA.case("DeltaSuite.valid replaceWhere with cdf enabled, replaceWhereInDataColumn = true")
def test_range_of_a_column_with_a_dot_is_replaced(table: PeerTable) -> None:
    """A column with a dot in its name would be taken for a field of a struct."""
    columns = {"key": INT, "value.1": INT, "is_odd": BOOLEAN}
    save(table, frame(columns, *((n, n + 2, n % 2 != 0) for n in (1, 2, 3, 4))), options=BY_ODD)
    save(table, frame(columns, (5, 7, True), (7, 9, True)), "overwrite", {"replaceWhere": "is_odd = true"})
    save(table, frame(columns, (4, 6, False)), "overwrite", {"replaceWhere": "`value.1` = 6"})

    assert found(table) == [(2, 4, False), (4, 6, False), (5, 7, True), (7, 9, True)]


@DELTA.case("DeltaSuite.valid replaceWhere with cdf enabled, replaceWhereInDataColumn = false")
def test_snapshot_of_a_range_says_what_came_and_what_went(table: PeerTable) -> None:
    """Readers of changes would be told of rows that did not change."""
    save(table, odds(1, 2, 3, 4), options=BY_ODD)
    save(table, odds(5, 7, 9), "overwrite", {"replaceWhere": "is_odd = true"})

    summary = table.load().current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary["added-records"] == "3"
    assert summary["deleted-records"] == "2"
    assert summary["total-records"] == "5"


@DELTA.case("DeltaSuite.replace arbitrary with multiple references")
def test_range_of_a_sum_of_columns_is_replaced(table: PeerTable) -> None:
    """Only comparisons of one column could say what is replaced."""
    columns = {"a": INT, "b": INT, "c": INT}
    save(table, frame(columns, (1, 3, 8), (1, 5, 9)), "overwrite")
    save(table, frame(columns, (2, 4, 6)), "overwrite", {"replaceWhere": "a + c < 10"})

    assert found(table) == [(1, 5, 9), (2, 4, 6)]


@DELTA.case(
    "DeltaSuite.replaceWhere with constraint check disabled",
    verdict=DIFFERS("rows outside of the predicate are always refused", see="coming-from/delta.md"),
)
def test_check_of_the_range_cannot_be_switched_off(table: PeerTable) -> None:
    """A write that is run again would double the rows outside of its range."""
    save(table, odds(1, 2), options=BY_ODD)
    unchecked = {"replaceWhere": "is_odd = true", "replaceWhere.constraintCheck.enabled": "false"}

    with pytest.raises(OptionError, match="unknown option"):
        save(table, odds(6), "overwrite", unchecked)

    assert numbers_of(table) == [1, 2]


@DELTA.case(
    "DeltaSuite.replaceWhere blocks subquery regardless of subquery flag value - enableDeleteSubquery=true",
    "DeltaSuite.replaceWhere blocks subquery regardless of subquery flag value - enableDeleteSubquery=false",
)
@pytest.mark.parametrize("predicate", ["EXISTS (SELECT 1 FROM other)", "value IN (SELECT id FROM other)"])
def test_subquery_is_refused(table: PeerTable, predicate: str) -> None:
    """A range would depend on another table that nobody reads."""
    save(table, odds(1, 2), options=BY_ODD)

    with pytest.raises(OptionError, match="replace-where"):
        save(table, odds(5), "overwrite", {"replaceWhere": predicate})


@DELTA.case(
    "DeltaSuite.replaceWhere user defined _change_type column doesn't get dropped - partitioned=true",
    "DeltaSuite.replaceWhere user defined _change_type column doesn't get dropped - partitioned=false",
)
@pytest.mark.parametrize("layout", [{}, {"partition-by": "part"}], ids=["unpartitioned", "partitioned"])
def test_column_named_like_one_of_a_change_feed_stays(table: PeerTable, layout: dict[str, str]) -> None:
    """A column of the user's would be taken for one of the table's own, and lost."""
    columns = {"id": LONG, "part": LONG, "_change_type": STRING}
    save(table, frame(columns, *((n, n // 10, "foo") for n in range(30))), options=layout)
    save(table, frame(columns, (7 * 6, 4, "bar")), "overwrite", {"replaceWhere": "id % 7 = 0"})

    left = [(n, n // 10, "foo") for n in range(30) if n % 7]
    assert found(table) == [*left, (42, 4, "bar")]


@DELTA.case("DeltaSuite.batch write: overwrite an empty directory with replaceWhere")
def test_range_of_a_table_that_does_not_exist_is_written(table: PeerTable) -> None:
    """The first run of a job would fail, and every later one work."""
    save(table, parted(1, 3, 5), "overwrite", {**BY_PART, "replaceWhere": "part = 1"})

    assert found(table) == [(1, 1), (3, 1), (5, 1)]


@DELTA.case("DeltaSuite.batch write: append, overwrite where")
def test_range_is_one_partition(table: PeerTable) -> None:
    """Rows of another partition would be lost."""
    save(table, parted(1, 2, 3), options=BY_PART)
    save(table, parted(1, 5), "overwrite", {**BY_PART, "replaceWhere": "part=1"})

    assert numbers_of(table) == [1, 2, 5]


@DELTA.case(
    "DeltaSuite.replaceWhere with less than predicate",
    "DeltaSuite.replaceWhere dataframe V2 API with less than predicate",
)
def test_range_below_a_value_is_replaced(table: PeerTable) -> None:
    """Rows at the bound would be lost or kept wrongly."""
    save(table, values(1, 2, 3, 4))
    save(table, values(0), "overwrite", {"replaceWhere": "value < 3"})

    assert numbers_of(table) == [0, 3, 4]


@DELTA.case("DeltaSuite.replaceWhere SQL - multiple predicates - static")
def test_range_of_several_predicates_is_replaced(table: PeerTable) -> None:
    """Rows that satisfy one of two predicates alone would be lost."""
    columns = {"c1": LONG, "c2": STRING, "c3": LONG}
    save(table, frame(columns, (1, "v1", 2), (2, "v2", 2), (3, "v3", 3)), options={"partition-by": "c2"})
    save(table, frame(columns, (2, "v2", 9)), "overwrite", {"replaceWhere": "c2 = 'v2' AND c1 = 2"})

    assert found(table) == [(1, "v1", 2), (2, "v2", 9), (3, "v3", 3)]


@DELTA.case("DeltaSuite.replaceWhere should support backtick when flag is disabled")
def test_predicate_names_a_column_in_backticks(table: PeerTable) -> None:
    """A column with an odd name could not say what is replaced."""
    columns = {"first_name": STRING, "a b": INT}
    save(table, frame(columns, ("ann", 1), ("bob", 2)))
    save(table, frame(columns, ("eve", 2)), "overwrite", {"replaceWhere": "`a b` = 2"})

    assert found(table) == [("ann", 1), ("eve", 2)]


@DELTA.case("DeltaSuite.replaceArbitrary should enforce proper usage of backtick")
@pytest.mark.parametrize("predicate", ["part.1 = 1", "`part.1 = 1", "part 1 = 1"])
def test_column_without_its_backticks_is_refused(table: PeerTable, predicate: str) -> None:
    """Another column than the one that was meant would count."""
    save(table, parted(1, 2, part="part.1"))

    with pytest.raises(OptionError, match="replace-where"):
        save(table, parted(3, part="part.1"), "overwrite", {"replaceWhere": predicate})

    assert numbers_of(table) == [1, 2]


# Partitions that are replaced because rows come for them.


@DELTA.case(
    "DeltaSuite.batch write: append, dynamic partition overwrite integer partition column",
    "DeltaSuite.batch write: append, dynamic partition overwrite without partitionBy",
)
@pytest.mark.parametrize("layout", [{}, BY_PART], ids=["not named", "named"])
def test_partitions_of_numbers_are_replaced(table: PeerTable, layout: dict[str, str]) -> None:
    """Rows of partitions for which nothing came would be lost."""
    save(table, parted(1, 2, 3), options=BY_PART)
    save(table, parted(1, 5), "overwrite", {**DYNAMIC, **layout})

    assert numbers_of(table) == [1, 2, 5]


@DELTA.case("DeltaSuite.batch write: append, dynamic partition overwrite string partition column")
def test_partitions_of_texts_are_replaced(table: PeerTable) -> None:
    """Rows of partitions for which nothing came would be lost."""
    columns = {"value": STRING, "part": STRING}
    save(table, frame(columns, ("a", "x"), ("b", "y"), ("c", "x")), options=BY_PART)
    save(table, frame(columns, ("a", "x"), ("d", "x")), "overwrite", DYNAMIC)

    assert found(table) == [("a", "x"), ("b", "y"), ("d", "x")]


@DELTA.case("DeltaSuite.batch write: append, dynamic partition overwrite string and integer partition column")
def test_partitions_of_a_number_and_a_text_are_replaced(table: PeerTable) -> None:
    """A partition that agrees in one of two values would be replaced, too."""
    columns = {"value": INT, "part2": STRING, "part1": INT}
    save(table, frame(columns, (1, "x", 1), (2, "y", 0), (3, "z", 1)), options={"partition-by": "part1, part2"})
    save(table, frame(columns, (5, "x", 1), (7, "y", 1)), "overwrite", DYNAMIC)

    assert numbers_of(table) == [2, 3, 5, 7]


@DELTA.case("DeltaSuite.batch write: append, dynamic partition overwrite overwrites nothing")
def test_rows_of_a_new_partition_replace_nothing(table: PeerTable) -> None:
    """Rows of other partitions would be lost."""
    columns = {"value": STRING, "part": STRING}
    save(table, frame(columns, ("a", "x"), ("b", "y"), ("c", "x")), options=BY_PART)
    save(table, frame(columns, ("d", "z")), "overwrite", DYNAMIC)

    assert found(table) == [("a", "x"), ("b", "y"), ("c", "x"), ("d", "z")]


@DELTA.case("DeltaSuite.batch write: append, dynamic partition overwrite multiple partition columns")
def test_partitions_of_two_texts_are_replaced(table: PeerTable) -> None:
    """A partition that agrees in one of two values would be replaced, too."""
    columns = {"part1": STRING, "part2": STRING, "value": INT}
    save(table, frame(columns, ("a", "x", 1), ("b", "y", 2), ("c", "x", 3)), options={"partition-by": "part1, part2"})
    save(table, frame(columns, ("a", "x", 4), ("d", "x", 5)), "overwrite", DYNAMIC)

    assert found(table) == [("a", "x", 4), ("b", "y", 2), ("c", "x", 3), ("d", "x", 5)]


@DELTA.case("DeltaSuite.batch write: append, dynamic partition with 'partitionValues' column")
def test_partition_column_may_be_named_like_a_field_of_metadata(table: PeerTable) -> None:
    """A name that metadata uses, too, would confuse the two."""
    layout = {"partition-by": "partitionValues"}
    save(table, parted(1, 2, 3, part="partitionValues"), options=layout)
    save(table, parted(1, 5, part="partitionValues"), "overwrite", {**DYNAMIC, **layout})

    assert numbers_of(table) == [1, 2, 5]


@DELTA.case("DeltaSuite.batch write: append, replaceWhere + dynamic partition overwrite enabled in options")
def test_range_and_partitions_at_once_are_refused(table: PeerTable) -> None:
    """It would be open which of the two says what is replaced."""
    with pytest.raises(OptionError, match=r"replace-where.*overwrite-mode=dynamic"):
        save(table, parted(3), "overwrite", {**DYNAMIC, "replaceWhere": "part = 1"})


@DELTA.case(
    "DeltaSuite.batch write: append, overwrite non-partitioned table with replaceWhere ignores partition mode",
    verdict=DIFFERS("the two options are refused together, in every table", see="coming-from/delta.md"),
)
def test_range_and_partitions_at_once_are_refused_without_partitions(table: PeerTable) -> None:
    """It would be open which of the two says what is replaced."""
    save(table, parted(1, 2, 3))

    with pytest.raises(OptionError, match="drop one of them"):
        save(table, parted(1, 5), "overwrite", {**DYNAMIC, "replaceWhere": "part = 1"})

    assert numbers_of(table) == [1, 2, 3]


@DELTA.case("DeltaSuite.batch write: append, dynamic partition overwrite set via conf and overridden via option")
def test_static_overwrite_of_a_partitioned_table_replaces_all_rows(table: PeerTable) -> None:
    """Rows of partitions for which nothing came would stay."""
    save(table, parted(1, 2, 3), options=BY_PART)
    save(table, parted(1, 5), "overwrite", {"partitionOverwriteMode": "static"})

    assert numbers_of(table) == [1, 5]


@DELTA.case("DeltaSuite.batch write: append, overwrite without partitions should ignore partition overwrite mode")
def test_unpartitioned_table_is_one_partition(table: PeerTable) -> None:
    """Old rows would stay beside the new ones."""
    save(table, parted(1, 2, 3))
    save(table, parted(1, 5), "overwrite", DYNAMIC)

    assert numbers_of(table) == [1, 5]


@DELTA.case("DeltaSuite.useNullIntolerantEqualityWithDPO=false in Dynamic Partition Overwrite")
def test_partition_of_null_is_replaced(table: PeerTable) -> None:
    """Rows of the partition of null would be there twice after a second run."""
    columns = {"value": INT, "part": INT}
    save(table, frame(columns, (1, None), (2, 1)), options=BY_PART)
    save(table, frame(columns, (3, None)), "overwrite", {**DYNAMIC, "useNullIntolerantEqualityWithDPO": "false"})

    assert found(table) == [(2, 1), (3, None)]


@DELTA.case(
    "DeltaSuite.useNullIntolerantEqualityWithDPO=true in Dynamic Partition Overwrite",
    verdict=DIFFERS(
        "null is a partition like any other: the option is refused",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
def test_partition_of_null_cannot_be_kept(table: PeerTable) -> None:
    """Rows of the partition of null would be there twice after a second run."""
    with pytest.raises(OptionError, match="null is a partition of its own"):
        save(table, parted(3), "overwrite", {**DYNAMIC, "useNullIntolerantEqualityWithDPO": "true"})


# What is written beside the rows.


@DELTA.case("DeltaSuite.history includes user-defined metadata for DataFrame.Write API")
def test_note_of_the_user_stands_in_the_history(table: PeerTable) -> None:
    """Nobody could say later which run wrote a snapshot."""
    save(table, values(1))
    save(table, values(2), options={"userMetadata": "meta1"})

    notes = [snapshot.summary.additional_properties.get("userMetadata") for snapshot in table.load().snapshots()]  # type: ignore[union-attr]
    assert notes == [None, "meta1"]


@DELTA.case("DeltaSuite.isBlindAppend with save and saveAsTable")
def test_append_is_an_append_in_the_history(table: PeerTable) -> None:
    """Readers that follow appends alone would miss rows."""
    save(table, values(1))
    save(table, values(2), "overwrite")
    save(table, values(3))

    operations = [snapshot.summary.operation.value for snapshot in table.load().snapshots()]  # type: ignore[union-attr]
    assert operations == ["append", "overwrite", "append"]
