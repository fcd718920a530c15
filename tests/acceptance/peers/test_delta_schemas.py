"""What Delta's suites say of columns that come, go, change, or may not be null."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType
from support.peer.cases import DELTA, DIFFERS
from support.peer.frames import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    Frame,
    found,
    frame,
    names,
    ordered,
    save,
    stream,
    struct,
)
from support.peer.tables import PeerTable

from iceberg_ds.errors import OptionError, SchemaMismatchError

MERGE = {"mergeSchema": "true"}
OVERWRITE = {"overwriteSchema": "true"}
NO_CASTS = DIFFERS("a type that does not fit is refused with both types named, never cast", see="coming-from/delta.md")
SESSION = DIFFERS(
    "settings of the session do not reach the sink: mergeSchema is an option of the write",
    see="coming-from/iceberg-runtime.md#settings-of-the-session",
)
FIELDS = DIFFERS("mergeSchema adds columns; fields of structs need schema-evolution=full", see="columns.md")
NO_CONSTRAINTS = DIFFERS(
    "Iceberg's tables have no CHECK constraints: replace-where holds the rows of an overwrite to a predicate",
    see="coming-from/delta.md",
)
NO_GENERATION = DIFFERS(
    "Iceberg's tables have no generated columns: a partition transform or the DataFrame takes their place",
    see="coming-from/delta.md",
)


def ids(*numbers: int) -> Frame:
    """Return rows of one column."""
    return frame({"id": LONG}, *((number,) for number in numbers))


def with_part(*numbers: int) -> Frame:
    """Return rows of two columns."""
    return frame({"id": LONG, "part": LONG}, *((number, number % 2) for number in numbers))


def type_of(table: PeerTable, name: str) -> str:
    """Return the type of a column of the table."""
    return str(table.load().schema().find_type(name))


# Columns that are new.


@DELTA.case("SchemaEnforcementSuite.reject schema changes by default")
def test_new_column_is_refused_and_the_way_out_is_named(table: PeerTable) -> None:
    """A misspelt column would come into the table for ever."""
    save(table, ids(1))

    with pytest.raises(SchemaMismatchError, match=r"part.*\n?.*schema-evolution"):
        save(table, with_part(2))

    assert names(table) == ["id"]


@DELTA.case("SchemaEnforcementSuite.allow schema change with option")
@DELTA.case("SchemaEnforcementSuite.allow schema changes when autoMigrate is enabled", verdict=SESSION)
def test_new_column_is_added_if_asked_for(table: PeerTable) -> None:
    """A table could not grow with its source."""
    save(table, ids(1))
    save(table, with_part(2), options=MERGE)

    assert found(table) == [(1, None), (2, 0)]


@DELTA.case("SchemaEnforcementSuite.disallow schema changes when autoMigrate enabled but writer config disabled")
def test_new_column_is_refused_if_the_option_says_so(table: PeerTable) -> None:
    """A write that asks for today's columns would change them."""
    save(table, ids(1))

    with pytest.raises(SchemaMismatchError, match="part"):
        save(table, with_part(2), options={"mergeSchema": "false"})


@DELTA.case("SchemaEnforcementSuite.ensure schema mismatch error message contains table ID")
def test_refusal_names_the_table(table: PeerTable) -> None:
    """A job with many tables would not say which one it is."""
    save(table, ids(1))

    with pytest.raises(SchemaMismatchError, match=r"Cannot write to db\.t"):
        save(table, with_part(2))


@DELTA.case("SchemaEnforcementSuite.reject columns that only differ by case - append")
def test_two_columns_that_differ_in_case_alone_are_refused(table: PeerTable) -> None:
    """Values of two columns would meet in one."""
    save(table, ids(1))

    with pytest.raises(SchemaMismatchError, match="ID"):
        save(table, frame({"id": LONG, "ID": LONG}, (2, 3)), options=MERGE)

    assert names(table) == ["id"]


@DELTA.case("SchemaEnforcementSuite.when autoMerge sqlConf is enabled, we merge schemas", verdict=SESSION)
def test_overwrite_adds_a_column_and_keeps_the_old_one(table: PeerTable) -> None:
    """A column that readers know would be gone."""
    save(table, ids(1))
    save(table, frame({"value": LONG}, (7,)), "overwrite", MERGE)

    assert names(table) == ["id", "value"]
    assert found(table) == [(None, 7)]


@DELTA.case("SchemaEnforcementSuite.reject schema overwrites by default")
def test_overwrite_with_a_new_column_is_refused(table: PeerTable) -> None:
    """An overwrite would change the columns that readers know."""
    save(table, ids(1), "overwrite")

    with pytest.raises(SchemaMismatchError, match="part"):
        save(table, with_part(2), "overwrite")

    assert found(table) == [(1,)]


@DELTA.case("SchemaEnforcementSuite.reject migration when autoMerge sqlConf is enabled and writer config disabled")
def test_overwrite_with_another_column_is_refused_if_the_option_says_so(table: PeerTable) -> None:
    """A write that asks for today's columns would change them."""
    save(table, ids(1), "overwrite")

    with pytest.raises(SchemaMismatchError, match="value"):
        save(table, frame({"value": LONG}, (7,)), "overwrite", {"mergeSchema": "false"})

    assert names(table) == ["id"]


@DELTA.case("SchemaEnforcementSuite.can overwrite schema when using overwrite mode - option")
def test_overwrite_takes_the_columns_of_the_dataframe(table: PeerTable) -> None:
    """A table could not be made anew under its name."""
    save(table, ids(1), "overwrite")
    save(table, frame({"value": LONG}, (7,)), "overwrite", OVERWRITE)

    assert names(table) == ["value"]
    assert found(table) == [(7,)]


@DELTA.case("SchemaEnforcementSuite.can drop columns with overwriteSchema")
def test_overwrite_drops_a_column(table: PeerTable) -> None:
    """A column that nobody fills any more would stay for ever."""
    save(table, with_part(1), "overwrite")
    save(table, ids(2), "overwrite", OVERWRITE)

    assert names(table) == ["id"]


@DELTA.case("SchemaEnforcementSuite.can change column data type with overwriteSchema")
def test_overwrite_changes_a_type(table: PeerTable) -> None:
    """A column of a wrong type would stay for ever."""
    save(table, ids(1), "overwrite")
    save(table, frame({"id": STRING}, ("one",)), "overwrite", OVERWRITE)

    assert type_of(table, "id") == "string"
    assert found(table) == [("one",)]


