"""What Delta's suites ask of streams, and of batches that are numbered so that they may be repeated."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType
from support.peer.cases import DELTA, DIFFERS
from support.peer.frames import (
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
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

NO_CASTS = DIFFERS("a type that does not fit is refused with both types named, never cast", see="coming-from/delta.md")
SESSION = DIFFERS(
    "settings of the session do not reach the sink: mergeSchema is an option of the write",
    see="coming-from/iceberg-runtime.md#settings-of-the-session",
)


def values(*numbers: int) -> Frame:
    """Return rows of one column."""
    return frame({"value": LONG}, *((number,) for number in numbers))


@DELTA.case("DeltaSinkSuite.append mode")
def test_each_epoch_adds_its_rows_once(table: PeerTable) -> None:
    """Rows of an epoch that Spark repeats would be there twice."""
    for number, rows in ((0, values(1)), (1, values(2)), (2, values(3)), (2, values(3))):
        stream(table, number, rows)

    assert found(table) == [(1,), (2,), (3,)]
    assert len(table.snapshots()) == 3


@DELTA.case("DeltaSinkSuite.complete mode")
def test_each_epoch_replaces_all_rows(table: PeerTable) -> None:
    """Totals of an earlier epoch would stay beside those of the last one."""
    for number in range(3):
        stream(table, number, values(number + 1), "complete")

    assert found(table) == [(3,)]
    assert [snapshot.summary.operation.value for snapshot in table.snapshots()][1:] == ["overwrite"] * 2  # type: ignore[union-attr]


@DELTA.case("DeltaSinkSuite.partitioned writing and batch reading")
def test_stream_writes_partitions(table: PeerTable) -> None:
    """Readers would have to read all files for one value."""
    data = frame({"id": LONG, "value": LONG}, (1, 100), (2, 200), (3, 300))
    stream(table, 0, data, options={"partition-by": "id"})
    stream(table, 1, data, options={"partition-by": "id"})

    assert found(table) == ordered(*data.rows, *data.rows)
    assert {tuple(file.partition) for file in table.files()} == {(1,), (2,), (3,)}


@DELTA.case("DeltaSinkSuite.throw exception when users are trying to write in batch with different partitioning")
def test_batch_with_another_partitioning_than_the_stream_is_refused(table: PeerTable) -> None:
    """Files would be laid out otherwise than the user asked for."""
    data = frame({"id": LONG, "value": LONG}, (1, 100))
    stream(table, 0, data, options={"partition-by": "id"})

    with pytest.raises(OptionError, match="partition-by"):
        save(table, data, options={"partition-by": "value"})


@DELTA.case("DeltaSinkSuite.incompatible schema merging throws errors - first streaming then batch")
def test_batch_of_other_types_than_the_stream_is_refused(table: PeerTable) -> None:
    """Texts would become numbers without a word."""
    stream(table, 0, frame({"id": LONG, "value": LONG}, (1, 100)))

    with pytest.raises(SchemaMismatchError, match="value"):
        save(table, frame({"id": LONG, "value": STRING}, (2, "200")))


@DELTA.case(
    "DeltaSinkSuite.can't write out with all columns being partition columns",
    verdict=DIFFERS("a table may be partitioned by all of its columns", see="coming-from/delta.md"),
)
def test_stream_is_partitioned_by_all_of_its_columns(table: PeerTable) -> None:
    """A table that Iceberg allows could not be written."""
    stream(table, 0, frame({"id": LONG, "value": LONG}, (1, 100)), options={"partition-by": "id, value"})

    assert found(table) == [(1, 100)]


@DELTA.case("DeltaSinkSuite.streaming write correctly sets isBlindAppend in CommitInfo")
def test_epoch_is_an_append_in_the_history(table: PeerTable) -> None:
    """Readers that follow appends alone would miss rows."""
    stream(table, 0, values(1))

    assert table.summary()["operation"] == "append"


@DELTA.case("DeltaSinkSuite.history includes user-defined metadata for DataFrame.writeStream API")
def test_note_of_the_user_stands_in_the_history_of_a_stream(table: PeerTable) -> None:
    """Nobody could say later which job wrote a snapshot."""
    stream(table, 0, values(1), options={"userMetadata": "testMeta!"})

    assert table.summary()["userMetadata"] == "testMeta!"


@DELTA.case("DeltaSinkSuite.path not specified")
def test_stream_without_a_table_is_refused(table: PeerTable) -> None:
    """Its rows would go to a place that nobody named."""
    with pytest.raises(OptionError, match="namespace and table"):
        stream(table.named("t"), 0, values(1))


@DELTA.case("DeltaSinkSuite.SPARK-21167: encode and decode path correctly")
def test_stream_writes_to_a_table_of_an_odd_name(table: PeerTable) -> None:
    """Its files would be in a place where no reader finds them."""
    odd = PeerTable(warehouse=table.warehouse, name="db.`hello world`")
    stream(odd, 0, values(1))

    assert found(odd) == [(1,)]


@DELTA.case("DeltaSinkSuite.allow schema evolution after renaming column")
def test_stream_goes_on_after_a_column_was_renamed(table: PeerTable) -> None:
    """Values would come into a column that the user has renamed, or the old ones be back."""
    stream(table, 0, values(1))
    with table.load().update_schema() as change:
        change.rename_column("value", "new_value")

    with pytest.raises(SchemaMismatchError, match="value"):
        stream(table, 1, values(2))

    stream(table, 1, frame({"new_value": LONG}, (2,)))
    stream(table, 2, values(3), options={"mergeSchema": "true"})
    assert names(table) == ["new_value", "value"]
    assert found(table) == ordered((1, None), (2, None), (None, 3))


@DELTA.case("DeltaSinkSuite.allow schema evolution after dropping column")
def test_stream_goes_on_after_a_column_was_dropped(table: PeerTable) -> None:
    """Values of a column that was dropped would be back."""
    data = frame({"id": LONG, "value": LONG}, (1, 100))
    stream(table, 0, data)
    with table.load().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("value")

    with pytest.raises(SchemaMismatchError, match="value"):
        stream(table, 1, data)

    stream(table, 1, data, options={"mergeSchema": "true"})
    assert found(table) == ordered((1, None), (1, 100))


# Columns of streams.


@DELTA.case(
    "SchemaEnforcementStreamingSuite.reject schema changes by default - streaming",
    "SchemaEnforcementStreamingSuite.reject schema changes when autoMigrate enabled but writer config disabled",
)
@pytest.mark.parametrize("options", [{}, {"mergeSchema": "false"}], ids=["not asked", "refused"])
def test_stream_brings_no_column_unasked(table: PeerTable, options: dict[str, str]) -> None:
    """A misspelt column would come into the table for ever."""
    save(table, frame({"id": LONG}, (1,)))

    with pytest.raises(SchemaMismatchError, match="value1234"):
        stream(table, 0, frame({"value1234": LONG}, (2,)), options=options)

    assert found(table) == [(1,)]


@DELTA.case("SchemaEnforcementStreamingSuite.allow schema change with option - streaming")
@DELTA.case(
    "SchemaEnforcementStreamingSuite.allow schema changes when autoMigrate is enabled - streaming", verdict=SESSION
)
def test_stream_brings_a_column_if_asked_for(table: PeerTable) -> None:
    """A table could not grow with its stream."""
    save(table, frame({"id": LONG}, (1,)))
    stream(table, 0, frame({"value1234": LONG}, (2,)), options={"mergeSchema": "true"})

    assert names(table) == ["id", "value1234"]
    assert found(table) == ordered((1, None), (None, 2))


@DELTA.case("SchemaEnforcementStreamingSuite.reject complete mode with new schema by default")
def test_totals_bring_no_column_unasked(table: PeerTable) -> None:
    """A column that readers know would be gone, or another one be there."""
    stream(table, 0, frame({"id": LONG, "count": LONG}, (1, 2)), "complete")

    with pytest.raises(SchemaMismatchError, match="total"):
        stream(table, 1, frame({"id": LONG, "total": LONG}, (1, 3)), "complete")


@DELTA.case(
    "SchemaEnforcementStreamingSuite.complete mode can overwrite schema with option",
    "DeltaSinkImplicitCastSuite.implicit cast with schema overwrite",
)
def test_totals_take_the_columns_of_the_stream_if_asked_for(table: PeerTable) -> None:
    """A query whose totals change could not be started again."""
    overwrite = {"overwriteSchema": "true"}
    columns = {"a": DecimalType(6, 3), "count": LONG, "b": INT, "c": STRING}
    stream(table, 0, frame(columns, (Decimal("10.000"), 1, 1, "11")), "complete", overwrite)
    columns = {"a": DecimalType(6, 3), "count": LONG, "b": LONG, "d": STRING}
    rows = [(Decimal("10.000"), 1, 1, "21"), (Decimal("20.000"), 1, 1, "21")]
    stream(table, 1, frame(columns, *rows), "complete", overwrite)

    assert names(table) == ["a", "count", "b", "d"]
    assert found(table) == rows


@DELTA.case(
    "SchemaEnforcementStreamingSuite.complete mode behavior with autoMigrate enabled is to migrate schema",
    verdict=SESSION,
)
def test_totals_add_a_column_if_asked_for(table: PeerTable) -> None:
    """A column that readers know would be gone."""
    stream(table, 0, frame({"id": LONG, "count": LONG}, (1, 2)), "complete")
    stream(table, 1, frame({"id": LONG, "total": LONG}, (1, 3)), "complete", {"mergeSchema": "true"})

    assert names(table) == ["id", "count", "total"]
    assert found(table) == [(1, None, 3)]


@DELTA.case("DeltaSinkImplicitCastSuite.write narrower type - int -> long")
def test_narrower_type_widens_into_the_table(table: PeerTable) -> None:
    """A stream of smaller numbers would have to be cast."""
    stream(table, 0, values(-(2**63)))
    stream(table, 1, frame({"value": INT}, (23,)))

    assert found(table) == [(-(2**63),), (23,)]


_CASTS: dict[str, tuple[DataType, Any, DataType, Any]] = {
    "long -> int": (INT, 17, LONG, 23),
    "long -> int - overflow": (INT, 17, LONG, 2**63 - 1),
    "Decimal(10, 4) -> Decimal(6, 2)": (DecimalType(6, 2), Decimal("1234.56"), DecimalType(10, 4), Decimal("98.7654")),
    "date -> string": (STRING, "abc", DATE, date(2024, 7, 25)),
    "struct": (struct(a=INT), {"a": 17}, struct(a=LONG), {"a": -12}),
    "map": (MapType(INT, INT), {17: 57}, MapType(LONG, STRING), {-12: "3"}),
    "array": (ArrayType(INT), [17], ArrayType(STRING), ["-12"]),
    "partition": (DATE, date(2024, 7, 26), TIMESTAMP_NTZ, datetime(2024, 7, 27)),  # noqa: DTZ001
}


@DELTA.case(
    "DeltaSinkImplicitCastSuite.write wider type - long -> int",
    "DeltaSinkImplicitCastSuite.write wider type - long -> int - overflow with storeAssignmentPolicy=ANSI",
    "DeltaSinkImplicitCastSuite.write wider type - long -> int - overflow with storeAssignmentPolicy=LEGACY",
    "DeltaSinkImplicitCastSuite.write wider type - Decimal(10, 4) -> Decimal(6, 2)",
    "DeltaSinkImplicitCastSuite.write different type - date -> string",
    "DeltaSinkImplicitCastSuite.implicit cast in nested struct/array/map",
    "DeltaSinkImplicitCastSuite.implicit cast on partition value",
    verdict=NO_CASTS,
)
@DELTA.case("DeltaSinkImplicitCastSuite.write wider type - long -> int - overflow with storeAssignmentPolicy=STRICT")
@pytest.mark.parametrize("kind", list(_CASTS))
def test_stream_of_a_type_that_does_not_fit_is_refused(table: PeerTable, kind: str) -> None:
    """Values would be cut, rounded or read otherwise without a word."""
    there, old, sent, new = _CASTS[kind]
    stream(table, 0, frame({"c": there}, (old,)), options={"partition-by": "c"} if kind == "partition" else {})
    before = found(table)

    with pytest.raises(SchemaMismatchError, match="c"):
        stream(table, 1, frame({"c": sent}, (new,)))

    assert found(table) == before


@DELTA.case("DeltaSinkImplicitCastSuite.write invalid nested type - array -> struct")
def test_array_into_a_struct_is_refused(table: PeerTable) -> None:
    """A value would be read as something else."""
    stream(table, 0, frame({"s": struct(a=INT)}, ({"a": 17},)))

    with pytest.raises(SchemaMismatchError, match="s"):
        stream(table, 1, frame({"s": ArrayType(INT)}, ([-12],)))


@DELTA.case("DeltaSinkImplicitCastSuite.implicit cast with schema evolution", verdict=NO_CASTS)
def test_stream_that_adds_a_column_casts_no_other(table: PeerTable) -> None:
    """Values would be changed where only a column was to be added."""
    stream(table, 0, frame({"a": DecimalType(6, 3)}, (Decimal("123.000"),)))

    with pytest.raises(SchemaMismatchError, match="a"):
        stream(table, 1, frame({"a": LONG, "b": STRING}, (678, "abc")), options={"mergeSchema": "true"})

    assert names(table) == ["a"]


@DELTA.case(
    "DeltaSinkImplicitCastSuite.implicit cast with case sensitivity, caseSensitive=true",
    "DeltaSinkImplicitCastSuite.implicit cast with case sensitivity, caseSensitive=false",
)
def test_column_that_differs_in_case_is_the_same_one(table: PeerTable) -> None:
    """A stream would end because of a capital letter."""
    stream(table, 0, values(17))
    stream(table, 1, frame({"VALUE": INT}, (23,)))

    assert names(table) == ["value"]
    assert found(table) == [(17,), (23,)]


@DELTA.case("DeltaSinkImplicitCastSuite.schema evolution with case sensitivity and without type mismatch")
def test_column_that_differs_in_case_is_another_one_if_case_counts(table: PeerTable) -> None:
    """Values would come into a column of another name."""
    stream(table, 0, frame({"a": INT}, (17,)))

    with pytest.raises(SchemaMismatchError, match="A"):
        stream(table, 1, frame({"A": INT}, (23,)), options={"case-sensitive": "true"})


@DELTA.case("DeltaSinkImplicitCastSuite.implicit cast and missing column")
def test_missing_column_of_a_stream_gets_nulls(table: PeerTable) -> None:
    """A stream would end because of a column that may be null."""
    stream(table, 0, frame({"a": LONG, "b": STRING}, (1, "abc")))
    stream(table, 1, frame({"a": INT}, (2,)))

    assert found(table) == [(1, "abc"), (2, None)]


@DELTA.case("DeltaSinkImplicitCastSuite.implicit cast after renaming/dropping columns with column mapping")
def test_stream_writes_the_column_that_has_the_name_now(table: PeerTable) -> None:
    """Values would come into a column that was dropped."""
    stream(table, 0, frame({"a": INT, "b": LONG}, (1, 100)))
    with table.load().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("a")
    with table.load().update_schema() as change:
        change.rename_column("b", "a")
    stream(table, 1, frame({"a": INT}, (17,)))

    assert found(table) == [(17,), (100,)]


@DELTA.case("DeltaInsertIntoColumnOrderSuite.insert with implicit cast and different top-level column ordering")
def test_columns_of_a_stream_are_matched_by_name(table: PeerTable) -> None:
    """Values would come into each other's columns."""
    stream(table, 0, frame({"a": LONG, "b": DOUBLE}, (1, 1.5)))
    stream(table, 1, frame({"b": DOUBLE, "a": INT}, (2.5, 2)))

    assert found(table) == [(1, 1.5), (2, 2.5)]


