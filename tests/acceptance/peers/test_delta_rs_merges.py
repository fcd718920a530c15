"""delta-rs: the suite of `merge`, as far as it is a row that replaces that of its key."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IntegerType, NestedField
from pyspark.sql.types import ArrayType, DataType, DecimalType
from support.peer.cases import DELTA_RS, DIFFERS
from support.peer.frames import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Frame,
    found,
    frame,
    names,
    save,
    struct,
    upsert,
)
from support.peer.tables import PeerTable

from iceberg_ds.errors import RefusedRowsError, SchemaMismatchError

SAMPLE: dict[str, DataType] = {"id": STRING, "price": LONG, "sold": INT}
NO_MERGE = DIFFERS(
    "a row replaces the whole row of its key, or deletes it; there are no clauses with expressions",
    see="coming-from/delta.md",
)


def sample(*rows: tuple[str, int | None, int | None]) -> Frame:
    """Return rows of sold things."""
    return frame(SAMPLE, *rows)


def stock(table: PeerTable) -> None:
    """Write the rows that most cases begin with."""
    save(table, sample(*((str(number), number, number) for number in range(1, 6))))


@DELTA_RS.case("test_merge.test_merge_when_matched_update_all_wo_predicate", "test_merge.test_merge")
def test_rows_of_known_keys_are_replaced(table: PeerTable) -> None:
    """A key would be there twice."""
    stock(table)
    upsert(table, sample(("4", 10, 10), ("5", 100, 20)), "id")

    assert found(table) == [("1", 1, 1), ("2", 2, 2), ("3", 3, 3), ("4", 10, 10), ("5", 100, 20)]


@DELTA_RS.case("test_merge.test_merge_when_not_matched_insert_wo_predicate")
def test_rows_of_new_keys_are_added(table: PeerTable) -> None:
    """A new key would be lost."""
    stock(table)
    upsert(table, sample(("4", 10, 10), ("6", 10, 10)), "id")

    assert [row[:2] for row in found(table)] == [("1", 1), ("2", 2), ("3", 3), ("4", 10), ("5", 5), ("6", 10)]


@DELTA_RS.case(
    "test_merge.test_merge_when_matched_delete_wo_predicate",
    "test_merge.test_merge_when_matched_delete_unconditional_duplicates_pass",
)
def test_two_deletes_of_one_key_are_one(table: PeerTable) -> None:
    """A feed that tells of a delete twice would end the job."""
    stock(table)
    deletes = frame({"id": STRING, "op": STRING}, ("5", "delete"), ("5", "delete"))
    upsert(table, deletes, "id", {"operation-column": "op"})

    assert [row[0] for row in found(table)] == ["1", "2", "3", "4"]


@DELTA_RS.case(
    "test_merge.test_merge_when_matched_delete_with_predicate",
    "test_merge.test_merge_multiple_when_matched_delete_with_predicate",
)
def test_rows_that_satisfy_a_predicate_delete(table: PeerTable) -> None:
    """Rows would stay that the source has deleted."""
    stock(table)
    marked = frame({**SAMPLE, "deleted": BOOLEAN}, ("4", 4, 4, False), ("5", 5, 5, True))
    upsert(table, marked, "id", {"delete-when": "deleted = true", "mergeSchema": "true"})

    assert [row[0] for row in found(table)] == ["1", "2", "3", "4"]


@DELTA_RS.case("test_merge.test_merge_when_matched_update_duplicates")
def test_two_rows_of_one_key_are_refused(table: PeerTable) -> None:
    """Which of them is in the table would be up to chance."""
    stock(table)
    before = found(table)

    with pytest.raises(RefusedRowsError, match="several rows"):
        upsert(table, sample(("4", 10, 10), ("4", 100, 20)), "id")

    assert found(table) == before


@DELTA_RS.case("test_merge.test_merge_when_matched_delete_conditional_duplicates_fail")
def test_a_row_and_a_delete_of_one_key_are_refused(table: PeerTable) -> None:
    """Whether the row is there would be up to chance."""
    stock(table)
    marked = frame({**SAMPLE, "op": STRING}, ("5", 105, 1, "delete"), ("5", 106, 1, "update"))

    with pytest.raises(RefusedRowsError, match="5"):
        upsert(table, marked, "id", {"operation-column": "op"})

    assert len(found(table)) == 5


@DELTA_RS.case(
    "test_merge.test_merge_when_matched_update_duplicate_with_noop_source_row_passes",
    verdict=DIFFERS("every row counts; of several of one key sequence-by tells which one wins", see="keys/meaning.md"),
)
def test_the_highest_of_two_rows_of_one_key_wins(table: PeerTable) -> None:
    """An older row would be in the place of the newer one."""
    stock(table)
    upsert(table, sample(("4", 10, 7), ("4", 100, 8)), "id", {"sequence-by": "sold"})

    assert found(table)[3] == ("4", 100, 8)


@DELTA_RS.case(
    "test_merge.test_merge_when_matched_update_wo_predicate_with_schema_evolution",
    "test_merge.test_merge_when_matched_update_wo_predicate_and_insert_with_schema_evolution",
    "test_merge.test_merge_when_not_matched_insert_with_predicate_schema_evolution",
)
def test_upsert_adds_a_column_if_asked_for(table: PeerTable) -> None:
    """A table could not grow with its feed."""
    stock(table)
    more = frame({**SAMPLE, "customer": STRING}, ("4", 10, 10, "Adam"), ("9", 9, 9, "Eve"))
    upsert(table, more, "id", {"mergeSchema": "true"})

    assert names(table) == [*SAMPLE, "customer"]
    assert [(row[0], row[3]) for row in found(table)][3:] == [("4", "Adam"), ("5", None), ("9", "Eve")]


@DELTA_RS.case(
    "test_merge.test_merge_when_matched_update_wo_predicate",
    "test_merge.test_merge_when_matched_update_all_with_exclude",
    "test_merge.test_merge_when_matched_update_with_predicate",
    "test_merge.test_merge_when_not_matched_insert_with_predicate",
    "test_merge.test_merge_when_not_matched_by_source_update_wo_predicate",
    "test_merge.test_merge_when_not_matched_by_source_delete_wo_predicate",
    verdict=NO_MERGE,
)
def test_row_replaces_the_whole_row_of_its_key(table: PeerTable) -> None:
    """A user would trust values to stay, or to go, that do not."""
    stock(table)
    upsert(table, frame({"id": STRING, "price": LONG}, ("4", 10)), "id")

    assert found(table)[3] == ("4", 10, None)
    assert len(found(table)) == 5


@DELTA_RS.case(
    "test_merge.test_merge_when_not_matched_insert_all_with_predicate_special_column_names",
    "test_merge.test_merge_field_special_characters_delete_2438",
    "test_merge.test_merge_preserves_casing_in_quoted_identifiers",
    "test_merge.test_merge_camelcase_non_nullable_column_4082",
)
@pytest.mark.parametrize("name", ["sp-id", "the id", "fooBar", "a.b", "x%y", "ü"])
def test_key_has_any_name(table: PeerTable, name: str) -> None:
    """A key with an odd name would not be found, and be doubled."""
    columns = {name: STRING, "v": LONG}
    save(table, frame(columns, ("A001", 1), ("A002", 2)))
    upsert(table, frame(columns, ("A002", 9), ("A003", 9)), f"`{name}`")

    assert names(table) == [name, "v"]
    assert found(table) == [("A001", 1), ("A002", 9), ("A003", 9)]


_KEYS: dict[str, tuple[DataType, Any, Any]] = {
    "number": (LONG, 3, 4),
    "text": (STRING, "3", "4"),
    "truth": (BOOLEAN, True, False),
    "day": (DATE, date(2022, 2, 1), date(2022, 2, 2)),
    "time": (TIMESTAMP, datetime(2022, 2, 1, tzinfo=timezone.utc), datetime(2022, 2, 2, tzinfo=timezone.utc)),
    "local time": (TIMESTAMP_NTZ, datetime(2022, 2, 1), datetime(2022, 2, 2)),  # noqa: DTZ001
    "decimal": (DecimalType(6, 1), Decimal("150.5"), Decimal("-0.1")),
}


@DELTA_RS.case(
    "test_merge.test_merge_date_partitioned_2344",
    "test_merge.test_merge_timestamps_partitioned_2344",
    "test_merge.test_merge_isin_partition_pruning",
    "test_merge.test_merge_isin_string_partition_pruning",
    "test_merge.test_merge_on_decimal_3033",
    "test_merge.test_merge_boolean_target_predicate_4490",
)
@pytest.mark.parametrize("kind", list(_KEYS))
def test_key_that_partitions_the_table_is_found(table: PeerTable, kind: str) -> None:
    """A partition's rows would not be found, and be doubled."""
    column, one, other = _KEYS[kind]
    columns = {"part": column, "foo": STRING}
    first = upsert(table, frame(columns, (one, "hello"), (other, "world")), "part", {"partition-by": "part"})
    second = upsert(table, frame(columns, (one, "again")), "part")

    assert sorted(row["foo"] for row in table.rows()) == ["again", "world"]
    assert (first.replaced_rows, second.replaced_rows) == (0, 1)