@DELTA.case("SchemaEnforcementSuite.reject columns that only differ by case - overwrite")
def test_overwrite_with_two_columns_that_differ_in_case_is_refused(table: PeerTable) -> None:
    """Readers that do not tell case apart could not read the table."""
    save(table, ids(1), "overwrite")

    with pytest.raises(SchemaMismatchError, match="ID"):
        save(table, frame({"id": LONG, "ID": LONG}, (2, 3)), "overwrite", OVERWRITE)


# Columns that are new in a range that is replaced.


@DELTA.case(
    "SchemaEnforcementSuite.schema merging with replaceWhere - option",
    "SchemaEnforcementSuite.schema merging with replaceWhere - option case insensitive",
)
@pytest.mark.parametrize("words", [("replaceWhere", "mergeSchema"), ("RePlAcEwHeRe", "mErGeScHeMa")])
def test_range_brings_a_column(table: PeerTable, words: tuple[str, str]) -> None:
    """A range could not be replaced once the source has grown."""
    save(table, with_part(0, 1, 2), options={"partition-by": "part"})
    options = {words[0]: "part = 0", words[1]: "true"}
    save(table, frame({"value": LONG, "part": LONG}, (1, 0), (2, 0)), "overwrite", options)

    assert names(table) == ["id", "part", "value"]
    assert found(table) == ordered((None, 0, 1), (None, 0, 2), (1, 1, None))


@DELTA.case("SchemaEnforcementSuite.reject schema merging with replaceWhere - overwrite option")
def test_range_cannot_drop_columns(table: PeerTable) -> None:
    """Rows outside of the range would lose their values."""
    save(table, with_part(0, 1), options={"partition-by": "part"})

    with pytest.raises(OptionError, match=r"overwriteSchema.*replaces some"):
        save(table, with_part(2), "overwrite", {**OVERWRITE, "replaceWhere": "part = 0"})

    assert found(table) == [(0, 0), (1, 1)]


@DELTA.case(
    "SchemaEnforcementSuite.reject schema merging with replaceWhere - no option",
    "SchemaEnforcementSuite.reject schema merging with replaceWhere - option set to false, config true",
)
@pytest.mark.parametrize("options", [{}, {"mergeSchema": "false"}], ids=["not asked", "refused"])
def test_range_brings_no_column_unasked(table: PeerTable, options: dict[str, str]) -> None:
    """A misspelt column would come into the table for ever."""
    save(table, with_part(0, 1), options={"partition-by": "part"})

    with pytest.raises(SchemaMismatchError, match="value"):
        save(table, frame({"value": LONG, "part": LONG}, (1, 0)), "overwrite", {**options, "replaceWhere": "part = 0"})


@DELTA.case("SchemaEnforcementSuite.reject change partitioning with overwrite - sqlConf")
def test_overwrite_with_another_partitioning_is_refused(table: PeerTable) -> None:
    """The layout of a table would change unasked."""
    save(table, ids(1), "overwrite")

    with pytest.raises(OptionError, match="partition-by"):
        save(table, with_part(2), "overwrite", {**MERGE, "partition-by": "part"})

    assert names(table) == ["id"]
    assert table.load().spec().is_unpartitioned()


@DELTA.case(
    "SchemaEnforcementSuite.can change partitioning with overwrite - option",
    verdict=DIFFERS(
        "evolve-partitioning=true is asked for, and mergeSchema for a column that comes with the same write",
        see="coming-from/delta.md",
    ),
)
def test_overwrite_changes_the_partitioning(table: PeerTable) -> None:
    """A table could not get another layout with new rows."""
    layout = {"partition-by": "part", "evolve-partitioning": "true"}
    save(table, ids(1), "overwrite")

    with pytest.raises(OptionError, match="no column part"):
        save(table, with_part(2, 3), "overwrite", {**OVERWRITE, **layout})

    save(table, with_part(2, 3), "overwrite", {**MERGE, **layout})
    assert [field.name for field in table.load().spec().fields] == ["part"]
    assert found(table) == [(2, 0), (3, 1)]


@DELTA.case("SchemaEnforcementSuite.can't change partitioning with overwrite and replaceWhere - option")
def test_range_cannot_change_columns_and_partitioning(table: PeerTable) -> None:
    """Rows outside of the range would be in a layout of another table."""
    save(table, with_part(0, 1), options={"partition-by": "part"})

    with pytest.raises(OptionError, match="overwriteSchema"):
        save(
            table,
            frame({"id": LONG, "part": LONG, "test": LONG}, (2, 0, 3)),
            "overwrite",
            {**OVERWRITE, "partition-by": "part, test", "replaceWhere": "part = 0"},
        )


# Columns without a type.


@DELTA.case(
    "SchemaEnforcementSuite.JSON ETL workflow, NullType being only data column",
    "SchemaEnforcementSuite.JSON ETL workflow, NullType partition column should fail",
    "SchemaEnforcementSuite.JSON ETL workflow, schema merging NullTypes - throw error on complex types",
)
@pytest.mark.parametrize(
    ("columns", "row"),
    [({"key": STRING, "id": VOID}, ("abc", None)), ({"key": STRING, "id": ArrayType(VOID)}, ("abc", []))],
    ids=["column", "elements"],
)
def test_column_without_a_type_is_not_created(
    table: PeerTable, columns: Mapping[str, DataType], row: tuple[Any]
) -> None:
    """The table would have a column that no value fits into."""
    with pytest.raises(SchemaMismatchError, match="id"):
        save(table, frame(columns, row))


@DELTA.case(
    "SchemaEnforcementSuite.JSON ETL workflow, schema merging NullTypes",
    verdict=DIFFERS("a column without a type is refused until the table has it", see="coming-from/delta.md"),
)
def test_column_without_a_type_brings_nulls_to_one_that_has_one(table: PeerTable) -> None:
    """A batch of JSON without a single value would end the job."""
    columns = {"key": STRING, "id": INT, "extra": INT}
    save(table, frame(columns, ("abc", 1, 1)))
    save(table, frame({**columns, "extra": VOID}, ("def", 2, None)))
    save(table, frame({**columns, "id": VOID}, ("ghi", None, 3)))

    assert found(table) == [("abc", 1, 1), ("def", 2, None), ("ghi", None, 3)]