# Numbered batches.


def numbered(app: str, version: int) -> dict[str, str]:
    """Return the options of a run of an application."""
    return {"txnAppId": app, "txnVersion": str(version)}


@DELTA.case(
    "DeltaSuite.idempotent write: idempotent DataFrame insert",
    "DeltaSuite.Idempotent non-legacy Dataframe save: append",
    "DeltaSuite.Idempotent legacy Dataframe save: append",
)
def test_batch_that_is_repeated_lands_once(table: PeerTable) -> None:
    """A retry of a scheduler would double its rows."""
    rows = frame({"a": INT}, (1,), (4,), (7,))
    counts = []
    for app, version in (("one", 1), ("one", 2), ("one", 5), ("one", 5), ("one", 3), ("two", 5), ("two", 5)):
        save(table, rows, options=numbered(app, version))
        counts.append((len(found(table)), len(table.snapshots())))

    assert counts == [(3, 1), (6, 2), (9, 3), (9, 3), (9, 3), (12, 4), (12, 4)]


@DELTA.case(
    "DeltaSuite.Idempotent non-legacy Dataframe save: overwrite",
    "DeltaSuite.Idempotent legacy Dataframe save: overwrite",
)
def test_overwrite_that_is_repeated_lands_once(table: PeerTable) -> None:
    """A retry would replace the rows that came after its first run."""
    for app, version, value in (("one", 1, 1), ("one", 2, 2), ("two", 2, 3), ("one", 2, 4), ("one", 1, 5)):
        save(table, values(value), "overwrite", numbered(app, version))

    assert found(table) == [(3,)]
    assert len(table.snapshots()) == 3