@DELTA_RS.case("test_merge.test_merge_partition_value_with_space_is_idempotent_4352")
def test_upsert_of_a_partition_with_a_space_twice_changes_nothing(table: PeerTable) -> None:
    """Its rows would be there twice after the second run."""
    columns = {"group": STRING, "region": STRING, "val": DOUBLE}
    rows = [("foo bar", region, value) for region, value in (("A", 1.0), ("B", 2.0), ("C", 3.0))]
    results = [upsert(table, frame(columns, *rows), "`group`, region", {"partition-by": "`group`"}) for _ in range(2)]

    assert found(table) == rows
    assert [result.replaced_rows for result in results] == [0, 3]


@DELTA_RS.case("test_merge.test_merge_partitioned_schema_evolution_with_existing_string_partition_4292")
def test_upsert_into_partitions_adds_a_column(table: PeerTable) -> None:
    """Old rows would not be found once the table has grown."""
    save(table, frame({"id": LONG, "part": STRING}, (1, "a"), (2, "b")), options={"partition-by": "part"})
    more = frame({"id": LONG, "part": STRING, "extra": STRING}, (2, "b", "new"), (3, "b", "new"))
    upsert(table, more, "id, part", {"mergeSchema": "true"})

    assert found(table) == [(1, "a", None), (2, "b", "new"), (3, "b", "new")]