@DELTA.case(
    "SchemaEnforcementSuite.JSON ETL workflow, schema merging NullTypes - nested struct",
    verdict=DIFFERS("a field without a type is refused until the table has it", see="coming-from/delta.md"),
)
def test_field_without_a_type_brings_nulls_to_one_that_has_one(table: PeerTable) -> None:
    """A batch of JSON without a single value would end the job."""
    save(table, frame({"key": STRING, "top": struct(id=INT, extra=INT)}, ("abc", {"id": 1, "extra": 1})))
    save(table, frame({"key": STRING, "top": struct(id=VOID, extra=INT)}, ("def", {"id": None, "extra": 3})))

    assert found(table) == [("abc", {"id": 1, "extra": 1}), ("def", {"id": None, "extra": 3})]


@DELTA.case(
    "SchemaEnforcementSuite.JSON ETL workflow, reject NullTypes",
    "SchemaEnforcementSuite.JSON ETL workflow, reject NullTypes on nested column",
    "DeltaSinkSuite.DeltaSink rejects streaming write with NullType column in batch schema",
)
@pytest.mark.parametrize("column", [VOID, struct(x=VOID)], ids=["column", "field"])
def test_column_without_a_type_is_not_created_by_a_stream(table: PeerTable, column: DataType) -> None:
    """The table would have a column that no value fits into."""
    with pytest.raises(SchemaMismatchError, match="id"):
        stream(table, 0, frame({"key": STRING, "id": column}, ("abc", None)))


# Nulls.


def create_required(table: PeerTable) -> None:
    """Create a table whose key may not be null."""
    table.create(Schema(NestedField(1, "key", StringType(), required=True), NestedField(2, "value", LongType())))


@DELTA.case("InvariantEnforcementSuite.reject non-nullable top level column")
def test_null_in_a_required_column_is_refused(table: PeerTable) -> None:
    """No reader could read the file."""
    create_required(table)

    with pytest.raises(SchemaMismatchError, match="key"):
        save(table, frame({"key": STRING, "value": LONG}, ("a", 1), (None, 2)))

    assert found(table) == []


@DELTA.case("InvariantEnforcementSuite.reject non-nullable top level column - column doesn't exist")
def test_required_column_that_is_missing_is_refused(table: PeerTable) -> None:
    """No reader could read the file."""
    create_required(table)

    with pytest.raises(SchemaMismatchError, match="key"):
        save(table, frame({"value": LONG}, (1,)))


@DELTA.case("InvariantEnforcementSuite.write empty DataFrame - zero rows")
def test_no_rows_break_no_rule(table: PeerTable) -> None:
    """An empty batch would end the job."""
    create_required(table)
    save(table, frame({"key": STRING, "value": LONG}))

    assert found(table) == []
    assert len(table.load().snapshots()) == 0


@DELTA.case("InvariantEnforcementSuite.write empty DataFrame - zero columns")
def test_no_columns_are_refused(table: PeerTable) -> None:
    """Rows without columns would be dropped in silence."""
    create_required(table)

    with pytest.raises(SchemaMismatchError, match="column"):
        save(table, frame({}))


REQUIRED_INT = StructType([StructField("key", STRING, nullable=False)])
_NESTED: dict[str, tuple[DataType, Any, Any]] = {
    "struct": (REQUIRED_INT, {"key": "a"}, {"key": None}),
    "array": (ArrayType(REQUIRED_INT), [{"key": "a"}], [{"key": None}]),
    "elements": (ArrayType(INT, containsNull=False), [1], [None]),
    "map value": (MapType(STRING, INT, valueContainsNull=False), {"a": 1}, {"a": None}),
    "nested array": (ArrayType(ArrayType(INT, containsNull=False)), [[1]], [[None]]),
}


@DELTA.case(
    "InvariantEnforcementSuite.reject non-nullable nested column",
    "InvariantEnforcementSuite.reject non-nullable array column",
    "InvariantEnforcementSuite.not null within array",
    "InvariantEnforcementSuite.not null within map value",
    "InvariantEnforcementSuite.not null within nested array",
)
@pytest.mark.parametrize("kind", list(_NESTED))
def test_null_in_a_required_field_is_refused(table: PeerTable, kind: str) -> None:
    """No reader could read the file."""
    required, good, bad = _NESTED[kind]
    save(table, frame({"top": required}, (good,)), options={"use-nullable-query-schema": "false"})
    before = found(table)

    with pytest.raises(SchemaMismatchError, match="top"):
        save(table, frame({"top": _nullable(required)}, (bad,)))

    assert found(table) == before