@DELTA.case("DeltaSuite.Idempotent non-legacy Dataframe save: one option without the other")
@pytest.mark.parametrize("option", ["txnAppId", "txnVersion"])
def test_number_and_name_of_a_run_need_each_other(table: PeerTable, option: str) -> None:
    """A user would trust a number that nothing counts."""
    with pytest.raises(OptionError, match="need each other"):
        save(table, values(1), options={option: "1"})


@DELTA.case("DeltaSuite.idempotent write: valid txnVersion")
@pytest.mark.parametrize("version", ["someVersion", "1.5", ""])
def test_version_that_is_no_number_is_refused(table: PeerTable, version: str) -> None:
    """Runs could not be told apart by it."""
    with pytest.raises(OptionError, match="txn-version"):
        save(table, values(1), options={"txnAppId": "app", "txnVersion": version})


@DELTA.case(
    "DeltaSuite.idempotent write: auto reset txnVersion",
    verdict=DIFFERS(
        "settings of the session do not reach the sink: each write is numbered by its options",
        see="coming-from/delta.md",
    ),
)
def test_batch_without_a_number_is_written_each_time(table: PeerTable) -> None:
    """A batch would be skipped because of a number that another one had."""
    save(table, values(1), options=numbered("app", 0))
    save(table, values(2))
    save(table, values(3), options=numbered("app", 0))

    assert found(table) == [(1,), (2,)]


@DELTA.case("DeltaSuite.idempotent writes in streaming foreachBatch")
def test_micro_batch_that_failed_between_two_tables_lands_once_in_each(table: PeerTable) -> None:
    """Rows would be doubled in the first table, or be missing in the second."""
    first, second = table.named("db.first"), table.named("db.second")

    def run(number: int, *, dies: bool) -> None:
        save(first, values(number), options=numbered("query", number))
        if not dies:
            save(second, values(number), options=numbered("query", number))

    for number, dies in ((0, False), (1, True), (1, False), (2, False)):
        run(number, dies=dies)

    assert found(first) == found(second) == [(0,), (1,), (2,)]