@DELTA_RS.case("test_merge.test_merge_non_nullable")
def test_null_in_a_required_column_is_refused(table: PeerTable) -> None:
    """No reader could read the file."""
    table.create(
        Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "flag", BooleanType(), required=True))
    )
    rows = frame({"id": INT, "flag": BOOLEAN}, (1, True), (2, None))

    with pytest.raises(SchemaMismatchError, match="flag"):
        upsert(table, rows, "id", {"evolve-keys": "true"})

    assert found(table) == []


@DELTA_RS.case("test_merge.test_struct_casting", "test_writer.test_write_structs")
def test_structs_are_replaced_as_a_whole(table: PeerTable) -> None:
    """Parts of an old value would stay within a new one."""
    columns = {"id": LONG, "name": STRING, "address": struct(street=STRING, city=STRING)}
    save(table, frame(columns, (2, "Marry", {"street": "123 Main St", "city": "Anytown"})))
    upsert(table, frame(columns, (2, "Merged", {"street": "1 Front", "city": None})), "id")

    assert found(table) == [(2, "Merged", {"street": "1 Front", "city": None})]


@DELTA_RS.case("test_merge.test_merge_when_matched_update_preserves_list_with_null_element")
def test_lists_with_nulls_are_written_by_key(table: PeerTable) -> None:
    """A null within a list would be lost."""
    columns = {"id": LONG, "l": ArrayType(STRING)}
    save(table, frame(columns, (1, ["a"]), (2, ["b", None])))
    upsert(table, frame(columns, (1, [None, "c"])), "id")

    assert found(table) == [(1, [None, "c"]), (2, ["b", None])]