def _nullable(kind: DataType) -> DataType:
    """Return the type with all that is nested optional, as Spark's sources give it."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType))
    return kind


@DELTA.case(
    "InvariantEnforcementSuite.reject empty string for NOT NULL string partition column - create",
    verdict=DIFFERS("an empty text is a value like any other, in partitions, too", see="coming-from/delta.md"),
)
def test_empty_text_is_a_partition_of_its_own(table: PeerTable) -> None:
    """An empty text would become null, and its rows be in another partition."""
    save(table, frame({"id": LONG, "part": STRING}, (1, ""), (2, None), (3, "x")), options={"partition-by": "part"})

    assert found(table) == [(1, ""), (2, None), (3, "x")]
    assert table.load().scan(row_filter="part = ''").to_arrow().column("id").to_pylist() == [1]


@DELTA.case("DeltaSinkSuite.do not trust user nullability, so that parquet files aren't corrupted")
def test_nullability_of_the_user_is_not_trusted(table: PeerTable) -> None:
    """A file would be written that no reader can read."""
    nested = StructType([StructField("s", STRING), StructField("i", INT, nullable=False)])
    data = frame({"s": STRING, "b": nested}, ("ss", {"s": "ss", "i": 7}), required=["s"])
    stream(table, 0, data)

    assert [field.required for field in table.load().schema().fields] == [False, False]
    assert not table.load().schema().find_field("b.i").required


@DELTA.case(
    "CheckConstraintsSuite.can't add row violating constraint",
    "InvariantEnforcementSuite.reject expression invariant on top level column",
    verdict=NO_CONSTRAINTS,
)
def test_property_that_looks_like_a_constraint_is_none(table: PeerTable) -> None:
    """A user would trust a rule that nobody keeps."""
    save(table, ids(1), options={"table-property.delta.constraints.positive": "id > 0"})
    save(table, ids(-1))

    assert found(table) == [(-1,), (1,)]


@DELTA.case("InvariantEnforcementSuite.CHECK constraint is enforced if somehow created", verdict=NO_CONSTRAINTS)
def test_rows_of_an_overwrite_are_held_to_a_predicate(table: PeerTable) -> None:
    """Rows that do not belong into a range would come into it."""
    save(table, ids(1, 2))

    with pytest.raises(Exception, match="do not satisfy replace-where"):
        save(table, ids(5, -5), "overwrite", {"replaceWhere": "id > 0"})

    assert found(table) == [(1,), (2,)]


@DELTA.case(
    "GeneratedColumnSuite.insert_into_by_name_not_provide_generated_columns",
    "GeneratedColumnSuite.test partition transform expressions end to end",
    verdict=NO_GENERATION,
)
def test_partition_transform_takes_the_place_of_a_generated_column(table: PeerTable) -> None:
    """Files of one day would be read for another, or a user have to write a column for it."""
    at = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
    save(
        table,
        frame({"id": LONG, "ts": TIMESTAMP}, (1, at), (2, at.replace(day=21))),
        options={"partition-by": "day(ts)"},
    )

    files = list(table.load().scan(row_filter="ts < '2026-11-21T00:00:00+00:00'").plan_files())
    assert len(files) == 1
    assert names(table) == ["id", "ts"]


@DELTA.case("GeneratedColumnSuite.write to a generated column with an incorrect value", verdict=NO_GENERATION)
def test_column_of_the_dataframe_is_written_as_it_is(table: PeerTable) -> None:
    """Values would be changed on their way into the table."""
    save(
        table,
        frame({"c1": LONG, "c2": LONG}, (1, 11)),
        options={"table-property.delta.generationExpression": "c1 + 10"},
    )
    save(table, frame({"c1": LONG, "c2": LONG}, (2, 2)))

    assert found(table) == [(1, 11), (2, 2)]


@DELTA.case(
    "DeltaInsertIntoTableSuite.Exercise column defaults with dataframe writes",
    verdict=DIFFERS(
        "null is what a column gets that the DataFrame lacks; the sink adds no columns with other defaults",
        see="columns.md",
    ),
)
def test_missing_column_gets_null_and_no_other_default(table: PeerTable) -> None:
    """A value would appear in the table that nobody wrote."""
    save(table, with_part(1))
    save(table, ids(2))

    assert found(table) == [(1, 1), (2, None)]


# By name.


@DELTA.case("DeltaInsertIntoTableSuite.insertInto: append by name")
def test_columns_are_matched_by_name(table: PeerTable) -> None:
    """Values would come into each other's columns."""
    save(table, frame({"a": INT, "b": INT, "c": INT}, (1, 2, 3)))
    save(table, frame({"c": INT, "a": INT, "b": INT}, (6, 4, 5)))

    assert found(table) == [(1, 2, 3), (4, 5, 6)]


@DELTA.case("DeltaInsertIntoTableSuite.insertInto: overwrite by name")
def test_columns_of_an_overwrite_are_matched_by_name(table: PeerTable) -> None:
    """Values would come into each other's columns."""
    save(table, frame({"a": INT, "b": INT}, (1, 2)))
    save(table, frame({"b": INT, "a": INT}, (5, 4)), "overwrite")

    assert found(table) == [(4, 5)]


@DELTA.case(
    "DeltaInsertIntoTableSuite.insertInto: append by position",
    verdict=DIFFERS("columns are matched by name, never by position", see="columns.md"),
)
def test_columns_of_other_names_are_refused(table: PeerTable) -> None:
    """Values would come into columns because of their order alone."""
    save(table, frame({"id": LONG, "data": STRING}, (1, "a")))

    with pytest.raises(SchemaMismatchError, match="x"):
        save(table, frame({"x": LONG, "y": STRING}, (2, "b")))


@DELTA.case("DeltaInsertIntoTableSuite.insertInto should throw an AnalysisError on name mismatch")
def test_misspelt_column_is_refused(table: PeerTable) -> None:
    """Its values would be lost, and nulls be in their place."""
    save(table, frame({"a": INT, "b": INT}, (1, 2)))

    with pytest.raises(SchemaMismatchError, match="c"):
        save(table, frame({"a": INT, "c": INT}, (3, 4)))


@DELTA.case("DeltaInsertIntoTableSuite.insertInto: fails when an extra column is present but can evolve schema")
def test_extra_column_is_refused_and_added_if_asked_for(table: PeerTable) -> None:
    """Its values would be lost."""
    save(table, frame({"id": LONG, "data": STRING}, (1, "a")))
    more = frame({"id": LONG, "data": STRING, "fruit": STRING}, (2, "b", "mango"))

    with pytest.raises(SchemaMismatchError, match="fruit"):
        save(table, more)

    save(table, more, options=MERGE)
    assert found(table) == [(1, "a", None), (2, "b", "mango")]


@DELTA.case(
    "DeltaInsertIntoTableSuite.insertInto: fails when missing a column",
    "DeltaInsertIntoTableSuite.insertInto: overwrite fails when missing a column",
    verdict=DIFFERS("an optional column that the DataFrame lacks gets nulls", see="columns.md"),
)
def test_missing_columns_of_an_overwrite_get_nulls(table: PeerTable) -> None:
    """A user would have to name columns that may be null."""
    save(table, frame({"id": LONG, "data": STRING, "missing": STRING}, (1, "a", "x")))
    save(table, frame({"id": LONG, "data": STRING}, (2, "b")), "overwrite")

    assert found(table) == [(2, "b", None)]


@DELTA.case("DeltaInsertIntoMissingColumnSuite.insert with missing top-level column, schemaEvolution=false")
def test_missing_column_gets_nulls(table: PeerTable) -> None:
    """A user would have to name columns that may be null."""
    save(table, frame({"a": INT, "b": INT, "c": INT}, (1, 2, 3)))
    save(table, frame({"a": INT, "b": INT}, (1, 4)))

    assert found(table) == ordered((1, 2, 3), (1, 4, None))


@DELTA.case("DeltaInsertIntoMissingColumnSuite.insert with missing nested field, schemaEvolution=false")
def test_missing_field_gets_nulls(table: PeerTable) -> None:
    """A user would have to name fields that may be null."""
    save(table, frame({"a": INT, "s": struct(x=INT, y=INT)}, (1, {"x": 2, "y": 3})))
    save(table, frame({"a": INT, "s": struct(y=INT)}, (2, {"y": 5})))

    assert found(table) == [(1, {"x": 2, "y": 3}), (2, {"x": None, "y": 5})]