@DELTA_RS.case(
    "test_merge.test_merge_when_wrong_but_castable_type_passed_while_merge",
    "test_merge.test_merge_type_mismatch_default_castable_value_succeeds",
    "test_merge.test_merge_safe_cast_uncastable_value_becomes_null_for_nullable_target",
    "test_merge.test_merge_safe_cast_numeric_overflow_becomes_null_for_nullable_target",
    "test_merge.test_merge_schema_safe_cast_existing_column_failed_cast_becomes_null",
    verdict=DIFFERS("a type that does not fit is refused, never cast", see="coming-from/delta.md"),
)
@DELTA_RS.case(
    "test_merge.test_merge_type_mismatch_default_uncastable_value_errors",
    "test_merge.test_merge_schema_type_mismatch_existing_column_still_errors_by_default",
    "test_merge.test_merge_safe_cast_uncastable_value_still_fails_for_non_nullable_target",
)
@pytest.mark.parametrize(("kind", "value"), [(STRING, "1"), (STRING, "x"), (DOUBLE, 1e300)], ids=["1", "x", "1e300"])
def test_type_that_does_not_fit_is_refused(table: PeerTable, kind: DataType, value: Any) -> None:
    """Values that cannot be cast would become null."""
    stock(table)

    with pytest.raises(SchemaMismatchError, match="price"):
        upsert(table, frame({"id": STRING, "price": kind}, ("7", value)), "id", {"mergeSchema": "true"})

    assert len(found(table)) == 5


@DELTA_RS.case("test_column_mapping.test_column_mapping_merge_roundtrip")
def test_upsert_finds_rows_under_a_key_that_was_renamed(table: PeerTable) -> None:
    """Rows that were written under the old name would not be found, and be doubled."""
    stock(table)
    with table.load().update_schema() as change:
        change.rename_column("id", "sku")
    upsert(table, frame({"sku": STRING, "price": LONG, "sold": INT}, ("4", 10, 10)), "sku")

    assert [row[:2] for row in found(table)] == [("1", 1), ("2", 2), ("3", 3), ("4", 10), ("5", 5)]


@DELTA_RS.case(
    "test_column_mapping.test_column_mapping_append_roundtrip",
    "test_column_mapping.test_column_mapping_overwrite_roundtrip",
    "test_writer.test_issue_3936_column_mapping",
)
def test_renamed_columns_are_appended_to_and_overwritten(table: PeerTable) -> None:
    """Old values would be lost with the old name."""
    stock(table)
    with table.load().update_schema() as change:
        change.rename_column("price", "cost")
    columns = {"id": STRING, "cost": LONG, "sold": INT}
    save(table, frame(columns, ("6", 6, 6)))
    appended = found(table)
    save(table, frame(columns, ("7", 7, 7)), "overwrite")

    assert [row[1] for row in appended] == [1, 2, 3, 4, 5, 6]
    assert found(table) == [("7", 7, 7)]


@DELTA_RS.case(
    "test_column_mapping.test_column_mapping_write_schema_evolution_rejected",
    "test_column_mapping.test_column_mapping_merge_schema_evolution_rejected",
    verdict=DIFFERS("a table with renamed columns grows like any other", see="coming-from/delta.md"),
)
def test_table_with_renamed_columns_grows(table: PeerTable) -> None:
    """A rename would end the growth of a table."""
    stock(table)
    with table.load().update_schema() as change:
        change.rename_column("price", "cost")
    more = frame({"id": STRING, "cost": LONG, "sold": INT, "price": LONG}, ("6", 6, 6, 60))
    save(table, more, options={"mergeSchema": "true"})

    assert [(row["cost"], row["price"]) for row in table.rows()][-2:] == [(5, None), (6, 60)]