@DELTA.case("DeltaInsertIntoColumnOrderSuite.insert with different struct fields ordering")
def test_fields_of_structs_are_matched_by_name(table: PeerTable) -> None:
    """Values would come into each other's fields."""
    save(table, frame({"a": INT, "s": struct(x=INT, y=INT)}, (1, {"x": 2, "y": 3})))
    save(table, frame({"a": INT, "s": struct(y=INT, x=INT)}, (2, {"y": 5, "x": 4})))

    assert found(table) == [(1, {"x": 2, "y": 3}), (2, {"x": 4, "y": 5})]


@DELTA.case("DeltaInsertIntoColumnOrderSuite.null struct with different field order, preserveNullSourceStructs=true")
def test_null_struct_stays_null_whatever_the_order_of_its_fields(table: PeerTable) -> None:
    """A null would become a struct of nulls."""
    save(table, frame({"a": INT, "s": struct(x=INT, y=INT)}, (1, {"x": 2, "y": 3})))
    save(table, frame({"a": INT, "s": struct(y=INT, x=INT)}, (2, None)))

    assert found(table) == [(1, {"x": 2, "y": 3}), (2, None)]


@DELTA.case("DeltaInsertIntoSchemaEvolutionSuite.insert with extra nested field, schemaEvolution=false")
def test_extra_field_is_refused(table: PeerTable) -> None:
    """Its values would be lost."""
    save(table, frame({"a": INT, "s": struct(x=INT)}, (1, {"x": 2})))

    with pytest.raises(SchemaMismatchError, match=r"s\.y"):
        save(table, frame({"a": INT, "s": struct(x=INT, y=INT)}, (2, {"x": 3, "y": 4})))


@DELTA.case(
    "DeltaInsertIntoSchemaEvolutionSuite.insert with extra nested field, schemaEvolution=true",
    verdict=FIELDS,
)
def test_extra_field_is_added_if_asked_for(table: PeerTable) -> None:
    """A struct could not grow with its source."""
    save(table, frame({"a": INT, "s": struct(x=INT)}, (1, {"x": 2})))
    more = frame({"a": INT, "s": struct(x=INT, y=INT)}, (2, {"x": 3, "y": 4}), (3, None))

    with pytest.raises(SchemaMismatchError, match=r"s\.y"):
        save(table, more, options=MERGE)

    save(table, more, options={"schema-evolution": "full"})
    assert found(table) == [(1, {"x": 2, "y": None}), (2, {"x": 3, "y": 4}), (3, None)]


@DELTA.case(
    "DeltaInsertIntoTableSuite.INSERT OVERWRITE schema evolution works for array struct types",
    "DeltaInsertIntoTableSuite.insertInto schema evolution with map type - append mode: field renaming + new field",
    verdict=FIELDS,
)
@pytest.mark.parametrize("within", ["list", "map"])
def test_field_within_a_container_is_added_if_asked_for(table: PeerTable, within: str) -> None:
    """A list or map of structs could not grow with its source."""

    def of(**fields: DataType) -> DataType:
        return ArrayType(struct(**fields)) if within == "list" else MapType(STRING, struct(**fields))

    def holding(value: dict[str, Any]) -> Any:
        return [value] if within == "list" else {"k": value}

    save(table, frame({"id": INT, "c": of(f1=STRING)}, (1, holding({"f1": "a"}))))
    more = frame({"id": INT, "c": of(f1=STRING, f2=STRING)}, (2, holding({"f1": "b", "f2": "c"})))

    with pytest.raises(SchemaMismatchError, match="f2"):
        save(table, more, options=MERGE)

    save(table, more, options={"schema-evolution": "full"})
    old, new = {"f1": "a", "f2": None}, {"f1": "b", "f2": "c"}
    expected = [(1, [old]), (2, [new])] if within == "list" else [(1, [("k", old)]), (2, [("k", new)])]
    assert found(table) == expected


@DELTA.case(
    "DeltaInsertIntoTableSuite.more columns in source to insert in nested map types",
    "DeltaInsertIntoTableSuite.more columns in source to insert in nested 2-level deep map types",
)
@pytest.mark.parametrize("depth", [1, 2])
def test_extra_field_within_a_map_is_refused(table: PeerTable, depth: int) -> None:
    """Its values would be lost."""

    def nested(innermost: DataType) -> DataType:
        for _ in range(depth):
            innermost = MapType(STRING, innermost)
        return innermost

    def holding(value: Any) -> Any:
        for _ in range(depth):
            value = {"k": value}
        return value

    save(table, frame({"id": INT, "m": nested(struct(x=INT))}, (1, holding({"x": 1}))))

    with pytest.raises(SchemaMismatchError, match="y"):
        save(table, frame({"id": INT, "m": nested(struct(x=INT, y=INT))}, (2, holding({"x": 1, "y": 2}))))


@DELTA.case("DeltaInsertIntoTableSuite.not enough column in source to insert in nested map types")
def test_missing_field_within_a_map_gets_nulls(table: PeerTable) -> None:
    """A user would have to name fields that may be null."""
    save(table, frame({"id": INT, "m": MapType(STRING, struct(x=INT, y=INT))}, (1, {"k": {"x": 1, "y": 2}})))
    save(table, frame({"id": INT, "m": MapType(STRING, struct(x=INT))}, (2, {"k": {"x": 3}})))

    assert found(table) == [(1, [("k", {"x": 1, "y": 2})]), (2, [("k", {"x": 3, "y": None})])]


@DELTA.case(
    "DeltaInsertIntoTableSuite.insert map type with different data type in key",
    "DeltaInsertIntoTableSuite.insert map type with different data type in value",
    verdict=NO_CASTS,
)
@pytest.mark.parametrize("kind", [MapType(INT, STRING), MapType(STRING, INT)], ids=["key", "value"])
def test_other_types_within_a_map_are_refused(table: PeerTable, kind: MapType) -> None:
    """Keys or values would be changed on their way into the table."""
    save(table, frame({"id": INT, "m": MapType(STRING, STRING)}, (1, {"a": "b"})))

    with pytest.raises(SchemaMismatchError, match="m"):
        save(table, frame({"id": INT, "m": kind}, (2, {1: "b"} if kind.keyType == INT else {"a": 1})))


@DELTA.case(
    "DeltaInsertIntoTableSuite.InsertInto: when the table doesn't exist",
    "DeltaInsertIntoTableSuite.insertInto: cannot insert into a table that doesn't exist",
)
def test_missing_table_is_refused_if_it_should_not_be_created(table: PeerTable) -> None:
    """A misspelt name would become a table."""
    with pytest.raises(LookupError, match=r"db\.t"):
        save(table, ids(1), options={"create-table": "false"})


@DELTA.case(
    "DeltaInsertIntoTableSuite.insertInto: __HIVE_DEFAULT_PARTITION__ results in null partition column",
    verdict=DIFFERS("the text is a text: Iceberg's partitions have values, not folders", see="coming-from/delta.md"),
)
def test_text_that_means_null_to_hive_is_a_text(table: PeerTable) -> None:
    """A value of the user's would become null."""
    data = frame({"id": LONG, "part": STRING}, (1, "__HIVE_DEFAULT_PARTITION__"), (2, None))
    save(table, data, options={"partition-by": "part"})

    assert found(table) == [(1, "__HIVE_DEFAULT_PARTITION__"), (2, None)]


@DELTA.case("DeltaInsertIntoTableSuite.InsertInto: overwrite - dot in column names - static mode")
def test_column_with_a_dot_partitions_the_table(table: PeerTable) -> None:
    """A column with a dot would be taken for a field of a struct."""
    columns = {"a.b": STRING, "c.d": STRING}
    save(table, frame(columns, ("a", "b")), options={"partition-by": "`a.b`"})
    save(table, frame(columns, ("a", "b"), ("c", "d")), "overwrite")

    assert found(table) == [("a", "b"), ("c", "d")]


@DELTA.case("DeltaTableCreationTests.create a table with special column names")
def test_table_has_columns_of_any_name(table: PeerTable) -> None:
    """A column would have to be renamed before it can be written."""
    columns = {"i": INT, "a b": INT, "c;d": INT, "e{f}": INT, "g=h": INT, "ü": INT, "j`k": INT, "l.m": INT}
    save(table, frame(columns, tuple(range(8))))

    assert names(table) == list(columns)
    assert found(table) == [tuple(range(8))]


@DELTA.case("DeltaTableCreationTests.reject table creation with column names that only differ by case")
def test_new_table_with_columns_that_differ_in_case_is_refused(table: PeerTable) -> None:
    """Readers that do not tell case apart could not read the table."""
    with pytest.raises(SchemaMismatchError, match="same name"):
        save(table, frame({"a": INT, "A": INT}, (1, 2)))


@DELTA.case("DeltaTableCreationTests.save with an unknown partition column")
def test_partition_by_a_missing_column_is_refused(table: PeerTable) -> None:
    """A table would be created without the layout that was asked for."""
    with pytest.raises(OptionError, match="non_existing"):
        save(table, ids(1), options={"partition-by": "non_existing"})


_SPECIAL = ["a b", "a:b", "a%b", "a,b", "a'b", "a#b"]


@DELTA.case("DeltaTableCreationTests.data source table:partition column name containing special characters")
@pytest.mark.parametrize("name", _SPECIAL)
def test_partition_column_of_an_odd_name(table: PeerTable, name: str) -> None:
    """Its files would be in a place where no reader finds them."""
    save(table, frame({"id": LONG, name: STRING}, (1, name), (2, "x")), options={"partition-by": f"`{name}`"})

    assert found(table) == [(1, name), (2, "x")]


@DELTA.case("DeltaTableCreationTests.create table with table properties")
def test_properties_of_a_new_table_are_kept(table: PeerTable) -> None:
    """Settings of a table would be lost with its creation."""
    save(table, ids(1), options={"table-property.team": "sales"})

    assert table.load().properties["team"] == "sales"


@DELTA.case("DeltaTableCreationTests.create table with invalid table properties should throw an error")
def test_property_of_a_wrong_type_is_refused(table: PeerTable) -> None:
    """Other writers could not write to the table any more."""
    with pytest.raises(OptionError, match="num-retries"):
        save(table, ids(1), options={"table-property.commit.retry.num-retries": "x"})


@DELTA.case("DeltaTableCreationTests.do not store write options in the catalog - DataFrameWriter")
def test_options_of_a_write_do_not_become_properties(table: PeerTable) -> None:
    """Settings of one run, secrets among them, would stay with the table."""
    save(table, ids(1), options={"compression": "gzip", "userMetadata": "note"})

    assert not any("gzip" in value or "note" in value for value in table.load().properties.values())


# Types.


@DELTA.case("DeltaInsertIntoImplicitCastSuite.insert with implicit up cast on top-level fields, schemaEvolution=false")
def test_narrower_types_widen_into_the_table(table: PeerTable) -> None:
    """A source with smaller numbers would have to be cast."""
    save(table, frame({"a": LONG, "d": DOUBLE, "n": DecimalType(10, 2)}, (1, 1.5, Decimal("1.25"))))
    save(table, frame({"a": SHORT, "d": DOUBLE, "n": DecimalType(6, 2)}, (2, 2.5, Decimal("2.25"))))
    save(table, frame({"a": INT, "d": DOUBLE, "n": DecimalType(10, 2)}, (3, 3.5, Decimal("3.25"))))

    expected = [(1, 1.5, Decimal("1.25")), (2, 2.5, Decimal("2.25")), (3, 3.5, Decimal("3.25"))]
    assert found(table) == expected


_WIDER: dict[str, tuple[DataType, Any, DataType, Any]] = {
    "long into int": (INT, 1, LONG, 2),
    "double into int": (INT, 1, DOUBLE, 2.0),
    "text into int": (INT, 1, STRING, "2"),
    "int into text": (STRING, "1", INT, 2),
    "int into double": (DOUBLE, 1.0, INT, 2),
    "timestamp into date": (DATE, date(2026, 1, 1), TIMESTAMP_NTZ, datetime(2026, 1, 2)),  # noqa: DTZ001
    "date into timestamp": (TIMESTAMP_NTZ, datetime(2026, 1, 2), DATE, date(2026, 1, 1)),  # noqa: DTZ001
    "more digits": (DecimalType(6, 2), Decimal("1.25"), DecimalType(10, 4), Decimal("1.2567")),
    "long in a struct": (struct(a=INT), {"a": 1}, struct(a=LONG), {"a": 2}),
    "long in an array": (ArrayType(INT), [1], ArrayType(LONG), [2]),
    "long in a map": (MapType(STRING, INT), {"a": 1}, MapType(STRING, LONG), {"a": 2}),
    "array into struct": (struct(a=INT), {"a": 1}, ArrayType(INT), [2]),
}


@DELTA.case(
    "DeltaInsertIntoImplicitCastSuite.insert with implicit up and down cast on top-level fields, schemaEvolution=false",
    "DeltaInsertIntoImplicitCastSuite.insert with implicit cast on fields nested in array, schemaEvolution=false",
    "DeltaInsertIntoImplicitCastSuite.insert with implicit cast on fields nested in map, schemaEvolution=false",
    "DeltaInsertIntoTableSuite.insertInto: append cast automatically",
    "DeltaInsertIntoTableSuite.insertInto: overwrite cast automatically",
    verdict=NO_CASTS,
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("kind", list(_WIDER))
def test_type_that_does_not_fit_is_refused(table: PeerTable, kind: str, mode: str) -> None:
    """Values would be cut, rounded or read otherwise without a word."""
    there, old, sent, new = _WIDER[kind]
    save(table, frame({"c": there}, (old,)))
    before = found(table)

    with pytest.raises(SchemaMismatchError, match="c"):
        save(table, frame({"c": sent}, (new,)), mode)

    assert found(table) == before


@DELTA.case(
    "DeltaInsertIntoImplicitCastSuite.insert with implicit up and down cast on top-level fields, schemaEvolution=true",
    verdict=DIFFERS("the table's type is widened with schema-evolution=full; nothing is cast down", see="columns.md"),
)
def test_type_of_the_table_is_widened_if_asked_for(table: PeerTable) -> None:
    """Rows with greater numbers could not be written."""
    save(table, frame({"a": INT}, (1,)))
    save(table, frame({"a": LONG}, (2**40,)), options={"schema-evolution": "full"})

    assert type_of(table, "a") == "long"
    assert found(table) == [(1,), (2**40,)]


@DELTA.case("DeltaInsertIntoImplicitCastSuite.cast with dot in column name")
def test_column_with_a_dot_is_not_the_field_of_a_struct(table: PeerTable) -> None:
    """Values of a column would come into the field of a struct."""
    columns = {"s.a": LONG, "s": struct(x=LONG, y=INT)}
    save(table, frame(columns, (1, {"x": 2, "y": 3})))
    save(table, frame({**columns, "s.a": INT}, (4, {"x": 5, "y": 6})))

    assert found(table) == [(1, {"x": 2, "y": 3}), (4, {"x": 5, "y": 6})]


@DELTA.case(
    "DeltaInsertIntoImplicitCastSuite.implicit cast with array element nullability mismatch (source=false, target=true)"
)
def test_elements_that_are_never_null_fit_those_that_may_be(table: PeerTable) -> None:
    """A source that promises more than the table asks for would be refused."""
    save(table, frame({"a": ArrayType(INT)}, ([1, None],)))
    save(table, frame({"a": ArrayType(INT, containsNull=False)}, ([2, 3],)))

    assert found(table) == [([1, None],), ([2, 3],)]


# Times.


@DELTA.case(
    "DeltaTimestampNTZSuite.create a new table with TIMESTAMP_NTZ, higher protocol and feature should be picked."
)
def test_time_without_a_zone_stays_one(table: PeerTable) -> None:
    """A time would be shifted by a zone that nobody named."""
    local, at = datetime(2022, 1, 2, 3, 4, 5, 123456), datetime(2022, 1, 2, 3, 4, 5, tzinfo=timezone.utc)  # noqa: DTZ001
    save(table, frame({"c1": TIMESTAMP_NTZ, "c2": TIMESTAMP}, (local, at)))

    assert (type_of(table, "c1"), type_of(table, "c2")) == ("timestamp", "timestamptz")
    assert found(table) == [(local, at)]


@DELTA.case(
    "DeltaTimestampNTZSuite.add a new column using TIMESTAMP_NTZ should upgrade to the correct protocol versions"
)
def test_column_of_times_without_a_zone_is_added(table: PeerTable) -> None:
    """A table could not grow by such a column."""
    local = datetime(2022, 1, 2, 3, 4, 5)  # noqa: DTZ001
    save(table, ids(1))
    save(table, frame({"id": LONG, "at": TIMESTAMP_NTZ}, (2, local)), options=MERGE)

    assert found(table) == [(1, None), (2, local)]


@DELTA.case("DeltaTimestampNTZSuite.use TIMESTAMP_NTZ in a partition column")
def test_time_without_a_zone_is_a_partition(table: PeerTable) -> None:
    """A partition's time would be shifted by a zone."""
    local = datetime(2022, 1, 2, 3, 4, 5, 123456)  # noqa: DTZ001
    save(table, frame({"id": LONG, "at": TIMESTAMP_NTZ}, (1, local), (2, None)), options={"partition-by": "at"})

    assert found(table) == [(1, local), (2, None)]
    read = table.load().scan(row_filter="at = '2022-01-02T03:04:05.123456'").to_arrow()
    assert read.column("id").to_pylist() == [1]


@DELTA.case("DeltaTimestampNTZSuite.min/max stats collection should apply on TIMESTAMP_NTZ")
def test_times_without_a_zone_have_bounds(table: PeerTable) -> None:
    """Readers would have to read all files for one hour."""
    for hour in (1, 2, 3):
        save(table, frame({"at": TIMESTAMP_NTZ}, (datetime(2022, 1, 2, hour),)))  # noqa: DTZ001

    assert len(list(table.load().scan(row_filter="at < '2022-01-02T01:30:00'").plan_files())) == 1


@DELTA.case(
    "DeltaInsertIntoTableSuite.insertInto: timestamp partition values with different precisions",
    "DeltaInsertIntoTableSuite.insertInto: UTC timestamp partition values round trip across different session TZ",
)
def test_times_with_a_zone_are_partitions_to_the_microsecond(table: PeerTable) -> None:
    """Two times would meet in one partition, or one be shifted."""
    at = datetime(2024, 6, 15, 4, 0, 0, tzinfo=timezone.utc)
    times = [at, at.replace(microsecond=1), at.replace(microsecond=100_000)]
    data = frame({"id": LONG, "at": TIMESTAMP}, *enumerate(times))
    save(table, data, options={"partition-by": "at"})

    assert found(table) == list(enumerate(times))
    assert len(list(table.load().scan().plan_files())) == 3


@DELTA.case("DeltaSuite.support Java8 API for DATE type", "DeltaSuite.support Java8 API for TIMESTAMP type")
@pytest.mark.parametrize("predicate", ["d = '9999-12-31'", "d = DATE '9999-12-31'"])
def test_days_at_the_end_of_time_are_replaced(table: PeerTable, predicate: str) -> None:
    """A day far away would be another one in the table."""
    save(table, frame({"d": DATE}, (date(1582, 10, 15),), (date(9999, 12, 31),)), options={"partition-by": "d"})
    save(
        table,
        frame({"d": DATE}, (date(9999, 12, 31),), (date(9999, 12, 31),)),
        "overwrite",
        {"replaceWhere": predicate},
    )

    assert found(table) == [(date(1582, 10, 15),), (date(9999, 12, 31),), (date(9999, 12, 31),)]


# Columns that were renamed or dropped in the table, which Delta calls column mapping.


def renamed(table: PeerTable, old: str, new: str) -> None:
    """Rename a column as another writer does."""
    with table.load().update_schema() as change:
        change.rename_column(old, new)


def dropped(table: PeerTable, name: str) -> None:
    """Drop a column as another writer does."""
    with table.load().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column(name)


@DELTA.case("DeltaColumnMappingSuite.write/merge df to table")
def test_renamed_column_is_written_under_its_new_name(table: PeerTable) -> None:
    """Old values would be lost with the old name."""
    save(table, with_part(1))
    renamed(table, "part", "rest")
    save(table, frame({"id": LONG, "rest": LONG}, (2, 0)))

    assert names(table) == ["id", "rest"]
    assert found(table) == [(1, 1), (2, 0)]


@DELTA.case("DeltaColumnMappingSuite.valid replaceWhere")
def test_range_of_a_renamed_column_is_replaced(table: PeerTable) -> None:
    """Rows that were written under the old name would stay, or all be lost."""
    save(table, with_part(1, 2, 3), options={"partition-by": "part"})
    renamed(table, "part", "rest")
    save(table, frame({"id": LONG, "rest": LONG}, (5, 1)), "overwrite", {"replaceWhere": "rest = 1"})

    assert found(table) == [(2, 0), (5, 1)]


@DELTA.case("DeltaSuite.dynamic partition overwrite with conflicting logical vs. physical named partition columns")
def test_partitions_of_renamed_columns_are_replaced(table: PeerTable) -> None:
    """The partitions of another column would be replaced."""
    save(table, frame({"id": LONG, "a": LONG, "b": LONG}, (1, 1, 2), (2, 2, 1)), options={"partition-by": "a, b"})
    renamed(table, "a", "c")
    renamed(table, "b", "d")
    data = frame({"id": LONG, "d": LONG, "c": LONG}, (3, 2, 1))
    save(table, data, "overwrite", {"partitionOverwriteMode": "dynamic"})

    assert found(table) == [(2, 2, 1), (3, 1, 2)]


@DELTA.case("DeltaColumnMappingSuite.getPhysicalNameFieldMap", "DeltaColumnMappingSuite.explicit id matching")
def test_files_name_columns_by_id(table: PeerTable) -> None:
    """A reader would find a column's values by a name that it no longer has."""
    save(table, with_part(1))
    renamed(table, "part", "rest")
    renamed(table, "id", "part")
    renamed(table, "rest", "id")
    save(table, frame({"part": LONG, "id": LONG}, (2, 0)))

    assert found(table) == [(1, 1), (2, 0)]
    assert names(table) == ["part", "id"]


@DELTA.case("DeltaColumnMappingSuite.is drop/rename column operation")
def test_dropped_column_that_comes_again_is_a_new_one(table: PeerTable) -> None:
    """Values of a column that was dropped would be back."""
    save(table, with_part(1))
    dropped(table, "part")
    save(table, with_part(2), options=MERGE)

    assert found(table) == [(1, None), (2, 0)]


@DELTA.case(
    "DeltaColumnMappingSuite.replace delta table will reuse the field id only when column name and type unchanged"
)
def test_overwrite_keeps_the_ids_of_columns_that_stay(table: PeerTable) -> None:
    """Readers of older snapshots would see other columns."""
    save(table, frame({"id": LONG, "value": LONG}, (1, 1)))
    ids_before = {field.name: field.field_id for field in table.load().schema().fields}
    save(table, frame({"id": LONG, "value": STRING}, (2, "b")), "overwrite", OVERWRITE)

    ids_after = {field.name: field.field_id for field in table.load().schema().fields}
    assert ids_after["id"] == ids_before["id"]
    assert ids_after["value"] not in ids_before.values()


@DELTA.case("DeltaColumnMappingSuite.overwrite a column mapping table should preserve column mapping metadata")
def test_older_snapshot_stays_readable_after_an_overwrite_of_the_columns(table: PeerTable) -> None:
    """A reader that has begun would end with an error or with other values."""
    save(table, frame({"id": LONG, "value": LONG}, (1, 7)))
    before = table.load().current_snapshot()
    save(table, frame({"id": LONG, "value": STRING}, (2, "b")), "overwrite", OVERWRITE)

    assert before is not None
    assert table.load().scan(snapshot_id=before.snapshot_id).to_arrow().to_pylist() == [{"id": 1, "value": 7}]


@DELTA.case(
    "DeltaColumnMappingSuite.add nested column in schema on new protocol",
    "DeltaColumnMappingSuite.add column in schema on new protocol",
)
def test_columns_that_others_added_are_written(table: PeerTable) -> None:
    """A table that somebody else changed could not be written any more."""
    save(table, frame({"id": LONG, "s": struct(x=LONG)}, (1, {"x": 1})))
    with table.load().update_schema() as change:
        change.add_column("more", LongType())
        change.add_column(("s", "y"), LongType())
    save(table, frame({"id": LONG, "s": struct(x=LONG, y=LONG), "more": LONG}, (2, {"x": 2, "y": 3}, 4)))

    assert found(table) == [(1, {"x": 1, "y": None}, None), (2, {"x": 2, "y": 3}, 4)]


@DELTA.case("DeltaColumnMappingSuite.alter column order in schema on new protocol")
def test_columns_that_others_moved_are_written(table: PeerTable) -> None:
    """Values would come into each other's columns."""
    save(table, frame({"id": LONG, "value": LONG}, (1, 2)))
    with table.load().update_schema() as change:
        change.move_first("value")
    save(table, frame({"id": LONG, "value": LONG}, (3, 4)))

    assert names(table) == ["value", "id"]
    assert found(table) == [(2, 1), (4, 3)]
